//! Reads a snapshot of many limits, record by record.

use std::io::Read;

use super::error::SnapshotError;
use super::record::{Header, Record};
use super::wire::{BLOCK_HEAD_BYTES, Checksum, Kind, MAGIC, MAX_BLOCK_BYTES};
use super::{MAX_KEY_BYTES, VERSION};

/// A reader of a snapshot that a [`SnapshotWriter`](super::SnapshotWriter) wrote: an iterator
/// over records.
///
/// It holds one block in memory, and at most as many bytes as the file has, whatever lengths
/// the file claims.
///
/// Each block is compared with its checksum before its first record is returned. Only the end
/// shows that the file is whole: the last item is an error if it is torn. So a caller that must
/// not restore half of a file keeps the records aside until then. Nothing after the end mark is
/// read, and nothing follows an error.
#[derive(Debug)]
pub struct SnapshotReader<R> {
    input: R,
    header: Header,
    checksum: Checksum,
    /// The bytes read so far, and of these, the bytes before the block's body.
    bytes: u64,
    body_at: u64,
    block: Vec<u8>,
    /// The bytes of the block returned as records so far, and the records of all blocks.
    used: usize,
    records: u64,
    is_over: bool,
}

impl<R: Read> SnapshotReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`] if the input does not begin like a snapshot of this version.
    pub fn new(input: R) -> Result<Self, SnapshotError> {
        let header = Header::new(super::SavedAt::of(0, 0), []);
        let mut reader = Self {
            input,
            header,
            checksum: Checksum::new(),
            bytes: 0,
            body_at: 0,
            block: Vec::new(),
            used: 0,
            records: 0,
            is_over: false,
        };
        reader.begin()?;
        let is_header = reader.next_block()? == Kind::Header;
        let header = postcard::take_from_bytes(&reader.block);
        match header {
            Ok((header, [])) if is_header => reader.header = header,
            _ => return Err(SnapshotError::Malformed { at_byte: reader.body_at }),
        }
        reader.used = reader.block.len();
        Ok(reader)
    }

    /// Returns the header, with the instant of saving and the policies.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    fn begin(&mut self) -> Result<(), SnapshotError> {
        self.fill(MAGIC.len())?;
        let is_ours = MAGIC.starts_with(&self.block);
        if !is_ours {
            return Err(SnapshotError::NotASnapshot);
        }
        self.complete(MAGIC.len())?;
        self.checksum.pass(&MAGIC);
        let version: [u8; 2] = self.array()?;
        let found = u16::from_le_bytes(version);
        if found != VERSION {
            return Err(SnapshotError::OtherVersion { found });
        }
        self.checksum.pass(&version);
        Ok(())
    }

    /// Returns the next record, or `None` once the end mark confirms that all were read.
    fn record(&mut self) -> Result<Option<Record>, SnapshotError> {
        while self.used >= self.block.len() {
            let kind = self.next_block()?;
            let malformed = SnapshotError::Malformed { at_byte: self.body_at };
            match kind {
                Kind::Records => {}
                Kind::End => {
                    let records = postcard::take_from_bytes(&self.block).ok();
                    let is_all = records == Some((self.records, [].as_slice()));
                    return if is_all { Ok(None) } else { Err(malformed) };
                }
                Kind::Header => return Err(malformed),
            }
        }
        let rest = self.block.get(self.used..).unwrap_or_default();
        let used = u64::try_from(self.used).unwrap_or(u64::MAX);
        let malformed = SnapshotError::Malformed { at_byte: self.body_at.saturating_add(used) };
        let Ok((record, left)) = postcard::take_from_bytes::<Record>(rest) else {
            return Err(malformed);
        };
        if record.key.len() > MAX_KEY_BYTES || !self.header.has_policy(record.policy) {
            return Err(malformed);
        }
        self.used = self.block.len().saturating_sub(left.len());
        self.records = self.records.saturating_add(1);
        Ok(Some(record))
    }

    /// Reads a block and verifies its checksum.
    fn next_block(&mut self) -> Result<Kind, SnapshotError> {
        let at_byte = self.bytes;
        let head: [u8; BLOCK_HEAD_BYTES] = self.array()?;
        let [kind, length @ ..] = head;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        let kind = Kind::of(kind).filter(|_| length <= MAX_BLOCK_BYTES);
        let kind = kind.ok_or(SnapshotError::Damaged { at_byte })?;
        self.checksum.pass(&head);
        self.body_at = self.bytes;
        let checksum = {
            // The body and the checksum after it, in one read.
            let with_checksum = length.saturating_add(4);
            self.fill(with_checksum)?;
            self.complete(with_checksum)?;
            self.block.split_off(length)
        };
        self.checksum.pass(&self.block);
        if checksum != self.checksum.so_far() {
            return Err(SnapshotError::Damaged { at_byte });
        }
        self.used = 0;
        Ok(kind)
    }

    /// Reads the next `N` bytes.
    fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        self.fill(N)?;
        self.complete(N)?;
        Ok(self.block.first_chunk().copied().unwrap_or([0; N]))
    }

    /// Reads up to `bytes` bytes into the block.
    ///
    /// The block grows with the bytes that arrive, not with the length claimed.
    fn fill(&mut self, bytes: usize) -> Result<(), SnapshotError> {
        self.block.clear();
        let max_bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let came = (&mut self.input).take(max_bytes).read_to_end(&mut self.block)?;
        self.bytes = self.bytes.saturating_add(u64::try_from(came).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Checks that all bytes have arrived.
    const fn complete(&self, bytes: usize) -> Result<(), SnapshotError> {
        if self.block.len() < bytes {
            return Err(SnapshotError::Torn { at_byte: self.bytes });
        }
        Ok(())
    }
}

impl<R: Read> Iterator for SnapshotReader<R> {
    type Item = Result<Record, SnapshotError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let record = self.record();
        self.is_over = !matches!(record, Ok(Some(_)));
        record.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{MAX_RECORD_BYTES, SavedAt, SnapshotWriter};

    /// A block that claims the maximum length, and has a few bytes.
    #[test]
    fn a_length_that_is_claimed_sets_nothing_aside() {
        let header = Header::new(SavedAt::now(0), []);
        let mut file = SnapshotWriter::new(Vec::new(), header).unwrap().finish().unwrap();
        // The end mark: its head, a count of zero, and the checksum.
        file.truncate(file.len().saturating_sub(BLOCK_HEAD_BYTES + 5));
        file.push(2);
        file.extend(u32::try_from(MAX_RECORD_BYTES).unwrap().to_le_bytes());
        file.extend([7; 1_000]);
        let mut reader = SnapshotReader::new(file.as_slice()).unwrap();
        assert!(matches!(reader.next(), Some(Err(SnapshotError::Torn { .. }))));
        assert!(reader.block.capacity() < 100_000, "{}", reader.block.capacity());
    }
}
