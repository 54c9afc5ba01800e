//! The start of a connection, its settings, and its frames.

use super::{
    Bytes, Confirmed, FLOW_CONTROL, FRAME_SIZE, Goaway, Nothing, PROTOCOL, Reply, Reset, Row,
};
use crate::rls::abuse::{PREFACE, begun_call, call, frame, right_head};

fn settings_frame(name: u8, value: u32) -> Vec<u8> {
    frame(4, 0, 0, &[&[0, name], &value.to_be_bytes()[..]].concat())
}

fn on_call(frame: Vec<u8>) -> Vec<u8> {
    [begun_call(1), frame].concat()
}

/// Section 3.4: the first bytes of a connection.
pub(super) fn starts() -> Vec<Row> {
    let after = |first| [PREFACE, first, &frame(4, 0, 0, &[])].concat();
    let streams = [PREFACE, &frame(4, 0, 0, &[0, 3, 0, 0, 0, 9])].concat();
    vec![
        ("generic/1/1 http2/3.5/1", "settings", streams, Confirmed),
        (
            "http2/3.5/2",
            "another text",
            b"INVALID CONNECTION PREFACE\r\n\r\n".to_vec(),
            Goaway(PROTOCOL),
        ),
        ("", "a call", after(&call(1)), Goaway(PROTOCOL)),
        ("", "a ping", after(&frame(6, 0, 0, &[0; 8])), Goaway(PROTOCOL)),
        (
            "",
            "settings that were never sent, confirmed",
            after(&frame(4, 1, 0, &[])),
            Goaway(PROTOCOL),
        ),
        ("", "settings of a stream", after(&frame(4, 0, 1, &[])), Goaway(PROTOCOL)),
        ("", "a window", after(&frame(8, 0, 0, &[0, 0, 0, 1])), Goaway(PROTOCOL)),
        ("", "a priority", after(&frame(2, 0, 1, &[0; 5])), Goaway(PROTOCOL)),
        ("", "a farewell", after(&frame(7, 0, 0, &[0; 8])), Goaway(PROTOCOL)),
        ("", "nothing known", after(&frame(0xbe, 0, 0, &[])), Goaway(PROTOCOL)),
    ]
}

/// Sections 4.1, 4.2 and 5.5.
pub(super) fn frames() -> Vec<Row> {
    let begun = || frame(1, 0, 1, &right_head());
    let long = |kind, flags| frame(kind, flags, 1, &vec![0; 16_385]);
    vec![
        (
            "http2/4.1/1 http2/5.5/1",
            "a frame of no known kind",
            frame(0xbe, 0xff, 1, &[0; 8]),
            Nothing,
        ),
        ("http2/4.1/2", "flags that mean nothing", frame(6, 0xfe, 0, &[0; 8]), Confirmed),
        ("http2/4.1/3", "the bit that is reserved", frame(6, 0, 1 << 31, &[0; 8]), Confirmed),
        ("http2/4.2/1", "the longest frame", on_call(frame(0, 1, 1, &[1; 16_384])), Reply),
        ("", "the longest frame, and no end", on_call(frame(0, 0, 1, &[1; 16_384])), Reply),
        ("http2/4.2/2", "a longer one", on_call(long(0, 0)), Goaway(FRAME_SIZE)),
        ("http2/4.2/3", "a longer head", long(1, 4), Goaway(FRAME_SIZE)),
        (
            "http2/4.3/2 http2/6.2/1",
            "a priority within a head",
            [begun(), frame(2, 0, 1, &[0; 5])].concat(),
            Goaway(PROTOCOL),
        ),
        (
            "http2/4.3/3 http2/6.2/2",
            "a head within a head",
            [begun(), begun_call(3)].concat(),
            Goaway(PROTOCOL),
        ),
        (
            "http2/5.5/2",
            "nothing known within a head",
            [begun(), frame(0xbe, 0, 1, &[])].concat(),
            Goaway(PROTOCOL),
        ),
    ]
}

/// Section 6.5.
pub(super) fn settings() -> Vec<Row> {
    let set = settings_frame;
    let windows = |first: u32, then: &[u8]| [set(4, first), call(1), then.to_vec()].concat();
    let more = |bytes| frame(8, 0, 1, &[0, 0, 0, bytes]);
    let two = frame(4, 0, 0, &[0, 4, 0, 0, 0, 100, 0, 4, 0, 0, 0, 1]);
    vec![
        (
            "http2/6.5/1",
            "settings confirmed with more",
            frame(4, 1, 0, &[0; 6]),
            Goaway(FRAME_SIZE),
        ),
        ("http2/6.5/2", "settings of a stream", frame(4, 0, 1, &[]), Goaway(PROTOCOL)),
        ("http2/6.5/3", "settings cut short", frame(4, 0, 0, &[0; 7]), Goaway(FRAME_SIZE)),
        ("http2/6.5.2/1", "a push that may be or not", set(2, 2), Goaway(PROTOCOL)),
        (
            "http2/6.5.2/2 http2/6.9.2/3",
            "a window over the widest",
            set(4, 1 << 31),
            Goaway(FLOW_CONTROL),
        ),
        ("http2/6.5.2/3", "frames under the shortest", set(5, 16_383), Goaway(PROTOCOL)),
        ("http2/6.5.2/4", "frames over the longest", set(5, 1 << 24), Goaway(PROTOCOL)),
        ("http2/6.5.2/5", "no known setting", set(0xff, u32::MAX), Confirmed),
        ("generic/3.5/1 http2/6.5.3/2", "a setting", set(3, 100), Confirmed),
        ("http2/6.5.3/1", "a setting twice", [two, call(1)].concat(), Bytes(1)),
        ("http2/6.9.1/1", "a window of a byte", windows(1, &[]), Bytes(1)),
        ("http2/6.9.2/1", "a window of none, then of one", windows(0, &set(4, 1)), Bytes(1)),
        (
            "http2/6.9.2/2",
            "a window that ends below none",
            windows(3, &[set(4, 2), more(2)].concat()),
            Bytes(4),
        ),
        ("generic/2/2", "a window after the end of the call", windows(0, &more(5)), Bytes(5)),
        (
            "generic/2/3",
            "a priority after the end of the call",
            windows(0, &[frame(2, 0, 1, &[0, 0, 0, 0, 255]), more(5)].concat()),
            Bytes(5),
        ),
        (
            "",
            "windows over the widest by settings",
            on_call([frame(8, 0, 1, &[0, 0, 0, 1]), set(4, 0x7fff_ffff)].concat()),
            Goaway(FLOW_CONTROL),
        ),
    ]
}

/// Sections 6.6 to 6.9, and 7.
pub(super) fn others() -> Vec<Row> {
    let widest = 0x7fff_ffff_u32.to_be_bytes();
    let window = |stream| frame(8, 0, stream, &[0, 0, 0, 1]);
    vec![
        ("http2/8.2/1", "a push", frame(5, 4, 1, &[0; 4]), Goaway(PROTOCOL)),
        ("generic/3.7/1 http2/6.7/1", "a ping", frame(6, 0, 0, b"its text"), Confirmed),
        ("http2/6.7/2", "an answer to no ping", frame(6, 1, 0, &[0; 8]), Nothing),
        (
            "http2/6.7/3 http2/5.4.1/1 http2/5.4.1/2",
            "a ping of a stream",
            frame(6, 0, 1, &[0; 8]),
            Goaway(PROTOCOL),
        ),
        ("http2/6.7/4", "a long ping", frame(6, 0, 0, &[0; 9]), Goaway(FRAME_SIZE)),
        ("http2/6.8/1", "a farewell of a stream", frame(7, 0, 1, &[0; 8]), Goaway(PROTOCOL)),
        ("", "a short farewell", frame(7, 0, 0, &[0; 7]), Goaway(FRAME_SIZE)),
        ("generic/3.8/1", "a farewell", frame(7, 0, 0, &[0; 8]), Nothing),
        ("http2/7/1", "a farewell for no known reason", frame(7, 0, 0, &[0xff; 12]), Nothing),
        ("generic/3.9/1", "a window", window(0), Nothing),
        (
            "generic/3.9/2",
            "a window of a call",
            [begun_call(1), window(1), frame(0, 1, 1, &[])].concat(),
            Reply,
        ),
        ("http2/6.9/1", "no more", frame(8, 0, 0, &[0; 4]), Goaway(PROTOCOL)),
        ("http2/6.9/2", "no more on a stream", on_call(frame(8, 0, 1, &[0; 4])), Goaway(PROTOCOL)),
        (
            "",
            "no more after the end",
            [call(1), frame(8, 0, 1, &[0; 4])].concat(),
            Goaway(PROTOCOL),
        ),
        ("http2/6.9/3", "a short window", frame(8, 0, 0, &[0; 3]), Goaway(FRAME_SIZE)),
        ("", "a long window", on_call(frame(8, 0, 1, &[0; 5])), Goaway(FRAME_SIZE)),
        ("http2/6.9.1/2", "over the widest", frame(8, 0, 0, &widest), Goaway(FLOW_CONTROL)),
        (
            "http2/6.9.1/3",
            "over the widest on a stream",
            on_call(frame(8, 0, 1, &widest)),
            Reset(FLOW_CONTROL),
        ),
    ]
}
