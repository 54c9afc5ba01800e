//! Reading of values from a tree, with every problem of it in the words of a file.

use std::cell::RefCell;
use std::collections::btree_map;
use std::fmt::{self, Display};
use std::ops::Range;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, Visitor,
};
use serde::{Deserialize as _, forward_to_deserialize_any};

use super::error::{MAX_FOUND, Problem};
use super::gather::Gathered;
use super::node::{Kind, Node, State};
use super::settings::Elsewhere;
use crate::nearest::one_of;

/// The maximum number of wrong values of a tree that are searched for, as many as are printed.
const MAX_FAULTS: usize = 50;
/// The maximum length of a text in a message.
const MAX_SHOWN: usize = 80;

/// The name of [`super::text::OneOrMore`], which may be a single value.
pub(super) const ONE_OR_MORE: &str = "$one or more";
/// The name of values with a grammar, which are texts or tables.
pub(super) const TEXT: &str = "$text";
/// The name of secrets, whose tables say where they are.
pub(super) const SECRET: &str = "$secret";

/// Returns what is wanted in the words of who writes it, where a reader names a type of the program.
pub(crate) fn in_words(wanted: &str) -> &str {
    TYPES.iter().find(|(program, _)| *program == wanted).map_or(wanted, |(_, words)| words)
}

/// The names of types in a program, and in a file.
const TYPES: [(&str, &str); 10] = [
    ("a string", "a text"),
    ("path string", "a path as text"),
    ("a boolean", "true or false"),
    ("a sequence", "a list"),
    ("usize", "a whole number from 0 on"),
    ("u64", "a whole number from 0 to 18446744073709551615"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u16", "a whole number from 0 to 65535"),
    ("a nonzero usize", "a whole number from 1 on"),
    ("a nonzero u32", "a whole number from 1 to 4294967295"),
];

/// Reads a tree without its unknown keys and wrong values, each of which is marked and reported.
/// Returns `None` if the rest is not such a value.
///
/// Messages about YAML begin with the path of the value, of which `path` is the first part. Those
/// about TOML have none: the position suffices.
pub(crate) fn read<T: DeserializeOwned>(
    all: &mut Gathered,
    path: Option<&str>,
    node: &Node,
) -> Option<T> {
    let context = &Context { all, path, problems: RefCell::default() };
    let reader = Reader { node, context, above: None, may_be_one: false };
    let mut value = None;
    for _ in 0..MAX_FAULTS {
        match T::deserialize(reader) {
            Ok(read) => value = Some(read),
            Err(fault) => {
                let (problem, is_settled) = reader.blame(fault);
                context.problems.borrow_mut().extend(problem);
                if is_settled {
                    continue;
                }
            }
        }
        break;
    }
    let problems = context.problems.take();
    all.problems.extend(problems);
    value
}

struct Context<'t> {
    all: &'t Gathered,
    path: Option<&'t str>,
    problems: RefCell<Vec<Problem>>,
}

/// The reason why a value cannot be read.
#[derive(Debug)]
enum Fault {
    Other(String),
    /// The value is not the one wanted.
    Not(String),
    Missing(&'static str),
    Blamed(Blame),
}

/// The problem with the value that is to blame, or `None` if it follows from a reported one; and
/// `true` once the value is marked, so that the rest can be read without it.
type Blame = (Option<Problem>, bool);

impl de::Error for Fault {
    fn custom<T: Display>(message: T) -> Self {
        Self::Other(message.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::Not(wanted.to_string())
    }

    fn invalid_value(_: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::Not(wanted.to_string())
    }

    fn missing_field(key: &'static str) -> Self {
        Self::Missing(key)
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Fault {}

/// A deserializer of a tree.
#[derive(Clone, Copy)]
struct Reader<'t> {
    node: &'t Node,
    context: &'t Context<'t>,
    /// The table or list that has the value, and its key or its number there.
    above: Option<(&'t Reader<'t>, Step<'t>)>,
    /// `true` if a single value stands for a list of it.
    may_be_one: bool,
}

#[derive(Clone, Copy)]
enum Step<'t> {
    Key(&'t str),
    Nth(usize),
}

impl Reader<'_> {
    /// Attributes a fault to this value, unless it is attributed to a part of it.
    fn blame(&self, fault: Fault) -> Blame {
        let message = match fault {
            Fault::Blamed(blame) => return blame,
            Fault::Missing(key) if self.node.is_reported(key) => return (None, false),
            Fault::Missing(key) => self.missing(key),
            Fault::Other(message) => message,
            Fault::Not(wanted) => self.not(&wanted),
        };
        (Some(self.problem(&self.node.span, message)), false)
    }

    fn problem(&self, span: &Range<usize>, message: impl Display) -> Problem {
        let location = self.context.all.sources.location(span);
        Problem::of(&self.path().unwrap_or_default(), location, message)
    }

    fn unknown(&self, span: &Range<usize>, what: &str, word: &str, known: &[&str]) -> Problem {
        let quoted = match self.context.path {
            None => format!("`{word}`"),
            Some(_) => format!("{:?}", word.chars().take(MAX_SHOWN).collect::<String>()),
        };
        let problem = self.problem(span, format!("unknown {what} {quoted}"));
        problem.help(one_of(word, &known.join(", ")))
    }

    /// Returns the message for a table without a key.
    fn missing(&self, key: &str) -> String {
        let is_outside = self.context.all.sources.location(&self.node.span).outside().is_some();
        match self.above {
            Some((_, Step::Key(table))) if is_outside => format!("give {table}.{key} too"),
            _ => format!("the key `{key}` is missing"),
        }
    }

    /// Returns the path of the value, if messages have one.
    fn path(&self) -> Option<String> {
        let path = match self.above {
            None => self.context.path?.to_owned(),
            Some((above, Step::Key(key))) => format!("{}.{key}", above.path()?),
            Some((above, Step::Nth(nth))) => format!("{}[{nth}]", above.path()?),
        };
        Some(path.trim_start_matches('.').to_owned())
    }

    /// Returns the message for a value that is not the one wanted.
    fn not(&self, wanted: &str) -> String {
        let is_yaml = self.context.path.is_some();
        let table = if is_yaml { "a mapping" } else { "a table" };
        let is_table = wanted.starts_with("struct ") || wanted == "a map";
        let wanted = if is_table { table } else { in_words(wanted) };
        let kind = &self.node.kind;
        let is_number = matches!(kind, Kind::Number(_)) && wanted.starts_with("a whole number");
        match self.written() {
            _ if matches!(kind, Kind::Outside(_)) => format!("it must be {wanted}"),
            Some(text) if is_yaml => {
                format!("wrong type: {:?}, not {wanted}", text.trim_matches('"'))
            }
            Some(text) if is_number => format!("wrong value: {text}, not {wanted}"),
            Some(text) => format!("wrong type: {text}, not {wanted}"),
            None if matches!(kind, Kind::Map(_)) => format!("wrong type: {table}, not {wanted}"),
            None => format!("wrong type: {}, not {wanted}", self.node.what()),
        }
    }

    /// Returns a text. Any scalar of YAML is one, as it is written.
    fn word(&self) -> Option<&str> {
        match &self.node.kind {
            Kind::Text(text) | Kind::Outside(text) => Some(text),
            Kind::Bool(_) | Kind::Number(_) | Kind::Float(_) | Kind::Other
                if self.context.path.is_some() =>
            {
                self.scalar()
            }
            _ => None,
        }
    }

    /// Returns a scalar value as it is written, unless it is long.
    fn written(&self) -> Option<String> {
        let text = match &self.node.kind {
            Kind::Text(text) => Some(format!("{text:?}")),
            Kind::Bool(_) | Kind::Number(_) | Kind::Float(_) | Kind::Other => {
                self.scalar().map(str::to_owned)
            }
            _ => None,
        };
        text.filter(|text| text.len() <= MAX_SHOWN)
    }

    fn scalar(&self) -> Option<&str> {
        self.context.all.sources.text(&self.node.span).map(str::trim)
    }

    /// Reads a value of this table or list, and marks it if it is wrong.
    fn below<'de, T: DeserializeSeed<'de>>(
        &self,
        step: Step<'_>,
        node: &Node,
        seed: T,
    ) -> Result<T::Value, Fault> {
        let reader = Reader { node, above: Some((self, step)), may_be_one: false, ..*self };
        seed.deserialize(reader).map_err(|fault| {
            let (problem, is_settled) = reader.blame(fault);
            // The elements of a text do not outlast the reading, and a single value is its own
            // list: there the key is marked.
            let is_list = matches!(self.node.kind, Kind::List(_));
            let is_own = is_list || matches!(step, Step::Key(_));
            if is_own && !is_settled {
                node.state.set(State::Wrong);
            }
            if is_list && !is_settled {
                self.node.state.set(State::InPart);
            }
            Fault::Blamed((problem, is_own || is_settled))
        })
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.kind {
            Kind::Null => visitor.visit_unit(),
            Kind::Bool(value) => visitor.visit_bool(*value),
            Kind::Number(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(number), _) => visitor.visit_i64(number),
                (_, Ok(number)) => visitor.visit_u64(number),
                _ => visitor.visit_i128(*number),
            },
            Kind::Float(number) => visitor.visit_f64(*number),
            Kind::Other => visitor.visit_f64(0.0),
            Kind::Text(text) | Kind::Outside(text) => visitor.visit_str(text),
            Kind::List(_) => self.deserialize_seq(visitor),
            Kind::Map(entries) => {
                visitor.visit_map(Entries { of: &self, left: entries.iter(), next: None })
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if matches!(self.node.kind, Kind::Null) {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.kind {
            Kind::Outside(text) if ["true", "1", "yes"].contains(&&**text) => {
                visitor.visit_bool(true)
            }
            Kind::Outside(text) if ["false", "0", "no"].contains(&&**text) => {
                visitor.visit_bool(false)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.kind {
            Kind::Outside(text) => match text.parse() {
                Ok(number) => visitor.visit_u64(number),
                Err(_) => visitor.visit_str(text),
            },
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.word() {
            Some(word) => visitor.visit_str(word),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    /// Reads a list, whose elements may be separated by commas.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let of_text =
            |text: &str| Node::new(Kind::Outside(text.to_owned()), self.node.span.clone());
        let parts: Vec<_>;
        let elements = match &self.node.kind {
            Kind::List(all) => all,
            Kind::Outside(text) if text.trim().is_empty() => {
                return Err(de::Error::custom("it is empty; write \"off\" for none"));
            }
            Kind::Outside(text) => {
                let texts = text.split(',').map(str::trim);
                parts = texts.filter(|text| !["", "off"].contains(text)).map(of_text).collect();
                parts.as_slice()
            }
            _ if self.may_be_one => std::slice::from_ref(self.node),
            _ => return self.deserialize_any(visitor),
        };
        visitor.visit_seq(Elements { of: &self, left: elements.iter().enumerate() })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let word = self.word().ok_or_else(|| Fault::Not("a word".to_owned()))?;
        // As Envoy's service reads units.
        let is_in_any_case = name == "Unit" && self.context.path.is_some();
        let lower = is_in_any_case.then(|| word.to_ascii_lowercase());
        let word = lower.as_deref().unwrap_or(word);
        if !known.contains(&word) {
            let path = self.path().unwrap_or_default();
            let what = path.rsplit('.').next().filter(|key| !key.is_empty()).unwrap_or("word");
            let problem = self.unknown(&self.node.span, what, word, known);
            return Err(Fault::Blamed((Some(problem), false)));
        }
        let word: StrDeserializer<'_, Fault> = word.into_deserializer();
        visitor.visit_enum(word)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match (name, &self.node.kind) {
            (SECRET, Kind::Map(_)) => {
                let text = Elsewhere::deserialize(self)?.text(self.context.all.is_foreign);
                let is_echo = self.node.is_reported("");
                visitor.visit_string(text.map_err(|message| {
                    if is_echo { Fault::Blamed((None, false)) } else { Fault::Other(message) }
                })?)
            }
            (TEXT, Kind::Map(_)) => visitor.visit_newtype_struct(self),
            (TEXT | SECRET, _) => self.deserialize_str(visitor),
            _ => visitor.visit_newtype_struct(Self { may_be_one: name == ONE_OR_MORE, ..self }),
        }
    }

    /// Reads a table, and reports all of its unknown keys.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let entries = match &self.node.kind {
            Kind::Map(entries) => entries,
            // Its fields have names.
            Kind::List(_) => return Err(de::Error::invalid_type(Unexpected::Seq, &visitor)),
            _ => return self.deserialize_any(visitor),
        };
        for (key, (span, node)) in entries {
            if known.contains(&key.as_str()) || node.is_out() {
                continue;
            }
            node.state.set(State::Unknown);
            let mut problems = self.context.problems.borrow_mut();
            if problems.len() < MAX_FOUND {
                problems.push(self.unknown(span, "key", key, known));
            }
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u128 f32 f64 char bytes byte_buf unit unit_struct tuple
        tuple_struct map identifier
    }
}

/// The elements of a list, with their numbers.
struct Elements<'t> {
    of: &'t Reader<'t>,
    left: std::iter::Enumerate<std::slice::Iter<'t, Node>>,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        match self.left.find(|(_, node)| !node.is_out()) {
            Some((nth, node)) => self.of.below(Step::Nth(nth), node, seed).map(Some),
            None => Ok(None),
        }
    }
}

/// The keys of a mapping with their values.
struct Entries<'t> {
    of: &'t Reader<'t>,
    left: btree_map::Iter<'t, String, (Range<usize>, Node)>,
    /// The key whose value is next.
    next: Option<(&'t str, &'t Node)>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        let entry = self.left.find(|(_, (_, node))| !node.is_out());
        self.next = entry.map(|(key, (_, node))| (key.as_str(), node));
        let Some((key, _)) = self.next else { return Ok(None) };
        let key: StrDeserializer<'_, Fault> = key.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let (key, node) = self.next.take().ok_or_else(|| Fault::Other("no value".to_owned()))?;
        self.of.below(Step::Key(key), node, seed)
    }
}
