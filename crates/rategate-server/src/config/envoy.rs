//! Envoy's format: the YAML of <https://github.com/envoyproxy/ratelimit>, with one domain in each
//! file.
//!
//! It also has the keys `algorithm`, `burst`, `store`, `lease` and `on_unavailable`.
//!
//! By default its limits are windows of the wall clock in UTC that count every hit, denied or
//! not. So moving here changes no decision.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::de::{self, Style};
use super::gather::{Gathered, Kind as Draft};
use super::limit::{Algorithm, UNLIMITED, Written};
use super::naming::{self, MAX_TEXT_BYTES};
use super::node::{self, Kind, Node};
use super::rules::{Counters, Reader};
use super::source::{Source, SourceLocation};
use super::tables::PlaceText;
use super::text::{At, Text};
use crate::rule::{
    CounterLocation, DisplayLimit, Enforcement, Entry, HELD_NS, Limit, OnUnavailable, Rule, Unit,
    Value,
};

const UNITS: &str = "second, minute, hour, day, week, month, year";

/// A file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping with the keys domain and descriptors")]
struct File {
    domain: Option<At<String>>,
    /// They are read one by one.
    #[serde(rename = "descriptors")]
    _descriptors: Option<Vec<IgnoredAny>>,
}

/// A descriptor.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Descriptor {
    key: Option<At<String>>,
    value: Option<At<String>>,
    /// Answers have no dynamic metadata, so any content is accepted.
    #[serde(rename = "metadata")]
    _metadata: Option<Mapping>,
    rate_limit: Option<At<RateLimit>>,
    shadow_mode: Option<bool>,
    detailed_metric: Option<bool>,
    value_to_metric: Option<bool>,
    share_threshold: Option<bool>,
    quota_mode: Option<bool>,
    #[serde(rename = "descriptors")]
    _descriptors: Option<Vec<IgnoredAny>>,
}

/// A mapping of anything.
#[derive(Deserialize)]
struct Mapping {}

/// A limit, the rules that it replaces, and the location of its counters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RateLimit {
    name: Option<At<String>>,
    replaces: Option<Vec<At<Replaced>>>,
    unit: Option<At<Unit>>,
    unit_multiplier: Option<At<u32>>,
    requests_per_unit: Option<At<u32>>,
    unlimited: Option<bool>,
    algorithm: Option<At<Algorithm>>,
    burst: Option<At<u64>>,
    store: Option<At<PlaceText>>,
    lease: Option<At<Text<Duration>>>,
    on_unavailable: Option<At<OnUnavailable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replaced {
    name: Option<At<String>>,
}

/// What a descriptor counts, and where.
struct Counted {
    given: Arc<str>,
    replaces: Vec<(String, SourceLocation)>,
    limit: (Limit, DisplayLimit),
    counters: (CounterLocation, OnUnavailable),
}

/// Reads a file.
pub(crate) fn read(source: &Arc<Source>, all: &mut Gathered) {
    let start = all.sources.add(Arc::clone(source));
    let root = match node::yaml(source, start) {
        Ok(root) => root,
        Err(problem) => {
            all.problems.push(problem);
            return;
        }
    };
    let (file, reported) =
        de::read::<File>(&all.sources, Style::Yaml(""), &root, &mut all.problems);
    let Some(file) = file else { return };
    let mut reader = Reader { path: Some(String::new()), reported, all };
    let domain = reader.domain(file.domain.as_ref(), &root.span);
    // Without a domain no rule matches any request, but each rule is still checked.
    let is_faulty = domain.is_none();
    let domain: Arc<str> = domain.unwrap_or_default().into();
    Level { domain: &domain, above: &[], is_faulty }.read(&root, "", all);
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
        let Some(Kind::List(descriptors)) = parent.get("descriptors").map(|node| &node.kind) else {
            return;
        };
        let mut seen = Seen::new();
        for (nth, node) in descriptors.iter().enumerate() {
            if all.is_hopeless() {
                return;
            }
            let path = format!("{path}.descriptors[{nth}]");
            let path = path.trim_start_matches('.');
            let before = all.problems.len();
            let (table, reported) =
                de::read::<Descriptor>(&all.sources, Style::Yaml(path), node, &mut all.problems);
            if let Some(table) = table {
                let mut reader = Reader { path: Some(path.to_owned()), reported, all };
                let entries = reader.descriptor(self, &table, node, before, &mut seen);
                let is_faulty = self.is_faulty || !has_text(table.key.as_ref());
                Level { above: &entries, is_faulty, ..self }.read(node, path, all);
            }
        }
    }
}

impl Reader<'_> {
    /// Reads the file's domain, or reports a problem with it.
    fn domain<'t>(
        &mut self,
        domain: Option<&'t At<String>>,
        file: &Range<usize>,
    ) -> Option<&'t str> {
        let Some(domain) = domain.filter(|domain| !domain.value.is_empty()) else {
            if !self.reported.is_reported(file, "domain") {
                let problem = self.problem("", file, "empty domain");
                self.all.problems.push(problem.help("write domain: and a name"));
            }
            return None;
        };
        self.check_length("domain", Some(domain), "longer");
        if let Some(first) = self.all.domains.get(&domain.value) {
            let (name, first) = (&domain.value, first.origin());
            let message = format!("duplicate domain {name:?}, which is also at {first}");
            let help = "give it in one file, or merge_domains = true under [grpc]";
            let problem = self.problem("domain", &domain.span, message).help(help);
            self.all.again.push(problem);
        } else {
            let location = self.location(domain);
            self.all.domains.insert(domain.value.clone(), location);
        }
        Some(&domain.value)
    }

    /// Adds the rule of a descriptor, if it has one, and returns its entries.
    fn descriptor(
        &mut self,
        level: Level<'_>,
        table: &Descriptor,
        node: &Node,
        before: usize,
        seen: &mut Seen,
    ) -> Vec<Entry> {
        let is = |flag: Option<bool>| flag.unwrap_or_default();
        let is_key = has_text(table.key.as_ref());
        let value = table.value.as_ref().filter(|value| !value.value.is_empty());
        if !is_key && !self.reported.is_reported(&node.span, "key") {
            let problem = self.problem("", &node.span, "empty key");
            self.all.problems.push(problem.help("each descriptor has a key"));
        }
        if let Some(key) = table.key.as_ref().filter(|key| key.value.contains('*')) {
            let problem = self.problem("key", &key.span, "a * in a key: patterns are for values");
            let help = "write key: and value: apart, with the * in the value";
            self.all.problems.push(problem.help(help));
        }
        self.check_length("key", table.key.as_ref(), "longer");
        self.check_length("value", value, "longer");
        let shared = is(table.share_threshold);
        let key: Arc<str> = table.key.as_ref().map_or("", |key| &key.value).into();
        let value = match value.map(|value| value.value.as_str()) {
            None => Value::Any,
            Some(text) if text.contains('*') => Value::Pattern { text: text.into(), shared },
            Some(text) => Value::Exact(text.into()),
        };
        if shared && !matches!(value, Value::Pattern { .. }) {
            self.warn(
                &node.span,
                "share_threshold without a * in value: there is nothing to share",
            );
        }
        let named = match &value {
            Value::Exact(text) | Value::Pattern { text, .. } => Some(Arc::clone(text)),
            _ => None,
        };
        let location = self.all.sources.location(&node.span);
        let first = seen.insert((Arc::clone(&key), named), location.clone());
        let entries = [level.above, &[Entry { key, value }]].concat();
        if let Some(first) = first.filter(|_| is_key) {
            let (path, first) = (naming::of_entries(level.domain, &entries), first.origin());
            let message = format!("duplicate composite key {path:?}, which is also at {first}");
            self.complain_of("", &node.span, message);
        }
        let is_leaf = !matches!(node.get("descriptors").map(|node| &node.kind),
            Some(Kind::List(all)) if !all.is_empty());
        let counted = match &table.rate_limit {
            Some(limit) => Some(self.rate_limit(limit)),
            None if is_leaf && !self.reported.is_reported(&node.span, "rate_limit") => {
                self.warn(&node.span, "no rate_limit: everything that matches passes");
                Some(Counted {
                    given: "".into(),
                    replaces: Vec::new(),
                    limit: (Limit::Exempt, UNLIMITED),
                    counters: (CounterLocation::Here, OnUnavailable::Local),
                })
            }
            None => None,
        };
        let is_faulty = level.is_faulty || self.all.problems.len() > before;
        if let Some(Counted { given, replaces, limit, counters }) = counted {
            let is_shadow = is(table.shadow_mode);
            let rule = Rule {
                name: naming::of_entries(level.domain, &entries).into(),
                envoy_name: given,
                domain: Arc::clone(level.domain),
                entries: entries.clone(),
                limit: limit.0,
                display_limit: limit.1,
                enforcement: if is_shadow { Enforcement::Shadow } else { Enforcement::All },
                quota: is(table.quota_mode),
                replaces: Vec::new(),
                detailed_metric: is(table.detailed_metric) || is(table.value_to_metric),
                schedule: Vec::new(),
                location: counters.0,
                held_ns: HELD_NS,
                on_unavailable: counters.1,
                max_keys: None,
                origin: location.origin(),
            };
            self.all.add(Draft::Envoy, rule, location, replaces, is_faulty);
        }
        entries
    }

    fn rate_limit(&mut self, at: &At<RateLimit>) -> Counted {
        let outer = self.path.clone();
        self.path = outer.as_ref().map(|path| format!("{path}.rate_limit"));
        let RateLimit { name, store, lease, on_unavailable, .. } = &at.value;
        self.check_length("name", name.as_ref(), "a name longer");
        let replaces = self.replaces(&at.value);
        let limit = match &at.value {
            table if table.unlimited == Some(true) => {
                self.unlimited(at);
                (Limit::Unlimited, UNLIMITED)
            }
            _ => self.windowed(at),
        };
        let counters = Counters {
            table: &at.span,
            store: store.as_ref(),
            lease: lease.as_ref(),
            on_unavailable: on_unavailable.as_ref(),
        };
        let counters = self.counters(&counters, at.value.algorithm.as_ref().map(|at| at.value));
        self.path = outer;
        let given = name.as_ref().map_or("", |name| &name.value).into();
        Counted { given, replaces, limit, counters }
    }

    fn replaces(&mut self, table: &RateLimit) -> Vec<(String, SourceLocation)> {
        let mut all = Vec::new();
        for (nth, at) in table.replaces.iter().flatten().enumerate() {
            let path = format!("replaces[{nth}]");
            match at.value.name.as_ref().filter(|name| !name.value.is_empty()) {
                None => self.complain_of(&path, &at.span, "empty name of a replaced limit"),
                Some(name) if table.name.as_ref().is_some_and(|own| own.value == name.value) => {
                    let text = &name.value;
                    let message = format!("{text:?} is the limit's own name: none replaces itself");
                    self.complain_of(&format!("{path}.name"), &name.span, message);
                }
                Some(name) => all.push((name.value.clone(), self.location(name))),
            }
        }
        all
    }

    /// Reports the keys that an unlimited descriptor cannot use.
    fn unlimited(&mut self, at: &At<RateLimit>) {
        let RateLimit { unit, unit_multiplier, requests_per_unit, algorithm, burst, .. } =
            &at.value;
        let unknown = self.reported.is_wrong(&at.span, "algorithm").then_some(&at.span);
        let message = |key: &str| {
            let article = if key == "unit" || key == "burst" { "a " } else { "" };
            format!("{article}{key} on what is unlimited")
        };
        for (key, span) in [
            ("unit", unit.as_ref().map(|at| &at.span)),
            ("algorithm", algorithm.as_ref().map(|at| &at.span).or(unknown)),
            ("burst", burst.as_ref().map(|at| &at.span)),
        ] {
            let problem = span.map(|span| self.problem(key, span, message(key)));
            self.all.problems.extend(problem.map(|problem| problem.help("leave it out")));
        }
        // Envoy's service accepts these.
        for (key, at) in
            [("requests_per_unit", requests_per_unit), ("unit_multiplier", unit_multiplier)]
        {
            let problem = at.as_ref().map(|at| self.problem(key, &at.span, message(key)));
            let warning = problem.map(|problem| problem.help("leave it out").warning());
            self.all.warnings.extend(warning);
        }
    }

    /// Reads a limit with a unit. Reports the problems of all its keys.
    fn windowed(&mut self, at: &At<RateLimit>) -> (Limit, DisplayLimit) {
        let RateLimit { unit, unit_multiplier, requests_per_unit, algorithm, burst, .. } =
            &at.value;
        let reported = |reader: &Self, key| reader.reported.is_reported(&at.span, key);
        if unit.is_none() && !reported(self, "unit") && !reported(self, "unlimited") {
            let problem = self.problem("", &at.span, "no unit, and not unlimited");
            self.all.problems.push(problem.help(format!("unit: is one of {UNITS}")));
        }
        let multiplier = unit_multiplier.as_ref().map_or(1, |at| at.value);
        if let (Some(at), 0) = (unit_multiplier, multiplier) {
            self.complain_of("unit_multiplier", &at.span, "0 units are no time");
        }
        if requests_per_unit.is_none() && unit.is_some() && !reported(self, "requests_per_unit") {
            let message = "no requests_per_unit: everything that matches is over the limit";
            self.warn(&at.span, message);
        }
        let algorithm = match algorithm {
            Some(at) if at.value == Algorithm::Concurrency => {
                let message = "permits at a time have no unit; write such a limit in TOML";
                self.complain_of("algorithm", &at.span, message);
                None
            }
            Some(at) => Some(at.value),
            None => (!reported(self, "algorithm")).then_some(Algorithm::CountedWindow),
        };
        let requests = requests_per_unit.as_ref().map_or(0, |at| at.value);
        let unit = unit.as_ref().filter(|_| multiplier > 0);
        let written =
            unit.map(|unit| Written::per_unit(requests.into(), multiplier.into(), unit.value));
        let written = written.and_then(|written| {
            written.map_err(|complaint| self.complain_of("", &at.span, complaint)).ok()
        });
        let limit = written.map(|written| (written, &at.span));
        self.build(limit, algorithm, burst.as_ref())
    }

    fn check_length(&mut self, key: &str, text: Option<&At<String>>, what: &str) {
        if let Some(text) = text.filter(|text| text.value.len() > MAX_TEXT_BYTES) {
            self.complain_of(key, &text.span, format!("{what} than 4096 bytes"));
        }
    }

    fn warn(&mut self, span: &Range<usize>, message: &str) {
        let warning = self.problem("", span, message).warning();
        self.all.warnings.push(warning);
    }
}

fn has_text(text: Option<&At<String>>) -> bool {
    text.is_some_and(|text| !text.value.is_empty())
}
