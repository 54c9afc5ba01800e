//! Tiers: other limits for certain values of a rule.

use std::sync::Arc;

use super::naming;
use super::rules::Reader;
use super::source::SourceLocation;
use super::tables::{RuleTable, TierTable};
use super::text::At;
use crate::rule::{Rule, Value};

impl Reader<'_> {
    /// Reads a tier. Returns `None` if its values are unknown, which is reported.
    pub(super) fn tier(
        &mut self,
        rule_at: &At<RuleTable>,
        rule: &Rule,
        at: &At<TierTable>,
    ) -> Option<(SourceLocation, Rule)> {
        let (table, tier) = (&rule_at.value, &at.value);
        let name = self.tier_name(rule, at);
        let algorithm = self.algorithm(rule_at);
        let (limit, display_limit) =
            self.limit(at, tier.limit.as_ref(), algorithm, tier.burst.as_ref());
        let schedule = self.schedule(rule_at, &tier.schedule);
        let value = self.tier_value(at);
        let nth = self.tier_entry(rule_at, rule, at);
        let (name, value, nth) = (name?, value?, nth?);
        let mut entries = rule.entries.clone();
        entries.get_mut(nth)?.value = value;
        let envoy_name = table.envoy_name.as_ref().map_or(&name, |_| &rule.envoy_name);
        let spot = self.location_of_tier(at);
        let tier = Rule {
            envoy_name: Arc::clone(envoy_name),
            name,
            entries,
            limit,
            display_limit,
            schedule,
            max_keys: tier.keys.or(table.keys).map(Into::into),
            origin: spot.origin(),
            ..rule.clone()
        };
        Some((spot, tier))
    }

    fn location_of_tier(&self, at: &At<TierTable>) -> SourceLocation {
        at.value.name.as_ref().map_or_else(|| self.location(at), |name| self.location(name))
    }

    fn complain_of_tier(&mut self, at: &At<TierTable>, message: impl Into<String>) {
        let span = at.value.name.as_ref().map_or(&at.span, |name| &name.span);
        self.complain_of("", span, message);
    }

    fn tier_name(&mut self, rule: &Rule, at: &At<TierTable>) -> Option<Arc<str>> {
        let Some(tier) = &at.value.name else {
            if !self.reported.is_reported(&at.span, "name") {
                self.complain(at, "no name; write name = \"...\"");
            }
            return None;
        };
        let name = format!("{}/{}", rule.name, tier.value);
        if tier.value.is_empty() {
            self.complain(tier, "a tier needs a name");
            return None;
        }
        if rule.name.is_empty() {
            return None;
        }
        if let Err(complaint) = naming::check(&name) {
            self.complain(tier, format!("the rule's name would be {name:?}: {complaint}"));
        }
        Some(name.into())
    }

    fn tier_value(&mut self, at: &At<TierTable>) -> Option<Value> {
        let is_key_reported = |key| self.reported.is_reported(&at.span, key);
        if is_key_reported("values") || is_key_reported("pattern") {
            return None;
        }
        match (&at.value.values, &at.value.pattern) {
            (Some(values), None) => Some(self.one_of(values, &values.value)),
            (None, Some(pattern)) if !pattern.value.contains('*') => {
                let message = "a pattern has a *; write values = [...] for values as they are";
                self.complain(pattern, message);
                None
            }
            (None, Some(pattern)) => {
                Some(Value::Pattern { text: pattern.value.as_str().into(), shared: false })
            }
            (None, None) => {
                let message = "the tier has no values; write values = [...] or pattern = \"...\"";
                self.complain_of_tier(at, message);
                None
            }
            (Some(_), Some(pattern)) => {
                self.complain(pattern, "values or pattern, not both");
                None
            }
        }
    }

    /// Returns the index of the entry that has the tier's values.
    fn tier_entry(
        &mut self,
        rule_at: &At<RuleTable>,
        rule: &Rule,
        at: &At<TierTable>,
    ) -> Option<usize> {
        if self.reported.is_reported(&rule_at.span, "match")
            || self.reported.is_reported(&at.span, "key")
        {
            return None;
        }
        if let Some(key) = &at.value.key {
            let found = rule.entries.iter().position(|entry| *entry.key == *key.value);
            if found.is_none() {
                self.complain(key, format!("the rule's match has no entry {:?}", key.value));
            }
            return found;
        }
        let mut open =
            rule.entries.iter().enumerate().filter(|(_, entry)| entry.value == Value::Any);
        match (open.next(), open.next()) {
            (Some((nth, _)), None) => Some(nth),
            (first, _) => {
                let have = if first.is_none() { "no entry" } else { "more than one entry" };
                let complaint = format!(
                    "the rule's match has {have} without a value; name the entry by key = \"...\""
                );
                self.complain_of_tier(at, complaint);
                None
            }
        }
    }
}
