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
mod book;
mod cargo;
mod check;
mod conformance;
mod demo;
mod deny;
mod fleet;
mod fuzz;
mod guide;
mod loom;
mod node;
mod pack;
mod packaging;
mod page;
mod pictures;
mod python;
mod servers;
mod services;
mod source;
mod stress;
mod tapes;
mod tidy;
mod trace;
mod valgrind;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

/// A command of this program.
#[derive(Debug)]
struct Command {
    /// The forms in which it can be written. A word in capitals stands for any word that is no
    /// flag, and `...` at the end for any number of them.
    forms: &'static [&'static str],
    help: &'static str,
    run: fn(&Workspace, &[&str]) -> Result<()>,
}

/// The folders that commands work on.
#[derive(Debug)]
struct Workspace {
    root: PathBuf,
    target: PathBuf,
}

/// Every command, in the order of the help.
static COMMANDS: [Command; 21] = [
    Command {
        forms: &["check"],
        help: "format, lints, tests, models, docs, tidy, trace and pictures; a change must pass it",
        run: |at, _| check::run(&at.root, &at.target),
    },
    Command {
        forms: &["test"],
        help: "the tests that need no server and no real time: the loop while writing",
        run: |at, _| check::quick_tests(&at.root),
    },
    Command {
        forms: &["tidy"],
        help: "the rules about imports, clocks, waits, forbidden names, and commands and links in\n\
               documents",
        run: |at, _| tidy::run(&at.root),
    },
    Command {
        forms: &["trace"],
        help: "which test covers which requirement line",
        run: |at, _| trace::run(&at.root),
    },
    Command {
        forms: &["pictures"],
        help: "draws the pictures of the guides, and the tables of docs/distributed.md and\n\
               docs/adaptive.md",
        run: |at, _| pictures::draw(&at.root),
    },
    Command {
        forms: &["tapes"],
        help: "writes scenarios as tapes into target/tapes, for players in other languages",
        run: |at, _| tapes::write(&at.root, &at.target),
    },
    Command {
        forms: &["conformance"],
        help: "plays the scenario files on every engine, and writes which plays which to\n\
               docs/conformance.md",
        run: |at, _| conformance::write(&at.root, &at.target),
    },
    Command {
        forms: &["book"],
        help: "builds the book of docs/ into target/book, once every link leads somewhere",
        run: |at, _| book::run(&at.root, &at.target),
    },
    Command {
        forms: &["fleet"],
        help: "a million simulated fleets keep a limit and count reservations once; in release, some\n\
               minutes",
        run: |at, _| fleet::run(&at.root),
    },
    Command {
        forms: &["services"],
        help: "writes the descriptors of the gRPC services for reflection, of the packages that the\n\
               lock file has",
        run: |at, _| services::write(&at.root),
    },
    Command {
        forms: &["servers"],
        help: "installs the programs that tests start besides our own, where they are missing",
        run: |at, _| servers::run(&at.target),
    },
    Command {
        forms: &["deny"],
        help: "the licences and sources of all dependencies, by cargo-deny, which is built once",
        run: |at, _| deny::run(&at.root, &at.target),
    },
    Command {
        forms: &["lint-packaging"],
        help: "checks the files that start the service, such as units and manifests",
        run: |at, _| packaging::run(&at.root, &at.target),
    },
    Command {
        forms: &["python", "python --quick", "python --bench"],
        help: "builds the wheel for Python and tests it, installed, with each interpreter there is,\n\
               and under valgrind [--quick: unoptimized, with one] [--bench: times it beside other packages]",
        run: |at, words| {
            if words.contains(&"--bench") {
                return python::bench(&at.root, &at.target);
            }
            python::run(&at.root, &at.target, words.contains(&"--quick"))
        },
    },
    Command {
        forms: &["demo"],
        help: "shows the promises of the packages for Python and Node, a line for each",
        run: |at, _| demo::run(&at.root, &at.target),
    },
    Command {
        forms: &["loom", "loom --full"],
        help: "the lock-free states and the waiters under every schedule of a few threads\n\
               [--full: of more]",
        run: |at, words| loom::run(&at.root, words.contains(&"--full")),
    },
    Command {
        forms: &["stress", "stress --minutes M"],
        help: "the limiters under eight real threads [--minutes M: the duration, 10 by default]",
        run: |at, words| stress::run(&at.root, words.get(2).unwrap_or(&"10")),
    },
    Command {
        forms: &["fuzz", "fuzz TARGET", "fuzz --seconds N", "fuzz --seconds N TARGET"],
        help: "mutated inputs for everything that reads bytes or text from outside; installs\n\
               cargo-fuzz where it is missing [--seconds N: for each target, 60 by default]\n\
               [TARGET: one of them]",
        run: |at, words| fuzz::run(&at.root, &at.target, &words[1..]),
    },
    Command {
        forms: &[
            "bench ...",
            "bench --quick ...",
            "bench --write ...",
            "bench --quick --write ...",
        ],
        help: "measures beside others, and prints tables: all, or what is named of code, memory, wait,\n\
               redis, serve and tokens [--quick: to see that it works] [--write: also into\n\
               docs/performance.md]",
        run: |at, words| bench::run(&at.root, &at.target, &words[1..]),
    },
    Command {
        forms: &["node", "node --quick", "node --bench"],
        help: "builds the package for Node, and runs its tests under three versions of Node, and\n\
               under valgrind [--quick: under one] [--bench: times it beside other packages in\n\
               place of that]",
        run: |at, words| match words.get(1) {
            Some(&"--bench") => node::bench(&at.root, &at.target),
            flag => node::run(&at.root, &at.target, flag.is_some()),
        },
    },
    Command {
        forms: &["pack", "pack TARGET", "pack --sources", "pack --try", "pack --complete"],
        help: "writes the packages of a release into target/packages, those of this machine and those\n\
               for all, and tries them installed [TARGET: another machine's, as Rust names it]\n\
               [--sources: those for all] [--try: tries what is there] [--complete: checks that\n\
               nothing is missing, and the tag]",
        run: |at, words| pack::run(&at.root, &at.target, words.get(1).copied()),
    },
];

impl Command {
    /// Returns the command of which these words are a form.
    fn find(words: &[&str]) -> Option<&'static Self> {
        COMMANDS.iter().find(|command| command.forms.iter().any(|form| fits(form, words)))
    }

    /// Returns the words that select the command, without flags and words of the user.
    fn name(&self) -> &'static str {
        self.forms[0].trim_end_matches(" ...")
    }
}

/// Returns `true` if the words are written in this form.
fn fits(form: &str, words: &[&str]) -> bool {
    let (form, is_open) = form.strip_suffix(" ...").map_or((form, false), |form| (form, true));
    let form: Vec<&str> = form.split(' ').collect();
    let is_free = |word: &str| !word.starts_with('-');
    let is_any = |part: &str| part.chars().all(|letter| letter.is_ascii_uppercase());
    words.len() >= form.len()
        && form
            .iter()
            .zip(words)
            .all(|(part, word)| part == word || (is_any(part) && is_free(word)))
        && words[form.len()..].iter().all(|word| is_open && is_free(word))
}

/// Returns the help: each command with what it does.
fn usage() -> String {
    let mut text = "usage: cargo xtask <command>\n".to_owned();
    for command in &COMMANDS {
        // A name that is wider than its column has a line of its own.
        let name = command.name();
        let gap = if name.len() > 8 { format!("\n{:12}", "") } else { " ".repeat(10 - name.len()) };
        let help = command.help.replace('\n', &format!("\n{:12}", ""));
        let _ = write!(text, "\n  {name}{gap}{help}");
    }
    text
}

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
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let ["help" | "-h" | "--help"] = words.as_slice() {
        println!("{}", usage());
        return Ok(());
    }
    let Some(command) = Command::find(&words) else {
        bail!("no such command: {words:?}\n{}", usage())
    };
    (command.run)(&workspace()?, &words)
}

/// Returns the folders as cargo sees them, so that the commands run from any folder of the
/// workspace.
fn workspace() -> Result<Workspace> {
    let metadata =
        cargo_metadata::MetadataCommand::new().no_deps().exec().context("cargo metadata")?;
    Ok(Workspace {
        root: metadata.workspace_root.into_std_path_buf(),
        target: metadata.target_directory.into_std_path_buf(),
    })
}
