//! The cost of each way to keep a limit on many machines: the tables and pictures of
//! `docs/distributed.md`, a crowd of ten thousand nodes, and a million fleets with
//! reservations.
//!
//! ```text
//! cargo run --package rategate-testkit --example fleet -- tables
//! cargo run --package rategate-testkit --example fleet -- picture fleet-units
//! cargo run --release --package rategate-testkit --example fleet -- crowd 10000
//! cargo run --release --package rategate-testkit --example fleet -- reservations 1000000
//! ```

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    reason = "sums of a few known numbers, charts, and a program that prints"
)]

mod chart;
mod crowd;
mod pictures;
mod reservations;
mod tables;

use std::process::ExitCode;

use rategate_testkit::fleet::{Limit, Mode, Network, Plan, Shape, Traffic};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// The limit of all tables: a thousand in any second.
const LIMIT: Limit = Limit::Log { permits: 1_000, period_ns: SECOND };
/// The time by which all nodes have joined and have their shares.
const WARM_NS: u64 = 3 * SECOND;
const USAGE: &str =
    "usage: fleet tables | fleet picture NAME | fleet crowd [NODES] | fleet reservations [RUNS]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_healthy = match arguments.as_slice() {
        ["tables"] => {
            print!("{}", tables::all());
            true
        }
        ["picture", name] => pictures::draw(name).inspect(|svg| print!("{svg}")).is_some(),
        ["crowd"] => crowd::play(10_000),
        ["crowd", nodes] => nodes.parse().is_ok_and(crowd::play),
        ["reservations"] => reservations::play(1_000_000),
        ["reservations", runs] => runs.parse().is_ok_and(reservations::play),
        _ => {
            println!("{USAGE}");
            false
        }
    };
    if is_healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the fleet of the tables: twenty nodes, about a millisecond from their store and back.
/// One message in a thousand is lost, and clocks are wrong by up to 200 parts per million. Twice
/// as many calls come as pass.
fn fleet(mode: Mode) -> Plan {
    Plan {
        drift_ppm: 200,
        network: Network { min_ns: 300_000, extra_ns: 200_000, lost_ppm: 1_000 },
        traffic: calls(2_000, Shape::Even),
        lasting_ns: WARM_NS + 10 * SECOND,
        ..Plan::new(20, LIMIT, mode)
    }
}

fn calls(calls_per_s: u64, shape: Shape) -> Traffic {
    Traffic { calls_per_s, from_ns: WARM_NS, heaviest: 1, shape }
}

const fn leased(length_ms: u64, max_units: u64, guard: bool) -> Mode {
    Mode::Leased { length_ns: length_ms * MS, max_units, guard }
}
