//! The tapes of scenarios, for players in other languages. docs/conformance.md has their format.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cargo::{cargo, run};

const EXAMPLE: &[&str] =
    &["run", "--quiet", "--package", "rategate-testkit", "--example", "tapes", "--"];

/// Writes the tapes anew, so that none stays of a scenario that is gone.
pub(crate) fn write(root: &Path, target: &Path) -> Result<()> {
    let folder = target.join("tapes");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(&folder)?;
    let mut command = cargo(root);
    command.args(EXAMPLE).arg("testdata/scenarios").arg(&folder);
    run(&mut command, "the tapes could not be written")
}
