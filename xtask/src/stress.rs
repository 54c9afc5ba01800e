//! A stress test with real threads on real clocks, of any length.

use std::path::Path;

use anyhow::{Context, Result};

use crate::cargo::{self, cargo};

/// The test that runs for a configured time. A filter that names no test would pass at once.
const TEST: &str = "stress::for_the_configured_duration";

/// Runs the stress test of `rategate` for `minutes`, with eight threads.
pub(crate) fn run(root: &Path, minutes: &str) -> Result<()> {
    let minutes: u64 = minutes.parse().context("--minutes takes a whole number of minutes")?;
    let mut command = cargo(root);
    command.args(["test", "--release", "--package", "rategate", "--test", "all"]);
    command.args(["--", "--ignored", "--nocapture", "--exact", TEST]);
    command.env("RATEGATE_STRESS_MINUTES", minutes.to_string());
    cargo::run(&mut command, "the stress test failed")
}

#[cfg(test)]
mod tests {
    use super::TEST;

    #[test]
    fn the_test_that_is_named_exists() {
        let source = include_str!("../../crates/rategate/tests/stress.rs");
        let name = TEST.trim_start_matches("stress::");
        assert!(source.contains(&format!("fn {name}()")), "no test is named {TEST}");
    }
}
