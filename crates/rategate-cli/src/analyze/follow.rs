//! A log as it grows, over its rotation by renaming and by truncation.

use std::fs::{self, File};
use std::io::{self, Read, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::input;
use crate::failure::Failure;

/// The file that a name stands for, and how far it has been read.
#[derive(Debug)]
pub(super) struct Tail {
    path: PathBuf,
    file: File,
    position: u64,
    /// How often another file has taken the name, or the file has been cut.
    pub(super) rotations: u64,
}

/// What became of a file that has no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing yet.
    Same,
    /// It goes on with a file from its start: what the old one ended with is a line.
    Anew,
}

impl Tail {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let file = input::open_growing(path)?;
        Ok(Self { path: path.to_owned(), file, position: 0, rotations: 0 })
    }

    /// Looks whether the name stands for another file by now, or the file is shorter than what was read of it. A
    /// name that stands for nothing is between two files.
    ///
    /// To be asked at the end of the file. Whoever renames a log goes on writing to it for a moment, so the old
    /// file has to be read to its end once more after the new one is there: see [`Self::go_on`].
    pub(super) fn turn(&mut self) -> io::Result<Turn> {
        let named = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Turn::Same),
            named => named?,
        };
        let own = self.file.metadata()?;
        let is_other = (named.dev(), named.ino()) != (own.dev(), own.ino());
        Ok(if is_other || own.len() < self.position { Turn::Anew } else { Turn::Same })
    }

    /// Begins with the file that the name stands for now.
    pub(super) fn go_on(&mut self) -> io::Result<()> {
        let named = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        self.rotations = self.rotations.saturating_add(1);
        self.file = named;
        self.position = 0;
        self.file.rewind()
    }
}

impl Read for Tail {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.position = self.position.saturating_add(u64::try_from(count).unwrap_or(0));
        Ok(count)
    }
}
