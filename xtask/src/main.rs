//! The tasks of this repository. `cargo xtask check` passes when a change is done.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::case_sensitive_file_extension_comparisons,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it is a command-line tool, its panic stops the build, our file names are lower case"
)]

mod bench;
mod check;
mod fleet;
mod loom;
mod packaging;
mod pictures;
mod servers;
mod source;
mod stress;
mod tidy;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
usage: cargo xtask <command>

  check     format, lints, tests, models, docs, tidy, trace and pictures; a change must pass it
  tidy      the rules about imports, clocks, waits and forbidden names
  trace     which test covers which requirement line
  pictures  draws the pictures of the guides, and the tables of docs/distributed.md
  fleet     ten thousand simulated nodes keep one limit through faults; in release, about a minute
  servers   installs the programs that tests start besides our own, where they are missing
  lint-packaging
            checks the files that start the service, such as units and manifests
  loom      the lock-free states and the waiters under every schedule of a few threads
            [--full: of more]
  stress    the limiters under eight real threads [--minutes M: the duration, 10 by default]
  bench     times our engines and others', and writes docs/performance.md [--quick: in half a
            minute instead of one and a half]
  bench redis
            times limits over many processes and a failing store, to the same page [--quick: in
            one minute instead of two]
  bench serve
            times the service and other servers on one core, to the same page; the others are
            built once [--quick: in two minutes instead of ten] [parts: resp, grpc, http,
            leased, memory, reload]
  abuse     attacks a service in release with mutated conversations, slow and idle callers and
            floods, while others are served [SECONDS: the duration, 60 by default]";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["check"] => check::run(&workspace_root()?, &target_folder()?),
        ["tidy"] => tidy::run(&workspace_root()?),
        ["trace"] => trace::run(&workspace_root()?),
        ["loom"] => loom::run(&workspace_root()?, false),
        ["loom", "--full"] => loom::run(&workspace_root()?, true),
        ["stress"] => stress::run(&workspace_root()?, "10"),
        ["stress", "--minutes", minutes] => stress::run(&workspace_root()?, minutes),
        ["pictures"] => pictures::draw(&workspace_root()?),
        ["fleet"] => fleet::run(&workspace_root()?),
        ["servers"] => servers::run(&target_folder()?),
        ["lint-packaging"] => packaging::run(&workspace_root()?, &target_folder()?),
        ["bench"] => bench::run(&workspace_root()?, &target_folder()?, false),
        ["bench", "--quick"] => bench::run(&workspace_root()?, &target_folder()?, true),
        ["bench", "redis"] => bench::store::run(&workspace_root()?, &target_folder()?, false),
        ["bench", "redis", "--quick"] => {
            bench::store::run(&workspace_root()?, &target_folder()?, true)
        }
        ["bench", "serve", rest @ ..] => {
            bench::serve::run(&workspace_root()?, &target_folder()?, rest)
        }
        ["abuse"] => bench::serve::abuse(&workspace_root()?, &target_folder()?, "60"),
        ["abuse", seconds] => bench::serve::abuse(&workspace_root()?, &target_folder()?, seconds),
        ["help" | "-h" | "--help"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => bail!("no such command: {arguments:?}\n{USAGE}"),
    }
}

/// Returns the root as cargo sees it, so that the tasks run from any folder of the workspace.
fn workspace_root() -> Result<PathBuf> {
    Ok(metadata()?.workspace_root.into_std_path_buf())
}

/// Returns cargo's target folder.
fn target_folder() -> Result<PathBuf> {
    Ok(metadata()?.target_directory.into_std_path_buf())
}

fn metadata() -> Result<cargo_metadata::Metadata> {
    cargo_metadata::MetadataCommand::new().no_deps().exec().context("cargo metadata")
}
