//! Deny lists in files: written as a whole, and read again after a change.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, SystemTime};

use super::text::{Entry, FileError, format, parse};
use super::{DenyList, Replaced};
use crate::keyed::Key;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// The default interval between checks of a file.
const DEFAULT_EVERY: Duration = Duration::from_secs(1);

/// Reads the list of a file, if it has at most `max_entries` entries.
///
/// # Errors
///
/// [`FileError`], which names the line unless the system reported it.
pub fn read(path: impl AsRef<Path>, max_entries: usize) -> Result<Vec<Entry>, FileError> {
    parse(&mut BufReader::new(File::open(path)?), max_entries)
}

/// Writes a list of names, each with the second of Unix time at which its denial ends.
///
/// A name has 1 to [`MAX_NAME_BYTES`](super::MAX_NAME_BYTES) bytes.
///
/// Concurrent readers see the old list or the new one: the new one is written completely, and
/// to the disk, in a file with `.new` appended to the name, which is then renamed.
///
/// # Errors
///
/// Those of the system. The old list stays in place.
pub fn write<'a>(
    path: impl AsRef<Path>,
    entries: impl IntoIterator<Item = (&'a [u8], u64)>,
) -> io::Result<()> {
    let mut temporary_path = OsString::from(path.as_ref());
    temporary_path.push(".new");
    let mut output = BufWriter::new(File::create(&temporary_path)?);
    format(&mut output, entries)?;
    output.flush()?;
    // A name that survives a power cut must have its content with it.
    output.get_ref().sync_data()?;
    fs::rename(&temporary_path, path)
}

/// A list that follows a file, as written by `rategate analyze --gate` or [`write()`].
///
/// It does nothing in the background: a thread or a timer of the program must
/// [`refresh`](Self::refresh) it. A check of an unchanged file takes about a microsecond. A
/// changed file is read by the checking thread, which takes some 100 ns for each entry; readers
/// of the list do not wait.
///
/// A file that is missing, cut, or not a list changes nothing: the old list stays, and the
/// error names the cause and, for a file that was read, the line.
///
/// ```no_run
/// use std::thread;
/// use std::time::Duration;
///
/// use rategate::deny::{DenyFile, DenyList};
///
/// let list: DenyList = DenyList::new(100_000);
/// let file = DenyFile::new("deny.list", list.clone());
/// thread::spawn(move || {
///     loop {
///         if let Err(error) = file.refresh() {
///             eprintln!("deny.list: {error}");
///         }
///         thread::sleep(Duration::from_secs(1));
///     }
/// });
/// if let Some(wait) = list.denied_for(b"10.0.0.7") {
///     println!("come again in {wait:?}");
/// }
/// ```
pub struct DenyFile<K: Key + ?Sized = [u8]> {
    path: PathBuf,
    list: DenyList<K>,
    id_of: IdOf<K>,
    every_ns: u64,
    /// The time of the next check.
    next_ns: AtomicU64,
    seen: Mutex<Option<Mark>>,
}

/// A function that returns the id for a name, or `None` if it names no client.
type IdOf<K> = Box<dyn Fn(&DenyList<K>, &[u8]) -> Option<<K as Key>::Id> + Send + Sync>;

/// The identity of a file's content: another file under the name, length or time means a
/// change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    file: (u64, u64),
    length: u64,
    modified: Option<SystemTime>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// The file, or the store's list, is unchanged.
    Unchanged,
    /// The list was replaced.
    Replaced {
        /// The numbers of clients listed and left out.
        entries: Replaced,
        /// The number of names that name no client, according to [`DenyFile::with_names`].
        unknown: usize,
    },
}

impl DenyFile {
    /// Creates a follower of a file. Nothing is read yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, list: DenyList) -> Self {
        Self::with_names(path, list, |list, name| Some(list.id(name)))
    }
}

impl<K: Key + ?Sized> DenyFile<K> {
    /// Creates a follower for a list of keys other than names: `id_of` returns the id for a name.
    #[must_use]
    pub fn with_names(
        path: impl Into<PathBuf>,
        list: DenyList<K>,
        id_of: impl Fn(&DenyList<K>, &[u8]) -> Option<K::Id> + Send + Sync + 'static,
    ) -> Self {
        Self {
            path: path.into(),
            list,
            id_of: Box::new(id_of),
            every_ns: nanoseconds(DEFAULT_EVERY),
            next_ns: AtomicU64::new(0),
            seen: Mutex::new(None),
        }
    }

    /// Sets the minimum interval of [`refresh_if_due`](Self::refresh_if_due). The default is one
    /// second.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every_ns = nanoseconds(every);
        self
    }

    /// Returns the list in memory, which follows the file.
    #[must_use]
    pub const fn list(&self) -> &DenyList<K> {
        &self.list
    }

    /// Checks the file, and reads it if it has changed. A second check waits for the first.
    ///
    /// # Errors
    ///
    /// [`FileError`]; the list is unchanged then, and the next check reads the file again.
    pub fn refresh(&self) -> Result<Refreshed, FileError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == Some(Mark::of(&fs::metadata(&self.path)?)) {
            return Ok(Refreshed::Unchanged);
        }
        let file = File::open(&self.path)?;
        let mark = Mark::of(&file.metadata()?);
        let entries = parse(&mut BufReader::new(file), self.list.capacity())?;
        let mut unknown = 0_usize;
        let known = entries.iter().filter_map(|entry| {
            let id = (self.id_of)(&self.list, &entry.name);
            unknown = unknown.saturating_add(usize::from(id.is_none()));
            Some((id?, entry.until_ns()))
        });
        let entries = self.list.replace(known);
        *seen = Some(mark);
        Ok(Refreshed::Replaced { entries, unknown })
    }

    /// Checks the file if [`every`](Self::every) has passed, on any clock that does not go back.
    ///
    /// Of all threads that call when a check is due, one performs it; the others get `None`, as do
    /// all calls before that.
    ///
    /// A check may read the whole file, so this is for threads that may wait for a disk.
    pub fn refresh_if_due(&self, now_ns: u64) -> Option<Result<Refreshed, FileError>> {
        let due_ns = self.next_ns.load(Ordering::Relaxed);
        if now_ns < due_ns {
            return None;
        }
        let next_ns = now_ns.saturating_add(self.every_ns);
        let order = Ordering::Relaxed;
        self.next_ns.compare_exchange(due_ns, next_ns, order, order).ok()?;
        Some(self.refresh())
    }
}

impl Mark {
    fn of(about: &Metadata) -> Self {
        Self { file: file_of(about), length: about.len(), modified: about.modified().ok() }
    }
}

#[cfg(unix)]
fn file_of(about: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;

    (about.dev(), about.ino())
}
#[cfg(not(unix))]
fn file_of(_about: &Metadata) -> (u64, u64) {
    (0, 0)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl<K: Key + ?Sized> fmt::Debug for DenyFile<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenyFile")
            .field("path", &self.path)
            .field("list", &self.list)
            .finish_non_exhaustive()
    }
}
