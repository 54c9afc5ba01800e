//! Limitador's format: the list of limits that its server reads, in YAML.
//!
//! A limit becomes a rule for the descriptor that its expressions name. The conditions are entries
//! with a value, the variables entries with a counter for each value. Other entries of the
//! descriptor, and their order, do not matter. A limit is a window of the wall clock, and a call
//! that does not fit into one of its limits counts in none.
//!
//! An expression that entries cannot represent is a problem: see [`cel`](super::cel).

use std::ops::Range;
use std::sync::Arc;

use rategate::charge::Debt;
use serde::Deserialize;

use super::cel::{self, Inexpressible, Variable};
use super::de;
use super::error::Problem;
use super::gather::{Gathered, Kind as Draft, Names};
use super::limit::{Algorithm, Extra, Written};
use super::naming::{self, MAX_TEXT_BYTES};
use super::node::{Kind, Node};
use super::rules::Reader;
use crate::engine::MAX_ITEMS;
use crate::rule::{
    CounterLocation, Counts, Enforcement, Entry, HELD_NS, HoldBounds, Look, OnUnavailable, Over,
    Rule, Unit, Value,
};

const CONDITION: &str = "a condition is like descriptors[0].method == 'GET'; write a rule in TOML \
                         with a pattern, or let the proxy send another entry";
const VARIABLE: &str = "a variable is like descriptors[0].user_id or descriptors[0]['user.id']";

/// A limit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitTable {
    /// It names a limit in the API of Limitador's server, and decides nothing.
    #[serde(rename = "id")]
    _id: Option<String>,
    namespace: Option<String>,
    max_value: Option<u64>,
    seconds: Option<u64>,
    name: Option<String>,
    conditions: Option<Vec<String>>,
    variables: Option<Vec<String>>,
}

/// Reads the limits of a file.
pub(super) fn read_all(limits: &[Node], all: &mut Gathered) {
    for (nth, node) in limits.iter().enumerate() {
        if all.is_hopeless() {
            return;
        }
        if !matches!(node.kind, Kind::Map(_)) {
            let problem = Problem::at(
                all.sources.location(&node.span),
                format!("[{nth}]: a limit is a mapping, and this is {}", node.what()),
            );
            all.problems.push(problem.help("write namespace, max_value and seconds"));
            continue;
        }
        let path = format!("[{nth}]");
        let before = all.problems.len();
        let Some(table) = de::read::<LimitTable>(all, Some(&path), node) else { continue };
        Reader { node, path: Some(path), all }.limit_of(&table, before);
    }
}

impl Reader<'_> {
    /// Adds the rule of a limit.
    fn limit_of(&mut self, table: &LimitTable, before: usize) {
        let namespace = table.namespace.as_deref().unwrap_or_default();
        if namespace.is_empty() {
            self.miss("namespace", "no namespace", "write namespace: and the domain of the calls");
        }
        for (key, text) in [("namespace", Some(namespace)), ("name", table.name.as_deref())] {
            if text.is_some_and(|text| text.len() > MAX_TEXT_BYTES) {
                self.complain(key, "longer than 4096 bytes");
            }
        }
        let mut places = Vec::new();
        let mut entries = self.conditions(table, &mut places);
        entries.extend(self.variables(table, &mut places));
        // Conditions and variables are sets: their order has no meaning.
        entries.sort_by_cached_key(sorting);
        entries.dedup();
        let descriptor = self.descriptor_of(&places);
        let written = self.written(table);
        let (limit, display_limit) =
            self.build("max_value", written, Some(Algorithm::FixedWindow), Extra::default());
        let seconds = table.seconds.unwrap_or(0);
        let suffix = match descriptor {
            0 => format!("@{seconds}s"),
            nth => format!("@{seconds}s#{nth}"),
        };
        let location = self.location("");
        let rule = Rule {
            name: naming::of_limit(namespace, &entries, &suffix).into(),
            envoy_name: table.name.as_deref().unwrap_or_default().into(),
            domain: namespace.into(),
            entries,
            descriptor: Some(descriptor),
            dimension: None,
            also: Vec::new(),
            counts: Counts::Permits,
            warn: Vec::new(),
            limit,
            display_limit,
            over: Over::Refuse,
            look: Look::Debt,
            debt: Debt::FORGOTTEN,
            enforcement: Enforcement::All,
            quota: false,
            replaces: Vec::new(),
            metadata: None,
            detailed_metric: false,
            schedule: Vec::new(),
            location: CounterLocation::Here,
            held_ns: HELD_NS,
            hold_bounds: HoldBounds::DEFAULT,
            on_unavailable: OnUnavailable::Local,
            max_keys: None,
            origin: location.origin(),
        };
        let is_faulty = self.all.problems.len() > before;
        self.all.add(Draft::Native, rule, location, Names::default(), is_faulty);
    }

    /// Returns the limit as it is written, in the largest unit of which its time is a multiple.
    fn written(&mut self, table: &LimitTable) -> Option<Written> {
        if table.max_value.is_none() {
            self.miss("max_value", "no max_value", "write max_value: and a number of calls");
        }
        if table.seconds.is_none() {
            self.miss("seconds", "no seconds", "write seconds: and the length of the window");
        }
        let (max, seconds) = (table.max_value?, table.seconds?);
        if seconds == 0 {
            self.complain("seconds", "a window is at least 1 second long");
            return None;
        }
        let units = [Unit::Day, Unit::Hour, Unit::Minute, Unit::Second];
        let unit = units.into_iter().find(|unit| seconds.is_multiple_of(unit.seconds()))?;
        let count = seconds.checked_div(unit.seconds())?;
        let written = Written::per_unit(max, count, unit);
        written.map_err(|complaint| self.complain("seconds", complaint)).ok()
    }

    /// Returns the entries of the conditions, and adds the indices of their descriptors.
    fn conditions(
        &mut self,
        table: &LimitTable,
        places: &mut Vec<(usize, Range<usize>)>,
    ) -> Vec<Entry> {
        let mut entries = Vec::new();
        let nodes = self.node.numbered("conditions");
        for (text, (nth, node)) in table.conditions.iter().flatten().zip(nodes) {
            match cel::condition(text) {
                Ok((variable, value)) => {
                    if value.contains('*') {
                        let problem = "a * in a value is a pattern here, not a character";
                        let at = text.find('*').unwrap_or(0);
                        let problem = Inexpressible { at, problem };
                        self.refuse(("conditions", nth), (text, node), &problem, CONDITION);
                    }
                    let value = Value::Exact(value.as_str().into());
                    entries.extend(self.entry_at(&variable, value, ("conditions", nth), node));
                    places.push((variable.descriptor, node.span.clone()));
                }
                Err(problem) => {
                    self.refuse(("conditions", nth), (text, node), &problem, CONDITION);
                }
            }
        }
        entries
    }

    /// Returns the entries of the variables, and adds the indices of their descriptors.
    fn variables(
        &mut self,
        table: &LimitTable,
        places: &mut Vec<(usize, Range<usize>)>,
    ) -> Vec<Entry> {
        let mut entries = Vec::new();
        let nodes = self.node.numbered("variables");
        for (text, (nth, node)) in table.variables.iter().flatten().zip(nodes) {
            match cel::variable(text) {
                Ok(variable) => {
                    entries.extend(self.entry_at(&variable, Value::Any, ("variables", nth), node));
                    places.push((variable.descriptor, node.span.clone()));
                }
                Err(problem) => {
                    self.refuse(("variables", nth), (text, node), &problem, VARIABLE);
                }
            }
        }
        entries
    }

    /// Returns an entry, or reports that its key cannot be one.
    fn entry_at(
        &mut self,
        variable: &Variable,
        value: Value,
        (key, nth): (&str, usize),
        node: &Node,
    ) -> Option<Entry> {
        let longest = match &value {
            Value::Exact(value) => value.len().max(variable.key.len()),
            _ => variable.key.len(),
        };
        let complaint = if variable.key.is_empty() {
            "an entry's key is empty".to_owned()
        } else if longest > MAX_TEXT_BYTES {
            format!("a key or value has at most {MAX_TEXT_BYTES} bytes")
        } else if variable.descriptor >= MAX_ITEMS {
            format!("the last descriptor of a call is {}", MAX_ITEMS.saturating_sub(1))
        } else {
            return Some(Entry { key: variable.key.as_str().into(), value });
        };
        self.at(key, nth, node.span.clone(), &complaint, "");
        None
    }

    /// Returns the index of the descriptor that all expressions name, the first if none does.
    fn descriptor_of(&mut self, places: &[(usize, Range<usize>)]) -> usize {
        let first = places.first().map_or(0, |(descriptor, _)| *descriptor);
        if let Some((_, span)) = places.iter().find(|(descriptor, _)| *descriptor != first) {
            let location = self.all.sources.location(span);
            let path = self.path.clone().unwrap_or_default();
            let message = format!(
                "the expressions of a limit are about one descriptor, and another is about \
                 descriptors[{first}]"
            );
            let help = "let the proxy send these entries in one descriptor";
            self.all.problems.push(Problem::of(&path, location, message).help(help));
        }
        first
    }

    /// Reports an expression that entries cannot express, where it is too much.
    fn refuse(
        &mut self,
        (key, nth): (&str, usize),
        (text, node): (&str, &Node),
        Inexpressible { at, problem }: &Inexpressible,
        help: &str,
    ) {
        // With escapes, the text differs from what is in the file.
        let written = self.all.sources.text(&node.span).and_then(|written| written.find(text));
        let span = written.map_or(node.span.clone(), |offset| {
            let start = node.span.start.saturating_add(offset).saturating_add(*at);
            start..start.saturating_add(1)
        });
        self.at(key, nth, span, &format!("{text:?}: {problem}"), help);
    }

    /// Reports a problem at a position in a list.
    fn at(&mut self, key: &str, nth: usize, span: Range<usize>, message: &str, help: &str) {
        let path = format!("{}.{key}[{nth}]", self.path.as_deref().unwrap_or_default());
        let location = self.all.sources.location(&span);
        self.all.problems.push(Problem::of(&path, location, message).help(help));
    }
}

/// Returns what entries are sorted by: key, and value. Entries with a counter for each value come
/// behind those with one value.
fn sorting(entry: &Entry) -> (Arc<str>, bool, Option<Arc<str>>) {
    let value = match &entry.value {
        Value::Exact(value) => Some(Arc::clone(value)),
        _ => None,
    };
    (Arc::clone(&entry.key), value.is_none(), value)
}
