//! A log of grants: one JSON record for each, one per line.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use rategate_core::verdict::Grant;

use crate::failure::Failure;

/// The file of `--log-json`.
#[derive(Debug)]
pub(crate) struct Log {
    name: String,
    file: BufWriter<File>,
}

impl Log {
    /// Creates the file, which must be neither a stream of this process nor the `trace`.
    pub(crate) fn create(path: &Path, trace: Option<&Path>) -> Result<Self, Failure> {
        let name = format!("--log-json {}", path.display());
        let refuse =
            |complaint| Err(Failure::argument("--log-json", &path.to_string_lossy(), complaint));
        if is_a_stream(path) {
            return refuse("this is what stdin or stdout is; write the log to a file of its own");
        }
        if trace.is_some_and(|trace| is_same_file(path, trace)) {
            return refuse("this is the trace of --shape; write the log to a file of its own");
        }
        match File::create(path) {
            Ok(file) => Ok(Self { name, file: BufWriter::new(file) }),
            Err(error) => Err(Failure::Io(name, error)),
        }
    }

    /// Writes a record. Where the number of commands at once follows them, it has that, too.
    pub(crate) fn record(
        &mut self,
        grant: &Grant,
        permits: u64,
        max_jobs: Option<u64>,
    ) -> Result<(), Failure> {
        let Grant { scheduled_ns, start_ns, .. } = grant;
        let wait_ns = grant.wait_ns();
        let written = write!(
            self.file,
            "{{\"scheduled_ns\":{scheduled_ns},\"start_ns\":{start_ns},\"wait_ns\":{wait_ns},\
             \"permits\":{permits}"
        );
        let written = written.and_then(|()| match max_jobs {
            Some(max_jobs) => writeln!(self.file, ",\"max_jobs\":{max_jobs}}}"),
            None => writeln!(self.file, "}}"),
        });
        written.map_err(|error| self.failure(error))
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.file.flush().map_err(|error| self.failure(error))
    }

    fn failure(&self, error: io::Error) -> Failure {
        Failure::Io(self.name.clone(), error)
    }
}

/// Returns `true` if the log would overwrite the input, or mix with the output. A device, such as
/// a terminal or `/dev/null`, has nothing to lose.
fn is_a_stream(path: &Path) -> bool {
    let Ok(log) = fs::metadata(path) else { return false };
    let streams =
        [io::stdin().as_fd().try_clone_to_owned(), io::stdout().as_fd().try_clone_to_owned()];
    streams.into_iter().flatten().map(File::from).any(|stream| {
        let is_same = |about: fs::Metadata| id(&about) == id(&log);
        !log.file_type().is_char_device() && stream.metadata().is_ok_and(is_same)
    })
}

fn is_same_file(path: &Path, other: &Path) -> bool {
    match (fs::metadata(path), fs::metadata(other)) {
        (Ok(one), Ok(other)) => id(&one) == id(&other),
        _ => false,
    }
}

fn id(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}
