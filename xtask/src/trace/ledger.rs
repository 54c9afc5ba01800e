//! Reads docs/trace.toml: the requirement lines without a test, each with its reason.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use super::lines::{Line, parse_key};

/// The file of the reasons, from the root.
pub(super) const PATH: &str = "docs/trace.toml";

/// The two kinds of reason: a statement that no test can check, and a capability still to come.
const TABLES: [&str; 2] = ["text", "later"];

/// The reasons of the file, and its errors.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The kind (`text:` or `later:`) and the reason.
    pub(super) reasons: BTreeMap<Line, (String, String)>,
    pub(super) errors: Vec<String>,
}

impl Ledger {
    /// Reads and checks the file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {PATH}"))?;
        Self::parse(&text).with_context(|| format!("read {PATH}"))
    }

    fn parse(text: &str) -> Result<Self> {
        let file: toml::Table = text.parse()?;
        let mut ledger = Self::default();
        for (table, entries) in &file {
            let Some(entries) = entries.as_table().filter(|_| TABLES.contains(&table.as_str()))
            else {
                ledger
                    .errors
                    .push(format!("{PATH}: unknown table `{table}`; the tables are {TABLES:?}"));
                continue;
            };
            for (key, reason) in entries {
                ledger.add(table, key, reason.as_str().unwrap_or_default().trim());
            }
        }
        Ok(ledger)
    }

    fn add(&mut self, table: &str, key: &str, reason: &str) {
        if reason.is_empty() {
            self.errors.push(format!("{PATH}: the reason of {key} is empty"));
        }
        let lines = key_lines(key);
        if lines.is_empty() {
            self.errors.push(format!("{PATH}: `{key}` is neither a requirement line nor a range"));
        }
        for line in lines {
            let entry = (format!("{table}:"), reason.to_owned());
            if self.reasons.insert(line, entry).is_some() {
                self.errors.push(format!("{PATH}: {line} is listed twice"));
            }
        }
    }
}

/// Returns the lines of `S1.2` or `S3.15-S3.20`; none if the key is malformed or one of them does
/// not exist.
fn key_lines(key: &str) -> Vec<Line> {
    parse_key(key).filter(|lines| lines.iter().all(|line| line.exists())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::Ledger;

    #[test]
    fn keys_are_lines_or_ranges_and_stand_once() {
        let ledger =
            Ledger::parse("[text]\n\"S1.2\" = \"a\"\n[later]\n\"S3.15-S3.17\" = \"b\"").unwrap();
        assert!(ledger.errors.is_empty());
        let reasons: Vec<_> =
            ledger.reasons.into_iter().map(|(line, (kind, _))| format!("{line} {kind}")).collect();
        assert_eq!(reasons, ["S1.2 text:", "S3.15 later:", "S3.16 later:", "S3.17 later:"]);
    }

    #[test]
    fn every_invalid_entry_is_reported() {
        for invalid in [
            "[text]\n\"S9.1\" = \"no such line\"",
            "[text]\n\"S0.9 and S0.11\" = \"not a range\"",
            "[text]\n\"S0.9-S0.7\" = \"backwards\"",
            "[text]\n\"S0.9\" = \"\"",
            "[text]\n\"S0.9\" = \"a\"\n[later]\n\"S0.8-S0.9\" = \"b\"",
            "[other]\n\"S0.9\" = \"a\"",
        ] {
            assert_eq!(Ledger::parse(invalid).unwrap().errors.len(), 1, "{invalid}");
        }
    }
}
