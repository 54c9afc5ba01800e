//! Tries of very many keys, and of a few hot ones.

use std::time::Duration;

use rategate::MonotonicClock;
use rategate::keyed::Hashing;
use rategate_bench::engines::Made;
use rategate_bench::harness::{Contender, Outcome, Plan, race};
use serde_json::{Value, json};

use super::draws::{AT_ONCE, Draws, key};
use super::tables::{
    Governor, Lines, LockedMap, Ours, TAKEN, contender, counter, governor, ours, took,
};
use super::{Sizes, at_least, at_most, count_text, with_goal};
use crate::{cpu, report};

const THREADS: [u32; 2] = [1, 2];
const HOT: u32 = 1_000;

/// The goals as multiples of governor's speed.
const GOAL_UNIFORM: f64 = 5.0;
const GOAL_ZIPF: f64 = 3.0;
const GOAL_BATCHES: f64 = 9.0;
const GOAL_HOT: f64 = 1.5;
/// The goal for the speed of two threads together, as a multiple of one thread's.
const GOAL_TWO: f64 = 1.8;

/// Returns the number of runs and their length. They are long, so that each finds its own keys in
/// the caches.
fn plan(sizes: Sizes) -> Plan {
    let (rounds, lap_ms) = if sizes.quick { (5, 15) } else { (11, 40) };
    Plan { rounds, lap: Duration::from_millis(lap_ms), cpu_used: Some(cpu::used) }
}

fn draws_of(sizes: Sizes) -> usize {
    if sizes.quick { 1 << 20 } else { 1 << 23 }
}

/// All tables, filled with the same keys.
struct Tables {
    safe: Ours<u64>,
    fast: Ours<u64>,
    governor: Governor<u64>,
    locked: LockedMap,
    lines: Lines,
}

/// The method of our table that is measured.
#[derive(Clone, Copy, PartialEq)]
enum Variant {
    Safe,
    Fast,
    Each,
}

impl Tables {
    fn filled(keys: u32) -> Made<Self> {
        let tables = Self {
            safe: ours(keys, Hashing::FloodSafe, MonotonicClock::new())?,
            fast: ours(keys, Hashing::Fast, MonotonicClock::new())?,
            governor: governor(),
            locked: LockedMap::new(),
            lines: Lines::new(keys),
        };
        let permits = TAKEN.try_into()?;
        for key in (0..keys).map(key) {
            let took = took(&tables.safe, key, TAKEN.into())
                && took(&tables.fast, key, TAKEN.into())
                && matches!(tables.governor.check_key_n(&key, permits), Ok(Ok(())))
                && tables.locked.took(key, TAKEN);
            if !took {
                return Err("a table denied a try while it was filled".into());
            }
        }
        Ok(tables)
    }

    fn ours<'a>(&'a self, variant: Variant, draws: &'a Draws) -> Contender<'a> {
        let one_by_one = |name, table: &'a Ours<u64>| {
            contender(name, draws, |keys| keys.iter().all(|&key| took(table, key, 1)))
        };
        match variant {
            Variant::Safe => one_by_one("keyed", &self.safe),
            Variant::Fast => one_by_one("keyed, fast hash", &self.fast),
            Variant::Each => contender("keyed, try each", draws, |keys| {
                let mut all = true;
                self.safe.try_each(keys.iter().map(|key| (key, 1)), |decision| {
                    all &= decision.is_ok_and(|decision| decision.is_granted());
                });
                all
            }),
        }
    }

    /// Measures ours, governor, perhaps the map behind a lock, and the floor.
    fn race(&self, variant: Variant, draws: &Draws, threads: u32, plan: Plan) -> Vec<Outcome> {
        let mut contenders = vec![
            self.ours(variant, draws),
            contender("governor", draws, |keys| {
                keys.iter().all(|key| self.governor.check_key(key).is_ok())
            }),
        ];
        if variant == Variant::Safe {
            contenders.push(contender("mutex map", draws, |keys| {
                keys.iter().all(|&key| self.locked.took(key, 1))
            }));
        }
        contenders.push(match variant {
            Variant::Each => self.lines.together(draws),
            _ => self.lines.one_by_one(draws),
        });
        per_key(race(plan, threads, &contenders))
    }

    /// Returns the rows of one method: one for each number of threads, and one that compares them.
    fn rows(
        &self,
        path: &str,
        variant: Variant,
        draws: &Draws,
        goal: f64,
        plan: Plan,
    ) -> Vec<Value> {
        let [one, two] = THREADS.map(|threads| self.race(variant, draws, threads, plan));
        let mut rows = Vec::new();
        for (threads, outcomes) in THREADS.into_iter().zip([&one, &two]) {
            let mut raced = report::raced(path, threads, outcomes).into_iter();
            let ratio = outcomes.get(1).map_or(f64::NAN, |governor| governor.ratio);
            rows.extend(raced.next().map(|row| with_goal(row, at_most(1.0 / goal, ratio, ""))));
            rows.extend(raced);
        }
        rows.extend(both(path, &one, &two));
        rows
    }
}

/// Returns the row of what two threads reach together, in units of what one reaches.
fn both(path: &str, one: &[Outcome], two: &[Outcome]) -> Option<Value> {
    let times = |one: Option<&Outcome>, two: Option<&Outcome>| Some(two?.per_s / one?.per_s);
    let as_json = |one: Option<&Outcome>, two: Option<&Outcome>| {
        Some(json!({ "name": one?.name, "times": times(one, two)? }))
    };
    let row = json!({
        "path": format!("{path}: two threads over one"),
        "threads": 2,
        "running": two.last()?.running,
        "ours": as_json(one.first(), two.first())?,
        "rival": as_json(one.get(1), two.get(1))?,
        "floor": as_json(one.last(), two.last())?,
    });
    Some(with_goal(row, at_least(GOAL_TWO, times(one.first(), two.first())?, "")))
}

/// Converts figures of one call to figures of one key.
fn per_key(mut outcomes: Vec<Outcome>) -> Vec<Outcome> {
    let keys = AT_ONCE as f64;
    for outcome in &mut outcomes {
        outcome.ns /= keys;
        outcome.per_s *= keys;
    }
    outcomes
}

/// Measures more keys than the caches hold.
pub(super) fn large(sizes: Sizes) -> Made<Vec<Value>> {
    let (plan, tables) = (plan(sizes), Tables::filled(sizes.keys)?);
    let mut rows = Vec::new();
    let draws = [
        ("uniform", GOAL_UNIFORM, Draws::uniform(sizes.keys, draws_of(sizes))),
        ("Zipf 0.99", GOAL_ZIPF, Draws::zipf(sizes.keys, draws_of(sizes))),
    ];
    for (law, goal, draws) in &draws {
        let path = format!("{} keys, {law}", count_text(sizes.keys));
        for (variant, goal) in
            [(Variant::Safe, *goal), (Variant::Fast, *goal), (Variant::Each, GOAL_BATCHES)]
        {
            rows.extend(tables.rows(&path, variant, draws, goal, plan));
        }
    }
    Ok(rows)
}

/// Measures a few keys, which are in the caches of all threads.
pub(super) fn hot(sizes: Sizes) -> Made<Vec<Value>> {
    let (plan, tables) = (plan(sizes), Tables::filled(HOT)?);
    let draws = Draws::uniform(HOT, draws_of(sizes));
    let mut rows = Vec::new();
    for threads in THREADS {
        let readings = per_key(race(plan, threads, &[counter(&draws)]));
        rows.extend(report::floors(threads, &readings));
    }
    for variant in [Variant::Safe, Variant::Fast, Variant::Each] {
        rows.extend(tables.rows("1000 hot keys", variant, &draws, GOAL_HOT, plan));
    }
    Ok(rows)
}
