//! The table of docs/conformance.md: which engine plays which scenario file, as the tests of the
//! engines record it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{cargo, run};
use crate::check::LANGUAGES;
use crate::page::{Page, table};
use crate::tapes;

const PAGE: &str = "docs/conformance.md";
const COMMAND: &str = "cargo xtask conformance";

/// The variable of `rategate_testkit::suite` with the folder of the records.
pub(crate) const RECORDS: &str = "RATEGATE_CONFORMANCE";

/// The engines: the name of the record, and the heading of the column.
const ENGINES: [(&str, &str); 14] = [
    ("ledger", "ledger"),
    ("lock-free", "lock-free"),
    ("several", "several"),
    ("compact", "compact"),
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

/// The packages whose tests record, and the tests.
const PACKAGES: [&str; 6] = ["core", "testkit", "ffi", "redis", "server", ""];
const TESTS: &str = "test(/every_scenario|scenarios_of_the_sliding_log_pass|scenarios_play|\
                     _plays_the_scenarios|_as_the_files_say|every_tape_plays/)";

/// Runs the tests that play scenario files, and writes the table.
pub(crate) fn write(root: &Path, target: &Path) -> Result<()> {
    let records = fresh_folder(target)?;
    let mut command = cargo(root);
    command.args(["nextest", "run", "--all-features", "-E", TESTS]).env(RECORDS, &records);
    for name in PACKAGES {
        let package = format!("rategate-{name}");
        command.args(["--package", package.trim_end_matches('-')]);
    }
    run(&mut command, "an engine does not play its scenarios")?;
    tapes::write(root, target)?;
    for (_, tests) in LANGUAGES {
        tests(root, target, true)?;
    }
    fs::write(root.join(PAGE), page(root, &records)?)?;
    println!("wrote the table of {PAGE}");
    Ok(())
}

/// Fails unless the table is what the records of all tests say.
pub(crate) fn check(root: &Path, target: &Path) -> Result<()> {
    let stored = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let is_current = stored == page(root, &folder(target))?;
    ensure!(is_current, "the table of {PAGE} is out of date; run {COMMAND}");
    println!("the table of {PAGE} is what the tests record");
    Ok(())
}

/// Returns the folder of the records, once it is empty.
pub(crate) fn fresh_folder(target: &Path) -> Result<PathBuf> {
    let folder = folder(target);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn folder(target: &Path) -> PathBuf {
    target.join("conformance")
}

/// Lets a player of tapes record what it plays.
pub(crate) fn record(player: &mut Command, target: &Path) -> Result<()> {
    let folder = folder(target);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    player.env(RECORDS, folder);
    Ok(())
}

fn page(root: &Path, records: &Path) -> Result<String> {
    let mut columns = Vec::new();
    for (engine, _) in ENGINES {
        let path = records.join(format!("{engine}.txt"));
        let record = fs::read_to_string(&path)
            .with_context(|| format!("no test has recorded what {engine} plays"))?;
        columns.push(read(&record).with_context(|| path.display().to_string())?);
    }
    Ok(Page::read(root, PAGE, COMMAND)?.with(&block(&columns)?))
}

/// Reads a record: the reason for each file, which is empty if the file was played.
fn read(record: &str) -> Result<BTreeMap<String, String>> {
    let line = |line: &str| {
        let (name, reason) =
            line.split_once('\t').with_context(|| format!("no tab in `{line}`"))?;
        Ok((name.to_owned(), reason.to_owned()))
    };
    record.lines().map(line).collect()
}

/// Returns the table, and the reasons to which its letters refer.
fn block(columns: &[BTreeMap<String, String>]) -> Result<String> {
    let mut reasons: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    for name in columns[0].keys() {
        let mut row: [String; ENGINES.len() + 1] = Default::default();
        row[0].clone_from(name);
        for (cell, (column, (engine, _))) in row[1..].iter_mut().zip(columns.iter().zip(ENGINES)) {
            let reason = column.get(name).with_context(|| format!("{engine} lacks {name}"))?;
            *cell =
                if reason.is_empty() { "✓".to_owned() } else { letter(&mut reasons, reason)? };
        }
        rows.push(row);
    }
    let mut header = [""; ENGINES.len() + 1];
    header[0] = "file";
    header[1..].copy_from_slice(&ENGINES.map(|(_, heading)| heading));
    let mut block = table(header, &rows);
    block.push('\n');
    for (index, reason) in reasons.iter().enumerate() {
        let _ = writeln!(block, "* {}: {reason}", LETTERS[index]);
    }
    Ok(block)
}

const LETTERS: [char; 20] = [
    'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r', 's',
    't',
];

/// Returns the letter of a reason, in the order in which they occur.
fn letter<'a>(reasons: &mut Vec<&'a str>, reason: &'a str) -> Result<String> {
    let index = reasons.iter().position(|known| *known == reason).unwrap_or_else(|| {
        reasons.push(reason);
        reasons.len() - 1
    });
    match LETTERS.get(index) {
        Some(letter) => Ok(letter.to_string()),
        None => bail!("over {} reasons; LETTERS needs more", LETTERS.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::{ENGINES, block, read};

    #[test]
    fn each_reason_has_a_letter_and_a_missing_file_is_an_error() {
        let mut columns = vec![read("a\t\nb\t\n").unwrap(); ENGINES.len()];
        columns[1] = read("a\tno room\nb\t\n").unwrap();
        columns[2] = read("a\tno room\nb\tno time\n").unwrap();
        let block = block(&columns).unwrap();
        let rows: Vec<Vec<&str>> =
            block.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
        assert_eq!(rows[2][1..6], ["a", "✓", "a", "a", "✓"]);
        assert_eq!(rows[3][1..6], ["b", "✓", "✓", "b", "✓"]);
        assert!(block.ends_with("\n\n* a: no room\n* b: no time\n"), "{block}");
        columns[3].remove("b");
        let error = super::block(&columns).unwrap_err();
        assert_eq!(error.to_string(), "compact lacks b");
        assert!(read("a").is_err());
    }
}
