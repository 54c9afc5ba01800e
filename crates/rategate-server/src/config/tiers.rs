//! Tiers: other limits for certain values of a rule.

use std::sync::Arc;

use super::limit::Extra;
use super::naming;
use super::rules::{KnownAlgorithm, NO_NAME, Reader};
use super::source::SourceLocation;
use super::tables::{RuleTable, TierTable};
use crate::rule::{Rule, Value};

impl Reader<'_> {
    /// Returns the rules of a rule's tiers. One whose values are unknown is reported and left
    /// out.
    pub(super) fn tiers(
        &mut self,
        table: &RuleTable,
        algorithm: KnownAlgorithm,
        rule: &Rule,
    ) -> Vec<(SourceLocation, Rule)> {
        let is_here = self.is_here(table.store);
        let is_match_known = !self.node.is_reported("match");
        let tables = self.node.elements("tiers");
        let mut tier = |(tier, node)| {
            let mut reader = Reader { node, path: None, all: self.all };
            let TierTable { limit, burst, schedule, keys, .. }: &TierTable = tier;
            let name = reader.tier_name(rule, tier);
            let extra = Extra { burst: *burst };
            let (limit, display_limit) = reader.limit(limit.as_ref(), algorithm, extra);
            let schedule = reader.schedule(schedule, algorithm, is_here);
            let value = reader.tier_value(tier);
            let nth = if is_match_known { reader.tier_entry(rule, tier) } else { None };
            let (name, value, nth) = (name?, value?, nth?);
            let mut entries = rule.entries.clone();
            entries.get_mut(nth)?.value = value;
            let envoy_name = table.envoy_name.as_ref().map_or(&name, |_| &rule.envoy_name);
            let location = reader.location("name");
            let tier = Rule {
                envoy_name: Arc::clone(envoy_name),
                name,
                entries,
                limit,
                display_limit,
                schedule,
                max_keys: keys.or(table.keys).map(Into::into),
                origin: location.origin(),
                ..rule.clone()
            };
            Some((location, tier))
        };
        table.tiers.iter().zip(tables).filter_map(&mut tier).collect()
    }

    fn tier_name(&mut self, rule: &Rule, tier: &TierTable) -> Option<Arc<str>> {
        let Some(tier) = &tier.name else {
            self.miss("name", NO_NAME, "");
            return None;
        };
        if tier.is_empty() {
            self.complain("name", "a tier needs a name");
        }
        if tier.is_empty() || rule.name.is_empty() {
            return None;
        }
        let name = format!("{}/{tier}", rule.name);
        if let Err(complaint) = naming::check(&name) {
            self.complain("name", format!("the rule's name would be {name:?}: {complaint}"));
        }
        Some(name.into())
    }

    fn tier_value(&mut self, tier: &TierTable) -> Option<Value> {
        let (key, message) = match (&tier.values, &tier.pattern) {
            _ if self.node.is_reported("values") || self.node.is_reported("pattern") => {
                return None;
            }
            (Some(values), None) => return Some(self.one_of("values", values)),
            (None, Some(pattern)) if pattern.contains('*') => {
                return Some(Value::Pattern { text: pattern.as_str().into(), shared: false });
            }
            (None, Some(_)) => {
                ("pattern", "a pattern has a *; write values = [...] for values as they are")
            }
            (None, None) => {
                ("name", "the tier has no values; write values = [...] or pattern = \"...\"")
            }
            (Some(_), Some(_)) => ("pattern", "values or pattern, not both"),
        };
        self.complain(key, message);
        None
    }

    /// Returns the index of the entry that has the tier's values.
    fn tier_entry(&mut self, rule: &Rule, tier: &TierTable) -> Option<usize> {
        if self.node.is_reported("key") {
            return None;
        }
        if let Some(key) = &tier.key {
            let found = rule.entries.iter().position(|entry| *entry.key == **key);
            if found.is_none() {
                self.complain("key", format!("the rule's match has no entry {key:?}"));
            }
            return found;
        }
        let mut open =
            rule.entries.iter().enumerate().filter(|(_, entry)| entry.value == Value::Any);
        let first = open.next().map(|(nth, _)| nth);
        if first.is_none() || open.next().is_some() {
            let have = if first.is_none() { "no entry" } else { "more than one entry" };
            let complaint = format!(
                "the rule's match has {have} without a value; name the entry by key = \"...\""
            );
            self.complain("name", complaint);
            return None;
        }
        first
    }
}
