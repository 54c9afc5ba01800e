//! Compares the import table of ARCHITECTURE.md with the dependencies that cargo sees.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use cargo_metadata::DependencyKind;

use crate::tools::Workspace;

/// The first cell of the table's header, by which the table is found.
const TABLE_MARK: &str = "may import ->";

/// The core depends on nothing but the model checker in place of its atomics.
const CORE: &str = "rategate-core";
const MODELS: &str = "loom";

/// Compares every dependency between two crates of the workspace with the table.
pub(super) fn errors(at: &Workspace) -> Result<Vec<String>> {
    let table = Table::parse(&at.read_file("ARCHITECTURE.md")?).context("ARCHITECTURE.md")?;
    let packages = at.metadata.workspace_packages();
    let (mut errors, mut edges) = (Vec::new(), 0);
    for package in &packages {
        let from = package.name.as_str();
        for dependency in &package.dependencies {
            let to = dependency.name.as_str();
            let in_tests = dependency.kind == DependencyKind::Development;
            if packages.iter().any(|other| other.name.as_str() == to) {
                edges += 1;
                let allowed = table.leave(from, to);
                if allowed == Leave::Never || (allowed == Leave::InTests && !in_tests) {
                    let kind = if in_tests { "dev-depends" } else { "depends" };
                    let rule = "which the import table of ARCHITECTURE.md does not allow";
                    errors.push(format!("{from} {kind} on {to}, {rule}"));
                }
            } else if from == CORE && to != MODELS && !in_tests {
                errors.push(format!("{CORE} depends on {to}; it must have no dependencies"));
            }
        }
    }
    println!("tidy: {edges} imports between our crates against ARCHITECTURE.md");
    Ok(errors)
}

/// The permission that a cell grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    Never,
    InTests,
    Always,
}

/// The table of who may import whom. Imports that it does not name are not allowed.
#[derive(Debug, Default)]
struct Table {
    cells: BTreeMap<(String, String), Leave>,
}

impl Table {
    fn parse(markdown: &str) -> Result<Self> {
        let mut lines = markdown
            .lines()
            .map(cells_of)
            .skip_while(|cells| cells.first().is_none_or(|first| first != TABLE_MARK));
        let header =
            lines.next().with_context(|| format!("no table whose first cell is `{TABLE_MARK}`"))?;
        let mut table = Self::default();
        // The line after the header only draws a rule.
        for row in lines.skip(1).take_while(|cells| !cells.is_empty()) {
            for from in row[0].split(", ") {
                for (to, cell) in header.iter().zip(&row).skip(1) {
                    let leave = match cell.as_str() {
                        "yes" => Leave::Always,
                        "tests only" => Leave::InTests,
                        "" | "–" | "—" | "-" => Leave::Never,
                        other => bail!("import table: `{other}` in the row of {from}"),
                    };
                    table.cells.insert((full_name(from), full_name(to)), leave);
                }
            }
        }
        Ok(table)
    }

    fn leave(&self, from: &str, to: &str) -> Leave {
        let cell = self.cells.get(&(from.to_owned(), to.to_owned()));
        cell.copied().unwrap_or(Leave::Never)
    }
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
    use super::{Leave, Table};

    #[test]
    fn reads_rows_of_one_crate_and_of_two() {
        let table = "text\n\n| may import -> | core | rategate |\n|---|---|---|\n\
                     | core | – | tests only |\n| redis, tower | yes | |\n\n| other | table |\n";
        let table = Table::parse(table).unwrap();
        assert_eq!(table.leave("rategate-core", "rategate"), Leave::InTests);
        assert_eq!(table.leave("rategate-tower", "rategate-core"), Leave::Always);
        assert_eq!(table.leave("rategate-redis", "rategate"), Leave::Never);
        assert_eq!(table.leave("rategate-cli", "rategate-core"), Leave::Never);
        assert!(Table::parse("no table here").is_err());
        assert!(Table::parse("| may import -> | core |\n|-|-|\n| sim | maybe |").is_err());
    }
}
