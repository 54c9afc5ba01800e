//! The deny list: callers and the end of their denial, in a file that others read.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rategate::deny::{self, FileError};

use crate::key::MAX_NAME;
use crate::{AnalyzeError, SECOND_NS};

/// Callers, and the second of Unix time at which the denial of each ends.
type Ends = BTreeMap<Box<[u8]>, u64>;

/// A deny list that an analysis keeps in a file.
///
/// A reader of the file denies a caller while the wall clock shows less than the number in the
/// caller's line; `rategate::deny::DenyFile` is one. A file is never half written: the new one is
/// complete before it takes the old one's name.
#[derive(Debug)]
pub struct DenyPublisher {
    path: PathBuf,
    until_s: Ends,
    max_entries: usize,
    /// The number of denials left out because the list was full or the name too long.
    left_out: u64,
    is_changed: bool,
}

impl DenyPublisher {
    /// Opens the list of an existing file, or an empty one.
    ///
    /// # Errors
    ///
    /// [`AnalyzeError::Unusable`] for a file of another kind; [`AnalyzeError::Io`] for one that
    /// cannot be read or written.
    pub fn open(path: &Path, max_entries: usize) -> Result<Self, AnalyzeError> {
        let before = match deny::read(path, max_entries) {
            Ok(entries) => entries,
            Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(FileError::Io(error)) => return Err(failure(path, error)),
            Err(malformed) => {
                let why = format!("{}: {malformed}", path.display());
                return Err(AnalyzeError::Unusable(why));
            }
        };
        let mut until_s = Ends::new();
        for entry in before {
            let until = until_s.entry(entry.name.into()).or_default();
            *until = entry.until_s.max(*until);
        }
        // Written at once, so that an unwritable path is reported before the work.
        write(path, &until_s)?;
        let path = path.to_owned();
        Ok(Self { path, until_s, max_entries, left_out: 0, is_changed: true })
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
        self.is_changed = true;
    }

    /// Removes ended entries, and updates the file.
    pub(crate) fn publish(&mut self, now_ns: u64) -> Result<(), AnalyzeError> {
        let before = self.until_s.len();
        self.until_s.retain(|_, until| until.saturating_mul(SECOND_NS) > now_ns);
        self.is_changed |= self.until_s.len() != before;
        if self.is_changed {
            write(&self.path, &self.until_s)?;
            self.is_changed = false;
        }
        Ok(())
    }

    /// Returns the number of callers on the list.
    pub(crate) fn len(&self) -> usize {
        self.until_s.len()
    }

    pub(crate) const fn left_out(&self) -> u64 {
        self.left_out
    }
}

fn write(path: &Path, until_s: &Ends) -> Result<(), AnalyzeError> {
    let entries = until_s.iter().map(|(name, until_s)| (&**name, *until_s));
    deny::write(path, entries).map_err(|error| failure(path, error))
}

fn failure(path: &Path, error: io::Error) -> AnalyzeError {
    AnalyzeError::Io(path.display().to_string(), error)
}
