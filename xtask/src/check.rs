//! The command that a change must pass: every step in order, up to the first that fails.

use std::env;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use xshell::cmd;

use crate::tools::{ALL, Workspace};
use crate::{conformance, loom, node, packaging, pictures, python, tidy, trace};

/// Without the generator of messages, which takes long to compile.
const OWN_TESTS: &str = "test --package xtask";

/// Features only add, and nothing requires one. The targets of the fuzzer and the bench compile
/// as all else does. Generated messages are what their definitions say.
const VARIANTS: [&str; 10] = [
    "clippy --package rategate --no-default-features -- -D warnings",
    "clippy --package rategate --no-default-features --features keyed -- -D warnings",
    "clippy --package rategate --no-default-features --features distributed -- -D warnings",
    "clippy --package rategate-analyze --no-default-features -- -D warnings",
    "clippy --package rategate-server --no-default-features -- -D warnings",
    "clippy --package rategate-cli --no-default-features -- -D warnings",
    "clippy --package rategate-testkit --no-default-features -- -D warnings",
    "clippy --manifest-path fuzz/Cargo.toml --all-features --target-dir target -- -D warnings",
    "clippy --manifest-path bench/Cargo.toml --locked --features wires --all-targets --target-dir target -- -D warnings",
    "run --package xtask --features messages -- messages --check",
];

/// The core as for a target without 64-bit atomics: with those of a library.
const WITHOUT_ATOMICS: &str =
    "check --package rategate-core --all-features --target-dir target/without-atomics";

/// The packages whose examples end by themselves, and fail if what they show is wrong.
const EXAMPLES: [&str; 2] = ["rategate", "rategate-tower"];

/// How long the tests are that have a long form: minutes of real threads, denials in debt for each
/// policy and store, configurations of Envoy's format and random stories, clients that are killed
/// between reservation and commit, and hostile samples for each limit that follows them.
const LONG: [(&str, &str); 5] = [
    ("RATEGATE_STRESS_MINUTES", "10"),
    ("RATEGATE_DENIALS", "100000"),
    ("RATEGATE_TRACES", "2000"),
    ("RATEGATE_KILLED", "60"),
    ("RATEGATE_SAMPLES", "1000000"),
];

const LONG_TESTS: &str = "nextest run --release --profile long --workspace --all-features --run-ignored all -E \
     test(/for_the_configured_duration|denials_in_debt|at_which_calls_pass|killed_client|bounds|hostile|no_field|plain_sums|^rls::(traces|recorded)/)";

/// A million fleets that count reservations once.
const FLEETS: &str = "run --quiet --release --package rategate-testkit --example fleet -- \
     reservations 1000000";

/// Runs every step, prints how long each took, and ends with the tests' own count.
pub(crate) fn run(at: &Workspace, all: bool) -> Result<()> {
    let mut steps = Steps::default();
    steps.cargo(at, "fmt --all --check")?;
    steps.run("tidy", || tidy::run(at))?;
    steps.run("trace", || trace::run(at))?;
    let linted = at.linted()?;
    steps.cargo(at, OWN_TESTS)?;
    steps.run("build, and servers", || {
        beside(at, &["servers"], || {
            Ok(at.cargo(&format!("build {ALL} --all-targets")).quiet().run()?)
        })
    })?;
    conformance::fresh_folder(at)?;
    steps.run("tests", || {
        // Every failure is useful, so a failed test does not stop the others.
        let tests = at.cargo(&format!("nextest run {ALL} --no-fail-fast"));
        Ok(tests.env(conformance::RECORDS, conformance::folder(at)?).run()?)
    })?;
    steps.run("pictures", || pictures::check(at))?;
    if all {
        // Under valgrind each computes.
        steps.run("python", || python::run(at, false))?;
        steps.run("node", || node::run(at, false))?;
    } else {
        steps.run("python, and node", || {
            beside(at, &["node", "--quick"], || python::run(at, true))
        })?;
    }
    steps.run("conformance", || conformance::check(at))?;
    steps.cargo(at, &format!("test {ALL} --doc"))?;
    drop(linted);
    steps.run("loom", || loom::run(at, all))?;
    if all {
        steps.long(at)?;
    }
    steps.print();
    Ok(())
}

/// The tests that take little time: those of nextest's profile `quick`.
pub(crate) fn quick_tests(at: &Workspace) -> Result<()> {
    Ok(at.cargo("nextest run --workspace --all-features --profile quick").run()?)
}

/// The tests whose length is told to them, and the simulations that are too long for tests.
pub(crate) fn long_tests(at: &Workspace) -> Result<()> {
    at.cargo(FLEETS).run()?;
    Ok(at.cargo(LONG_TESTS).envs(LONG).run()?)
}

/// Licences and sources of all dependencies by cargo-deny, and by cargo-shear those that nothing
/// uses and files that are part of no program.
pub(crate) fn dependencies(at: &Workspace) -> Result<()> {
    let deny = at.crates("cargo-deny", "0.20.2", &[])?;
    cmd!(at, "{deny} --all-features check").run()?;
    let shear = at.crates("cargo-shear", "1.9.1", &[])?;
    Ok(cmd!(at, "{shear}").run()?)
}

/// Words that look misspelt, by typos, and links of documents that lead nowhere, by remark.
fn documents(at: &Workspace) -> Result<()> {
    let typos = at.pip("python3", &at.target.join("typos"), &["typos"])?.join("typos");
    cmd!(at, "{typos}").run()?;
    crate::book::links(at)
}

/// Runs a task of this tool beside another, since most of it waits: for the network, or for time to
/// pass. It has ended when this returns, also after a failure of the other.
fn beside(at: &Workspace, words: &[&str], task: impl FnOnce() -> Result<()>) -> Result<()> {
    // With the shell's variables: another compiler would build everything anew.
    let mut other = Command::from(at.cmd(env::current_exe()?).args(words)).spawn()?;
    let done = task();
    let status = other.wait()?;
    done?;
    ensure!(status.success(), "xtask {}: {status}", words.join(" "));
    Ok(())
}

/// The names of the steps that have passed, and how long each took.
#[derive(Debug, Default)]
struct Steps {
    taken: Vec<(String, f64)>,
}

impl Steps {
    fn run(&mut self, name: &str, step: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("\n== {name}");
        let start = Instant::now();
        step()?;
        self.taken.push((name.to_owned(), start.elapsed().as_secs_f64()));
        Ok(())
    }

    fn cargo(&mut self, at: &Workspace, words: &str) -> Result<()> {
        self.run(&format!("cargo {words}"), || Ok(at.cargo(words).quiet().run()?))
    }

    /// The steps of `--all`.
    fn long(&mut self, at: &Workspace) -> Result<()> {
        VARIANTS.iter().try_for_each(|words| self.cargo(at, words))?;
        let flags = env::var("RUSTFLAGS").unwrap_or_default();
        {
            let flags = format!("{flags} --cfg rategate_without_atomics");
            let _flags = at.push_env("RUSTFLAGS", flags);
            self.cargo(at, WITHOUT_ATOMICS)?;
        }
        for package in EXAMPLES {
            for path in at.read_dir(format!("crates/{package}/examples"))? {
                if let Some(name) = path.extension().and(path.file_stem()) {
                    let name = name.to_string_lossy();
                    let words = "run --quiet --all-features --package";
                    self.cargo(at, &format!("{words} {package} --example {name}"))?;
                }
            }
        }
        {
            let _flags = at.push_env("RUSTDOCFLAGS", "-D warnings");
            self.cargo(at, "doc --workspace --all-features --no-deps")?;
        }
        self.run("packaging", || packaging::run(at))?;
        self.run("dependencies", || dependencies(at))?;
        self.run("documents", || documents(at))
    }

    fn print(&self) {
        let whole: f64 = self.taken.iter().map(|(_, seconds)| seconds).sum();
        println!("\n== {whole:.0} s in all");
        for (name, seconds) in &self.taken {
            println!("{seconds:>6.0} s  {name}");
        }
    }
}
