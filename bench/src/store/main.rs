//! One limit over many machines, measured with real servers on the loopback and processes of this
//! program as nodes. One JSON object comes out on stdout, and `cargo xtask bench redis` makes a
//! table of it.
//!
//! Nothing outlives it: servers die with the thread that started them, nodes when their stdin
//! closes.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it is a command-line tool, and its panic only stops a measurement"
)]

mod analyze;
mod exact;
mod faults;
mod job;
mod leased;
mod node;
mod nodes;
mod oracle;
mod partition;
mod plain_client;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use rategate_bench::engines::Made;
use rategate_bench::program::{self, end_after, end_with_parent};
use rategate_bench::report::Row;
use serde_json::{Value, json};

/// The prefix of keys in the stores.
const PREFIX: &str = "bench";
/// The time after which the whole run is taken to hang.
const NEVER_LONGER: Duration = Duration::from_secs(600);

/// The lengths of the measurements.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    /// The length of a row's measurement.
    lasts: Duration,
    /// The size of the log that is analyzed, in MB.
    log_mb: u64,
    decisions_of_rivals: u64,
}

const FULL: Lengths =
    Lengths { lasts: Duration::from_secs(5), log_mb: 1_000, decisions_of_rivals: 500_000 };
const QUICK: Lengths =
    Lengths { lasts: Duration::from_millis(1_500), log_mb: 100, decisions_of_rivals: 100_000 };

/// A part that can be measured by itself.
type Section = fn(Lengths) -> Made<Vec<Row>>;
const SECTIONS: [(&str, Section); 5] = [
    ("exact", exact::all),
    ("beside", plain_client::all),
    ("leased", leased::all),
    ("faults", faults::all),
    ("analyze", analyze::all),
];

const USAGE: &str = "\
usage: rategate-bench-store [--with-parent] [--quick] [PART]...

PART is one of exact, beside, leased, faults, analyze; all of them if none is named.
With --with-parent the process ends when its stdin is closed.";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let done = match arguments.as_slice() {
        [flag, job] if flag == nodes::NODE => node::run(job),
        _ => measure(&arguments),
    };
    program::exit_code(&done)
}

fn measure(arguments: &[String]) -> Made<()> {
    let (mut quick, mut sections) = (false, Vec::new());
    for argument in arguments {
        let section = SECTIONS.into_iter().find(|(name, _)| name == argument);
        match (argument.as_str(), section) {
            ("--quick", _) => quick = true,
            ("--with-parent", _) => end_with_parent(),
            (_, Some(section)) => sections.push(section),
            (_, None) => return Err(USAGE.into()),
        }
    }
    if sections.is_empty() {
        sections = SECTIONS.to_vec();
    }
    end_after(NEVER_LONGER);
    let lengths = if quick { QUICK } else { FULL };
    let mut rows: Vec<Value> = Vec::new();
    for (_, measure) in sections {
        rows.extend(measure(lengths)?.into_iter().map(Row::json));
    }
    println!("{:#}", json!({ "machine": program::machine(), "quick": quick, "rows": rows }));
    Ok(())
}
