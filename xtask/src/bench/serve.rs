//! The tables of the service: one process starts servers and sends requests, and this module
//! prints and writes the tables. The same process also runs as an attacker.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::figure::{amount, span};
use super::{PAGE, Program, rivals, store, write};
use crate::page::{Page, table};
use crate::servers;

/// The name of the page's block.
const NAME: &str = "cargo xtask bench serve";

const HEADER: [&str; 10] =
    ["path", "who", "decisions", "CPU", "p50", "p99", "p99.9", "let pass", "others, pause", "goal"];

/// Measures, prints the tables, and writes them to `bench-serve.json` in cargo's target folder
/// and to the page. If parts are named, it only prints.
pub(crate) fn run(root: &Path, target: &Path, arguments: &[&str]) -> Result<()> {
    let page = Page::read(root, PAGE, NAME)?;
    servers::redis()?;
    let rivals = rivals::install(target)?;
    let mut program = build(root, target)?;
    program.command.arg("--rivals").arg(rivals).args(arguments);
    let json = program.json()?;
    let block = block(&serde_json::from_str(&json).context("parse the output of the benches")?)?;
    if arguments.iter().any(|argument| *argument != "--quick") {
        print!("{block}");
        return Ok(());
    }
    write(root, &page, &block, &target.join("bench-serve.json"), &json)
}

/// Attacks a service for some seconds, and fails if it does not withstand them.
pub(crate) fn abuse(root: &Path, target: &Path, seconds: &str) -> Result<()> {
    let seconds: u64 = seconds.parse().context("abuse takes whole seconds")?;
    let mut program = build(root, target)?;
    program.command.args(["abuse", &seconds.to_string()]);
    ensure!(program.end()?.status.success(), "the service did not withstand the attack");
    Ok(())
}

pub(super) fn build(root: &Path, target: &Path) -> Result<Program> {
    let mut program = Program::build(root, target, "serve")?;
    program.command.arg("--ours").arg(target.join("release").join("rategate"));
    Ok(program)
}

/// Returns the block of the page: the machine and the tables.
fn block(report: &Value) -> Result<String> {
    let machine = report["machine"].as_str().context("no machine")?;
    let kind = if report["quick"] == true { "a quick run" } else { "a full run" };
    let (rounds, seconds) = (&report["rounds"], &report["round_s"]);
    let (Some(speeds), Some(rows)) = (report["speeds"].as_array(), report["rows"].as_array())
    else {
        bail!("no rows")
    };
    let speeds: Vec<[String; 10]> = speeds.iter().map(speed).collect();
    let rows: Vec<[String; 4]> = rows.iter().map(store::row).collect();
    Ok(format!(
        "{machine}; {kind}, {rounds} rounds of {seconds} s.\n\n{}\nAnd besides:\n\n{}",
        table(HEADER, &speeds),
        table(store::HEADER, &rows)
    ))
}

fn speed(of: &Value) -> [String; 10] {
    let text = |name: &str| of[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| of[name].as_f64().unwrap_or(f64::NAN);
    let mut cpu = format!("{:.2} µs", number("cpu_ns") / 1e3);
    if number("store_ns") > 0.0 {
        let _ = write!(cpu, " and the store {:.2} µs", number("store_ns") / 1e3);
    }
    let _ = write!(cpu, ", {:.0} %", number("used") * 100.0);
    let mut decisions = amount(number("per_s"), "/s");
    for kind in ["denied", "failed"] {
        if number(kind) > 0.0 {
            let _ = write!(decisions, ", {} {kind}", of[kind]);
        }
    }
    let others = format!("{:.1}, {}", number("others"), span(number("pause_ns")));
    let [p50, p99, p999] = ["p50_ns", "p99_ns", "p999_ns"].map(|name| span(number(name)));
    let goals = store::all(&of["goals"], store::aim);
    [text("path"), text("who"), decisions, cpu, p50, p99, p999, passed(&of["exact"]), others, goals]
}

/// Formats `10000, exact`, or the number passed of the number expected.
fn passed(exact: &Value) -> String {
    match (exact["passed"].as_u64(), exact["expected"].as_u64(), exact["failed"].as_u64()) {
        (Some(passed), Some(expected), Some(0)) if passed == expected => format!("{passed}, exact"),
        (Some(passed), Some(expected), Some(0)) => format!("{passed} of {expected}"),
        (Some(passed), Some(expected), Some(failed)) => {
            format!("{passed} of {expected}, {failed} failed")
        }
        _ => "–".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::block;

    #[test]
    fn a_row_of_each_kind() {
        let report = json!({
            "machine": "a machine", "quick": false, "rounds": 7, "round_s": 2.0,
            "speeds": [
                { "path": "RESP", "who": "ours", "per_s": 1_050_000.0, "cpu_ns": 912.0,
                  "used": 0.96, "p50_ns": 970_000, "p99_ns": 1_200_000, "p999_ns": 4_000_000,
                  "others": 0.04, "pause_ns": 90_000, "denied": 0, "failed": 0,
                  "exact": { "passed": 10_000, "expected": 10_000, "failed": 0 },
                  "goals": [{ "least": 1.0, "measured": 1.05, "unit": "times INCR" },
                            { "of": "CPU", "most": 1.0, "measured": 1.2,
                              "unit": "times INCR's" }] },
                { "path": "RESP", "who": "another", "per_s": 50_000.0, "cpu_ns": 19_000.0,
                  "used": 0.95, "p50_ns": 1, "p99_ns": 2, "p999_ns": 3,
                  "others": 0.0, "pause_ns": 1, "denied": 3, "failed": 2,
                  "exact": { "passed": 17, "expected": 10, "failed": 1 }, "goals": [] },
            ],
            "rows": [{ "path": "memory",
                       "measured": [{ "name": "resident", "value": 55e6, "unit": "bytes" }],
                       "beside": [], "goals": [] }],
        });
        let block = block(&report).unwrap();
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for cell in [
            "a machine; a full run, 7 rounds of 2.0 s. | path ",
            "| ours | 1.05 M/s | 0.91 µs, 96 % | 970 µs | 1.2 ms | 4.0 ms | 10000, exact \
             | 0.0, 90 µs | ≥ 1.0 times INCR, met; CPU ≤ 1.0 times INCR's, \
             missed: 1.2 times INCR's |",
            "| 50.0 k/s, 3 denied, 2 failed |",
            "| 17 of 10, 1 failed |",
            "| memory | resident 55.0 MB | – | – |",
        ] {
            assert!(squeezed(&block).contains(&squeezed(cell)), "{cell} is missing in\n{block}");
        }
    }
}
