//! Envoy's format: the YAML of <https://github.com/envoyproxy/ratelimit>, with one domain in each
//! file.
//!
//! It also has the keys `algorithm`, `over`, `look`, `burst`, `calendar`, `store`, `lease`,
//! `on_unavailable`, `ttl`, `max_ttl` and `max_held`.
//!
//! By default its limits are windows of the wall clock in UTC that count every hit, denied or
//! not. So moving here changes no decision.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use rategate::charge::Debt;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::calendar::WrittenCalendar;
use super::de;
use super::error::Problem;
use super::gather::{Gathered, Kind as Draft, Names};
use super::hold_bounds::HoldKeys;
use super::limit::{Algorithm, Extra, UNLIMITED, Written};
use super::naming::{self, MAX_TEXT_BYTES};
use super::node::{self, Kind, Node};
use super::rules::{KnownAlgorithm, Reader};
use super::source::{Source, SourceLocation};
use super::tables::{PlaceText, Threshold};
use super::text::Text;
use crate::rule::{
    CounterLocation, Counts, DisplayLimit, Enforcement, Entry, HELD_NS, HoldBounds, Limit, Look,
    OnUnavailable, Over, Rule, Unit, Value,
};

const UNITS: &str = "unit: is one of second, minute, hour, day, week, month, year";

/// A file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping with the keys domain and descriptors")]
struct File {
    domain: Option<String>,
    /// They are read one by one.
    #[serde(rename = "descriptors")]
    _descriptors: Option<Vec<IgnoredAny>>,
}

/// A descriptor.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::zero_sized_map_values, reason = "metadata is a mapping, of which nothing is used")]
struct Descriptor {
    key: Option<String>,
    value: Option<String>,
    /// It is read from the tree.
    #[serde(rename = "metadata")]
    _metadata: Option<BTreeMap<String, IgnoredAny>>,
    rate_limit: Option<RateLimit>,
    shadow_mode: Option<bool>,
    detailed_metric: Option<bool>,
    value_to_metric: Option<bool>,
    share_threshold: Option<bool>,
    quota_mode: Option<bool>,
    #[serde(rename = "descriptors")]
    _descriptors: Option<Vec<IgnoredAny>>,
}

/// A limit, the rules that it replaces, and the location of its counters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RateLimit {
    name: Option<String>,
    replaces: Option<Vec<Replaced>>,
    unit: Option<Unit>,
    unit_multiplier: Option<u32>,
    requests_per_unit: Option<u32>,
    unlimited: Option<bool>,
    algorithm: Option<Algorithm>,
    over: Option<Over>,
    look: Option<Look>,
    burst: Option<u64>,
    calendar: Option<CalendarKeys>,
    store: Option<PlaceText>,
    lease: Option<Text<Duration>>,
    on_unavailable: Option<OnUnavailable>,
    ttl: Option<Text<Duration>>,
    max_ttl: Option<Text<Duration>>,
    max_held: Option<Text<Threshold>>,
}

/// The zone of windows that follow a calendar, and the local time from which they are counted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CalendarKeys {
    zone: Option<String>,
    anchor: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replaced {
    name: Option<String>,
}

/// The limit of a descriptor, and the location of its counters.
struct Counted {
    given: Arc<str>,
    replaces: Vec<(String, SourceLocation)>,
    limit: (Limit, DisplayLimit),
    counters: (CounterLocation, OnUnavailable),
    hold_bounds: HoldBounds,
}

/// Reads a file.
pub(crate) fn read(source: &Arc<Source>, all: &mut Gathered) {
    let start = all.sources.add(Arc::clone(source));
    let root = match node::yaml(source, start) {
        Ok(root) => root,
        Err(problem) => return all.problems.push(problem),
    };
    match &root.kind {
        Kind::List(_) => {
            let location = all.sources.location(&root.span);
            let problem = Problem::at(location, "a list of limits is Limitador's format");
            all.problems.push(problem.help(
                "write a [[rule]] in TOML for each: namespace is its domain, conditions and \
                 variables are its match",
            ));
        }
        _ => read_tree(&root, all),
    }
}

/// Reads the tree of a file, or of a control plane's resource.
pub(crate) fn read_tree(root: &Node, all: &mut Gathered) {
    let Some(file) = de::read::<File>(all, Some(""), root) else { return };
    let mut reader = Reader { node: root, path: Some(String::new()), all };
    let domain = reader.domain(file.domain.as_deref());
    // Without a domain no rule matches any request, but each rule is still checked.
    let is_faulty = domain.is_none();
    let domain: Arc<str> = domain.unwrap_or_default().into();
    Level { domain: &domain, above: &[], is_faulty }.read(root, "", all);
}

/// Sibling descriptors below the same entries.
#[derive(Clone, Copy)]
struct Level<'t> {
    domain: &'t Arc<str>,
    above: &'t [Entry],
    is_faulty: bool,
}

/// The descriptors of a level by key and value, with their positions.
type Seen = HashMap<(Arc<str>, Option<Arc<str>>), SourceLocation>;

impl Level<'_> {
    /// Reads the descriptors in a mapping.
    fn read(self, parent: &Node, path: &str, all: &mut Gathered) {
        let mut seen = Seen::new();
        for (nth, node) in parent.numbered("descriptors") {
            if all.is_hopeless() {
                return;
            }
            let path = format!("{path}.descriptors[{nth}]");
            let path = path.trim_start_matches('.');
            let before = all.problems.len();
            if let Some(table) = de::read::<Descriptor>(all, Some(path), node) {
                let mut reader = Reader { node, path: Some(path.to_owned()), all };
                let entries = reader.descriptor(self, &table, before, &mut seen);
                let is_faulty = self.is_faulty || table.key.is_none_or(|key| key.is_empty());
                Level { above: &entries, is_faulty, ..self }.read(node, path, all);
            }
        }
    }
}

impl Reader<'_> {
    /// Reads the file's domain, or reports a problem with it.
    fn domain<'t>(&mut self, domain: Option<&'t str>) -> Option<&'t str> {
        let Some(domain) = domain.filter(|domain| !domain.is_empty()) else {
            self.miss("domain", "empty domain", "write domain: and a name");
            return None;
        };
        self.check_length("domain", Some(domain), "longer");
        if let Some(first) = self.all.domains.get(domain) {
            let message =
                format!("duplicate domain {domain:?}, which is also at {}", first.origin());
            let help = "give it in one file, or merge_domains = true under [grpc]";
            let problem = self.problem("domain", message).help(help);
            self.all.again.push(problem);
        } else {
            let location = self.location("domain");
            self.all.domains.insert(domain.to_owned(), location);
        }
        Some(domain)
    }

    /// Adds the rule of a descriptor, if it has one, and returns its entries.
    fn descriptor(
        &mut self,
        level: Level<'_>,
        table: &Descriptor,
        before: usize,
        seen: &mut Seen,
    ) -> Vec<Entry> {
        let is = |flag: Option<bool>| flag.unwrap_or_default();
        let entry = self.entry_of(table);
        let metadata = self.metadata();
        let named = match &entry.value {
            Value::Exact(text) | Value::Pattern { text, .. } => Some(Arc::clone(text)),
            _ => None,
        };
        let location = self.location("");
        let first = seen.insert((Arc::clone(&entry.key), named), location.clone());
        let is_key = !entry.key.is_empty();
        let entries = [level.above, &[entry]].concat();
        let name = naming::of_entries(level.domain, &entries);
        if let Some(first) = first.filter(|_| is_key) {
            let first = first.origin();
            let message = format!("duplicate composite key {name:?}, which is also at {first}");
            self.complain("", message);
        }
        let is_leaf = self.node.elements("descriptors").next().is_none();
        let counted = match &table.rate_limit {
            Some(limit) => Some(self.rate_limit(limit)),
            None if is_leaf && !self.node.is_reported("rate_limit") => {
                self.warn("no rate_limit: everything that matches passes");
                Some(Counted {
                    given: "".into(),
                    replaces: Vec::new(),
                    limit: (Limit::Exempt, UNLIMITED),
                    counters: (CounterLocation::Here, OnUnavailable::Local),
                    hold_bounds: HoldBounds::DEFAULT,
                })
            }
            None => None,
        };
        let is_faulty = level.is_faulty || self.all.problems.len() > before;
        if let Some(Counted { given, replaces, limit, counters, hold_bounds }) = counted {
            let is_shadow = is(table.shadow_mode);
            let rule = Rule {
                name: name.into(),
                envoy_name: given,
                domain: Arc::clone(level.domain),
                entries: entries.clone(),
                dimension: None,
                also: Vec::new(),
                counts: Counts::Permits,
                limit: limit.0,
                display_limit: limit.1,
                over: Over::Refuse,
                look: table.rate_limit.as_ref().and_then(|limit| limit.look).unwrap_or_default(),
                debt: Debt::FORGOTTEN,
                enforcement: if is_shadow { Enforcement::Shadow } else { Enforcement::All },
                quota: is(table.quota_mode),
                replaces: Vec::new(),
                metadata,
                detailed_metric: is(table.detailed_metric) || is(table.value_to_metric),
                schedule: Vec::new(),
                location: counters.0,
                held_ns: HELD_NS,
                hold_bounds,
                on_unavailable: counters.1,
                max_keys: None,
                origin: location.origin(),
            };
            let others = Names { replaces, ..Names::default() };
            self.all.add(Draft::Envoy, rule, location, others, is_faulty);
        }
        entries
    }

    fn entry_of(&mut self, table: &Descriptor) -> Entry {
        let (key, value) = (table.key.as_deref().unwrap_or_default(), table.value.as_deref());
        if key.is_empty() {
            self.miss("key", "empty key", "each descriptor has a key");
        }
        if key.contains('*') {
            let help = "write key: and value: apart, with the * in the value";
            self.suggest("key", "a * in a key: patterns are for values", help);
        }
        self.check_length("key", Some(key), "longer");
        self.check_length("value", value, "longer");
        let shared = table.share_threshold.unwrap_or_default();
        let value = match value.filter(|value| !value.is_empty()) {
            None => Value::Any,
            Some(text) if text.contains('*') => Value::Pattern { text: text.into(), shared },
            Some(text) => Value::Exact(text.into()),
        };
        if shared && !matches!(value, Value::Pattern { .. }) {
            self.warn("share_threshold without a * in value: there is nothing to share");
        }
        Entry { key: key.into(), value }
    }

    fn rate_limit(&mut self, table: &RateLimit) -> Counted {
        let path = self.path.as_ref().map(|path| format!("{path}.rate_limit"));
        let node = self.node.get("rate_limit").unwrap_or(self.node);
        let mut reader = Reader { node, path, all: self.all };
        reader.check_length("name", table.name.as_deref(), "a name longer");
        let replaces = reader.replaces(table);
        let limit = if table.unlimited == Some(true) {
            reader.unlimited();
            (Limit::Unlimited, UNLIMITED)
        } else {
            reader.windowed(table)
        };
        let counters = (table.store, table.lease.as_ref(), table.on_unavailable);
        // No limit of this format has permits in flight.
        let is_calendar = table.calendar.is_some();
        let algorithm = if is_calendar { Algorithm::Calendar } else { Algorithm::CountedWindow };
        let counters = reader.counters(counters, Some(algorithm));
        let keys = HoldKeys {
            ttl: table.ttl.as_ref(),
            max_ttl: table.max_ttl.as_ref(),
            max_held: table.max_held.as_ref(),
        };
        let hold_bounds = reader.hold_bounds(keys);
        let given = table.name.as_deref().unwrap_or_default().into();
        Counted { given, replaces, limit, counters, hold_bounds }
    }

    fn replaces(&mut self, table: &RateLimit) -> Vec<(String, SourceLocation)> {
        let mut all = Vec::new();
        let replaced = table.replaces.iter().flatten().zip(self.node.numbered("replaces"));
        for (Replaced { name }, (nth, node)) in replaced {
            let mut reader = self.below(node);
            reader.path = reader.path.map(|path| format!("{path}.replaces[{nth}]"));
            match name.as_ref().filter(|name| !name.is_empty()) {
                None => reader.complain("", "empty name of a replaced limit"),
                name if name == table.name.as_ref() => {
                    let name = name.map_or("", |name| name);
                    let message = format!("{name:?} is this limit; it cannot replace itself");
                    reader.complain("name", message);
                }
                Some(name) => all.push((name.clone(), reader.location("name"))),
            }
        }
        all
    }

    /// Reports the keys that an unlimited descriptor cannot use.
    fn unlimited(&mut self) {
        let refused = [
            "unit",
            "algorithm",
            "over",
            "look",
            "burst",
            "calendar",
            "ttl",
            "max_ttl",
            "max_held",
        ];
        for key in refused.into_iter().chain(["requests_per_unit", "unit_multiplier"]) {
            if self.node.child(key).is_none_or(|node| matches!(node.kind, Kind::Null)) {
                continue;
            }
            let article = if key == "unit" || key == "burst" { "a " } else { "" };
            let problem = self.problem(key, format!("{article}{key} on an unlimited descriptor"));
            let problem = problem.help("leave it out");
            if refused.contains(&key) {
                self.all.problems.push(problem);
            } else {
                // Envoy's service accepts these.
                self.all.warnings.push(problem.warning());
            }
        }
    }

    /// Reads a limit with a unit. Reports the problems of all its keys.
    fn windowed(&mut self, table: &RateLimit) -> (Limit, DisplayLimit) {
        let is_reported = |key| self.node.is_reported(key);
        if table.unit.is_none() && !is_reported("unlimited") {
            self.miss("unit", "no unit, and not unlimited", UNITS);
        }
        let multiplier = table.unit_multiplier.unwrap_or(1);
        if multiplier == 0 {
            self.complain("unit_multiplier", "the multiplier must be at least 1");
        }
        if table.requests_per_unit.is_none()
            && table.unit.is_some()
            && !self.node.is_reported("requests_per_unit")
        {
            self.warn("no requests_per_unit: everything that matches is over the limit");
        }
        let algorithm = self.algorithm(table);
        let requests = table.requests_per_unit.unwrap_or(0).into();
        let written = table.unit.filter(|_| multiplier > 0).and_then(|unit| {
            let (key, written) = match &table.calendar {
                Some(CalendarKeys { zone, anchor }) => {
                    let (zone, anchor) = (zone.as_deref(), anchor.as_deref());
                    let every = Some(multiplier);
                    let written = WrittenCalendar { per: unit.name(), zone, anchor, every };
                    ("calendar", written.limit(requests))
                }
                None => ("", Written::per_unit(requests, multiplier.into(), unit)),
            };
            written.map_err(|complaint| self.complain(key, complaint)).ok()
        });
        let extra = Extra { burst: table.burst };
        self.build("", written, algorithm, extra)
    }

    /// Returns the algorithm by `algorithm`, `over` and `calendar`, which have to agree.
    fn algorithm(&mut self, table: &RateLimit) -> KnownAlgorithm {
        let algorithm = match (table.algorithm, table.over) {
            (Some(Algorithm::Concurrency), _) => {
                let message = "permits at a time have no unit; write such a limit in TOML";
                self.complain("algorithm", message);
                return None;
            }
            _ if ["algorithm", "over"].iter().any(|key| self.node.is_reported(key)) => return None,
            (Some(other), _) if table.calendar.is_some() && other != Algorithm::Calendar => {
                let message =
                    "a calendar decides by the algorithm calendar; leave out one of the two";
                self.complain("algorithm", message);
                return None;
            }
            (None, _) if table.calendar.is_some() => Algorithm::Calendar,
            (None, None | Some(Over::Charge)) => Algorithm::CountedWindow,
            (None, Some(Over::Refuse)) => Algorithm::FixedWindow,
            (Some(algorithm), _) => algorithm,
        };
        let own = match algorithm {
            Algorithm::CountedWindow => Over::Charge,
            _ => Over::Refuse,
        };
        if table.over.is_some_and(|over| over != own) {
            let (does, word) = match own {
                Over::Refuse => ("refuses", "refuse"),
                Over::Charge => ("charges", "charge"),
            };
            let message = format!("the algorithm {} {does} what does not fit", algorithm.name());
            self.suggest(
                "over",
                message,
                &format!("write over: {word}, or leave out one of the two"),
            );
            return None;
        }
        Some(algorithm)
    }

    fn check_length(&mut self, key: &str, text: Option<&str>, what: &str) {
        if text.is_some_and(|text| text.len() > MAX_TEXT_BYTES) {
            self.complain(key, format!("{what} than 4096 bytes"));
        }
    }

    fn warn(&mut self, message: &str) {
        let warning = self.problem("", message).warning();
        self.all.warnings.push(warning);
    }
}
