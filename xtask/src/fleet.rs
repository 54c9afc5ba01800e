//! A simulation of a crowd of nodes: too many for the tests, which run a shorter one.

use std::path::Path;

use anyhow::Result;

use crate::cargo::{self, cargo};

/// Runs the simulation in release mode. It prints a line for each mode, and fails if a bound does
/// not hold.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut command = cargo(root);
    command.args(["run", "--quiet", "--release", "--package", "rategate-fleet"]);
    command.args(["--example", "fleet", "--", "crowd"]);
    cargo::run(&mut command, "a bound does not hold")
}
