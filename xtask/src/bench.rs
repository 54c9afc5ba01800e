//! The table of speeds: one process measures ours, the rivals and the machine; here it is printed
//! and written down.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The page that holds the table, between two marks.
const PAGE: &str = "docs/performance.md";
const BEGIN: &str = "<!-- written by cargo xtask bench: begin -->\n";
const END: &str = "<!-- written by cargo xtask bench: end -->\n";

const HEADER: [&str; 6] = ["path", "threads", "ours", "rival", "ratio (least)", "machine's floor"];

/// Measures, prints the table, and writes it to `bench.json` in cargo's target folder and to the
/// page.
pub(crate) fn run(root: &Path, target: &Path, quick: bool) -> Result<()> {
    // Before the minute that measuring takes.
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| PAGE.to_owned())?;
    let (before, after) = around_block(&page)?;
    let json = measure(root, quick)?;
    let report: Value = serde_json::from_str(&json).context("what the benches printed")?;
    let block = block(&report)?;
    print!("{block}");
    let file = target.join("bench.json");
    fs::write(&file, json).with_context(|| file.display().to_string())?;
    fs::write(root.join(PAGE), format!("{before}{BEGIN}\n{block}\n{END}{after}"))?;
    println!("\nwritten to {} and {PAGE}", file.display());
    Ok(())
}

fn measure(root: &Path, quick: bool) -> Result<String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root).stderr(Stdio::inherit());
    command.args(["run", "--quiet", "--release", "--package", "rategate-bench-rivals", "--"]);
    command.args(quick.then_some("--quick"));
    let output = command.output().context("start cargo")?;
    ensure!(output.status.success(), "the benches failed");
    Ok(String::from_utf8(output.stdout)?)
}

/// What stands before the marks, and what after.
fn around_block(page: &str) -> Result<(&str, &str)> {
    let around = page.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    around.with_context(|| format!("{PAGE} lacks the marks of the generated table"))
}

/// The machine and the table.
fn block(report: &Value) -> Result<String> {
    let machine = report["machine"].as_str().context("no machine")?;
    let kind = if report["quick"] == true { "a quick run" } else { "a full run" };
    let Some(rows) = report["rows"].as_array() else { bail!("no rows") };
    let cells: Vec<[String; 6]> = rows.iter().map(row).collect();
    Ok(format!(
        "{machine}; {kind}, the median of {} rounds.\n\n{}",
        report["rounds"],
        table(&cells)
    ))
}

fn row(row: &Value) -> [String; 6] {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ratio = match (row["ratio"].as_f64(), row["least_ratio"].as_f64()) {
        (Some(median), Some(least)) => format!("{median:.2} ({least:.2})"),
        (Some(median), None) => format!("{median:.2}"),
        _ => "–".to_owned(),
    };
    let [ours, rival, mut floor] = ["ours", "rival", "floor"].map(|who| figure(row, who));
    if let Some(times) = row["floor_ratio"].as_f64() {
        floor = format!("{floor}, {times:.1} times");
    }
    [text(&row["path"]), threads(row), ours, rival, ratio, floor]
}

/// How many, and which part of the time they ran, if that is not nearly all of it.
fn threads(row: &Value) -> String {
    match row["running"].as_f64() {
        Some(running) if running < 0.95 => {
            format!("{} for {:.0} %", row["threads"], running * 100.0)
        }
        _ => row["threads"].to_string(),
    }
}

/// `gcra 31 ns`, with calls a second where threads contend; or how well a rate was kept.
fn figure(row: &Value, who: &str) -> String {
    let figure = &row[who];
    let name = figure["name"].as_str().unwrap_or_default();
    if let Some(achieved) = figure["achieved"].as_f64() {
        let late = match (figure["late_p50_ns"].as_f64(), figure["late_p90_ns"].as_f64()) {
            (Some(half), Some(most)) => format!(", late {}/{}", span(half), span(most)),
            _ => String::new(),
        };
        let cpu = figure["cpu"].as_f64().unwrap_or(f64::NAN);
        return format!("{name} {achieved:.4}{late}, CPU {cpu:.2}");
    }
    if let Some(took_s) = figure["took"].as_f64() {
        let order = match figure["out_of_order"].as_u64() {
            Some(0) => "in order".to_owned(),
            Some(places) => format!("up to {places} places out of order"),
            None => "in what order is not known".to_owned(),
        };
        let bytes = figure["bytes"].as_f64();
        let bytes = bytes.map_or_else(String::new, |bytes| format!(", {bytes:.0} bytes each"));
        return format!("{name} {took_s:.2} s, {order}{bytes}");
    }
    let Some(ns) = figure["ns"].as_f64() else { return "–".to_owned() };
    let together = match (row["threads"].as_u64(), figure["per_s"].as_f64()) {
        (Some(2..), Some(per_s)) => format!(", {:.1} M/s", per_s / 1e6),
        _ => String::new(),
    };
    let broken = broken(row, who).map_or_else(String::new, |part| format!(" ({part})"));
    format!("{name} {ns:.1} ns{together}{broken}")
}

/// A path's name says whether its calls are granted; a figure for anything else is none.
fn broken(row: &Value, who: &str) -> Option<String> {
    let granted = row[who]["granted"].as_f64()?;
    let denying = row["path"].as_str().is_some_and(|path| path.contains("denied"));
    // The machine's own steps always succeed.
    let expected = if denying && who != "floor" { 0.0 } else { 1.0 };
    ((granted - expected).abs() > 0.001).then(|| format!("{:.0} % granted", granted * 100.0))
}

fn span(ns: f64) -> String {
    if ns < 1e3 {
        format!("{ns:.0} ns")
    } else if ns < 1e6 {
        format!("{:.0} µs", ns / 1e3)
    } else {
        format!("{:.1} ms", ns / 1e6)
    }
}

/// A table that reads well as Markdown and as text.
fn table(rows: &[[String; 6]]) -> String {
    let header = HEADER.map(str::to_owned);
    let widths: [usize; 6] = std::array::from_fn(|column| {
        let cells = rows.iter().chain([&header]).map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    });
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!(" {cell:<width$} |"));
        format!("|{}\n", cells.collect::<String>())
    };
    let rule = widths.map(|width| "-".repeat(width + 2)).join("|");
    format!("{}|{rule}|\n{}", line(&header), rows.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{BEGIN, END, around_block, block};

    #[test]
    fn only_the_block_is_replaced() {
        let page = format!("# Title\n\n{BEGIN}old\n{END}\nmore\n");
        assert_eq!(around_block(&page).unwrap(), ("# Title\n\n", "\nmore\n"));
        assert!(around_block(BEGIN).is_err());
    }

    #[test]
    fn a_row_of_each_kind() {
        let timed = |name: &str, granted: f64| json!({ "name": name, "ns": 9.52, "per_s": 1e8, "granted": granted });
        let paced = json!({ "name": "p", "achieved": 0.99996, "late_p50_ns": 60_000, "late_p90_ns": 2_100_000, "cpu": 0.031 });
        let report = json!({
            "machine": "a machine", "quick": true, "rounds": 11,
            "rows": [
                { "path": "machine", "threads": 1, "floor": timed("one add", 1.0) },
                { "path": "try denied", "threads": 2, "running": 0.5, "ours": timed("gcra", 0.0), "rival": timed("r", 0.5),
                  "ratio": 0.5, "least_ratio": 0.25, "floor": timed("one counter", 1.0), "floor_ratio": 1.0 },
                { "path": "pace 100/s", "threads": 1, "ours": paced, "rival": null, "ratio": null },
                { "path": "1 M tasks", "threads": 1, "ours": { "name": "o", "took": 1.004, "out_of_order": 0, "bytes": 40.1 },
                  "rival": { "name": "r", "took": 2.0, "out_of_order": 7 }, "ratio": 0.5 },
            ],
        });
        let block = block(&report).unwrap();
        for cell in [
            "a machine; a quick run, the median of 11 rounds.\n\n| path ",
            "| one add 9.5 ns ",
            "| 2 for 50 % | gcra 9.5 ns, 100.0 M/s | r 9.5 ns, 100.0 M/s (50 % granted) | 0.50 (0.25) \
             | one counter 9.5 ns, 100.0 M/s, 1.0 times |",
            "| p 1.0000, late 60 µs/2.1 ms, CPU 0.03 | – ",
            "| o 1.00 s, in order, 40 bytes each | r 2.00 s, up to 7 places out of order | 0.50 |",
        ] {
            let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(squeezed(&block).contains(&squeezed(cell)), "{cell} is missing in\n{block}");
        }
    }
}
