//! Writes a snapshot of many limits, record by record.

use std::io::Write;
use std::mem::take;

use super::error::SnapshotError;
use super::record::{Header, Record};
use super::wire::{BLOCK_BYTES, Checksum, Kind, MAGIC, block_head};
use super::{MAX_KEY_BYTES, MAX_RECORD_BYTES, VERSION};

/// A writer of a snapshot of many limits: a header, then record after record.
///
/// It holds one block of 64 KiB in memory, or one record if that is longer. It writes whole
/// blocks, so the output needs no buffer.
///
/// Without [`finish`](Self::finish) the file has no end mark, and readers report it as torn.
///
/// ```
/// use std::time::Duration;
///
/// use rategate::policy::saved::{RestoreTarget, save_state};
/// use rategate::snapshot::{Downtime, Header, Record, SavedAt, SnapshotReader, SnapshotWriter};
/// use rategate::policy::Member;
/// use rategate::{AnyPolicy, SlidingLog};
///
/// let log = AnyPolicy::from(SlidingLog::new(100, Duration::from_secs(1)).compact());
/// let table = [("anna", Member::fresh(log, 0)), ("bert", Member::fresh(log, 0))];
///
/// let header = Header::new(SavedAt::now(5_000), [log]);
/// let mut writer = SnapshotWriter::new(Vec::new(), header)?;
/// for (key, limit) in &table {
///     let mut record = Record { key: key.as_bytes().to_vec(), ..Record::default() };
///     save_state(limit, 5_000, &mut record.state);
///     writer.write(&record)?;
/// }
/// let file = writer.finish()?;
///
/// let reader = SnapshotReader::new(file.as_slice())?;
/// // The table's clock is to start at `since.now_ns`.
/// let since = reader.header().saved_at().going_on(Downtime::Wall);
/// let targets: Result<Vec<_>, _> =
///     reader.header().policies().iter().map(|saved| RestoreTarget::new(log, *saved)).collect();
/// let targets = targets?;
/// for record in reader {
///     let record = record?;
///     let limit = targets[record.policy as usize].state(&record.state, since)?;
///     assert_eq!(limit, Member::fresh(log, 0));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SnapshotWriter<W> {
    output: W,
    header: Header,
    checksum: Checksum,
    /// The body of the next block.
    block: Vec<u8>,
    records: u64,
}

impl<W: Write> SnapshotWriter<W> {
    /// Creates a writer, and writes the header.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Io`], and [`SnapshotError::TooLong`] for policies by the million.
    pub fn new(mut output: W, header: Header) -> Result<Self, SnapshotError> {
        let mut checksum = Checksum::new();
        let mut begin = MAGIC.to_vec();
        begin.extend(VERSION.to_le_bytes());
        checksum.pass(&begin);
        output.write_all(&begin)?;
        let block = encoded(&header, Vec::new())?;
        let mut writer = Self { output, header, checksum, block, records: 0 };
        writer.end_block(Kind::Header)?;
        Ok(writer)
    }

    /// Writes a record.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Io`], after which the file cannot be finished. [`SnapshotError::TooLong`]
    /// for a key or a record over the bounds, and [`SnapshotError::NoSuchPolicy`] for a policy
    /// that the header does not have: nothing is written then.
    pub fn write(&mut self, record: &Record) -> Result<(), SnapshotError> {
        if record.key.len() > MAX_KEY_BYTES {
            return Err(SnapshotError::TooLong { bytes: record.key.len() });
        }
        if !self.header.has_policy(record.policy) {
            return Err(SnapshotError::NoSuchPolicy { policy: record.policy });
        }
        let before = self.block.len();
        self.block = encoded(record, take(&mut self.block))?;
        let bytes = self.block.len().saturating_sub(before);
        if bytes > MAX_RECORD_BYTES {
            self.block.truncate(before);
            return Err(SnapshotError::TooLong { bytes });
        }
        self.records = self.records.saturating_add(1);
        if self.block.len() >= BLOCK_BYTES { self.end_block(Kind::Records) } else { Ok(()) }
    }

    /// Writes the end mark, and returns the output.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Io`].
    pub fn finish(mut self) -> Result<W, SnapshotError> {
        if !self.block.is_empty() {
            self.end_block(Kind::Records)?;
        }
        self.block = encoded(&self.records, take(&mut self.block))?;
        self.end_block(Kind::End)?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn end_block(&mut self, kind: Kind) -> Result<(), SnapshotError> {
        let head = block_head(kind, self.block.len())?;
        self.checksum.pass(&head);
        self.checksum.pass(&self.block);
        self.output.write_all(&head)?;
        self.output.write_all(&self.block)?;
        self.output.write_all(&self.checksum.so_far())?;
        self.block.clear();
        // The memory of one long record is freed.
        self.block.shrink_to(BLOCK_BYTES.saturating_mul(2));
        Ok(())
    }
}

/// Appends the encoding of a value to the bytes.
pub(crate) fn encoded(
    value: &impl serde::Serialize,
    bytes: Vec<u8>,
) -> Result<Vec<u8>, SnapshotError> {
    // Numbers, bytes and lists of a known length: postcard can write all of these.
    postcard::to_extend(value, bytes).map_err(|_| SnapshotError::TooLong { bytes: usize::MAX })
}
