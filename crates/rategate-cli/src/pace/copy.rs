//! Paced copying of lines from stdin to stdout, a permit each: any bytes, any length, unchanged.

use super::gate::Gate;
use super::input::{Input, Ready};
use super::output::{Output, before_wait};
use crate::failure::Failure;

/// Copies until the end of the input, or until a stop is requested; a line begun is completed.
pub(crate) fn lines(input: &mut Input, gate: &mut Gate) -> Result<(), Failure> {
    let mut output = Output::open()?;
    let copied = copy(input, gate, &mut output);
    // Data that has passed is written, however the copying ended.
    let flushed = output.flush();
    copied.and(flushed)
}

fn copy(input: &mut Input, gate: &mut Gate, output: &mut Output) -> Result<(), Failure> {
    while input.begin(|| before_wait(output, gate))? == Ready::Bytes {
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
