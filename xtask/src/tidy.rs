//! Rules that no compiler checks: who may import whom, where clocks are read, what no file may
//! contain, which commands documents may name, where their links lead.

pub(crate) mod chapters;
mod commands;
mod fence;
mod imports;
mod language;
pub(crate) mod links;
mod sizes;
mod tests_named;
mod words;

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::source::{self, File};

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
    fence::check(&files, &metadata, &mut report);
    fence::oldest_compiler(&files, &metadata, &mut report);
    words::check(&files, &mut report);
    language::check(&files, &mut report);
    commands::check(&files, &mut report);
    tests_named::check(&files, &mut report);
    links::check(&files, &mut report);
    chapters::check(&files, &mut report);
    sizes::print(&files);
    report.finish()
}

/// Checks the rules about documents alone: their links, and the chapters of the book.
pub(crate) fn documents(files: &[File]) -> Result<()> {
    let mut report = Report::default();
    links::check(files, &mut report);
    chapters::check(files, &mut report);
    report.finish()
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

    /// Prints the errors, and fails if there are any.
    fn finish(self) -> Result<()> {
        for error in &self.errors {
            println!("tidy: ERROR {error}");
        }
        ensure!(self.errors.is_empty(), "tidy found {} error(s)", self.errors.len());
        Ok(())
    }

    /// Prints what was checked. A rule that had nothing to check shows it by its counts.
    fn checked(what: &str) {
        println!("tidy: {what}");
    }
}
