//! A limit for each of millions of keys: its speed, its memory, and its longest call.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures for people to read, and random numbers"
)]

mod bytes;
mod draws;
mod flood;
mod speed;
mod stalls;
mod tables;

use rategate_bench::engines::{Made, settle_clock};
use serde_json::{Value, json};

pub(crate) use self::bytes::measured_bytes;

/// The flag of a child process that measures how many bytes a key takes.
pub(crate) const BYTES: &str = "--bytes-of-a-key";

/// The sizes of the tables and runs.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// The number of keys of a large table.
    keys: u32,
    /// The number of keys in a flood; `known` is the number in the table before it.
    flood: u32,
    known: u32,
    /// The number of runs of a measurement that looks for the worst moment. The machine has such
    /// moments as well, but not in each run.
    runs: u32,
    quick: bool,
}

const FULL: Sizes =
    Sizes { keys: 10_000_000, flood: 50_000_000, known: 1_000_000, runs: 3, quick: false };
const QUICK: Sizes =
    Sizes { keys: 1_000_000, flood: 2_000_000, known: 100_000, runs: 2, quick: true };

pub(crate) fn all(quick: bool) -> Made<Vec<Value>> {
    let sizes = if quick { QUICK } else { FULL };
    settle_clock();
    // One after another, so that each has the memory to itself.
    let mut rows = speed::large(sizes)?;
    rows.extend(speed::hot(sizes)?);
    rows.extend(bytes::of_keys(sizes)?);
    rows.extend(bytes::of_logs()?);
    rows.extend(stalls::all(sizes)?);
    rows.extend(flood::all(sizes)?);
    Ok(rows)
}

/// Formats a count, such as `10 M`.
fn count_text(count: u32) -> String {
    match count {
        0..1_000_000 => format!("{} k", count / 1_000),
        _ => format!("{} M", count / 1_000_000),
    }
}

/// Returns a goal with an upper bound, and the measured value.
fn at_most(max: f64, measured: f64, unit: &str) -> Value {
    json!({ "most": max, "measured": measured, "unit": unit })
}

/// Returns a goal with a lower bound, and the measured value.
fn at_least(min: f64, measured: f64, unit: &str) -> Value {
    json!({ "least": min, "measured": measured, "unit": unit })
}

/// Returns a row with its goal.
fn with_goal(mut row: Value, goal: Value) -> Value {
    if let Some(row) = row.as_object_mut() {
        row.insert("goal".to_owned(), goal);
    }
    row
}
