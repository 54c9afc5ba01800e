//! The table of a program: printed, and with `--write` put into `docs/performance.md`.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, thread};

use crate::Made;
use crate::process::Busy;

/// The page, relative to this package.
const PAGE: &str = "../docs/performance.md";

/// The words that the program was started with.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// Measure shortly, to see that it works.
    pub quick: bool,
    write: bool,
}

impl Arguments {
    /// Reads those of this process.
    pub fn read() -> Made<Self> {
        let mut read = Self { quick: false, write: false };
        for argument in env::args().skip(1) {
            match argument.as_str() {
                "--quick" => read.quick = true,
                "--write" => read.write = true,
                other => return Err(format!("only --quick and --write are known: {other}").into()),
            }
        }
        Ok(read)
    }
}

/// A table in the making.
#[derive(Debug)]
pub struct Report {
    arguments: Arguments,
    name: String,
    rows: Vec<Vec<String>>,
    busy: Busy,
}

impl Report {
    /// Begins the table of this program.
    pub fn new(arguments: &Arguments, name: &str, header: &[&str]) -> Self {
        let header = header.iter().map(|&cell| cell.to_owned()).collect();
        let (arguments, name) = (arguments.clone(), name.to_owned());
        Self { arguments, name, rows: vec![header], busy: Busy::begin() }
    }

    /// Adds a row, and says on stderr that it is measured.
    pub fn row(&mut self, cells: &[&str]) {
        eprintln!("{}", cells.join(" | "));
        self.rows.push(cells.iter().map(|&cell| cell.to_owned()).collect());
    }

    /// Prints the table, and writes it to the page if that was asked for.
    pub fn end(self) -> Made<()> {
        let block = self.block();
        println!("{block}");
        if !self.arguments.write {
            return Ok(());
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
        let page = fs::read_to_string(&path)?;
        let [begin, end] = ["begin", "end"]
            .map(|mark| format!("<!-- written by cargo xtask bench, {}: {mark} -->\n", self.name));
        let around = page.split_once(&begin).and_then(|(before, rest)| {
            let (_, after) = rest.split_once(&end)?;
            Some((before, after))
        });
        let (before, after) = around.ok_or_else(|| format!("no {begin} in {PAGE}"))?;
        Ok(fs::write(path, format!("{before}{begin}\n{block}\n{end}{after}"))?)
    }

    fn block(&self) -> String {
        let kind = if self.arguments.quick { "a quick run" } else { "a full run" };
        let mut text = format!(
            "{}; {kind}, while others took {:.1} % of the machine.\n\n",
            machine(),
            self.busy.of_others() * 100.0
        );
        let columns = self.rows.first().map_or(0, Vec::len);
        let width_of = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width_of).collect();
        for (index, row) in self.rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(text, "| {cell:<width$} ");
            }
            text.push_str("|\n");
            if index == 0 {
                for width in &widths {
                    let _ = write!(text, "|{}", "-".repeat(width + 2));
                }
                text.push_str("|\n");
            }
        }
        text
    }
}

/// Returns the processor's name as the system reports it, and the number of cores available.
fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let name = name.map_or(env::consts::ARCH, |(_, name)| name);
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{name}, {cores} cores, {}", env::consts::OS)
}

/// Formats a time.
pub fn span(ns: f64) -> String {
    match ns {
        ..1e2 => format!("{ns:.1} ns"),
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.1} µs", ns / 1e3),
        ..1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// Formats a number of calls in a second.
pub fn rate(per_s: f64) -> String {
    match per_s {
        ..1e3 => format!("{per_s:.0}/s"),
        ..1e6 => format!("{:.1} k/s", per_s / 1e3),
        _ => format!("{:.2} M/s", per_s / 1e6),
    }
}
