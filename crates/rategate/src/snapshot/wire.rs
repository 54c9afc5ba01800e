//! The file format: a magic number, a version, and blocks with a checksum each.
//!
//! ```text
//!   89 52 47 53 0D 0A 1A 0A   version u16   block, block, ...
//!
//!   block:   kind u8   length u32   body   checksum u32
//!   kinds:   1 the header, once   2 records, one after the other   3 the end, with their number
//! ```
//!
//! All numbers are little-endian; bodies are in postcard's encoding, which is fixed and
//! published. A checksum is the CRC-32 of all bytes of the file before it, except for earlier
//! checksums. So no block can be left out, repeated, or taken from another file.

use crc32fast::Hasher;

use super::MAX_RECORD_BYTES;
use super::error::SnapshotError;

/// The magic number of a file: not valid text, and damaged by any transfer as text.
pub(super) const MAGIC: [u8; 8] = [0x89, b'R', b'G', b'S', 0x0D, 0x0A, 0x1A, 0x0A];

/// The size from which on a block is written. A reader holds one block in memory.
pub(super) const BLOCK_BYTES: usize = 65_536;

/// The longest block: one that is nearly full, and the longest record.
pub(super) const MAX_BLOCK_BYTES: usize = MAX_RECORD_BYTES + BLOCK_BYTES;

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Header = 1,
    Records = 2,
    End = 3,
}

impl Kind {
    pub(super) const fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Header),
            2 => Some(Self::Records),
            3 => Some(Self::End),
            _ => None,
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Header => 1,
            Self::Records => 2,
            Self::End => 3,
        }
    }
}

/// The length of a block's head, in bytes.
pub(super) const BLOCK_HEAD_BYTES: usize = 5;

/// Returns the head of a block with a body of `bytes` bytes.
pub(super) fn block_head(
    kind: Kind,
    bytes: usize,
) -> Result<[u8; BLOCK_HEAD_BYTES], SnapshotError> {
    let length = u32::try_from(bytes).ok().filter(|_| bytes <= MAX_BLOCK_BYTES);
    let [a, b, c, d] = length.ok_or(SnapshotError::TooLong { bytes })?.to_le_bytes();
    Ok([kind.byte(), a, b, c, d])
}

/// The checksum of the bytes so far.
#[derive(Clone, Debug)]
pub(super) struct Checksum(Hasher);

impl Checksum {
    pub(super) fn new() -> Self {
        Self(Hasher::new())
    }

    pub(super) fn pass(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn so_far(&self) -> [u8; 4] {
        self.0.clone().finalize().to_le_bytes()
    }
}
