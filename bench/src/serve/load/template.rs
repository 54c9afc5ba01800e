//! Requests that are rendered once; only the digits of the key change.

use super::key_sequence::DIGITS;

/// The placeholder for the digits of the key.
pub(crate) const KEY: &str = "########";

/// A rendered request.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    key_at: usize,
}

impl Template {
    /// Creates a template with the digits of the key at the position of `KEY`.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let key_at = memchr::memmem::find(&bytes, KEY.as_bytes()).unwrap_or(0);
        Self { bytes, key_at }
    }

    #[inline]
    pub(crate) fn write(&self, key: [u8; DIGITS], out: &mut Vec<u8>) {
        let at = out.len() + self.key_at;
        out.extend_from_slice(&self.bytes);
        out[at..at + DIGITS].copy_from_slice(&key);
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}
