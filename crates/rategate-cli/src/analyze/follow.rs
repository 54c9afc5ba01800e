//! Following of a log file as it grows, over rotation by renaming and by truncation.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use super::input;
use super::log::Lines;
use crate::failure::Failure;

/// The file behind a name, and the position up to which it has been read.
#[derive(Debug)]
pub(super) struct Tail {
    path: PathBuf,
    /// The name as it is displayed.
    pub(super) name: Rc<str>,
    /// The number of lines of the file that have been read. `lines` holds the bytes of an
    /// unfinished line.
    pub(super) line: u64,
    pub(super) lines: Lines,
    growing: Growing,
    /// The number of times another file took the name, or the file was truncated.
    rotations: u64,
    /// The instant at which the name was first seen to refer to another file.
    renamed: Option<Instant>,
}

/// A file, and the position up to which it has been read.
#[derive(Debug)]
struct Growing {
    file: File,
    position: u64,
}

/// The state of a file that has no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rotation {
    /// The file is unchanged.
    Same,
    /// The name refers to another file, since this instant or before. A process may still write
    /// to the old one.
    Renamed(Instant),
    /// The file is shorter than what was read of it, and is read again from its start.
    Cut,
}

impl Tail {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let file = input::open_growing(path)?;
        Ok(Self {
            path: path.to_owned(),
            name: Rc::from(path.display().to_string()),
            line: 0,
            lines: Lines::new(),
            growing: Growing { file, position: 0 },
            rotations: 0,
            renamed: None,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) const fn rotations(&self) -> u64 {
        self.rotations
    }

    /// Reads once, and returns the number of bytes read.
    pub(super) fn fill(&mut self) -> io::Result<usize> {
        self.lines.fill(&mut self.growing)
    }

    /// Checks if the name refers to another file, or if the file has been truncated.
    ///
    /// A name without a file is between two files. Call this at the end of the file.
    pub(super) fn check_rotation(&mut self) -> io::Result<Rotation> {
        let named = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Rotation::Same),
            named => named?,
        };
        let own = self.growing.file.metadata()?;
        let is_other = (named.dev(), named.ino()) != (own.dev(), own.ino());
        if is_other {
            return Ok(Rotation::Renamed(*self.renamed.get_or_insert_with(Instant::now)));
        }
        Ok(if own.len() < self.growing.position { Rotation::Cut } else { Rotation::Same })
    }

    /// Starts with the file that the name refers to now.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        let named = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        self.rotations = self.rotations.saturating_add(1);
        self.growing = Growing { file: named, position: 0 };
        self.line = 0;
        self.renamed = None;
        Ok(())
    }
}

impl Read for Growing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.position = self.position.saturating_add(u64::try_from(count).unwrap_or(0));
        Ok(count)
    }
}
