//! Frames of HTTP/2 and messages of gRPC lie within the bytes, and no bytes cause a panic.

#![no_main]

use rategate_protocol::grpc::{self, PREFIX, Timeout};
use rategate_protocol::http2::{DATA, Frame, HEAD, MAX_FRAME, Reason};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    loop {
        match Frame::first(rest) {
            Ok(Ok(frame)) => {
                assert_eq!(frame.length(), frame.payload.len() + HEAD);
                assert!(frame.payload.len() <= MAX_FRAME && frame.stream < 1 << 31);
                examine(&frame);
                rest = &rest[frame.length()..];
            }
            Ok(Err(needed)) => {
                assert!(needed > rest.len() && needed <= MAX_FRAME + HEAD);
                break;
            }
            Err(reason) => {
                assert_eq!(reason, Reason::FrameSize);
                break;
            }
        }
    }
});

fn examine(frame: &Frame<'_>) {
    assert_eq!(frame.number().is_ok(), frame.payload.len() == 4);
    let Ok(payload) = frame.unpadded() else { return };
    assert!(payload.len() <= frame.payload.len());
    if let Some((priority, _)) = payload.split_first_chunk() {
        let _ = frame.depends_on_itself(*priority);
    }
    if frame.kind == DATA {
        match (grpc::only(payload, 1 << 10), grpc::length(payload, 1 << 10)) {
            (Ok(message), Ok(Some(length))) => assert_eq!(message.len() + PREFIX, length),
            (Ok(_), other) => panic!("a message of length {other:?}"),
            (Err(bad), _) => assert!(!bad.to_string().is_empty()),
        }
    } else {
        let _ = (Timeout::of(payload), grpc::is_grpc(payload), grpc::is_compressed(payload));
    }
}
