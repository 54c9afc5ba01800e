//! The deny list: who is not welcome, and until when, in a file that others read.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::key::{MAX_NAME, escaped};
use crate::failure::Failure;

/// What the first line of a file says.
const HEADING: &str = "# rategate deny list 1";
const SECOND_NS: u64 = 1_000_000_000;

/// A list, and the file that it is kept in.
///
/// Whoever consults it reads the file, or a name's line in it, and turns the caller away while the clock of the wall
/// shows less than the line's number. A file is never half written: the new one is complete before it takes the old
/// one's name.
#[derive(Debug)]
pub(super) struct Gate {
    path: PathBuf,
    until_s: BTreeMap<String, u64>,
    most: usize,
    /// How many denials found no place in the list, or had too long a name for it.
    pub(super) left_out: u64,
    is_changed: bool,
}

impl Gate {
    /// The list of a file that was there before, or an empty one.
    pub(super) fn open(path: &Path, most: usize) -> Result<Self, Failure> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => format!("{HEADING}\n"),
            Err(error) => return Err(Failure::Io(format!("--gate {}", path.display()), error)),
        };
        let refuse = |line: usize, what: &str| {
            Failure::Usage(format!("--gate {}:{line}: {what}", path.display()))
        };
        let mut lines = text.lines();
        if lines.next() != Some(HEADING) {
            return Err(refuse(1, "not a deny list of this version; it begins otherwise"));
        }
        let mut until_s = BTreeMap::new();
        for (line, number) in lines.zip(2..) {
            let entry = line.split_once('\t').filter(|(_, name)| !name.is_empty());
            let entry = entry.and_then(|(until_s, name)| Some((until_s.parse().ok()?, name)));
            let (until, name) =
                entry.ok_or_else(|| refuse(number, "not a second, a tab and a name"))?;
            until_s.insert(name.to_owned(), until);
        }
        // Written at once, so that a place that cannot be written to is told before the work.
        let gate = Self { path: path.to_owned(), until_s, most, left_out: 0, is_changed: true };
        gate.write().map_err(|error| gate.failure(error))?;
        Ok(gate)
    }

    /// Closes the gate to a caller until an instant of Unix time; a later one counts.
    pub(super) fn deny(&mut self, name: &[u8], until_ns: u64) {
        if name.len() > MAX_NAME {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        let until = until_ns.div_ceil(SECOND_NS);
        let name = escaped(name);
        let is_full = self.until_s.len() >= self.most;
        match self.until_s.get_mut(&name) {
            Some(known) if *known >= until => return,
            Some(known) => *known = until,
            None if is_full => {
                self.left_out = self.left_out.saturating_add(1);
                return;
            }
            None => {
                self.until_s.insert(name, until);
            }
        }
        self.is_changed = true;
    }

    /// Lets those in whose time has come, and brings the file up to date.
    pub(super) fn publish(&mut self, now_ns: u64) -> Result<(), Failure> {
        let before = self.until_s.len();
        self.until_s.retain(|_, until| until.saturating_mul(SECOND_NS) > now_ns);
        if self.is_changed || self.until_s.len() != before {
            self.write().map_err(|error| self.failure(error))?;
            self.is_changed = false;
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.until_s.len()
    }

    fn write(&self) -> io::Result<()> {
        let lines = self.until_s.iter().map(|(name, until)| format!("{until}\t{name}\n"));
        let text: String = std::iter::once(format!("{HEADING}\n")).chain(lines).collect();
        let mut beside = OsString::from(&self.path);
        beside.push(".new");
        let mut file = File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        // A name that survives a power cut has to have its content with it.
        file.sync_data()?;
        fs::rename(&beside, &self.path)
    }

    fn failure(&self, error: io::Error) -> Failure {
        Failure::Io(format!("--gate {}", self.path.display()), error)
    }
}
