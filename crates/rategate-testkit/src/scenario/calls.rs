//! `[[step]]` tables: explicit calls, and the expected result of each.

use std::collections::BTreeMap;

use rategate_core::any_policy::AnyPolicy;

use super::classes::Classes;
use super::limits::{LimitTable, build_all, change};
use super::table::{Ns, Table};
use super::{Call, CallMode, ScenarioError, Step};

/// The calls that are about an earlier one, and the kinds of it.
const ABOUT: [(&str, &[&str]); 4] = [
    ("leave", &["wait"]),
    ("end", &["try", "reserve", "wait"]),
    ("commit", &["hold"]),
    ("cancel", &["reserve", "hold"]),
];

/// The reader of steps, and what it knows after some of them.
pub(super) struct Reader<'t, 'c> {
    limits: Vec<LimitTable<'t>>,
    classes: &'c Classes,
    /// The newest step of each name, by the kind of call too.
    named: BTreeMap<(String, String), usize>,
    steps: Vec<Step>,
}

impl<'t, 'c> Reader<'t, 'c> {
    pub(super) fn new(limits: Vec<LimitTable<'t>>, classes: &'c Classes) -> Self {
        Self { limits, classes, named: BTreeMap::new(), steps: Vec::new() }
    }

    pub(super) fn read(mut self, tables: Vec<Table<'t>>) -> Result<Vec<Step>, ScenarioError> {
        for table in tables {
            let step = self.step(&table)?;
            self.steps.push(step);
        }
        Ok(self.steps)
    }

    fn step(&mut self, table: &Table<'t>) -> Result<Step, ScenarioError> {
        let Ns(at_ns) = table.need("at")?;
        let expect = table.get("expect")?.unwrap_or_default();
        let mut kind: String = table.need("call")?;
        // An end in some way is a release with an outcome.
        if kind == "release" && table.has("outcome") {
            "end".clone_into(&mut kind);
        }
        let mut read = vec!["at", "expect", "call"];
        let of = self.of(table, &kind, &mut read)?;
        let call = self.call(table, &kind, read)?;
        Ok(Step { at_ns, of, call, expect })
    }

    /// Returns the index of the step that the call is about, and remembers the name of others.
    fn of(
        &mut self,
        table: &Table<'t>,
        kind: &str,
        read: &mut Vec<&str>,
    ) -> Result<usize, ScenarioError> {
        let own = self.steps.len();
        let about = ABOUT.iter().find(|(call, _)| *call == kind);
        if about.is_none() && !["try", "reserve", "wait", "hold"].contains(&kind) {
            return Ok(own);
        }
        read.push("name");
        let Some((_, kinds)) = about else {
            let name: Option<String> = table.get("name")?;
            if let Some(name) = name {
                // A wait with a time to live holds what it is granted.
                if kind == "wait" && table.has("ttl") {
                    self.named.insert((name.clone(), "hold".to_owned()), own);
                }
                self.named.insert((name, kind.to_owned()), own);
            }
            return Ok(own);
        };
        let name: String = table.need("name")?;
        let newest = |kind: &&str| self.named.get(&(name.clone(), (*kind).to_owned()));
        kinds.iter().filter_map(newest).max().copied().ok_or_else(|| {
            let message = format!("is \"{name}\", as of no earlier {}", kinds.join(", "));
            table.error_at("name", message)
        })
    }

    fn call(
        &mut self,
        table: &Table<'t>,
        kind: &str,
        mut read: Vec<&str>,
    ) -> Result<Call, ScenarioError> {
        use AnyPolicy::{AdaptiveConcurrency, BackfillPool, CommitLog, Concurrency};
        match kind {
            "wait" => read.push("class"),
            "set" => {
                change(&mut self.limits, &table.need_table("limit")?)?;
                read.push("limit");
            }
            _ => {}
        }
        let mut call = table.read_as("call", kind, &read)?;
        let needs = |is_one: fn(&AnyPolicy) -> bool, message: &str| {
            let has_one = build_all(&self.limits)?.iter().any(is_one);
            if has_one { Ok(()) } else { Err(table.error_at("call", message)) }
        };
        match &mut call {
            Call::Wait { max_wait: Some(_), ttl: Some(_), .. } => {
                return Err(table.error_at("ttl", "is of a wait without `max_wait`"));
            }
            Call::Wait { class, .. } => *class = self.classes.of(table, CallMode::Wait)?,
            Call::Set { limits } => *limits = build_all(&self.limits)?,
            Call::Refill { .. } => needs(
                |limit| matches!(limit, BackfillPool(_)),
                "refills a backfill-pool, and there is none",
            )?,
            Call::Release { .. } => needs(
                |limit| matches!(limit, Concurrency(_) | AdaptiveConcurrency(_) | CommitLog(_)),
                "without an outcome is for concurrency, adaptive and commit-log, and there is none",
            )?,
            _ => {}
        }
        Ok(call)
    }
}
