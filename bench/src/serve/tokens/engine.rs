//! The engine of the service, called in this process by one thread.

use std::time::Duration;

use fastrand::Rng;
use rategate::MonotonicClock;
use rategate_bench::clock::thread_ns;
use rategate_bench::engines::Made;
use rategate_bench::harness::median;
use rategate_bench::report::Row;
use rategate_server::config::load_text;
use rategate_server::engine::{
    Cost, Decided, Engine, EngineSettings, Item, Request, Reserved, Target, UniqueId, Verb,
};

use crate::Lengths;

/// The number of keys that calls are drawn from.
const KEYS: u64 = 10_000;

/// The bars of the ratios.
const GOAL_CHARGE: f64 = 0.9;
const GOAL_RESERVE: f64 = 0.4;
const GOAL_THREE: f64 = 0.5;
const GOAL_CALENDAR: f64 = 0.9;
const GOAL_COUNTED: f64 = 1.0;

const TTL: Duration = Duration::from_secs(60);

const RULES: &str = r#"
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
    id: u128,
}

/// An engine with the rules.
pub(super) fn engine() -> Made<Engine<MonotonicClock>> {
    let settings = EngineSettings { max_reservations: 100_000_000, ..EngineSettings::default() };
    let engine = Engine::new(MonotonicClock::new(), settings);
    engine.load_compiled(&load_text("bench.toml", RULES)?.rules)?;
    Ok(engine)
}

/// Returns the time of a take in an engine that has never held anything.
pub(super) fn take_ns(lengths: Lengths) -> Made<f64> {
    let engine = engine()?;
    let mut caller = Caller::new(&engine);
    let mut take = |caller: &mut Caller<'_>| caller.decide(Verb::Take, "bucket");
    let rounds = (0..lengths.rounds * ROUNDS).map(|_| lap(&mut caller, &mut take).ns);
    Ok(rounds.fold(f64::INFINITY, f64::min))
}

/// The number of rounds for each of those of the other parts.
const ROUNDS: u32 = 5;
/// The processor time of a lap.
const LAP_NS: u64 = 10_000_000;
/// The calls between two readings of the clock.
const CALLS: u32 = 1_000;

type Call = fn(&mut Caller<'_>) -> bool;

/// One side of a ratio.
struct Side {
    name: &'static str,
    call: Call,
}

struct Lap {
    /// The processor time of a call.
    ns: f64,
    refused: u32,
}

pub(super) fn all(lengths: Lengths) -> Made<Vec<Row>> {
    let engine = engine()?;
    let side = |name, call| Side { name, call };
    let take = || side("take", |caller| caller.decide(Verb::Take, "bucket"));
    let one = || side("one limit", |caller| caller.reserve_and_commit(&["bucket"]));
    let fixed = || side("fixed window", |caller| caller.decide(Verb::Take, "fixed"));
    let rows = [
        (
            "charge : take",
            [take(), side("charge", |caller| caller.decide(Verb::Charge, "bucket"))],
            GOAL_CHARGE,
        ),
        (
            "reserve + commit : take",
            [take(), Side { name: "reserve + commit", ..one() }],
            GOAL_RESERVE,
        ),
        (
            "reserve + commit, three limits under one id : one",
            [
                one(),
                side("three limits", |caller| {
                    caller.reserve_and_commit(&["bucket", "second", "third"])
                }),
            ],
            GOAL_THREE,
        ),
        (
            "calendar : fixed window",
            [fixed(), side("calendar", |caller| caller.decide(Verb::Take, "calendar"))],
            GOAL_CALENDAR,
        ),
        (
            "window that counts what is over : that refuses it",
            [fixed(), side("counted", |caller| caller.decide(Verb::Take, "counted"))],
            GOAL_COUNTED,
        ),
    ];
    Ok(rows
        .into_iter()
        .map(|(path, sides, goal)| row(&engine, lengths, path, sides, goal))
        .collect())
}

/// Measures both sides in turns.
fn row(
    engine: &Engine<MonotonicClock>,
    lengths: Lengths,
    path: &str,
    [mut base, mut other]: [Side; 2],
    goal: f64,
) -> Row {
    let mut caller = Caller::new(engine);
    let (mut ratios, mut bases, mut others, mut refused) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..lengths.rounds * ROUNDS {
        let [first, second] = [&mut base, &mut other].map(|side| lap(&mut caller, &mut side.call));
        ratios.push(first.ns / second.ns);
        bases.push(first.ns);
        others.push(second.ns);
        refused += first.refused + second.refused;
    }
    let ratio = median(ratios);
    let row = Row::new(format!("engine, {path}"))
        .measured(other.name, median(others), "ns")
        .measured("ratio", ratio, "ratio")
        .compared(base.name, median(bases), "ns")
        .at_least(goal, ratio, "ratio");
    if refused > 0 { row.measured("refused", f64::from(refused), "") } else { row }
}

/// Calls for a while, by the thread's own processor time: others of the machine do not count.
fn lap(caller: &mut Caller<'_>, call: &mut impl FnMut(&mut Caller<'_>) -> bool) -> Lap {
    let (begun_ns, mut calls, mut refused) = (thread_ns(), 0, 0);
    loop {
        for _ in 0..CALLS {
            refused += u32::from(!call(caller));
        }
        calls += CALLS;
        let took_ns = thread_ns() - begun_ns;
        if took_ns >= LAP_NS {
            return Lap { ns: took_ns as f64 / f64::from(calls), refused };
        }
    }
}

impl<'a> Caller<'a> {
    fn new(engine: &'a Engine<MonotonicClock>) -> Self {
        let id = u128::from_be_bytes(UniqueId::random().0);
        Self { engine, random: Rng::with_seed(7), id }
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
        self.id = self.id.wrapping_add(1);
        let id = UniqueId(self.id.to_be_bytes());
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
