//! Calls: a head, data, and perhaps trailers.

use super::{GRPC, PROTOCOL, Reply, Reset, Row, call_with, headed};
use crate::rls::abuse::{PATH, begun_call, field, frame, head, right_head, right_message};

/// Section 8.1.
pub(super) fn rows() -> Vec<Row> {
    let ended_by = |flags, block: &[u8]| {
        [begun_call(1), frame(0, 0, 1, &right_message()), frame(1, flags, 1, block)].concat()
    };
    let all = right_message().len();
    let length = |length: usize| length.to_string();
    let with_length =
        |reported: usize, bytes| call_with(&[("content-length", length(reported).as_str())], bytes);
    let fragment = [
        frame(1, 4, 1, &head(PATH, &[GRPC, ("content-length", &length(all))])),
        frame(0, 0, 1, &right_message()[..9]),
    ]
    .concat();
    let then = |frame: Vec<u8>| [fragment.clone(), frame].concat();
    let method = |method: &str| {
        headed(&[&field(":method", method), b"\x86", &field(":path", PATH), &field(GRPC.0, GRPC.1)])
    };
    let path = field(":path", PATH);
    vec![
        ("generic/4/1", "a GET", method("GET"), Reply),
        ("generic/4/2", "a HEAD", method("HEAD"), Reply),
        ("generic/4/4", "trailers", ended_by(5, &field("x", "y")), Reply),
        ("http2/8.1/1", "trailers and no end", ended_by(4, &field("x", "y")), Reset(PROTOCOL)),
        ("", "a head as trailers", ended_by(5, &right_head()), Reset(PROTOCOL)),
        ("http2/8.1.2.1/3", "a path in trailers", ended_by(5, &path), Reset(PROTOCOL)),
        ("", "wrong trailers", ended_by(5, &field("X", "y")), Reset(PROTOCOL)),
        ("", "the length that was announced", with_length(all, all), Reply),
        ("", "less", with_length(all, all - 1), Reset(PROTOCOL)),
        ("http2/8.1.2.6/1", "more", with_length(all - 1, all), Reset(PROTOCOL)),
        ("", "less in parts", then(frame(0, 1, 1, &[])), Reset(PROTOCOL)),
        ("", "less and trailers", then(frame(1, 5, 1, &[])), Reset(PROTOCOL)),
        (
            "http2/8.1.2.6/2",
            "more in parts",
            then(frame(0, 0, 1, &right_message())),
            Reset(PROTOCOL),
        ),
        (
            "",
            "nothing, where something was announced",
            headed(&[&head(PATH, &[GRPC, ("content-length", "5")])]),
            Reset(PROTOCOL),
        ),
        ("", "no length", call_with(&[("content-length", "-1")], all), Reset(PROTOCOL)),
        (
            "",
            "two lengths",
            call_with(&[("content-length", "5"), ("content-length", &length(all))], all),
            Reset(PROTOCOL),
        ),
    ]
}
