//! The `rategate` command: paces real input, simulates limits, replays access logs, benchmarks
//! limiters, runs the service and queries it.

mod analyze;
mod args;
mod bench;
mod client;
mod config;
mod failure;
mod manual;
mod output;
mod pace;
mod ratelimit;
mod serve;
mod simulate;
mod top;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command};

fn main() -> ExitCode {
    if ratelimit::is_started(std::env::args_os()) {
        return ExitCode::from(ratelimit::run().unwrap_or_else(|failure| failure.report()));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    let status = match &cli.command {
        Command::Pace(args) => pace::run(args),
        Command::Simulate(args) => simulate::run(args),
        Command::Analyze(args) => analyze::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Check(args) => client::check(args),
        Command::Why(args) => client::why(args),
        Command::Reset(args) => client::reset(args),
        Command::Charge(args) => client::charge(args),
        Command::Reserve(args) => client::reserve(args),
        Command::Commit(args) => client::commit(args),
        Command::Cancel(args) => client::cancel(args),
        Command::Ping(args) => client::ping(args),
        Command::Top(args) => top::run(args),
        Command::Config(args) => config::run(args),
        Command::Completions { shell } => manual::completions(*shell),
        Command::Man { dir } => manual::pages(dir.as_deref()),
    };
    ExitCode::from(status.unwrap_or_else(|failure| failure.report()))
}

/// Prints clap's message: help, the version, or errors in the arguments.
fn refused(error: &clap::Error) -> ExitCode {
    if let Some(failure) = args::negative_rate(error) {
        return ExitCode::from(failure.report());
    }
    // If this cannot be written, no way to report is left.
    let _ = error.print();
    let _ = io::stdout().flush();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}
