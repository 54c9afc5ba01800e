//! `google.protobuf.Struct`: the values that JSON can express, as a tree.
//!
//! A tree from a configuration is checked by [`Metadata::check`] before it is used. Its depth then
//! bounds the recursion of every other function here.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bytes::{BufMut, BytesMut};

use crate::protobuf::{Malformed, Reader, bytes_length, put_bytes, put_head};

/// The maximum nesting of metadata from a configuration.
///
/// Readers of protocol buffers stop at a hundred nested messages, and a level takes three.
pub const MAX_METADATA_DEPTH: usize = 16;

/// The maximum size of metadata from a configuration, in bytes of protocol buffers.
pub const MAX_METADATA_BYTES: usize = 16 << 10;

/// A mapping of names to values, in the order of the names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(pub BTreeMap<Box<str>, MetadataValue>);

/// A value in [`Metadata`].
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The bytes are not a message.
    #[error("it is malformed: {0}")]
    Malformed(Malformed),
}

impl From<Malformed> for MetadataError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
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
        match self.length() {
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

    /// Adds the fields of a message `Struct`. A value replaces that of the same name.
    ///
    /// # Errors
    ///
    /// [`MetadataError`] for bytes that are not this message, and for one that is too large. The
    /// fields before the fault are added then.
    pub(crate) fn merge_message(&mut self, message: &[u8]) -> Result<(), MetadataError> {
        match message.len() {
            0..=MAX_METADATA_BYTES => self.merge_fields(message, MAX_METADATA_DEPTH),
            bytes => Err(MetadataError::TooLong { bytes }),
        }
    }

    fn merge_fields(&mut self, message: &[u8], depth: usize) -> Result<(), MetadataError> {
        let depth = depth.checked_sub(1).ok_or(MetadataError::TooDeep)?;
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.field()? {
            if number == 1 {
                let (mut name, mut read) = ("", None);
                let mut entry = Reader::new(value.bytes()?);
                while let Some((number, value)) = entry.field()? {
                    match number {
                        1 => name = value.text()?,
                        2 => MetadataValue::merge(&mut read, value.bytes()?, depth)?,
                        _ => {}
                    }
                }
                self.0.insert(name.into(), read.unwrap_or(MetadataValue::Null));
            }
        }
        Ok(())
    }

    fn is_within(&self, depth: usize) -> bool {
        depth.checked_sub(1).is_some_and(|rest| self.0.values().all(|value| value.is_within(rest)))
    }

    /// Returns the length of the message `Struct`, in bytes.
    pub(super) fn length(&self) -> usize {
        let fields = self.0.iter().map(|(name, value)| bytes_length(field_length(name, value)));
        fields.fold(0, usize::saturating_add)
    }

    /// Writes the message `Struct`.
    pub(super) fn write(&self, out: &mut BytesMut) {
        for (name, value) in &self.0 {
            put_head(out, 1, field_length(name, value));
            put_bytes(out, 1, name.as_bytes());
            put_head(out, 2, value.length());
            value.write(out);
        }
    }
}

/// Returns the length of an entry of `Struct.fields`.
fn field_length(name: &str, value: &MetadataValue) -> usize {
    bytes_length(name.len()).saturating_add(bytes_length(value.length()))
}

impl MetadataValue {
    /// Creates a text.
    #[must_use]
    pub fn text(text: impl Into<Box<str>>) -> Self {
        Self::Text(text.into())
    }

    /// Reads a message `Value`. Of several kinds in it the last counts; those of one kind that are
    /// messages are merged, as the format defines. Without a kind it is nothing.
    fn merge(read: &mut Option<Self>, message: &[u8], depth: usize) -> Result<(), MetadataError> {
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.field()? {
            *read = Some(match number {
                1 => value.integer().map(|_| Self::Null)?,
                2 => FiniteNumber::new(value.double()?)
                    .map(Self::Number)
                    .ok_or(MetadataError::NotFinite)?,
                3 => Self::text(value.text()?),
                4 => Self::Bool(value.integer()? != 0),
                5 => {
                    let mut fields = match read.take() {
                        Some(Self::Map(fields)) => fields,
                        _ => Metadata::default(),
                    };
                    fields.merge_fields(value.bytes()?, depth)?;
                    Self::Map(fields)
                }
                6 => {
                    let mut all = match read.take() {
                        Some(Self::List(all)) => all,
                        _ => Vec::new(),
                    };
                    add_values(&mut all, value.bytes()?, depth)?;
                    Self::List(all)
                }
                _ => continue,
            });
        }
        Ok(())
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

    /// Returns the length of the message `Value`, in bytes.
    fn length(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) => 2,
            Self::Number(_) => 9,
            Self::Text(text) => bytes_length(text.len()),
            Self::Map(fields) => bytes_length(fields.length()),
            Self::List(all) => bytes_length(list_length(all)),
        }
    }

    /// Writes the message `Value`. A member of a choice is written although it is zero.
    fn write(&self, out: &mut BytesMut) {
        match self {
            Self::Null => out.put_slice(&[1 << 3, 0]),
            Self::Number(number) => {
                out.put_u8((2 << 3) | 1);
                out.put_f64_le(number.get());
            }
            Self::Text(text) => put_bytes(out, 3, text.as_bytes()),
            Self::Bool(value) => out.put_slice(&[4 << 3, u8::from(*value)]),
            Self::Map(fields) => {
                put_head(out, 5, fields.length());
                fields.write(out);
            }
            Self::List(all) => {
                put_head(out, 6, list_length(all));
                for value in all {
                    put_head(out, 1, value.length());
                    value.write(out);
                }
            }
        }
    }
}

/// Reads a message `ListValue`.
fn add_values(
    all: &mut Vec<MetadataValue>,
    message: &[u8],
    depth: usize,
) -> Result<(), MetadataError> {
    let depth = depth.checked_sub(1).ok_or(MetadataError::TooDeep)?;
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.field()? {
        if number == 1 {
            let mut read = None;
            MetadataValue::merge(&mut read, value.bytes()?, depth)?;
            all.push(read.unwrap_or(MetadataValue::Null));
        }
    }
    Ok(())
}

fn list_length(all: &[MetadataValue]) -> usize {
    all.iter().map(|value| bytes_length(value.length())).fold(0, usize::saturating_add)
}
