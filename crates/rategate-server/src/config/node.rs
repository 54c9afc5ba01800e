//! A file as a tree of values with their positions, whatever its format is.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::thread;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};
use toml::de::{DeTable, DeValue};

use super::error::Problem;
use super::source::Source;

/// The maximum number of syntax errors reported. Further ones usually follow from the first.
const MAX_SYNTAX: usize = 5;
/// The maximum nesting of YAML.
const MAX_DEPTH: usize = 64;
/// The stack of the thread that reads YAML: enough for the maximum nesting in a debug build.
const STACK_BYTES: usize = 32 << 20;
/// The maximum number of values of a YAML file.
const MAX_NODES: usize = 2_000_000;

/// A value with its position among all texts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) span: Range<usize>,
    pub(crate) state: Cell<State>,
}

/// The problems that were reported with a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Right,
    /// An element of the list was wrong.
    InPart,
    /// It was wrong, and counts as absent.
    Wrong,
    /// Its key was unknown, and may have been meant as any. It counts as absent.
    Unknown,
}

/// The content of a value.
#[derive(Clone, Debug, Default)]
pub(crate) enum Kind {
    #[default]
    Null,
    Bool(bool),
    /// A whole number.
    Number(i128),
    /// A number with decimals or an exponent.
    Float(f64),
    /// A date, or a number that is too large; only its text in the file is used.
    Other,
    Text(String),
    /// The text of a variable or a flag, which may stand for any scalar or list.
    Outside(String),
    List(Vec<Node>),
    Map(Map),
}

/// The keys of a mapping with their positions and values.
pub(crate) type Map = BTreeMap<String, (Range<usize>, Node)>;

impl Node {
    pub(crate) const fn new(kind: Kind, span: Range<usize>) -> Self {
        Self { kind, span, state: Cell::new(State::Right) }
    }

    /// Returns the kind of the value in plain words.
    pub(crate) const fn what(&self) -> &'static str {
        match self.kind {
            Kind::Null => "nothing",
            Kind::Bool(_) => "true or false",
            Kind::Number(_) => "a whole number",
            Kind::Float(_) => "a number",
            Kind::Other => "a date or a number",
            Kind::Text(_) | Kind::Outside(_) => "a text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a table",
        }
    }

    pub(crate) fn is_out(&self) -> bool {
        matches!(self.state.get(), State::Wrong | State::Unknown)
    }

    /// Returns `true` if no problem with the value or with any part of it was reported.
    pub(crate) fn is_right(&self) -> bool {
        let is_whole = match &self.kind {
            Kind::List(all) => all.iter().all(Self::is_right),
            Kind::Map(entries) => entries.values().all(|(_, node)| node.is_right()),
            _ => true,
        };
        is_whole && self.state.get() == State::Right
    }

    /// Returns the value at a path of keys, unless a problem with it was reported.
    pub(crate) fn get(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, Self::child).filter(|node| !node.is_out())
    }

    /// Returns the position of the value at a path of keys, or that of the nearest table above it.
    pub(crate) fn spot(&self, path: &str) -> &Range<usize> {
        let above = std::iter::successors(Some(path), |path| Some(path.rsplit_once('.')?.0));
        above.into_iter().find_map(|path| self.get(path)).map_or(&self.span, |node| &node.span)
    }

    /// Returns the elements of the list at a key with no reported problems. A single value is a
    /// list of it.
    pub(crate) fn elements(&self, key: &str) -> impl Iterator<Item = &Self> {
        self.numbered(key).map(|(_, node)| node)
    }

    /// Returns these elements with their numbers in the list.
    pub(crate) fn numbered(&self, key: &str) -> impl Iterator<Item = (usize, &Self)> {
        let all = self.get(key).map_or(&[][..], |node| match &node.kind {
            Kind::List(all) => all,
            Kind::Null => &[],
            _ => std::slice::from_ref(node),
        });
        all.iter().enumerate().filter(|(_, node)| !node.is_out())
    }

    /// Returns `true` if a problem with the value of a key was reported, so that its absence
    /// means nothing.
    pub(crate) fn is_reported(&self, key: &str) -> bool {
        let Kind::Map(entries) = &self.kind else { return false };
        self.child(key).is_some_and(|node| node.state.get() != State::Right)
            || entries.values().any(|(_, node)| node.state.get() == State::Unknown)
    }

    pub(crate) fn child(&self, key: &str) -> Option<&Self> {
        match &self.kind {
            Kind::Map(entries) => entries.get(key).map(|(_, node)| node),
            _ => None,
        }
    }

    /// Puts a value at a path of keys. Whatever is no table on its way is replaced by one.
    pub(crate) fn put(&mut self, path: &str, value: Self) {
        if !matches!(self.kind, Kind::Map(_)) {
            *self = Self::new(Kind::Map(Map::new()), value.span.clone());
        }
        let Kind::Map(entries) = &mut self.kind else { return };
        let span = value.span.clone();
        if let Some((first, rest)) = path.split_once('.') {
            let fresh = || (span.clone(), Self::new(Kind::Null, span.clone()));
            entries.entry(first.to_owned()).or_insert_with(fresh).1.put(rest, value);
        } else {
            entries.insert(path.to_owned(), (span, value));
        }
    }
}

/// Reads TOML. Its positions begin at `start`.
pub(crate) fn toml(source: &Arc<Source>, start: usize) -> Result<Node, Vec<Problem>> {
    let (root, errors) = DeTable::parse_recoverable(source.text());
    if errors.is_empty() {
        return Ok(of_toml(root.span(), DeValue::Table(root.into_inner()), start));
    }
    let problem = |error: &toml::de::Error| {
        let location = source.location(error.span().unwrap_or(0..0));
        // The first line describes the problem, the rest the correction.
        let (cause, right) = error.message().split_once('\n').unwrap_or((error.message(), ""));
        Problem::at(location, cause).help(right.replace('\n', "; "))
    };
    Err(errors.iter().take(MAX_SYNTAX).map(problem).collect())
}

fn of_toml(span: Range<usize>, value: DeValue<'_>, start: usize) -> Node {
    let at = |span: Range<usize>| span.start.saturating_add(start)..span.end.saturating_add(start);
    let kind = match value {
        DeValue::String(text) => Kind::Text(text.into_owned()),
        DeValue::Boolean(value) => Kind::Bool(value),
        DeValue::Integer(number) => {
            i128::from_str_radix(number.as_str(), number.radix()).map_or(Kind::Other, Kind::Number)
        }
        DeValue::Float(number) => {
            number.as_str().replace('_', "").parse().map_or(Kind::Other, Kind::Float)
        }
        DeValue::Datetime(_) => Kind::Other,
        DeValue::Array(all) => {
            let all = all.into_iter();
            Kind::List(all.map(|one| of_toml(one.span(), one.into_inner(), start)).collect())
        }
        DeValue::Table(table) => {
            let entry = |(key, value): (toml::Spanned<_>, toml::Spanned<_>)| {
                let span = at(key.span());
                let text = std::borrow::Cow::into_owned(key.into_inner());
                (text, (span, of_toml(value.span(), value.into_inner(), start)))
            };
            Kind::Map(table.into_iter().map(entry).collect())
        }
    };
    Node::new(kind, at(span))
}

/// Reads YAML, with bounds on everything that it can consume, including stack.
pub(crate) fn yaml(source: &Arc<Source>, start: usize) -> Result<Node, Problem> {
    let failed = || Problem::at(source.location(0..0), "cannot start a thread to read it");
    thread::scope(|scope| {
        let builder =
            thread::Builder::new().name("rategate-yaml".to_owned()).stack_size(STACK_BYTES);
        let reader = builder.spawn_scoped(scope, || {
            yaml_here(source).map(|mut node| {
                place(&mut node, start);
                node
            })
        });
        reader.map_err(|_| failed())?.join().map_err(|_| failed())?
    })
}

fn yaml_here(source: &Arc<Source>) -> Result<Node, Problem> {
    let length = source.text().len();
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: MAX_NODES.saturating_mul(2),
            max_total_scalar_bytes: length.saturating_mul(4),
        },
        with_snippet: false,
        emit_comments: false,
    };
    serde_saphyr::from_str_with_options(source.text(), options).map_err(|error| {
        let location = error.location().map(|at| match span_of(at) {
            Some(span) => source.location(span),
            None => source.location_at(small(at.line()), small(at.column())),
        });
        let message = error.without_snippet().to_string();
        // The position is reported separately.
        let message = message.split(" at line ").next().unwrap_or(&message).to_owned();
        Problem::at(location.unwrap_or_else(|| source.location(0..0)), message)
    })
}

/// Moves the positions of a tree by `start` bytes.
pub(crate) fn place(node: &mut Node, start: usize) {
    let shift = |span: &mut Range<usize>| {
        *span = span.start.saturating_add(start)..span.end.saturating_add(start);
    };
    shift(&mut node.span);
    match &mut node.kind {
        Kind::List(all) => all.iter_mut().for_each(|node| place(node, start)),
        Kind::Map(entries) => entries.values_mut().for_each(|(key, node)| {
            shift(key);
            place(node, start);
        }),
        _ => {}
    }
}

fn small(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn span_of(location: Location) -> Option<Range<usize>> {
    let (start, length) = location.span().byte_offset().zip(location.span().byte_len())?;
    Some(small(start)..small(start.saturating_add(length)))
}

/// Reads a value of YAML.
impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, defined, .. } = Spanned::<Kind>::deserialize(deserializer)?;
        Ok(Self::new(value, span_of(defined).unwrap_or(0..0)))
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor)
    }
}

struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Kind, E> {
        Ok(Kind::Number(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Kind, E> {
        Ok(Kind::Number(value.into()))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Kind, E> {
        Ok(Kind::Number(value))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Kind, E> {
        Ok(i128::try_from(value).map_or(Kind::Other, Kind::Number))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Kind, E> {
        Ok(Kind::Float(value))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Kind, E> {
        Ok(Kind::Text(text.to_owned()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Kind, A::Error> {
        let mut all = Vec::new();
        while let Some(node) = seq.next_element()? {
            all.push(node);
        }
        Ok(Kind::List(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kind, A::Error> {
        let mut all = Map::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let span = span_of(key.defined).unwrap_or(0..0);
            all.insert(key.value, (span, map.next_value()?));
        }
        Ok(Kind::Map(all))
    }
}
