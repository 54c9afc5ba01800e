//! The check of the licences and the sources of all dependencies, by cargo-deny and `deny.toml`.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::cargo;
use crate::servers::packages;

/// The version of cargo-deny, which is built once into cargo's target folder.
const VERSION: &str = "0.20.2";

/// Runs the checks that need no network: known vulnerabilities are not among them.
pub(crate) fn run(root: &Path, target: &Path) -> Result<()> {
    let program = packages::crates(&target.join("deny"), "cargo-deny", VERSION)?;
    let mut deny = Command::new(program);
    deny.current_dir(root).args(["--all-features", "check", "--hide-inclusion-graph"]);
    deny.args(["bans", "licenses", "sources"]);
    cargo::run(&mut deny, "a dependency is not allowed")
}
