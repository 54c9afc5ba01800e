//! The chores of this repository: `cargo xtask check` is the one command that means done.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::case_sensitive_file_extension_comparisons,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it prints for a living, its panic stops the build, our file names are lower case"
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

  check     format, lints, tests, models, docs, tidy, trace and pictures: done means this passes
  tidy      the rules about who may import, read a clock, wait or name what
  trace     which test covers which requirement line
  pictures  draws the pictures of the guides, and the tables of docs/distributed.md
  fleet     ten thousand nodes keep one limit, whatever goes wrong; in release, a minute or so
  servers   installs what tests start beside our own programs, where it is missing
  lint-packaging
            the files by which others start the service
  loom      the twins, and those who wait, under every schedule of a few threads [--full: of more]
  stress    the limiters under eight real threads [--minutes M: for so long, 10 by default]
  bench     times our engines beside others', and writes docs/performance.md [--quick: in half a
            minute in place of one and a half]
  bench redis
            limits over many processes and a store that breaks, to the same page [--quick: in a
            minute in place of two]
  bench serve
            the service on one core beside other servers, to the same page; the others are built
            once [--quick: in two minutes in place of ten] [parts: resp, grpc, http, leased,
            memory, reload]
  abuse     a service in release under mutated conversations, slow and idle callers and floods,
            while others are served [SECONDS: for so long, 60 by default]";

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

/// Asks cargo, so that the chores work from any folder of the workspace.
fn workspace_root() -> Result<PathBuf> {
    Ok(metadata()?.workspace_root.into_std_path_buf())
}

/// Where cargo puts what it builds.
fn target_folder() -> Result<PathBuf> {
    Ok(metadata()?.target_directory.into_std_path_buf())
}

fn metadata() -> Result<cargo_metadata::Metadata> {
    cargo_metadata::MetadataCommand::new().no_deps().exec().context("cargo metadata")
}
