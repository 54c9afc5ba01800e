//! The deny list: who is not welcome, and until when, in a file that others read.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rategate::deny::{self, FileError};

use super::key::MAX_NAME;
use crate::failure::Failure;

const SECOND_NS: u64 = 1_000_000_000;

/// A list, and the file that it is kept in, which is as the library reads it.
///
/// Whoever consults it reads the file, or a name's line in it, and turns the caller away while the clock of the wall
/// shows less than the line's number. A file is never half written: the new one is complete before it takes the old
/// one's name.
#[derive(Debug)]
pub(super) struct Gate {
    path: PathBuf,
    until_s: BTreeMap<Box<[u8]>, u64>,
    most: usize,
    /// How many denials found no place in the list, or had too long a name for it.
    pub(super) left_out: u64,
    is_changed: bool,
}

impl Gate {
    /// The list of a file that was there before, or an empty one.
    pub(super) fn open(path: &Path, most: usize) -> Result<Self, Failure> {
        let before = match deny::read(path, most) {
            Ok(entries) => entries,
            Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(FileError::Io(error)) => {
                return Err(Failure::Io(format!("--gate {}", path.display()), error));
            }
            Err(wrong) => {
                return Err(Failure::Usage(format!("--gate {}: {wrong}", path.display())));
            }
        };
        let mut until_s: BTreeMap<_, u64> = BTreeMap::new();
        for entry in before {
            let until = until_s.entry(entry.name.into()).or_default();
            *until = entry.until_s.max(*until);
        }
        // Written at once, so that a place that cannot be written to is told before the work.
        let gate = Self { path: path.to_owned(), until_s, most, left_out: 0, is_changed: true };
        gate.write()?;
        Ok(gate)
    }

    /// Closes the gate to a caller until an instant of Unix time; a later one counts.
    pub(super) fn deny(&mut self, name: &[u8], until_ns: u64) {
        if name.len() > MAX_NAME {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        let until = until_ns.div_ceil(SECOND_NS);
        let is_full = self.until_s.len() >= self.most;
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

    /// Lets those in whose time has come, and brings the file up to date.
    pub(super) fn publish(&mut self, now_ns: u64) -> Result<(), Failure> {
        let before = self.until_s.len();
        self.until_s.retain(|_, until| until.saturating_mul(SECOND_NS) > now_ns);
        if self.is_changed || self.until_s.len() != before {
            self.write()?;
            self.is_changed = false;
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.until_s.len()
    }

    fn write(&self) -> Result<(), Failure> {
        let entries = self.until_s.iter().map(|(name, until_s)| (&**name, *until_s));
        deny::write(&self.path, entries)
            .map_err(|error| Failure::Io(format!("--gate {}", self.path.display()), error))
    }
}
