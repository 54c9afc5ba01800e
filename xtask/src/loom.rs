//! Runs the models of the lock-free states and of the waiters in the model checker.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::cargo::cargo;

/// The packages with models, and the features that these need.
const PACKAGES: [(&str, &[&str]); 2] =
    [("rategate-core", &[]), ("rategate", &["--no-default-features", "--features", "distributed"])];

/// The maximum number of preemptions in the full models of the waiters. The models of the
/// lock-free states set their own.
const FULL_PREEMPTIONS: &str = "4";

/// Runs the quick models or all of them, and counts the schedules tried.
pub(crate) fn run(root: &Path, full: bool) -> Result<()> {
    let mut counts = Vec::new();
    for (package, features) in PACKAGES {
        counts.extend(models(root, package, features, full)?);
    }
    println!("{} models, {} schedules", counts.len(), counts.iter().sum::<u64>());
    Ok(())
}

/// Runs the models of a package, and returns the number of schedules of each.
///
/// In release mode, since a model is arithmetic. It has its own target directory, because the
/// flag would make cargo build everything else anew.
fn models(root: &Path, package: &str, features: &[&str], full: bool) -> Result<Vec<u64>> {
    let mut command = cargo(root);
    command.args(["test", "--release", "--package", package, "--test", "loom"]).args(features);
    command.args(["--target-dir", "target/loom", "--", "--nocapture"]);
    if full {
        command.env("LOOM_MAX_PREEMPTIONS", FULL_PREEMPTIONS);
    } else {
        command.arg("quick_");
    }
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    command.env("RUSTFLAGS", format!("{flags} --cfg loom"));
    // A model's trace is in its own panic, not in the checker's stack.
    command.env("RUST_BACKTRACE", "0");
    let output = command.stderr(Stdio::piped()).stdout(Stdio::inherit()).output();
    let output = output.context("start the models")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    eprint!("{stderr}");
    let counts: Vec<u64> = stderr.lines().filter_map(schedules).collect();
    ensure!(output.status.success(), "a model of {package} failed");
    ensure!(!counts.is_empty(), "no model of {package} ran");
    Ok(counts)
}

/// Reads `gcra::quick_a_model: 4724 schedules`.
fn schedules(line: &str) -> Option<u64> {
    line.strip_suffix(" schedules")?.rsplit_once(": ")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::schedules;

    #[test]
    fn reads_a_count() {
        assert_eq!(schedules("gcra::quick_a_model: 4724 schedules"), Some(4_724));
        assert_eq!(schedules("test gcra::quick_a_model ... ok"), None);
    }
}
