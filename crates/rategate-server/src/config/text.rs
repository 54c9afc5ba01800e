//! Values that have their own grammar.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use http::HeaderName;
use rategate_core::span;
use rategate_tower::key::Network;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, Unexpected, Visitor};

use super::de::TEXT;

/// The maximum length of a header field's name.
const MAX_FIELD_NAME: usize = 128;

/// One value, or a list of them.
// The deserializer knows it by this name.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename = "$one or more")]
pub(crate) struct OneOrMore<T>(pub(crate) Vec<T>);

/// A value that is written as text, or in another short form.
pub(crate) trait Grammar: Sized {
    /// The description for messages and for the schema.
    const WHAT: &'static str;
    const EXAMPLES: &'static [&'static str] = &[];
    /// The name by which the deserializer knows it.
    const NAME: &'static str = TEXT;

    fn read(text: &str) -> Result<Self, String>;

    /// Reads a number, if it may be one.
    fn of_number(_: i64) -> Option<Result<Self, String>> {
        None
    }

    /// Reads a table, which most kinds of values do not accept.
    fn of_table<'de, D: Deserializer<'de>>(table: D) -> Result<Self, D::Error> {
        table.deserialize_str(TextVisitor(PhantomData))
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": Self::WHAT, "examples": Self::EXAMPLES })
    }
}

/// A value read by its grammar.
#[derive(Clone, Debug)]
pub(crate) struct Text<T>(pub(crate) T);

/// Reads a value by its grammar.
pub(crate) fn text<'de, D: Deserializer<'de>, T: Grammar>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_newtype_struct(T::NAME, TextVisitor(PhantomData))
}

/// Reads a list of values by their grammar.
pub(crate) fn texts<'de, D: Deserializer<'de>, T: Grammar>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let all: Vec<Text<T>> = Vec::deserialize(deserializer)?;
    Ok(all.into_iter().map(|text| text.0).collect())
}

/// Reads a value, or a list of values, by their grammar.
pub(crate) fn one_or_more<'de, D: Deserializer<'de>, T: Grammar>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let all: OneOrMore<Text<T>> = OneOrMore::deserialize(deserializer)?;
    Ok(all.0.into_iter().map(|text| text.0).collect())
}

impl<'de, T: Grammar> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer).map(Self)
    }
}

struct TextVisitor<T>(PhantomData<T>);

impl<'de, T: Grammar> Visitor<'de> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WHAT)?;
        T::EXAMPLES.first().map_or(Ok(()), |example| write!(f, ", as in {example:?}"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::read(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        let read = T::of_number(number);
        read.ok_or_else(|| E::invalid_type(Unexpected::Signed(number), &self))?.map_err(E::custom)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, table: D) -> Result<T, D::Error> {
        T::of_table(table)
    }
}

impl<T: Grammar> JsonSchema for Text<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "text".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::schema(generator)
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMore<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMore{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}

/// The grammar of a length of time.
impl Grammar for Duration {
    const WHAT: &'static str = "a duration";
    const EXAMPLES: &'static [&'static str] = &["10s", "20ms", "5min"];

    fn read(text: &str) -> Result<Self, String> {
        match span::parse(text) {
            Ok(0) => Err("a duration of no time; write a longer one, as in \"10s\"".to_owned()),
            Ok(ns) => Ok(Self::from_nanos(ns)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A number of bytes: `65536` or `"64KiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) usize);

impl Grammar for Size {
    const WHAT: &'static str = "a size is from 1 byte to 1 GiB, as in 65536, \"64KiB\" or \"1MiB\"";

    fn read(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at_checked(digits).ok_or(Self::WHAT)?;
        let unit = match unit {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(Self::WHAT.to_owned()),
        };
        let number: i64 = number.parse().map_err(|_| Self::WHAT)?;
        Self::of(number.saturating_mul(unit))
    }

    fn of_number(bytes: i64) -> Option<Result<Self, String>> {
        Some(Self::of(bytes))
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"], "examples": [65536, "64KiB", "1MiB"] })
    }
}

impl Size {
    fn of(bytes: i64) -> Result<Self, String> {
        let bytes = usize::try_from(bytes).ok().filter(|bytes| (1..=1 << 30).contains(bytes));
        bytes.map(Self).ok_or_else(|| Self::WHAT.to_owned())
    }
}

/// Reads a size in bytes.
pub(crate) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    text(deserializer).map(|Size(bytes)| bytes)
}

/// Returns a text of 1 to `max` letters, digits, `-`, `_` and `.`.
pub(crate) fn plain(text: &str, max: usize) -> Option<String> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let is_right = (1..=max).contains(&text.len()) && text.bytes().all(is_plain);
    is_right.then(|| text.to_owned())
}

/// The name of a host, without a port.
#[derive(Clone, Debug)]
pub(crate) struct HostName(pub(crate) String);

impl Grammar for HostName {
    const WHAT: &'static str = "the name of a host, without a port";
    const EXAMPLES: &'static [&'static str] = &["limits.example.com"];

    fn read(text: &str) -> Result<Self, String> {
        plain(text, 253).map(Self).ok_or_else(|| {
            format!("{text:?} is no host name like \"limits.example.com\", without scheme and port")
        })
    }
}

/// The name of a header field.
#[derive(Clone, Debug)]
pub(crate) struct FieldName(pub(crate) String);

impl Grammar for FieldName {
    const WHAT: &'static str = "the name of a header field";
    const EXAMPLES: &'static [&'static str] = &["X-RateLimit-Remaining"];

    fn read(text: &str) -> Result<Self, String> {
        let is_name =
            text.len() <= MAX_FIELD_NAME && HeaderName::from_bytes(text.as_bytes()).is_ok();
        is_name.then(|| Self(text.to_owned())).ok_or_else(|| {
            format!("{text:?} is no name of a header field, of 1 to {MAX_FIELD_NAME} bytes")
        })
    }
}

/// The access mode of a socket in the file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketMode(pub(crate) u32);

impl Grammar for SocketMode {
    const WHAT: &'static str = "the mode of a file, as octal digits";
    const EXAMPLES: &'static [&'static str] = &["0600", "0660", "0666"];

    fn read(text: &str) -> Result<Self, String> {
        let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
        mode.map(Self).ok_or_else(|| format!("{text:?} is not from \"0000\" to \"0777\""))
    }
}

/// Reads the access mode of a socket.
pub(crate) fn mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    text(deserializer).map(|SocketMode(mode)| Some(mode))
}

/// The grammar of an address or a network.
impl Grammar for Network {
    const WHAT: &'static str = "an address, or a network of them";
    const EXAMPLES: &'static [&'static str] = &["10.0.0.0/8", "127.0.0.1", "2001:db8::/32"];

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error| format!("{text:?}: {error}"))
    }
}

/// Parses a percentage with up to `decimals` decimals, in units of the last of them.
pub(crate) fn percent(text: &str, decimals: usize) -> Option<u32> {
    let number = text.strip_suffix('%')?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_right = is_number(whole) && is_number(part) && part.len() <= decimals;
    is_right.then(|| format!("{whole}{part:0<decimals$}").parse().ok())?
}
