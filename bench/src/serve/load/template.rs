//! Requests that are rendered once; only the digits of the key change.

use super::key_sequence::DIGITS;

/// The placeholder for the digits of the key.
pub(crate) const KEY: &str = "########";

/// The placeholder for the last digits of the key, so that keys differ less often than ids do.
pub(crate) const TAIL: &str = "@@@@@";

/// A rendered request.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    /// The positions of keys and of their ends, each with the number of digits left out.
    slots: Vec<(usize, usize)>,
}

impl Template {
    /// Creates a template with the digits of the key at each position of `KEY`, and its last digits
    /// at each position of `TAIL`.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let slots = [(KEY, 0), (TAIL, KEY.len() - TAIL.len())].into_iter();
        let slots = slots.flat_map(|(text, skipped)| {
            memchr::memmem::find_iter(&bytes, text).map(move |at| (at, skipped))
        });
        Self { slots: slots.collect(), bytes }
    }

    #[inline]
    pub(crate) fn write(&self, key: [u8; DIGITS], out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&self.bytes);
        for &(at, skipped) in &self.slots {
            let at = begin + at;
            out[at..at + DIGITS - skipped].copy_from_slice(&key[skipped..]);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}
