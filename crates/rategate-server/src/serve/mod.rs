//! The service as a whole: listeners, threads, signals, and the end in order.

mod kept;
mod web;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rategate::{Clock as _, MonotonicClock};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

use self::web::{Parts, Web};
use crate::config::settings::{self, Listener};
use crate::config::{Layers, Loaded, Settings, Watch};
use crate::engine::{Engine, EngineSettings, LoadError, Observer, Saver};
use crate::net::{self, Access, Bound, Caps, Door, Drainer, Limits, Tally, Tls, TlsError, Workers};
use crate::observe::admin::Admin;
use crate::observe::{self, Observe};
use crate::protocol::grpc::{self, Health, Rls};
use crate::protocol::http::{self, Api, ConnectionLimits};
use crate::protocol::resp::{Bounds, Resp};
use crate::protocol::rls;

/// What a service is started with.
#[derive(Debug)]
pub struct Start {
    /// Where it listens, how much of everything there may be, and what it limits.
    pub loaded: Loaded,
    /// Where that was read, and is followed while the service runs; and what goes before what is written there.
    pub files: Option<(PathBuf, Layers)>,
    /// Whether SIGTERM and SIGINT end it, and SIGHUP has the files read again. Once for a process.
    pub signals: bool,
}

/// A service at work. Dropped, it ends without waiting for anybody.
#[derive(Debug)]
pub struct Running {
    engine: Engine<MonotonicClock>,
    listening: Vec<Listening>,
    is_ready: Arc<AtomicBool>,
    orders: mpsc::UnboundedSender<Order>,
    front: Option<JoinHandle<()>>,
}

/// Where a service can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// What is spoken there: `resp`, `http` or `grpc`.
    pub protocol: &'static str,
    /// The place, with the port that was found if none was said.
    pub address: net::Address,
    /// Whether by TLS.
    pub tls: bool,
}

/// Why a service does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Everybody could reach it, and nothing says who they are.
    #[error(
        "{protocol} on {address} can be reached by other machines, and nothing says who may ask: set a token, ask for \
         certificates of clients, listen on 127.0.0.1, or say that it is meant so (--insecure)"
    )]
    Open {
        /// What is spoken there.
        protocol: &'static str,
        /// Where.
        address: settings::Address,
    },
    /// A listener asks for a token that nobody has set.
    #[error("{protocol} on {address} asks for a token, and none is set")]
    NoToken {
        /// What is spoken there.
        protocol: &'static str,
        /// Where.
        address: settings::Address,
    },
    /// A listener speaks TLS, and there is no certificate.
    #[error("{protocol} on {address} speaks TLS, and there is no certificate")]
    NoCertificate {
        /// What is spoken there.
        protocol: &'static str,
        /// Where.
        address: settings::Address,
    },
    /// The place is taken, or not ours to have.
    #[error("cannot listen for {protocol} on {address}: {error}")]
    Bind {
        /// What is spoken there.
        protocol: &'static str,
        /// Where.
        address: settings::Address,
        /// Why.
        error: io::Error,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The rules cannot be put into force.
    #[error(transparent)]
    Rules(#[from] LoadError),
    /// The store cannot be used.
    #[error("the store: {0}")]
    Store(String),
    /// The counters of before cannot be used, and the configuration says not to start then.
    #[error("the counters of before: {0}")]
    Counters(String),
    /// The system has no more threads or descriptors.
    #[error("cannot start its threads: {0}")]
    Threads(#[from] io::Error),
    /// Nothing is to be spoken anywhere.
    #[error("there is nowhere to listen: all protocols are off")]
    Nowhere,
}

/// What the front thread is told.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// End in order.
    Drain,
    /// End now.
    Stop,
}

/// A listener that is bound.
struct Place {
    protocol: &'static str,
    bound: Bound,
    tls: Option<Tls>,
    token_required: bool,
}

/// Starts a service: from when this returns, connections are accepted at all its listeners.
///
/// One thread accepts, watches for signals and lets time pass for schedules; the others, as many as the settings say, have the
/// connections.
///
/// # Errors
///
/// [`StartError`]; nothing is left running or listening then.
pub fn start(start: Start) -> Result<Running, StartError> {
    let Start { loaded, files, signals } = start;
    let settings = loaded.settings.clone();
    let observe = Arc::new(Observe::new(unix_ns()));
    let looks_on: Arc<dyn Observer> = Arc::<Observe>::clone(&observe);
    let clock = MonotonicClock::starting_at(unix_ns());
    let engine_settings = engine_settings(&settings);
    let store = settings.store.as_ref().map(kept::store).transpose()?;
    let engine = Engine::with_store(clock, engine_settings, Some(looks_on), store);
    engine.load(loaded.rules.clone())?;
    let saver = settings.snapshot.as_ref().map(|kept| kept::keep(kept, &engine)).transpose()?;
    observe.status().loaded(unix_s());
    // What the system gives is what there is.
    let _ = net::raise_descriptors();
    let places = settings
        .server
        .listeners()
        .map(|(protocol, listener)| place(&settings, protocol, listener))
        .collect::<Result<Vec<_>, _>>()?;
    if places.is_empty() {
        return Err(StartError::Nowhere);
    }
    let listening = places.iter().map(Place::listening).collect();
    let threads = settings.server.threads.or_else(|| thread::available_parallelism().ok());
    let workers = Workers::start(threads.map_or(1, Into::into))?;
    let is_ready = Arc::new(AtomicBool::new(false));
    let (orders, ordered) = mpsc::unbounded_channel();
    let admin = Admin::new(Arc::clone(&observe), Arc::new(engine.clone()));
    let mut front = Front {
        engine: engine.clone(),
        observe,
        admin,
        health: Health::new(true),
        settings,
        workers,
        drainer: Drainer::new(),
        is_ready: Arc::clone(&is_ready),
        watch: None,
        known_failures: 0,
        saver: saver.flatten(),
        ordered,
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let hosts = {
        let _within = runtime.enter();
        front.hosts(places)?
    };
    let signals = signals.then(|| runtime.block_on(async { Signals::watch() })).transpose()?;
    let thread = thread::Builder::new().name("front".to_owned());
    if let Some((path, layers)) = files {
        front.watch =
            Some(Arc::new(kept::follow(&path, layers, &loaded, &front.engine, &front.observe)?));
    }
    is_ready.store(true, Ordering::Release);
    let front = thread.spawn(move || runtime.block_on(front.run(hosts, signals)))?;
    Ok(Running { engine, listening, is_ready, orders, front: Some(front) })
}

impl Running {
    /// What decides.
    #[must_use]
    pub const fn engine(&self) -> &Engine<MonotonicClock> {
        &self.engine
    }

    /// Where it can be reached.
    #[must_use]
    pub fn listening(&self) -> &[Listening] {
        &self.listening
    }

    /// Whether it takes connections: not any more once its end has begun.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Begins the end in order: it takes no new connections, answers what has arrived, and closes.
    pub fn drain(&self) {
        // Gone already: the same.
        let _ = self.orders.send(Order::Drain);
    }

    /// Waits until it has ended.
    pub fn wait(mut self) {
        self.join();
    }

    /// Ends in order, and waits for it: as long as connections take, and no longer than the settings say.
    pub fn stop(self) {
        self.drain();
        self.wait();
    }

    fn join(&mut self) {
        if let Some(front) = self.front.take() {
            // A panic there has been told already.
            let _ = front.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Stop);
        self.join();
    }
}

impl Place {
    fn listening(&self) -> Listening {
        Listening {
            protocol: self.protocol,
            address: self.bound.address().clone(),
            tls: self.tls.is_some(),
        }
    }
}

/// What the front thread has.
struct Front {
    engine: Engine<MonotonicClock>,
    observe: Arc<Observe>,
    admin: Admin,
    health: Health,
    settings: Settings,
    workers: Workers,
    drainer: Drainer,
    is_ready: Arc<AtomicBool>,
    watch: Option<Arc<Watch>>,
    /// Of the configuration's refusals, those that have been told.
    known_failures: u64,
    saver: Option<Saver>,
    ordered: mpsc::UnboundedReceiver<Order>,
}

type Host = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

impl Front {
    /// Those who accept, one for each place.
    fn hosts(&self, places: Vec<Place>) -> io::Result<Vec<Host>> {
        let server = &self.settings.server;
        let limits = limits(server);
        let caps = Caps::new(limits.connections, limits.connections_per_address);
        let access = server.token.as_ref().map(|token| Access::token(token.expose().as_bytes()));
        let access = access.unwrap_or_default();
        let bounds = Bounds { frame_bytes: server.limits.frame_bytes, ..Bounds::default() };
        let resp = Resp::new(self.engine.clone(), access.clone(), bounds, limits);
        let rls = self.rls(&access);
        let web = self.web(&access, rls.clone(), limits);
        let mut hosts: Vec<Host> = Vec::new();
        for place in places {
            let Place { protocol, bound, tls, token_required } = place;
            let tally = Tallied { observe: Arc::clone(&self.observe), protocol: spoken(protocol) };
            let door = Door {
                tls,
                token_required,
                caps: caps.clone(),
                limits,
                drain: self.drainer.drain(),
                tally: Arc::new(tally),
            };
            hosts.push(match protocol {
                "resp" => Box::pin(net::accept(bound, door, resp.clone(), &self.workers)?),
                "grpc" => Box::pin(net::accept(bound, door, rls.clone(), &self.workers)?),
                _ => Box::pin(net::accept(bound, door, web.clone(), &self.workers)?),
            });
        }
        Ok(hosts)
    }

    fn rls(&self, access: &Access) -> Rls<Engine<MonotonicClock>> {
        let server = &self.settings.server;
        let settings = grpc::Settings {
            most_message: server.limits.body_bytes,
            most_wait: server.limits.header_time,
            most_streams: server.limits.streams,
            most_head: server.limits.header_bytes,
            options: self.told(),
        };
        Rls::new(self.engine.clone(), access.clone(), self.health.clone(), settings)
    }

    /// What Envoy's answers tell besides.
    const fn told(&self) -> rls::Options {
        rls::Options { headers: self.settings.grpc.headers }
    }

    fn web(&self, access: &Access, rls: Rls<Engine<MonotonicClock>>, limits: Limits) -> Web {
        let server = &self.settings.server;
        let is_ready = Arc::clone(&self.is_ready);
        let options = http::Options {
            access: access.clone(),
            ready: Arc::new(move || is_ready.load(Ordering::Acquire)),
            fields: self.settings.http.headers.iter().map(|dialect| told(*dialect)).collect(),
            proxies: http::Proxies::in_networks(self.settings.http.trusted_proxies.clone()),
            most_body_bytes: server.limits.body_bytes,
            ..http::Options::default()
        };
        Web::new(Parts {
            engine: self.engine.clone(),
            api: Api::new(self.engine.clone(), options),
            rls,
            admin: self.admin.clone(),
            access: access.clone(),
            limits: ConnectionLimits {
                head_bytes: server.limits.header_bytes,
                arrival: limits.arrival,
                idle: limits.idle,
                unread: limits.unread,
                linger: limits.linger,
                streams: server.limits.streams,
                ..ConnectionLimits::default()
            },
            most_body_bytes: server.limits.body_bytes,
            options: self.told(),
        })
    }

    async fn run(mut self, hosts: Vec<Host>, mut signals: Option<Signals>) {
        let own: Vec<_> = hosts.into_iter().map(tokio::spawn).collect();
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let order = loop {
            tokio::select! {
                order = self.ordered.recv() => break order.unwrap_or(Order::Stop),
                _ = seconds.tick() => self.tick(),
                told = Signals::next(&mut signals) => match told {
                    Told::End => break Order::Drain,
                    Told::Reload => self.read_again(),
                },
            }
        };
        self.is_ready.store(false, Ordering::Release);
        self.health.end();
        self.admin.close();
        if matches!(order, Order::Drain) {
            self.drain(signals).await;
        }
        own.iter().for_each(tokio::task::JoinHandle::abort);
        self.workers.stop();
        // After the last decision.
        drop(self.saver);
    }

    fn tick(&mut self) {
        self.engine.tick(unix_ns());
        self.observe.tick(self.engine.clock().now_ns());
        if self.settings.store.is_some() {
            self.observe.status().store_is(kept::health(&self.engine));
        }
        let Some(watch) = &self.watch else { return };
        let state = watch.state();
        match &state.last_error {
            Some(refused) if state.failures != self.known_failures => {
                self.observe.status().load_failed(&refused.message);
            }
            Some(_) => {}
            None => self.observe.status().load_restored(),
        }
        self.known_failures = state.failures;
    }

    fn read_again(&self) {
        match &self.watch {
            None => tracing::info!("there is no configuration to be read again"),
            Some(watch) => {
                let watch = Arc::clone(watch);
                // Files are read on a thread of their own: connections come in meanwhile.
                drop(tokio::task::spawn_blocking(move || watch.reload_now()));
            }
        }
    }

    async fn drain(&mut self, mut signals: Option<Signals>) {
        let grace = self.settings.server.drain;
        tracing::info!(
            grace_s = grace.as_secs(),
            left = self.drainer.left(),
            "ending: no new connections"
        );
        self.drainer.begin();
        tokio::select! {
            ended = timeout(grace, self.drainer.all_gone()) => if ended.is_ok() {
                tracing::info!("all connections have ended");
            } else {
                tracing::warn!(left = self.drainer.left(), "connections are cut off: their time is over");
            },
            () = Signals::end(&mut signals) => tracing::warn!("told again to end: connections are cut off"),
            order = self.ordered.recv() => tracing::debug!(?order, "told to end now"),
        }
    }
}

/// Signals that mean something to a service.
#[derive(Debug)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

enum Told {
    End,
    Reload,
}

impl Signals {
    fn watch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next one; never if nobody watches for them.
    async fn next(watched: &mut Option<Self>) -> Told {
        let Some(signals) = watched else { return std::future::pending().await };
        tokio::select! {
            _ = signals.terminate.recv() => Told::End,
            _ = signals.interrupt.recv() => Told::End,
            _ = signals.hangup.recv() => Told::Reload,
        }
    }

    async fn end(watched: &mut Option<Self>) {
        while matches!(Self::next(watched).await, Told::Reload) {}
    }
}

fn place(
    settings: &Settings,
    protocol: &'static str,
    listener: &Listener,
) -> Result<Place, StartError> {
    let server = &settings.server;
    let address = || listener.address.clone();
    if server.is_open(listener) && !server.insecure {
        return Err(StartError::Open { protocol, address: address() });
    }
    if listener.auth && server.token.is_none() {
        return Err(StartError::NoToken { protocol, address: address() });
    }
    let tls = match (listener.tls, &server.tls) {
        (false, _) => None,
        (true, None) => return Err(StartError::NoCertificate { protocol, address: address() }),
        (true, Some(tls)) => {
            let offers: &[&[u8]] = match protocol {
                "http" => &[b"h2", b"http/1.1"],
                "grpc" => &[b"h2"],
                _ => &[],
            };
            Some(Tls::read(&tls.cert, &tls.key, tls.client_ca.as_deref(), offers)?)
        }
    };
    // Whoever reaches an open listener from outside has to show the token for everything.
    let token_required = listener.auth;
    let bound = net::bind(&at(listener)).map_err(|error| StartError::Bind {
        protocol,
        address: address(),
        error,
    })?;
    Ok(Place { protocol, bound, tls, token_required })
}

fn at(listener: &Listener) -> net::Address {
    match &listener.address {
        settings::Address::Tcp(address) => net::Address::Tcp(*address),
        settings::Address::Unix(path) => {
            net::Address::Unix { path: path.clone(), mode: listener.mode }
        }
    }
}

/// Tells whoever looks on of connections.
struct Tallied {
    observe: Arc<Observe>,
    protocol: observe::Protocol,
}

impl Tally for Tallied {
    fn opened(&self) {
        self.observe.status().opened(self.protocol);
    }

    fn closed(&self) {
        self.observe.status().closed(self.protocol);
    }

    fn refused(&self) {
        self.observe.status().refused(self.protocol);
    }
}

fn spoken(protocol: &str) -> observe::Protocol {
    match protocol {
        "resp" => observe::Protocol::Resp,
        "grpc" => observe::Protocol::Grpc,
        _ => observe::Protocol::Http,
    }
}

const fn told(dialect: settings::Dialect) -> rategate_tower::headers::Dialect {
    use rategate_tower::headers::{Dialect, Reset};
    match dialect {
        settings::Dialect::Current => Dialect::Current,
        settings::Dialect::Older => Dialect::Older,
        settings::Dialect::Legacy => Dialect::Envoy,
        settings::Dialect::LegacyEpoch => Dialect::Legacy(Reset::Unix),
    }
}

fn limits(server: &settings::Server) -> Limits {
    Limits {
        connections: server.limits.connections,
        connections_per_address: server.limits.connections_per_address,
        idle: server.limits.idle,
        arrival: server.limits.header_time,
        ..Limits::default()
    }
}

fn engine_settings(settings: &Settings) -> EngineSettings {
    EngineSettings {
        most_keys: settings.keys.total,
        inline_keys: settings.inline.keys,
        inline_limits: settings.inline.limits,
        count_denied: settings.grpc.count_denied,
    }
}

const NS_PER_S: u64 = 1_000_000_000;

/// The same in seconds.
fn unix_s() -> u64 {
    unix_ns().wrapping_div(NS_PER_S)
}

/// The wall clock. Before 1970 it is 1970.
fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
