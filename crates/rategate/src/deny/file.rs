//! A list in a file: written as a whole, and read again when it has changed.

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

/// How often a file is looked at, if nothing else is said.
const DEFAULT_EVERY: Duration = Duration::from_secs(1);

/// Reads the list of a file, if it has at most `most` entries.
///
/// # Errors
///
/// [`FileError`], which names the line.
pub fn read(path: impl AsRef<Path>, most: usize) -> Result<Vec<Entry>, FileError> {
    parse(&mut BufReader::new(File::open(path)?), most)
}

/// Writes a list: names of 1 to [`MAX_NAME_BYTES`](super::MAX_NAME_BYTES) bytes, and the second of Unix time from which
/// each is welcome again.
///
/// Whoever reads the file meanwhile reads the old list or the new one: the new one is complete, and on the disk, in a
/// file beside it (`.new` is added to the name) before it takes the name.
///
/// # Errors
///
/// Those of the system. The old list is there still.
pub fn write<'a>(
    path: impl AsRef<Path>,
    entries: impl IntoIterator<Item = (&'a [u8], u64)>,
) -> io::Result<()> {
    let mut beside = OsString::from(path.as_ref());
    beside.push(".new");
    let mut output = BufWriter::new(File::create(&beside)?);
    format(&mut output, entries)?;
    output.flush()?;
    // A name that survives a power cut has to have its content with it.
    output.get_ref().sync_data()?;
    fs::rename(&beside, path)
}

/// A list that follows a file: the file of `rategate analyze --gate`, or any that is [written](write()) like it.
///
/// It does nothing in the background: somebody has to [`refresh`](Self::refresh) it, from a thread or a
/// timer. A look at a file that has not changed takes about a microsecond. One that has changed is read by whoever
/// looked, which takes some 100 ns for each entry, and no reader of the list waits for it.
///
/// A file that is missing, cut, or no list at all changes nothing: the old list stays, and the error says what is wrong where.
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
    /// When the file may be looked at again.
    next_ns: AtomicU64,
    seen: Mutex<Option<Mark>>,
}

/// By what a list knows the caller of a name, if it is the name of one.
type IdOf<K> = Box<dyn Fn(&DenyList<K>, &[u8]) -> Option<<K as Key>::Id> + Send + Sync>;

/// By what a file that has changed is known: a new file under the name, or another length or time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    file: (u64, u64),
    length: u64,
    modified: Option<SystemTime>,
}

/// What came of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// The file, or the store's list, is as it was.
    Unchanged,
    /// The list is a new one.
    Replaced {
        /// What became of its entries.
        entries: Replaced,
        /// How many names were those of no caller, as far as [`DenyFile::with_names`] knows.
        unknown: usize,
    },
}

impl DenyFile {
    /// Lets a list follow a file. Nothing is read yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, list: DenyList) -> Self {
        Self::with_names(path, list, |list, name| Some(list.id(name)))
    }
}

impl<K: Key + ?Sized> DenyFile<K> {
    /// The same for a list of other keys than names: `id_of` says whom a name means.
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

    /// How often [`refresh_if_due`](Self::refresh_if_due) looks at most: each second, if nothing else is said.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every_ns = nanoseconds(every);
        self
    }

    /// The list.
    #[must_use]
    pub const fn list(&self) -> &DenyList<K> {
        &self.list
    }

    /// Looks at the file, and reads it if it has changed. A second look waits for the first.
    ///
    /// # Errors
    ///
    /// [`FileError`]; the list is the old one then, and the next look reads the file again.
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

    /// The same, but no more often than [`every`](Self::every), on any clock that does not go back: of all who
    /// ask when it is due one looks, and the others are answered `None`, as is everybody before.
    ///
    /// Who looks may read the whole file, so this is for threads that may wait for a disk.
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
