//! `google.protobuf.Struct`: the values that JSON can express, as a tree.
//!
//! A tree from a configuration is checked by [`Metadata::check`] before it is used. Its depth then
//! bounds the recursion of every other function here.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use serde::{Serialize, Serializer};

/// The maximum nesting of metadata from a configuration.
///
/// Readers of protocol buffers stop at a hundred nested messages, and a level takes three.
pub const MAX_METADATA_DEPTH: usize = 16;

/// The maximum size of metadata from a configuration, in bytes of protocol buffers.
pub const MAX_METADATA_BYTES: usize = 16 << 10;

/// A mapping of names to values, in the order of the names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Metadata(pub BTreeMap<Box<str>, MetadataValue>);

/// A value in [`Metadata`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum MetadataValue {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A number.
    Number(FiniteNumber),
    /// A text.
    Text(Box<str>),
    /// A list.
    List(Vec<Self>),
    /// A mapping.
    Map(Metadata),
}

/// A number that JSON can express: neither infinite nor undefined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FiniteNumber(f64);

/// The reason why metadata is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// Its lists and mappings are nested too deep.
    #[error("it is nested deeper than {MAX_METADATA_DEPTH} levels")]
    TooDeep,
    /// It is too long.
    #[error("it has {bytes} bytes, and at most {MAX_METADATA_BYTES} are accepted")]
    TooLong {
        /// The size, in bytes of protocol buffers.
        bytes: usize,
    },
    /// A number is infinite, or none.
    #[error("a number that is not finite")]
    NotFinite,
}

impl FiniteNumber {
    /// Creates a number, or returns `None` for infinity and for what is no number.
    #[must_use]
    pub fn new(number: f64) -> Option<Self> {
        number.is_finite().then_some(Self(number))
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

// Finite numbers equal themselves.
impl Eq for FiniteNumber {}

impl Serialize for FiniteNumber {
    /// Writes a whole number without a fraction, as other writers of the JSON mapping do.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_string().parse::<i64>() {
            Ok(whole) => serializer.serialize_i64(whole),
            Err(_) => serializer.serialize_f64(self.0),
        }
    }
}

impl From<u64> for FiniteNumber {
    /// Converts a whole number to the nearest one of 53 bits.
    fn from(number: u64) -> Self {
        let half = |half: u64| f64::from(u32::try_from(half).unwrap_or(u32::MAX));
        // Both halves are exact, and their sum is rounded once.
        Self(half(number >> 32) * 4_294_967_296.0 + half(number & u64::from(u32::MAX)))
    }
}

impl Metadata {
    /// Checks the depth and the size, as far as anything is too large.
    ///
    /// # Errors
    ///
    /// [`MetadataError`].
    pub fn check(&self) -> Result<(), MetadataError> {
        if !self.is_within(MAX_METADATA_DEPTH) {
            return Err(MetadataError::TooDeep);
        }
        match Struct::from(self).encoded_len() {
            0..=MAX_METADATA_BYTES => Ok(()),
            bytes => Err(MetadataError::TooLong { bytes }),
        }
    }

    /// Adds the values of another mapping. Two mappings of one name are merged; of any other two
    /// values of one name the present one stays.
    pub fn merge(&mut self, other: &Self) {
        for (name, value) in &other.0 {
            match self.0.entry(name.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(value.clone());
                }
                Entry::Occupied(mut entry) => {
                    if let (MetadataValue::Map(present), MetadataValue::Map(added)) =
                        (entry.get_mut(), value)
                    {
                        present.merge(added);
                    }
                }
            }
        }
    }

    fn is_within(&self, depth: usize) -> bool {
        depth.checked_sub(1).is_some_and(|rest| self.0.values().all(|value| value.is_within(rest)))
    }
}

impl MetadataValue {
    /// Creates a text.
    #[must_use]
    pub fn text(text: impl Into<Box<str>>) -> Self {
        Self::Text(text.into())
    }

    fn is_within(&self, depth: usize) -> bool {
        match self {
            Self::Map(fields) => fields.is_within(depth),
            Self::List(all) => depth
                .checked_sub(1)
                .is_some_and(|rest| all.iter().all(|value| value.is_within(rest))),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => true,
        }
    }
}

impl From<&Metadata> for Struct {
    fn from(metadata: &Metadata) -> Self {
        let fields = metadata.0.iter().map(|(name, value)| (name.to_string(), value.into()));
        Self { fields: fields.collect() }
    }
}

impl From<&MetadataValue> for Value {
    fn from(value: &MetadataValue) -> Self {
        let kind = match value {
            MetadataValue::Null => Kind::NullValue(0),
            MetadataValue::Bool(value) => Kind::BoolValue(*value),
            MetadataValue::Number(number) => Kind::NumberValue(number.get()),
            MetadataValue::Text(text) => Kind::StringValue(text.to_string()),
            MetadataValue::List(all) => {
                Kind::ListValue(ListValue { values: all.iter().map(Self::from).collect() })
            }
            MetadataValue::Map(fields) => Kind::StructValue(fields.into()),
        };
        Self { kind: Some(kind) }
    }
}
