//! Tables of TOML read into types, with every value that is wrong told once.

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

/// More wrong values of a table are not looked for.
const MAX_FAULTS: usize = 20;
/// More faults of the syntax than these follow from the first ones.
const MAX_SYNTAX: usize = 5;

/// Keys whose values were wrong and are told, by where their table begins. An unknown key is an empty one: any key may have been meant.
#[derive(Debug, Default)]
pub(crate) struct Told(HashSet<(usize, String)>);

impl Told {
    /// Returns whether the value of a key is told to be wrong, so that its absence says nothing.
    pub(crate) fn is_wrong(&self, table: &Range<usize>, key: &str) -> bool {
        let of = |key: &str| self.0.contains(&(table.start, key.to_owned()));
        of(key) || of("")
    }

    /// Returns whether all is well.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads the text of a file, or complains of its syntax.
pub(super) fn root(source: &Arc<Source>) -> Result<DeTable<'_>, Vec<Problem>> {
    let (root, errors) = DeTable::parse_recoverable(source.text());
    if errors.is_empty() {
        return Ok(root.into_inner());
    }
    Err(errors.iter().take(MAX_SYNTAX).map(|error| problem(source, error)).collect())
}

/// Reads a table without the values that are wrong, each of which is told. `None` if what is left is no such table.
pub(super) fn table<'de, T: Deserialize<'de>>(
    source: &Arc<Source>,
    mut value: Spanned<DeValue<'de>>,
    problems: &mut Vec<Problem>,
) -> (Option<T>, Told) {
    let mut told = Told::default();
    for _ in 0..MAX_FAULTS {
        let error = match T::deserialize(value.clone().into_deserializer()) {
            Ok(table) => return (Some(table), told),
            Err(error) => error,
        };
        let missing = error.message().strip_prefix("missing field `");
        let missing = missing.and_then(|name| name.split('`').next());
        let span = error.span();
        // What is missing may be what was told already, or misspelt.
        let is_echo =
            missing.zip(span.as_ref()).is_some_and(|(name, span)| told.is_wrong(span, name));
        if !is_echo {
            problems.push(problem(source, &error));
        }
        let is_unknown = error.message().starts_with("unknown field");
        let taken = span.and_then(|span| take_out(&mut value, &span));
        let Some(Taken::Key { table, key }) = taken else { break };
        told.0.insert((table, if is_unknown { String::new() } else { key }));
    }
    (None, told)
}

/// What was taken out of a value.
enum Taken {
    /// The value of a key, or something in the list that is its value; where its table begins.
    Key { table: usize, key: String },
    /// An element of a list.
    Element,
}

/// Takes what is written at a place out of a value.
fn take_out(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<Taken> {
    let table_start = value.span().start;
    let is_in = |whole: Range<usize>| whole.start <= span.start && span.end <= whole.end;
    match value.get_mut() {
        DeValue::Table(table) => {
            // A table below a head of its own is written elsewhere than its key.
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
            *all = left.filter(|(place, _)| *place != nth).map(|(_, element)| element).collect();
            Some(Taken::Element)
        }
        _ => None,
    }
}

/// Returns what TOML or a type complains of, in the words of a configuration.
fn problem(source: &Arc<Source>, error: &toml::de::Error) -> Problem {
    let place = source.place(error.span().unwrap_or(0..0));
    let message = error.message();
    if let Some((wrong, right)) = message.split_once(", expected ")
        && let Some(word) = wrong.strip_prefix("unknown ").and_then(quoted)
    {
        let names = right.trim_start_matches("one of ").replace('`', "").replace(" or ", ", ");
        let wrong = wrong.replace("variant", "word").replace("field", "key");
        return Problem::at(place, wrong).help(one_of(word, &names));
    }
    // The first line says what is wrong, the rest what would be right.
    let (wrong, right) = message.split_once('\n').unwrap_or((message, ""));
    let problem = Problem::at(place, sentence::plain(wrong));
    if right.is_empty() { problem } else { problem.help(right.replace('\n', "; ")) }
}

/// Returns what is between the first two backticks.
fn quoted(text: &str) -> Option<&str> {
    text.split('`').nth(1)
}
