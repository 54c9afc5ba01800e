//! Conversion of the native format's tables to rules, and what both formats' rules share.

use std::collections::HashSet;
use std::fmt::Display;
use std::time::Duration;

use jiff::tz::TimeZone;
use rategate::charge::Debt;

use super::calendar::zone_help;
use super::de;
use super::error::Problem;
use super::gather::{Gathered, Kind, Names};
use super::hold_bounds::HoldKeys;
use super::limit::{Algorithm, Extra, LEASE_NS, NOTHING, Written};
use super::naming::{self, MAX_TEXT_BYTES};
use super::node::{self, Node};
use super::source::SourceLocation;
use super::tables::{DebtEnd, EntryTable, PlaceText, RuleTable, ScheduleTable};
use super::text::Text;
use crate::engine::LOGS_FORGET;
use crate::rule::{
    CounterLocation, Counts, DisplayLimit, Enforcement, Entry, HELD_NS, Limit, OnUnavailable, Over,
    Rule, Scheduled, Value,
};

/// The message about a rule or a tier without a name.
pub(super) const NO_NAME: &str = "no name; write name = \"...\"";
const DAY_S: u32 = 86_400;
/// The domain of rules that give none.
const DEFAULT_DOMAIN: &str = "default";

/// Reads the rules of a file, one by one so that all problems are reported at once.
pub(crate) fn read_all(rules: &Node, all: &mut Gathered) {
    let node::Kind::List(rules) = &rules.kind else {
        let location = all.sources.location(&rules.span);
        let problem = Problem::at(location, "`rule` is a list of tables");
        all.problems.push(problem.help("write [[rule]]"));
        return;
    };
    for rule in rules {
        if all.is_hopeless() {
            return;
        }
        read(rule, all);
    }
}

/// Reads a rule and its tiers. A wrong value is reported; the others are still checked.
fn read(node: &Node, all: &mut Gathered) {
    let before = all.problems.len();
    let table = de::read::<RuleTable>(all, None, node);
    let Some(table) = table else { return };
    let mut reader = Reader { node, path: None, all };
    let algorithm = (!node.is_reported("algorithm")).then(|| table.algorithm.unwrap_or_default());
    let rule = reader.rule(&table, algorithm);
    let tiers = reader.tiers(&table, algorithm, &rule);
    let limits = reader.dimensions(&table, algorithm, &rule);
    let names = Names {
        replaces: reader.located(&table.replaces, "replaces"),
        also: reader.located(&table.also, "also"),
    };
    let location = reader.location("name");
    let is_faulty = all.problems.len() > before;
    if !table.limits.is_empty() {
        let mut kind = Kind::Native;
        for (location, rule) in limits {
            all.add(kind, rule, location, names.clone(), is_faulty);
            kind = Kind::FurtherLimit;
        }
        return;
    }
    // A tier replaces what its rule does.
    for (location, rule) in tiers {
        all.add(Kind::Tier, rule, location, names.clone(), is_faulty);
    }
    if table.name.is_some() {
        all.add(Kind::Native, rule, location, names, is_faulty);
    }
}

/// The effect of a take that does not fit, and the end of debts, as they are written.
#[derive(Clone, Copy)]
pub(super) struct Charging<'t> {
    pub(super) over: Option<Over>,
    pub(super) debt: Option<DebtEnd>,
    pub(super) most_debt: Option<&'t Text<Duration>>,
}

/// A reader of a table of a rule, in either format.
pub(super) struct Reader<'a> {
    pub(super) node: &'a Node,
    /// The path of the table in YAML, with which messages begin.
    pub(super) path: Option<String>,
    pub(super) all: &'a mut Gathered,
}

/// The algorithm of a limit, or `None` if a problem with it was reported.
pub(super) type KnownAlgorithm = Option<Algorithm>;

/// The location of a limit's counters as it is written.
pub(super) type Counters<'t> =
    (Option<PlaceText>, Option<&'t Text<Duration>>, Option<OnUnavailable>);

impl Reader<'_> {
    /// Returns a reader of a table below.
    pub(super) fn below<'b>(&'b mut self, node: &'b Node) -> Reader<'b> {
        Reader { node, path: self.path.clone(), all: self.all }
    }

    /// Returns the position of a key's value, or of the table if it is not given.
    pub(super) fn location(&self, key: &str) -> SourceLocation {
        self.all.sources.location(self.node.spot(key))
    }

    /// Creates a problem with a key, or with the whole table if the key is empty.
    pub(super) fn problem(&self, key: &str, message: impl Display) -> Problem {
        let path = self.path.as_ref().map(|path| format!("{path}.{key}")).unwrap_or_default();
        Problem::of(path.trim_matches('.'), self.location(key), message)
    }

    pub(super) fn complain(&mut self, key: &str, message: impl Display) {
        self.suggest(key, message, "");
    }

    /// Reports a problem with a key, and what would be right.
    pub(super) fn suggest(&mut self, key: &str, message: impl Display, help: &str) {
        let problem = self.problem(key, message).help(help);
        self.all.problems.push(problem);
    }

    /// Reports that a key is missing, unless that may follow from a reported problem.
    pub(super) fn miss(&mut self, key: &str, message: &str, help: &str) {
        if !self.node.is_reported(key) {
            self.suggest("", message, help);
        }
    }

    /// Returns names in a list with their positions.
    fn located(&self, names: &[String], key: &str) -> Vec<(String, SourceLocation)> {
        let located =
            |(name, node): (&String, &Node)| (name.clone(), self.all.sources.location(&node.span));
        names.iter().zip(self.node.elements(key)).map(located).collect()
    }

    fn rule(&mut self, table: &RuleTable, algorithm: KnownAlgorithm) -> Rule {
        let name = self.name(table.name.as_ref());
        let domain = table.domain.as_deref();
        if domain.is_some_and(|domain| domain.is_empty() || domain.len() > MAX_TEXT_BYTES) {
            self.complain("domain", "a domain has from 1 to 4096 bytes");
        }
        let envoy_name = table.envoy_name.as_deref().unwrap_or(name);
        if table.envoy_name.is_some() && envoy_name.len() > MAX_TEXT_BYTES {
            self.complain("envoy_name", "a name in answers has at most 4096 bytes");
        }
        // Without a match the rule is found by its name only, so its domain must not collide.
        let own = if table.entries.is_empty() { name } else { DEFAULT_DOMAIN };
        let is_single = table.limits.is_empty() && !self.node.is_reported("limits");
        let (limit, display_limit) = if is_single {
            let extra = Extra { burst: table.burst };
            self.limit(table.limit.as_ref(), algorithm, extra)
        } else {
            (Limit::Nothing, NOTHING)
        };
        let counters = (table.store, table.lease.as_ref(), table.on_unavailable);
        let (location, on_unavailable) = self.counters(counters, algorithm);
        let RuleTable { over, debt, most_debt, weights, prices, .. } = table;
        let charging = Charging { over: *over, debt: *debt, most_debt: most_debt.as_ref() };
        // Those of several limits are read with each of them.
        let (mut over, mut debt, mut counts) = (Over::Refuse, Debt::FORGOTTEN, Counts::Permits);
        if is_single {
            (over, debt) = self.charges(charging, table.store, algorithm);
            counts = self.counts(table.counts, (weights.as_ref(), None), prices.as_ref(), true);
        }
        if counts != Counts::Permits && algorithm == Some(Algorithm::Concurrency) {
            let message = "permits in flight are as many as a call asks for";
            self.complain(if table.counts.is_some() { "counts" } else { "weights" }, message);
        }
        let hold_bounds = self.hold_bounds(HoldKeys::of_rule(table));
        let entries = table.entries.iter().zip(self.node.elements("match"));
        let entries: Vec<Entry> =
            entries.map(|(Text(entry), node)| self.below(node).entry(entry)).collect();
        Rule {
            name: name.into(),
            envoy_name: envoy_name.into(),
            domain: domain.unwrap_or(own).into(),
            entries,
            dimension: None,
            also: table.also.iter().map(|name| name.as_str().into()).collect(),
            counts,
            limit,
            display_limit,
            over,
            look: table.look.unwrap_or_default(),
            debt,
            enforcement: table.enforce.as_ref().map_or(Enforcement::All, |text| text.0),
            quota: table.quota,
            // Resolved when all rules are known.
            replaces: Vec::new(),
            metadata: self.metadata(),
            detailed_metric: table.detailed_metric,
            schedule: self.schedule(&table.schedule, algorithm, self.is_here(table.store)),
            location,
            hold_bounds,
            held_ns: table.lease.as_ref().map_or(HELD_NS, nanoseconds),
            on_unavailable,
            max_keys: table.keys.map(Into::into),
            origin: self.location("name").origin(),
        }
    }

    /// Reads what a take does that does not fit, and how debts end.
    pub(super) fn charges(
        &mut self,
        Charging { over, debt, most_debt }: Charging<'_>,
        store: Option<PlaceText>,
        algorithm: KnownAlgorithm,
    ) -> (Over, Debt) {
        let keys = [over.map(|_| "over"), debt.map(|_| "debt")];
        let key = keys.into_iter().flatten().next().or(most_debt.map(|_| "most_debt"));
        let in_store = store.filter(|_| self.is_here(store) == Some(false));
        let complaint = match (algorithm, key) {
            (None, _) | (_, None) => None,
            (Some(Algorithm::Concurrency), Some(key)) => {
                Some((key, "permits in flight are not charged; only their release ends them"))
            }
            (Some(Algorithm::CountedWindow), Some("over")) if over == Some(Over::Refuse) => {
                let right = "a counted-window charges in any case; write \"fixed-window\"";
                Some(("over", right))
            }
            (Some(Algorithm::CountedWindow), Some(key)) if key != "over" => {
                let right = "a counted-window forgets its debts; write \"fixed-window\" with \
                             over = \"charge\"";
                Some((key, right))
            }
            (Some(Algorithm::Gcra), _) if debt == Some(DebtEnd::Forget) => {
                Some(("debt", "a gcra earns its debts back; leave it out, or write \"carry\""))
            }
            (Some(algorithm), _)
                if most_debt.is_some()
                    && algorithm != Algorithm::Gcra
                    && debt != Some(DebtEnd::Carry) =>
            {
                let right = "it bounds a debt that is carried; write debt = \"carry\" too";
                Some(("most_debt", right))
            }
            (Some(algorithm), Some(key))
                if in_store == Some(PlaceText::Leased)
                    && algorithm != Algorithm::CountedWindow
                    && (key != "over" || over == Some(Over::Charge)) =>
            {
                let right = "permits leased from a store are not charged; write store = \"exact\"";
                Some((key, right))
            }
            (Some(Algorithm::SlidingLog | Algorithm::CompactLog), _)
                if in_store.is_some() && debt == Some(DebtEnd::Carry) =>
            {
                Some(("debt", LOGS_FORGET))
            }
            _ => None,
        };
        if let Some((key, complaint)) = complaint {
            self.complain(key, complaint);
        }
        let ends = if debt == Some(DebtEnd::Carry) { Debt::CARRIED } else { Debt::FORGOTTEN };
        let debt = most_debt.map_or(ends, |most| ends.at_most(most.0));
        (over.unwrap_or_default(), debt)
    }

    /// Returns the name, or an empty one if it is missing.
    fn name<'t>(&mut self, name: Option<&'t String>) -> &'t str {
        match name.map(|name| naming::check(name)) {
            Some(Err(complaint)) => self.complain("name", complaint),
            Some(Ok(())) => {}
            None => self.miss("name", NO_NAME, ""),
        }
        name.map_or("", |name| name)
    }

    fn entry(&mut self, entry: &EntryTable) -> Entry {
        let EntryTable { key, value, values, shared } = entry;
        if key.is_empty() {
            self.complain("", "an entry's key is empty");
        }
        let texts = values.iter().flatten().chain(value).chain([key]);
        if texts.into_iter().any(|text| text.len() > MAX_TEXT_BYTES) {
            self.complain("", "a key or value has at most 4096 bytes");
        }
        let is_pattern = value.as_ref().is_some_and(|value| value.contains('*'));
        if *shared && !is_pattern {
            let message =
                "shared is for patterns: write value = \"*\" for all values on one counter";
            self.complain("", message);
        }
        let value = match (value, values) {
            (Some(_), Some(_)) => {
                self.complain("", "value or values, not both");
                Value::Any
            }
            (Some(text), None) if is_pattern => {
                Value::Pattern { text: text.as_str().into(), shared: *shared }
            }
            (Some(text), None) => Value::Exact(text.as_str().into()),
            (None, Some(values)) => self.one_of("", values),
            (None, None) => Value::Any,
        };
        Entry { key: key.as_str().into(), value }
    }

    pub(super) fn one_of(&mut self, key: &str, values: &[String]) -> Value {
        if values.is_empty() {
            self.complain(key, "the list is empty; give at least one value");
        }
        let mut seen = HashSet::new();
        if let Some(twice) = values.iter().find(|value| !seen.insert(value.as_str())) {
            self.complain(key, format!("{twice:?} is in the list twice"));
        }
        Value::OneOf(values.iter().map(|value| value.as_str().into()).collect())
    }

    /// Returns the limit of a rule, a tier or a schedule. A wrong or missing one denies
    /// everything.
    pub(super) fn limit(
        &mut self,
        limit: Option<&Text<Written>>,
        algorithm: KnownAlgorithm,
        extra: Extra,
    ) -> (Limit, DisplayLimit) {
        if limit.is_none() {
            self.miss("limit", "no limit; write limit = \"100/min\"", "");
        }
        self.build("limit", limit.map(|limit| limit.0.clone()), algorithm, extra)
    }

    /// Builds the limit of a key from its parts, each of which is checked even if another is
    /// wrong.
    pub(super) fn build(
        &mut self,
        key: &str,
        limit: Option<Written>,
        algorithm: KnownAlgorithm,
        extra: Extra,
    ) -> (Limit, DisplayLimit) {
        let Some(algorithm) = algorithm else { return (Limit::Nothing, NOTHING) };
        // The text of a client keeps nothing in this process.
        let limit = if self.all.is_foreign { limit.map(Written::without_calendar) } else { limit };
        let built = extra.check(algorithm).and_then(|()| {
            let built = limit.clone().map(|limit| limit.build(algorithm, extra)).transpose();
            let is_right_with = |extra| {
                limit.clone().is_some_and(|limit: Written| limit.build(algorithm, extra).is_ok())
            };
            built.map_err(|complaint| {
                let is_burst = is_right_with(Extra { burst: None });
                (if is_burst { "burst" } else { key }, complaint)
            })
        });
        let built = built.map_err(|(key, complaint)| self.complain(key, complaint));
        built.ok().flatten().unwrap_or((Limit::Nothing, NOTHING))
    }

    /// Reads limits with a schedule. They are only possible for local counters: stores and
    /// permits in flight need a fixed limit.
    pub(super) fn schedule(
        &mut self,
        schedule: &[ScheduleTable],
        algorithm: KnownAlgorithm,
        is_here: Option<bool>,
    ) -> Vec<Scheduled> {
        if let Some(first) = self.node.elements("schedule").next().filter(|_| !schedule.is_empty())
        {
            if is_here == Some(false) {
                let message = "a schedule is for counters here, and these are in the store";
                self.below(first).complain("limit", message);
            } else if algorithm == Some(Algorithm::Concurrency) {
                let message = "permits in flight have no schedule: what is held stays held";
                self.below(first).complain("limit", message);
            }
        }
        let schedule = schedule.iter().zip(self.node.elements("schedule"));
        schedule.map(|(table, node)| self.below(node).scheduled(table, algorithm)).collect()
    }

    fn scheduled(&mut self, table: &ScheduleTable, algorithm: KnownAlgorithm) -> Scheduled {
        let extra = Extra { burst: table.burst };
        let (limit, display_limit) = self.limit(table.limit.as_ref(), algorithm, extra);
        let zone = table.zone.as_deref().unwrap_or("UTC");
        if let Err(error) = TimeZone::get(zone) {
            let message = format!("no time zone {zone:?}: {error}");
            self.suggest("zone", message, &zone_help(zone));
        }
        if table.days.as_ref().is_some_and(Vec::is_empty) && !self.node.is_reported("days") {
            self.complain("days", "`days` is empty; leave it out for all days");
        }
        let mut days = [table.days.is_none(); 7];
        for Text(some) in table.days.iter().flatten() {
            days.iter_mut().zip(some.0).for_each(|(is_in, also)| *is_in |= also);
        }
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
    pub(super) fn is_here(&self, store: Option<PlaceText>) -> Option<bool> {
        let is_here = store.is_none_or(|store| store == PlaceText::Here);
        (!self.node.is_reported("store")).then_some(is_here)
    }

    /// Returns the location of a limit's counters, and the decision while it is unavailable.
    pub(super) fn counters(
        &mut self,
        (store, lease, on_unavailable): Counters<'_>,
        algorithm: KnownAlgorithm,
    ) -> (CounterLocation, OnUnavailable) {
        let place = store.unwrap_or(PlaceText::Here);
        let is_in_flight = algorithm == Some(Algorithm::Concurrency);
        // An unknown value might be the one that permits the lease.
        let may_lease = place == PlaceText::Leased || self.is_here(store).is_none();
        if lease.is_some() && !(algorithm.is_none() || is_in_flight || may_lease) {
            let complaint = if self.path.is_some() {
                "a lease belongs to store: leased; leave out one of the two"
            } else {
                "a lease belongs to store = \"leased\", or to algorithm = \"concurrency\""
            };
            self.complain("lease", complaint);
        }
        if is_in_flight && place == PlaceText::Leased {
            let message = "permits in flight cannot be leased; write store = \"exact\"";
            self.complain("store", message);
        }
        if place != PlaceText::Here {
            let location = self.location("store");
            self.all.needs_store.get_or_insert(location);
        }
        if on_unavailable.is_some() && self.is_here(store) == Some(true) {
            let message = "it is about counters in a store, and these are here";
            self.complain("on_unavailable", message);
        }
        if is_in_flight && on_unavailable == Some(OnUnavailable::Local) {
            let message = "permits in flight elsewhere are unknown here; write deny or admit";
            self.complain("on_unavailable", message);
        }
        let location = match place {
            PlaceText::Here => CounterLocation::Here,
            PlaceText::Exact => CounterLocation::StoreExact,
            PlaceText::Leased => {
                CounterLocation::StoreLeased { lease_ns: lease.map_or(LEASE_NS, nanoseconds) }
            }
        };
        (location, on_unavailable.unwrap_or_default())
    }
}

fn nanoseconds(length: &Text<Duration>) -> u64 {
    u64::try_from(length.0.as_nanos()).unwrap_or(u64::MAX)
}
