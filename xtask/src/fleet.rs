//! A simulation of a crowd of nodes: too many for the tests, which run a shorter one.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs the simulation in release mode. It prints a line for each mode, and fails if a bound does
/// not hold.
pub(crate) fn run(root: &Path) -> Result<()> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root).args(["run", "--quiet", "--release", "--package", "rategate-fleet"]);
    let status = command.args(["--example", "fleet", "--", "crowd"]).status();
    ensure!(status.context("start cargo")?.success(), "a bound does not hold");
    Ok(())
}
