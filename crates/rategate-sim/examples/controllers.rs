//! Controllers of several projects in ten worlds: the table and the pictures of
//! `docs/adaptive.md`.
//!
//! ```text
//! cargo run --release --package rategate-sim --example controllers -- table
//! cargo run --release --package rategate-sim --example controllers -- table start mm1
//! cargo run --release --package rategate-sim --example controllers -- picture server-overload
//! ```

#![allow(clippy::print_stdout, reason = "a program that prints")]

use std::error::Error;
use std::fs;
use std::path::Path;

use rategate_core::adaptive::Bounds;
use rategate_sim::server::{ControllerKind, Measured, Numbers, ServerFile, comparison};

/// Each number of the table is the median of these seeds.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;

const WORLDS: [&str; 10] =
    ["overload", "mm1", "start", "step", "pauses", "leak", "floor", "share", "reject", "bimodal"];

const CONTROLLERS: [(&str, ControllerKind); 8] = [
    ("AIMD", ControllerKind::Aimd),
    ("Vegas", ControllerKind::Vegas),
    ("Gradient2", ControllerKind::Gradient),
    ("Gradient2, windowed", ControllerKind::GradientWindowed),
    ("Envoy", ControllerKind::Envoy),
    ("failsafe-go", ControllerKind::Failsafe),
    ("Vector", ControllerKind::Vector),
    ("Knee", ControllerKind::Knee),
];

/// The controllers of the pictures.
const DRAWN: [(&str, ControllerKind); 3] = [
    ("Knee", ControllerKind::Knee),
    ("Vegas", ControllerKind::Vegas),
    ("Gradient2", ControllerKind::Gradient),
];

const USAGE: &str = "usage: controllers table [WORLD]... | controllers picture server-WORLD";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["table"] => table(&WORLDS),
        ["table", worlds @ ..] => table(worlds),
        ["picture", name] => picture(name.strip_prefix("server-").unwrap_or(name)),
        _ => Err(USAGE.into()),
    }
}

/// Prints a row for each world.
fn table(worlds: &[&str]) -> Result<(), Box<dyn Error>> {
    println!("| world | {} |", CONTROLLERS.map(|(name, _)| name).join(" | "));
    println!("|---|{}", "---|".repeat(CONTROLLERS.len()));
    for world in worlds {
        let file = read(world)?;
        let cells = CONTROLLERS.map(|(_, controller)| cell(world, &file, controller));
        println!("| `{world}` | {} |", cells.join(" | "));
    }
    Ok(())
}

/// Draws the first seed of a world.
fn picture(world: &str) -> Result<(), Box<dyn Error>> {
    let file = read(world)?;
    let reports = DRAWN.map(|(name, controller)| (name, with(&file, controller).report()));
    print!("{}", comparison(&reports));
    Ok(())
}

/// Returns the goodput and the 99th percentile of the latency, and what else the world is about.
fn cell(world: &str, file: &ServerFile, controller: ControllerKind) -> String {
    let mut file = with(file, controller);
    let runs: Vec<Vec<Numbers>> = SEEDS
        .map(|seed| {
            file.setup.seed = seed;
            file.run().measured.iter().map(Measured::numbers).collect()
        })
        .collect();
    let median = |measure: usize, of: fn(&Numbers) -> u64| {
        let mut all: Vec<u64> = runs.iter().filter_map(|run| run.get(measure)).map(of).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or_default()
    };
    let percent = |per_mille: u64| per_mille.saturating_add(5) / 10;
    let goodput = percent(median(0, |numbers| numbers.goodput_per_mille));
    let p99_ms = median(0, |numbers| numbers.p99_ns).saturating_add(500_000) / 1_000_000;
    match world {
        "share" => {
            let jain = median(1, |numbers| numbers.jain_per_mille).saturating_add(5) / 10;
            format!("{goodput}/{p99_ms} ({}.{:02})", jain / 100, jain % 100)
        }
        "reject" => {
            let refused = percent(median(0, |numbers| numbers.refused_per_mille));
            format!("{goodput}/{p99_ms} ({refused})")
        }
        _ => format!("{goodput}/{p99_ms}"),
    }
}

/// Returns the file with another controller and its bounds.
fn with(file: &ServerFile, controller: ControllerKind) -> ServerFile {
    let bounds = match controller {
        ControllerKind::Envoy => Bounds::new(3, 3, 1_000),
        ControllerKind::Vector => Bounds::new(1, 1, 200),
        _ => Bounds::new(1, 20, 1_000),
    };
    ServerFile { controller, bounds, ..file.clone() }
}

fn read(world: &str) -> Result<ServerFile, Box<dyn Error>> {
    if !WORLDS.contains(&world) {
        return Err(format!("no world {world}; there are {}", WORLDS.join(", ")).into());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/servers");
    let text = fs::read_to_string(folder.join(format!("{world}.toml")))?;
    Ok(ServerFile::parse(&text)?)
}
