//! Conversion of the native format's tables to rules.

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::read::ReportedKeys;
use super::tables::{
    EntryTable, LimitText, OnUnavailableText, PlaceText, RuleTable, ScheduleTable,
};
use super::text::{At, Text};
use crate::config::error::Problem;
use crate::config::gather::{Gathered, Kind};
use crate::config::limit::{Algorithm, LEASE_NS, check_burst};
use crate::config::naming::{self, MAX_TEXT_BYTES};
use crate::config::source::{Source, SourceLocation as Spot};
use crate::rule::{
    CounterLocation, DisplayLimit, Enforcement, Entry, HELD_NS, Limit, OnUnavailable, Rule,
    Scheduled, Value,
};

const DAY_S: u32 = 86_400;
/// The domain of rules that give none.
const DEFAULT_DOMAIN: &str = "default";

/// Reads a rule and its tiers. Some values may have been reported already; the others are still
/// checked.
pub(crate) fn read(
    source: &Arc<Source>,
    table: &At<RuleTable>,
    reported: ReportedKeys,
    all: &mut Gathered,
) {
    let problems_before = all.problems.len();
    let mut reader = Reader { source, reported, all };
    let rule = reader.rule(table);
    let tiers: Vec<_> =
        table.value.tiers.iter().filter_map(|tier| reader.tier(table, &rule, tier)).collect();
    let is_faulty = !reader.reported.is_empty() || all.problems.len() > problems_before;
    // A tier replaces what its rule does.
    let replaced = |at: &At<String>| (at.value.clone(), source.location(at.span.clone()));
    let replaced: Vec<_> = table.value.replaces.iter().map(replaced).collect();
    for (spot, rule) in tiers {
        all.add(Kind::Tier, rule, spot, replaced.clone(), is_faulty);
    }
    if let Some(name) = &table.value.name {
        all.add(Kind::Native, rule, source.location(name.span.clone()), replaced, is_faulty);
    }
}

pub(super) struct Reader<'a> {
    pub(super) source: &'a Arc<Source>,
    pub(super) reported: ReportedKeys,
    pub(super) all: &'a mut Gathered,
}

/// The algorithm of a limit, or `None` if a problem with it was reported.
type KnownAlgorithm = Option<Algorithm>;

impl Reader<'_> {
    pub(super) fn location<T>(&self, at: &At<T>) -> Spot {
        self.source.location(at.span.clone())
    }

    pub(super) fn complain<T>(&mut self, at: &At<T>, message: impl Into<String>) {
        let problem = Problem::at(self.location(at), message);
        self.all.problems.push(problem);
    }

    fn rule(&mut self, at: &At<RuleTable>) -> Rule {
        let table = &at.value;
        let RuleTable { domain, entries, limit, burst, schedule, .. } = table;
        let name = self.name(at);
        if let Some(domain) = domain
            && (domain.value.is_empty() || domain.value.len() > MAX_TEXT_BYTES)
        {
            self.complain(domain, "a domain has from 1 to 4096 bytes");
        }
        // Without a match the rule is found by its name only, so its domain must not collide.
        let own = if entries.is_empty() { name } else { DEFAULT_DOMAIN };
        let domain = domain.as_ref().map_or(own, |domain| &domain.value);
        let algorithm = self.algorithm(at);
        let (limit, display_limit) = self.limit(at, limit.as_ref(), algorithm, burst.as_ref());
        Rule {
            name: name.into(),
            envoy_name: self.envoy_name(table),
            domain: domain.into(),
            entries: entries.iter().map(|entry| self.entry(entry)).collect(),
            limit,
            display_limit,
            enforcement: table.enforce.as_ref().map_or(Enforcement::All, |text| text.0),
            quota: table.quota,
            // Resolved when all rules are known.
            replaces: Vec::new(),
            detailed_metric: table.detailed_metric,
            schedule: self.schedule(at, schedule),
            location: self.counters(at, algorithm),
            held_ns: table.lease.as_ref().map_or(HELD_NS, nanoseconds),
            on_unavailable: self.on_unavailable(at),
            max_keys: table.keys.map(Into::into),
            origin: table
                .name
                .as_ref()
                .map_or_else(|| self.location(at), |name| self.location(name))
                .origin(),
        }
    }

    /// Returns the name, or an empty one if it is missing.
    fn name<'t>(&mut self, at: &'t At<RuleTable>) -> &'t str {
        let Some(name) = &at.value.name else {
            if !self.reported.is_reported(&at.span, "name") {
                self.complain(at, "no name; write name = \"...\"");
            }
            return "";
        };
        if let Err(complaint) = naming::check(&name.value) {
            self.complain(name, complaint);
        }
        &name.value
    }

    pub(super) fn algorithm(&self, at: &At<RuleTable>) -> KnownAlgorithm {
        let is_known = !self.reported.is_reported(&at.span, "algorithm");
        is_known.then(|| at.value.algorithm.unwrap_or_default())
    }

    /// Returns `true` if the counters are in this process, or `None` if a problem with that was
    /// reported.
    fn is_here(&self, at: &At<RuleTable>) -> Option<bool> {
        let is_known = !self.reported.is_reported(&at.span, "store");
        let is_here =
            at.value.store.as_ref().is_none_or(|location| location.value == PlaceText::Here);
        is_known.then_some(is_here)
    }

    fn envoy_name(&mut self, table: &RuleTable) -> Arc<str> {
        if let Some(name) = &table.envoy_name
            && name.value.len() > MAX_TEXT_BYTES
        {
            self.complain(name, "a name in answers has at most 4096 bytes");
        }
        let name = table.envoy_name.as_ref().or(table.name.as_ref());
        name.map_or("", |name| &name.value).into()
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

    pub(super) fn one_of<T>(&mut self, at: &At<T>, values: &[String]) -> Value {
        if values.is_empty() {
            self.complain(at, "a list of no values matches nothing");
        }
        let mut seen = std::collections::HashSet::new();
        if let Some(twice) = values.iter().find(|value| !seen.insert(value.as_str())) {
            self.complain(at, format!("{twice:?} is in the list twice"));
        }
        Value::OneOf(values.iter().map(|value| value.as_str().into()).collect())
    }

    /// Returns the limit of a rule, a tier or a schedule. A wrong or missing one denies
    /// everything.
    pub(super) fn limit<T>(
        &mut self,
        at: &At<T>,
        limit: Option<&At<LimitText>>,
        algorithm: KnownAlgorithm,
        burst: Option<&At<u64>>,
    ) -> (Limit, DisplayLimit) {
        const NONE: (Limit, DisplayLimit) = (Limit::Nothing, crate::config::limit::NOTHING);
        if limit.is_none() && !self.reported.is_reported(&at.span, "limit") {
            self.complain(at, "no limit; write limit = \"100/min\"");
        }
        let Some(algorithm) = algorithm else { return NONE };
        if let Some(burst) = burst
            && let Err(complaint) = check_burst(algorithm, burst.value)
        {
            self.complain(burst, complaint);
            return NONE;
        }
        let Some(limit) = limit else { return NONE };
        let built = limit.value.0.build(algorithm, burst.map(|burst| burst.value));
        built.unwrap_or_else(|complaint| {
            let is_of_burst = limit.value.0.build(algorithm, None).is_ok();
            let burst = burst.filter(|_| is_of_burst).map(|burst| self.location(burst));
            let at = burst.unwrap_or_else(|| self.location(limit));
            self.all.problems.push(Problem::at(at, complaint));
            NONE
        })
    }

    /// Reads limits with a schedule. They are only possible for local counters: stores and
    /// permits in flight need a fixed limit.
    pub(super) fn schedule(
        &mut self,
        at: &At<RuleTable>,
        schedule: &[At<ScheduleTable>],
    ) -> Vec<Scheduled> {
        let algorithm = self.algorithm(at);
        if let Some(first) = schedule.first() {
            let location =
                first.value.limit.as_ref().map_or(first.span.clone(), |at| at.span.clone());
            let location = self.source.location(location);
            let message = if self.is_here(at) == Some(false) {
                Some("a schedule is for counters here, and these are in the store")
            } else if algorithm == Some(Algorithm::Concurrency) {
                Some("permits in flight have no schedule: what is held stays held")
            } else {
                None
            };
            self.all.problems.extend(message.map(|message| Problem::at(location, message)));
        }
        schedule.iter().map(|entry| self.scheduled(entry, algorithm)).collect()
    }

    fn scheduled(&mut self, at: &At<ScheduleTable>, algorithm: KnownAlgorithm) -> Scheduled {
        let table = &at.value;
        let (limit, display_limit) =
            self.limit(at, table.limit.as_ref(), algorithm, table.burst.as_ref());
        let zone = table.zone.as_ref().map_or("UTC", |zone| &zone.value);
        if let (Some(at), Err(error)) = (&table.zone, TimeZone::get(zone)) {
            let problem = Problem::at(self.location(at), format!("no time zone {zone:?}: {error}"));
            self.all.problems.push(problem.help("write a name like \"Europe/Berlin\" or \"UTC\""));
        }
        if table.days.as_ref().is_some_and(|days| days.value.is_empty())
            && !self.reported.is_reported(&at.span, "days")
        {
            let days =
                table.days.as_ref().map_or_else(|| self.location(at), |days| self.location(days));
            let message = "a limit for no days; leave out `days` for all";
            self.all.problems.push(Problem::at(days, message));
        }
        let days = table.days.as_ref().map_or([true; 7], |days| {
            let mut all = [false; 7];
            for days in &days.value {
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
            display_limit,
        }
    }

    fn counters(&mut self, at: &At<RuleTable>, algorithm: KnownAlgorithm) -> CounterLocation {
        let table = &at.value;
        let lease_ns = table.lease.as_ref().map_or(LEASE_NS, nanoseconds);
        let location = table.store.as_ref().map_or(PlaceText::Here, |location| location.value);
        // An unknown value might be the one that permits the lease.
        let is_in_flight = algorithm.is_none_or(|algorithm| algorithm == Algorithm::Concurrency);
        let may_lease = location == PlaceText::Leased || self.is_here(at).is_none();
        if let (Some(lease), false) = (&table.lease, is_in_flight || may_lease) {
            let complaint =
                "a lease belongs to store = \"leased\", or to algorithm = \"concurrency\"";
            self.complain(lease, complaint);
        }
        if let Some(store) = &table.store
            && (algorithm, location) == (Some(Algorithm::Concurrency), PlaceText::Leased)
        {
            self.complain(store, "permits in flight cannot be leased; write store = \"exact\"");
        }
        if let (Some(at), false) = (&table.store, location == PlaceText::Here) {
            let spot = self.location(at);
            self.all.needs_store.get_or_insert(spot);
        }
        match location {
            PlaceText::Here => CounterLocation::Here,
            PlaceText::Exact => CounterLocation::StoreExact,
            PlaceText::Leased => CounterLocation::StoreLeased { lease_ns },
        }
    }

    fn on_unavailable(&mut self, rule: &At<RuleTable>) -> OnUnavailable {
        let table = &rule.value;
        if let (Some(at), Some(true)) = (&table.on_unavailable, self.is_here(rule)) {
            self.complain(at, "on_unavailable is about counters in a store, and these are here");
        }
        if let Some(at) = &table.on_unavailable
            && at.value == OnUnavailableText::Local
            && table.algorithm == Some(Algorithm::Concurrency)
        {
            self.complain(at, "permits in flight elsewhere are unknown here; write deny or admit");
        }
        match table.on_unavailable.as_ref().map(|at| at.value) {
            None | Some(OnUnavailableText::Local) => OnUnavailable::Local,
            Some(OnUnavailableText::Deny) => OnUnavailable::Deny,
            Some(OnUnavailableText::Admit) => OnUnavailable::Admit,
        }
    }
}

fn nanoseconds(length: &At<Text<Duration>>) -> u64 {
    u64::try_from(length.value.0.as_nanos()).unwrap_or(u64::MAX)
}
