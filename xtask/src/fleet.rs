//! A million simulated fleets with reservations: too many for the tests, which run fewer.

use std::path::Path;

use anyhow::Result;

use crate::cargo::{self, cargo};

/// Runs the simulations in release mode. They print what happened, and fail if a law does not hold.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut command = cargo(root);
    command.args(["run", "--quiet", "--release", "--package", "rategate-testkit"]);
    command.args(["--example", "fleet", "--", "reservations", "1000000"]);
    cargo::run(&mut command, "a law does not hold")
}
