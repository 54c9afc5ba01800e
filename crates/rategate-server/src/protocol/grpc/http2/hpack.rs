//! A decoder of compressed fields (RFC 7541).
//!
//! The text of a field is not needed. The decoder determines its meaning once, and stores that in
//! the table instead. A head of many references to a long field therefore needs no more memory
//! than a short one.

use std::collections::VecDeque;

use super::fields::{Meaning, Name, Seen, Unpacked, is_value};
use super::huffman;
use crate::net::Access;

/// The error for fields that cannot be decoded. The tables of both ends then differ, which
/// concerns the whole connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unpacking;

#[derive(Debug)]
pub(super) struct Decoder {
    /// The entries, newest first.
    entries: VecDeque<Entry>,
    size: usize,
    max: usize,
    /// The token that tokens of calls are compared with.
    access: Access,
    name: Vec<u8>,
    value: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    name: Name,
    name_length: usize,
    value_length: usize,
    meaning: Meaning,
}

/// The capacity of the table, which stays at its default.
const TABLE: usize = 4096;
/// The size of each field besides its text.
const EXTRA: usize = 32;

impl Decoder {
    pub(super) fn new(access: Access) -> Self {
        Self {
            entries: VecDeque::new(),
            size: 0,
            max: TABLE,
            access,
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Decodes the fields of a head. If the fields exceed `max`, they are still decoded to the
    /// end, to keep the table equal to that of the peer. That takes no more work than the
    /// compressed bytes require.
    pub(super) fn decode(&mut self, block: &[u8], max: usize) -> Result<Unpacked, Unpacking> {
        let mut rest = block;
        let (mut seen, mut total, mut may_resize) = (Seen::default(), 0_usize, true);
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
            seen.take(entry.meaning);
        }
        let is_too_long = total > max;
        if is_too_long {
            // One long field is no reason to keep memory for another.
            (self.name, self.value) = (Vec::new(), Vec::new());
        }
        Ok(Unpacked { is_too_long, ..seen.end() })
    }

    fn literal(&mut self, rest: &mut &[u8], bits: u32) -> Result<Entry, Unpacking> {
        let index = integer(rest, bits)?;
        let (name, name_length) = if index == 0 {
            self.name.clear();
            let name = text(rest, &mut self.name)?;
            (Name::of(name), name.len())
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
            meaning: if is_value(value) {
                name.meaning(value, &self.access)
            } else {
                Meaning::Invalid
            },
        })
    }

    fn get(&self, index: usize) -> Result<Entry, Unpacking> {
        let index = index.checked_sub(1).ok_or(Unpacking)?;
        if let Some((name, value)) = STATIC.get(index) {
            let known = Name::of(name.as_bytes());
            return Ok(Entry {
                name: known,
                name_length: name.len(),
                value_length: value.len(),
                meaning: known.meaning(value.as_bytes(), &self.access),
            });
        }
        let entry = self.entries.get(index.saturating_sub(STATIC.len()));
        entry.copied().ok_or(Unpacking)
    }

    fn insert(&mut self, entry: Entry) {
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

impl Entry {
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

/// The static table of the standard.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];
