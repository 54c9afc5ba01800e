//! Replies of Redis' protocol are the same however the bytes are split, and as they are written.

#![no_main]

#[path = "../../crates/rategate-protocol/tests/laws/resp.rs"]
mod laws;

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let whole = laws::replies(bytes, &[usize::MAX]);
    assert_eq!(laws::replies(bytes, &[usize::from(piece)]), whole);
    if let Ok(values) = whole {
        let written = laws::written(&values);
        // A line end within an error becomes a blank.
        let again = laws::replies(&written, &[usize::MAX]).unwrap();
        assert_eq!(laws::written(&again), written);
        assert_eq!(again.len(), values.len());
    }
});
