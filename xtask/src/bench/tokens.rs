//! The table of token budgets: one process measures the engine and the service, and this module
//! prints and writes the table.

use std::path::Path;

use anyhow::{Context, Result};

use super::store::block;
use super::{PAGE, Program, serve, write};
use crate::page::Page;

/// The name of the page's block.
const NAME: &str = "cargo xtask bench tokens";

/// Measures, prints the table, and writes it to `bench-tokens.json` in cargo's target folder and
/// to the page.
pub(crate) fn run(root: &Path, target: &Path, arguments: &[&str]) -> Result<()> {
    let page = Page::read(root, PAGE, NAME)?;
    let mut program: Program = serve::build(root, target)?;
    program.command.args(arguments).arg("tokens");
    let json = program.json()?;
    let report = serde_json::from_str(&json).context("parse the output of the benches")?;
    write(root, &page, &block(&report)?, &target.join("bench-tokens.json"), &json)
}
