//! A log as it grows, over its rotation by renaming and by truncation.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use super::input;
use super::log::Lines;
use crate::failure::Failure;

/// The file that a name stands for, and how far it has been read.
#[derive(Debug)]
pub(super) struct Tail {
    path: PathBuf,
    /// The same for people.
    pub(super) name: Rc<str>,
    /// How many lines of the file have been read, and what of it is no line yet.
    pub(super) line: u64,
    pub(super) lines: Lines,
    growing: Growing,
    /// How often another file has taken the name, or the file has been cut.
    rotations: u64,
    /// When the name was first seen to stand for another file.
    renamed: Option<Instant>,
}

/// A file, and how far it has been read.
#[derive(Debug)]
struct Growing {
    file: File,
    position: u64,
}

/// What became of a file that has no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing yet.
    Same,
    /// The name stands for another file, since this instant or one before. Who renamed it may still write to it.
    Renamed(Instant),
    /// It is shorter than what was read of it, and goes on from its start.
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

    /// Reads once, and returns how many bytes came.
    pub(super) fn fill(&mut self) -> io::Result<usize> {
        self.lines.fill(&mut self.growing)
    }

    /// Looks whether the name stands for another file by now, or the file is shorter than what was read of it. A
    /// name that stands for nothing is between two files.
    ///
    /// To be asked at the end of the file.
    pub(super) fn turn(&mut self) -> io::Result<Turn> {
        let named = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Turn::Same),
            named => named?,
        };
        let own = self.growing.file.metadata()?;
        let is_other = (named.dev(), named.ino()) != (own.dev(), own.ino());
        if is_other {
            return Ok(Turn::Renamed(*self.renamed.get_or_insert_with(Instant::now)));
        }
        Ok(if own.len() < self.growing.position { Turn::Cut } else { Turn::Same })
    }

    /// Begins with the file that the name stands for now.
    pub(super) fn go_on(&mut self) -> io::Result<()> {
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
