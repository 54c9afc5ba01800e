//! The deny list: who is not welcome, and until when, in a file or a store that others read.

use std::io;
use std::path::{Path, PathBuf};

use rategate::deny::{self, FileError};

use super::key::MAX_NAME;
use super::place::Place;
use super::shelf::{Ends, Shelf};
use super::tally::wall_ns;
use crate::failure::Failure;

const SECOND_NS: u64 = 1_000_000_000;

/// A list, and where it is kept.
///
/// Whoever consults a file reads it, or a name's line in it, and turns the caller away while the clock of the wall
/// shows less than the line's number. A file is never half written: the new one is complete before it takes the old
/// one's name. A store counts what is left itself.
#[derive(Debug)]
pub(super) struct Gate {
    keeper: Keeper,
    until_s: Ends,
    most: usize,
    /// How many denials found no place in the list, or had too long a name for it.
    left_out: u64,
    is_changed: bool,
}

/// What keeps a list for others.
#[derive(Debug)]
enum Keeper {
    File(PathBuf),
    Store(Box<Shelf>),
}

impl Gate {
    /// The list of a file that was there before, or an empty one. What is in a store stays there by itself.
    pub(super) fn open(place: &Path, most: usize) -> Result<Self, Failure> {
        let place =
            Place::parse(place).map_err(|error| Failure::Usage(format!("--gate: {error}")))?;
        let path = match place {
            Place::File(path) => path,
            Place::Store(address) => {
                let store = Shelf::open(address, most)?;
                let most = store.most();
                return Ok(Self::of(Keeper::Store(Box::new(store)), Ends::new(), most));
            }
        };
        let before = match deny::read(&path, most) {
            Ok(entries) => entries,
            Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(FileError::Io(error)) => {
                return Err(Failure::Io(format!("--gate {}", path.display()), error));
            }
            Err(wrong) => {
                return Err(Failure::Usage(format!("--gate {}: {wrong}", path.display())));
            }
        };
        let mut until_s = Ends::new();
        for entry in before {
            let until = until_s.entry(entry.name.into()).or_default();
            *until = entry.until_s.max(*until);
        }
        // Written at once, so that a place that cannot be written to is told before the work.
        write(&path, &until_s)?;
        Ok(Self::of(Keeper::File(path), until_s, most))
    }

    const fn of(keeper: Keeper, until_s: Ends, most: usize) -> Self {
        Self { keeper, until_s, most, left_out: 0, is_changed: true }
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
        match &mut self.keeper {
            Keeper::File(_) => self.is_changed = true,
            Keeper::Store(store) => store.news(name),
        }
    }

    /// Lets those in whose time has come, and brings the file or the store up to date. Says whether it is: a store
    /// may be gone.
    pub(super) fn publish(&mut self, now_ns: u64) -> Result<bool, Failure> {
        self.forget(now_ns);
        match &mut self.keeper {
            Keeper::File(path) if self.is_changed => {
                write(path, &self.until_s)?;
                self.is_changed = false;
                Ok(true)
            }
            Keeper::File(_) => Ok(true),
            // Whatever the time in the log: a list in a store denies from now on.
            Keeper::Store(store) => Ok(store.publish(&self.until_s, wall_ns())),
        }
    }

    /// The same at the end, which waits for a store.
    pub(super) fn finish(&mut self, now_ns: u64) -> Result<bool, Failure> {
        let is_published = self.publish(now_ns)?;
        match &mut self.keeper {
            Keeper::File(_) => Ok(is_published),
            Keeper::Store(store) => Ok(store.finish(&self.until_s, wall_ns())),
        }
    }

    /// How many this run has on the list.
    pub(super) fn len(&self) -> usize {
        self.until_s.len()
    }

    pub(super) fn left_out(&self) -> u64 {
        match &self.keeper {
            Keeper::File(_) => self.left_out,
            Keeper::Store(store) => self.left_out.saturating_add(store.left_out()),
        }
    }

    fn forget(&mut self, now_ns: u64) {
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
