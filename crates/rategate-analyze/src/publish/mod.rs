//! The deny list: callers and the end of their denial, in a file or a store that others read.

#[cfg(feature = "redis")]
mod location;
#[cfg(feature = "redis")]
mod redis_list;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rategate::deny::{self, FileError};

use crate::key::MAX_NAME;
use crate::{AnalyzeError, SECOND_NS};
#[cfg(feature = "redis")]
use {crate::wall_ns, location::Address, redis_list::RedisList};

/// Callers, and the second of Unix time at which the denial of each ends.
type Ends = BTreeMap<Box<[u8]>, u64>;

/// Reports in a sentence that a store is unavailable, or back.
type Notice = fn(&str);

/// A deny list that an analysis keeps, in a file or a store.
///
/// A reader of the file denies a caller while the wall clock shows less than the number in the
/// caller's line; `rategate::deny::DenyFile` is one. A file is never half written: the new one is
/// complete before it takes the old one's name. A store counts the remaining time itself, and an
/// unavailable one does not stop the analysis.
#[derive(Debug)]
pub struct DenyPublisher {
    keeper: Keeper,
    until_s: Ends,
    max_entries: usize,
    /// The number of denials left out because the list was full or the name too long.
    left_out: u64,
    is_changed: bool,
}

/// The storage of a list for its readers.
#[derive(Debug)]
enum Keeper {
    File(PathBuf),
    #[cfg(feature = "redis")]
    Store(Box<RedisList>),
}

impl DenyPublisher {
    /// Opens the list of an existing file, or an empty one.
    ///
    /// With the feature `redis`, `redis://[[USER]:PASSWORD@]HOST[:PORT][/PREFIX[/LIST]]`, or
    /// `unix:PATH` of a socket, is a list in a store. Entries stay there by themselves. `notice`
    /// is called when the store is unavailable, and when it is back.
    ///
    /// # Errors
    ///
    /// [`AnalyzeError::Unusable`] for an invalid address and for a file of another kind;
    /// [`AnalyzeError::Io`] for a file that cannot be written, and for a store that refuses this
    /// client.
    pub fn open(location: &Path, max_entries: usize, notice: Notice) -> Result<Self, AnalyzeError> {
        #[cfg(feature = "redis")]
        {
            let unusable = |why: &str| AnalyzeError::Unusable(why.to_owned());
            if let Some(address) = Address::of(location).map_err(unusable)? {
                let store = RedisList::open(address, max_entries, notice)?;
                let max_entries = store.max_entries();
                return Ok(Self::of(Keeper::Store(Box::new(store)), Ends::new(), max_entries));
            }
        }
        #[cfg(not(feature = "redis"))]
        let _ = notice;
        let before = match deny::read(location, max_entries) {
            Ok(entries) => entries,
            Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(FileError::Io(error)) => return Err(failure(location, error)),
            Err(malformed) => {
                let why = format!("{}: {malformed}", location.display());
                return Err(AnalyzeError::Unusable(why));
            }
        };
        let mut until_s = Ends::new();
        for entry in before {
            let until = until_s.entry(entry.name.into()).or_default();
            *until = entry.until_s.max(*until);
        }
        // Written at once, so that an unwritable path is reported before the work.
        write(location, &until_s)?;
        Ok(Self::of(Keeper::File(location.to_owned()), until_s, max_entries))
    }

    const fn of(keeper: Keeper, until_s: Ends, max_entries: usize) -> Self {
        Self { keeper, until_s, max_entries, left_out: 0, is_changed: true }
    }

    /// Denies a caller until an instant of Unix time; of two instants the later one counts.
    pub(crate) fn deny(&mut self, name: &[u8], until_ns: u64) {
        if name.len() > MAX_NAME {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        let until = until_ns.div_ceil(SECOND_NS);
        let is_full = self.until_s.len() >= self.max_entries;
        match self.until_s.get_mut(name) {
            Some(known) if *known >= until => return,
            Some(known) => *known = until,
            None if is_full => {
                self.left_out = self.left_out.saturating_add(1);
                return;
            }
            None => {
                self.until_s.insert(name.into(), until);
            }
        }
        match &mut self.keeper {
            Keeper::File(_) => self.is_changed = true,
            #[cfg(feature = "redis")]
            Keeper::Store(store) => store.news(name),
        }
    }

    /// Removes ended entries, and updates the file or the store. Returns `true` if it is up to
    /// date; a store may be unavailable.
    pub(crate) fn publish(&mut self, now_ns: u64) -> Result<bool, AnalyzeError> {
        self.expire(now_ns);
        match &mut self.keeper {
            Keeper::File(path) if self.is_changed => {
                write(path, &self.until_s)?;
                self.is_changed = false;
                Ok(true)
            }
            Keeper::File(_) => Ok(true),
            // Whatever the time in the log, a list in a store denies from now on.
            #[cfg(feature = "redis")]
            Keeper::Store(store) => Ok(store.publish(&self.until_s, wall_ns())),
        }
    }

    /// Publishes like [`publish`](Self::publish), and waits for a store.
    pub(crate) fn finish(&mut self, now_ns: u64) -> Result<bool, AnalyzeError> {
        let is_published = self.publish(now_ns)?;
        match &mut self.keeper {
            Keeper::File(_) => Ok(is_published),
            #[cfg(feature = "redis")]
            Keeper::Store(store) => Ok(store.finish(&self.until_s, wall_ns())),
        }
    }

    /// Returns the number of callers that this run has on the list.
    pub(crate) fn len(&self) -> usize {
        self.until_s.len()
    }

    pub(crate) fn left_out(&self) -> u64 {
        match &self.keeper {
            Keeper::File(_) => self.left_out,
            #[cfg(feature = "redis")]
            Keeper::Store(store) => self.left_out.saturating_add(store.left_out()),
        }
    }

    fn expire(&mut self, now_ns: u64) {
        let before = self.until_s.len();
        self.until_s.retain(|_, until| until.saturating_mul(SECOND_NS) > now_ns);
        self.is_changed |= self.until_s.len() != before;
    }
}

fn write(path: &Path, until_s: &Ends) -> Result<(), AnalyzeError> {
    let entries = until_s.iter().map(|(name, until_s)| (&**name, *until_s));
    deny::write(path, entries).map_err(|error| failure(path, error))
}

fn failure(path: &Path, error: io::Error) -> AnalyzeError {
    AnalyzeError::Io(path.display().to_string(), error)
}
