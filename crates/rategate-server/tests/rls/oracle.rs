//! A model of how envoyproxy/ratelimit counts and replies, with its counters in Redis: trivially
//! simple, and slow.
//!
//! Written after the behaviour of that project, not of this one: a tree of composite keys, a map
//! of counters by the text of their key and the start of their window, an addition for each
//! descriptor and a comparison after it, then a walk over the statuses. Where that project breaks
//! (counts of 2^63 and more, windows of two units that begin at the same instant and share a
//! counter, metadata that a call changes for all later ones), the model does not.

use std::collections::{HashMap, HashSet};

use rategate_server::rule::Unit;
use serde_json::{Map, Value, json};

/// A descriptor of a configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) key: &'static str,
    pub(crate) value: &'static str,
    pub(crate) limit: Option<Limit>,
    pub(crate) is_shadow: bool,
    pub(crate) is_quota: bool,
    pub(crate) is_shared: bool,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) below: Vec<Node>,
}

/// A `rate_limit`.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) per_unit: u32,
    /// The unit; `None` for `unlimited`.
    pub(crate) unit: Option<Unit>,
    pub(crate) name: &'static str,
    pub(crate) replaces: Vec<&'static str>,
}

/// A descriptor of a call.
#[derive(Clone, Debug)]
pub(crate) struct ModelDescriptor {
    pub(crate) entries: Vec<(&'static str, &'static str)>,
    pub(crate) own: Option<(u32, Unit)>,
    pub(crate) hits: Option<u64>,
    /// Only stories have it.
    pub(crate) refund: bool,
}

/// The status of a descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) is_over: bool,
    pub(crate) limit: Option<(String, u32, Unit)>,
    pub(crate) remaining: u32,
    pub(crate) reset_s: Option<u64>,
}

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) is_over: bool,
    pub(crate) statuses: Vec<Status>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) metadata: Option<Value>,
}

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) domain: &'static str,
    pub(crate) requested: Vec<ModelDescriptor>,
    pub(crate) hits: u32,
}

/// The service: its counters, and its settings.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a variable of its own")]
pub(crate) struct Service {
    /// The value of `STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT`.
    pub(crate) stops_when_over: bool,
    /// The value of `SHADOW_MODE`.
    pub(crate) is_shadow: bool,
    /// The value of `QUOTA_MODE`.
    pub(crate) is_quota: bool,
    /// The names of header fields, with `LIMIT_RESPONSE_HEADERS_ENABLED`.
    pub(crate) headers: Option<[&'static str; 3]>,
    /// The value of `RESPONSE_DYNAMIC_METADATA`.
    pub(crate) has_metadata: bool,
    pub(crate) counters: HashMap<(String, Unit, u64), u128>,
}

/// A limit that applies to a descriptor, and the text that identifies its counter.
struct Applied {
    limit: Limit,
    is_shadow: bool,
    is_quota: bool,
    metadata: Map<String, Value>,
    counter: String,
}

impl Service {
    /// Answers a call by the descriptors of its domain, if there is such a domain.
    pub(crate) fn call(&mut self, domain: Option<&[Node]>, call: &Call, now_s: u64) -> Reply {
        let Call { requested, hits, .. } = call;
        let mut applied: Vec<Option<Applied>> =
            requested.iter().map(|requested| find(domain, requested)).collect();
        let of_all = applied.iter().flatten().flat_map(|applied| applied.limit.replaces.clone());
        let replaced: HashSet<&str> = of_all.collect();
        let mut is_unlimited = vec![false; requested.len()];
        for (applied, is_unlimited) in applied.iter_mut().zip(&mut is_unlimited) {
            *is_unlimited = applied.as_ref().is_some_and(|it| it.limit.unit.is_none());
            if *is_unlimited {
                *applied = None;
            }
            let name = applied.as_ref().map_or("", |applied| applied.limit.name);
            if !name.is_empty() && replaced.contains(name) {
                *applied = None;
            }
        }
        let hits = |requested: &ModelDescriptor| {
            requested.hits.unwrap_or_else(|| u64::from(*hits.max(&1)))
        };
        let hits: Vec<u64> = requested.iter().map(hits).collect();
        let exceeds: Vec<bool> = applied
            .iter()
            .zip(&hits)
            .map(|(applied, hits)| {
                let Some(applied) = applied else { return false };
                let count = self.counters.get(&applied.key(now_s)).copied().unwrap_or(0);
                count + u128::from(*hits) > u128::from(applied.limit.per_unit)
            })
            .collect();
        let spares = self.stops_when_over && exceeds.contains(&true);
        let mut statuses = Vec::new();
        for (nth, applied) in applied.iter().enumerate() {
            let Some(applied) = applied else {
                let remaining = if is_unlimited[nth] { u32::MAX } else { 0 };
                statuses.push(Status { remaining, ..Status::default() });
                continue;
            };
            let count = self.counters.entry(applied.key(now_s)).or_default();
            if !spares || exceeds[nth] {
                *count += u128::from(hits[nth]);
            }
            let per_unit = u128::from(applied.limit.per_unit);
            let is_beyond = *count > per_unit;
            let unit = applied.limit.unit.unwrap();
            let status = Status {
                is_over: is_beyond && !applied.is_shadow,
                limit: Some((applied.limit.name.to_owned(), applied.limit.per_unit, unit)),
                remaining: u32::try_from(per_unit.saturating_sub(*count)).unwrap(),
                reset_s: Some(unit.seconds() - now_s % unit.seconds()),
            };
            statuses.push(status);
        }
        self.reply(call, &applied, &is_unlimited, statuses)
    }

    /// Makes the reply to a call of its statuses.
    fn reply(
        &self,
        call: &Call,
        applied: &[Option<Applied>],
        is_unlimited: &[bool],
        statuses: Vec<Status>,
    ) -> Reply {
        let (mut shown, mut least) = (None, u32::MAX);
        let (mut failed, mut failed_quotas, mut quotas) = (0, 0, 0);
        let mut passed = Vec::new();
        for (nth, status) in statuses.iter().enumerate() {
            if status.limit.is_some() && status.remaining < least {
                (shown, least) = (Some(status), status.remaining);
            }
            if is_unlimited[nth] {
                continue;
            }
            let is_quota = self.is_quota || applied[nth].as_ref().is_some_and(|it| it.is_quota);
            quotas += u32::from(is_quota);
            match (status.is_over, is_quota) {
                (true, true) => failed_quotas += 1,
                (true, false) => {
                    failed += 1;
                    (shown, least) = (Some(status), 0);
                }
                (false, _) => passed.push(nth),
            }
        }
        let is_over = failed > 0 || (quotas > 0 && quotas == failed_quotas);
        let fields = |(status, names): (&Status, [&str; 3])| {
            let permits = status.limit.as_ref().unwrap().1.to_string();
            let values =
                [permits, status.remaining.to_string(), status.reset_s.unwrap().to_string()];
            names.into_iter().map(str::to_owned).zip(values).collect()
        };
        let headers = shown.zip(self.headers).map(fields).unwrap_or_default();
        let passed = passed.into_iter().filter_map(|nth| applied[nth].as_ref());
        let metadata = self.has_metadata.then(|| metadata(call, passed));
        Reply { is_over: is_over && !self.is_shadow, statuses, headers, metadata }
    }
}

/// Returns the dynamic metadata: the call, and what the limits that passed have in common.
fn metadata<'a>(call: &Call, passed: impl Iterator<Item = &'a Applied>) -> Value {
    let descriptor = |requested: &ModelDescriptor| {
        let entry = |(key, value): &(&str, &str)| json!(format!("{key}={value}"));
        let mut all = json!({"entries": requested.entries.iter().map(entry).collect::<Vec<_>>()});
        if let Some((per_unit, unit)) = requested.own {
            // `envoy.type.v3.RateLimitUnit` ends before the week, which is therefore a number.
            let name = if unit == Unit::Week { "7".to_owned() } else { unit.name().to_uppercase() };
            let unit = format!("unit:{name}");
            let limit = format!("requests_per_unit:{per_unit} {unit}");
            all["limit"] = json!(if per_unit == 0 { unit } else { limit });
        }
        if let Some(hits) = requested.hits {
            all["hitsAddend"] = json!(hits.to_string().parse::<f64>().unwrap());
        }
        all
    };
    let descriptors: Vec<_> = call.requested.iter().map(descriptor).collect();
    let mut all = json!({"domain": call.domain, "descriptors": descriptors});
    if call.hits > 0 {
        all["hitsAddend"] = json!(f64::from(call.hits));
    }
    let mut merged = Map::new();
    for applied in passed {
        merge(&mut merged, &applied.metadata);
    }
    if !merged.is_empty() {
        all["metadata"] = Value::Object(merged);
    }
    all
}

fn merge(into: &mut Map<String, Value>, from: &Map<String, Value>) {
    for (name, value) in from {
        if !into.contains_key(name) {
            into.insert(name.clone(), value.clone());
        } else if let (Some(Value::Object(into)), Value::Object(from)) = (into.get_mut(name), value)
        {
            merge(into, from);
        }
    }
}

impl Applied {
    fn key(&self, now_s: u64) -> (String, Unit, u64) {
        let unit = self.limit.unit.unwrap();
        (self.counter.clone(), unit, now_s / unit.seconds() * unit.seconds())
    }
}

impl Node {
    fn composite(&self) -> String {
        match self.value {
            "" => self.key.to_owned(),
            value => format!("{}_{value}", self.key),
        }
    }
}

/// Returns the limit of a descriptor: the most specific node at each entry, and a limit where the
/// entries end.
fn find(domain: Option<&[Node]>, requested: &ModelDescriptor) -> Option<Applied> {
    let domain = domain?;
    if let Some((per_unit, unit)) = requested.own {
        let texts = requested.entries.iter().map(|(key, value)| format!("{key}_{value}_"));
        let limit = Limit { per_unit, unit: Some(unit), name: "", replaces: Vec::new() };
        let (is_shadow, is_quota, metadata) = (false, false, Map::new());
        return Some(Applied { limit, is_shadow, is_quota, metadata, counter: texts.collect() });
    }
    let (mut level, mut counter, mut found) = (domain, String::new(), None);
    for (key, value) in &requested.entries {
        let whole = format!("{key}_{value}");
        let exact = level.iter().find(|node| node.composite() == whole);
        let like = || {
            level
                .iter()
                .find(|node| node.composite().contains('*') && is_like(&whole, &node.composite()))
        };
        let any = || level.iter().find(|node| node.composite() == *key);
        let node = exact.or_else(like).or_else(any)?;
        let counter_value = if node.is_shared { node.value } else { value };
        counter.push_str(&format!("{key}_{counter_value}_"));
        (level, found) = (node.below.as_slice(), Some(node));
    }
    let node = found?;
    let limit = node.limit.clone()?;
    let Node { is_shadow, is_quota, ref metadata, .. } = *node;
    Some(Applied { limit, is_shadow, is_quota, metadata: metadata.clone(), counter })
}

/// Returns `true` if a text matches a pattern, in which each `*` stands for anything.
fn is_like(text: &str, pattern: &str) -> bool {
    match pattern.chars().next() {
        None => text.is_empty(),
        Some('*') => (0..=text.len()).any(|at| is_like(&text[at..], &pattern[1..])),
        Some(first) => text.strip_prefix(first).is_some_and(|rest| is_like(rest, &pattern[1..])),
    }
}

/// Returns the configuration as a file of that project.
pub(crate) fn yaml(domain: &[Node]) -> String {
    let nodes: Vec<String> = domain.iter().map(of_node).collect();
    format!("domain: d\ndescriptors: [{}]\n", nodes.join(", "))
}

fn of_node(node: &Node) -> String {
    let mut text = format!("{{key: {}", node.key);
    if !node.value.is_empty() {
        text.push_str(&format!(", value: '{}'", node.value));
    }
    let flags = [
        ("shadow_mode", node.is_shadow),
        ("quota_mode", node.is_quota),
        ("share_threshold", node.is_shared),
    ];
    for (flag, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
        text.push_str(&format!(", {flag}: true"));
    }
    if !node.metadata.is_empty() {
        text.push_str(&format!(", metadata: {}", json!(node.metadata)));
    }
    if let Some(limit) = &node.limit {
        let unit = match limit.unit {
            Some(unit) => format!("unit: {}, requests_per_unit: {}", unit.name(), limit.per_unit),
            None => "unlimited: true".to_owned(),
        };
        let replaces: Vec<_> =
            limit.replaces.iter().map(|name| format!("{{name: {name}}}")).collect();
        let name = match limit.name {
            "" => String::new(),
            name => format!(", name: {name}"),
        };
        text.push_str(&format!(
            ", rate_limit: {{{unit}{name}, replaces: [{}]}}",
            replaces.join(", ")
        ));
    }
    if !node.below.is_empty() {
        let below: Vec<String> = node.below.iter().map(of_node).collect();
        text.push_str(&format!(", descriptors: [{}]", below.join(", ")));
    }
    text.push('}');
    text
}
