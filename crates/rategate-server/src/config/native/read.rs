//! Deserialization of TOML tables that reports every wrong value once.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::sentence;
use crate::config::error::Problem;
use crate::config::source::Source;
use crate::nearest::one_of;

/// The maximum number of wrong values of a table that are searched for.
const MAX_FAULTS: usize = 20;
/// The maximum number of syntax errors reported. Further ones usually follow from the first.
const MAX_SYNTAX: usize = 5;

/// Keys whose wrong values were reported, with the start of their table. An empty key stands for
/// an unknown one, which may have been meant as any key.
#[derive(Debug, Default)]
pub(crate) struct ReportedKeys(HashSet<(usize, String)>);

impl ReportedKeys {
    /// Returns `true` if a problem with the value of a key was reported, so that its absence
    /// means nothing.
    pub(crate) fn is_reported(&self, table: &Range<usize>, key: &str) -> bool {
        let of = |key: &str| self.0.contains(&(table.start, key.to_owned()));
        of(key) || of("")
    }

    /// Returns `true` if no problems were reported.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Parses the text of a file, or reports its syntax errors.
pub(super) fn root(source: &Arc<Source>) -> Result<DeTable<'_>, Vec<Problem>> {
    let (root, errors) = DeTable::parse_recoverable(source.text());
    if errors.is_empty() {
        return Ok(root.into_inner());
    }
    Err(errors.iter().take(MAX_SYNTAX).map(|error| problem(source, error)).collect())
}

/// Reads a table without the wrong values, each of which is reported. Returns `None` if the rest
/// is not such a table.
pub(super) fn table<'de, T: Deserialize<'de>>(
    source: &Arc<Source>,
    mut value: Spanned<DeValue<'de>>,
    problems: &mut Vec<Problem>,
) -> (Option<T>, ReportedKeys) {
    let mut reported = ReportedKeys::default();
    for _ in 0..MAX_FAULTS {
        let error = match T::deserialize(value.clone().into_deserializer()) {
            Ok(table) => return (Some(table), reported),
            Err(error) => error,
        };
        let missing = error.message().strip_prefix("missing field `");
        let missing = missing.and_then(|name| name.split('`').next());
        let span = error.span();
        // A missing key may have been reported already, or be misspelt.
        let is_echo =
            missing.zip(span.as_ref()).is_some_and(|(name, span)| reported.is_reported(span, name));
        if !is_echo {
            problems.push(problem(source, &error));
        }
        let is_unknown = error.message().starts_with("unknown field");
        let taken = span.and_then(|span| take_out(&mut value, &span));
        let Some(Taken::Key { table, key }) = taken else { break };
        reported.0.insert((table, if is_unknown { String::new() } else { key }));
    }
    (None, reported)
}

/// The kind of the element that was removed from a value.
enum Taken {
    /// The value of a key, or an element of its list; with the start of its table.
    Key { table: usize, key: String },
    /// An element of a list.
    Element,
}

/// Removes the element at a position from a value.
fn take_out(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<Taken> {
    let table_start = value.span().start;
    let is_in = |whole: Range<usize>| whole.start <= span.start && span.end <= whole.end;
    match value.get_mut() {
        DeValue::Table(table) => {
            // A table under its own header is written elsewhere than its key.
            for (key, inner) in table.iter_mut().filter(|(_, inner)| inner.span() != *span) {
                match take_out(inner, span) {
                    None => {}
                    Some(Taken::Element) => {
                        let key = key.get_ref().to_string();
                        return Some(Taken::Key { table: table_start, key });
                    }
                    found => return found,
                }
            }
            let found = table.iter().find(|(key, value)| is_in(key.span()) || is_in(value.span()));
            let key = found.map(|(key, _)| key.clone())?;
            table.remove(&key)?;
            Some(Taken::Key { table: table_start, key: key.into_inner().into_owned() })
        }
        DeValue::Array(all) => {
            for inner in all.iter_mut().filter(|inner| inner.span() != *span) {
                if let Some(found) = take_out(inner, span) {
                    return Some(found);
                }
            }
            let nth = all.iter().position(|inner| is_in(inner.span()))?;
            let left = std::mem::replace(all, DeArray::new()).into_iter().enumerate();
            *all =
                left.filter(|(location, _)| *location != nth).map(|(_, element)| element).collect();
            Some(Taken::Element)
        }
        _ => None,
    }
}

/// Converts an error of the TOML parser or of a type into the words of a configuration.
fn problem(source: &Arc<Source>, error: &toml::de::Error) -> Problem {
    let location = source.location(error.span().unwrap_or(0..0));
    let message = error.message();
    if let Some((cause, right)) = message.split_once(", expected ")
        && let Some(word) = cause.strip_prefix("unknown ").and_then(quoted)
    {
        let names = right.trim_start_matches("one of ").replace('`', "").replace(" or ", ", ");
        let cause = cause.replace("variant", "word").replace("field", "key");
        return Problem::at(location, cause).help(one_of(word, &names));
    }
    // The first line describes the problem, the rest the correction.
    let (cause, right) = message.split_once('\n').unwrap_or((message, ""));
    let problem = Problem::at(location, sentence::plain(cause));
    if right.is_empty() { problem } else { problem.help(right.replace('\n', "; ")) }
}

/// Returns the text between the first two backticks.
fn quoted(text: &str) -> Option<&str> {
    text.split('`').nth(1)
}
