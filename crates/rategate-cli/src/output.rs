//! Output of the commands, and the files they read.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use crate::failure::Failure;

/// Prints text to stdout.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()).map_err(Failure::of_output)
}

/// Writes text to the file of `--out`, or prints it.
pub(crate) fn print_to(out: Option<&Path>, text: &str) -> Result<(), Failure> {
    let Some(path) = out else { return print(text) };
    fs::write(path, text).map_err(|error| Failure::Io(format!("--out {}", path.display()), error))
}

/// Opens a file that is named by an argument, and refuses a folder; `kind` is what it must be.
pub(crate) fn open(path: &Path, kind: &str) -> Result<File, Failure> {
    let file = File::open(path).map_err(|error| refused(path, error))?;
    if file.metadata().is_ok_and(|about| about.is_dir()) {
        return Err(refused(path, format_args!("is a directory; it must be {kind}")));
    }
    Ok(file)
}

/// Creates the error of a file that cannot be used.
pub(crate) fn refused(path: &Path, why: impl Display) -> Failure {
    Failure::Usage(format!("{}: {why}", path.display()))
}
