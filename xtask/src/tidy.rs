//! Rules that no compiler checks: which crates may import which, and that the modules of a crate
//! import each other in no circle.

mod crates;
mod modules;

use anyhow::{Result, ensure};

use crate::tools::Workspace;

/// Checks both rules, prints what was checked, and fails with all the errors at once.
pub(crate) fn run(at: &Workspace) -> Result<()> {
    let mut errors = crates::errors(at)?;
    errors.extend(modules::errors(at)?);
    for error in &errors {
        println!("tidy: ERROR {error}");
    }
    ensure!(errors.is_empty(), "tidy found {} error(s)", errors.len());
    Ok(())
}
