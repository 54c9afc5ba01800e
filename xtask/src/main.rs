//! The tasks of this repository. `cargo xtask check` passes when a change is done.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it is a command-line tool, and its panic stops the build"
)]

mod bench;
mod book;
mod check;
mod conformance;
mod fuzz;
mod loom;
#[cfg(feature = "messages")]
mod messages;
mod node;
mod pack;
mod packaging;
mod pictures;
mod python;
mod servers;
mod tidy;
mod tools;
mod trace;
mod valgrind;

use anyhow::{Context, Result};
use clap::Parser;

use tools::Workspace;

/// The tasks of this repository
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
enum Task {
    /// Formatting, lints, tests, models and documents: a change must pass it
    Check {
        /// Adds what takes long: variants of features, examples, licences, links, all of the packages' tests
        #[arg(long)]
        all: bool,
    },
    /// The tests that need no server and no real time: the loop while writing
    Test {
        /// The long forms of the tests that have one, in release: some hours
        #[arg(long)]
        long: bool,
    },
    /// Who may import whom, between crates and between the modules of each crate
    Tidy,
    /// Which test covers which requirement line
    Trace,
    /// Draws the pictures of the guides, and the tables that the simulator makes
    Pictures,
    /// Plays the scenario files on every engine, and writes which plays which to docs/conformance.md
    Conformance,
    /// Builds the book of docs/ into target/book, once every link leads somewhere
    Book,
    /// Generates the messages of gRPC from crates/rategate-server/proto
    #[cfg(feature = "messages")]
    Messages {
        /// Compares, and writes nothing
        #[arg(long)]
        check: bool,
    },
    /// Installs the programs that tests start besides our own, where they are missing
    Servers,
    /// Licences and sources of all dependencies, and dependencies that nothing uses
    Deny,
    /// The lock-free states and the waiters under every schedule of a few threads
    Loom {
        /// Of more threads
        #[arg(long)]
        full: bool,
    },
    /// Mutated inputs for everything that reads bytes or text from outside
    Fuzz {
        /// One of the targets of fuzz/, all of them by default
        target: Option<String>,
        /// For each target
        #[arg(long, default_value_t = 60)]
        seconds: u32,
    },
    /// Times our engines beside others': code, memory, wait, redis, serve, tokens, or all of them
    Bench {
        /// Names of programs; --quick takes fewer samples, --write puts the tables into docs/performance.md
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Builds the wheel for Python and tests it, installed, with each interpreter there is, and under valgrind
    Python(Form),
    /// Builds the package for Node and tests it, installed, under three versions of Node, and under valgrind
    Node(Form),
    /// Writes the packages of a release into target/packages, and tries them installed
    Pack {
        /// Builds for another machine, as Rust names it, and tries nothing
        target: Option<String>,
        /// Builds nothing, and tries what is there
        #[arg(long = "try", conflicts_with = "target")]
        try_only: bool,
    },
}

/// How much of a package for another language is tested.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Form {
    /// Unoptimized, with one interpreter
    #[arg(long)]
    quick: bool,
    /// Times it beside other packages in place of the tests
    #[arg(long, conflicts_with = "quick")]
    bench: bool,
}

fn main() -> Result<()> {
    let task = Task::parse();
    let at = &Workspace::here().context("find the workspace")?;
    match task {
        Task::Check { all } => check::run(at, all),
        Task::Test { long: false } => check::quick_tests(at),
        Task::Test { long: true } => check::long_tests(at),
        Task::Tidy => tidy::run(at),
        Task::Trace => trace::run(at),
        Task::Pictures => pictures::draw(at),
        Task::Conformance => conformance::write(at),
        Task::Book => book::run(at),
        #[cfg(feature = "messages")]
        Task::Messages { check: true } => messages::check(&at.root),
        #[cfg(feature = "messages")]
        Task::Messages { check: false } => messages::write(&at.root),
        Task::Servers => servers::run(at),
        Task::Deny => check::dependencies(at),
        Task::Loom { full } => loom::run(at, full),
        Task::Fuzz { target, seconds } => fuzz::run(at, target.as_deref(), seconds),
        Task::Bench { words } => bench::run(at, &words),
        Task::Python(Form { bench: true, .. }) => python::bench(at),
        Task::Python(form) => python::run(at, form.quick),
        Task::Node(Form { bench: true, .. }) => node::bench(at),
        Task::Node(form) => node::run(at, form.quick),
        Task::Pack { target, try_only } => pack::run(at, target.as_deref(), try_only),
    }
}
