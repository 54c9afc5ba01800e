//! The table of docs/conformance.md: which engine plays which scenario file, as the tests of the
//! engines record it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::tools::Workspace;
use crate::{node, pictures, python};

const PAGE: &str = "docs/conformance.md";

/// The variable of `rategate_testkit::suite` with the folder of the records.
pub(crate) const RECORDS: &str = "RATEGATE_CONFORMANCE";

/// The engines: the name of the record, and the heading of the column.
const ENGINES: [(&str, &str); 11] = [
    ("ledger", "ledger"),
    ("limiter", "limiter"),
    ("memory", "memory"),
    ("redis", "Redis"),
    ("engine", "service"),
    ("http", "HTTP"),
    ("grpc", "gRPC"),
    ("resp", "RESP"),
    ("ffi", "ffi"),
    ("python", "Python"),
    ("node", "Node"),
];

/// The tests that record.
const TESTS: &str = "nextest run --workspace --all-features -E \
     test(/every_scenario|scenarios_play|_plays_the_scenarios|_as_the_files_say|every_tape_plays/)";

/// Runs the tests that play scenario files, and writes the table.
pub(crate) fn write(at: &Workspace) -> Result<()> {
    fresh_folder(at)?;
    at.cargo(TESTS).env(RECORDS, folder(at)?).run()?;
    python::run(at, true)?;
    node::run(at, true)?;
    Ok(at.write_file(PAGE, page(at)?)?)
}

/// Fails unless the table is what the records of all tests say.
pub(crate) fn check(at: &Workspace) -> Result<()> {
    let is_current = at.read_file(PAGE)? == page(at)?;
    ensure!(is_current, "the table of {PAGE} is out of date; run cargo xtask conformance");
    Ok(())
}

/// Empties the folder of the records.
pub(crate) fn fresh_folder(at: &Workspace) -> Result<()> {
    at.emptied("conformance").map(drop)
}

/// Returns the folder of the records, which exists.
pub(crate) fn folder(at: &Workspace) -> Result<PathBuf> {
    Ok(at.create_dir(at.target.join("conformance"))?)
}

/// Returns the page with the table, and the reasons to which its letters refer.
fn page(at: &Workspace) -> Result<String> {
    let mut columns = Vec::new();
    for (engine, _) in ENGINES {
        let record = at.read_file(folder(at)?.join(format!("{engine}.txt")));
        let record = record.with_context(|| format!("no test has recorded what {engine} plays"))?;
        columns.push(read(&record).with_context(|| engine)?);
    }
    pictures::with_block(&at.read_file(PAGE)?, "conformance", &block(&columns)?)
}

/// Reads a record: the reason for each file, which is empty if the file was played.
fn read(record: &str) -> Result<BTreeMap<String, String>> {
    let row = |line: &str| Some(line.split_once('\t')?).map(|(a, b)| (a.to_owned(), b.to_owned()));
    record.lines().map(|line| row(line).with_context(|| format!("no tab in `{line}`"))).collect()
}

fn block(columns: &[BTreeMap<String, String>]) -> Result<String> {
    let mut reasons: Vec<&str> = Vec::new();
    let headings = ENGINES.map(|(_, heading)| format!(" {heading} |")).concat();
    let mut block = format!("| file |{headings}\n|---|{}\n", "---|".repeat(ENGINES.len()));
    for name in columns[0].keys() {
        let _ = write!(block, "| {name} |");
        for (column, (engine, _)) in columns.iter().zip(ENGINES) {
            let reason = column.get(name).with_context(|| format!("{engine} lacks {name}"))?;
            if reason.is_empty() {
                block.push_str(" ✓ |");
                continue;
            }
            let known = reasons.iter().position(|known| known == reason);
            let number = known.unwrap_or_else(|| {
                reasons.push(reason);
                reasons.len() - 1
            });
            let _ = write!(block, " {} |", letter(number)?);
        }
        block.push('\n');
    }
    block.push('\n');
    for (number, reason) in reasons.iter().enumerate() {
        let _ = writeln!(block, "* {}: {reason}", letter(number)?);
    }
    Ok(block)
}

fn letter(number: usize) -> Result<char> {
    ('a'..='z').nth(number).context("more reasons than letters")
}

#[cfg(test)]
mod tests {
    use super::{ENGINES, block, read};

    #[test]
    fn each_reason_has_a_letter_and_a_missing_file_is_an_error() {
        let mut columns = vec![read("a\t\nb\t\n").unwrap(); ENGINES.len()];
        columns[1] = read("a\tno room\nb\t\n").unwrap();
        columns[2] = read("a\tno room\nb\tno time\n").unwrap();
        let table = block(&columns).unwrap();
        let rows: Vec<&str> = table.lines().collect();
        assert!(rows[2].starts_with("| a | ✓ | a | a | ✓ |"), "{table}");
        assert!(rows[3].starts_with("| b | ✓ | ✓ | b | ✓ |"), "{table}");
        assert!(table.ends_with("\n\n* a: no room\n* b: no time\n"), "{table}");
        columns[3].remove("b");
        assert_eq!(block(&columns).unwrap_err().to_string(), "redis lacks b");
        assert!(read("a").is_err());
    }
}
