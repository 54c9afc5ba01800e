//! Commands of the cargo that runs this program, and of others.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Returns a command of cargo in a folder.
pub(crate) fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(folder);
    command
}

/// Runs a command, and fails with this error unless it succeeds.
pub(crate) fn run(command: &mut Command, failure: &str) -> Result<()> {
    let status = command.status();
    let status = status.with_context(|| format!("start {}", command.get_program().display()))?;
    ensure!(status.success(), "{failure}");
    Ok(())
}
