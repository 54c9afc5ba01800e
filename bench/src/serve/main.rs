//! The service, measured: it runs on one core and the load on another, in turns with other
//! servers. One JSON object comes out on stdout, and `cargo xtask bench serve` makes tables of
//! it.
//!
//! Nothing outlives it: servers die with the thread that started them.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it is a command-line tool, and its panic only stops a measurement"
)]

mod abuse;
mod contend;
mod cores;
mod grpc;
mod http;
mod leased;
mod load;
mod memory;
mod ours;
mod reload;
mod resp;
mod rivals;
mod service;
mod tokens;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rategate_bench::engines::Made;
use rategate_bench::program::{self, end_after, end_with_parent};
use rategate_bench::report::Row;
use serde_json::{Value, json};

use crate::cores::Cores;

/// The time after which the whole run is taken to hang.
const NEVER_LONGER: Duration = Duration::from_secs(1_800);

/// The extent of the measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    pub(crate) rounds: u32,
    /// The time of each contender in a round.
    pub(crate) lasts: Duration,
    /// The size of the largest table that is filled.
    pub(crate) max_keys: u64,
}

const FULL: Lengths = Lengths { rounds: 7, lasts: Duration::from_secs(2), max_keys: 10_000_000 };
const QUICK: Lengths =
    Lengths { rounds: 3, lasts: Duration::from_millis(700), max_keys: 1_000_000 };

/// The context that all parts need.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) lengths: Lengths,
    pub(crate) cores: Cores,
    /// Our program; `None` if only the others are measured.
    pub(crate) ours: Option<PathBuf>,
    /// The folder of the others' programs.
    pub(crate) rivals: Option<PathBuf>,
    /// An earlier build of this program.
    pub(crate) against: Option<PathBuf>,
}

impl Bench {
    pub(crate) const fn is_quick(&self) -> bool {
        self.lengths.rounds == QUICK.rounds
    }
}

/// The results of a part.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) speeds: Vec<Row>,
    pub(crate) rows: Vec<Row>,
}

type Section = fn(&Bench) -> Made<Found>;
const SECTIONS: [(&str, Section); 6] = [
    ("resp", resp::all),
    ("grpc", grpc::all),
    ("http", http::all),
    ("leased", leased::all),
    ("memory", memory::all),
    ("reload", reload::all),
];

/// The part with a block of its own on the page, which is measured if it is named.
const TOKENS: (&str, Section) = ("tokens", tokens::all);

const USAGE: &str = "\
usage: rategate-bench-serve [--with-parent] [--quick] [--ours PROGRAM] [--rivals FOLDER] [PART]...
       rategate-bench-serve [--with-parent] [--quick] [--ours PROGRAM] [--against PROGRAM] tokens
       rategate-bench-serve [--quick] take
       rategate-bench-serve [--with-parent] --ours PROGRAM abuse [SECONDS [SEED]]

PART is one of resp, grpc, http, leased, memory, reload; all of them if none is named.
The part `tokens` compares a take with that of an earlier build of this program, if that is given;
`take` prints its time.
With --with-parent the process ends when its stdin is closed.";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    program::exit_code(&measure(&arguments))
}

fn measure(arguments: &[String]) -> Made<()> {
    let mut bench =
        Bench { lengths: FULL, cores: Cores::ours()?, ours: None, rivals: None, against: None };
    let mut sections = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "abuse" {
            return harm(&bench, arguments.as_slice());
        }
        if argument == "take" {
            cores::pin_to(bench.cores.load)?;
            return tokens::print_take(&bench);
        }
        let section = SECTIONS.into_iter().chain([TOKENS]).find(|(name, _)| name == argument);
        match (argument.as_str(), section) {
            ("--quick", _) => bench.lengths = QUICK,
            ("--with-parent", _) => end_with_parent(),
            ("--ours", _) => bench.ours = arguments.next().map(PathBuf::from),
            ("--rivals", _) => bench.rivals = arguments.next().map(PathBuf::from),
            ("--against", _) => bench.against = arguments.next().map(PathBuf::from),
            (_, Some(section)) => sections.push(section),
            (_, None) => return Err(USAGE.into()),
        }
    }
    if sections.is_empty() {
        sections = SECTIONS.to_vec();
    }
    end_after(NEVER_LONGER);
    cores::pin_to(bench.cores.load)?;
    let mut found = Found::default();
    for (name, measure) in sections {
        let more = measure(&bench).map_err(|error| format!("{name}: {error}"))?;
        found.speeds.extend(more.speeds);
        found.rows.extend(more.rows);
    }
    let speeds: Vec<Value> = found.speeds.into_iter().map(Row::json).collect();
    let rows: Vec<Value> = found.rows.into_iter().map(Row::json).collect();
    let results = json!({
        "machine": program::machine(), "quick": bench.is_quick(), "rounds": bench.lengths.rounds,
        "round_s": bench.lengths.lasts.as_secs_f64(), "speeds": speeds, "rows": rows,
    });
    println!("{results:#}");
    Ok(())
}

/// Attacks our service for some seconds, with a random or given seed.
fn harm(bench: &Bench, arguments: &[String]) -> Made<()> {
    let (seconds, seed) = match arguments {
        [] => (60, None),
        [seconds] => (seconds.parse()?, None),
        [seconds, seed] => (seconds.parse()?, Some(seed.parse()?)),
        _ => return Err(USAGE.into()),
    };
    cores::pin_to(bench.cores.load)?;
    let seed = seed.unwrap_or_else(rategate_bench::clock::now_ns);
    abuse::run(bench, Duration::from_secs(seconds), seed)
}
