//! The service as a whole: how it is started, and what whoever started it can ask of it.

mod certificates;
mod front;
mod hosts;
mod kept;
mod place;
mod signals;
mod traced;
mod web;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use rategate::MonotonicClock;
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use self::certificates::{Certificates, Stamps};
use self::front::{Front, Order};
use self::place::{Place, place};
use self::signals::Signals;
use crate::config::{Layers, Loaded, Settings, settings};
use crate::engine::{Engine, EngineSettings, LoadError, Observer};
use crate::net::{self, Drainer, Tls, TlsError, Workers};
use crate::observe::Observe;
use crate::observe::admin::Admin;
use crate::protocol::grpc::Health;

/// What a service is started with.
#[derive(Debug)]
pub struct Start {
    /// Where it listens, how much of everything there may be, and what it limits.
    pub loaded: Loaded,
    /// Where that was read, and is followed while the service runs; and what goes before what is written there.
    pub files: Option<(PathBuf, Layers)>,
    /// Whether SIGTERM and SIGINT end it, and SIGHUP has the files read again, certificates too. Once for a process.
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
    /// Spans cannot be sent.
    #[error("spans: {0}")]
    Tracing(String),
    /// The system has no more threads or descriptors.
    #[error("cannot start its threads: {0}")]
    Threads(#[from] io::Error),
    /// Nothing is to be spoken anywhere.
    #[error("there is nowhere to listen: all protocols are off")]
    Nowhere,
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
    let observe = Arc::new(Observe::with_log_keys(unix_ns(), settings.log.keys));
    let looks_on: Arc<dyn Observer> = Arc::<Observe>::clone(&observe);
    let clock = MonotonicClock::starting_at(unix_ns());
    let engine_settings = engine_settings(&settings);
    let store = settings.store.as_ref().map(kept::store).transpose()?;
    let engine = Engine::with_store(clock, engine_settings, Some(looks_on), store);
    engine.load_compiled(&loaded.rules)?;
    #[cfg(not(feature = "otlp"))]
    traced::refuse(&settings.tracing)?;
    #[cfg(feature = "otlp")]
    let spans = traced::spans(&settings.tracing, &observe)?;
    observe.status().loaded(unix_s());
    // What the system gives is what there is.
    let _ = net::raise_descriptors();
    let stamps = settings.server.tls.as_ref().map(Stamps::of);
    let places = settings
        .server
        .listeners()
        .map(|(protocol, listener)| place(&settings, protocol, listener))
        .collect::<Result<Vec<_>, _>>()?;
    if places.is_empty() {
        return Err(StartError::Nowhere);
    }
    // Not before the ports are ours: who is started twice leaves the counters of the first one alone.
    let saver = settings.snapshot.as_ref().map(|kept| kept::keep(kept, &engine)).transpose()?;
    let listening = places.iter().map(Place::listening).collect();
    let secure: Vec<Tls> = places.iter().filter_map(|place| place.tls.clone()).collect();
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
        certificates: None,
        known_failures: 0,
        saver,
        #[cfg(feature = "otlp")]
        spans,
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
    if let (Some(stamps), false) = (stamps, secure.is_empty()) {
        let follow = Certificates::follow(stamps, secure, Arc::clone(&front.observe));
        front.certificates = Some(follow?);
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

    /// Has the configuration and the certificates read again, as SIGHUP does, and does not wait for it: what is wrong with them is
    /// in the log and the metrics, and those of before stay.
    pub fn reload(&self) {
        // Gone already: there is nothing to be told.
        let _ = self.orders.send(Order::Reload);
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

fn engine_settings(settings: &Settings) -> EngineSettings {
    EngineSettings {
        most_keys: settings.keys.total,
        inline_keys: settings.inline.keys,
        inline_limits: settings.inline.limits,
        count_denied: settings.grpc.count_denied,
        count_over_only: settings.grpc.count_over_only,
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
