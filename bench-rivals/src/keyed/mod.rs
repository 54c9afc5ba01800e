//! A limit for each of millions of keys: how fast, how large, and how long the longest call.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures for people to read, and numbers that were drawn"
)]

mod bytes;
mod draws;
mod flood;
mod speed;
mod stalls;
mod tables;

use rategate_bench::engines::{Made, settle_clock};
use serde_json::{Value, json};

pub(crate) use self::bytes::told as told_bytes;

/// What a process is started with to tell how many bytes a key takes.
pub(crate) const BYTES: &str = "--bytes-of-a-key";

/// How much of everything.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Keys of a large table.
    keys: u32,
    /// Keys that a flood is made of, and those that are there before it.
    flood: u32,
    known: u32,
    /// How often whatever looks for its worst moment is run: the machine has such moments as well, but not
    /// in each run.
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
    // One after another: each has the memory for itself.
    let mut rows = speed::large(sizes)?;
    rows.extend(speed::hot(sizes)?);
    rows.extend(bytes::of_keys(sizes)?);
    rows.extend(bytes::of_logs()?);
    rows.extend(stalls::all(sizes)?);
    rows.extend(flood::all(sizes)?);
    Ok(rows)
}

/// `10 M` and the like.
fn count_text(count: u32) -> String {
    match count {
        0..1_000_000 => format!("{} k", count / 1_000),
        _ => format!("{} M", count / 1_000_000),
    }
}

/// What a figure should be at the most, and is.
fn at_most(most: f64, measured: f64, unit: &str) -> Value {
    json!({ "most": most, "measured": measured, "unit": unit })
}

/// What a figure should be at the least, and is.
fn at_least(least: f64, measured: f64, unit: &str) -> Value {
    json!({ "least": least, "measured": measured, "unit": unit })
}

/// A row with its goal.
fn with_goal(mut row: Value, goal: Value) -> Value {
    if let Some(row) = row.as_object_mut() {
        row.insert("goal".to_owned(), goal);
    }
    row
}
