//! The service as a whole: its start, its handle and its shutdown.

mod bound_listener;
mod certificates;
mod control_plane;
mod listeners;
mod persistence;
mod signals;
mod supervisor;
mod web;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use rategate::MonotonicClock;
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use self::bound_listener::{BoundListener, bound_listener};
use self::certificates::{Certificates, Stamps};
use self::control_plane::ControlPlane;
use self::signals::Signals;
use self::supervisor::{Order, Supervisor};
use crate::config::{Layers, Loaded, Settings};
use crate::engine::{Engine, EngineSettings, LoadError, Observer};
use crate::net::{self, Drainer, Tls, TlsError, Workers};
use crate::observe::Observe;
#[cfg(feature = "otlp")]
use crate::observe::Spans;
use crate::observe::admin::Admin;
use crate::protocol::grpc::Health;

/// The input of a service's start.
#[derive(Debug)]
pub struct Start {
    /// The listeners, bounds and rules.
    pub loaded: Loaded,
    /// The path of the configuration, which is followed while the service runs, and the layers
    /// that override it. Where a control plane sends the rules, nothing else is followed.
    pub files: Option<(PathBuf, Layers)>,
    /// `true` if SIGTERM and SIGINT shut the service down, and SIGHUP reloads the configuration
    /// and the certificates. Only one service of a process may set it.
    pub signals: bool,
}

/// A running service. Dropping it shuts it down without waiting for open connections.
#[derive(Debug)]
pub struct Running {
    engine: Engine<MonotonicClock>,
    listening: Vec<Listening>,
    is_ready: Arc<AtomicBool>,
    orders: mpsc::UnboundedSender<Order>,
    supervisor: Option<JoinHandle<()>>,
}

/// An address at which a service can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The protocol: `resp`, `http` or `grpc`.
    pub protocol: &'static str,
    /// The address, with the actual port if port 0 was configured.
    pub address: net::Address,
    /// `true` if the listener uses TLS.
    pub tls: bool,
}

/// The reason why a service does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener is reachable from other machines without authentication.
    #[error(
        "{protocol} on {address} is reachable from other machines without authentication: set a \
         token, require client certificates, listen on 127.0.0.1, or allow it with --insecure"
    )]
    Open {
        /// The protocol of the listener.
        protocol: &'static str,
        /// The address of the listener.
        address: net::Address,
    },
    /// A listener requires a token, and none is set.
    #[error("{protocol} on {address} requires a token, and none is set")]
    NoToken {
        /// The protocol of the listener.
        protocol: &'static str,
        /// The address of the listener.
        address: net::Address,
    },
    /// A listener uses TLS, and no certificate is configured.
    #[error("{protocol} on {address} uses TLS, and no certificate is configured")]
    NoCertificate {
        /// The protocol of the listener.
        protocol: &'static str,
        /// The address of the listener.
        address: net::Address,
    },
    /// The address is in use, or this process may not listen there.
    #[error("cannot listen for {protocol} on {address}: {error}")]
    Bind {
        /// The protocol of the listener.
        protocol: &'static str,
        /// The address of the listener.
        address: net::Address,
        /// The cause.
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
    /// The saved counters cannot be restored, and the configuration says not to start then.
    #[error("the saved counters: {0}")]
    Counters(String),
    /// Spans cannot be sent.
    #[error("spans: {0}")]
    Tracing(String),
    /// The system has no more threads or descriptors.
    #[error("cannot start its threads: {0}")]
    Threads(#[from] io::Error),
    /// All protocols are off.
    #[error("no listener is configured: all protocols are off")]
    NoListener,
}

/// Starts a service, whose listeners accept connections as soon as this returns.
///
/// One thread accepts connections, watches for signals and runs periodic work. The other threads,
/// as many as configured, serve the connections.
///
/// # Errors
///
/// [`StartError`]. Nothing is left running or listening then.
pub fn start(start: Start) -> Result<Running, StartError> {
    let Start { loaded, files, signals } = start;
    let settings = loaded.settings.clone();
    let observe = Arc::new(Observe::with_log_keys(unix_ns(), settings.log.keys));
    let observer: Arc<dyn Observer> = Arc::<Observe>::clone(&observe);
    let clock = rategate::calendar::clock();
    let engine_settings = engine_settings(&settings);
    let store = settings.store.as_ref().map(persistence::store).transpose()?;
    let engine = Engine::with_store(clock, engine_settings, Some(observer), store);
    engine.load_compiled(&loaded.rules)?;
    let xds = settings.xds.clone();
    // Where a control plane sends the rules, they are yet to come.
    let is_ready = xds.as_ref().is_none_or(|xds| xds.force_start);
    if xds.is_none() {
        observe.status().loaded(unix_s());
    }
    // Configuration files with a receiver are refused earlier, but settings may have another
    // source.
    #[cfg(not(feature = "otlp"))]
    if settings.tracing.otlp.is_some() {
        return Err(StartError::Tracing("this rategate is built without OTLP".to_owned()));
    }
    #[cfg(feature = "otlp")]
    let spans = Spans::start(&settings.tracing).map_err(StartError::Tracing)?;
    // The result is not needed: the limit is whatever the system grants.
    let _ = net::raise_descriptors();
    let stamps = settings.server.tls.as_ref().map(Stamps::of);
    let bound_listeners = settings
        .server
        .listeners()
        .map(|(protocol, listener)| bound_listener(&settings, protocol, listener))
        .collect::<Result<Vec<_>, _>>()?;
    if bound_listeners.is_empty() {
        return Err(StartError::NoListener);
    }
    // Only once the ports are bound, so that a second instance leaves the counters of the first
    // alone.
    if let Some(persistence) = settings.snapshot.as_ref().filter(|_| xds.is_some() && is_ready) {
        // Requests come before the rules, and the file is restored with those.
        engine.restore_key(&persistence.path);
    }
    let saver = settings
        .snapshot
        .as_ref()
        .filter(|_| xds.is_none())
        .map(|persistence| persistence::start_persistence(persistence, &engine))
        .transpose()?;
    let listening = bound_listeners.iter().map(BoundListener::listening).collect();
    let secure: Vec<Tls> =
        bound_listeners.iter().filter_map(|bound_listener| bound_listener.tls.clone()).collect();
    let threads = settings.server.threads.or_else(|| thread::available_parallelism().ok());
    let workers = Workers::start(threads.map_or(1, Into::into))?;
    let ready = Arc::new(AtomicBool::new(false));
    let (orders, ordered) = mpsc::unbounded_channel();
    let admin = Admin::new(Arc::clone(&observe), Arc::new(engine.clone()));
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let health = runtime.block_on(Health::new(is_ready));
    let mut supervisor = Supervisor {
        engine: engine.clone(),
        observe,
        admin,
        health,
        settings,
        workers,
        drainer: Drainer::new(),
        is_ready: Arc::clone(&ready),
        watch: None,
        certificates: None,
        known_failures: 0,
        control_plane: None,
        saver: Arc::new(Mutex::new(saver)),
        #[cfg(feature = "otlp")]
        spans,
        ordered,
    };
    let listeners = {
        let _within = runtime.enter();
        supervisor.listeners(bound_listeners)?
    };
    let signals = signals.then(|| runtime.block_on(async { Signals::watch() })).transpose()?;
    let thread = thread::Builder::new().name("front".to_owned());
    if let Some((path, layers)) = files.filter(|_| xds.is_none()) {
        supervisor.watch = Some(Arc::new(persistence::follow(
            &path,
            layers,
            &loaded,
            &supervisor.engine,
            &supervisor.observe,
        )?));
    }
    if let (Some(stamps), false) = (stamps, secure.is_empty()) {
        let follow = Certificates::follow(stamps, secure, Arc::clone(&supervisor.observe));
        supervisor.certificates = Some(follow?);
    }
    ready.store(is_ready, Ordering::Release);
    if let Some(xds) = xds {
        supervisor.control_plane = Some(ControlPlane::follow(supervisor.follower(xds))?);
    }
    let supervisor = thread.spawn(move || runtime.block_on(supervisor.run(listeners, signals)))?;
    Ok(Running { engine, listening, is_ready: ready, orders, supervisor: Some(supervisor) })
}

impl Running {
    /// Returns the engine.
    #[must_use]
    pub const fn engine(&self) -> &Engine<MonotonicClock> {
        &self.engine
    }

    /// Returns the addresses at which the service can be reached.
    #[must_use]
    pub fn listening(&self) -> &[Listening] {
        &self.listening
    }

    /// Returns `true` if connections are accepted and rules are known, and `false` once the
    /// shutdown has begun. Rules that a control plane sends may be yet to come.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Orders a reload of the configuration and the certificates, as SIGHUP does, without waiting
    /// for it.
    ///
    /// Faults are logged and counted, and the previous configuration or certificates stay in
    /// force.
    pub fn reload(&self) {
        // The service has ended already.
        let _ = self.orders.send(Order::Reload);
    }

    /// Begins an orderly shutdown: no new connections, replies to all calls that have arrived,
    /// then the end.
    pub fn drain(&self) {
        // The service has ended already.
        let _ = self.orders.send(Order::Drain);
    }

    /// Waits until the service has ended.
    pub fn wait(mut self) {
        self.join();
    }

    /// Shuts down in order and waits for it, at most as long as the settings allow.
    pub fn stop(self) {
        self.drain();
        self.wait();
    }

    fn join(&mut self) {
        if let Some(supervisor) = self.supervisor.take() {
            // The panic has been reported already.
            let _ = supervisor.join();
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
        max_keys: settings.keys.total.get(),
        inline_keys: settings.inline.keys.get(),
        inline_limits: settings.inline.limits.get(),
        max_reservations: settings.keys.reservations.get(),
        count_denied: settings.grpc.count_denied,
        counting: settings.grpc.counting,
    }
}

const NS_PER_S: u64 = 1_000_000_000;

/// Returns the wall-clock time in seconds since 1970.
fn unix_s() -> u64 {
    unix_ns().wrapping_div(NS_PER_S)
}

/// Returns the wall-clock time in nanoseconds since 1970, or 0 before that.
fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
