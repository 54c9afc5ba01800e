//! The format of a file of counters: a sequence of tables, a list of them, and a checksum over
//! all of it.
//!
//! ```text
//!   89 52 47 45 0D 0A 1A 0A   version u16
//!   list                      of settled operations, a row of JSON each
//!   table, table, ...         each as the library saves it
//!   contents                  as JSON: the owners of the tables, and all offsets in the file
//!   length of the contents u32   checksum u32
//! ```
//!
//! Numbers are little-endian. The checksum is the CRC-32 of all bytes before it, so it detects
//! any changed bit and a missing end. A file is read only when its checksum is right.

use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::num::NonZeroU64;

use crc32fast::Hasher;
use serde::{Deserialize, Serialize};

use super::Saved;
use super::error::Unreadable;

/// The version of the format. A file of another version is refused.
pub(super) const VERSION: u16 = 1;

/// The first bytes of a file: not text, and damaged by any transfer as text.
const MAGIC: [u8; 8] = [0x89, b'R', b'G', b'E', 0x0D, 0x0A, 0x1A, 0x0A];
/// The length of magic bytes and version.
const HEAD_BYTES: u64 = 10;
/// The length of the contents' length and the checksum.
const TAIL_BYTES: u64 = 8;

/// The list of a file's contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Contents {
    /// The hash of the rules in force.
    pub(super) config: String,
    /// The engine's clock when saving began.
    pub(super) clock_ns: u64,
    /// The reservations of permits in flight, which no table has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) in_flight: Vec<(TableOwner, Vec<HeldInFlight>)>,
    /// The key of the digests of ids and of names.
    pub(super) key: [u64; 2],
    /// `true` if nothing was settled after the file was written, as its process ended then.
    pub(super) is_last: bool,
    /// The operations that were settled before the first counter was saved, as rows.
    pub(super) settled: Section,
    pub(super) tables: Vec<Entry>,
}

/// A place in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Section {
    from: u64,
    bytes: u64,
}

/// A table in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) of: TableOwner,
    pub(super) place: Section,
    pub(super) keys: u64,
}

/// A reservation of permits in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HeldInFlight {
    pub(super) key: Vec<u8>,
    pub(super) permits: NonZeroU64,
    /// The time until its end, when saving began.
    pub(super) ends_in_ns: u64,
}

/// The owner of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum TableOwner {
    /// A rule, with the key of each entry, and `true` where its value varies.
    Rule { name: String, entries: Vec<(String, bool)> },
    /// Buckets of inline limits: the tier and the numbers of each.
    Buckets(Vec<(u8, [u64; 3])>),
    /// Windows of inline limits.
    Windows(Vec<(u8, [u64; 3])>),
}

/// A file that is being written, with its checksum so far.
pub(super) struct Output<W> {
    to: W,
    checksum: Hasher,
    bytes: u64,
    pub(super) contents: Contents,
}

impl<W: Write> Output<W> {
    pub(super) fn new(to: W, contents: Contents) -> io::Result<Self> {
        let mut output = Self { to, checksum: Hasher::new(), bytes: 0, contents };
        output.write_all(&MAGIC)?;
        output.write_all(&VERSION.to_le_bytes())?;
        Ok(output)
    }

    /// Adds what `write` writes. Returns its place, and the result of `write`.
    pub(super) fn section<T, E>(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<(Section, T), E> {
        let from = self.bytes;
        let written = write(self)?;
        Ok((Section { from, bytes: self.bytes.saturating_sub(from) }, written))
    }

    /// Adds a table that `save` writes; `save` returns the number of its keys.
    pub(super) fn table<E>(
        &mut self,
        of: TableOwner,
        save: impl FnOnce(&mut Self) -> Result<u64, E>,
    ) -> Result<(), E> {
        let (place, keys) = self.section(save)?;
        self.contents.tables.push(Entry { of, place, keys });
        Ok(())
    }

    /// Ends the file. Returns the number of keys in it, and of its bytes.
    pub(super) fn finish(mut self) -> io::Result<Saved> {
        let contents = serde_json::to_vec(&self.contents)?;
        self.write_all(&contents)?;
        let length = u32::try_from(contents.len()).map_err(io::Error::other)?;
        self.write_all(&length.to_le_bytes())?;
        let checksum = self.checksum.clone().finalize();
        self.write_all(&checksum.to_le_bytes())?;
        self.to.flush()?;
        let keys = self.contents.tables.iter().map(|entry| entry.keys);
        Ok(Saved { keys: keys.fold(0, u64::saturating_add), bytes: self.bytes })
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.checksum.update(bytes.get(..written).unwrap_or(bytes));
        self.bytes = self.bytes.saturating_add(u64::try_from(written).unwrap_or(u64::MAX));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A file whose checksum is right.
pub(super) struct Input<R> {
    from: R,
    pub(super) contents: Contents,
}

impl<R: Read + Seek> Input<R> {
    /// Reads a file once from begin to end to check it, then reads its contents.
    pub(super) fn new(mut from: R) -> Result<Self, Unreadable> {
        let bytes = from.seek(SeekFrom::End(0))?;
        from.seek(SeekFrom::Start(0))?;
        let mut checksum = Hasher::new();
        check_head(&mut from, bytes, &mut checksum)?;
        let torn = Unreadable::Torn { bytes };
        let rest = bytes.checked_sub(HEAD_BYTES.saturating_add(TAIL_BYTES)).ok_or(torn)?;
        pass(&mut from, rest, &mut checksum)?;
        let (length, sum) = (read_u32(&mut from)?, read_u32(&mut from)?);
        checksum.update(&length.to_le_bytes());
        if checksum.finalize() != sum {
            return Err(Unreadable::Damaged { bytes });
        }
        let length = u64::from(length);
        let at =
            HEAD_BYTES.saturating_add(rest).checked_sub(length).ok_or(Unreadable::Malformed)?;
        from.seek(SeekFrom::Start(at))?;
        // Reads at most the file's length, and in large pieces: the parser would read byte by
        // byte.
        let mut contents = Vec::new();
        (&mut from).take(length).read_to_end(&mut contents)?;
        let contents = serde_json::from_slice(&contents);
        Ok(Self { from, contents: contents.map_err(|_| Unreadable::Malformed)? })
    }

    /// Returns a reader of the bytes of a table or a list.
    pub(super) fn section(&mut self, place: Section) -> io::Result<impl BufRead + '_> {
        let Section { from, bytes } = place;
        self.from.seek(SeekFrom::Start(from))?;
        Ok(io::BufReader::new((&mut self.from).take(bytes)))
    }
}

fn check_head(from: &mut impl Read, bytes: u64, checksum: &mut Hasher) -> Result<(), Unreadable> {
    let mut magic = Vec::new();
    from.take(u64::try_from(MAGIC.len()).unwrap_or(u64::MAX)).read_to_end(&mut magic)?;
    if !MAGIC.starts_with(&magic) {
        return Err(Unreadable::NotOurs);
    }
    if bytes < HEAD_BYTES.saturating_add(TAIL_BYTES) {
        return Err(Unreadable::Torn { bytes });
    }
    let mut version = [0; 2];
    from.read_exact(&mut version)?;
    let found = u16::from_le_bytes(version);
    if found != VERSION {
        return Err(Unreadable::OtherVersion { found });
    }
    checksum.update(&magic);
    checksum.update(&version);
    Ok(())
}

/// Adds the next `left` bytes to the checksum.
fn pass(from: &mut impl Read, mut left: u64, checksum: &mut Hasher) -> io::Result<()> {
    let mut buffer = vec![0; 65_536];
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let chunk = buffer.get_mut(..length).unwrap_or_default();
        from.read_exact(chunk)?;
        checksum.update(chunk);
        left = left.saturating_sub(u64::try_from(length).unwrap_or(u64::MAX));
    }
    Ok(())
}

fn read_u32(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Cursor;
    use std::rc::Rc;

    use super::*;

    /// A file that counts how often it is read from.
    struct Counted(Cursor<Vec<u8>>, Rc<Cell<usize>>);

    impl Read for Counted {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1.set(self.1.get() + 1);
            self.0.read(buffer)
        }
    }

    impl Seek for Counted {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    /// Bytes left in a buffer would be missing from the file, without an error.
    #[test]
    fn nothing_of_a_file_is_held_back() {
        let mut to = io::BufWriter::new(Vec::new());
        let saved = Output::new(&mut to, Contents::default()).unwrap().finish().unwrap();
        assert_eq!(u64::try_from(to.get_ref().len()).unwrap(), saved.bytes);
    }

    #[test]
    fn a_long_list_is_read_in_large_pieces() {
        let of = |nth: u64| TableOwner::Rule { name: format!("r{nth}"), entries: Vec::new() };
        let entry = |nth| Entry { of: of(nth), place: Section::default(), keys: nth };
        let tables = (0..10_000).map(entry).collect();
        let contents = Contents { tables, ..Contents::default() };
        let mut bytes = Vec::new();
        let _ = Output::new(&mut bytes, contents.clone()).unwrap().finish().unwrap();
        assert!(bytes.len() > 300_000);
        let reads = Rc::new(Cell::new(0));
        let input = Input::new(Counted(Cursor::new(bytes), Rc::clone(&reads))).unwrap();
        assert_eq!(input.contents, contents);
        assert!(reads.get() < 100, "{}", reads.get());
    }
}
