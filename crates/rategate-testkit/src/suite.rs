//! The files of a suite of scenarios, played on one engine after the other, and a record of which
//! engine played which.

use std::fmt::{Display, Write as _};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use crate::scenario::Scenario;

/// The variable with the folder in which [`Played::record`] writes.
pub const RECORDS: &str = "RATEGATE_CONFORMANCE";

/// The files that an engine played, and those that it skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Played<R> {
    /// The names of the files played.
    pub played: Vec<String>,
    /// The names of the files skipped, each with the reason.
    pub skipped: Vec<(String, R)>,
}

/// Plays each scenario file of a folder, in the order of their names. `play` takes the name of the
/// file and its scenario, and returns the reason if it skips it.
///
/// # Errors
///
/// The error of a file that cannot be read, or [`io::ErrorKind::InvalidData`] for one that is no
/// scenario.
pub fn each<R>(
    folder: impl AsRef<Path>,
    mut play: impl FnMut(&str, Scenario) -> Result<(), R>,
) -> io::Result<Played<R>> {
    let files = fs::read_dir(folder)?.map(|file| Ok(file?.path()));
    let mut files: Vec<PathBuf> = files.collect::<io::Result<_>>()?;
    files.sort();
    let mut played = Played { played: Vec::new(), skipped: Vec::new() };
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let scenario = Scenario::parse(&fs::read_to_string(&file)?).map_err(|error| {
            let message = format!("{}: {error}", file.display());
            io::Error::new(io::ErrorKind::InvalidData, message)
        })?;
        match play(&name, scenario) {
            Ok(()) => played.played.push(name),
            Err(reason) => played.skipped.push((name, reason)),
        }
    }
    Ok(played)
}

impl<R: Display> Played<R> {
    /// Writes which files `engine` played, and why it skipped others, as `ENGINE.txt` into the
    /// folder that the variable [`RECORDS`] names. Writes nothing without that variable.
    ///
    /// Each line has a file's name and, behind a tab, the reason if it was skipped.
    ///
    /// # Errors
    ///
    /// The error of the file that cannot be written.
    pub fn record(&self, engine: &str) -> io::Result<()> {
        let Some(folder) = env::var_os(RECORDS).map(PathBuf::from) else { return Ok(()) };
        let mut lines = String::new();
        for name in &self.played {
            // A string takes whatever is written.
            let _ = writeln!(lines, "{name}\t");
        }
        for (name, reason) in &self.skipped {
            let _ = writeln!(lines, "{name}\t{reason}");
        }
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("{engine}.txt")), lines)
    }
}
