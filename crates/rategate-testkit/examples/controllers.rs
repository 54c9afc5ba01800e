//! The controllers in ten worlds: the tables of `docs/adaptive.md`.
//!
//! ```text
//! cargo run --release --package rategate-testkit --example controllers -- tables
//! cargo run --release --package rategate-testkit --example controllers -- table start mm1
//! ```

#![allow(clippy::print_stdout, reason = "a program that prints")]

use std::error::Error;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use rategate_core::rate::Rate;
use rategate_testkit::server::{Client, ControllerKind, Measure, Measured, Numbers, ServerFile};

/// Each number of the tables is the median of these seeds.
const SEEDS: RangeInclusive<u64> = 1..=5;

const WORLDS: [&str; 10] =
    ["overload", "mm1", "start", "step", "pauses", "leak", "floor", "share", "reject", "bimodal"];

const CONTROLLERS: [(&str, ControllerKind); 2] =
    [("AIMD", ControllerKind::Aimd), ("Knee", ControllerKind::Knee)];

/// Changes of the worlds: the world, its name in the table, its instant, and thrice the mean
/// latency without a queue from then on, both in milliseconds.
const CHANGES: [(&str, &str, u64, u64); 4] = [
    ("start", "`start`: the first call", 0, 300),
    ("step", "`step`: half of the workers leave", 20_000, 60),
    ("step", "`step`: they are back", 40_000, 60),
    ("floor", "`floor`: the network becomes slow", 30_000, 210),
];

/// The time in which the end of a change is looked for, and its steps, in milliseconds.
const AFTER_MS: u64 = 10_000;
const STEP_MS: u64 = 100;

/// The numbers of callers that share a server, and the calls of all together in a second.
const CALLERS: [u64; 3] = [2, 4, 16];
const CALLS_PER_S: u64 = 1_800;

const MS: u64 = 1_000_000;

const USAGE: &str = "usage: controllers tables | controllers table WORLD...";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["tables"] => tables(),
        ["table", worlds @ ..] if !worlds.is_empty() => table(worlds),
        _ => Err(USAGE.into()),
    }
}

/// Prints all tables of the page.
fn tables() -> Result<(), Box<dyn Error>> {
    println!("### Goodput and latency\n");
    table(&WORLDS)?;
    println!("\n### After a change\n");
    header("change");
    for (world, name, at_ms, latency_ms) in CHANGES {
        let file = read(world)?;
        let cells =
            CONTROLLERS.map(|(_, controller)| back(&with(&file, controller), at_ms, latency_ms));
        println!("| {name} | {} |", cells.join(" | "));
    }
    println!("\n### Many callers\n");
    header("callers");
    for callers in CALLERS {
        let cells = CONTROLLERS.map(|(_, controller)| shared(callers, controller));
        let cells = cells.into_iter().collect::<Result<Vec<_>, _>>()?;
        println!("| {callers} | {} |", cells.join(" | "));
    }
    Ok(())
}

fn header(first: &str) {
    println!("| {first} | {} |", CONTROLLERS.map(|(name, _)| name).join(" | "));
    println!("|---|{}", "---|".repeat(CONTROLLERS.len()));
}

/// Prints a row for each world.
fn table(worlds: &[&str]) -> Result<(), Box<dyn Error>> {
    header("world");
    for world in worlds {
        let file = read(world)?;
        let cells = CONTROLLERS.map(|(_, controller)| cell(world, &file, controller));
        println!("| `{world}` | {} |", cells.join(" | "));
    }
    Ok(())
}

/// Returns the time from a change to the begin of the first second with a goodput of 90 % and no
/// more than such a latency, of 99 of 100 calls.
fn back(file: &ServerFile, at_ms: u64, latency_ms: u64) -> String {
    let mut file = file.clone();
    let after_ms = (0..AFTER_MS / STEP_MS).map(|step| step.saturating_mul(STEP_MS));
    file.setup.measures = after_ms
        .map(|after_ms| {
            let from_ns = at_ms.saturating_add(after_ms).saturating_mul(MS);
            Measure::of_all(from_ns, from_ns.saturating_add(1_000 * MS))
        })
        .collect();
    let mut all: Vec<Option<u64>> = SEEDS
        .map(|seed| {
            file.setup.seed = seed;
            let numbers = file.run().measured.iter().map(Measured::numbers).collect::<Vec<_>>();
            let is_back = |numbers: &Numbers| {
                numbers.goodput_per_mille >= 900 && numbers.p99_ns <= latency_ms.saturating_mul(MS)
            };
            numbers.iter().position(is_back).and_then(|steps| u64::try_from(steps).ok())
        })
        .collect();
    // A run that is never back counts as later than all others.
    all.sort_unstable_by_key(|steps| steps.unwrap_or(u64::MAX));
    match all.get(all.len() / 2).copied().flatten() {
        Some(steps) => format!("{}.{}", steps / 10, steps % 10),
        None => format!("over {}", AFTER_MS / 1_000),
    }
}

/// Returns the cell of so many callers at the server of `share`, from their thirtieth second on.
fn shared(callers: u64, controller: ControllerKind) -> Result<String, Box<dyn Error>> {
    let mut file = read("share")?;
    let rate = Rate::new(CALLS_PER_S, std::time::Duration::from_secs(callers))?;
    file.setup.clients = (0..callers).map(|_| Client::constant(rate)).collect();
    let measure = Measure::of_all(30_000 * MS, 60_000 * MS);
    file.setup.measures = vec![measure, measure];
    Ok(cell("share", &file, controller))
}

/// Returns the goodput and the 99th percentile of the latency, and what else the world is about.
fn cell(world: &str, file: &ServerFile, controller: ControllerKind) -> String {
    let mut file = with(file, controller);
    let runs: Vec<Vec<(Numbers, u64)>> = SEEDS
        .map(|seed| {
            file.setup.seed = seed;
            let seen = |measured: &Measured| (measured.numbers(), lost_per_mille(measured));
            file.run().measured.iter().map(seen).collect()
        })
        .collect();
    let median = |measure: usize, of: fn(&(Numbers, u64)) -> u64| {
        let mut all: Vec<u64> = runs.iter().filter_map(|run| run.get(measure)).map(of).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or_default()
    };
    let percent = |per_mille: u64| per_mille.saturating_add(5) / 10;
    let goodput = percent(median(0, |(numbers, _)| numbers.goodput_per_mille));
    let p99_ms = median(0, |(numbers, _)| numbers.p99_ns).saturating_add(500_000) / 1_000_000;
    let lost = percent(median(0, |(_, lost)| *lost));
    match world {
        "share" => {
            let jain = median(1, |(numbers, _)| numbers.jain_per_mille).saturating_add(5) / 10;
            format!("{goodput}/{p99_ms} ({}.{:02}, {lost})", jain / 100, jain % 100)
        }
        "reject" => {
            let refused = percent(median(0, |(numbers, _)| numbers.refused_per_mille));
            format!("{goodput}/{p99_ms} ({refused})")
        }
        _ => format!("{goodput}/{p99_ms}"),
    }
}

/// Returns the calls that the server refused, or did not serve in time, in thousandths of those
/// that were sent.
fn lost_per_mille(measured: &Measured) -> u64 {
    let lost = measured.refused.saturating_add(measured.late);
    lost.saturating_mul(1_000).checked_div(measured.sent).unwrap_or(0)
}

fn with(file: &ServerFile, controller: ControllerKind) -> ServerFile {
    ServerFile { controller, ..file.clone() }
}

fn read(world: &str) -> Result<ServerFile, Box<dyn Error>> {
    if !WORLDS.contains(&world) {
        return Err(format!("no world {world}; there are {}", WORLDS.join(", ")).into());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/servers");
    let text = fs::read_to_string(folder.join(format!("{world}.toml")))?;
    Ok(ServerFile::parse(&text)?)
}
