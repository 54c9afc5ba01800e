//! A store on Redis or Valkey whose driver gathers concurrent requests into few calls.
//!
//! [`RedisStore`] is a [`Store`]. A request goes over a queue to the driver's thread, which owns
//! all connections and runs the callback of the reply. The requesting side needs no runtime.
//!
//! | task | use |
//! |---|---|
//! | configure servers and timeouts | [`Config`], [`Server`] |
//! | read a server from an address such as `redis://host:port` | [`Address`] |
//! | open a store | [`RedisStore::open`]; for tasks, [`RedisStore::open_in_runtime`] |
//! | wait until it replies | [`RedisStore::ready`] |
//! | read its counters | [`RedisStore::stats`] |
//!
//! ```no_run
//! use std::num::NonZeroU64;
//! use std::sync::Arc;
//!
//! use rategate::store::{StoreExt, Store, Verdict};
//! use rategate_core::gcra::Gcra;
//! use rategate_redis::client::{Config, RedisStore, Server};
//!
//! let store = RedisStore::open(Config::server(Server::tcp("127.0.0.1", 6379)).prefix("shop"))?;
//! let store = Arc::new(store);
//! let plan = Arc::new(store.plan(&[("api", Gcra::per_second(100).burst(10).into())])?);
//! let verdict = store.decide(&plan, &Arc::from(&b"tenant 1"[..]), NonZeroU64::MIN).wait()?;
//! let passes = matches!(verdict, Verdict::Granted(_));
//! # let _ = passes;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it promises
//!
//! * **Gathering without delay.** A request is sent at once while fewer than [`Config::rounds`]
//!   rounds are under way. Requests that arrive meanwhile go together in the next round, up to
//!   [`Config::batch`] in one write.
//! * **A budget.** Each request is answered within [`Config::budget`] of its submission, plus the
//!   delay of the system's timer and scheduler: by the store, or by [`Unavailable`]. A grant whose
//!   reply comes later, up to 10 s after the request was sent, is refunded if the store can be
//!   reached within 2 s. Any other ages out of the store, as does one whose reply is lost with
//!   its connection.
//! * **Bounds.** At most [`Config::queue`] requests await a reply at a time.
//! * **No blind retries.** A call is sent a second time only after a refusal that is known to
//!   have changed nothing, never because its reply was lost.
//! * **Recovery without help**: servers that restart, functions that are flushed, primaries and
//!   slots that move.
//! * **Fork safety.** In a forked child, which does not have the thread, the first request starts
//!   another one with its own connections. The parent keeps its connections, and pending requests
//!   are answered there.
//!
//! # What it does not do
//!
//! It does not fall back: an unavailable store is reported as unavailable. It sends nothing to
//! replicas.

mod address;
mod attempts;
mod call;
mod carrier;
mod config;
mod connection;
mod dial;
mod driver;
mod encoder;
mod functions;
mod item;
mod node;
mod observed;
mod poll_self_waking;
mod queue;
mod remedies;
mod round;
mod shared;
mod slots;
mod stats;
mod supervisor;
#[cfg(feature = "tls")]
mod tls;
mod topology;
mod upkeep;

use std::error::Error;
use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rategate::store::{
    Callback, Key, PerProcess, PlanError, Rule, Store, StoreError, StoreRequest, Unavailable,
    assert_may_block,
};
use rategate_core::gcra::Gcra;

pub use address::{Address, AddressError};
pub use config::{Config, DEFAULT_BATCH, DEFAULT_BUDGET, DEFAULT_QUEUE, DEFAULT_ROUNDS, Server};
pub use stats::Stats;

use self::dial::Dialer;
use self::item::Item;
use self::shared::Shared;
use crate::error::LimitError;
use crate::key::KeySpace;
use crate::plan::Plan;

/// The number of ranges of slots of a cluster that can be unavailable one by one.
const BACKENDS: u16 = 16;
/// The number of slots in each range.
const SLOTS_PER_BACKEND: u16 = 1_024;

/// The pause between two requests of [`RedisStore::ready`].
const READY_PAUSE: Duration = Duration::from_millis(10);

/// A store on Redis or Valkey.
///
/// Dropping the store closes it: every pending request receives [`StoreError::Closed`], and the
/// thread ends.
pub struct RedisStore {
    driver: PerProcess<DriverHandle>,
    config: Arc<Config>,
    keys: KeySpace,
}

/// The callers' side of a driver. Dropping it ends the driver.
struct DriverHandle(Arc<Shared>);

/// The reason why a store cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The prefix is not one that keys can begin with.
    Prefix(LimitError),
    /// The configuration names no server.
    NoServer,
    /// TLS cannot use the certificates or the key. The text names them, and what is
    /// accepted.
    Tls(String),
    /// The system has no thread, or no file handles, for the driver.
    Driver(io::Error),
}

impl RedisStore {
    /// Opens a store with a driver thread, which connects in the background.
    ///
    /// An unreachable store is no error here, but one of each request.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(config: Config) -> Result<Self, OpenError> {
        let store = Self::prepare(config)?;
        store.shared().map_err(OpenError::Driver)?;
        Ok(store)
    }

    /// Opens a store whose driver is a task of the current tokio runtime, instead of a thread of
    /// its own.
    ///
    /// The runtime needs timers and IO enabled. Its tasks receive decisions sooner, because no
    /// other thread has to wake. The store ends with the runtime. A forked child has no such
    /// runtime, and starts a thread.
    ///
    /// This is for callers that are tasks. A thread of the runtime that blocks for a decision may
    /// block the driver; it is then answered by the fallback of its limiter.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; [`OpenError::Driver`] outside of a runtime.
    pub fn open_in_runtime(config: Config) -> Result<Self, OpenError> {
        let runtime = tokio::runtime::Handle::try_current();
        let runtime = runtime.map_err(|error| OpenError::Driver(io::Error::other(error)))?;
        let store = Self::prepare(config)?;
        store.driver.get_or_try_init(|| {
            let (shared, dialer) = store.driver_inputs()?;
            let (config, keys) = (Arc::clone(&store.config), store.keys.clone());
            supervisor::start_in(&runtime, Arc::clone(&shared), config, keys, dialer);
            Ok(DriverHandle(shared))
        })?;
        Ok(store)
    }

    /// Blocks the thread until the store has replied once, for at most `timeout`.
    ///
    /// A store connects in the background, and requests fail until it has. A program that would
    /// rather start later than have its first calls decided without the store waits here. A task
    /// moves the call to a thread that may block.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use rategate_redis::client::{Config, RedisStore, Server};
    ///
    /// let store = RedisStore::open(Config::server(Server::tcp("127.0.0.1", 6379)))?;
    /// store.ready(Duration::from_secs(5))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] with the latest reason, or [`Unavailable::Late`], after
    /// `timeout`. Any other error, and [`Unavailable::Broken`], at once: waiting cannot help.
    pub fn ready(&self, timeout: Duration) -> Result<(), StoreError> {
        let probe = [("ready", Gcra::per_second(1).into())];
        let plan = self.plan(&probe).map_err(|_| StoreError::Closed)?;
        let (plan, key) = (Arc::new(plan), Key::from(&b""[..]));
        assert_may_block();
        let until = Instant::now().checked_add(timeout);
        let mut latest = Unavailable::Late;
        loop {
            let now = Instant::now();
            let left = until.map_or(timeout, |until| until.saturating_duration_since(now));
            let request = StoreRequest::Peek {
                plan: Arc::clone(&plan),
                key: Arc::clone(&key),
                permits: NonZeroU64::MIN,
            };
            let (sender, received) = mpsc::channel();
            // The receiver may be gone, which does no harm.
            self.submit(request, Box::new(move |reply| drop(sender.send(reply))));
            let reply = received.recv_timeout(left);
            match reply.unwrap_or_else(|_| Err(StoreError::Unavailable(latest.clone()))) {
                Ok(_) => return Ok(()),
                Err(StoreError::Unavailable(unavailable))
                    if left > READY_PAUSE && !matches!(unavailable, Unavailable::Broken(_)) =>
                {
                    latest = unavailable;
                    thread::sleep(READY_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn prepare(config: Config) -> Result<Self, OpenError> {
        let keys = KeySpace::new(&config.prefix).map_err(OpenError::Prefix)?;
        if config.topology.is_empty() {
            return Err(OpenError::NoServer);
        }
        let store = Self { driver: PerProcess::new(), config: Arc::new(config), keys };
        store.driver_inputs()?;
        Ok(store)
    }

    fn driver_inputs(&self) -> Result<(Arc<Shared>, Dialer), OpenError> {
        let dialer = Dialer::new(&self.config).map_err(OpenError::Tls)?;
        Ok((Arc::new(Shared::new(self.config.queue)), dialer))
    }

    /// Returns the counters of this process's driver.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared().map_or_else(|_| Stats::default(), |shared| shared.stats.read(shared.open()))
    }

    /// Returns the state shared with this process's driver, and starts a driver if there is none:
    /// in a forked child.
    fn shared(&self) -> io::Result<&Arc<Shared>> {
        let driven = self.driver.get_or_try_init(|| {
            let (shared, dialer) = self.driver_inputs().map_err(io::Error::other)?;
            let (config, keys) = (Arc::clone(&self.config), self.keys.clone());
            supervisor::start(Arc::clone(&shared), config, keys, dialer)?;
            Ok(DriverHandle(shared))
        });
        driven.map(|DriverHandle(shared)| shared)
    }
}

/// Returns the error for a request when no driver can be started.
fn no_driver(error: &io::Error) -> StoreError {
    StoreError::Unavailable(Unavailable::Unable(format!(
        "cannot start a driver in this process: {error}"
    )))
}

impl Store for RedisStore {
    type Plan = Plan;

    fn plan(&self, rules: &[(&str, Rule)]) -> Result<Plan, PlanError> {
        Plan::of_rules(rules)
    }

    fn submit(&self, request: StoreRequest<Plan>, callback: Callback) {
        if let Err(error) = encoder::check(&request) {
            callback(Err(error.into()));
            return;
        }
        match self.shared() {
            Ok(shared) => shared.submit(Item::new(shared, request, callback, self.config.budget)),
            Err(error) => callback(Err(no_driver(&error))),
        }
    }

    fn backends(&self) -> usize {
        if self.config.is_cluster() { BACKENDS.into() } else { 1 }
    }

    /// Counts revivals of all servers: a probe too many does no harm.
    fn revivals(&self, _backend: usize) -> u64 {
        self.shared().map_or(0, |shared| shared.stats.revivals.get())
    }

    fn backend_of(&self, key: &Key) -> usize {
        if !self.config.is_cluster() {
            return 0;
        }
        self.keys.key(key).slot().checked_div(SLOTS_PER_BACKEND).unwrap_or(0).into()
    }
}

impl Drop for DriverHandle {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("config", &self.config).finish_non_exhaustive()
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix(error) => write!(f, "invalid prefix: {error}"),
            Self::NoServer => f.write_str("the configuration names no server"),
            Self::Tls(why) => write!(f, "TLS: {why}"),
            Self::Driver(error) => write!(f, "cannot start the driver: {error}"),
        }
    }
}

impl Error for OpenError {}
