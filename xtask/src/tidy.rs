//! Rules that no compiler checks: who may import whom, where clocks are read, what no file may
//! contain, which commands documents may name.

mod commands;
mod fence;
mod imports;
mod language;
mod sizes;
mod words;

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::source;

/// Checks every rule, prints what was checked, and fails with all the errors at once.
pub(crate) fn run(root: &Path) -> Result<()> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .no_deps()
        .current_dir(root)
        .exec()
        .context("cargo metadata")?;
    let files = source::repository(root)?;

    let mut report = Report::default();
    imports::check(root, &metadata, &mut report);
    fence::core(&files, &metadata, &mut report);
    fence::clocks_and_waits(&files, &mut report);
    fence::protocol(&files, &metadata, &mut report);
    fence::oldest_compiler(&files, &metadata, &mut report);
    words::check(&files, &mut report);
    language::check(&files, &mut report);
    commands::check(&files, &mut report);
    sizes::print(&files);

    if report.errors.is_empty() {
        return Ok(());
    }
    for error in &report.errors {
        println!("tidy: ERROR {error}");
    }
    bail!("tidy found {} error(s)", report.errors.len())
}

/// The errors that the rules have found so far.
#[derive(Debug, Default)]
struct Report {
    errors: Vec<String>,
}

impl Report {
    fn error(&mut self, error: impl Into<String>) {
        self.errors.push(error.into());
    }

    /// Prints what was checked. A rule that had nothing to check shows it by its counts.
    fn checked(what: &str) {
        println!("tidy: {what}");
    }
}
