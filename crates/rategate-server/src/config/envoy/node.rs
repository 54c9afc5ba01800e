//! A YAML file as a tree of values with their positions.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::thread;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use crate::config::error::Problem;
use crate::config::source::{Source, SourceLocation};

/// The maximum nesting.
const MAX_DEPTH: usize = 64;
/// The stack of the reading thread: enough for the maximum nesting in a debug build.
const STACK_BYTES: usize = 32 << 20;
/// The maximum number of values.
const MAX_NODES: usize = 2_000_000;

/// A value with its position.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    spot: Spot,
}

/// The content of a value.
#[derive(Debug)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    /// A whole number.
    Number(i128),
    /// Any other number; only its text in the file is used.
    Decimal,
    /// A text: quoted, or anything that is nothing else.
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// A key of a mapping.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) text: String,
    spot: Spot,
}

/// A position in a file: by line and column, and in bytes if these are known.
#[derive(Clone, Debug)]
struct Spot {
    bytes: Option<Range<usize>>,
    line: usize,
    column: usize,
}

/// Reads a file with bounds on everything that it can consume, including stack.
pub(crate) fn parse(source: &Arc<Source>) -> Result<Node, Problem> {
    let failed = || Problem::at(source.location(0..0), "cannot start a thread to read it");
    thread::scope(|scope| {
        let builder =
            thread::Builder::new().name("rategate-yaml".to_owned()).stack_size(STACK_BYTES);
        let reader = builder.spawn_scoped(scope, || parse_here(source)).map_err(|_| failed())?;
        reader.join().map_err(|_| failed())?
    })
}

fn parse_here(source: &Arc<Source>) -> Result<Node, Problem> {
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
        let spot = error.location().map_or(Spot { bytes: None, line: 1, column: 1 }, Spot::of);
        let message = error.without_snippet().to_string();
        // The position is reported separately.
        let message = message.split(" at line ").next().unwrap_or(&message).to_owned();
        Problem::at(spot.location(source), message)
    })
}

impl Node {
    pub(crate) fn location(&self, source: &Arc<Source>) -> SourceLocation {
        self.spot.location(source)
    }

    /// Returns the kind of the value in plain words.
    pub(crate) const fn what(&self) -> &'static str {
        match self.kind {
            Kind::Null => "nothing",
            Kind::Bool(_) => "true or false",
            Kind::Number(_) => "a whole number",
            Kind::Decimal => "a number",
            Kind::Text(_) => "a text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a mapping",
        }
    }

    /// Returns a scalar value as it is written.
    pub(crate) fn text<'t>(&'t self, source: &'t Source) -> Option<&'t str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            Kind::Bool(_) | Kind::Number(_) | Kind::Decimal => {
                let bytes = self.spot.bytes.clone()?;
                source.text().get(bytes).map(str::trim)
            }
            Kind::Null => Some(""),
            Kind::List(_) | Kind::Map(_) => None,
        }
    }
}

impl Key {
    pub(crate) fn location(&self, source: &Arc<Source>) -> SourceLocation {
        self.spot.location(source)
    }
}

impl Spot {
    fn of(location: Location) -> Self {
        let small = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let span = location.span();
        let bytes = span.byte_offset().zip(span.byte_len());
        let bytes = bytes.map(|(start, length)| small(start)..small(start.saturating_add(length)));
        Self { bytes, line: small(location.line()), column: small(location.column()) }
    }

    fn location(&self, source: &Arc<Source>) -> SourceLocation {
        match &self.bytes {
            Some(bytes) => source.location(bytes.clone()),
            None => source.location_at(self.line, self.column),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value: UnspannedKind(kind), defined, .. } =
            Spanned::<UnspannedKind>::deserialize(deserializer)?;
        Ok(Self { kind, spot: Spot::of(defined) })
    }
}

/// A value without its position.
struct UnspannedKind(Kind);

impl<'de> Deserialize<'de> for UnspannedKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor).map(UnspannedKind)
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
        Ok(i128::try_from(value).map_or(Kind::Decimal, Kind::Number))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Kind, E> {
        Ok(Kind::Decimal)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Kind, E> {
        Ok(Kind::Text(text.to_owned()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kind, D::Error> {
        deserializer.deserialize_any(Self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Kind, A::Error> {
        let mut all = Vec::new();
        while let Some(node) = seq.next_element()? {
            all.push(node);
        }
        Ok(Kind::List(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kind, A::Error> {
        let mut all = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let spot = Spot::of(key.defined);
            all.push((Key { text: key.value, spot }, map.next_value()?));
        }
        Ok(Kind::Map(all))
    }
}
