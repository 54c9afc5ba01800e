//! The states of streams, and their frames.

use super::{
    FRAME_SIZE, GRPC, Goaway, Nothing, PROTOCOL, REFUSED_STREAM, Reply, Reset, Row, STREAM_CLOSED,
};
use crate::rls::abuse::{
    PATH, begun_call, call, call_without_answer, field, frame, head, right_head, right_message,
};

fn data(stream: u32) -> Vec<u8> {
    frame(0, 1, stream, b"\0\0\0\0\0")
}

fn reset(stream: u32) -> Vec<u8> {
    frame(3, 0, stream, &[0, 0, 0, 8])
}

fn window(stream: u32) -> Vec<u8> {
    frame(8, 0, stream, &[0, 0, 0, 1])
}

fn priority(stream: u32) -> Vec<u8> {
    frame(2, 0, stream, &[0; 5])
}

fn trailers(stream: u32) -> Vec<u8> {
    frame(1, 5, stream, &field("x", "y"))
}

/// Section 5.1.
pub(super) fn states() -> Vec<Row> {
    let many = (0..257).flat_map(|n| begun_call(1 + 2 * n)).chain(reset(3)).collect();
    let mut rows = vec![
        ("http2/5.1/1", "idle: data", data(1), Goaway(PROTOCOL)),
        ("http2/5.1/2 http2/6.4/2", "idle: a reset", reset(1), Goaway(PROTOCOL)),
        ("http2/5.1/3", "idle: a window", window(1), Goaway(PROTOCOL)),
        ("http2/5.1/4", "idle: a continuation", frame(9, 4, 1, &right_head()), Goaway(PROTOCOL)),
        ("generic/2/1", "idle: a priority", priority(1), Nothing),
        (
            "generic/3.3/5",
            "idle: a priority, then a lower call",
            [priority(9), call(1)].concat(),
            Reply,
        ),
        ("", "an even number: data", [call(3), data(2)].concat(), Goaway(PROTOCOL)),
        ("", "an even number: a reset", [call(3), reset(2)].concat(), Goaway(PROTOCOL)),
        ("http2/5.1.1/1", "an even number: a head", begun_call(2), Goaway(PROTOCOL)),
        ("http2/5.1.1/2", "a lower number: a head", [call(5), call(3)].concat(), Goaway(PROTOCOL)),
        ("", "a lower number: data", [call(5), data(3)].concat(), Goaway(STREAM_CLOSED)),
        ("http2/5.1.2/1", "a stream over the most", many, Reset(REFUSED_STREAM)),
    ];
    let states = [
        // The answer of a watch continues after its request has ended.
        (
            "half closed",
            call_without_answer(1),
            [STREAM_CLOSED, STREAM_CLOSED],
            Reply,
            ["http2/5.1/5 http2/6.1/2", "http2/5.1/6", "http2/5.1/7", "", "generic/2/4"],
        ),
        (
            "closed by both ends",
            call(1),
            [STREAM_CLOSED, PROTOCOL],
            Reply,
            ["http2/5.1/11", "http2/5.1/12", "http2/5.1/13", "generic/2/5", ""],
        ),
        (
            "given up by the caller",
            [begun_call(1), reset(1)].concat(),
            [STREAM_CLOSED, PROTOCOL],
            Nothing,
            ["http2/5.1/8", "http2/5.1/9", "http2/5.1/10", "", ""],
        ),
        // The caller has confirmed the end of a call that was refused before it was complete.
        (
            "refused, and given up",
            [frame(1, 4, 1, &head(PATH, &[])), reset(1)].concat(),
            [STREAM_CLOSED, PROTOCOL],
            Reply,
            [""; 5],
        ),
    ];
    for (what, before, [of_data, of_head], reply, cases) in states {
        let after = |frame| [before.clone(), frame].concat();
        rows.extend([
            (cases[0], what, after(data(1)), Goaway(of_data)),
            ("", what, after(frame(0, 0, 1, &[])), Goaway(of_data)),
            ("", what, after(trailers(1)), Goaway(of_head)),
            (cases[1], what, after(begun_call(1)), Goaway(of_head)),
            (cases[2], what, after(frame(9, 4, 1, &right_head())), Goaway(PROTOCOL)),
            ("", what, after(window(1)), reply),
            (cases[3], what, after(priority(1)), reply),
            (cases[4], what, after(reset(1)), reply),
        ]);
    }
    // Answered before the request was complete: the rest of it is ignored.
    let refused = || frame(1, 4, 1, &head(PATH, &[]));
    rows.extend([
        ("", "refused: data", [refused(), data(1)].concat(), Reply),
        ("", "refused: trailers", [refused(), trailers(1)].concat(), Reply),
        ("", "refused: a reset", [refused(), reset(1)].concat(), Reply),
        ("", "refused: a window", [refused(), window(1)].concat(), Reply),
    ]);
    rows
}

/// Sections 6.1 to 6.4, and 5.3 of RFC 7540.
pub(super) fn frames() -> Vec<Row> {
    let on_call = |frame: Vec<u8>| [begun_call(1), frame].concat();
    let with_priority = |priority: &[u8]| frame(1, 0x25, 1, &[priority, &right_head()].concat());
    let then_call = |frame: Vec<u8>| [frame, call(1)].concat();
    let message = right_message();
    let (first, rest) = message.split_at(9);
    let padded = [&[3], &message[..], &[0; 3]].concat();
    vec![
        ("generic/3.1/1 generic/3.2/1 generic/4/3", "a call", call(1), Reply),
        (
            "generic/3.1/2",
            "data in two frames",
            on_call([frame(0, 0, 1, first), frame(0, 1, 1, rest)].concat()),
            Reply,
        ),
        ("generic/3.1/3", "padded data", on_call(frame(0, 9, 1, &padded)), Reply),
        ("http2/6.1/1", "data of no stream", frame(0, 0, 0, &[0; 5]), Goaway(PROTOCOL)),
        (
            "http2/6.1/3",
            "more padding than data",
            on_call(frame(0, 8, 1, &[2, 0])),
            Goaway(PROTOCOL),
        ),
        ("", "padding without its length", on_call(frame(0, 8, 1, &[])), Goaway(FRAME_SIZE)),
        ("", "nothing but padding", on_call(frame(0, 8, 1, &[1, 0])), Nothing),
        ("http2/6.2/3", "a head of no stream", frame(1, 5, 0, &right_head()), Goaway(PROTOCOL)),
        ("http2/6.2/4", "more padding than head", frame(1, 12, 1, &[9, 0]), Goaway(PROTOCOL)),
        (
            "generic/3.2/2",
            "a padded head",
            frame(1, 13, 1, &[&[1], &right_head()[..], &[0]].concat()),
            Reply,
        ),
        ("generic/3.2/3", "a head with a priority", with_priority(&[0x80, 0, 0, 3, 255]), Reply),
        (
            "http2/5.3.1/1",
            "a head that depends on itself",
            with_priority(&[0x80, 0, 0, 1, 255]),
            Goaway(PROTOCOL),
        ),
        ("", "a head of less than a priority", frame(1, 0x25, 1, &[0; 4]), Goaway(FRAME_SIZE)),
        ("generic/3.3/1", "the lowest priority", then_call(frame(2, 0, 1, &[0; 5])), Reply),
        (
            "generic/3.3/2",
            "the highest priority",
            then_call(frame(2, 0, 1, &[0, 0, 0, 0, 255])),
            Reply,
        ),
        (
            "generic/3.3/3",
            "a priority below another",
            then_call(frame(2, 0, 1, &[0, 0, 0, 3, 255])),
            Reply,
        ),
        (
            "generic/3.3/4",
            "a priority above all others",
            then_call(frame(2, 0, 1, &[0x80, 0, 0, 3, 255])),
            Reply,
        ),
        ("http2/6.3/1", "a priority of no stream", frame(2, 0, 0, &[0; 5]), Goaway(PROTOCOL)),
        (
            "http2/5.3.1/2",
            "one that depends on itself",
            frame(2, 0, 7, &[0x80, 0, 0, 7, 0]),
            Goaway(PROTOCOL),
        ),
        ("http2/6.3/2", "a short priority", frame(2, 0, 1, &[0; 4]), Goaway(FRAME_SIZE)),
        ("", "a long priority", frame(2, 0, 1, &[0; 6]), Goaway(FRAME_SIZE)),
        ("generic/3.4/1", "a reset", on_call(reset(1)), Nothing),
        ("http2/6.4/1", "a reset of no stream", frame(3, 0, 0, &[0; 4]), Goaway(PROTOCOL)),
        ("http2/6.4/3", "a short reset", on_call(frame(3, 0, 1, &[0; 3])), Goaway(FRAME_SIZE)),
        ("http2/7/2", "a reset for no known reason", on_call(frame(3, 0, 1, &[0xff; 4])), Nothing),
    ]
}

/// Section 6.10.
pub(super) fn continuations() -> Vec<Row> {
    let begun = || frame(1, 1, 1, &right_head()[..4]);
    let all = right_head().len();
    let rest = |flags, from: usize, to: usize| frame(9, flags, 1, &right_head()[from..to]);
    let whole = || [begun(), rest(4, 4, all)].concat();
    let long = head(PATH, &[GRPC, ("x", "y")]);
    let of = |frames: &[Vec<u8>]| frames.concat();
    vec![
        ("generic/3.10/1", "a head in two frames", whole(), Reply),
        (
            "generic/3.10/2",
            "a head in three frames",
            of(&[begun(), rest(0, 4, 9), rest(4, 9, all)]),
            Reply,
        ),
        (
            "http2/6.10/1",
            "fields in further frames",
            of(&[
                frame(1, 1, 1, &right_head()),
                frame(9, 0, 1, &field("x", "y")),
                frame(9, 4, 1, &field("x", "y")),
            ]),
            Reply,
        ),
        ("", "a head and nothing", of(&[frame(1, 1, 1, &long), frame(9, 4, 1, &[])]), Reply),
        ("", "data within a head", of(&[begun(), frame(0, 0, 1, &[])]), Goaway(PROTOCOL)),
        (
            "http2/6.10/2",
            "data within a head in parts",
            of(&[begun(), rest(0, 4, 9), data(1)]),
            Goaway(PROTOCOL),
        ),
        (
            "http2/6.10/3",
            "it goes on nowhere",
            of(&[begun(), frame(9, 4, 0, &[])]),
            Goaway(PROTOCOL),
        ),
        ("", "it goes on elsewhere", of(&[begun(), frame(9, 4, 3, &[])]), Goaway(PROTOCOL)),
        (
            "http2/6.10/4",
            "it goes on after a head",
            of(&[begun_call(1), rest(4, 4, all)]),
            Goaway(PROTOCOL),
        ),
        (
            "http2/6.10/5",
            "it goes on after its end",
            of(&[whole(), rest(4, 4, all)]),
            Goaway(PROTOCOL),
        ),
        (
            "http2/6.10/6",
            "it goes on after data",
            of(&[begun_call(1), frame(0, 0, 1, &[0]), rest(4, 4, all)]),
            Goaway(PROTOCOL),
        ),
    ]
}
