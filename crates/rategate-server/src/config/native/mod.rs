//! The native format: TOML, read table by table, so that all that is wrong is told at once.

mod rules;
mod server;
mod settings;
pub(crate) mod tables;
pub(crate) mod text;
mod tracing;

use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::draft::{Draft, Whence};
use super::error::Problem;
use super::gather::Gathered;
use super::nearest::one_of;
use super::source::Source;
use tables::RuleTable;

pub(crate) use server::Size;
pub(crate) use settings::{SNAPSHOT_EVERY, add_store_urls, secret_file};

/// More wrong values of a table are not looked for.
const MAX_FAULTS: usize = 20;
/// More faults of the syntax than these follow from the first ones.
const MAX_SYNTAX: usize = 5;
const TABLES: &str = "server, http, grpc, store, snapshot, inline, log, tracing, keys, rule";

/// Reads a file.
pub(crate) fn read(source: &Arc<Source>, all: &mut Gathered, draft: &mut Draft) {
    let (root, errors) = DeTable::parse_recoverable(source.text());
    if !errors.is_empty() {
        all.problems.extend(errors.iter().take(MAX_SYNTAX).map(|error| of_toml(source, error)));
        return;
    }
    for (key, value) in root.into_inner() {
        if all.is_hopeless() {
            return;
        }
        match &**key.get_ref() {
            "rule" => read_rules(source, value, all),
            name => {
                let span = key.span();
                let Some(name) = settings::TABLES.into_iter().find(|table| *table == name) else {
                    let problem = Problem::at(source.place(span), format!("unknown key `{name}`"));
                    all.problems.push(problem.help(one_of(name, TABLES)));
                    continue;
                };
                let place = source.place(span);
                if let Some(Whence::File(first)) =
                    draft.whence.insert(name, Whence::File(place.clone()))
                {
                    let message = format!("[{name}] is also at {}", first.origin());
                    all.problems.push(Problem::at(place, message));
                }
                settings::read(source, name, value, draft, &mut all.problems);
            }
        }
    }
}

fn read_rules(source: &Arc<Source>, value: Spanned<DeValue<'_>>, all: &mut Gathered) {
    let span = value.span();
    let DeValue::Array(rules) = value.into_inner() else {
        let problem = Problem::at(source.place(span), "`rule` is a list of tables");
        all.problems.push(problem.help("write [[rule]]"));
        return;
    };
    for rule in rules {
        if all.is_hopeless() {
            return;
        }
        if let Some(table) = table::<RuleTable>(source, rule, &mut all.problems) {
            rules::read(source, &table, all);
        }
    }
}

/// Reads a table, or complains of all its values that are wrong: each that is told is taken out, and the rest is read again.
fn table<'de, T: Deserialize<'de>>(
    source: &Arc<Source>,
    mut value: Spanned<DeValue<'de>>,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let mut taken: Vec<String> = Vec::new();
    let mut is_misspelt = false;
    loop {
        let error = match T::deserialize(value.clone().into_deserializer()) {
            Ok(table) => return taken.is_empty().then_some(table),
            Err(error) => error,
        };
        let missing = error.message().strip_prefix("missing field `");
        let missing = missing.and_then(|name| name.split('`').next());
        // What is missing may be what was told already, or misspelt.
        if missing.is_some_and(|name| is_misspelt || taken.iter().any(|taken| taken == name)) {
            return None;
        }
        is_misspelt |= error.message().starts_with("unknown field");
        problems.push(of_toml(source, &error));
        let name = error.span().and_then(|span| take_out(&mut value, &span));
        match name.filter(|_| taken.len() < MAX_FAULTS && missing.is_none()) {
            Some(name) => taken.push(name),
            None => return None,
        }
    }
}

/// Takes what is written at a place out of a value, and says by which key it was there. What is in a list goes with the list.
fn take_out(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<String> {
    let DeValue::Table(table) = value.get_mut() else { return None };
    // A table below a head of its own is written elsewhere than its key.
    for (_, inner) in table.iter_mut().filter(|(_, inner)| inner.span() != *span) {
        if let Some(name) = take_out(inner, span) {
            return Some(name);
        }
    }
    let is_in = |whole: Range<usize>| whole.start <= span.start && span.end <= whole.end;
    let found = table.iter().find(|(key, value)| is_in(key.span()) || is_in(value.span()));
    let key = found.map(|(key, _)| key.clone())?;
    table.remove(&key)?;
    Some(key.into_inner().into_owned())
}

fn of_toml(source: &Arc<Source>, error: &toml::de::Error) -> Problem {
    let place = source.place(error.span().unwrap_or(0..0));
    let message = error.message();
    if let Some((wrong, right)) = message.split_once(", expected ")
        && let Some(word) = wrong.strip_prefix("unknown ").and_then(quoted)
    {
        let names = right.trim_start_matches("one of ").replace('`', "").replace(" or ", ", ");
        return Problem::at(place, wrong).help(one_of(word, &names));
    }
    // The first line says what is wrong, the rest what would be right.
    match message.split_once('\n') {
        None => Problem::at(place, message),
        Some((wrong, right)) => Problem::at(place, wrong).help(right.replace('\n', "; ")),
    }
}

/// What is between the first two backticks.
fn quoted(text: &str) -> Option<&str> {
    text.split('`').nth(1)
}
