//! The longest call while a table grows, and while all of its keys expire.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use governor::RateLimiter;
use governor::clock::FakeRelativeClock;
use hdrhistogram::Histogram;
use quanta::Clock;
use rategate::keyed::Hashing;
use rategate_bench::engines::Made;
use serde_json::{Value, json};

use super::draws::key;
use super::tables::{Governor, HandClock, Ours, ours, quota, took};
use super::{Sizes, at_most, count_text, with_goal};

/// The maximum time by which a call may exceed the longest gap of the bare loop.
const GOAL_EXPIRING_NS: f64 = 200e3;
const GOAL_GROWING_NS: f64 = 1e6;

/// The longest time recorded; longer calls count as this.
const MAX_NS: u64 = 60_000_000_000;

const HOUR: Duration = Duration::from_secs(3_600);
/// A time beyond the one after which whole parts of the table must be checked.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// The durations of very many calls.
struct Calls {
    clock: Clock,
    took_ns: Histogram<u64>,
}

/// The longest calls of a run.
#[derive(Clone, Copy, Debug)]
struct Slowest {
    max_ns: u64,
    p99999_ns: u64,
}

impl Calls {
    fn new() -> Made<Self> {
        Ok(Self { clock: Clock::new(), took_ns: Histogram::new_with_bounds(1, MAX_NS, 3)? })
    }

    #[inline]
    fn time<T>(&mut self, call: impl FnOnce() -> T) {
        let from = self.clock.raw();
        black_box(call());
        self.record(from, self.clock.raw());
    }

    #[inline]
    fn record(&mut self, from: u64, to: u64) {
        self.took_ns.saturating_record(self.clock.delta_as_nanos(from, to));
    }

    fn slowest(&self) -> Slowest {
        let p99999_ns = self.took_ns.value_at_quantile(0.999_99);
        Slowest { max_ns: self.took_ns.max(), p99999_ns }
    }

    /// Runs a loop that does nothing else, for `length`.
    fn idle_loop(length: Duration) -> Made<Slowest> {
        let (mut calls, until) = (Self::new()?, Instant::now() + length);
        let mut last = calls.clock.raw();
        while Instant::now() < until {
            for _ in 0..1_000 {
                let now = calls.clock.raw();
                calls.record(last, now);
                last = now;
            }
            last = calls.clock.raw();
        }
        Ok(calls.slowest())
    }
}

/// The longest calls while a table grows, and while all of it expires.
#[derive(Clone, Copy, Debug)]
struct Stalls {
    growing: Slowest,
    expiring: Slowest,
}

impl Stalls {
    /// Returns the shorter of each pair: occasional pauses of the machine do not appear in every
    /// run.
    fn or(self, other: Self) -> Self {
        let calmest = |one: Slowest, other: Slowest| Slowest {
            max_ns: one.max_ns.min(other.max_ns),
            p99999_ns: one.p99999_ns.min(other.p99999_ns),
        };
        Self {
            growing: calmest(self.growing, other.growing),
            expiring: calmest(self.expiring, other.expiring),
        }
    }
}

pub(super) fn all(sizes: Sizes) -> Made<Vec<Value>> {
    let (mut lengths, mut found) = ([Duration::ZERO; 2], Vec::new());
    for _ in 0..sizes.runs {
        let (stalls, took) = of_ours(sizes.keys)?;
        lengths = took;
        found.push(stalls);
    }
    let rivals = (0..sizes.runs).map(|_| of_governor(sizes.keys)).collect::<Made<Vec<_>>>()?;
    let [growing, expiring] = lengths;
    let idle_loop = |_| {
        Ok(Stalls { growing: Calls::idle_loop(growing)?, expiring: Calls::idle_loop(expiring)? })
    };
    let floors = (0..sizes.runs).map(idle_loop).collect::<Made<Vec<_>>>()?;
    let calmest = |runs: Vec<Stalls>| runs.into_iter().reduce(Stalls::or).ok_or("no run");
    let (ours, rival, floor) = (calmest(found)?, calmest(rivals)?, calmest(floors)?);
    let keys = count_text(sizes.keys);
    let row = |path: String, of: fn(&Stalls) -> Slowest, goal_ns: f64| {
        let as_json = |name: &str, slowest: Slowest| {
            let Slowest { max_ns, p99999_ns } = slowest;
            json!({ "name": name, "longest_ns": max_ns, "p99999_ns": p99999_ns })
        };
        let beyond_ns = of(&ours).max_ns as f64 - of(&floor).max_ns as f64;
        let row = json!({
            "path": path,
            "threads": 1,
            "ours": as_json("keyed", of(&ours)),
            "rival": as_json("governor", of(&rival)),
            "ratio": of(&ours).max_ns as f64 / of(&rival).max_ns as f64,
            "floor": as_json("bare loop", of(&floor)),
        });
        with_goal(row, at_most(goal_ns, beyond_ns, "ns beyond"))
    };
    Ok(vec![
        row(
            format!("longest call while {keys} keys expire"),
            |stalls| stalls.expiring,
            GOAL_EXPIRING_NS,
        ),
        row(
            format!("longest call from 0 to {keys} keys"),
            |stalls| stalls.growing,
            GOAL_GROWING_NS,
        ),
    ])
}

/// Measures our table. Also returns how long both parts took.
fn of_ours(keys: u32) -> Made<(Stalls, [Duration; 2])> {
    let clock = HandClock::default();
    let table: Ours<u64, _> = ours(keys, Hashing::FloodSafe, clock.clone())?;
    let (mut growing, from) = (Calls::new()?, Instant::now());
    for number in 0..keys {
        growing.time(|| took(&table, key(number), 1));
    }
    let grew_for = from.elapsed();
    let (mut expiring, from, mut new) = (Calls::new()?, Instant::now(), keys);
    // Once by a little, and once so far that the first caller in each part must sweep it.
    for later in [HOUR, YEAR] {
        clock.set(later.as_nanos() as u64);
        for known in (0..keys).step_by(4) {
            expiring.time(|| took(&table, key(known), 1));
            expiring.time(|| took(&table, key(new), 1));
            new += 1;
        }
    }
    let stalls = Stalls { growing: growing.slowest(), expiring: expiring.slowest() };
    Ok((stalls, [grew_for, from.elapsed()]))
}

/// Measures governor. It evicts keys on request: here by another thread, so that callers wait
/// only for its locks.
fn of_governor(keys: u32) -> Made<Stalls> {
    let clock = FakeRelativeClock::default();
    let table: Governor<u64, _> = RateLimiter::dashmap_with_clock(quota(), clock.clone());
    let mut growing = Calls::new()?;
    for number in 0..keys {
        growing.time(|| table.check_key(&key(number)).is_ok());
    }
    clock.advance(HOUR);
    let (mut expiring, done) = (Calls::new()?, AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            table.retain_recent();
            done.store(true, Ordering::Release);
        });
        let mut next = 0;
        while !done.load(Ordering::Acquire) || next < keys / 4 {
            expiring.time(|| table.check_key(&key(next % keys)).is_ok());
            expiring.time(|| table.check_key(&key(keys.wrapping_add(next))).is_ok());
            next = next.wrapping_add(1);
        }
    });
    Ok(Stalls { growing: growing.slowest(), expiring: expiring.slowest() })
}
