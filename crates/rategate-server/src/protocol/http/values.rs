//! The values of a request in JSON.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use rategate_core::span;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::invalid::quoted;
use crate::engine::{NotAnId, UniqueId};

/// The maximum number of values of a key, and of entries of a descriptor.
pub(super) const MAX_VALUES: usize = 32;

/// A value of any bytes: a text, or `{"base64": ...}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WrittenValue")]
pub(super) struct Value(pub(super) Vec<u8>);

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields, expecting = "a text, or bytes like {\"base64\": \"AP8=\"}")]
enum WrittenValue {
    Text(String),
    Base64 { base64: String },
}

impl TryFrom<WrittenValue> for Value {
    type Error = &'static str;

    /// Decodes base64 of either alphabet, with or without padding.
    fn try_from(written: WrittenValue) -> Result<Self, Self::Error> {
        let text = match written {
            WrittenValue::Text(text) => return Ok(Self(text.into_bytes())),
            WrittenValue::Base64 { base64 } => base64,
        };
        let decoded = STANDARD.decode(&text).or_else(|_| STANDARD_NO_PAD.decode(&text));
        let decoded = decoded.or_else(|_| URL_SAFE_NO_PAD.decode(&text));
        decoded.map(Self).map_err(|_| "not base64; write it as in \"AP8=\"")
    }
}

/// The key of a counter.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WrittenKey")]
pub(super) enum Key {
    One(Value),
    /// Values in the order of the rule's entries.
    Many(Vec<Value>),
    /// Values by the names of the rule's entries.
    Named(Vec<(String, Value)>),
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a text, bytes like {\"base64\": \"AP8=\"}, a list of values, or values by name"
)]
enum WrittenKey {
    One(WrittenValue),
    Many(Vec<Value>),
    Named(Pairs<Value>),
}

impl TryFrom<WrittenKey> for Key {
    type Error = &'static str;

    fn try_from(written: WrittenKey) -> Result<Self, Self::Error> {
        match written {
            WrittenKey::One(value) => value.try_into().map(Self::One),
            WrittenKey::Many(values) if values.len() > MAX_VALUES => Err("more than 32 values"),
            WrittenKey::Many(values) => Ok(Self::Many(values)),
            WrittenKey::Named(Pairs(pairs)) => Ok(Self::Named(pairs)),
        }
    }
}

/// A descriptor: an object, or a list of pairs if a name occurs twice.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "an object like {\"user\": \"42\"}, or pairs like [[\"user\", \"42\"]]; values are \
                 texts, or bytes like {\"base64\": \"AP8=\"}"
)]
pub(super) enum Descriptor {
    Object(Pairs<Value>),
    List(Vec<(String, Value)>),
}

impl From<Descriptor> for Vec<(String, Value)> {
    fn from(descriptor: Descriptor) -> Self {
        match descriptor {
            Descriptor::Object(Pairs(pairs)) | Descriptor::List(pairs) => pairs,
        }
    }
}

/// Values by name, in the order of the text. Each name occurs once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pairs<V>(pub(super) Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ReadPairs(PhantomData))
    }
}

struct ReadPairs<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for ReadPairs<V> {
    type Value = Pairs<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object like {\"input\": 120, \"output\": 45}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<V>, A::Error> {
        let mut pairs: Vec<(String, V)> = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, V>()? {
            if pairs.iter().any(|(other, _)| *other == name) {
                return Err(A::Error::custom(format_args!("duplicate field {}", quoted(&name))));
            }
            if pairs.len() == MAX_VALUES {
                return Err(A::Error::custom("more than 32 names"));
            }
            pairs.push((name, value));
        }
        Ok(Pairs(pairs))
    }
}

/// Reads a member whose default would be another request, and so is no null.
pub(super) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    member: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(member).map(Some)
}

/// Reads an id, or the name of a lease.
pub(super) fn id<'de, D: Deserializer<'de>>(member: D) -> Result<Option<UniqueId>, D::Error> {
    let text = String::deserialize(member)?;
    text.parse().map(Some).map_err(|NotAnId| {
        let text = quoted(&text);
        D::Error::custom(format_args!("{text} is none; an id is 32 hexadecimal digits"))
    })
}

/// Reads the time of a reservation.
pub(super) fn ttl<'de, D: Deserializer<'de>>(member: D) -> Result<Option<Duration>, D::Error> {
    time(&String::deserialize(member)?).map(Some).map_err(D::Error::custom)
}

/// Parses a time with its unit.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    span::parse(text).map(Duration::from_nanos).map_err(|error| {
        format!("{}: {error}; write a time like \"30s\" or \"1500ms\"", quoted(text))
    })
}
