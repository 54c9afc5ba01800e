//! Paced copying of bytes from stdin to stdout, a permit each, in chunks.

use super::gate::Gate;
use super::input::{Input, Ready};
use super::output::{Output, before_wait};
use crate::failure::Failure;

/// Copies until the end of the input, or until a stop is requested, at most `chunk` bytes at
/// once.
pub(crate) fn bytes(input: &mut Input, gate: &mut Gate, chunk: u64) -> Result<(), Failure> {
    let mut output = Output::open()?;
    let chunk = usize::try_from(chunk).unwrap_or(usize::MAX);
    let copied = copy(input, gate, &mut output, chunk);
    let flushed = output.flush();
    copied.and(flushed)
}

fn copy(
    input: &mut Input,
    gate: &mut Gate,
    output: &mut Output,
    chunk: usize,
) -> Result<(), Failure> {
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
}
