//! The native format: TOML, read table by table, so that all problems are reported at once.

use std::sync::Arc;

use super::error::Problem;
use super::gather::Gathered;
use super::node::{self, Kind, Node};
use super::rules;
use super::settings::{TABLES, Tables};
use super::source::Source;
use crate::nearest::one_of;

/// Reads a file: its rules, and its tables of settings.
pub(crate) fn read(source: &Arc<Source>, all: &mut Gathered, tables: &mut Tables) {
    let start = all.sources.add(Arc::clone(source));
    let root = match node::toml(source, start) {
        Ok(root) => root,
        Err(problems) => {
            all.problems.extend(problems);
            return;
        }
    };
    let Kind::Map(root) = root.kind else { return };
    for (key, (span, value)) in root {
        if all.is_hopeless() {
            return;
        }
        if key == "rule" {
            read_rules(&value, all);
            continue;
        }
        let location = all.sources.location(&span);
        if !TABLES.contains(&key.as_str()) {
            let known = format!("{}, rule", TABLES.join(", "));
            let problem = Problem::at(location, format!("unknown key `{key}`"));
            all.problems.push(problem.help(one_of(&key, &known)));
            continue;
        }
        let Kind::Map(known) = &mut tables.root.kind else { return };
        if let Some((first, _)) = known.get(&key) {
            let first = all.sources.location(first).origin();
            all.problems.push(Problem::at(location, format!("[{key}] is also at {first}")));
        }
        known.insert(key, (span, value));
    }
}

fn read_rules(rules: &Node, all: &mut Gathered) {
    let Kind::List(rules) = &rules.kind else {
        let location = all.sources.location(&rules.span);
        let problem = Problem::at(location, "`rule` is a list of tables");
        all.problems.push(problem.help("write [[rule]]"));
        return;
    };
    for rule in rules {
        if all.is_hopeless() {
            return;
        }
        rules::read(rule, all);
    }
}
