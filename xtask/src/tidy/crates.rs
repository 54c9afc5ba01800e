//! Compares the import table of ARCHITECTURE.md with the dependencies that cargo sees.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use cargo_metadata::DependencyKind;

use crate::tools::Workspace;

/// The first cell of the table's header, by which the table is found.
const TABLE_MARK: &str = "may import ->";

/// The core depends on nothing but others' atomics in place of its own, unless a feature asks for
/// more.
const CORE: &str = "rategate-core";
const ATOMICS: [&str; 2] = ["loom", "portable-atomic"];

/// Compares every dependency between two crates of the workspace with the table.
pub(super) fn errors(at: &Workspace) -> Result<Vec<String>> {
    let table = table(&at.read_file("ARCHITECTURE.md")?).context("ARCHITECTURE.md")?;
    let packages = at.metadata.workspace_packages();
    let (mut errors, mut edges) = (Vec::new(), 0);
    for package in &packages {
        let from = package.name.as_str();
        for dependency in &package.dependencies {
            let to = dependency.name.as_str();
            let in_tests = dependency.kind == DependencyKind::Development;
            if packages.iter().any(|other| other.name.as_str() == to) {
                edges += 1;
                let cell = table.get(&(from.to_owned(), to.to_owned())).map(String::as_str);
                if cell != Some("yes") && !(cell == Some("tests only") && in_tests) {
                    let kind = if in_tests { "dev-depends" } else { "depends" };
                    let rule = "which the import table of ARCHITECTURE.md does not allow";
                    errors.push(format!("{from} {kind} on {to}, {rule}"));
                }
            } else if from == CORE && !ATOMICS.contains(&to) && !in_tests && !dependency.optional {
                errors.push(format!("{CORE} depends on {to}; it may do so by a feature only"));
            }
        }
    }
    println!("tidy: {edges} imports between our crates against ARCHITECTURE.md");
    Ok(errors)
}

/// Reads the table of who may import whom. Imports that it does not name are not allowed.
fn table(markdown: &str) -> Result<BTreeMap<(String, String), String>> {
    let mut lines = markdown
        .lines()
        .map(cells_of)
        .skip_while(|cells| cells.first().is_none_or(|first| first != TABLE_MARK));
    let header =
        lines.next().with_context(|| format!("no table whose first cell is `{TABLE_MARK}`"))?;
    let mut table = BTreeMap::new();
    // The line after the header only draws a rule.
    for row in lines.skip(1).take_while(|cells| !cells.is_empty()) {
        for from in row[0].split(", ") {
            for (to, cell) in header.iter().zip(&row).skip(1) {
                let is_known = ["yes", "tests only", "", "–"].contains(&cell.as_str());
                ensure!(is_known, "import table: `{cell}` in the row of {from}");
                table.insert((full_name(from), full_name(to)), cell.clone());
            }
        }
    }
    Ok(table)
}

/// Returns the cells of a table row; none for any other line.
fn cells_of(line: &str) -> Vec<String> {
    let line = line.trim();
    let Some(inner) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
        return Vec::new();
    };
    inner.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
}

/// Returns the full name of a crate: `core` is short for `rategate-core`, while `rategate` and
/// `xtask` are themselves.
fn full_name(short: &str) -> String {
    let is_whole = matches!(short, "rategate" | "xtask");
    if is_whole { short.to_owned() } else { format!("rategate-{short}") }
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn reads_rows_of_one_crate_and_of_two() {
        let text = "text\n\n| may import -> | core | rategate |\n|---|---|---|\n\
                    | core | – | tests only |\n| redis, tower | yes | |\n\n| other | table |\n";
        let cells = table(text).unwrap();
        for (from, to, cell) in [
            ("rategate-core", "rategate", Some("tests only")),
            ("rategate-tower", "rategate-core", Some("yes")),
            ("rategate-redis", "rategate", Some("")),
            ("rategate-cli", "rategate-core", None),
        ] {
            assert_eq!(cells.get(&(from.into(), to.into())).map(String::as_str), cell, "{from}");
        }
        assert!(table("no table here").is_err());
        assert!(table("| may import -> | core |\n|-|-|\n| sim | maybe |").is_err());
    }
}
