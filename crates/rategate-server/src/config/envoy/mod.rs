//! Envoy's format: the YAML of <https://github.com/envoyproxy/ratelimit>, a domain in each file, and besides
//! `algorithm`, `burst`, `store`, `lease` and `when_gone`.
//!
//! Its limits are windows of the wall clock in UTC that count every hit, denied or not, unless they say otherwise: a move here changes no
//! decision.

mod fields;
mod node;
mod place;

use std::collections::HashMap;
use std::sync::Arc;

use super::error::Problem;
use super::gather::{Gathered, Kind as Draft};
use super::limit::{Algorithm, NOTHING, UNLIMITED, Written, check_burst};
use super::naming::{self, MAX_TEXT_BYTES};
use super::source::{Place as Spot, Source};
use crate::nearest::one_of;
use crate::rule::{
    Enforcement, Entry, HELD_NS, Limit, Origin, Place, Rule, Shown, Unit, Value, WhenGone,
};
use fields::Fields;
use node::{Kind, Node};

const ROOT: &str = "domain, descriptors";
const DESCRIPTOR: &str = "key, value, metadata, rate_limit, shadow_mode, detailed_metric, value_to_metric, share_threshold, quota_mode, descriptors";
const RATE_LIMIT: &str = "name, replaces, unit, unit_multiplier, requests_per_unit, unlimited, algorithm, burst, store, lease, when_gone";
const UNITS: &str = "second, minute, hour, day, week, month, year";
const ALGORITHMS: &str = "counted-window, fixed-window, gcra, sliding-log, compact-log";

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
    // Without a domain no rule is for any call, and each is checked all the same.
    let is_faulty = domain.is_none();
    let domain = domain.unwrap_or_default();
    let descriptors = root.list("descriptors", &mut all.problems);
    root.finish(ROOT, &mut all.problems);
    Reader { source, domain: domain.into(), all }.level(descriptors, &[], is_faulty);
}

/// Reads the file's domain, or complains of it.
fn domain<'t>(root: &mut Fields<'t>, all: &mut Gathered) -> Option<&'t str> {
    let before = all.problems.len();
    let Some((domain, place)) = root.text("domain", &mut all.problems) else {
        if all.problems.len() == before {
            let problem = root.problem_here("empty domain");
            all.problems.push(problem.help("write domain: and a name"));
        }
        return None;
    };
    if domain.len() > MAX_TEXT_BYTES {
        all.problems.push(root.problem("domain", place.clone(), "longer than 4096 bytes"));
    }
    if let Some(first) = all.domains.get(domain) {
        let message = format!("duplicate domain {domain:?}, which is also at {}", first.origin());
        let help = "give it in one file, or merge_domains = true under [grpc]";
        all.again.push(root.problem("domain", place, &message).help(help));
    } else {
        all.domains.insert(domain.to_owned(), place);
    }
    Some(domain)
}

struct Reader<'t, 'a> {
    source: &'t Arc<Source>,
    domain: Arc<str>,
    all: &'a mut Gathered,
}

/// What `rate_limit` says.
struct RateLimit {
    given: Option<Arc<str>>,
    replaces: Vec<(String, Spot)>,
    limit: Limit,
    shown: Shown,
    place: Place,
    when_gone: WhenGone,
}

impl<'t> Reader<'t, '_> {
    /// Reads descriptors that stand beside each other, under the entries of those above.
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
        let is_key_told = problems.len() > before;
        let value = fields.text("value", problems);
        let rate_limit = fields.take("rate_limit");
        let is_shadow = fields.flag("shadow_mode", problems);
        let names_values = fields.flag("value_to_metric", problems);
        let detailed_metric = fields.flag("detailed_metric", problems) | names_values;
        let shared = fields.flag("share_threshold", problems);
        let quota = fields.flag("quota_mode", problems);
        // For answers with dynamic metadata, which there are none of: any content is right.
        if let Some(metadata) = fields.take("metadata")
            && !matches!(metadata.kind, Kind::Map(_))
        {
            problems.push(fields.wrong_type("metadata", metadata, "a mapping"));
        }
        let below = fields.list("descriptors", problems);
        match &key {
            None if !is_key_told => {
                problems.push(fields.problem_here("empty key").help("each descriptor has a key"));
            }
            Some((key, place)) if key.contains('*') => {
                let message = "a * in a key: patterns are for values";
                let help = "write key: and value: apart, with the * in the value";
                problems.push(fields.problem("key", place.clone(), message).help(help));
            }
            None | Some(_) => {}
        }
        for (name, (_, place)) in [("key", &key), ("value", &value)]
            .into_iter()
            .filter_map(|(name, said)| Some((name, said.as_ref()?)))
            .filter(|(_, (text, _))| text.len() > MAX_TEXT_BYTES)
        {
            problems.push(fields.problem(name, place.clone(), "longer than 4096 bytes"));
        }
        let is_key = key.is_some();
        let key = key.map_or("", |(key, _)| key);
        let entry =
            Entry { key: key.into(), value: of_value(value.as_ref().map(|value| value.0), shared) };
        if shared && !matches!(entry.value, Value::Pattern { .. }) {
            let message = "share_threshold without a * in value: there is nothing to share";
            self.all.warnings.push(fields.problem_here(message).warning());
        }
        let mut entries = above.to_vec();
        entries.push(entry);
        let named = (Arc::from(key), value.map(|value| Arc::from(value.0)));
        if let Some(first) = seen.insert(named, fields.place()).filter(|_| is_key) {
            let path = naming::of_entries(&self.domain, &entries);
            let message =
                format!("duplicate composite key {path:?}, which is also at {}", first.origin());
            problems.push(fields.problem_here(&message));
        }
        let is_leaf = below.is_empty();
        let limit_path = fields.path_of("rate_limit");
        let descriptor = fields.place();
        let warning =
            fields.problem_here("no rate_limit: everything that matches passes").warning();
        fields.finish(DESCRIPTOR, problems);
        let limit = match rate_limit {
            Some(node) => self.rate_limit(limit_path, node),
            None if is_leaf => {
                self.all.warnings.push(warning);
                Some(RateLimit {
                    given: None,
                    replaces: Vec::new(),
                    limit: Limit::Exempt,
                    shown: UNLIMITED,
                    place: Place::Here,
                    when_gone: WhenGone::Local,
                })
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
        self.level(below, &entries, is_above_faulty || !is_key);
    }

    /// A rule with nothing but entries and a limit.
    fn plain(&self, entries: &[Entry], limit: &RateLimit) -> Rule {
        Rule {
            name: naming::of_entries(&self.domain, entries).into(),
            envoy_name: limit.given.clone().unwrap_or_default(),
            domain: Arc::clone(&self.domain),
            entries: entries.to_vec(),
            limit: limit.limit,
            shown: limit.shown,
            enforcement: Enforcement::All,
            quota: false,
            replaces: Vec::new(),
            detailed_metric: false,
            schedule: Vec::new(),
            place: limit.place,
            held_ns: HELD_NS,
            when_gone: limit.when_gone,
            most_keys: None,
            origin: Origin::default(),
        }
    }

    fn rate_limit(&mut self, path: String, node: &'t Node) -> Option<RateLimit> {
        let problems = &mut self.all.problems;
        let mut fields = match Fields::of(self.source, path, node) {
            Ok(fields) => fields,
            Err(problem) => {
                problems.push(problem);
                return None;
            }
        };
        let name = fields.text("name", problems);
        if let Some((name, place)) = &name
            && name.len() > MAX_TEXT_BYTES
        {
            let message = "a name longer than 4096 bytes";
            problems.push(fields.problem("name", place.clone(), message));
        }
        let given = name.map(|(name, _)| Arc::from(name));
        let replaces = fields.list("replaces", problems);
        let replaces = self.replaces(given.as_ref(), replaces);
        let problems = &mut self.all.problems;
        let before = problems.len();
        let unlimited = fields.flag("unlimited", problems);
        let unit = fields.text("unit", problems);
        // It may be missing for what is wrong with one of these.
        let is_unit_told = problems.len() > before;
        let multiplier = fields.number("unit_multiplier", u32::MAX.into(), problems);
        let requests = fields.number("requests_per_unit", u32::MAX.into(), problems);
        let algorithm = fields.text("algorithm", problems);
        let burst = fields.number("burst", u64::MAX, problems);
        let built = if unlimited {
            let ours = [("burst", burst.map(|(_, place)| place))];
            let ours = ours.into_iter().chain([("algorithm", algorithm.map(|(_, place)| place))]);
            let wrong = ours.chain([("unit", unit.map(|(_, place)| place))]);
            for (key, place) in wrong.filter_map(|(key, place)| Some((key, place?))) {
                problems.push(of_no_use(&fields, key, place));
            }
            // Envoy's service lets these pass.
            let idle = [("requests_per_unit", requests), ("unit_multiplier", multiplier)];
            for (key, place) in idle.into_iter().filter_map(|(key, said)| Some((key, said?.1))) {
                self.all.warnings.push(of_no_use(&fields, key, place).warning());
            }
            Some((Limit::Unlimited, UNLIMITED))
        } else {
            let said = Windowed { unit, is_unit_told, multiplier, requests, algorithm, burst };
            windowed(&fields, said, self.all)
        };
        let (place, when_gone) = place::read(&mut fields, self.all);
        fields.finish(RATE_LIMIT, &mut self.all.problems);
        let (limit, shown) = built.unwrap_or((Limit::Nothing, NOTHING));
        Some(RateLimit { given, replaces, limit, shown, place, when_gone })
    }

    fn replaces(
        &mut self,
        given: Option<&Arc<str>>,
        list: Vec<(String, &'t Node)>,
    ) -> Vec<(String, Spot)> {
        let problems = &mut self.all.problems;
        let mut all = Vec::new();
        for (path, node) in list {
            let mut fields = match Fields::of(self.source, path, node) {
                Ok(fields) => fields,
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            match fields.text("name", problems) {
                None => problems.push(fields.problem_here("empty name of what is replaced")),
                Some((name, place)) if given.is_some_and(|given| **given == *name) => {
                    let message = format!("{name:?} is the limit's own name: none replaces itself");
                    problems.push(fields.problem("name", place, &message));
                }
                Some((name, place)) => all.push((name.to_owned(), place)),
            }
            fields.finish("name", problems);
        }
        all
    }
}

/// Which values a descriptor is for.
fn of_value(text: Option<&str>, shared: bool) -> Value {
    match text {
        None => Value::Any,
        Some(text) if text.contains('*') => Value::Pattern { text: text.into(), shared },
        Some(text) => Value::Exact(text.into()),
    }
}

/// What a limit without a limit has no use for.
fn of_no_use(fields: &Fields<'_>, key: &'static str, place: Spot) -> Problem {
    let article = if key == "unit" || key == "burst" { "a " } else { "" };
    let message = format!("{article}{key} on what is unlimited");
    fields.problem(key, place, &message).help("leave it out")
}

/// What a limit with a unit is said by, each with its place.
struct Windowed<'t> {
    unit: Option<(&'t str, Spot)>,
    is_unit_told: bool,
    multiplier: Option<(u64, Spot)>,
    requests: Option<(u64, Spot)>,
    algorithm: Option<(&'t str, Spot)>,
    burst: Option<(u64, Spot)>,
}

/// Reads a limit with a unit. What is wrong with any of its keys is told.
fn windowed(fields: &Fields<'_>, said: Windowed<'_>, all: &mut Gathered) -> Option<(Limit, Shown)> {
    let Windowed { unit, is_unit_told, multiplier, requests, algorithm, burst } = said;
    let problems = &mut all.problems;
    let unit = match unit {
        None if is_unit_told => None,
        None => {
            let message = "no unit, and not unlimited";
            problems.push(fields.problem_here(message).help(format!("unit: is one of {UNITS}")));
            None
        }
        Some((name, place)) => {
            let unit = unit_of(name);
            let message = format!("unknown unit {name:?}");
            problems.extend(
                unit.is_none()
                    .then(|| fields.problem("unit", place, &message).help(one_of(name, UNITS))),
            );
            unit
        }
    };
    let algorithm = match algorithm {
        None => Some(Algorithm::CountedWindow),
        Some((name, place)) => {
            let algorithm = algorithm_of(name);
            let message = format!("unknown algorithm {name:?}");
            problems.extend(algorithm.is_none().then(|| {
                fields.problem("algorithm", place, &message).help(one_of(name, ALGORITHMS))
            }));
            algorithm
        }
    };
    let is_no_time = matches!(multiplier, Some((0, _)));
    if let Some((0, place)) = &multiplier {
        problems.push(fields.problem("unit_multiplier", place.clone(), "0 units are no time"));
    }
    let algorithm = algorithm?;
    if let Some((permits, place)) = &burst
        && let Err(complaint) = check_burst(algorithm, *permits)
    {
        problems.push(fields.problem("burst", place.clone(), &complaint));
        return None;
    }
    let unit = unit.filter(|_| !is_no_time)?;
    if requests.is_none() {
        let message = "no requests_per_unit: everything that matches is over the limit";
        all.warnings.push(fields.problem_here(message).warning());
    }
    let requests = requests.map_or(0, |(requests, _)| requests);
    let written = Written::per_unit(requests, multiplier.map_or(1, |(number, _)| number), unit);
    let burst_permits = burst.as_ref().map(|(permits, _)| *permits);
    let built = written.and_then(|written| written.build(algorithm, burst_permits));
    let complain = |complaint: String| {
        problems.push(match burst {
            Some((_, place)) => fields.problem("burst", place, &complaint),
            None => fields.problem_here(&complaint),
        });
    };
    built.map_err(complain).ok()
}

/// Units are read in capitals too.
fn unit_of(text: &str) -> Option<Unit> {
    super::unit(&text.to_ascii_lowercase())
}

fn algorithm_of(text: &str) -> Option<Algorithm> {
    match text {
        "counted-window" => Some(Algorithm::CountedWindow),
        "fixed-window" => Some(Algorithm::FixedWindow),
        "gcra" => Some(Algorithm::Gcra),
        "sliding-log" => Some(Algorithm::SlidingLog),
        "compact-log" => Some(Algorithm::CompactLog),
        _ => None,
    }
}
