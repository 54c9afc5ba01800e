//! The deny list: callers and the end of their denial, in a file or a store that others read.

use std::io;
use std::path::{Path, PathBuf};

use rategate::deny::{self, FileError};

use super::key::MAX_NAME;
use super::list_location::ListLocation;
use super::redis_list::{Ends, RedisList};
use super::tally::wall_ns;
use crate::failure::Failure;

const SECOND_NS: u64 = 1_000_000_000;

/// A deny list with its storage.
///
/// A reader of the file denies a caller while the wall clock shows less than the number in the
/// caller's line. A file is never half written: the new one is complete before it takes the old
/// one's name. A store counts the remaining time itself.
#[derive(Debug)]
pub(super) struct Gate {
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
    Store(Box<RedisList>),
}

impl Gate {
    /// Opens the list of an existing file, or an empty one. Entries in a store stay there by
    /// themselves.
    pub(super) fn open(list_location: &Path, max_entries: usize) -> Result<Self, Failure> {
        let list_location = ListLocation::parse(list_location)
            .map_err(|error| Failure::Usage(format!("--gate: {error}")))?;
        let path = match list_location {
            ListLocation::File(path) => path,
            ListLocation::Store(address) => {
                let store = RedisList::open(address, max_entries)?;
                let max_entries = store.max_entries();
                return Ok(Self::of(Keeper::Store(Box::new(store)), Ends::new(), max_entries));
            }
        };
        let before = match deny::read(&path, max_entries) {
            Ok(entries) => entries,
            Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(FileError::Io(error)) => {
                return Err(Failure::Io(format!("--gate {}", path.display()), error));
            }
            Err(malformed) => {
                return Err(Failure::Usage(format!("--gate {}: {malformed}", path.display())));
            }
        };
        let mut until_s = Ends::new();
        for entry in before {
            let until = until_s.entry(entry.name.into()).or_default();
            *until = entry.until_s.max(*until);
        }
        // Written at once, so that an unwritable path is reported before the work.
        write(&path, &until_s)?;
        Ok(Self::of(Keeper::File(path), until_s, max_entries))
    }

    const fn of(keeper: Keeper, until_s: Ends, max_entries: usize) -> Self {
        Self { keeper, until_s, max_entries, left_out: 0, is_changed: true }
    }

    /// Denies a caller until an instant of Unix time; of two instants the later one counts.
    pub(super) fn deny(&mut self, name: &[u8], until_ns: u64) {
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
            Keeper::Store(store) => store.news(name),
        }
    }

    /// Removes ended entries, and updates the file or the store. Returns `true` if it is up to
    /// date; a store may be unavailable.
    pub(super) fn publish(&mut self, now_ns: u64) -> Result<bool, Failure> {
        self.expire(now_ns);
        match &mut self.keeper {
            Keeper::File(path) if self.is_changed => {
                write(path, &self.until_s)?;
                self.is_changed = false;
                Ok(true)
            }
            Keeper::File(_) => Ok(true),
            // Whatever the time in the log, a list in a store denies from now on.
            Keeper::Store(store) => Ok(store.publish(&self.until_s, wall_ns())),
        }
    }

    /// Publishes like [`publish`](Self::publish), and waits for a store.
    pub(super) fn finish(&mut self, now_ns: u64) -> Result<bool, Failure> {
        let is_published = self.publish(now_ns)?;
        match &mut self.keeper {
            Keeper::File(_) => Ok(is_published),
            Keeper::Store(store) => Ok(store.finish(&self.until_s, wall_ns())),
        }
    }

    /// Returns the number of callers that this run has on the list.
    pub(super) fn len(&self) -> usize {
        self.until_s.len()
    }

    pub(super) fn left_out(&self) -> u64 {
        match &self.keeper {
            Keeper::File(_) => self.left_out,
            Keeper::Store(store) => self.left_out.saturating_add(store.left_out()),
        }
    }

    fn expire(&mut self, now_ns: u64) {
        let before = self.until_s.len();
        self.until_s.retain(|_, until| until.saturating_mul(SECOND_NS) > now_ns);
        self.is_changed |= self.until_s.len() != before;
    }
}

fn write(path: &Path, until_s: &Ends) -> Result<(), Failure> {
    let entries = until_s.iter().map(|(name, until_s)| (&**name, *until_s));
    deny::write(path, entries)
        .map_err(|error| Failure::Io(format!("--gate {}", path.display()), error))
}
