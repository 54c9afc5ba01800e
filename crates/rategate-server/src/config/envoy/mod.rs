//! Envoy's format: the YAML of <https://github.com/envoyproxy/ratelimit>, with one domain in each
//! file.
//!
//! It also has the keys `algorithm`, `burst`, `store`, `lease` and `on_unavailable`.
//!
//! By default its limits are windows of the wall clock in UTC that count every hit, denied or
//! not. So moving here changes no decision.

mod fields;
mod location;
mod node;
mod rate_limit;

use std::collections::HashMap;
use std::sync::Arc;

use super::error::Problem;
use super::gather::{Gathered, Kind as Draft};
use super::naming::{self, MAX_TEXT_BYTES};
use super::source::{Source, SourceLocation as Spot};
use crate::rule::{Enforcement, Entry, HELD_NS, Origin, Rule, Value};
use fields::Fields;
use node::{Kind, Node};
use rate_limit::RateLimit;

const ROOT: &str = "domain, descriptors";
const DESCRIPTOR: &str = "key, value, metadata, rate_limit, shadow_mode, detailed_metric, \
    value_to_metric, share_threshold, quota_mode, descriptors";

/// Reads a file.
pub(crate) fn read(source: &Arc<Source>, all: &mut Gathered) {
    let root = match node::parse(source) {
        Ok(root) => root,
        Err(problem) => {
            all.problems.push(problem);
            return;
        }
    };
    let mut root = match Fields::of(source, String::new(), &root) {
        Ok(root) => root,
        Err(problem) => {
            all.problems
                .push(problem.help("the file is a mapping with the keys domain and descriptors"));
            return;
        }
    };
    let domain = domain(&mut root, all);
    // Without a domain no rule matches any request, but each rule is still checked.
    let is_faulty = domain.is_none();
    let domain = domain.unwrap_or_default();
    let descriptors = root.list("descriptors", &mut all.problems);
    root.finish(ROOT, &mut all.problems);
    Reader { source, domain: domain.into(), all }.level(descriptors, &[], is_faulty);
}

/// Reads the file's domain, or reports a problem with it.
fn domain<'t>(root: &mut Fields<'t>, all: &mut Gathered) -> Option<&'t str> {
    let before = all.problems.len();
    let Some((domain, location)) = root.text("domain", &mut all.problems) else {
        if all.problems.len() == before {
            let problem = root.problem_here("empty domain");
            all.problems.push(problem.help("write domain: and a name"));
        }
        return None;
    };
    if domain.len() > MAX_TEXT_BYTES {
        all.problems.push(root.problem("domain", location.clone(), "longer than 4096 bytes"));
    }
    if let Some(first) = all.domains.get(domain) {
        let message = format!("duplicate domain {domain:?}, which is also at {}", first.origin());
        let help = "give it in one file, or merge_domains = true under [grpc]";
        all.again.push(root.problem("domain", location, &message).help(help));
    } else {
        all.domains.insert(domain.to_owned(), location);
    }
    Some(domain)
}

struct Reader<'t, 'a> {
    source: &'t Arc<Source>,
    domain: Arc<str>,
    all: &'a mut Gathered,
}

impl<'t> Reader<'t, '_> {
    /// Reads sibling descriptors below the given entries.
    fn level(&mut self, descriptors: Vec<(String, &'t Node)>, above: &[Entry], is_faulty: bool) {
        let mut seen: HashMap<(Arc<str>, Option<Arc<str>>), Spot> = HashMap::new();
        for (path, node) in descriptors {
            if self.all.is_hopeless() {
                return;
            }
            let fields = match Fields::of(self.source, path, node) {
                Ok(fields) => fields,
                Err(problem) => {
                    self.all.problems.push(problem);
                    continue;
                }
            };
            self.descriptor(fields, above, is_faulty, &mut seen);
        }
    }

    fn descriptor(
        &mut self,
        mut fields: Fields<'t>,
        above: &[Entry],
        is_above_faulty: bool,
        seen: &mut HashMap<(Arc<str>, Option<Arc<str>>), Spot>,
    ) {
        let problems = &mut self.all.problems;
        let before = problems.len();
        let key = fields.text("key", problems);
        let is_key_reported = problems.len() > before;
        let value = fields.text("value", problems);
        let rate_limit = fields.take("rate_limit");
        let is_shadow = fields.flag("shadow_mode", problems);
        let names_values = fields.flag("value_to_metric", problems);
        let detailed_metric = fields.flag("detailed_metric", problems) | names_values;
        let shared = fields.flag("share_threshold", problems);
        let quota = fields.flag("quota_mode", problems);
        // Answers have no dynamic metadata, so any content is accepted.
        if let Some(metadata) = fields.take("metadata")
            && !matches!(metadata.kind, Kind::Map(_))
        {
            problems.push(fields.mistyped("metadata", metadata, "a mapping"));
        }
        let children = fields.list("descriptors", problems);
        if key.is_none() && !is_key_reported {
            problems.push(fields.problem_here("empty key").help("each descriptor has a key"));
        }
        check_texts(&fields, key.as_ref(), value.as_ref(), problems);
        let is_key = key.is_some();
        let key = key.map_or("", |(key, _)| key);
        let entry =
            Entry { key: key.into(), value: of_value(value.as_ref().map(|value| value.0), shared) };
        if shared && !matches!(entry.value, Value::Pattern { .. }) {
            let message = "share_threshold without a * in value: there is nothing to share";
            self.all.warnings.push(fields.problem_here(message).warning());
        }
        let entries = [above, &[entry]].concat();
        let named = (Arc::from(key), value.map(|value| Arc::from(value.0)));
        let first = seen.insert(named, fields.location()).filter(|_| is_key);
        problems.extend(first.map(|first| {
            let path = naming::of_entries(&self.domain, &entries);
            let first = first.origin();
            let message = format!("duplicate composite key {path:?}, which is also at {first}");
            fields.problem_here(&message)
        }));
        let is_leaf = children.is_empty();
        let limit_path = fields.path_of("rate_limit");
        let descriptor = fields.location();
        let warning =
            fields.problem_here("no rate_limit: everything that matches passes").warning();
        fields.finish(DESCRIPTOR, problems);
        let limit = match rate_limit {
            Some(node) => self.rate_limit(limit_path, node),
            None if is_leaf => {
                self.all.warnings.push(warning);
                Some(RateLimit::exempt())
            }
            None => None,
        };
        let is_faulty = is_above_faulty || self.all.problems.len() > before;
        if let Some(limit) = limit {
            let enforcement = if is_shadow { Enforcement::Shadow } else { Enforcement::All };
            let kind = Rule { enforcement, quota, detailed_metric, ..self.plain(&entries, &limit) };
            let rule = Rule { origin: descriptor.origin(), ..kind };
            self.all.add(Draft::Envoy, rule, descriptor, limit.replaces, is_faulty);
        }
        self.level(children, &entries, is_above_faulty || !is_key);
    }

    /// Creates a rule with nothing but entries and a limit.
    fn plain(&self, entries: &[Entry], limit: &RateLimit) -> Rule {
        Rule {
            name: naming::of_entries(&self.domain, entries).into(),
            envoy_name: limit.given.clone().unwrap_or_default(),
            domain: Arc::clone(&self.domain),
            entries: entries.to_vec(),
            limit: limit.limit,
            display_limit: limit.display_limit,
            enforcement: Enforcement::All,
            quota: false,
            replaces: Vec::new(),
            detailed_metric: false,
            schedule: Vec::new(),
            location: limit.location,
            held_ns: HELD_NS,
            on_unavailable: limit.on_unavailable,
            max_keys: None,
            origin: Origin::default(),
        }
    }
}

/// Reports a pattern in a key, and texts that are too long.
fn check_texts(
    fields: &Fields<'_>,
    key: Option<&(&str, Spot)>,
    value: Option<&(&str, Spot)>,
    problems: &mut Vec<Problem>,
) {
    if let Some((_, location)) = key.filter(|(key, _)| key.contains('*')) {
        let message = "a * in a key: patterns are for values";
        let help = "write key: and value: apart, with the * in the value";
        problems.push(fields.problem("key", location.clone(), message).help(help));
    }
    for (name, entry_text) in [("key", key), ("value", value)] {
        if let Some((_, location)) = entry_text.filter(|(text, _)| text.len() > MAX_TEXT_BYTES) {
            problems.push(fields.problem(name, location.clone(), "longer than 4096 bytes"));
        }
    }
}

/// Returns the values that a descriptor matches.
fn of_value(text: Option<&str>, shared: bool) -> Value {
    match text {
        None => Value::Any,
        Some(text) if text.contains('*') => Value::Pattern { text: text.into(), shared },
        Some(text) => Value::Exact(text.into()),
    }
}
