//! A request that is rendered once; only the digits of its key change.

use super::draw::DIGITS;

/// Where the digits of the key go.
pub(crate) const KEY: &str = "########";

/// A rendered request.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    key_at: usize,
}

impl Template {
    /// Has the digits of the key where `KEY` stands.
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
