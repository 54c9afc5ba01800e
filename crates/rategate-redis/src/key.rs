//! Names of keys in the store, in the form `PREFIX:1r{KEY}:LABELk`.
//!
//! Here `1` is the version of states, `{KEY}` the tag that a cluster hashes, and the last letter
//! the kind of the limit. All states of one key share its tag, so they lie in one slot and one
//! call decides on all of them.
//!
//! A key may be any bytes. The names of two such keys never coincide, because nothing after the
//! closing brace contains another one. A key longer than [`MAX_KEY_BYTES`], or without a tag that
//! a cluster would see, is represented by 128 bits of its hash: `PREFIX:1h{HASH}:LABELk`.

use std::fmt::Write;
use std::sync::OnceLock;

use sha1_smol::Sha1;

use crate::error::LimitError;
use crate::library::STATE_VERSION;

/// The maximum length of a key that is stored unchanged, in bytes.
pub const MAX_KEY_BYTES: usize = 256;
/// The maximum length of a prefix and of a label, in bytes.
const MAX_LABEL_BYTES: usize = 32;
/// The number of slots of a cluster: the values of the last 14 bits of a CRC.
pub(crate) const SLOTS: usize = 1 << 14;

/// A prefix that separates our keys from others in the same store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpace {
    prefix: String,
}

impl KeySpace {
    /// Creates a key space whose keys begin with `prefix`.
    ///
    /// # Errors
    ///
    /// [`LimitError::Label`] unless the prefix is 1 to 32 letters, digits, `-`, `_` and `.`.
    pub fn new(prefix: &str) -> Result<Self, LimitError> {
        check_label(prefix)?;
        Ok(Self { prefix: prefix.to_owned() })
    }

    /// Returns the common part of the names of a user's key, which may be any bytes.
    #[must_use]
    pub fn key(&self, key: &[u8]) -> Key {
        let is_plain =
            key.len() <= MAX_KEY_BYTES && key.first().is_some_and(|&first| first != b'}');
        let mut base =
            format!("{}:{STATE_VERSION}{}{{", self.prefix, if is_plain { 'r' } else { 'h' })
                .into_bytes();
        if is_plain {
            base.extend_from_slice(key);
        } else {
            // A user who finds two keys with one hash only makes both share a limit.
            let hash = Sha1::from(key).digest().bytes();
            base.extend_from_slice(hex(hash.get(..16).unwrap_or(&hash)).as_bytes());
        }
        base.push(b'}');
        Key { base }
    }

    /// Returns the name of the marker, which records since when the store has lost nothing; in a
    /// cluster, in `slot`.
    pub(crate) fn marker(&self, slot: Option<u16>) -> Vec<u8> {
        let tag = slot.map_or(0, tag_in);
        format!("{}:{STATE_VERSION}m{{{tag}}}", self.prefix).into_bytes()
    }
}

/// The common part of all names in the store for one user's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    base: Vec<u8>,
}

impl Key {
    /// Returns the slot of a cluster that holds all states of the key.
    #[must_use]
    pub fn slot(&self) -> u16 {
        let after = |bytes: &[u8], brace: u8| bytes.iter().position(|&byte| byte == brace);
        let tag = after(&self.base, b'{').and_then(|open| self.base.get(open.saturating_add(1)..));
        let tag = tag.and_then(|tag| tag.get(..after(tag, b'}')?)).unwrap_or(&self.base);
        slot_of(tag)
    }

    /// Returns the name of a limit's state.
    pub(crate) fn state(&self, label: &str, letter: u8) -> Vec<u8> {
        let mut name =
            Vec::with_capacity(self.base.len().saturating_add(label.len()).saturating_add(2));
        name.extend_from_slice(&self.base);
        name.push(b':');
        name.extend_from_slice(label.as_bytes());
        name.push(letter);
        name
    }

    /// Returns the name of the record of a request's reply.
    pub(crate) fn record(&self, request: [u8; 16]) -> Vec<u8> {
        let mut name = self.base.clone();
        name.push(b'#');
        name.extend_from_slice(hex(&request).as_bytes());
        name
    }

    /// Returns the name of the record of a reservation.
    pub(crate) fn reservation(&self, id: [u8; 16]) -> Vec<u8> {
        let mut name = self.base.clone();
        name.push(b'~');
        name.extend_from_slice(hex(&id).as_bytes());
        name
    }
}

/// Checks that a label is 1 to 32 letters, digits, `-`, `_` and `.`.
pub(crate) fn check_label(label: &str) -> Result<(), LimitError> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_long = label.is_empty() || label.len() > MAX_LABEL_BYTES;
    if is_long || !label.bytes().all(is_known) { Err(LimitError::Label) } else { Ok(()) }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a `String` does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the smallest number whose digits hash to a slot. The search runs once for each slot in
/// a process: one number in 16 384 fits, and every slot has one below 2^20.
fn tag_in(slot: u16) -> u32 {
    static TAGS: [OnceLock<u32>; SLOTS] = [const { OnceLock::new() }; SLOTS];
    let is_there = |tag: &u32| slot_of(tag.to_string().as_bytes()) == slot;
    let find = || (0..1_u32 << 20).find(is_there).unwrap_or(0);
    TAGS.get(usize::from(slot)).map_or(0, |tag| *tag.get_or_init(find))
}

fn slot_of(tag: &[u8]) -> u16 {
    crc16(tag) & 0x3fff
}

/// Returns the CRC-16/XMODEM of `bytes`, which a cluster maps to slots.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 { shifted } else { shifted ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8]) -> Key {
        KeySpace::new("app").unwrap().key(bytes)
    }

    #[test]
    fn names_are_as_the_module_says() {
        assert_eq!(key(b"tenant 1").state("api", b'g'), b"app:1r{tenant 1}:apig");
        assert_eq!(key(b"\0\n").state("a", b'w'), b"app:1r{\0\n}:aw");
        assert_eq!(
            key(b"a").record([0xab; 16]),
            [b"app:1r{a}#", "ab".repeat(16).as_bytes()].concat()
        );
        assert!(KeySpace::new("a{b").is_err() && KeySpace::new("").is_err());
        assert!(KeySpace::new(&"x".repeat(33)).is_err());
    }

    #[test]
    fn long_keys_and_those_without_a_tag_are_hashed() {
        assert_eq!(key(&[b'x'; 256]).base.len(), 7 + 256 + 1);
        let long = key(&[b'x'; 257]);
        assert_eq!(long.base.len(), 7 + 32 + 1);
        assert_ne!(long, key(&[b'x'; 258]));
        for odd in [&b""[..], b"}", b"}x"] {
            assert!(key(odd).base.starts_with(b"app:1h{"), "{odd:?}");
        }
        // A key with the text of another key's hash is still a different key.
        let text = long.base.get(7..39).unwrap().to_vec();
        assert_ne!(key(&text), long);
    }

    /// Each greeting of each server of a cluster names its marker.
    #[test]
    fn a_marker_lies_in_its_slot_and_is_looked_for_once() {
        let keys = KeySpace::new("app").unwrap();
        assert_eq!(keys.marker(None), b"app:1m{0}");
        for slot in [0, 1, 5_460, 5_461, 10_923, 16_383] {
            let started = std::time::Instant::now();
            let marker = keys.marker(Some(slot));
            for _ in 0..2_000 {
                assert_eq!(keys.marker(Some(slot)), marker);
            }
            assert!(started.elapsed().as_secs() < 1, "{:?}", started.elapsed());
            assert_eq!(Key { base: marker }.slot(), slot);
        }
    }

    #[test]
    fn keys_that_look_like_parts_of_names_are_not_mistaken() {
        assert_ne!(key(b"a}:b").state("c", b'g'), key(b"a").state("c", b'g'));
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }
}
