//! Token budgets: charges and reservations as ratios to a take, in the engine and from outside,
//! the memory of what is held, and the longest call while a million holds end.
//!
//! All figures are of one run. A ratio is taken within a round, so that other work of the machine
//! affects both of its parts.

mod engine;
mod holds;
mod outside;

use std::path::Path;
use std::process::Command;

use rategate_bench::engines::Made;
use rategate_bench::harness::median;
use rategate_bench::report::Row;
use rategate_bench::usage::Share;
use serde_json::Value;

use crate::{Bench, Found};

/// The goal of a take while nothing is reserved, as a multiple of an earlier program's.
const GOAL_BEFORE: f64 = 0.98;
const GOAL_HOLD_BYTES: f64 = 96.0;
const GOAL_ENDED_BYTES: f64 = 40.0;

pub(crate) fn all(bench: &Bench) -> Made<Found> {
    let share = Share::begin(None);
    let mut rows = Vec::new();
    rows.extend(against(bench)?);
    rows.extend(engine::all(bench.lengths)?);
    rows.push(holds::longest_call(bench.lengths)?);
    rows.push(holds::longest_call_of_keys(bench.lengths)?);
    rows.extend(bytes()?);
    let others = share.of_others();
    rows.extend(outside::all(bench)?);
    rows.push(Row::new("the machine, while this process measured itself").measured(
        "others took",
        others,
        "%",
    ));
    Ok(Found { speeds: Vec::new(), rows })
}

/// Prints how long a take lasts while nothing is reserved, in nanoseconds.
pub(crate) fn print_take(bench: &Bench) -> Made<()> {
    println!("{}", engine::take_ns(bench.lengths)?);
    Ok(())
}

/// Compares a take with that of an earlier program, by processes of both in turns.
fn against(bench: &Bench) -> Made<Option<Row>> {
    let Some(before) = &bench.against else { return Ok(None) };
    let now = std::env::current_exe()?;
    let take_ns = |program: &Path| -> Made<f64> {
        let mut command = Command::new(program);
        let output = command.args(bench.is_quick().then_some("--quick")).arg("take").output()?;
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    };
    let (mut ratios, mut times) = (Vec::new(), Vec::new());
    for _ in 0..bench.lengths.rounds * 3 {
        let (before_ns, now_ns) = (take_ns(before)?, take_ns(&now)?);
        ratios.push(before_ns / now_ns);
        times.push(now_ns);
    }
    let ratio = median(ratios);
    let row = Row::new("engine, take, nothing reserved : by the program before")
        .measured("a take", median(times), "ns")
        .measured("ratio", ratio, "ratio")
        .at_least(GOAL_BEFORE, ratio, "ratio");
    Ok(Some(row))
}

/// Measures memory in a program of its own, whose allocator counts.
fn bytes() -> Made<Vec<Row>> {
    let program = std::env::current_exe()?.with_file_name("rategate-bench-bytes");
    let output = Command::new(&program).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let bytes: Value = serde_json::from_slice(&output.stdout)?;
    let of = |name: &str| bytes[name].as_f64().unwrap_or(f64::NAN);
    let row = |path: &str, name: &str, goal: Option<f64>| {
        let row = Row::new(path).measured("each", of(name), "bytes");
        match goal {
            Some(goal) => row.at_most(goal, of(name), "bytes"),
            None => row,
        }
    };
    let hold = Some(GOAL_HOLD_BYTES);
    Ok(vec![
        row("a hold in a bucket", "bucket", hold),
        row("a hold in a window", "window", hold),
        row("an open reservation, all of one key", "one_key", hold),
        row("an open reservation, each of its own key", "own_keys", None),
        row("an id of a reservation that has been committed", "ended", Some(GOAL_ENDED_BYTES)),
    ])
}
