//! The service, and the commands that ask one.

mod client;
mod config;
mod ratelimit;
mod serve;
mod top;

use clap::Subcommand;

use crate::failure::Failure;
pub(crate) use ratelimit::{is_started, run as run_as_ratelimit};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(serve::ServeArgs),
    Check(client::CheckArgs),
    Why(client::WhyArgs),
    Reset(client::ResetArgs),
    Charge(client::ChargeArgs),
    Reserve(client::ReserveArgs),
    Commit(client::CommitArgs),
    Cancel(client::CancelArgs),
    Ping(client::PingArgs),
    Top(top::TopArgs),
    Config(config::ConfigArgs),
}

/// Runs a command, and returns its exit code.
pub(crate) fn run(command: &Command) -> Result<u8, Failure> {
    match command {
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
    }
}
