//! The memory that a key takes.

use std::process::Command;
use std::time::Duration;

use fastrand::Rng;
use rategate::keyed::{Capacity, Hashing};
use rategate::{CompactLog, Keyed, MonotonicClock};
use rategate_bench::engines::Made;
use serde_json::{Value, json};

use super::draws::key;
use super::tables::{HandClock, governor, ours};
use super::{BYTES, Sizes, at_most, count_text, with_goal};
use crate::waiting::resident;

/// The goal in bytes for a key that is a number; the next is for a text of forty bytes.
const GOAL_NUMBER: f64 = 22.0;
const GOAL_TEXT: f64 = 34.0;

/// The number of callers with an exact window, all of them busy.
const CALLERS: u64 = 1_000;
const PERMITS: u64 = 10_000;
const PERIOD_NS: u64 = 60_000_000_000;

/// Measures numbers and texts, in our table and in governor's.
pub(super) fn of_keys(sizes: Sizes) -> Made<Vec<Value>> {
    let kinds = [
        ("u64", "ours-number", "governor-number", GOAL_NUMBER),
        ("texts of 40 bytes", "ours-text", "governor-text", GOAL_TEXT),
    ];
    let mut rows = Vec::new();
    for (kind, ours, rival, goal) in kinds {
        let (ours, rival) = (in_child(ours, sizes.keys)?, in_child(rival, sizes.keys)?);
        let row = json!({
            "path": format!("{} keys, {kind}", count_text(sizes.keys)),
            "threads": 1,
            "ours": { "name": "keyed", "bytes_each": ours },
            "rival": { "name": "governor", "bytes_each": rival },
            "ratio": ours / rival,
        });
        rows.push(with_goal(row, at_most(goal, ours, "bytes")));
    }
    Ok(rows)
}

/// Measures in a child process, whose memory is unused before.
fn in_child(table: &str, keys: u32) -> Made<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    let measured_bytes = command.args([BYTES, table, &keys.to_string()]).output()?;
    Ok(String::from_utf8(measured_bytes.stdout)?.trim().parse()?)
}

/// Returns the bytes of each key, in the child process that was started for this.
pub(crate) fn measured_bytes(table: &str, keys: &str) -> Made<f64> {
    let count: u32 = keys.parse()?;
    let clock = MonotonicClock::new();
    let text = |number: u32| format!("{:040x}", key(number));
    let before = resident();
    let after = match table {
        "ours-number" => {
            let table = ours::<u64, _>(count, Hashing::FloodSafe, clock)?;
            (0..count).try_for_each(|number| table.try_acquire(&key(number), 1000).map(drop))?;
            resident()
        }
        "ours-text" => {
            let table = ours::<str, _>(count, Hashing::FloodSafe, clock)?;
            (0..count).try_for_each(|number| table.try_acquire(&text(number), 1000).map(drop))?;
            resident()
        }
        "governor-number" => {
            let table = governor::<u64>();
            (0..count).for_each(|number| drop(table.check_key(&key(number))));
            resident()
        }
        "governor-text" => {
            let table = governor::<String>();
            (0..count).for_each(|number| drop(table.check_key(&text(number))));
            resident()
        }
        other => return Err(format!("unknown table: {other}").into()),
    };
    Ok((after - before) / f64::from(count))
}

/// Measures exact windows full of separate grants, on a coarse grid and on a fine one.
pub(super) fn of_logs() -> Made<Vec<Value>> {
    let mut rows = Vec::new();
    for (parts, loss, goal) in [(1_000, "0.1 %", 2.5e6), (65_536, "0.0015 %", 20e6)] {
        let bytes = busy_logs(parts)?;
        let row = json!({
            "path": format!("1000 busy callers, 10 000 in any window, to {loss}"),
            "threads": 1,
            "ours": { "name": "keyed compact log", "bytes": bytes },
            // The size of a log of 64-bit instants.
            "rival": { "name": "an instant for each", "bytes": (CALLERS * PERMITS * 8) as f64 },
            "ratio": bytes / (CALLERS * PERMITS * 8) as f64,
        });
        rows.push(with_goal(row, at_most(goal, bytes, "bytes")));
    }
    Ok(rows)
}

fn busy_logs(parts: u64) -> Made<f64> {
    let clock = HandClock::default();
    let capacity = Capacity { max_bytes: 1 << 30, ..Capacity::for_keys(CALLERS as usize) };
    let policy = CompactLog::new(PERMITS, Duration::from_nanos(PERIOD_NS)).with_parts(parts)?;
    let table: Keyed<u64, CompactLog, HandClock> =
        Keyed::with_clock(policy, capacity, clock.clone());
    let (mut random, step_ns) = (Rng::with_seed(4), PERIOD_NS / PERMITS);
    for permit in 0..PERMITS {
        // At a random moment of its part of the period: evenly spaced grants would take less.
        clock.set(permit * step_ns + random.u64(..step_ns));
        for caller in 0..CALLERS {
            if !table.try_acquire(&caller, 1)?.is_granted() {
                return Err("a log was full before it had all its permits".into());
            }
        }
    }
    Ok(table.bytes() as f64)
}
