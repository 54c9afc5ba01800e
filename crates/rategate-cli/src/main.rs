//! The `rategate` command: paces real input, simulates limits, replays access logs, benchmarks
//! limiters, runs the service and queries it.

mod analyze;
mod args;
mod bench;
mod failure;
mod manual;
mod output;
mod pace;
#[cfg(feature = "serve")]
mod service;
mod simulate;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command};

fn main() -> ExitCode {
    #[cfg(feature = "serve")]
    if service::is_started(std::env::args_os()) {
        return ExitCode::from(
            service::run_as_ratelimit().unwrap_or_else(|failure| failure.report()),
        );
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
        #[cfg(feature = "serve")]
        Command::Service(command) => service::run(command),
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
