//! A reader and a writer of protocol buffers without generated code. Reading copies nothing.
//!
//! They are our own: generated code copies each text, and a decision takes less time than that.
//! Decision 0035 has the figures.

use bytes::{BufMut, BytesMut};

/// A reader of the fields of a message.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// The value of a field, by its wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// An integer, boolean or enumeration.
    Varint(u64),
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
    /// A number of eight bytes: a float or an integer.
    Fixed64(u64),
    /// A wire type that no message here uses.
    Other,
}

/// The error for bytes that are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(
    /// The reason.
    pub &'static str,
);

/// The maximum depth of nested groups, a deprecated feature that is skipped.
const MAX_GROUP_DEPTH: u32 = 16;

const CUT_SHORT: Malformed = Malformed("the message ends within a field");

impl<'a> Reader<'a> {
    /// Creates a reader of a message.
    #[must_use]
    pub const fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Returns the next field's number and value, or `None` at the end.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for bytes that are not a field.
    pub fn field(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, kind) = self.key()?;
        Ok(Some((number, self.value(number, kind, MAX_GROUP_DEPTH)?)))
    }

    fn key(&mut self) -> Result<(u32, u64), Malformed> {
        let key = u32::try_from(self.varint()?)
            .map_err(|_| Malformed("a field's number is too large"))?;
        match key >> 3 {
            0 => Err(Malformed("a field has the number 0")),
            number => Ok((number, u64::from(key & 7))),
        }
    }

    fn value(&mut self, number: u32, kind: u64, groups: u32) -> Result<Value<'a>, Malformed> {
        match kind {
            0 => Ok(Value::Varint(self.varint()?)),
            1 => self.fixed().map(Value::Fixed64),
            2 => {
                let length = self.varint()?;
                self.take(usize::try_from(length).unwrap_or(usize::MAX)).map(Value::Bytes)
            }
            3 => self.group(number, groups),
            5 => self.take(4).map(|_| Value::Other),
            _ => Err(Malformed("a field is of no known kind")),
        }
    }

    fn group(&mut self, outer: u32, groups: u32) -> Result<Value<'a>, Malformed> {
        let Some(groups) = groups.checked_sub(1) else {
            return Err(Malformed("groups are nested too deep"));
        };
        loop {
            match self.key()? {
                (number, 4) if number == outer => return Ok(Value::Other),
                (_, 4) => return Err(Malformed("a group ends that did not begin")),
                (number, kind) => self.value(number, kind, groups)?,
            };
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(CUT_SHORT)?;
        self.rest = rest;
        Ok(taken)
    }

    fn fixed(&mut self) -> Result<u64, Malformed> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(CUT_SHORT)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for (index, &byte) in self.rest.iter().enumerate().take(10) {
            // The tenth byte can only hold the last bit.
            if index == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << index.saturating_mul(7);
            if byte < 0x80 {
                self.rest = self.rest.get(index.saturating_add(1)..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(Malformed("an integer is cut short or too long"))
    }
}

impl<'a> Value<'a> {
    /// Returns the value as an integer.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for a value of another type.
    pub fn integer(self) -> Result<u64, Malformed> {
        match self {
            Self::Varint(value) => Ok(value),
            Self::Bytes(_) | Self::Fixed64(_) | Self::Other => {
                Err(Malformed("a field is of the wrong kind"))
            }
        }
    }

    /// Returns the value as an integer of 32 bits. Higher bits are discarded, as the format
    /// defines.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for a value of another type.
    pub fn small(self) -> Result<u32, Malformed> {
        Ok(u32::try_from(self.integer()? & u64::from(u32::MAX)).unwrap_or_default())
    }

    /// Returns the value as a float of 64 bits.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for a value of another type.
    pub fn double(self) -> Result<f64, Malformed> {
        match self {
            Self::Fixed64(bits) => Ok(f64::from_bits(bits)),
            Self::Varint(_) | Self::Bytes(_) | Self::Other => {
                Err(Malformed("a field is of the wrong kind"))
            }
        }
    }

    /// Returns the value as bytes, or as a message.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for a value of another type.
    pub fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Varint(_) | Self::Fixed64(_) | Self::Other => {
                Err(Malformed("a field is of the wrong kind"))
            }
        }
    }

    /// Returns the value as text.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for a value of another type, and for bytes that are not UTF-8.
    pub fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed("text is not UTF-8"))
    }
}

/// Returns the encoded length of an integer, in bytes.
#[must_use]
pub const fn varint_length(value: u64) -> usize {
    let mut rest = value >> 7;
    let mut length = 1_usize;
    while rest > 0 {
        rest >>= 7;
        length = length.saturating_add(1);
    }
    length
}

/// Returns the encoded length of an integer field, in bytes: 0 for the value 0. Field numbers are
/// below 16 here.
#[must_use]
pub const fn integer_length(value: u64) -> usize {
    if value == 0 { 0 } else { varint_length(value).saturating_add(1) }
}

/// Returns the encoded length of a field of `length` bytes, in bytes.
#[must_use]
pub fn bytes_length(length: usize) -> usize {
    varint_length(wide(length)).saturating_add(length).saturating_add(1)
}

/// Writes an integer.
pub fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.put_u8(u8::try_from(value).unwrap_or_default());
}

/// Writes an integer field, unless its value is 0.
pub fn put_integer(out: &mut BytesMut, number: u8, value: u64) {
    if value > 0 {
        out.put_u8(number << 3);
        put_varint(out, value);
    }
}

/// Writes the head of a field of `length` bytes, which the caller writes next.
pub fn put_head(out: &mut BytesMut, number: u8, length: usize) {
    out.put_u8((number << 3) | 2);
    put_varint(out, wide(length));
}

/// Writes a field of bytes.
pub fn put_bytes(out: &mut BytesMut, number: u8, bytes: &[u8]) {
    put_head(out, number, bytes.len());
    out.put_slice(bytes);
}

fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
