//! One JSON record for each grant, one to a line.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use rategate::Grant;

use crate::failure::Failure;

/// The file of `--log-json`.
#[derive(Debug)]
pub(crate) struct Log {
    name: String,
    file: BufWriter<File>,
}

impl Log {
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let name = format!("--log-json {}", path.display());
        match File::create(path) {
            Ok(file) => Ok(Self { name, file: BufWriter::new(file) }),
            Err(error) => Err(Failure::Io(name, error)),
        }
    }

    pub(crate) fn record(&mut self, grant: &Grant, permits: u64) -> Result<(), Failure> {
        let (scheduled_ns, start_ns) = (grant.scheduled_ns(), grant.promised_ns());
        let wait_ns = start_ns.saturating_sub(scheduled_ns);
        let written = writeln!(
            self.file,
            r#"{{"scheduled_ns":{scheduled_ns},"start_ns":{start_ns},"wait_ns":{wait_ns},"permits":{permits}}}"#
        );
        written.map_err(|error| self.failure(error))
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.file.flush().map_err(|error| self.failure(error))
    }

    fn failure(&self, error: io::Error) -> Failure {
        Failure::Io(self.name.clone(), error)
    }
}
