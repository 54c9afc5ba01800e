//! Maps requirement lines to the tests that cover them, or to the reasons why no test does.

mod ledger;
mod lines;
mod tests_found;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};

use crate::source;
use ledger::Ledger;
use tests_found::Found;

/// Prints one row for each requirement line. Fails on a line without test and reason, on a name
/// that is not a line, and on a reason in docs/trace.toml that a test has made stale.
pub(crate) fn run(root: &Path) -> Result<()> {
    let found = Found::in_files(&source::repository(root)?);
    let ledger = Ledger::read(&root.join(ledger::PATH))?;

    let mut errors: Vec<String> = found.unknown.clone();
    errors.extend(ledger.errors.iter().cloned());
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for line in lines::all() {
        let covered = found.covered.get(&line);
        let excused = ledger.reasons.get(&line);
        let (state, note) = match (covered, excused) {
            (Some(tests), None) => ("covered by", shortened(tests)),
            (None, Some((kind, reason))) => (kind.as_str(), reason.clone()),
            (None, None) => {
                errors.push(format!("{line} has neither a test nor a reason in {}", ledger::PATH));
                ("MISSING", String::new())
            }
            (Some(tests), Some(_)) => {
                let tests = shortened(tests);
                errors.push(format!(
                    "{line} is listed in {} but is covered by {tests}",
                    ledger::PATH
                ));
                ("STALE", tests)
            }
        };
        println!("{:<6} {state} {note}", line.to_string());
        *counts.entry(state.trim_end_matches(':')).or_default() += 1;
    }

    let summary: Vec<String> =
        counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    println!("trace: {} lines: {}", lines::all().count(), summary.join(", ").replace(" by", ""));
    if errors.is_empty() {
        return Ok(());
    }
    for error in &errors {
        println!("trace: ERROR {error}");
    }
    bail!("trace found {} error(s)", errors.len())
}

fn shortened(tests: &[String]) -> String {
    match tests {
        [] => String::new(),
        [only] => only.clone(),
        [first, more @ ..] => format!("{first} (+{} more)", more.len()),
    }
}
