//! A store on Redis or Valkey: a thread of its own that asks, and gathers what many ask at once.
//!
//! [`RedisStore`] is a [`Store`]. A question goes over a queue to the driver's thread, which owns all
//! connections; the answer's callback is called there. No runtime is needed where the question comes from.
//!
//! | I want | it is |
//! |---|---|
//! | to say which store, and how long to wait | [`Config`], [`Server`] |
//! | to open it | [`RedisStore::open`]; [`RedisStore::open_in_runtime`] where all callers are tasks of one tokio runtime |
//! | to know how it is | [`RedisStore::stats`] |
//! | a deny list that machines share | [`denied`] |
//!
//! ```no_run
//! use std::num::NonZeroU64;
//! use std::sync::Arc;
//!
//! use rategate::store::{Ask, Store, Verdict};
//! use rategate_core::gcra::Gcra;
//! use rategate_redis::client::{Config, RedisStore, Server};
//!
//! let store = RedisStore::open(Config::server(Server::tcp("127.0.0.1", 6379)).prefix("shop"))?;
//! let store = Arc::new(store);
//! let plan = Arc::new(store.plan(&[("api", Gcra::new("100/s".parse()?, 10)?.into())])?);
//! let verdict = store.decide(&plan, &Arc::from(&b"tenant 1"[..]), NonZeroU64::MIN).wait()?;
//! let passes = matches!(verdict, Verdict::Granted(_));
//! # let _ = passes;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it promises
//!
//! * **Gathering without delay.** A question goes out at once while fewer than [`Config::rounds`] rounds
//!   are under way; what comes meanwhile goes together in the next one, up to [`Config::batch`] questions in one write.
//! * **A budget.** Each question is answered within [`Config::budget`] of when it was put, and what the system's timer and
//!   scheduler add, by the store or by [`Gone`], whatever the store does. A grant that comes later, up to 10 s after the
//!   question was sent, is given back if the store can be reached within 2 s. Any other ages out of the store, as one does
//!   whose answer is lost with its connection.
//! * **Bounds.** So many questions are without an answer at a time, and no more: [`Config::queue`].
//! * **No answer that was lost is asked for again**: a call goes out a second time only after a refusal that is
//!   known to have changed nothing.
//! * **Recovery by itself**: servers that restart, functions that are flushed, primaries and slots that move.
//! * **A fork is no end.** In a forked child, which does not have the thread, the first question starts another one with
//!   connections of its own. Those of the parent stay the parent's; questions that were on their way are answered
//!   there.
//!
//! # What it does not do
//!
//! It does not fall back: a store that is gone is said to be gone. It sends nothing to replicas.

mod attempts;
mod call;
mod config;
mod connection;
mod copy;
pub mod denied;
mod dial;
mod driver;
mod functions;
mod item;
mod manner;
mod node;
mod observed;
mod plan;
mod queue;
mod remedies;
mod repolled;
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
use std::sync::Arc;

use rategate::store::{Fault, Gone, Hear, Key, PerProcess, PlanError, Question, Rule, Store};

pub use config::{Config, DEFAULT_BATCH, DEFAULT_BUDGET, DEFAULT_QUEUE, DEFAULT_ROUNDS, Server};
pub use plan::SharedPlan;
pub use stats::Stats;

use self::dial::Dialer;
use self::item::Item;
use self::shared::Shared;
use crate::error::LimitError;
use crate::key::KeySpace;

/// Ranges of slots of a cluster that can be gone one by one.
const PARTS: u16 = 16;
/// How many slots each has.
const SLOTS_OF_PART: u16 = 1_024;

/// A store on Redis or Valkey.
///
/// Dropping it closes it: everything without an answer hears [`Fault::Closed`], and
/// the thread ends.
pub struct RedisStore {
    driver: PerProcess<Driven>,
    config: Arc<Config>,
    keys: KeySpace,
}

/// The callers' side of a driver, which ends when this is dropped.
struct Driven(Arc<Shared>);

/// Why a store cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The prefix is not as keys can begin.
    Prefix(LimitError),
    /// No server was named.
    NoServer,
    /// The certificates or the key are not as TLS can use them: which, and what would be right.
    Tls(String),
    /// The system has no thread, or no file handles, for the driver.
    Driver(io::Error),
}

impl RedisStore {
    /// Starts a driver. It connects in the background: a store that is not there is no error here, but
    /// one of each question.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(config: Config) -> Result<Self, OpenError> {
        let store = Self::prepare(config)?;
        store.shared().map_err(OpenError::Driver)?;
        Ok(store)
    }

    /// Starts a driver as a task of the tokio runtime that this is called in, with its timers and IO enabled, instead of in
    /// a thread of its own. Tasks of that runtime hear sooner: no other thread has to wake for their decisions. The store
    /// ends with the runtime. A forked child has no such runtime, and starts a thread.
    ///
    /// For callers that are tasks. A thread of the runtime that blocks for a decision may block the driver, and is then
    /// answered by what its limiter does without a store.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; [`OpenError::Driver`] outside of a runtime.
    pub fn open_in_runtime(config: Config) -> Result<Self, OpenError> {
        let runtime = tokio::runtime::Handle::try_current();
        let runtime = runtime.map_err(|error| OpenError::Driver(io::Error::other(error)))?;
        let store = Self::prepare(config)?;
        store.driver.get_or_try_init(|| {
            let (shared, dialer) = store.parts_of_a_driver()?;
            let (config, keys) = (Arc::clone(&store.config), store.keys.clone());
            supervisor::start_in(&runtime, Arc::clone(&shared), config, keys, dialer);
            Ok(Driven(shared))
        })?;
        Ok(store)
    }

    fn prepare(config: Config) -> Result<Self, OpenError> {
        let keys = KeySpace::new(&config.prefix).map_err(OpenError::Prefix)?;
        if config.topology.is_empty() {
            return Err(OpenError::NoServer);
        }
        let store = Self { driver: PerProcess::new(), config: Arc::new(config), keys };
        store.parts_of_a_driver()?;
        Ok(store)
    }

    fn parts_of_a_driver(&self) -> Result<(Arc<Shared>, Dialer), OpenError> {
        let dialer = Dialer::new(&self.config).map_err(OpenError::Tls)?;
        Ok((Arc::new(Shared::new(self.config.queue)), dialer))
    }

    /// Returns what the driver of this process has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared().map_or_else(|_| Stats::default(), |shared| shared.stats.read(shared.open()))
    }

    /// Returns what the callers share with the driver of this process, and starts it where there is none: in a
    /// forked child.
    fn shared(&self) -> io::Result<&Arc<Shared>> {
        let driven = self.driver.get_or_try_init(|| {
            let (shared, dialer) = self.parts_of_a_driver().map_err(io::Error::other)?;
            let (config, keys) = (Arc::clone(&self.config), self.keys.clone());
            supervisor::start(Arc::clone(&shared), config, keys, dialer)?;
            Ok(Driven(shared))
        });
        driven.map(|Driven(shared)| shared)
    }
}

/// What a caller is told where no driver takes its question.
fn no_driver(error: &io::Error) -> Fault {
    Fault::Gone(Gone::Unable(format!("no driver in this process: {error}")))
}

impl Store for RedisStore {
    type Plan = SharedPlan;

    fn plan(&self, rules: &[(&str, Rule)]) -> Result<SharedPlan, PlanError> {
        SharedPlan::new(rules)
    }

    fn put(&self, question: Question<SharedPlan>, hear: Hear) {
        if let Err(fault) = plan::check(&question) {
            hear(Err(fault));
            return;
        }
        match self.shared() {
            Ok(shared) => shared.put(Item::new(shared, question, hear, self.config.budget)),
            Err(error) => hear(Err(no_driver(&error))),
        }
    }

    fn parts(&self) -> usize {
        if self.config.is_cluster() { PARTS.into() } else { 1 }
    }

    /// Of all servers: a probe too many does no harm.
    fn revivals(&self, _part: usize) -> u64 {
        self.shared().map_or(0, |shared| shared.stats.revivals.get())
    }

    fn part_of(&self, key: &Key) -> usize {
        if !self.config.is_cluster() {
            return 0;
        }
        self.keys.key(key).slot().checked_div(SLOTS_OF_PART).unwrap_or(0).into()
    }
}

impl Drop for Driven {
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
            Self::Prefix(error) => write!(f, "the prefix: {error}"),
            Self::NoServer => f.write_str("no server was named"),
            Self::Tls(why) => write!(f, "TLS: {why}"),
            Self::Driver(error) => write!(f, "no driver: {error}"),
        }
    }
}

impl Error for OpenError {}
