//! The longest call while a million holds end at one instant.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use rategate::{Gcra, Limiter, ManualClock};
use rategate_bench::clock::now_ns;
use rategate_bench::engines::Made;
use rategate_bench::report::Row;
use rategate_server::config::load_text;
use rategate_server::engine::{
    Decided, Engine, EngineSettings, Item, Request, Target, UniqueId, Verb,
};

use super::engine::{KEYS, RULES};
use crate::Lengths;

const HOLDS: u64 = 1_000_000;
/// The instant at which they all end.
const END: Duration = Duration::from_secs(60);
/// The calls that are timed from that instant on.
const CALLS: u32 = 100_000;
const GOAL_NS: f64 = 200_000.0;

/// Several rules, since each has a bound on the memory of what is held.
const NAMES: [&str; 4] = ["bucket", "second", "third", "fixed"];

/// Measures calls of an engine from the end of its reservations on, spread over many keys, while it
/// drops them as it does once a second.
pub(super) fn longest_call_of_keys(lengths: Lengths) -> Made<Row> {
    let mut longest_ns = u64::MAX;
    for _ in 0..lengths.rounds {
        longest_ns = longest_ns.min(one_run_of_keys()?);
    }
    Ok(Row::new("engine, longest call while 1 M reservations of 40 000 keys end")
        .measured("longest", longest_ns as f64, "ns")
        .at_most(GOAL_NS, longest_ns as f64, "ns"))
}

fn one_run_of_keys() -> Made<u64> {
    let clock = ManualClock::new();
    let settings = EngineSettings {
        max_keys: 4_000_000,
        max_reservations: 2_000_000,
        ..EngineSettings::default()
    };
    let engine = Engine::new(clock.clone(), settings);
    engine.load_compiled(&load_text("bench.toml", RULES)?.rules)?;
    for number in 0..HOLDS {
        let key = (number % KEYS).to_be_bytes();
        let values: [&[u8]; 1] = [&key];
        let name = NAMES[(number / KEYS) as usize % NAMES.len()];
        let items = [Item::of(Target::Rule { name, values: &values }, 2)];
        let id = UniqueId(u128::from(number).to_be_bytes());
        match engine.reserve(id, END, &items) {
            Decided::Now(Ok(reserved)) if reserved.answer.allowed => {}
            _ => return Err("a reservation was denied".into()),
        }
    }
    clock.advance(END);
    let (mut random, is_over) = (Rng::with_seed(7), AtomicBool::new(false));
    let longest_ns = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                engine.tick(0);
            }
        });
        let longest_ns = longest(10 * CALLS, || {
            let key = random.u64(..KEYS).to_be_bytes();
            let values: [&[u8]; 1] = [&key];
            let name = NAMES[random.usize(..NAMES.len())];
            let items = [Item::of(Target::Rule { name, values: &values }, 1)];
            let _ =
                engine.decide(&Request { verb: Verb::Take, items: &items, counts_denied: false });
        });
        is_over.store(true, Ordering::Relaxed);
        longest_ns
    });
    Ok(longest_ns)
}

/// Measures tries of a limiter from the end of its holds on, a microsecond after each other.
///
/// The longest of a run is often a pause of the machine. So the smallest of several runs counts,
/// and beside it stands that of readings of the clock alone.
pub(super) fn longest_call(lengths: Lengths) -> Made<Row> {
    let (mut longest_ns, mut bare_ns) = (u64::MAX, u64::MAX);
    for _ in 0..lengths.rounds {
        longest_ns = longest_ns.min(one_run()?);
        bare_ns = bare_ns.min(longest(CALLS, || ()));
    }
    Ok(Row::new("a limiter, longest call while its 1 M holds end")
        .measured("longest", longest_ns as f64, "ns")
        .compared("a bare loop", bare_ns as f64, "ns")
        .at_most(GOAL_NS, longest_ns as f64, "ns"))
}

fn one_run() -> Made<u64> {
    let clock = ManualClock::new();
    // A hundred seconds' worth: what is held is never earned back before its end.
    let bucket = Gcra::new(rategate::Rate::per_second(10_000), 3 * HOLDS)?;
    let limiter = Limiter::with_clock(bucket, clock.clone());
    let mut holds = Vec::with_capacity(HOLDS as usize);
    for number in 0..HOLDS {
        // Each has begun at an instant of its own, and others are granted between them.
        let hold = limiter.try_hold(2, END.saturating_sub(Duration::from_micros(number)))?;
        holds.push(hold.map_err(|_| "a hold was denied")?);
        if number % 4 == 0 && !limiter.try_acquire(1)?.is_granted() {
            return Err("a try was denied".into());
        }
        clock.advance(Duration::from_micros(1));
    }
    clock.advance(END.saturating_sub(Duration::from_micros(HOLDS)));
    let longest_ns = longest(CALLS, || {
        let _ = limiter.try_acquire(1);
        clock.advance(Duration::from_micros(1));
    });
    if limiter.remaining()? < 2 * HOLDS {
        return Err("what was held has not come back".into());
    }
    // Each of these has ended: its drop is not what is measured.
    holds.into_iter().for_each(std::mem::forget);
    Ok(longest_ns)
}

fn longest(calls: u32, mut call: impl FnMut()) -> u64 {
    let mut longest_ns = 0;
    let mut before_ns = now_ns();
    for _ in 0..calls {
        call();
        let after_ns = now_ns();
        longest_ns = longest_ns.max(after_ns.saturating_sub(before_ns));
        before_ns = after_ns;
    }
    longest_ns
}
