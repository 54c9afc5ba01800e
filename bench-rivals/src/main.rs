//! Our engines against other limiters, and against the machine's own floor: one run, one JSON
//! object on stdout. `cargo xtask bench` makes a table of it.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it is a command-line tool, and its panic only stops a measurement"
)]

mod cpu;
mod floors;
mod keyed;
mod pacing;
mod paths;
mod report;
mod rivals;
mod truth;
mod waiting;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use rategate_bench::engines::{self, Made};
use rategate_bench::harness::Plan;
use rategate_bench::{program, starts};
use serde_json::{Value, json};

const FULL: Plan = Plan { rounds: 31, lap: Duration::from_millis(6), cpu_used: Some(cpu::used) };
const QUICK: Plan = Plan { rounds: 11, lap: Duration::from_millis(3), cpu_used: Some(cpu::used) };

fn main() -> ExitCode {
    let quick = match env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--quick" => true,
        [flag, rest @ ..] if flag == "--truth" && (rest.is_empty() || *rest == ["--quick"]) => {
            let lap = Duration::from_millis(if rest.is_empty() { 2_000 } else { 200 });
            return match truth::all(lap) {
                Ok(rows) => {
                    print!("{}", starts::as_text(&rows));
                    ExitCode::SUCCESS
                }
                Err(error) => failed(&*error),
            };
        }
        [flag] if flag == "--in-flight" => {
            engines::settle_clock();
            println!("{:#}", Value::from(paths::in_flight(FULL)));
            return ExitCode::SUCCESS;
        }
        [flag] if flag == "--waiting" => {
            return match waiting::all(Duration::from_secs(3)) {
                Ok(rows) => {
                    println!("{:#}", Value::from(rows));
                    ExitCode::SUCCESS
                }
                Err(error) => failed(&*error),
            };
        }
        [flag, rest @ ..] if flag == "--keyed" && (rest.is_empty() || *rest == ["--quick"]) => {
            return match keyed::all(!rest.is_empty()) {
                Ok(rows) => {
                    println!("{:#}", json!({ "keyed": rows }));
                    ExitCode::SUCCESS
                }
                Err(error) => failed(&*error),
            };
        }
        [flag, table, keys] if flag == keyed::BYTES => {
            return match keyed::measured_bytes(table, keys) {
                Ok(bytes) => {
                    println!("{bytes}");
                    ExitCode::SUCCESS
                }
                Err(error) => failed(&*error),
            };
        }
        [flag] if [waiting::QUEUED, waiting::FOR_NOTHING].contains(&flag.as_str()) => {
            return match waiting::bytes_of_a_task(flag) {
                Ok(bytes) => {
                    println!("{bytes}");
                    ExitCode::SUCCESS
                }
                Err(error) => failed(&*error),
            };
        }
        _ => {
            eprintln!(
                "usage: rategate-bench-rivals [--quick | --in-flight | --waiting \
                 | --keyed [--quick] | --truth [--quick]]"
            );
            return ExitCode::from(2);
        }
    };
    match measure(quick) {
        Ok(report) => {
            println!("{report:#}");
            ExitCode::SUCCESS
        }
        Err(error) => failed(&*error),
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

fn measure(quick: bool) -> Made<Value> {
    let (plan, paced_for) = if quick { (QUICK, 1) } else { (FULL, 3) };
    engines::settle_clock();
    let mut rows = paths::machine(plan);
    rows.extend(paths::tries(plan)?);
    rows.extend(paths::logs(plan)?);
    rows.extend(paths::several(plan)?);
    rows.extend(paths::in_flight(plan));
    rows.extend(paths::reconfiguring(plan)?);
    rows.extend(pacing::all(Duration::from_secs(paced_for))?);
    rows.extend(waiting::all(Duration::from_secs(paced_for))?);
    Ok(json!({
        "machine": program::machine(),
        "quick": quick,
        "rounds": plan.rounds,
        "rows": rows,
        "keyed": keyed::all(quick)?,
    }))
}
