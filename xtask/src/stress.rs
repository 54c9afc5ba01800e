//! A stress test with real threads on real clocks, of any length.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs the stress test of `rategate` for `minutes`, with eight threads.
pub(crate) fn run(root: &Path, minutes: &str) -> Result<()> {
    let minutes: u64 = minutes.parse().context("--minutes takes a whole number of minutes")?;
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root);
    command.args(["test", "--release", "--package", "rategate", "--test", "stress"]);
    command.args(["--", "--ignored", "--nocapture", "--exact", "for_as_long_as_asked"]);
    command.env("RATEGATE_STRESS_MINUTES", minutes.to_string());
    let status = command.status().context("start the stress test")?;
    ensure!(status.success(), "the stress test failed");
    Ok(())
}
