//! Paced copying from stdin to stdout: a permit for each line, of any bytes and length, or for each
//! byte, in chunks.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::fd::AsFd as _;

use super::gate::Gate;
use super::input::{Input, Ready};
use crate::failure::Failure;

const BUFFER: usize = 65_536;

/// Stdout, buffered until a wait, without the standard library's own buffer, which would write
/// each line by itself.
#[derive(Debug)]
struct Output(BufWriter<File>);

impl Output {
    fn open() -> Result<Self, Failure> {
        let stdout = io::stdout().as_fd().try_clone_to_owned().map_err(Failure::of_output)?;
        Ok(Self(BufWriter::with_capacity(BUFFER, File::from(stdout))))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.write_all(bytes).map_err(Failure::of_output)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.0.flush().map_err(Failure::of_output)
    }
}

/// Copies lines until the end of the input or of the load, or until a stop is requested; a line
/// begun is completed.
pub(crate) fn lines(input: &mut Input, gate: &mut Gate) -> Result<(), Failure> {
    flushed(|output| {
        while !gate.is_over() && input.begin(|| before_wait(output, gate))? == Ready::Bytes {
            if !gate.pass(1, || output.flush())? {
                break;
            }
            while !rest_of_line(input, output)? {
                if input.resume(|| before_wait(output, gate))? == Ready::End {
                    break;
                }
            }
        }
        Ok(())
    })
}

/// Copies bytes until the end of the input, or until a stop is requested, at most `chunk` at
/// once.
pub(crate) fn bytes(input: &mut Input, gate: &mut Gate, chunk: u64) -> Result<(), Failure> {
    let chunk = usize::try_from(chunk).unwrap_or(usize::MAX);
    flushed(|output| {
        while input.begin(|| before_wait(output, gate))? == Ready::Bytes {
            let bytes = input.bytes();
            let bytes = bytes.get(..chunk).unwrap_or(bytes);
            let length = bytes.len();
            if !gate.pass(u64::try_from(length).unwrap_or(u64::MAX), || output.flush())? {
                break;
            }
            output.write(bytes)?;
            input.consume(length);
        }
        Ok(())
    })
}

/// Copies to stdout. Data that has passed is written, however the copying ends.
fn flushed(copy: impl FnOnce(&mut Output) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut output = Output::open()?;
    let copied = copy(&mut output);
    let flushed = output.flush();
    copied.and(flushed)
}

/// Flushes the output and the log before a wait for input, since their readers may depend on
/// them.
fn before_wait(output: &mut Output, gate: &mut Gate) -> Result<(), Failure> {
    output.flush()?;
    gate.before_wait()
}

/// Copies the available part of the current line. Returns `true` if that included its newline.
fn rest_of_line(input: &mut Input, output: &mut Output) -> Result<bool, Failure> {
    let bytes = input.bytes();
    let newline = bytes.iter().position(|byte| *byte == b'\n');
    let length = newline.map_or(bytes.len(), |at| at.saturating_add(1));
    output.write(bytes.get(..length).unwrap_or(bytes))?;
    input.consume(length);
    Ok(newline.is_some())
}
