//! The table of limits over many machines: one process starts servers and nodes and measures
//! them, and this module prints and writes the table.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::figure::{amount, goal};
use super::{PAGE, Program, write};
use crate::page::{Page, table};

/// The name of the page's block.
const NAME: &str = "cargo xtask bench redis";

pub(super) const HEADER: [&str; 4] = ["path", "measured", "compared with", "goal"];

/// Measures, prints the table, and writes it to `bench-redis.json` in cargo's target folder and
/// to the page.
pub(crate) fn run(root: &Path, target: &Path, quick: bool) -> Result<()> {
    let page = Page::read(root, PAGE, NAME)?;
    let mut program = Program::build(root, target, "store")?;
    program.command.args(quick.then_some("--quick"));
    let json = program.json()?;
    let report: Value = serde_json::from_str(&json).context("parse the output of the benches")?;
    write(root, &page, &block(&report)?, &target.join("bench-redis.json"), &json)
}

/// Returns the block of the page: the machine and the table.
pub(super) fn block(report: &Value) -> Result<String> {
    let machine = report["machine"].as_str().context("no machine")?;
    let kind = if report["quick"] == true { "a quick run" } else { "a full run" };
    let Some(rows) = report["rows"].as_array() else { bail!("no rows") };
    let cells: Vec<[String; 4]> = rows.iter().map(row).collect();
    Ok(format!("{machine}; {kind}.\n\n{}", table(HEADER, &cells)))
}

pub(super) fn row(row: &Value) -> [String; 4] {
    let path = row["path"].as_str().unwrap_or_default().to_owned();
    [path, all(&row["measured"], figure), all(&row["beside"], figure), all(&row["goals"], aim)]
}

pub(super) fn all(of: &Value, show: fn(&Value) -> String) -> String {
    match of.as_array() {
        Some(many) if !many.is_empty() => many.iter().map(show).collect::<Vec<_>>().join("; "),
        _ => "–".to_owned(),
    }
}

/// Formats a figure: its name and its amount.
pub(super) fn figure(of: &Value) -> String {
    let name = of["name"].as_str().unwrap_or_default();
    let unit = of["unit"].as_str().unwrap_or_default();
    of["value"]
        .as_f64()
        .map_or_else(|| name.to_owned(), |value| format!("{name} {}", amount(value, unit)))
}

/// Formats a goal, with the name of its figure where that is not clear.
pub(super) fn aim(of: &Value) -> String {
    of["of"].as_str().map_or_else(|| goal(of), |name| format!("{name} {}", goal(of)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::block;

    #[test]
    fn a_row_of_each_kind() {
        let figure = |name: &str, value: f64, unit: &str| {
            json!({
                "name": name, "value": value, "unit": unit,
            })
        };
        let report = json!({
            "machine": "a machine", "quick": true,
            "rows": [
                { "path": "exact",
                  "measured": [figure("decisions", 152_600.0, "/s"),
                               figure("in a call", 47.42, "")],
                  "beside": [figure("others", 6_421_000.0, "/s")],
                  "goals": [{ "least": 10.0, "measured": 9.5, "unit": "times one call each" },
                            { "least": 1.5, "measured": 2.0, "unit": "times" }] },
                { "path": "a call",
                  "measured": [figure("p99", 2_040_000_000.0, "ns"), { "name": "no grant" }],
                  "beside": [],
                  "goals": [{ "of": "p99", "most": 25e6, "measured": 26_500_000.0,
                              "unit": "ns" }] },
                { "path": "over",
                  "measured": [figure("over", 3.0, "permits"), figure("used", 99.96, "%")],
                  "beside": [],
                  "goals": [{ "most": 0.0, "measured": 3.0, "unit": "permits" }] },
                { "path": "analyze",
                  "measured": [figure("took", 7.94, "s"), figure("memory", 2e7, "bytes")],
                  "beside": [],
                  "goals": [{ "least": 0.4, "measured": 0.375, "unit": "ratio" },
                            { "most": 20.0, "measured": 7.94, "unit": "s a GB" }] },
            ],
        });
        let block = block(&report).unwrap();
        for cell in [
            "a machine; a quick run.\n\n| path ",
            "| exact   | decisions 152.6 k/s; in a call 47.4 ",
            "| others 6.42 M/s \
             | ≥ 10.0 times one call each, missed: 9.5 times one call each; ≥ 1.5 times, met |",
            "| p99 2.04 s; no grant ",
            "| p99 ≤ 25.0 ms, missed: 26.5 ms ",
            "| over 3 permits; used 100.0 % ",
            "| ≤ 0 permits, missed: 3 permits ",
            "| took 7.9 s; memory 20.0 MB ",
            "| ≥ 0.40, missed: 0.38; ≤ 20.0 s a GB, met ",
        ] {
            assert!(block.contains(cell), "{cell}\n{block}");
        }
    }
}
