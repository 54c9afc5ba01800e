//! Access logs: each line is read as it was written, alone as within a log, and no bytes cause a
//! panic.

#![no_main]

#[path = "../../crates/rategate-analyze/tests/laws/lines.rs"]
mod laws;
#[path = "../../crates/rategate-analyze/tests/laws/written.rs"]
mod written;

use laws::{Reading, hold};
use written::{Parts, hold_written};

/// The settings by a number, the length of pieces, the numbers of a written line, and the log. Its
/// lines are the texts of the written one.
type Input<'a> = (u8, u8, (u64, i16, u16, u64), &'a [u8]);

libfuzzer_sys::fuzz_target!(|input: Input<'_>| {
    let (number, piece, (seconds, offset, status, bytes), log) = input;
    let reading = Reading::of(number);
    hold(&reading, log, usize::from(piece));
    let mut lines = log.split(|byte| *byte == b'\n');
    let mut text = || lines.next().unwrap_or_default();
    let parts = Parts {
        seconds: 86_400 + seconds % 18_000_000_000,
        offset_minutes: i64::from(offset) % 841,
        status,
        bytes,
        texts: [text(), text(), text(), text()],
    };
    hold_written(&reading.key, &parts);
});
