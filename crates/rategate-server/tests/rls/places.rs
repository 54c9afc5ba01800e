//! The traces of [`traces`](crate::rls::traces) and the recorded ones, where counters are in a
//! store, and where the service restarts and reloads in the middle of them: every code, remaining
//! number and reset is the same.
//!
//! What a store leaves out, and why:
//!
//! * `STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT`: whether a descriptor counts depends on the counts
//!   of
//!   others, which may be on other servers of a store. `grpc.counting` says so.
//! * A caller's own limit counts in this process. The rule of the same entries counts in the store,
//!   so the two share no count.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use rategate::snapshot::Downtime;
use rategate::store::MemoryStore;
use rategate::{Clock as _, ManualClock};
use rategate_redis::client::{self, Config, RedisStore};
use rategate_server::config::load_text;
use rategate_server::engine::{Engine, EngineSettings, Shared, Stores};
use rategate_server::rule::{CounterLocation, Limit, OnUnavailable, RuleSet};
use rategate_testkit::redis::{Brand, Server};

/// A budget that no delay of the machine exceeds.
const PATIENCE: Duration = Duration::from_secs(20);

/// The place of the counters.
pub(crate) enum Place {
    /// In this process.
    Here,
    /// In this process, which restarts and reloads between calls.
    Restarted(tempfile::TempDir),
    /// In a store in memory.
    Memory,
    /// In a server whose clock the test sets.
    Redis(Server),
}

/// The service of one configuration in a place.
pub(crate) struct Placed {
    pub(crate) engine: Engine<ManualClock>,
    pub(crate) clock: ManualClock,
    rules: RuleSet,
    settings: EngineSettings,
    store: Option<Arc<dyn Stores<ManualClock>>>,
    debug_us: Arc<AtomicU64>,
}

impl Place {
    pub(crate) fn restarted() -> Self {
        Self::Restarted(tempfile::tempdir().unwrap())
    }

    pub(crate) fn each_redis() -> impl Iterator<Item = Self> {
        Brand::installed().into_iter().map(|brand| Self::Redis(Server::start(brand)))
    }

    /// Returns `true` if the counters of rules are in a store.
    pub(crate) const fn is_store(&self) -> bool {
        matches!(self, Self::Memory | Self::Redis(_))
    }

    /// Creates a service of a configuration, without counts, whose clock shows `at_s`.
    pub(crate) fn service(&self, text: &str, settings: EngineSettings, at_s: u64) -> Placed {
        let clock = ManualClock::stepped();
        clock.set(Duration::from_secs(at_s));
        let loaded = load_text("d.yaml", text).unwrap_or_else(|error| panic!("{}", error.report()));
        let mut rules = RuleSet { rules: loaded.rules.rules.clone(), hash: "".into() };
        if self.is_store() {
            for rule in &mut rules.rules {
                if let Limit::Counted(_) = rule.limit {
                    rule.location = CounterLocation::StoreExact;
                    rule.on_unavailable = OnUnavailable::Deny;
                }
            }
        }
        let debug_us = Arc::new(AtomicU64::new(clock.now_ns() / 1_000));
        let store = self.store(&clock, &debug_us);
        let engine = Engine::with_store(clock.clone(), settings, None, store.clone());
        engine.load(rules.clone()).unwrap();
        Placed { engine, clock, rules, settings, store, debug_us }
    }

    fn store(
        &self,
        clock: &ManualClock,
        debug_us: &Arc<AtomicU64>,
    ) -> Option<Arc<dyn Stores<ManualClock>>> {
        let nodes = std::num::NonZeroU32::MIN;
        match self {
            Self::Here | Self::Restarted(_) => None,
            Self::Memory => {
                let store = Arc::new(MemoryStore::with_clock(clock.clone()));
                Some(Arc::new(Shared::new(store, nodes).with_budget(PATIENCE)))
            }
            Self::Redis(server) => {
                server.client().ok(&["FLUSHALL"]);
                let location = client::Server::tcp("127.0.0.1", server.port());
                let config = Config::server(location).prefix("t").budget(PATIENCE);
                let config = config.debug_clock(Arc::clone(debug_us));
                let store = Arc::new(RedisStore::open(config).unwrap());
                store.ready(PATIENCE).unwrap();
                Some(Arc::new(Shared::new(store, nodes).with_budget(PATIENCE)))
            }
        }
    }
}

impl Placed {
    /// Tells the store the time, and now and then reloads the rules, or restarts the service from
    /// its counters in a file. Returns `true` if the service is another one.
    pub(crate) fn pass(&mut self, place: &Place, random: &mut Rng) -> bool {
        self.debug_us.store(self.clock.now_ns() / 1_000, Ordering::Relaxed);
        let Place::Restarted(folder) = place else { return false };
        match random.u64(..6) {
            0 => {
                self.engine.load(self.rules.clone()).unwrap();
                false
            }
            1 => {
                self.restart(&folder.path().join("counters"));
                true
            }
            _ => false,
        }
    }

    fn restart(&mut self, path: &Path) {
        let saved = self.engine.save(std::fs::File::create(path).unwrap()).unwrap();
        let store = self.store.clone();
        self.engine = Engine::with_store(self.clock.clone(), self.settings, None, store);
        self.engine.load(self.rules.clone()).unwrap();
        let restored = self.engine.restore(path, Downtime::Exactly(Duration::ZERO)).unwrap();
        let restored = restored.unwrap();
        assert_eq!((restored.keys, restored.others.len()), (saved.keys, 0), "{restored:?}");
    }
}
