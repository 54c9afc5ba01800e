//! Rules with counters in a store: with a scripted store on a clock that the tests set, and in a
//! real one.

mod charge;
pub(crate) mod counted;
mod nothing;
mod real;
#[cfg(feature = "otlp")]
mod spans;
mod unavailable;

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rategate::store::MemoryStore;
use rategate::{Clock, Concurrency, ManualClock};
use rategate_redis::client::{self, Config, RedisStore};
use rategate_server::engine::{
    Answer, Decided, Engine, EngineError, EngineSettings, Item, Observer, Request, Shared, Target,
    Verb,
};
use rategate_server::rule::{CounterLocation, Limit, Rule, RuleSet};
use rategate_testkit::faulty::FaultyStore;
use rategate_testkit::redis::Server;

use crate::engine::common::{MONDAY, SECOND, SMALL, bucket};

pub(crate) const MS: u64 = SECOND / 1_000;
/// The time that a call waits for the store.
const BUDGET_NS: u64 = 20 * MS;
/// A budget that no delay of the machine exceeds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(8);

pub(crate) type Faulty = FaultyStore<MemoryStore<ManualClock>, ManualClock>;

/// Servers with one store.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<Faulty>,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::stepped();
        clock.set(Duration::from_nanos(MONDAY));
        let memory = Arc::new(MemoryStore::with_clock(clock.clone()));
        let store = Arc::new(FaultyStore::new(memory, clock.clone(), BUDGET_NS));
        Self { clock, store }
    }

    fn server(&self, rules: Vec<Rule>) -> Engine<ManualClock> {
        self.observed(rules, None)
    }

    fn observed(
        &self,
        rules: Vec<Rule>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Engine<ManualClock> {
        let nodes = NonZeroU32::new(2).unwrap();
        let shared = Arc::new(Shared::new(Arc::clone(&self.store), nodes));
        let settings = EngineSettings { max_keys: 100, ..SMALL };
        let engine = Engine::with_store(self.clock.clone(), settings, observer, Some(shared));
        engine.load(rule_set(rules)).unwrap();
        engine
    }

    /// Returns the answer, and the time that it took.
    fn ask(
        &self,
        engine: &Engine<ManualClock>,
        verb: Verb,
        items: &[(&str, &str, u64)],
    ) -> (Answer, u64) {
        let (answer, took_ns) = self.wait(decided(engine, verb, items));
        (answer.unwrap(), took_ns)
    }

    /// Waits for an answer. Returns it, and the time that it took.
    pub(crate) fn wait<A>(&self, decided: Decided<A>) -> (Result<A, EngineError>, u64) {
        let started_ns = self.clock.now_ns();
        let mut decided = pin!(decided.answer());
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(answer) = decided.as_mut().poll(&mut context) {
                return (answer, self.clock.now_ns() - started_ns);
            }
            self.clock.set(Duration::from_nanos(self.clock.now_ns() + MS));
            assert!(self.clock.now_ns() <= started_ns + 200 * MS, "the wait is too long");
        }
    }

    fn take(&self, engine: &Engine<ManualClock>, items: &[(&str, &str, u64)]) -> bool {
        self.ask(engine, Verb::Take, items).0.allowed
    }

    fn left(&self, engine: &Engine<ManualClock>, rule: &str, key: &str) -> Option<u64> {
        self.ask(engine, Verb::Peek, &[(rule, key, 1)]).0.results[0].remaining
    }
}

/// Returns a real server as a store whose calls wait for `budget`.
///
/// A test that compares decisions needs a budget that a busy machine does not exceed: without a
/// reply in time the fallback decides, and knows no count.
pub(crate) fn real_store(server: &Server, budget: Duration) -> Arc<Shared<RedisStore>> {
    let location = client::Server::tcp("127.0.0.1", server.port());
    let config = Config::server(location).prefix("t").budget(budget);
    let store = Arc::new(RedisStore::open(config).unwrap());
    store.ready(PATIENCE).unwrap();
    Arc::new(Shared::new(store, NonZeroU32::MIN).with_budget(budget))
}

/// Returns a set of rules, each with its own entry.
pub(crate) fn rule_set(mut rules: Vec<Rule>) -> RuleSet {
    for rule in &mut rules {
        rule.entries[0].key = Arc::clone(&rule.name);
    }
    RuleSet { rules, hash: "".into() }
}

/// Decides items, each a rule, the value of its entry, and permits.
fn decided<C: Clock + Clone + 'static>(
    engine: &Engine<C>,
    verb: Verb,
    items: &[(&str, &str, u64)],
) -> Decided {
    let values: Vec<[&[u8]; 1]> = items.iter().map(|(_, key, _)| [key.as_bytes()]).collect();
    let items = items.iter().zip(&values);
    let items: Vec<Item<'_>> = items
        .map(|((name, _, permits), values)| Item::of(Target::Rule { name, values }, *permits))
        .collect();
    engine.decide(&Request { verb, items: &items, counts_denied: false })
}

/// Returns a rule with a bucket of `burst` in the store, one back per second.
pub(crate) fn stored(name: &str, burst: u64) -> Rule {
    Rule { location: CounterLocation::StoreExact, ..bucket(name, &["who"], burst) }
}

/// Returns a rule with a limit of permits in flight.
pub(crate) fn in_flight(name: &str, permits: u64, location: CounterLocation) -> Rule {
    let limit = Limit::Policy(Concurrency::new(permits).into());
    Rule { limit, location, ..bucket(name, &["who"], 1) }
}
