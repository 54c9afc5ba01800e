//! Reading of values from a tree, with every problem of it in the words of a file.

use std::collections::btree_map;
use std::fmt::{self, Display};
use std::ops::Range;
use std::ptr;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::error::Problem;
use super::node::{Kind, Node, State};
use super::source::Sources;
use crate::nearest::one_of;

/// The maximum number of wrong values of a tree that are searched for.
const MAX_FAULTS: usize = 20;
/// The maximum length of a text in a message.
const MAX_SHOWN: usize = 80;

/// The name of [`super::text::OneOrMore`], which may be a single value.
pub(super) const ONE_OR_MORE: &str = "$one or more";

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

/// The form of messages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Style<'t> {
    /// Of TOML: the position suffices. This is the name of the table, if it has settings.
    Toml(&'t str),
    /// Of YAML: messages begin with the path of the value, of which this is the first part.
    Yaml(&'t str),
}

/// Reads a tree without the wrong values, each of which is marked and reported. Returns `None` if
/// the rest is not such a value.
pub(crate) fn read<T: DeserializeOwned>(
    sources: &Sources,
    style: Style<'_>,
    node: &Node,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let context = &Context { sources, style };
    let reader = Reader { node, context, may_be_one: false };
    for _ in 0..MAX_FAULTS {
        let fault = match T::deserialize(reader) {
            Ok(value) => return Some(value),
            Err(fault) => reader.blame(fault),
        };
        let is_settled = fault.is_settled;
        problems.extend((!fault.is_echo).then(|| context.problem(fault)));
        if !is_settled {
            break;
        }
    }
    None
}

struct Context<'t> {
    sources: &'t Sources,
    style: Style<'t>,
}

/// The reason why a value cannot be read.
#[derive(Debug)]
struct Fault {
    cause: Cause,
    span: Option<Range<usize>>,
    /// The path of the value, the last part first.
    path: Vec<String>,
    /// `true` once the value is marked, so that the rest can be read without it.
    is_settled: bool,
    /// `true` if the value is an element of a list whose key is not known yet.
    is_element: bool,
    /// `true` if it follows from a problem that was reported.
    is_echo: bool,
}

#[derive(Debug)]
enum Cause {
    Other(String),
    /// The value is not the one wanted.
    Not(String),
    Missing(&'static str),
    UnknownKey(String, &'static [&'static str]),
    UnknownWord(String, &'static [&'static str]),
}

impl Context<'_> {
    fn problem(&self, fault: Fault) -> Problem {
        let location = self.sources.location(&fault.span.unwrap_or_default());
        let path: String = fault.path.into_iter().rev().collect();
        let path = match self.style {
            Style::Toml(_) => String::new(),
            Style::Yaml(first) => format!("{first}{path}").trim_start_matches('.').to_owned(),
        };
        let quoted = |word: &str| match self.style {
            Style::Toml(_) => format!("`{word}`"),
            Style::Yaml(_) => format!("{:?}", word.chars().take(MAX_SHOWN).collect::<String>()),
        };
        let (message, help) = match fault.cause {
            Cause::Other(message) | Cause::Not(message) => (message, None),
            Cause::Missing(key) => match (self.style, location.outside()) {
                (Style::Toml(table), Some(_)) => (format!("give {table}.{key} too"), None),
                _ => (format!("the key `{key}` is missing"), None),
            },
            Cause::UnknownKey(word, known) => {
                (format!("unknown key {}", quoted(&word)), Some((word, known)))
            }
            Cause::UnknownWord(word, known) => {
                let what = path.rsplit('.').next().filter(|key| !key.is_empty()).unwrap_or("word");
                (format!("unknown {what} {}", quoted(&word)), Some((word, known)))
            }
        };
        let message = if path.is_empty() { message } else { format!("{path}: {message}") };
        let problem = Problem::at(location, message);
        match help {
            Some((word, known)) => problem.help(one_of(&word, &known.join(", "))),
            None => problem,
        }
    }
}

impl Fault {
    fn new(cause: Cause) -> Self {
        let (span, path) = (None, Vec::new());
        Self { cause, span, path, is_settled: false, is_element: false, is_echo: false }
    }
}

impl de::Error for Fault {
    fn custom<T: Display>(message: T) -> Self {
        Self::new(Cause::Other(message.to_string()))
    }

    fn invalid_type(_: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::new(Cause::Not(wanted.to_string()))
    }

    fn invalid_value(_: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::new(Cause::Not(wanted.to_string()))
    }

    fn missing_field(key: &'static str) -> Self {
        Self::new(Cause::Missing(key))
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Self::new(Cause::UnknownKey(key.to_owned(), known))
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        Self::new(Cause::UnknownWord(word.to_owned(), known))
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.cause)
    }
}

impl std::error::Error for Fault {}

/// A deserializer of a tree.
#[derive(Clone, Copy)]
struct Reader<'t> {
    node: &'t Node,
    context: &'t Context<'t>,
    /// `true` if a single value stands for a list of it.
    may_be_one: bool,
}

impl Reader<'_> {
    /// Blames this value for a fault that no part of it has.
    fn blame(self, mut fault: Fault) -> Fault {
        if fault.span.is_some() {
            return fault;
        }
        let span = self.node.span.clone();
        match &mut fault.cause {
            Cause::Missing(key) => fault.is_echo = self.node.is_reported(key),
            Cause::Not(wanted) => *wanted = self.not(wanted),
            _ => {}
        }
        fault.span = Some(span);
        fault
    }

    /// Returns the message for a value that is not the one wanted.
    fn not(self, wanted: &str) -> String {
        let known = TYPES.iter().find(|(program, _)| *program == wanted);
        let wanted = match known {
            Some((_, file)) => file,
            None if wanted.starts_with("struct ") || wanted == "a map" => self.table(),
            None => wanted,
        };
        let is_number = wanted.starts_with("a whole number");
        let is_number = is_number && matches!(self.node.kind, Kind::Number(_));
        match (self.context.style, self.written()) {
            _ if matches!(self.node.kind, Kind::Outside(_)) => format!("it must be {wanted}"),
            (Style::Toml(_), Some(text)) if is_number => {
                format!("wrong value: {text}, not {wanted}")
            }
            (Style::Toml(_), Some(text)) => format!("wrong type: {text}, not {wanted}"),
            (Style::Yaml(_), Some(text)) => {
                format!("wrong type: {:?}, not {wanted}", text.trim_matches('"'))
            }
            (_, None) => {
                let is_table = matches!(self.node.kind, Kind::Map(_));
                let what = if is_table { self.table() } else { self.node.what() };
                format!("wrong type: {what}, not {wanted}")
            }
        }
    }

    /// Returns a text. Any scalar of YAML is one, as it is written.
    fn word(&self) -> Option<&str> {
        match (&self.node.kind, self.context.style) {
            (Kind::Text(text) | Kind::Outside(text), _) => Some(text),
            (Kind::Bool(_) | Kind::Number(_) | Kind::Other, Style::Yaml(_)) => self.scalar(),
            _ => None,
        }
    }

    const fn table(&self) -> &'static str {
        match self.context.style {
            Style::Toml(_) => "a table",
            Style::Yaml(_) => "a mapping",
        }
    }

    /// Returns a scalar value as it is written, unless it is long.
    fn written(self) -> Option<String> {
        let text = match &self.node.kind {
            Kind::Text(text) => Some(format!("{text:?}")),
            Kind::Bool(_) | Kind::Number(_) | Kind::Other => self.scalar().map(str::to_owned),
            _ => None,
        };
        text.filter(|text| text.len() <= MAX_SHOWN)
    }

    fn scalar(&self) -> Option<&str> {
        self.context.sources.text(&self.node.span).map(str::trim)
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
            Kind::Other => visitor.visit_f64(0.0),
            Kind::Text(text) | Kind::Outside(text) => visitor.visit_str(text),
            Kind::List(_) => self.deserialize_seq(visitor),
            Kind::Map(entries) => {
                visitor.visit_map(Entries { of: self, left: entries.iter(), next: None })
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
        let elements = match &self.node.kind {
            Kind::List(all) => return visitor.visit_seq(Elements { of: self, left: all, nth: 0 }),
            Kind::Outside(text) if text.trim().is_empty() => {
                return Err(de::Error::custom("it is empty; write \"off\" for none"));
            }
            Kind::Outside(text) => text.split(',').map(str::trim).filter(|text| !text.is_empty()),
            _ if self.may_be_one => {
                let left = std::slice::from_ref(self.node);
                return visitor.visit_seq(Elements { of: self, left, nth: 0 });
            }
            _ => return self.deserialize_any(visitor),
        };
        let of_text =
            |text: &str| Node::new(Kind::Outside(text.to_owned()), self.node.span.clone());
        let all: Vec<_> = elements.filter(|text| *text != "off").map(of_text).collect();
        visitor.visit_seq(Elements { of: self, left: &all, nth: 0 })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let word = self.word().ok_or_else(|| Fault::new(Cause::Not("a word".to_owned())))?;
        // As Envoy's service reads units.
        let is_in_any_case = name == "Unit" && matches!(self.context.style, Style::Yaml(_));
        let lower = is_in_any_case.then(|| word.to_ascii_lowercase());
        let word: StrDeserializer<'_, Fault> = lower.as_deref().unwrap_or(word).into_deserializer();
        visitor.visit_enum(word)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(Self { may_be_one: name == ONE_OR_MORE, ..self })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        // Its fields have names.
        match self.node.kind {
            Kind::List(_) => Err(de::Error::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u128 f32 f64 char bytes byte_buf unit unit_struct tuple
        tuple_struct map identifier
    }
}

/// The elements of a list.
struct Elements<'t> {
    of: Reader<'t>,
    left: &'t [Node],
    nth: usize,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let Some((node, left)) = self.left.split_first() else { return Ok(None) };
        self.left = left;
        self.nth = self.nth.saturating_add(1);
        if node.is_out() {
            return self.next_element_seed(seed);
        }
        let reader = Reader { node, context: self.of.context, may_be_one: false };
        seed.deserialize(reader).map(Some).map_err(|fault| {
            let mut fault = reader.blame(fault);
            fault.path.push(format!("[{}]", self.nth.saturating_sub(1)));
            // An element of a text does not outlast the reading, and a single value is its own
            // list: there the key is marked.
            let is_own = !matches!(node.kind, Kind::Outside(_)) && !ptr::eq(node, self.of.node);
            if !fault.is_settled && is_own {
                node.state.set(State::Wrong);
                (fault.is_settled, fault.is_element) = (true, true);
            }
            fault
        })
    }
}

/// The keys of a mapping with their values.
struct Entries<'t> {
    of: Reader<'t>,
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
        let Some((key, (span, node))) = self.left.find(|(_, (_, node))| !node.is_out()) else {
            return Ok(None);
        };
        self.next = Some((key, node));
        let reader: StrDeserializer<'_, Fault> = key.as_str().into_deserializer();
        seed.deserialize(reader).map(Some).map_err(|mut fault| {
            node.state.set(State::Unknown);
            fault.span = Some(span.clone());
            fault.is_settled = true;
            fault
        })
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let context = self.of.context;
        let (key, node) = self.next.take().ok_or_else(|| de::Error::custom("no value"))?;
        let reader = Reader { node, context, may_be_one: false };
        seed.deserialize(reader).map_err(|fault| {
            let mut fault = reader.blame(fault);
            fault.path.push(format!(".{key}"));
            if !fault.is_settled || fault.is_element {
                node.state.set(if fault.is_element { State::InPart } else { State::Wrong });
                (fault.is_settled, fault.is_element) = (true, false);
            }
            fault
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Problem, load_text};

    #[test]
    fn complaints_name_the_types_of_a_file() {
        let long = "99999999999999999999";
        let whole = "not a whole number from 0 to 18446744073709551615";
        for (text, wanted) in [
            ("server = \"x\"", "wrong type: \"x\", not a table"),
            ("log = { filter = 5 }", "wrong type: 5, not a text"),
            ("snapshot = { path = [] }", "wrong type: a list, not a path as text"),
            ("grpc = { shadow = {} }", "wrong type: a table, not true or false"),
            ("keys = { total = 1.5 }", "wrong type: 1.5, not a whole number from 1 on"),
            ("rule = [{ burst = -1 }]", &format!("wrong value: -1, {whole}")),
            (&format!("rule = [{{ burst = {long} }}]"), &format!("wrong value: {long}, {whole}")),
            ("store = { queue = 5 }", "the key `url` is missing"),
            ("server = { drain = \"0s\" }", "a duration of no time"),
        ] {
            let error = load_text("a.toml", text).unwrap_err();
            let messages: Vec<_> = error.problems().iter().map(Problem::message).collect();
            assert!(messages.contains(&wanted), "{messages:?}");
        }
    }
}
