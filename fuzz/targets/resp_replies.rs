//! Replies of Redis' protocol are the same however the bytes are split.

#![no_main]

#[path = "../../crates/rategate-redis/tests/reply_laws.rs"]
mod laws;

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let whole = laws::replies(bytes, &[usize::MAX]);
    assert_eq!(laws::replies(bytes, &[usize::from(piece)]), whole);
});
