//! The rules of all files together: unique names, resolved replacements and no conflicts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::error::{MAX_FOUND, Problem};
use super::node::{self, Map, Node};
use super::source::{SourceLocation, Sources};
use crate::engine;
use crate::nearest::nearest;
use crate::rule::{Entry, Rule, Value};

/// The maximum number of rules in a configuration.
pub const MAX_RULES: usize = 100_000;

/// The maximum number of combinations of listed values of all rules together.
const MAX_COMBINATIONS: u64 = 1_000_000;

/// The rules and problems of the files read so far.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// The texts that have been read.
    pub(crate) sources: Sources,
    /// The tables of settings of all files, with what the environment and flags set in them.
    pub(crate) root: Node,
    /// `true` if an untrusted client wrote them: then no file or variable that they name is read.
    pub(crate) is_foreign: bool,
    /// `true` if TLS is for gRPC listeners alone, where a listener has no setting of its own.
    pub(crate) is_tls_of_grpc: bool,
    drafts: Vec<Draft>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) warnings: Vec<Problem>,
    /// The first position that requires a store.
    pub(crate) needs_store: Option<SourceLocation>,
    /// The position of each domain in Envoy's files.
    pub(crate) domains: HashMap<String, SourceLocation>,
    /// The problems of domains that another file has too, unless they are merged.
    pub(crate) again: Vec<Problem>,
}

/// A rule before all others are known.
#[derive(Debug)]
struct Draft {
    rule: Rule,
    location: SourceLocation,
    kind: Kind,
    names: Names,
    /// `true` if a problem with the rule was reported: then only its name is used.
    is_faulty: bool,
}

/// The names of other rules in a rule, with their positions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// The rules that it replaces.
    pub(crate) replaces: Vec<(String, SourceLocation)>,
    /// The rules that a call takes from in the same step.
    pub(crate) also: Vec<(String, SourceLocation)>,
}

/// The origin of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Native,
    /// A tier of the rule that follows all its tiers.
    Tier,
    /// A limit of the rule of which the one before is another limit.
    FurtherLimit,
    /// A rule in Envoy's format, named after its descriptors. Its given name is local to its
    /// domain and need not be unique.
    Envoy,
}

impl Gathered {
    pub(crate) fn new(is_foreign: bool) -> Self {
        let root = Node::new(node::Kind::Map(Map::new()), 0..0);
        Self { root, is_foreign, ..Self::default() }
    }

    /// Adds a rule. Of a faulty one only the name is used.
    pub(crate) fn add(
        &mut self,
        kind: Kind,
        rule: Rule,
        location: SourceLocation,
        names: Names,
        is_faulty: bool,
    ) {
        self.drafts.push(Draft { rule, location, kind, names, is_faulty });
    }

    /// Returns `true` if further reading is pointless.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.drafts.len() > MAX_RULES || self.problems.len() > MAX_FOUND
    }

    /// Reports domains that several files have, unless they are merged.
    pub(crate) fn check_domains(&mut self, are_merged: bool) {
        let again = std::mem::take(&mut self.again);
        self.problems.extend(again.into_iter().filter(|_| !are_merged));
    }

    /// Reports a rule where a control plane sends all of them.
    pub(crate) fn refuse_rules(&mut self) {
        if let Some(Draft { location, .. }) = self.drafts.first() {
            let message = "a rule in a file, where the control plane of [xds] sends the rules";
            let help = "leave out the rules, or [xds] and CONFIG_TYPE";
            self.problems.push(Problem::at(location.clone(), message).help(help));
        }
    }

    /// Returns the rules, in the order of their files and lines.
    pub(crate) fn finish(&mut self) -> Vec<Rule> {
        if self.drafts.len() > MAX_RULES {
            let message = format!("too many rules; at most {MAX_RULES} are accepted");
            self.problems.push(Problem::nowhere(message));
            return Vec::new();
        }
        self.check_names();
        self.resolve_replaced();
        self.check_also();
        self.check_stores();
        // Combinations are counted before they are built.
        if self.check_lists() {
            self.check_matches();
        }
        self.drafts.drain(..).map(|draft| draft.rule).collect()
    }

    /// Checks that names are unique. The rule with the chosen name is reported, since names of
    /// Envoy's rules are not chosen.
    fn check_names(&mut self) {
        let mut seen: HashMap<&str, &Draft> = HashMap::new();
        for draft in &self.drafts {
            let Some(first) = seen.insert(&draft.rule.name, draft) else { continue };
            let (of, other) = match (&first.kind, &draft.kind) {
                // These match the same requests, which is reported where matches are checked.
                (Kind::Envoy, Kind::Envoy) => continue,
                (_, Kind::Envoy) => (first, draft),
                _ => (draft, first),
            };
            let name = &draft.rule.name;
            let message = format!(
                "the name {name:?} is also that of the rule at {}",
                other.location.origin()
            );
            self.problems.push(Problem::at(of.location.clone(), message));
        }
        // The name of a rule with several limits stands for all of them.
        let mut groups: HashMap<&str, &Draft> = HashMap::new();
        for draft in self.drafts.iter().filter(|draft| matches!(draft.kind, Kind::Native)) {
            let Some(limit) = &draft.rule.dimension else { continue };
            let other = seen.get(&*limit.of).copied().or(groups.insert(&limit.of, draft));
            if let Some(other) = other {
                let at = other.location.origin();
                let message = format!("the name {:?} is also that of the rule at {at}", limit.of);
                self.problems.push(Problem::at(draft.location.clone(), message));
            }
        }
    }

    fn resolve_replaced(&mut self) {
        // By name; names in Envoy's files are local to their domain.
        let mut named: HashMap<Named, Vec<Arc<str>>> = HashMap::new();
        for draft in &self.drafts {
            let name = Arc::clone(&draft.rule.name);
            named.entry((None, Arc::clone(&name))).or_default().push(Arc::clone(&name));
            if let Some(given) = draft.given() {
                let domain = Some(Arc::clone(&draft.rule.domain));
                named.entry((domain, Arc::clone(given))).or_default().push(name);
            } else if let (Kind::Tier, Some((rule, _))) = (&draft.kind, name.rsplit_once('/')) {
                // Replacing a rule replaces its tiers.
                named.entry((None, rule.into())).or_default().push(Arc::clone(&name));
            } else if let Some(limit) = &draft.rule.dimension {
                named.entry((None, Arc::clone(&limit.of))).or_default().push(name);
            }
        }
        for draft in &mut self.drafts {
            let is_envoy = matches!(draft.kind, Kind::Envoy);
            let mut replaced: Vec<Arc<str>> = Vec::new();
            for (name, location) in &draft.names.replaces {
                let domain = is_envoy.then(|| Arc::clone(&draft.rule.domain));
                let found = named.get(&(domain, name.as_str().into()));
                let problem = |message| Problem::at(location.clone(), message);
                match (found, &draft.kind) {
                    (Some(found), _) => replaced.extend(found.iter().cloned()),
                    (None, Kind::Tier | Kind::FurtherLimit) => {}
                    (None, Kind::Native) => {
                        let known = named.keys().filter(|(domain, _)| domain.is_none());
                        let meant = nearest(name, known.map(|(_, name)| &**name));
                        let help = meant.map(|meant| format!("did you mean {meant:?}?"));
                        let problem = problem(format!("replaces the unknown rule {name:?}"));
                        self.problems.push(problem.help(help.unwrap_or_default()));
                    }
                    (None, Kind::Envoy) => self.warnings.push(
                        problem(format!(
                            "replaces {name:?}, and no limit of the domain has that name"
                        ))
                        .warning(),
                    ),
                }
                if matches!(draft.kind, Kind::Native) && draft.rule.is_of(name) {
                    self.problems.push(problem("a rule does not replace itself".to_owned()));
                }
            }
            // A rule that shares a replaced name does not replace itself.
            replaced.retain(|name| *name != draft.rule.name);
            let mut seen = HashSet::new();
            replaced.retain(|name| seen.insert(Arc::clone(name)));
            draft.rule.replaces = replaced;
        }
    }

    /// Checks that the rules that calls take from in the same step exist, that each call has their
    /// entries, and that none takes from itself.
    fn check_also(&mut self) {
        if self.drafts.iter().all(|draft| draft.names.also.is_empty()) {
            return;
        }
        let mut named: HashMap<&str, Vec<&Draft>> = HashMap::new();
        for draft in self.drafts.iter().filter(|draft| !matches!(draft.kind, Kind::Envoy)) {
            named.entry(&draft.rule.name).or_default().push(draft);
            if let Some(limit) = &draft.rule.dimension {
                named.entry(&limit.of).or_default().push(draft);
            }
        }
        let mut problems = Vec::new();
        // Limits and tiers name the rules of their own rule.
        for draft in self.drafts.iter().filter(|draft| matches!(draft.kind, Kind::Native)) {
            for (name, location) in &draft.names.also {
                let problem = |message: String| Problem::at(location.clone(), message);
                let Some(others) = named.get(name.as_str()) else {
                    let meant = nearest(name, named.keys().copied());
                    let help = meant.map(|meant| format!("did you mean {meant:?}?"));
                    let problem = problem(format!("takes from the unknown rule {name:?}"));
                    problems.push(problem.help(help.unwrap_or_default()));
                    continue;
                };
                let mut all: HashSet<&str> = HashSet::from([name.as_str()]);
                let mut next: Vec<&Draft> = others.clone();
                let mut is_circle = false;
                while let Some(other) = next.pop() {
                    let of = other.rule.dimension.as_ref().map_or(&other.rule.name, |it| &it.of);
                    is_circle |= draft.rule.is_of(of);
                    for (name, _) in &other.names.also {
                        if all.insert(name) {
                            next.extend(named.get(name.as_str()).into_iter().flatten());
                        }
                    }
                }
                if is_circle {
                    problems.push(problem(format!("through {name:?} the rule takes from itself")));
                } else if all.len() >= engine::MAX_RULES_PER_ITEM {
                    let most = engine::MAX_RULES_PER_ITEM;
                    problems.push(problem(format!("a call takes from at most {most} rules")));
                } else if let Some(why) =
                    others.iter().find_map(|other| draft.rule.covers(&other.rule).err())
                    && !draft.is_faulty
                    && others.iter().all(|other| !other.is_faulty)
                {
                    problems.push(problem(format!("cannot take from {name:?}: {why}")));
                }
            }
        }
        self.problems.append(&mut problems);
    }

    /// Checks that limits in a store are possible there, as the service does when it starts.
    fn check_stores(&mut self) {
        for Draft { rule, location, .. } in self.drafts.iter().filter(|draft| !draft.is_faulty) {
            if let Err(why) = engine::check_storable(rule) {
                let message = format!("{:?} cannot be kept in a store: {why}", &*rule.name);
                self.problems.push(Problem::at(location.clone(), message));
            }
        }
    }

    /// Checks the number of combinations of listed values, each of which is a node in the tree of
    /// rules.
    fn check_lists(&mut self) -> bool {
        let mut all = 0_u64;
        for Draft { rule, location, .. } in &self.drafts {
            let combinations = rule.entries.iter().fold(1_u64, |all, entry| match &entry.value {
                Value::OneOf(values) => {
                    all.saturating_mul(u64::try_from(values.len()).unwrap_or(u64::MAX))
                }
                Value::Any | Value::Exact(_) | Value::Pattern { .. } => all,
            });
            all = all.saturating_add(combinations);
            if all > MAX_COMBINATIONS {
                let message = format!(
                    "its lists make {combinations} combinations of values, and all rules together \
                     at most {MAX_COMBINATIONS}"
                );
                let help = "leave out a list, and write a separate rule for each of a few values";
                self.problems.push(Problem::at(location.clone(), message).help(help));
                return false;
            }
        }
        true
    }

    /// Checks for conflicting rules. Rules for the same requests are allowed, except two in
    /// Envoy's format, as there, and except a rule with tiers.
    fn check_matches(&mut self) {
        let tiered: HashSet<&str> = self.drafts.iter().filter_map(Draft::tier_of).collect();
        let mut seen: HashMap<(&str, Path), Vec<&Draft>> = HashMap::new();
        for draft in self.drafts.iter().filter(|draft| !draft.is_faulty) {
            let has_tiers = |draft: &Draft| {
                matches!(draft.kind, Kind::Tier) || tiered.contains(&*draft.rule.name)
            };
            let is_envoy = |draft: &Draft| matches!(draft.kind, Kind::Envoy);
            for key in keys(&draft.rule.entries) {
                let before = seen.entry((&draft.rule.domain, key)).or_default();
                let first = before.iter().find(|first| {
                    (is_envoy(first) && is_envoy(draft)) || has_tiers(first) || has_tiers(draft)
                });
                let is_full = before.len() >= engine::MAX_RULES_PER_MATCH;
                if let Some(first) = first.copied().or(before.first().copied().filter(|_| is_full))
                {
                    self.problems.push(draft.same_as(
                        first,
                        is_full,
                        has_tiers(first) || has_tiers(draft),
                    ));
                    break;
                }
                before.push(draft);
            }
        }
    }
}

impl Draft {
    /// Returns the name of the rule that it is a tier of.
    fn tier_of(&self) -> Option<&str> {
        let rule = self.rule.name.rsplit_once('/').map(|(rule, _)| rule);
        rule.filter(|_| matches!(self.kind, Kind::Tier))
    }

    /// Creates a problem about a rule for the same requests as another.
    fn same_as(&self, first: &Self, is_full: bool, has_tiers: bool) -> Problem {
        let (one, other) = (&first.rule.name, &self.rule.name);
        let at = first.location.origin();
        let message = if is_full {
            format!(
                "too many rules for the same calls: {other:?} is one more with the match of \
                 {one:?} at {at}"
            )
        } else {
            format!("duplicate composite key: {other:?} matches what {one:?} at {at} does")
        };
        let help = if is_full {
            format!("at most {} rules are for the same calls", engine::MAX_RULES_PER_MATCH)
        } else if has_tiers {
            "a rule with tiers cannot share its match: give one of the two its own domain; \
             requests by name find it in any"
                .to_owned()
        } else {
            "give each descriptor once, and a second limit for the same calls as a rule in TOML"
                .to_owned()
        };
        Problem::at(self.location.clone(), message).help(help)
    }

    /// Returns the given name in Envoy's file, if there is one.
    fn given(&self) -> Option<&Arc<str>> {
        let given = &self.rule.envoy_name;
        (matches!(self.kind, Kind::Envoy) && !given.is_empty()).then_some(given)
    }
}

/// A name, with its domain if it is local to one.
type Named = (Option<Arc<str>>, Arc<str>);

/// The entries of a descriptor.
type Path = Vec<(Arc<str>, Value)>;

/// Returns the entries, once for each value of the first list. Several lists would multiply: of a
/// further list only the first value is compared.
fn keys(entries: &[Entry]) -> impl Iterator<Item = Path> {
    let values = |entry: &Entry| match &entry.value {
        Value::OneOf(values) => Some(values.len()),
        _ => None,
    };
    let list = entries.iter().position(|entry| values(entry).is_some());
    let count = entries.iter().find_map(values);
    let compared = move |at: usize, nth: usize, value: &Value| match value {
        Value::OneOf(values) => {
            values.get(if list == Some(at) { nth } else { 0 }).cloned().map(Value::Exact)
        }
        Value::Pattern { text, .. } => {
            Some(Value::Pattern { text: Arc::clone(text), shared: false })
        }
        Value::Any | Value::Exact(_) => Some(value.clone()),
    };
    (0..count.unwrap_or(1)).filter_map(move |nth| {
        let path = entries.iter().enumerate();
        path.map(|(at, entry)| Some((Arc::clone(&entry.key), compared(at, nth, &entry.value)?)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::source::Source;
    use super::*;
    use crate::config::load_text;

    #[test]
    fn there_are_not_more_rules_than_the_bound() {
        let rule = load_text("a.toml", "[[rule]]\nname = \"a\"\nlimit = \"1/s\"").unwrap();
        let rule = &rule.rules.rules[0];
        let source = Source::new(Path::new("a.toml"), "");
        let gathered = |rules: usize| {
            let mut all = Gathered::default();
            for nth in 0..rules {
                let name: Arc<str> = format!("r{nth}").into();
                let rule = Rule { domain: Arc::clone(&name), name, ..rule.clone() };
                all.add(Kind::Native, rule, source.location(0..0), Names::default(), false);
            }
            let is_hopeless = all.is_hopeless();
            let rules = all.finish().len();
            (is_hopeless, rules, all.problems.iter().map(ToString::to_string).collect::<String>())
        };
        assert_eq!(gathered(MAX_RULES), (false, MAX_RULES, String::new()));
        let (is_hopeless, rules, problem) = gathered(MAX_RULES + 1);
        assert!(is_hopeless && rules == 0 && problem.contains("at most 100000 are accepted"));
    }
}
