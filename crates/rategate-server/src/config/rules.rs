//! Conversion of the native format's tables to rules, and what both formats' rules share.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::de::ReportedKeys;
use super::error::Problem;
use super::gather::{Gathered, Kind};
use super::limit::{Algorithm, LEASE_NS, NOTHING, Written, check_burst};
use super::naming::{self, MAX_TEXT_BYTES};
use super::source::SourceLocation;
use super::tables::{EntryTable, PlaceText, RuleTable, ScheduleTable};
use super::text::{At, Text};
use crate::rule::{
    CounterLocation, DisplayLimit, Enforcement, Entry, HELD_NS, Limit, OnUnavailable, Rule,
    Scheduled, Value,
};

const DAY_S: u32 = 86_400;
/// The domain of rules that give none.
const DEFAULT_DOMAIN: &str = "default";

/// Reads a rule and its tiers. Some values may have been reported already; the others are still
/// checked.
pub(crate) fn read(at: &At<RuleTable>, reported: ReportedKeys, all: &mut Gathered) {
    let problems_before = all.problems.len();
    let mut reader = Reader { path: None, reported, all };
    let rule = reader.rule(at);
    let tiers = at.value.tiers.iter();
    let tiers: Vec<_> = tiers.filter_map(|tier| reader.tier(at, &rule, tier)).collect();
    let is_faulty = !reader.reported.is_empty() || all.problems.len() > problems_before;
    // A tier replaces what its rule does.
    let replaced = |name: &At<String>| (name.value.clone(), all.sources.location(&name.span));
    let replaced: Vec<_> = at.value.replaces.iter().map(replaced).collect();
    for (location, rule) in tiers {
        all.add(Kind::Tier, rule, location, replaced.clone(), is_faulty);
    }
    if let Some(name) = &at.value.name {
        let location = all.sources.location(&name.span);
        all.add(Kind::Native, rule, location, replaced, is_faulty);
    }
}

/// A reader of rules in either format.
pub(super) struct Reader<'a> {
    /// The path of the table in YAML, with which messages begin.
    pub(super) path: Option<String>,
    pub(super) reported: ReportedKeys,
    pub(super) all: &'a mut Gathered,
}

/// The algorithm of a limit, or `None` if a problem with it was reported.
type KnownAlgorithm = Option<Algorithm>;

/// The location of a limit's counters as it is written.
pub(super) struct Counters<'t> {
    /// The table that has these keys.
    pub(super) table: &'t Range<usize>,
    pub(super) store: Option<&'t At<PlaceText>>,
    pub(super) lease: Option<&'t At<Text<Duration>>>,
    pub(super) on_unavailable: Option<&'t At<OnUnavailable>>,
}

impl Reader<'_> {
    pub(super) fn location<T>(&self, at: &At<T>) -> SourceLocation {
        self.all.sources.location(&at.span)
    }

    pub(super) fn complain<T>(&mut self, at: &At<T>, message: impl Into<String>) {
        self.complain_of("", &at.span, message);
    }

    /// Reports a problem with a key of the table.
    pub(super) fn complain_of(
        &mut self,
        key: &str,
        span: &Range<usize>,
        message: impl Into<String>,
    ) {
        let problem = self.problem(key, span, message);
        self.all.problems.push(problem);
    }

    pub(super) fn problem(
        &self,
        key: &str,
        span: &Range<usize>,
        message: impl Into<String>,
    ) -> Problem {
        let path = self.path.as_ref().map(|path| format!("{path}.{key}"));
        let path = path.as_deref().map(|path| path.trim_matches('.')).unwrap_or_default();
        let (sign, message) = (if path.is_empty() { "" } else { ": " }, message.into());
        Problem::at(self.all.sources.location(span), format!("{path}{sign}{message}"))
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
        let (location, on_unavailable) = self.counters(&table.counters(&at.span), algorithm);
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
            location,
            held_ns: table.lease.as_ref().map_or(HELD_NS, nanoseconds),
            on_unavailable,
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

    fn envoy_name(&mut self, table: &RuleTable) -> Arc<str> {
        if let Some(name) = &table.envoy_name
            && name.value.len() > MAX_TEXT_BYTES
        {
            self.complain(name, "a name in answers has at most 4096 bytes");
        }
        let name = table.envoy_name.as_ref().or(table.name.as_ref());
        name.map_or("", |name| &name.value).into()
    }

    fn entry(&mut self, at: &At<Text<EntryTable>>) -> Entry {
        let EntryTable { key, value, values, shared } = &at.value.0;
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
        let mut seen = HashSet::new();
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
        limit: Option<&At<Text<Written>>>,
        algorithm: KnownAlgorithm,
        burst: Option<&At<u64>>,
    ) -> (Limit, DisplayLimit) {
        if limit.is_none() && !self.reported.is_reported(&at.span, "limit") {
            self.complain(at, "no limit; write limit = \"100/min\"");
        }
        let limit = limit.map(|limit| (limit.value.0, &limit.span));
        self.build(limit, algorithm, burst)
    }

    /// Builds a limit from its parts, each of which is checked even if another is wrong.
    pub(super) fn build(
        &mut self,
        limit: Option<(Written, &Range<usize>)>,
        algorithm: KnownAlgorithm,
        burst: Option<&At<u64>>,
    ) -> (Limit, DisplayLimit) {
        const NONE: (Limit, DisplayLimit) = (Limit::Nothing, NOTHING);
        let Some(algorithm) = algorithm else { return NONE };
        if let Some(burst) = burst
            && let Err(complaint) = check_burst(algorithm, burst.value)
        {
            self.complain_of("burst", &burst.span, complaint);
            return NONE;
        }
        let Some((limit, span)) = limit else { return NONE };
        limit.build(algorithm, burst.map(|burst| burst.value)).unwrap_or_else(|complaint| {
            match burst.filter(|_| limit.build(algorithm, None).is_ok()) {
                Some(burst) => self.complain_of("burst", &burst.span, complaint),
                None => self.complain_of("", span, complaint),
            }
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
            let span = first.value.limit.as_ref().map_or(&first.span, |limit| &limit.span);
            if self.is_here(&at.value.counters(&at.span)) == Some(false) {
                let message = "a schedule is for counters here, and these are in the store";
                self.complain_of("", span, message);
            } else if algorithm == Some(Algorithm::Concurrency) {
                let message = "permits in flight have no schedule: what is held stays held";
                self.complain_of("", span, message);
            }
        }
        schedule.iter().map(|entry| self.scheduled(entry, algorithm)).collect()
    }

    fn scheduled(&mut self, at: &At<ScheduleTable>, algorithm: KnownAlgorithm) -> Scheduled {
        let table = &at.value;
        let (limit, display_limit) =
            self.limit(at, table.limit.as_ref(), algorithm, table.burst.as_ref());
        let zone = table.zone.as_ref().map_or("UTC", |zone| &zone.value);
        if let (Some(at), Err(error)) = (&table.zone, TimeZone::get(zone)) {
            let problem = self.problem("", &at.span, format!("no time zone {zone:?}: {error}"));
            self.all.problems.push(problem.help("write a name like \"Europe/Berlin\" or \"UTC\""));
        }
        if let Some(days) = table.days.as_ref().filter(|days| days.value.is_empty())
            && !self.reported.is_reported(&at.span, "days")
        {
            self.complain(days, "a limit for no days; leave out `days` for all");
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

    /// Returns `true` if the counters are in this process, or `None` if a problem with that was
    /// reported.
    fn is_here(&self, given: &Counters<'_>) -> Option<bool> {
        let is_known = !self.reported.is_reported(given.table, "store");
        let is_here = given.store.is_none_or(|store| store.value == PlaceText::Here);
        is_known.then_some(is_here)
    }

    /// Returns the location of a limit's counters, and the decision while it is unavailable.
    pub(super) fn counters(
        &mut self,
        given: &Counters<'_>,
        algorithm: KnownAlgorithm,
    ) -> (CounterLocation, OnUnavailable) {
        let place = given.store.map_or(PlaceText::Here, |store| store.value);
        let is_in_flight = algorithm == Some(Algorithm::Concurrency);
        // An unknown value might be the one that permits the lease.
        let may_lease = place == PlaceText::Leased || self.is_here(given).is_none();
        if let (Some(lease), false) =
            (given.lease, algorithm.is_none() || is_in_flight || may_lease)
        {
            let complaint = if self.path.is_some() {
                "a lease belongs to store: leased; leave out one of the two"
            } else {
                "a lease belongs to store = \"leased\", or to algorithm = \"concurrency\""
            };
            self.complain_of("lease", &lease.span, complaint);
        }
        if let (Some(store), true, PlaceText::Leased) = (given.store, is_in_flight, place) {
            self.complain(store, "permits in flight cannot be leased; write store = \"exact\"");
        }
        if let (Some(at), false) = (given.store, place == PlaceText::Here) {
            let location = self.location(at);
            self.all.needs_store.get_or_insert(location);
        }
        if let (Some(at), Some(true)) = (given.on_unavailable, self.is_here(given)) {
            let message = "it is about counters in a store, and these are here";
            self.complain_of("on_unavailable", &at.span, message);
        }
        let on_unavailable = given.on_unavailable.map(|at| at.value);
        if let (Some(at), Some(OnUnavailable::Local), true) =
            (given.on_unavailable, on_unavailable, is_in_flight)
        {
            self.complain(at, "permits in flight elsewhere are unknown here; write deny or admit");
        }
        let lease_ns = given.lease.map_or(LEASE_NS, nanoseconds);
        let location = match place {
            PlaceText::Here => CounterLocation::Here,
            PlaceText::Exact => CounterLocation::StoreExact,
            PlaceText::Leased => CounterLocation::StoreLeased { lease_ns },
        };
        (location, on_unavailable.unwrap_or_default())
    }
}

impl RuleTable {
    const fn counters<'t>(&'t self, table: &'t Range<usize>) -> Counters<'t> {
        let Self { store, lease, on_unavailable, .. } = self;
        Counters {
            table,
            store: store.as_ref(),
            lease: lease.as_ref(),
            on_unavailable: on_unavailable.as_ref(),
        }
    }
}

fn nanoseconds(length: &At<Text<Duration>>) -> u64 {
    u64::try_from(length.value.0.as_nanos()).unwrap_or(u64::MAX)
}
