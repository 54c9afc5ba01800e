//! The engine of the service, called in this process by one thread.

use std::cell::Cell;
use std::time::Duration;

use fastrand::Rng;
use rategate::MonotonicClock;
use rategate_bench::engines::Made;
use rategate_bench::harness::{Contender, Outcome, Plan, race};
use rategate_bench::report::Row;
use rategate_server::config::load_text;
use rategate_server::engine::{
    Cost, Decided, Engine, EngineSettings, Item, Request, Reserved, Target, UniqueId, Verb,
};

use crate::Lengths;

/// The number of keys that calls are drawn from.
pub(super) const KEYS: u64 = 10_000;

/// The bars of the ratios.
const GOAL_CHARGE: f64 = 0.9;
const GOAL_RESERVE: f64 = 0.4;
const GOAL_THREE: f64 = 0.5;
const GOAL_CALENDAR: f64 = 0.9;
const GOAL_COUNTED: f64 = 1.0;

const TTL: Duration = Duration::from_secs(60);

/// The rules, named as what they are.
pub(super) const RULES: &str = r#"
[[rule]]
name = "bucket"
domain = "bench"
match = [{ key = "bucket" }]
limit = "100000000/s"

[[rule]]
name = "second"
domain = "bench"
match = [{ key = "second" }]
limit = "100000000/s"

[[rule]]
name = "third"
domain = "bench"
match = [{ key = "third" }]
limit = "100000000/s"

[[rule]]
name = "fixed"
domain = "bench"
match = [{ key = "fixed" }]
algorithm = "fixed-window"
limit = "1000000000/day"

[[rule]]
name = "calendar"
domain = "bench"
match = [{ key = "calendar" }]
algorithm = "calendar"
limit = { permits = 1000000000, per = "day", zone = "America/New_York" }

[[rule]]
name = "counted"
domain = "bench"
match = [{ key = "counted" }]
algorithm = "counted-window"
limit = "1000000000/day"
"#;

/// One thread's engine and its sequences of keys and ids.
struct Caller<'a> {
    engine: &'a Engine<MonotonicClock>,
    random: Rng,
    ids: &'a Cell<u128>,
}

/// An engine with the rules.
pub(super) fn engine() -> Made<Engine<MonotonicClock>> {
    let settings = EngineSettings { max_reservations: 100_000_000, ..EngineSettings::default() };
    let engine = Engine::new(MonotonicClock::new(), settings);
    engine.load_compiled(&load_text("bench.toml", RULES)?.rules)?;
    Ok(engine)
}

const fn plan(lengths: Lengths) -> Plan {
    Plan { rounds: lengths.rounds * 5, lap: Duration::from_millis(10), cpu_used: None }
}

/// Returns the time of a take in an engine that has never held anything.
pub(super) fn take_ns(lengths: Lengths) -> Made<f64> {
    let (engine, ids) = (engine()?, Cell::new(0));
    let mut fastest_ns = f64::INFINITY;
    let mut caller = Caller::new(&engine, &ids);
    for _ in 0..lengths.rounds * 5 {
        let begun = std::time::Instant::now();
        for _ in 0..CALLS {
            caller.decide(Verb::Take, "bucket");
        }
        fastest_ns = fastest_ns.min(begun.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS));
    }
    Ok(fastest_ns)
}

/// The number of calls that are timed together.
const CALLS: u32 = 50_000;

pub(super) fn all(lengths: Lengths) -> Made<Vec<Row>> {
    let engine = engine()?;
    let take = |name: &'static str| contender(&engine, name, move |c| c.decide(Verb::Take, name));
    let reserve = |name: &str, rules: &'static [&'static str]| {
        contender(&engine, name, move |caller| caller.reserve_and_commit(rules))
    };
    let charge = contender(&engine, "charge", |caller| caller.decide(Verb::Charge, "bucket"));
    let one = ["bucket"].as_slice();
    let three = ["bucket", "second", "third"].as_slice();
    let pair = |first, second| -> [Outcome; 2] {
        let outcomes = race(plan(lengths), 1, &[first, second]);
        outcomes.try_into().unwrap_or_else(|_| unreachable!("two contenders"))
    };
    let row = |path: &str, [base, other]: [Outcome; 2], goal| {
        let granted = base.granted.min(other.granted) * 100.0;
        let row = Row::new(format!("engine, {path}"))
            .measured(&other.name, other.ns, "ns")
            .measured("ratio", other.ratio, "ratio")
            .compared(&base.name, base.ns, "ns")
            .at_least(goal, other.ratio, "ratio");
        if granted < 100.0 { row.measured("granted only", granted, "%") } else { row }
    };
    Ok(vec![
        row("charge : take", pair(take("bucket"), charge), GOAL_CHARGE),
        row(
            "reserve + commit : take",
            pair(take("bucket"), reserve("reserve + commit", one)),
            GOAL_RESERVE,
        ),
        row(
            "reserve + commit, three limits under one id : one",
            pair(reserve("one limit", one), reserve("three limits", three)),
            GOAL_THREE,
        ),
        row("calendar : fixed window", pair(take("fixed"), take("calendar")), GOAL_CALENDAR),
        row(
            "window that counts what is over : that refuses it",
            pair(take("fixed"), take("counted")),
            GOAL_COUNTED,
        ),
    ])
}

fn contender<'a>(
    engine: &'a Engine<MonotonicClock>,
    name: &str,
    call: impl Fn(&mut Caller<'_>) -> bool + Send + Sync + 'a,
) -> Contender<'a> {
    // Each run has ids of its own.
    Contender::with_state(
        name,
        move || (Rng::new(), Cell::new(u128::from_be_bytes(UniqueId::random().0))),
        move |(random, ids)| {
            let mut caller = Caller { engine, random: random.clone(), ids };
            let done = call(&mut caller);
            *random = caller.random;
            done
        },
    )
}

impl<'a> Caller<'a> {
    fn new(engine: &'a Engine<MonotonicClock>, ids: &'a Cell<u128>) -> Self {
        Self { engine, random: Rng::with_seed(7), ids }
    }

    fn decide(&mut self, verb: Verb, rule: &str) -> bool {
        let key = self.random.u64(..KEYS).to_be_bytes();
        let values: [&[u8]; 1] = [&key];
        let items = [Item::of(Target::Rule { name: rule, values: &values }, 1)];
        let request = Request { verb, items: &items, counts_denied: false };
        match self.engine.decide(&request) {
            Decided::Now(answer) => answer.is_ok_and(|answer| answer.allowed),
            Decided::Later(_) => false,
        }
    }

    fn reserve_and_commit(&mut self, rules: &[&str]) -> bool {
        let key = self.random.u64(..KEYS).to_be_bytes();
        let values: [&[u8]; 1] = [&key];
        let id = self.ids.get().wrapping_add(1);
        self.ids.set(id);
        let id = UniqueId(id.to_be_bytes());
        let target = |name| Target::Rule { name, values: &values };
        let mut items = [Item::of(target("bucket"), 2); 3];
        let mut costs = [Cost { target: target("bucket"), permits: Some(1), usage: None }; 3];
        for ((item, cost), name) in items.iter_mut().zip(&mut costs).zip(rules) {
            item.target = target(name);
            cost.target = target(name);
        }
        let passes = |decided| match decided {
            Decided::Now(Ok(Reserved { answer, is_repeated: false, .. })) => answer.allowed,
            _ => false,
        };
        passes(self.engine.reserve(id, TTL, &items[..rules.len()]))
            && passes(self.engine.commit(id, &costs[..rules.len()]))
    }
}
