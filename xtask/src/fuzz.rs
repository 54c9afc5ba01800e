//! Fuzzing: runs the targets of `fuzz/`, each for a time, and prints how far it came.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// A target: its name, the feature of `fuzz` that it needs, and a folder of the repository whose
/// files it starts from, besides its own in `fuzz/seeds`.
struct Target {
    name: &'static str,
    feature: &'static str,
    folder: Option<&'static str>,
}

const TARGETS: [Target; 15] = [
    Target { name: "resp_requests", feature: "", folder: None },
    Target { name: "resp_replies", feature: "", folder: None },
    Target { name: "http2_frames", feature: "", folder: None },
    Target { name: "hpack", feature: "", folder: None },
    Target { name: "limit_text", feature: "", folder: None },
    Target { name: "limits", feature: "", folder: None },
    Target { name: "scenarios", feature: "simulate", folder: Some("testdata/scenarios") },
    Target { name: "snapshots", feature: "library", folder: None },
    Target { name: "access_logs", feature: "logs", folder: None },
    Target { name: "rls_messages", feature: "envoy", folder: None },
    Target { name: "rlqs_messages", feature: "envoy", folder: None },
    Target { name: "xds_messages", feature: "envoy", folder: None },
    Target { name: "counters", feature: "counters", folder: None },
    Target { name: "config_toml", feature: "service", folder: Some("packaging") },
    Target { name: "config_yaml", feature: "service", folder: None },
];

/// The longest input, in bytes.
const MAX_INPUT_BYTES: u32 = 8 << 10;
/// The maximum memory of a target, in MiB.
const MAX_MEMORY_MIB: u32 = 2 << 10;
/// The longest time that one input may take, in seconds.
const TIMEOUT_S: u32 = 20;

/// The starts of libFuzzer's lines about its progress. What is left is about failures.
const NOISE: [&str; 6] = ["#", "\tNEW_", "stat::", "INFO:", "\"", "Done "];

/// The counts of a run, as libFuzzer prints them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    executions: u64,
    /// The number of edges of the program that were reached.
    edges: u64,
    inputs: u64,
}

/// Runs one target, or all of them, for this time each.
///
/// Inputs that reach something new are kept in the target folder, for the next run.
pub(crate) fn run(root: &Path, target: &Path, words: &[&str]) -> Result<()> {
    let (seconds, only) = match words {
        ["--seconds", seconds] => (*seconds, None),
        ["--seconds", seconds, only] => (*seconds, Some(*only)),
        [only] => ("60", Some(*only)),
        _ => ("60", None),
    };
    seconds.parse::<u32>().with_context(|| format!("`{seconds}` is no number of seconds"))?;
    let chosen: Vec<_> =
        TARGETS.iter().filter(|it| only.is_none_or(|only| only == it.name)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = TARGETS.iter().map(|it| it.name).collect();
        bail!("no such target; there are {}", names.join(", "));
    }
    let scratch = target.join("fuzz");
    let tools = install_if_missing(&scratch)?;
    for it in chosen {
        let name = it.name;
        println!("\n== {name}, {seconds} s");
        let counts = one(root, &scratch, &tools, it, seconds)?;
        let Counts { executions, edges, inputs } = counts;
        println!("{name}: {executions} executions, {edges} edges, {inputs} inputs kept");
    }
    Ok(())
}

/// Runs a target. Our code has no `unsafe`, so no sanitizer watches its memory.
fn one(root: &Path, scratch: &Path, tools: &Path, it: &Target, seconds: &str) -> Result<Counts> {
    let name = it.name;
    let (corpus, found) = (scratch.join("corpus").join(name), scratch.join("found").join(name));
    for folder in [&corpus, &found] {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let mut command = nightly("cargo");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(tools.to_owned()).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(paths)?).current_dir(root);
    command.args(["fuzz", "run", "--fuzz-dir", "fuzz", "--sanitizer", "none", "--target-dir"]);
    command.arg(scratch.join("build")).args(["--features", it.feature]).arg(name).arg(&corpus);
    let seeds = root.join("fuzz/seeds").join(name);
    let folder = it.folder.map(|folder| root.join(folder));
    command.args(std::iter::once(seeds).chain(folder).filter(|folder| folder.is_dir()));
    command.arg("--").arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-max_len={MAX_INPUT_BYTES}"));
    command.arg(format!("-rss_limit_mb={MAX_MEMORY_MIB}"));
    command.arg(format!("-timeout={TIMEOUT_S}"));
    command.args(["-print_final_stats=1", "-verbosity=1"]);
    command.arg(format!("-artifact_prefix={}/", found.display()));
    let mut child = command.stderr(Stdio::piped()).spawn().context("start cargo fuzz")?;
    let stderr = child.stderr.take().context("cargo fuzz has no stderr")?;
    let mut counts = Counts::default();
    for line in BufReader::new(stderr).lines() {
        let line = line.context("read cargo fuzz's output")?;
        counts.read(&line);
        if !NOISE.iter().any(|start| line.starts_with(start)) {
            eprintln!("{line}");
        }
    }
    let status = child.wait().context("wait for cargo fuzz")?;
    ensure!(status.success(), "{name} failed; its input is in {}", found.display());
    ensure!(counts.executions > 0, "{name} ran no input");
    Ok(counts)
}

/// Installs a nightly compiler and cargo-fuzz, unless they are there. Returns the folder of the
/// latter.
fn install_if_missing(scratch: &Path) -> Result<PathBuf> {
    let succeeds = |command: &mut Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|it| it.success())
    };
    if !succeeds(nightly("rustc").arg("--version")) {
        let mut install = Command::new("rustup");
        install.args(["toolchain", "install", "nightly", "--profile", "minimal"]);
        ensure!(install.status().context("start rustup")?.success(), "no nightly compiler");
    }
    let tools = scratch.join("tools");
    if !tools.join("bin/cargo-fuzz").is_file() {
        println!("cargo-fuzz, which runs the targets, is missing: installing it");
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut install = Command::new(program);
        install.args(["install", "cargo-fuzz", "--locked", "--root"]).arg(&tools);
        ensure!(install.status().context("start cargo")?.success(), "cargo-fuzz is not installed");
    }
    Ok(tools.join("bin"))
}

/// Returns a command of the nightly compiler.
fn nightly(program: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", program]);
    // Cargo sets these for the program that it runs, which is of another compiler.
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(name);
    }
    command
}

impl Counts {
    /// Reads `#8192 NEW cov: 12 ft: 30 corp: 7/33b …` and `stat::number_of_executed_units: 99`.
    fn read(&mut self, line: &str) {
        let after = |mark: &str| {
            let rest = line.split_once(mark)?.1.trim_start();
            rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
        };
        if line.starts_with('#') {
            self.edges = after("cov: ").unwrap_or(self.edges);
            self.inputs = after("corp: ").unwrap_or(self.inputs);
        } else {
            self.executions = after("stat::number_of_executed_units:").unwrap_or(self.executions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn reads_the_counts_of_a_run() {
        let mut counts = Counts::default();
        counts.read("#65536\tpulse  cov: 212 ft: 498 corp: 77/1033b lim: 652 exec/s: 21845");
        counts.read("stat::number_of_executed_units: 70001");
        counts.read("INFO: seed corpus: files: 3");
        assert_eq!(counts, Counts { executions: 70_001, edges: 212, inputs: 77 });
    }
}
