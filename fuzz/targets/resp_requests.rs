//! Commands of Redis' protocol are the same however the bytes are split, and within the bounds.

#![no_main]

#[path = "../../crates/rategate-server/tests/resp/codec_laws.rs"]
mod laws;

use rategate_server::protocol::resp::Bounds;

libfuzzer_sys::fuzz_target!(|input: (u8, bool, &[u8])| {
    let (piece, unauthenticated, bytes) = input;
    let bounds = Bounds { frame_bytes: 512, words: 8, unauthenticated };
    let (pieces, buffered) = laws::parse_pieces(bytes, &[usize::from(piece)], &bounds);
    let (whole, _) = laws::parse_pieces(bytes, &[usize::MAX], &bounds);
    assert_eq!(pieces, whole);
    // A frame and the start of a length, or what came in one piece.
    assert!(buffered <= 512 + 256, "{buffered} bytes are kept");
});
