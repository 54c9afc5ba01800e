//! Input files and stdin, plain or gzip, detected by the first bytes.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;

use crate::failure::Failure;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const BUFFER: usize = 65_536;

/// The number of bytes read, as stored in the files.
pub(super) type Bytes = Rc<Cell<u64>>;

/// Opens a file, or stdin for `-`.
pub(super) fn open(path: &Path, bytes: &Bytes) -> Result<Box<dyn Read>, Failure> {
    let file = if is_stdin(path) {
        File::from(io::stdin().as_fd().try_clone_to_owned().map_err(|error| failure(path, error))?)
    } else {
        file(path)?
    };
    let mut file = Counted { inner: file, bytes: Rc::clone(bytes) };
    let (start, is_gzip) = start(&mut file).map_err(|error| failure(path, error))?;
    let whole = Cursor::new(start).chain(file);
    if !is_gzip {
        return Ok(Box::new(whole));
    }
    Ok(Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER, whole))))
}

/// Opens a file to be followed.
pub(super) fn open_growing(path: &Path) -> Result<File, Failure> {
    let file = file(path)?;
    let refuse = |what| Failure::argument("--follow", &path.display().to_string(), what);
    if !file.metadata().is_ok_and(|about| about.is_file()) {
        return Err(refuse("not a plain file, which could grow"));
    }
    let mut again = File::open(path).map_err(|error| failure(path, error))?;
    match start(&mut again) {
        Ok((_, true)) => Err(refuse("a compressed file does not grow")),
        Ok(_) => Ok(file),
        Err(error) => Err(failure(path, error)),
    }
}

/// Returns the total number of bytes, where it is known beforehand.
pub(super) fn total(paths: &[PathBuf]) -> Option<u64> {
    let sizes = paths.iter().map(|path| {
        let about = path.metadata().ok().filter(|about| about.is_file() && !is_stdin(path));
        about.map(|about| about.len())
    });
    sizes.sum()
}

pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

pub(super) fn failure(path: &Path, error: io::Error) -> Failure {
    let what = if is_stdin(path) { "the input".to_owned() } else { path.display().to_string() };
    Failure::Io(what, error)
}

fn file(path: &Path) -> Result<File, Failure> {
    let refuse =
        |what: &dyn std::fmt::Display| Failure::Usage(format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|error| refuse(&error))?;
    if file.metadata().is_ok_and(|about| about.is_dir()) {
        return Err(refuse(&"is a directory; it must be a log"));
    }
    Ok(file)
}

/// Returns the first two bytes, as far as they exist, and `true` if they are those of gzip.
fn start(input: &mut impl Read) -> io::Result<(Vec<u8>, bool)> {
    let mut start = Vec::new();
    input.take(2).read_to_end(&mut start)?;
    let is_gzip = start == GZIP;
    Ok((start, is_gzip))
}

struct Counted {
    inner: File,
    bytes: Bytes,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.bytes.set(self.bytes.get().saturating_add(u64::try_from(count).unwrap_or(0)));
        Ok(count)
    }
}
