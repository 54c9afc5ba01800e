//! The native format: TOML, read table by table, so that all that is wrong is told at once.

mod rules;
mod server;
mod settings;
pub(crate) mod tables;
pub(crate) mod text;
mod tracing;

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::draft::{Draft, Whence};
use super::error::Problem;
use super::gather::Gathered;
use super::source::Source;
use tables::RuleTable;

pub(crate) use server::Size;
pub(crate) use settings::{SNAPSHOT_EVERY, add_store_urls, secret_file};

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
                    all.problems.push(problem.help(format!("it is one of {TABLES}")));
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

/// Reads a table, or complains.
fn table<'de, T: Deserialize<'de>>(
    source: &Arc<Source>,
    value: Spanned<DeValue<'de>>,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    match T::deserialize(value.into_deserializer()) {
        Ok(table) => Some(table),
        Err(error) => {
            problems.push(of_toml(source, &error));
            None
        }
    }
}

fn of_toml(source: &Arc<Source>, error: &toml::de::Error) -> Problem {
    let place = source.place(error.span().unwrap_or(0..0));
    let message = error.message();
    // The first line says what is wrong, the rest what would be right.
    match message.split_once('\n') {
        None => Problem::at(place, message),
        Some((wrong, right)) => Problem::at(place, wrong).help(right.replace('\n', "; ")),
    }
}
