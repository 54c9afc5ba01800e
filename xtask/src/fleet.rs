//! Simulations of fleets: a crowd of nodes, and a million runs with reservations. Both are too many
//! for the tests, which run shorter ones.

use std::path::Path;

use anyhow::Result;

use crate::cargo::{self, cargo};

/// Runs the simulations in release mode. They print what happened, and fail if a law does not hold.
pub(crate) fn run(root: &Path) -> Result<()> {
    for play in ["crowd", "reservations"] {
        let mut command = cargo(root);
        command.args(["run", "--quiet", "--release", "--package", "rategate-testkit"]);
        command.args(["--example", "fleet", "--", play]);
        cargo::run(&mut command, "a bound does not hold")?;
    }
    Ok(())
}
