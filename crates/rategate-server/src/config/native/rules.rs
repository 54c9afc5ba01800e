//! From the tables of the native format to rules.

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::tables::{
    EntryTable, LimitText, PlaceText, RuleTable, ScheduleTable, TierTable, WhenGoneText,
};
use super::text::{At, Text};
use crate::config::error::Problem;
use crate::config::gather::Gathered;
use crate::config::limit::{Algorithm, LEASE_NS};
use crate::config::naming::{self, MAX_TEXT_BYTES};
use crate::config::source::{Place as Spot, Source};
use crate::rule::{
    Enforcement, Entry, HELD_NS, Limit, Place, Rule, Scheduled, Shown, Value, WhenGone,
};

const DAY_S: u32 = 86_400;
/// The domain of rules that do not say theirs.
const DEFAULT_DOMAIN: &str = "default";

/// Reads a rule and its tiers.
pub(crate) fn read(source: &Arc<Source>, table: &RuleTable, all: &mut Gathered) {
    let problems_before = all.problems.len();
    let mut reader = Reader { source, all };
    let rule = reader.rule(table);
    let tiers: Vec<_> =
        table.tiers.iter().filter_map(|tier| reader.tier(table, &rule, tier)).collect();
    if all.problems.len() > problems_before {
        return;
    }
    // A tier stands in for whatever its rule does.
    let replaced = |at: &At<String>| (at.value.clone(), source.place(at.span.clone()));
    let replaced: Vec<_> = table.replaces.iter().map(replaced).collect();
    for (spot, rule) in tiers {
        all.tier(rule, spot, replaced.clone());
    }
    all.native(rule, source.place(table.name.span.clone()), replaced);
}

struct Reader<'a> {
    source: &'a Arc<Source>,
    all: &'a mut Gathered,
}

impl Reader<'_> {
    fn place<T>(&self, at: &At<T>) -> Spot {
        self.source.place(at.span.clone())
    }

    fn complain<T>(&mut self, at: &At<T>, message: impl Into<String>) {
        let problem = Problem::at(self.place(at), message);
        self.all.problems.push(problem);
    }

    fn rule(&mut self, table: &RuleTable) -> Rule {
        let RuleTable { name, domain, entries, limit, burst, schedule, .. } = table;
        if let Err(complaint) = naming::check(&name.value) {
            self.complain(name, complaint);
        }
        if let Some(domain) = domain
            && (domain.value.is_empty() || domain.value.len() > MAX_TEXT_BYTES)
        {
            self.complain(domain, "a domain has from 1 to 4096 bytes");
        }
        // Without a match it is found by its name alone, and stands in no other's way.
        let own = if entries.is_empty() { &name.value } else { DEFAULT_DOMAIN };
        let domain = domain.as_ref().map_or(own, |domain| &domain.value);
        let algorithm = table.algorithm.unwrap_or_default();
        let (limit, shown) = self.limit(limit, algorithm, burst.as_ref());
        Rule {
            name: name.value.as_str().into(),
            envoy_name: self.envoy_name(table),
            domain: domain.into(),
            entries: entries.iter().map(|entry| self.entry(entry)).collect(),
            limit,
            shown,
            enforcement: table.enforce.as_ref().map_or(Enforcement::All, |text| text.0),
            quota: table.quota,
            // Resolved when all rules are known.
            replaces: Vec::new(),
            detailed_metric: table.detailed_metric,
            schedule: self.schedule(table, schedule),
            place: self.counters(table, algorithm),
            held_ns: table.lease.as_ref().map_or(HELD_NS, nanoseconds),
            when_gone: self.when_gone(table),
            most_keys: table.keys.map(Into::into),
            origin: self.place(name).origin(),
        }
    }

    fn envoy_name(&mut self, table: &RuleTable) -> Arc<str> {
        if let Some(name) = &table.envoy_name
            && name.value.len() > MAX_TEXT_BYTES
        {
            self.complain(name, "a name in answers has at most 4096 bytes");
        }
        table.envoy_name.as_ref().unwrap_or(&table.name).value.as_str().into()
    }

    fn entry(&mut self, at: &At<EntryTable>) -> Entry {
        let EntryTable { key, value, values, shared } = &at.value;
        if key.is_empty() {
            self.complain(at, "an entry's key is empty");
        }
        let texts = values.iter().flatten().chain(value).chain([key]);
        if texts.into_iter().any(|text| text.len() > MAX_TEXT_BYTES) {
            self.complain(at, "a key or value has at most 4096 bytes");
        }
        let is_pattern = value.as_ref().is_some_and(|value| value.contains('*'));
        if *shared && !is_pattern {
            let complaint =
                "shared is for patterns: write value = \"*\" for all values on one counter";
            self.complain(at, complaint);
        }
        let value = match (value, values) {
            (Some(_), Some(_)) => {
                self.complain(at, "value or values, not both");
                Value::Any
            }
            (Some(text), None) if is_pattern => {
                Value::Pattern { text: text.as_str().into(), shared: *shared }
            }
            (Some(text), None) => Value::Exact(text.as_str().into()),
            (None, Some(values)) => self.one_of(at, values),
            (None, None) => Value::Any,
        };
        Entry { key: key.as_str().into(), value }
    }

    fn one_of<T>(&mut self, at: &At<T>, values: &[String]) -> Value {
        if values.is_empty() {
            self.complain(at, "a list of no values matches nothing");
        }
        let mut seen = std::collections::HashSet::new();
        if let Some(twice) = values.iter().find(|value| !seen.insert(value.as_str())) {
            self.complain(at, format!("{twice:?} is in the list twice"));
        }
        Value::OneOf(values.iter().map(|value| value.as_str().into()).collect())
    }

    fn limit(
        &mut self,
        limit: &At<LimitText>,
        algorithm: Algorithm,
        burst: Option<&At<u64>>,
    ) -> (Limit, Shown) {
        let burst_permits = burst.map(|burst| burst.value);
        match limit.value.0.build(algorithm, burst_permits) {
            Ok(built) => built,
            Err(complaint) => {
                let at = match burst {
                    Some(burst) if limit.value.0.build(algorithm, None).is_ok() => {
                        self.place(burst)
                    }
                    _ => self.place(limit),
                };
                self.all.problems.push(Problem::at(at, complaint));
                (Limit::Nothing, crate::config::limit::NOTHING)
            }
        }
    }

    /// Limits that change with the time are for counters here: a store, and permits in flight, are kept under one.
    fn schedule(&mut self, table: &RuleTable, schedule: &[ScheduleTable]) -> Vec<Scheduled> {
        let algorithm = table.algorithm.unwrap_or_default();
        let is_here = table.store.as_ref().is_none_or(|place| place.value == PlaceText::Here);
        if let Some(first) = schedule.first() {
            if !is_here {
                self.complain(
                    &first.limit,
                    "a schedule is for counters here, and these are in the store",
                );
            } else if algorithm == Algorithm::Concurrency {
                self.complain(
                    &first.limit,
                    "permits in flight have no schedule: what is held stays held",
                );
            }
        }
        schedule.iter().map(|entry| self.scheduled(entry, algorithm)).collect()
    }

    fn scheduled(&mut self, table: &ScheduleTable, algorithm: Algorithm) -> Scheduled {
        let (limit, shown) = self.limit(&table.limit, algorithm, table.burst.as_ref());
        let zone = table.zone.as_ref().map_or("UTC", |zone| &zone.value);
        if let (Some(at), Err(error)) = (&table.zone, TimeZone::get(zone)) {
            let problem = Problem::at(self.place(at), format!("no time zone {zone:?}: {error}"));
            self.all.problems.push(problem.help("write a name like \"Europe/Berlin\" or \"UTC\""));
        }
        if table.days.as_ref().is_some_and(Vec::is_empty) {
            self.complain(&table.limit, "a limit for no days; leave out `days` for all");
        }
        let days = table.days.as_ref().map_or([true; 7], |days| {
            let mut all = [false; 7];
            for days in days {
                all.iter_mut().zip(days.0.0).for_each(|(is_in, also)| *is_in |= also);
            }
            all
        });
        Scheduled {
            days,
            from_s: table.from.as_ref().map_or(0, |Text(from)| from.0),
            until_s: table.to.as_ref().map_or(DAY_S, |Text(to)| to.0),
            zone: zone.into(),
            limit,
            shown,
        }
    }

    fn counters(&mut self, table: &RuleTable, algorithm: Algorithm) -> Place {
        let lease_ns = table.lease.as_ref().map_or(LEASE_NS, nanoseconds);
        let place = table.store.as_ref().map_or(PlaceText::Here, |place| place.value);
        let is_in_flight = algorithm == Algorithm::Concurrency;
        if let (Some(lease), false) = (&table.lease, is_in_flight || place == PlaceText::Leased) {
            let complaint =
                "a lease belongs to store = \"leased\", or to algorithm = \"concurrency\"";
            self.complain(lease, complaint);
        }
        if let Some(lease) = table.lease.as_ref().filter(|lease| lease.value.0.is_zero()) {
            self.complain(lease, "a lease of no time");
        }
        if let (Some(at), true) = (&table.store, is_in_flight && place == PlaceText::Leased) {
            self.complain(at, "what is in flight is not borrowed; write store = \"exact\"");
        }
        if let (Some(at), false) = (&table.store, place == PlaceText::Here) {
            let spot = self.place(at);
            self.all.needs_store.get_or_insert(spot);
        }
        match place {
            PlaceText::Here => Place::Here,
            PlaceText::Exact => Place::StoreExact,
            PlaceText::Leased => Place::StoreLeased { lease_ns },
        }
    }

    fn when_gone(&mut self, table: &RuleTable) -> WhenGone {
        let is_here = table.store.as_ref().is_none_or(|place| place.value == PlaceText::Here);
        if let (Some(at), true) = (&table.when_gone, is_here) {
            self.complain(at, "when_gone is about counters in a store, and these are here");
        }
        if let Some(at) = &table.when_gone
            && at.value == WhenGoneText::Local
            && table.algorithm == Some(Algorithm::Concurrency)
        {
            self.complain(at, "what is in flight elsewhere is not known here; write deny or admit");
        }
        match table.when_gone.as_ref().map(|at| at.value) {
            None | Some(WhenGoneText::Local) => WhenGone::Local,
            Some(WhenGoneText::Deny) => WhenGone::Deny,
            Some(WhenGoneText::Admit) => WhenGone::Admit,
        }
    }

    fn tier(&mut self, table: &RuleTable, rule: &Rule, tier: &TierTable) -> Option<(Spot, Rule)> {
        let name = format!("{}/{}", rule.name, tier.name.value);
        if let Err(complaint) = naming::check(&name) {
            self.complain(&tier.name, format!("the rule's name would be {name:?}: {complaint}"));
        }
        if tier.name.value.is_empty() {
            self.complain(&tier.name, "a tier needs a name");
        }
        let value = self.tier_value(tier)?;
        let at_tier = tier.name.span.clone();
        let nth = self.tier_entry(rule, tier)?;
        let mut entries = rule.entries.clone();
        entries.get_mut(nth)?.value = value;
        let algorithm = table.algorithm.unwrap_or_default();
        let (limit, shown) = self.limit(&tier.limit, algorithm, tier.burst.as_ref());
        let name: Arc<str> = name.into();
        let envoy_name = table.envoy_name.as_ref().map_or(&name, |_| &rule.envoy_name);
        let tier = Rule {
            envoy_name: Arc::clone(envoy_name),
            name,
            entries,
            limit,
            shown,
            schedule: self.schedule(table, &tier.schedule),
            most_keys: tier.keys.or(table.keys).map(Into::into),
            origin: self.place(&tier.name).origin(),
            ..rule.clone()
        };
        Some((self.source.place(at_tier), tier))
    }

    fn tier_value(&mut self, tier: &TierTable) -> Option<Value> {
        match (&tier.values, &tier.pattern) {
            (Some(values), None) => Some(self.one_of(values, &values.value)),
            (None, Some(pattern)) if !pattern.value.contains('*') => {
                self.complain(
                    pattern,
                    "a pattern has a *; write values = [...] for values as they are",
                );
                None
            }
            (None, Some(pattern)) => {
                Some(Value::Pattern { text: pattern.value.as_str().into(), shared: false })
            }
            (None, None) => {
                self.complain(
                    &tier.name,
                    "for whom is it? Write values = [...] or pattern = \"...\"",
                );
                None
            }
            (Some(_), Some(pattern)) => {
                self.complain(pattern, "values or pattern, not both");
                None
            }
        }
    }

    /// Which entry has the tier's values.
    fn tier_entry(&mut self, rule: &Rule, tier: &TierTable) -> Option<usize> {
        if let Some(key) = &tier.key {
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
                    "the rule's match has {have} without a value; say which by key = \"...\""
                );
                self.complain(&tier.name, complaint);
                None
            }
        }
    }
}

fn nanoseconds(length: &At<Text<Duration>>) -> u64 {
    u64::try_from(length.value.0.as_nanos()).unwrap_or(u64::MAX)
}
