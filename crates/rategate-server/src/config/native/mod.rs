//! The native format: TOML, read table by table, so that all problems are reported at once.

mod read;
mod rules;
mod sentence;
mod server;
mod settings;
pub(crate) mod tables;
pub(crate) mod text;
mod tiers;
mod tracing;

use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::draft::{Draft, SettingSource};
use super::error::Problem;
use super::gather::Gathered;
use super::source::Source;
use crate::nearest::one_of;
use tables::RuleTable;
use text::At;

pub(crate) use server::Size;
pub(crate) use settings::{SNAPSHOT_EVERY, add_store_urls, is_prefix, secret_file};

const TABLES: &str = "server, http, grpc, store, snapshot, inline, log, tracing, keys, rule";

/// Reads a file.
pub(crate) fn read(source: &Arc<Source>, all: &mut Gathered, draft: &mut Draft) {
    let root = match read::root(source) {
        Ok(root) => root,
        Err(problems) => {
            all.problems.extend(problems);
            return;
        }
    };
    for (key, value) in root {
        if all.is_hopeless() {
            return;
        }
        match &**key.get_ref() {
            "rule" => read_rules(source, value, all),
            name => {
                let span = key.span();
                let Some(name) = settings::TABLES.into_iter().find(|table| *table == name) else {
                    let problem =
                        Problem::at(source.location(span), format!("unknown key `{name}`"));
                    all.problems.push(problem.help(one_of(name, TABLES)));
                    continue;
                };
                let location = source.location(span);
                if let Some(SettingSource::File(first)) =
                    draft.setting_sources.insert(name, SettingSource::File(location.clone()))
                {
                    let message = format!("[{name}] is also at {}", first.origin());
                    all.problems.push(Problem::at(location, message));
                }
                settings::read(source, name, value, draft, &mut all.problems);
            }
        }
    }
}

fn read_rules(source: &Arc<Source>, value: Spanned<DeValue<'_>>, all: &mut Gathered) {
    let span = value.span();
    let DeValue::Array(rules) = value.into_inner() else {
        let problem = Problem::at(source.location(span), "`rule` is a list of tables");
        all.problems.push(problem.help("write [[rule]]"));
        return;
    };
    for rule in rules {
        if all.is_hopeless() {
            return;
        }
        let span = rule.span();
        let (table, reported) = read::table::<RuleTable>(source, rule, &mut all.problems);
        if let Some(table) = table {
            rules::read(source, &At { value: table, span }, reported, all);
        }
    }
}
