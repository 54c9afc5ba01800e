//! Stdout, buffered until a wait.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::fd::AsFd as _;

use super::gate::Gate;
use crate::failure::Failure;

const BUFFER: usize = 65_536;

/// Stdout without the standard library's own buffer, which would write each line by itself.
#[derive(Debug)]
pub(crate) struct Output(BufWriter<File>);

impl Output {
    pub(crate) fn open() -> Result<Self, Failure> {
        let stdout = io::stdout().as_fd().try_clone_to_owned().map_err(Failure::of_output)?;
        Ok(Self(BufWriter::with_capacity(BUFFER, File::from(stdout))))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.write_all(bytes).map_err(Failure::of_output)
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.0.flush().map_err(Failure::of_output)
    }
}

/// Flushes the output and the log before a wait for input, since their readers may depend on
/// them.
pub(crate) fn before_wait(output: &mut Output, gate: &mut Gate) -> Result<(), Failure> {
    output.flush()?;
    gate.before_wait()
}
