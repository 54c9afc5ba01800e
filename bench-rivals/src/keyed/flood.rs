//! A flood of made-up keys at a table that is full of keys in use.

use std::time::Instant;

use fastrand::Rng;
use rategate::MonotonicClock;
use rategate::keyed::Hashing;
use rategate_bench::engines::Made;
use serde_json::{Value, json};

use super::draws::{AT_ONCE, Draws, key};
use super::tables::{BURST, Ours, TAKEN, ns_since, ours, took};
use super::{Sizes, at_least, at_most, count_text, with_goal};
use crate::waiting::resident;

/// The maximum slowdown of the flood's calls against those of known keys.
const GOAL_SLOWER: f64 = 2.0;
/// The maximum growth of the process during the flood, in bytes for each known key.
const GOAL_BYTES: f64 = 1.0;

pub(super) fn all(sizes: Sizes) -> Made<Vec<Value>> {
    let Sizes { flood, known, .. } = sizes;
    let table: Ours<u64> = ours(known, Hashing::FloodSafe, MonotonicClock::new())?;
    for key in (0..known).map(key) {
        took(&table, key, TAKEN.into());
    }
    let draws = Draws::uniform(known, 1 << 22);
    let known_ns = known_calls(&table, &draws, known);
    let before = resident();
    let flood_ns = flood_calls(&table, flood);
    let grown = resident() - before;
    let again_ns = known_calls(&table, &draws, known);
    let known_ns = known_ns.min(again_ns);
    let path = format!("{} made-up keys over a full {}", count_text(flood), count_text(known));
    let survivors = surviving_keys(&table, known);
    let speed = json!({
        "path": path,
        "threads": 1,
        "ours": { "name": "made-up", "ns": flood_ns },
        "rival": { "name": "known", "ns": known_ns },
        "ratio": flood_ns / known_ns,
    });
    let memory = json!({
        "path": format!("{path}: memory"),
        "threads": 1,
        "ours": { "name": "grew by", "bytes": grown },
    });
    let state = json!({
        "path": format!("{path}: known keys"),
        "threads": 1,
        "ours": { "name": "kept", "kept": survivors, "of": known },
    });
    Ok(vec![
        with_goal(speed, at_most(GOAL_SLOWER, flood_ns / known_ns, "")),
        with_goal(memory, at_most(GOAL_BYTES * f64::from(known), grown, "bytes")),
        with_goal(state, at_least(f64::from(known), f64::from(survivors), "keys")),
    ])
}

/// Returns the nanoseconds of a call with a known key.
fn known_calls(table: &Ours<u64>, draws: &Draws, known: u32) -> f64 {
    let (mut cursor, from) = (draws.cursor(), Instant::now());
    let laps = (known as usize * 4).div_ceil(AT_ONCE);
    for _ in 0..laps {
        for key in cursor.take() {
            took(table, key, 1);
        }
    }
    ns_since(from) / (laps * AT_ONCE) as f64
}

fn flood_calls(table: &Ours<u64>, flood: u32) -> f64 {
    let (mut random, from) = (Rng::with_seed(3), Instant::now());
    for _ in 0..flood {
        took(table, random.u64(..), 1);
    }
    ns_since(from) / f64::from(flood)
}

/// Returns how many keys have kept their state: less than half of the permits that they took has
/// been earned back.
fn surviving_keys(table: &Ours<u64>, known: u32) -> u32 {
    let max_remaining = u64::from(BURST - TAKEN / 2);
    let survivors = (0..known).filter(|&number| {
        table.remaining(&key(number)).is_ok_and(|remaining| remaining <= max_remaining)
    });
    u32::try_from(survivors.count()).unwrap_or(u32::MAX)
}
