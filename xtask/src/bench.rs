//! The table of speeds: one process measures ours, the rivals and the machine. This module prints
//! the table and writes it to the page.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

pub(crate) mod downstream;
mod figure;
mod rivals;
pub(crate) mod serve;
pub(crate) mod store;
pub(crate) mod tokens;

use self::figure::{figure, goal};
use crate::cargo::{self, cargo};
use crate::page::{Page, table};

/// The page of the tables.
const PAGE: &str = "docs/performance.md";
/// The name of the page's block.
const NAME: &str = "cargo xtask bench";

const HEADER: [&str; 6] = ["path", "threads", "ours", "rival", "ratio (least)", "machine's floor"];
/// The header of the table of keyed limits, which have goals.
const KEYED_HEADER: [&str; 7] =
    ["path", "threads", "ours", "rival", "ratio (least)", "machine's floor", "goal"];

/// Measures, prints the table, and writes it to `bench.json` in cargo's target folder and to the
/// page.
pub(crate) fn run(root: &Path, target: &Path, quick: bool) -> Result<()> {
    // Reads the page first: measuring takes a minute, and a page without marks would waste it.
    let page = Page::read(root, PAGE, NAME)?;
    let json = measure(root, quick)?;
    let report: Value = serde_json::from_str(&json).context("parse the output of the benches")?;
    write(root, &page, &block(&report)?, &target.join("bench.json"), &json)
}

/// Prints the block and writes it to the page, and writes its source to a file.
fn write(root: &Path, page: &Page, block: &str, file: &Path, json: &str) -> Result<()> {
    print!("{block}");
    fs::write(file, json).with_context(|| file.display().to_string())?;
    fs::write(root.join(PAGE), page.with(block))?;
    println!("\nwritten to {} and {PAGE}", file.display());
    Ok(())
}

fn measure(root: &Path, quick: bool) -> Result<String> {
    let mut command = cargo(root);
    command.args(["run", "--quiet", "--release", "--package", "rategate-bench-rivals", "--"]);
    command.args(quick.then_some("--quick")).stderr(Stdio::inherit());
    let output = command.output().context("start cargo")?;
    ensure!(output.status.success(), "the benches failed");
    Ok(String::from_utf8(output.stdout)?)
}

/// A program of the benches that starts servers, and ends with this process.
struct Program {
    command: Command,
    /// The folder of the servers' files. Remains of an interrupted run are removed with it.
    scratch: PathBuf,
}

impl Program {
    /// Builds the program of a part, and ours, which it measures.
    fn build(root: &Path, target: &Path, part: &str) -> Result<Self> {
        let mut build = cargo(root);
        // Built together, so that nothing is compiled twice.
        build.args(["build", "--quiet", "--release", "--bins", "--example", "access_log"]);
        build.args(["--package", "rategate-cli", "--package", "rategate-analyze"]);
        build.args(["--package", "rategate-bench"]);
        build.arg("--features").arg(format!("rategate-bench/{part}"));
        cargo::run(&mut build, "the benches do not build")?;
        let release = target.join("release");
        let scratch = release.join("bench-scratch");
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
        let mut command = Command::new(release.join(format!("rategate-bench-{part}")));
        // The child ends when its stdin closes: with this process, however that ends.
        command.arg("--with-parent").stdin(Stdio::piped()).env("TMPDIR", &scratch);
        Ok(Self { command, scratch })
    }

    /// Runs it, and returns what it printed.
    fn json(mut self) -> Result<String> {
        self.command.stdout(Stdio::piped());
        let output = self.end()?;
        ensure!(output.status.success(), "the benches failed");
        Ok(String::from_utf8(output.stdout)?)
    }

    fn end(mut self) -> Result<Output> {
        let mut child = self.command.spawn().context("start the benches")?;
        let _open = child.stdin.take();
        let output = child.wait_with_output()?;
        let _ = fs::remove_dir_all(&self.scratch);
        Ok(output)
    }
}

/// Returns the block of the page: the machine and the tables.
fn block(report: &Value) -> Result<String> {
    let machine = report["machine"].as_str().context("no machine")?;
    let kind = if report["quick"] == true { "a quick run" } else { "a full run" };
    let Some(rows) = report["rows"].as_array() else { bail!("no rows") };
    let Some(keyed) = report["keyed"].as_array() else { bail!("no rows of keys") };
    let cells: Vec<[String; 6]> = rows.iter().map(row).collect();
    let keyed: Vec<[String; 7]> = keyed.iter().map(row_with_goal).collect();
    Ok(format!(
        "{machine}; {kind}, the median of {} rounds.\n\n{}\nA limit for each key:\n\n{}",
        report["rounds"],
        table(HEADER, &cells),
        table(KEYED_HEADER, &keyed)
    ))
}

fn row_with_goal(of: &Value) -> [String; 7] {
    let [path, threads, ours, rival, ratio, floor] = row(of);
    [path, threads, ours, rival, ratio, floor, goal(&of["goal"])]
}

fn row(row: &Value) -> [String; 6] {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ratio = match (row["ratio"].as_f64(), row["least_ratio"].as_f64()) {
        (Some(median), Some(min)) => format!("{median:.2} ({min:.2})"),
        (Some(median), None) => format!("{median:.2}"),
        _ => "–".to_owned(),
    };
    let [ours, rival, mut floor] = ["ours", "rival", "floor"].map(|who| figure(row, who));
    if let Some(times) = row["floor_ratio"].as_f64() {
        floor = format!("{floor}, {times:.1} times");
    }
    [text(&row["path"]), threads(row), ours, rival, ratio, floor]
}

/// Returns the number of threads, and the part of the time they ran if that is not nearly all of
/// it.
fn threads(row: &Value) -> String {
    match row["running"].as_f64() {
        Some(running) if running < 0.95 => {
            format!("{} for {:.0} %", row["threads"], running * 100.0)
        }
        _ => row["threads"].to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::block;

    #[test]
    fn a_row_of_each_kind() {
        let timed = |name: &str, granted: f64| {
            json!({
                "name": name, "ns": 9.52, "per_s": 1e8, "granted": granted,
            })
        };
        let paced = json!({
            "name": "p", "achieved": 0.99996, "late_p50_ns": 60_000, "late_p90_ns": 2_100_000,
            "cpu": 0.031,
        });
        let report = json!({
            "machine": "a machine", "quick": true, "rounds": 11,
            "rows": [
                { "path": "machine", "threads": 1, "floor": timed("one add", 1.0) },
                { "path": "try denied", "threads": 2, "running": 0.5,
                  "ours": timed("gcra", 0.0), "rival": timed("r", 0.5),
                  "ratio": 0.5, "least_ratio": 0.25,
                  "floor": timed("one counter", 1.0), "floor_ratio": 1.0 },
                { "path": "pace 100/s", "threads": 1, "ours": paced, "rival": null, "ratio": null },
                { "path": "1 M tasks", "threads": 1,
                  "ours": { "name": "o", "took": 1.004, "out_of_order": 0, "bytes": 40.1 },
                  "rival": { "name": "r", "took": 2.0, "out_of_order": 7 }, "ratio": 0.5 },
            ],
            "keyed": [
                { "path": "10 M keys", "threads": 1, "ours": timed("keyed", 1.0),
                  "rival": timed("r", 1.0), "ratio": 0.25,
                  "goal": { "most": 0.2, "measured": 0.25, "unit": "" } },
                { "path": "two over one", "threads": 2, "ours": { "name": "keyed", "times": 1.9 },
                  "goal": { "least": 1.8, "measured": 1.9, "unit": "" } },
                { "path": "bytes", "threads": 1, "ours": { "name": "keyed", "bytes_each": 21.08 },
                  "rival": { "name": "r", "bytes": 80_000_000 },
                  "goal": { "most": 22.0, "measured": 21.08, "unit": "bytes" } },
                { "path": "longest call", "threads": 1,
                  "ours": { "name": "keyed", "longest_ns": 250_000, "p99999_ns": 2_000 },
                  "goal": { "most": 200_000.0, "measured": -10.0, "unit": "ns beyond" } },
                { "path": "known keys", "threads": 1,
                  "ours": { "name": "kept", "kept": 9, "of": 10 },
                  "goal": { "least": 10.0, "measured": 9.0, "unit": "keys" } },
            ],
        });
        let block = block(&report).unwrap();
        for cell in [
            "a machine; a quick run, the median of 11 rounds.\n\n| path ",
            "| one add 9.5 ns ",
            "| 2 for 50 % | gcra 9.5 ns, 100.0 M/s | r 9.5 ns, 100.0 M/s (50 % granted) \
             | 0.50 (0.25) | one counter 9.5 ns, 100.0 M/s, 1.0 times |",
            "| p 1.0000, late 60 µs/2.1 ms, CPU 0.03 | – ",
            "| o 1.00 s, in order, 40 bytes each | r 2.00 s, up to 7 places out of order | 0.50 |",
            "| keyed 9.5 ns | r 9.5 ns | 0.25 | – | ≤ 0.20, missed: 0.25 |",
            "| keyed 1.90 times | – | – | – | ≥ 1.80, met |",
            "| keyed 21.1 bytes each | r 80.0 MB | – | – | ≤ 22 bytes, met |",
            "| keyed 250 µs, 99.999 % within 2 µs | – | – | – | ≤ 200 µs beyond, met |",
            "| kept 9 of 10 | – | – | – | ≥ 10 keys, missed: 9 keys |",
        ] {
            let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(squeezed(&block).contains(&squeezed(cell)), "{cell} is missing in\n{block}");
        }
    }
}
