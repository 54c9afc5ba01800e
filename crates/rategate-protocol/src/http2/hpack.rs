//! A decoder of compressed fields (RFC 7541).
//!
//! The text of a field is not needed. The decoder determines its meaning once, and stores that in
//! the table instead. A head of many references to a long field therefore needs no more memory
//! than a short one.

use std::collections::VecDeque;

use super::huffman;
use super::static_table::STATIC;

/// The error for fields that cannot be decoded. The tables of both ends then differ, which
/// concerns the whole connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fields cannot be decoded")]
pub struct Unpacking;

/// The fields that matter to a server. All others have a meaning that it ignores.
pub trait Fields {
    /// The name of a field, as far as it matters.
    type Name: Copy;
    /// The meaning of a field: its value, as far as it matters.
    type Meaning: Copy;

    /// The meaning of a value that [no field may have](is_value).
    const INVALID: Self::Meaning;

    /// Returns the name.
    fn name(&self, name: &[u8]) -> Self::Name;

    /// Returns the meaning of a field of this name with a value.
    fn meaning(&self, name: Self::Name, value: &[u8]) -> Self::Meaning;
}

/// A decoder of the heads of one connection, in their order.
#[derive(Debug)]
pub struct Decoder<F: Fields> {
    /// The entries, newest first.
    entries: VecDeque<Entry<F::Name, F::Meaning>>,
    size: usize,
    max: usize,
    fields: F,
    name: Vec<u8>,
    value: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Entry<N, M> {
    name: N,
    name_length: usize,
    value_length: usize,
    meaning: M,
}

/// The capacity of the table, which stays at its default.
const TABLE: usize = 4096;
/// The size of each field besides its text.
const EXTRA: usize = 32;

impl<F: Fields> Decoder<F> {
    /// Creates the decoder of a new connection.
    #[must_use]
    pub const fn new(fields: F) -> Self {
        Self {
            entries: VecDeque::new(),
            size: 0,
            max: TABLE,
            fields,
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Decodes the fields of a head, and passes each to `take`. Returns `true` if they exceed
    /// `max`.
    ///
    /// Such fields are still decoded to the end, to keep the table equal to that of the peer. That
    /// takes no more work than the compressed bytes require.
    ///
    /// # Errors
    ///
    /// [`Unpacking`], after which the decoder is of no use.
    pub fn decode(
        &mut self,
        block: &[u8],
        max: usize,
        mut take: impl FnMut(F::Meaning),
    ) -> Result<bool, Unpacking> {
        let mut rest = block;
        let (mut total, mut may_resize) = (0_usize, true);
        while let Some(&first) = rest.first() {
            if first & 0xe0 == 0x20 {
                let size = integer(&mut rest, 5)?;
                if !may_resize || size > TABLE {
                    return Err(Unpacking);
                }
                self.max = size;
                self.fit();
                continue;
            }
            may_resize = false;
            let entry = if first & 0x80 > 0 {
                self.get(integer(&mut rest, 7)?)?
            } else if first & 0x40 > 0 {
                let entry = self.literal(&mut rest, 6)?;
                self.insert(entry);
                entry
            } else {
                self.literal(&mut rest, 4)?
            };
            total = total.saturating_add(entry.size());
            take(entry.meaning);
        }
        let is_too_long = total > max;
        if is_too_long {
            // One long field is no reason to keep memory for another.
            (self.name, self.value) = (Vec::new(), Vec::new());
        }
        Ok(is_too_long)
    }

    fn literal(
        &mut self,
        rest: &mut &[u8],
        bits: u32,
    ) -> Result<Entry<F::Name, F::Meaning>, Unpacking> {
        let index = integer(rest, bits)?;
        let (name, name_length) = if index == 0 {
            self.name.clear();
            let name = text(rest, &mut self.name)?;
            (self.fields.name(name), name.len())
        } else {
            let entry = self.get(index)?;
            (entry.name, entry.name_length)
        };
        self.value.clear();
        let value = text(rest, &mut self.value)?;
        Ok(Entry {
            name,
            name_length,
            value_length: value.len(),
            meaning: if is_value(value) { self.fields.meaning(name, value) } else { F::INVALID },
        })
    }

    fn get(&self, index: usize) -> Result<Entry<F::Name, F::Meaning>, Unpacking> {
        let index = index.checked_sub(1).ok_or(Unpacking)?;
        if let Some((name, value)) = STATIC.get(index) {
            let known = self.fields.name(name.as_bytes());
            return Ok(Entry {
                name: known,
                name_length: name.len(),
                value_length: value.len(),
                meaning: self.fields.meaning(known, value.as_bytes()),
            });
        }
        let entry = self.entries.get(index.saturating_sub(STATIC.len()));
        entry.copied().ok_or(Unpacking)
    }

    fn insert(&mut self, entry: Entry<F::Name, F::Meaning>) {
        self.size = self.size.saturating_add(entry.size());
        self.entries.push_front(entry);
        self.fit();
    }

    fn fit(&mut self) {
        while self.size > self.max {
            let Some(oldest) = self.entries.pop_back() else { return };
            self.size = self.size.saturating_sub(oldest.size());
        }
    }
}

impl<N, M> Entry<N, M> {
    const fn size(&self) -> usize {
        self.name_length.saturating_add(self.value_length).saturating_add(EXTRA)
    }
}

fn integer(rest: &mut &[u8], bits: u32) -> Result<usize, Unpacking> {
    let (first, mut tail) = rest.split_first().ok_or(Unpacking)?;
    let mask = (1_usize << bits).saturating_sub(1);
    let mut value = usize::from(*first) & mask;
    if value == mask {
        // No number here needs more than three bytes.
        for shift in [0_u32, 7, 14, 21] {
            let (byte, after) = tail.split_first().ok_or(Unpacking)?;
            tail = after;
            if shift == 21 {
                return Err(Unpacking);
            }
            value = value.saturating_add((usize::from(*byte) & 0x7f) << shift);
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *rest = tail;
    Ok(value)
}

fn text<'a, 'b: 'a>(rest: &mut &'b [u8], buffer: &'a mut Vec<u8>) -> Result<&'a [u8], Unpacking> {
    let is_packed = rest.first().is_some_and(|first| first & 0x80 > 0);
    let length = integer(rest, 7)?;
    let (text, after) = rest.split_at_checked(length).ok_or(Unpacking)?;
    *rest = after;
    if !is_packed {
        return Ok(text);
    }
    huffman::decode(text, buffer).ok_or(Unpacking)?;
    Ok(buffer)
}

/// Returns `true` for a name in lower case that a field may have (RFC 9113, section 8.2.1).
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.iter().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(byte)
        })
}

/// Returns `true` for a valid value (RFC 9113, section 8.2.1): no bytes that end a line elsewhere,
/// and no surrounding blanks.
#[must_use]
pub fn is_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !is_blank(value.first())
        && !is_blank(value.last())
        && !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
}
