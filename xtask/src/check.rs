//! The command that a change must pass: every step in order, up to the first that fails.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{
    cargo, conformance, loom, node, packaging, pictures, python, servers, services, tapes, tidy,
    trace,
};

/// The tests of a package, given the root, the target folder, and whether in the short form.
pub(crate) type Tests = fn(&Path, &Path, bool) -> Result<()>;

/// The packages for other languages, which have a short form of their tests.
pub(crate) const LANGUAGES: [(&str, Tests); 2] = [("python", python::run), ("node", node::run)];

/// Runs every step and ends with one line of counts, `N passed, 0 failed, K skipped`.
pub(crate) fn run(root: &Path, target: &Path) -> Result<()> {
    step(cargo(root, "fmt --all --check"))?;
    step(cargo(root, "clippy --workspace --all-targets --all-features -- -D warnings"))?;
    // Features only add, and nothing requires one.
    for features in ["", " --features keyed", " --features distributed"] {
        let clippy = format!("clippy --package rategate --no-default-features{features}");
        step(cargo(root, &format!("{clippy} -- -D warnings")))?;
    }
    for package in ["rategate-analyze", "rategate-server", "rategate-testkit"] {
        let clippy = format!("clippy --package {package} --no-default-features -- -D warnings");
        step(cargo(root, &clippy))?;
    }
    benches(root)?;
    // The targets of the fuzzer compile as all else does. Running them needs another compiler.
    let fuzz = "clippy --manifest-path fuzz/Cargo.toml --all-features --target-dir target";
    step(cargo(root, &format!("{fuzz} -- -D warnings")))?;
    servers::run(target)?;
    let counts = tests(root, target)?;
    without_atomics(root)?;
    heading("cargo xtask loom");
    loom::run(root, false)?;
    step(cargo(root, "test --workspace --all-features --doc"))?;
    for package in ["rategate", "rategate-tower"] {
        for example in examples(root, package)? {
            let example = format!("--package {package} --all-features --example {example}");
            step(cargo(root, &format!("run --quiet {example}")))?;
        }
    }
    let mut docs = cargo(root, "doc --workspace --all-features --no-deps");
    docs.env("RUSTDOCFLAGS", "-D warnings");
    step(docs)?;
    heading("cargo xtask tapes");
    tapes::write(root, target)?;
    for (name, run) in LANGUAGES {
        heading(&format!("cargo xtask {name} --quick"));
        run(root, target, true)?;
    }
    heading("cargo xtask tidy");
    tidy::run(root)?;
    heading("cargo xtask services, compared");
    services::check(root)?;
    heading("cargo xtask lint-packaging");
    packaging::run(root, target)?;
    heading("cargo xtask trace");
    trace::run(root)?;
    heading("cargo xtask conformance, compared");
    conformance::check(root, target)?;
    heading("cargo xtask pictures");
    pictures::check(root)?;
    println!("\n{}", counts.line());
    Ok(())
}

/// The counts of nextest's summary.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Counts {
    fn line(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }

    /// Reads ` Summary [   0.012s] 12 tests run: 12 passed (1 slow), 0 skipped`. A test that
    /// timed out or did not start counts as failed.
    fn parse(line: &str) -> Option<Self> {
        let (_, counted) = line.trim_start().strip_prefix("Summary [")?.split_once(" run: ")?;
        let mut counts = Self::default();
        for count in without_parentheses(counted).split(',') {
            let (number, word) = count.trim().split_once(' ')?;
            let number: u64 = number.parse().ok()?;
            match word.trim() {
                "passed" => counts.passed += number,
                "skipped" => counts.skipped += number,
                _ => counts.failed += number,
            }
        }
        Some(counts)
    }
}

/// Removes parentheses, which contain commas of their own: `3 passed (1 slow, 1 flaky), 0 skipped`.
fn without_parentheses(text: &str) -> String {
    let mut depth = 0_u32;
    let mut outside = String::new();
    for character in text.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            other if depth == 0 => outside.push(other),
            _ => {}
        }
    }
    outside
}

/// Runs the tests that take little time: those of nextest's profile `quick`.
pub(crate) fn quick_tests(root: &Path) -> Result<()> {
    install_nextest_if_missing(root)?;
    step(cargo(root, "nextest run --workspace --all-features --profile quick"))
}

/// Runs the tests. Nextest prints to stderr: each line is passed on to the terminal, the last
/// summary is kept.
fn tests(root: &Path, target: &Path) -> Result<Counts> {
    install_nextest_if_missing(root)?;
    // Every failure is useful, so a failed test does not stop the others.
    let mut nextest =
        cargo(root, "nextest run --workspace --all-features --no-fail-fast --color never");
    nextest.env(conformance::RECORDS, conformance::fresh_folder(target)?);
    heading(&shown(&nextest));
    let mut child = nextest.stderr(Stdio::piped()).spawn().context("start cargo nextest")?;
    let stderr = child.stderr.take().context("nextest has no stderr")?;
    let mut counts = None;
    for line in BufReader::new(stderr).lines() {
        let line = line.context("read nextest's output")?;
        eprintln!("{line}");
        counts = Counts::parse(&line).or(counts);
    }
    let status = child.wait().context("wait for cargo nextest")?;
    let counts = counts.context("nextest printed no summary, so the tests did not run")?;
    if !status.success() || counts.failed > 0 {
        println!("\n{}", counts.line());
        bail!("the tests failed");
    }
    Ok(counts)
}

/// Runs the core's lints and tests as for a target without 64-bit atomics. A cfg stands for one,
/// so that none has to be installed. It has its own target directory, because the flag would make
/// cargo build everything else anew.
fn without_atomics(root: &Path) -> Result<()> {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let flags = format!("{flags} --cfg rategate_without_atomics");
    for (run, rest) in [
        ("clippy", "--all-targets -- -D warnings"),
        (
            "nextest run",
            "--no-fail-fast --lib --test all -E kind(lib)|test(/^(all_of|ledger|refund)::/)",
        ),
    ] {
        let mut command = cargo(
            root,
            &format!("{run} --package rategate-core --target-dir target/without-atomics {rest}"),
        );
        command.env("RUSTFLAGS", &flags);
        step(command)?;
    }
    Ok(())
}

/// Checks the measuring programs, which depend on the library as other programs do.
fn benches(root: &Path) -> Result<()> {
    let manifest = "--manifest-path bench/Cargo.toml";
    step(cargo(root, &format!("fmt {manifest} --check")))?;
    let what = "--target-dir target --locked --features wires --all-targets";
    step(cargo(root, &format!("clippy {manifest} {what} -- -D warnings")))
}

/// Returns a package's examples. Each ends by itself and fails if what it shows is wrong: running
/// it is a test.
fn examples(root: &Path, package: &str) -> Result<Vec<String>> {
    let folder = std::fs::read_dir(root.join("crates").join(package).join("examples"));
    let mut names = Vec::new();
    for entry in folder.with_context(|| format!("the examples of {package}"))? {
        let file = entry?.file_name().to_string_lossy().into_owned();
        names.extend(file.strip_suffix(".rs").map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

fn install_nextest_if_missing(root: &Path) -> Result<()> {
    let mut probe = cargo(root, "nextest --version");
    let probe = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if probe.context("start cargo")?.success() {
        return Ok(());
    }
    println!("\ncargo-nextest, which runs the tests, is missing: installing it");
    step(cargo(root, "install cargo-nextest --locked"))
}

fn step(mut command: Command) -> Result<()> {
    let name = shown(&command);
    heading(&name);
    cargo::run(&mut command, &format!("`{name}` failed"))
}

/// Returns a command of the cargo that runs this program. No argument may contain a blank.
fn cargo(root: &Path, arguments: &str) -> Command {
    let mut command = cargo::cargo(root);
    command.args(arguments.split(' '));
    command
}

fn shown(command: &Command) -> String {
    let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
    format!("cargo {}", arguments.join(" "))
}

fn heading(text: &str) {
    println!("\n== {text}");
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn reads_the_summary_of_a_run() {
        let line = "     Summary [   0.012s] 12 tests run: 12 passed (1 slow, 2 leaky), 3 skipped";
        assert_eq!(Counts::parse(line), Some(Counts { passed: 12, failed: 0, skipped: 3 }));
        let line = " Summary [ 1.2s] 4/9 tests run: 1 passed, 2 failed, 1 timed out, 0 skipped";
        assert_eq!(Counts::parse(line), Some(Counts { passed: 1, failed: 3, skipped: 0 }));
        let line = "     Summary [   0.002s] 1 test run: 1 passed, 0 skipped";
        assert_eq!(Counts::parse(line), Some(Counts { passed: 1, failed: 0, skipped: 0 }));
        assert_eq!(Counts::parse("        PASS [   0.002s] xtask tests::summary"), None);
    }
}
