//! HTTP/2 to the letter, in the order of RFC 9113: errors, and unusual but valid input, frame by
//! frame.

use crate::rls::abuse::{
    PATH, PREFACE, Raw, begun_call, call, call_without_answer, field, frame, head, right_head,
    right_message, server,
};
use crate::rls::common::Server;

/// The reaction to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reported {
    /// Only answers.
    Nothing,
    /// A reset of stream 1 with this code; the others continue.
    Reset(u8),
    /// The end of the connection with this code.
    Goaway(u8),
}

use Reported::{Goaway, Nothing, Reset};

const PROTOCOL: u8 = 1;
const FLOW_CONTROL: u8 = 3;
const STREAM_CLOSED: u8 = 5;
const FRAME_SIZE: u8 = 6;
const COMPRESSION: u8 = 9;

const GRPC: (&str, &str) = ("content-type", "application/grpc");

/// Returns the reaction to these bytes, followed by a call.
fn reported(server: &Server, bytes: &[u8]) -> Reported {
    const LATER: u32 = 1001;
    let mut raw = Raw::greeted(server);
    raw.send(bytes);
    raw.send(&call(LATER));
    let mut reported = Nothing;
    while let Some(frame) = raw.next() {
        match frame {
            (7, _, 0, payload) => return Goaway(payload[7]),
            (3, _, 1, payload) if payload[3] != 0 => reported = Reset(payload[3]),
            (1, 5, LATER, _) => return reported,
            _ => {}
        }
    }
    panic!("the connection ended without a word");
}

fn hold(cases: &[(&str, Vec<u8>, Reported)]) {
    let server = server();
    for (what, bytes, expected) in cases {
        assert_eq!(reported(&server, bytes), *expected, "{what}");
    }
}

/// Encodes a call on stream 1 with additional fields and that many bytes of its message.
fn call_with(fields: &[(&str, &str)], bytes: usize) -> Vec<u8> {
    let fields = [&[GRPC], fields].concat();
    [frame(1, 4, 1, &head(PATH, &fields)), frame(0, 1, 1, &right_message()[..bytes])].concat()
}

/// Encodes a head of stream 1 that ends the call.
fn headed(block: &[&[u8]]) -> Vec<u8> {
    frame(1, 5, 1, &block.concat())
}

/// Section 3.4.
#[test]
fn settings_come_first() {
    let server = server();
    for (what, first) in [
        ("a call", call(1)),
        ("a ping", frame(6, 0, 0, &[0; 8])),
        ("settings that were never sent, confirmed", frame(4, 1, 0, &[])),
        ("settings of a stream", frame(4, 0, 1, &[])),
        ("a window", frame(8, 0, 0, &[0, 0, 0, 1])),
        ("a priority", frame(2, 0, 1, &[0; 5])),
        ("a farewell", frame(7, 0, 0, &[0; 8])),
        ("nothing known", frame(0xbe, 0, 0, &[])),
    ] {
        let mut raw = Raw::new(&server);
        raw.send(&[PREFACE, &first, &frame(4, 0, 0, &[])].concat());
        assert_eq!(raw.goaway(), Some(PROTOCOL), "{what}");
        assert!(raw.next().is_none(), "{what}: the connection goes on");
    }
    let mut raw = Raw::new(&server);
    let streams = frame(4, 0, 0, &[0, 3, 0, 0, 0, 9]);
    raw.send(&[PREFACE, &streams, &call(1)].concat());
    assert_eq!(raw.next().unwrap().0, 4, "ours come first too");
    assert_eq!(raw.answer(1).len(), 3);
}

/// Section 4, and RFC 7541.
#[test]
fn frames_and_packed_fields() {
    let begun = || frame(1, 0, 1, &right_head());
    let long = |kind, flags| frame(kind, flags, 1, &vec![0; 16_385]);
    let packed = |value: &[u8]| headed(&[b"\x00\x01x", value]);
    hold(&[
        ("a frame of no known kind", frame(0xbe, 0xff, 1, &[0; 8]), Nothing),
        ("flags that mean nothing", frame(6, 0xfe, 0, &[0; 8]), Nothing),
        ("the bit that is reserved", frame(6, 0, 1 << 31, &[0; 8]), Nothing),
        ("the longest frame", [begun_call(1), frame(0, 0, 1, &[1; 16_384])].concat(), Nothing),
        ("a longer one", [begun_call(1), long(0, 0)].concat(), Goaway(FRAME_SIZE)),
        ("a longer head", long(1, 4), Goaway(FRAME_SIZE)),
        ("a priority within a head", [begun(), frame(2, 0, 1, &[0; 5])].concat(), Goaway(PROTOCOL)),
        ("a head within a head", [begun(), begun_call(3)].concat(), Goaway(PROTOCOL)),
        (
            "nothing known within a head",
            [begun(), frame(0xbe, 0, 1, &[])].concat(),
            Goaway(PROTOCOL),
        ),
        ("a field that breaks off", headed(&[b"\x40\x05x"]), Goaway(COMPRESSION)),
        ("a number without end", headed(&[b"\xff\xff\xff"]), Goaway(COMPRESSION)),
        ("field 0", headed(&[b"\x80"]), Goaway(COMPRESSION)),
        ("field 70", headed(&[b"\xc6"]), Goaway(COMPRESSION)),
        ("the name of field 70", headed(&[b"\x7f\x07\x01x"]), Goaway(COMPRESSION)),
        ("a table of no size", [headed(&[b"\x20", &right_head()]), call(3)].concat(), Nothing),
        ("sizes of the table", headed(&[b"\x20\x3f\xe1\x1f", &right_head()]), Nothing),
        ("too large a size", headed(&[b"\x3f\xe2\x1f", &right_head()]), Goaway(COMPRESSION)),
        ("a size at the end", headed(&[&right_head(), b"\x20"]), Goaway(COMPRESSION)),
        ("text filled by a byte", packed(b"\x83\x64\x02\xff"), Goaway(COMPRESSION)),
        ("text filled with zeros", packed(b"\x86\xa8\xeb\x10\x64\x9c\xb8"), Goaway(COMPRESSION)),
        ("text with an end", packed(b"\x84\xff\xff\xff\xff"), Goaway(COMPRESSION)),
    ]);
}

/// Section 5.1.
#[test]
fn streams_have_states() {
    let data = |stream| frame(0, 1, stream, b"\0\0\0\0\0");
    let reset = |stream| frame(3, 0, stream, &[0, 0, 0, 8]);
    let window = |stream| frame(8, 0, stream, &[0, 0, 0, 1]);
    let priority = |stream| frame(2, 0, stream, &[0; 5]);
    let trailers = |stream| frame(1, 5, stream, &field("x", "y"));
    let mut cases = vec![
        ("idle: data", data(1), Goaway(PROTOCOL)),
        ("idle: a reset", reset(1), Goaway(PROTOCOL)),
        ("idle: a window", window(1), Goaway(PROTOCOL)),
        ("idle: a continuation", frame(9, 4, 1, &right_head()), Goaway(PROTOCOL)),
        ("idle: a priority", [priority(9), call(1)].concat(), Nothing),
        ("an even number: data", [call(3), data(2)].concat(), Goaway(PROTOCOL)),
        ("an even number: a reset", [call(3), reset(2)].concat(), Goaway(PROTOCOL)),
        ("an even number: a head", begun_call(2), Goaway(PROTOCOL)),
        ("a lower number: a head", [call(5), call(3)].concat(), Goaway(PROTOCOL)),
        ("a lower number: data", [call(5), data(3)].concat(), Goaway(STREAM_CLOSED)),
    ];
    let states = [
        // The answer of a watch continues after its request has ended.
        ("half closed", call_without_answer(1), STREAM_CLOSED, STREAM_CLOSED),
        ("closed by both ends", call(1), STREAM_CLOSED, PROTOCOL),
        ("given up by the caller", [begun_call(1), reset(1)].concat(), STREAM_CLOSED, PROTOCOL),
    ];
    for (what, before, of_data, of_head) in states {
        let after = |frame| [before.clone(), frame].concat();
        cases.extend([
            (what, after(data(1)), Goaway(of_data)),
            (what, after(frame(0, 0, 1, &[])), Goaway(of_data)),
            (what, after(trailers(1)), Goaway(of_head)),
            (what, after(begun_call(1)), Goaway(of_head)),
            (what, after(window(1)), Nothing),
            (what, after(priority(1)), Nothing),
            (what, after(reset(1)), Nothing),
        ]);
    }
    // Answered before the request was complete: the rest of it is ignored.
    let refused = || frame(1, 4, 1, &head(PATH, &[]));
    cases.extend([
        ("refused: data", [refused(), data(1)].concat(), Nothing),
        ("refused: trailers", [refused(), trailers(1)].concat(), Nothing),
        ("refused: a reset", [refused(), reset(1)].concat(), Nothing),
        ("refused: a window", [refused(), window(1)].concat(), Nothing),
    ]);
    hold(&cases);
}

/// After more ended streams than are remembered, late frames of them are still tolerated.
#[test]
fn many_refused_calls_may_still_be_on_their_way() {
    let refused = |n: u32| frame(1, 4, 1 + 2 * n, &head(PATH, &[]));
    let sent_call = |n: u32| frame(0, 1, 1 + 2 * n, &right_message());
    let bytes = (0..300).flat_map(refused).chain((0..300).flat_map(sent_call)).collect::<Vec<_>>();
    assert_eq!(reported(&server(), &bytes), Nothing);
}

/// Sections 6.1 to 6.5, and 5.3 of RFC 7540.
#[test]
fn frames_of_streams_and_settings() {
    let on_call = |frame: Vec<u8>| [begun_call(1), frame].concat();
    let set =
        |name: u8, value: u32| frame(4, 0, 0, &[&[0, name], &value.to_be_bytes()[..]].concat());
    let with_priority = |priority: &[u8]| frame(1, 0x25, 1, &[priority, &right_head()].concat());
    hold(&[
        ("data of no stream", frame(0, 0, 0, &[0; 5]), Goaway(PROTOCOL)),
        ("more padding than data", on_call(frame(0, 8, 1, &[2, 0])), Goaway(PROTOCOL)),
        ("padding without its length", on_call(frame(0, 8, 1, &[])), Goaway(FRAME_SIZE)),
        ("nothing but padding", on_call(frame(0, 8, 1, &[1, 0])), Nothing),
        ("a head of no stream", frame(1, 5, 0, &right_head()), Goaway(PROTOCOL)),
        ("more padding than head", frame(1, 12, 1, &[9, 0]), Goaway(PROTOCOL)),
        ("a padded head", frame(1, 13, 1, &[&[1], &right_head()[..], &[0]].concat()), Nothing),
        ("a head with a priority", with_priority(&[0x80, 0, 0, 3, 255]), Nothing),
        ("a head that depends on itself", with_priority(&[0x80, 0, 0, 1, 255]), Goaway(PROTOCOL)),
        ("a head of less than a priority", frame(1, 0x25, 1, &[0; 4]), Goaway(FRAME_SIZE)),
        ("a priority", frame(2, 0, 1, &[0x80, 0, 0, 3, 255]), Nothing),
        ("a priority of no stream", frame(2, 0, 0, &[0; 5]), Goaway(PROTOCOL)),
        ("one that depends on itself", frame(2, 0, 7, &[0x80, 0, 0, 7, 0]), Goaway(PROTOCOL)),
        ("a short priority", frame(2, 0, 1, &[0; 4]), Goaway(FRAME_SIZE)),
        ("a long priority", frame(2, 0, 1, &[0; 6]), Goaway(FRAME_SIZE)),
        ("a reset of no stream", frame(3, 0, 0, &[0; 4]), Goaway(PROTOCOL)),
        ("a short reset", on_call(frame(3, 0, 1, &[0; 3])), Goaway(FRAME_SIZE)),
        ("a reset for no known reason", on_call(frame(3, 0, 1, &[0xff; 4])), Nothing),
        ("settings confirmed with more", frame(4, 1, 0, &[0; 6]), Goaway(FRAME_SIZE)),
        ("settings of a stream", frame(4, 0, 1, &[]), Goaway(PROTOCOL)),
        ("settings cut short", frame(4, 0, 0, &[0; 7]), Goaway(FRAME_SIZE)),
        ("a push that may be or not", set(2, 2), Goaway(PROTOCOL)),
        ("a window over the widest", set(4, 1 << 31), Goaway(FLOW_CONTROL)),
        ("frames under the shortest", set(5, 16_383), Goaway(PROTOCOL)),
        ("frames over the longest", set(5, 1 << 24), Goaway(PROTOCOL)),
        ("no known setting", set(0xff, u32::MAX), Nothing),
        (
            "windows over the widest by settings",
            on_call([frame(8, 0, 1, &[0, 0, 0, 1]), set(4, 0x7fff_ffff)].concat()),
            Goaway(FLOW_CONTROL),
        ),
    ]);
}

/// Sections 6.6 to 6.10, and 7.
#[test]
fn frames_of_the_connection_and_windows() {
    let begun = || frame(1, 1, 1, &right_head()[..4]);
    let rest = |flags, from: usize, to: usize| frame(9, flags, 1, &right_head()[from..to]);
    let all = right_head().len();
    let whole = || [begun(), rest(4, 4, all)].concat();
    let on_call = |frame: Vec<u8>| [begun_call(1), frame].concat();
    let widest = 0x7fff_ffff_u32.to_be_bytes();
    hold(&[
        ("a push", frame(5, 4, 1, &[0; 4]), Goaway(PROTOCOL)),
        ("an answer to no ping", frame(6, 1, 0, &[0; 8]), Nothing),
        ("a ping of a stream", frame(6, 0, 1, &[0; 8]), Goaway(PROTOCOL)),
        ("a long ping", frame(6, 0, 0, &[0; 9]), Goaway(FRAME_SIZE)),
        ("a farewell of a stream", frame(7, 0, 1, &[0; 8]), Goaway(PROTOCOL)),
        ("a short farewell", frame(7, 0, 0, &[0; 7]), Goaway(FRAME_SIZE)),
        ("a farewell for no known reason", frame(7, 0, 0, &[0xff; 12]), Nothing),
        ("no more", frame(8, 0, 0, &[0; 4]), Goaway(PROTOCOL)),
        ("no more on a stream", on_call(frame(8, 0, 1, &[0; 4])), Goaway(PROTOCOL)),
        ("no more after the end", [call(1), frame(8, 0, 1, &[0; 4])].concat(), Goaway(PROTOCOL)),
        ("a short window", frame(8, 0, 0, &[0; 3]), Goaway(FRAME_SIZE)),
        ("a long window", on_call(frame(8, 0, 1, &[0; 5])), Goaway(FRAME_SIZE)),
        ("over the widest", frame(8, 0, 0, &widest), Goaway(FLOW_CONTROL)),
        ("over the widest on a stream", on_call(frame(8, 0, 1, &widest)), Reset(FLOW_CONTROL)),
        ("a head in three frames", [begun(), rest(0, 4, 9), rest(4, 9, all)].concat(), Nothing),
        ("data within a head", [begun(), frame(0, 0, 1, &[])].concat(), Goaway(PROTOCOL)),
        ("it goes on nowhere", [begun(), frame(9, 4, 0, &[])].concat(), Goaway(PROTOCOL)),
        ("it goes on elsewhere", [begun(), frame(9, 4, 3, &[])].concat(), Goaway(PROTOCOL)),
        ("it goes on after a head", [begun_call(1), rest(4, 4, all)].concat(), Goaway(PROTOCOL)),
        ("it goes on after its end", [whole(), rest(4, 4, all)].concat(), Goaway(PROTOCOL)),
        (
            "it goes on after data",
            [begun_call(1), frame(0, 0, 1, &[0]), rest(4, 4, all)].concat(),
            Goaway(PROTOCOL),
        ),
    ]);
}

/// Section 8.1.
#[test]
fn a_call_is_a_head_data_and_perhaps_trailers() {
    let sent_call = || [begun_call(1), frame(0, 0, 1, &right_message())].concat();
    let all = right_message().len();
    let length = |length: usize| length.to_string();
    let with_length =
        |reported: usize, bytes| call_with(&[("content-length", length(reported).as_str())], bytes);
    let fragment = [
        frame(1, 4, 1, &head(PATH, &[GRPC, ("content-length", &length(all))])),
        frame(0, 0, 1, &right_message()[..9]),
    ]
    .concat();
    hold(&[
        ("trailers", [sent_call(), frame(1, 5, 1, &field("x", "y"))].concat(), Nothing),
        (
            "trailers and no end",
            [sent_call(), frame(1, 4, 1, &field("x", "y"))].concat(),
            Reset(PROTOCOL),
        ),
        (
            "a head as trailers",
            [sent_call(), frame(1, 5, 1, &right_head())].concat(),
            Reset(PROTOCOL),
        ),
        (
            "wrong trailers",
            [sent_call(), frame(1, 5, 1, &field("X", "y"))].concat(),
            Reset(PROTOCOL),
        ),
        ("the length that was announced", with_length(all, all), Nothing),
        ("less", with_length(all, all - 1), Reset(PROTOCOL)),
        ("more", with_length(all - 1, all), Reset(PROTOCOL)),
        ("less in parts", [fragment.clone(), frame(0, 1, 1, &[])].concat(), Reset(PROTOCOL)),
        ("less and trailers", [fragment.clone(), frame(1, 5, 1, &[])].concat(), Reset(PROTOCOL)),
        ("more in parts", [fragment, frame(0, 0, 1, &right_message())].concat(), Reset(PROTOCOL)),
        (
            "nothing, where something was announced",
            headed(&[&head(PATH, &[GRPC, ("content-length", "5")])]),
            Reset(PROTOCOL),
        ),
        ("no length", call_with(&[("content-length", "-1")], all), Reset(PROTOCOL)),
        (
            "two lengths",
            call_with(&[("content-length", "5"), ("content-length", &length(all))], all),
            Reset(PROTOCOL),
        ),
    ]);
}

/// Sections 8.2 and 8.3.
#[test]
fn fields_are_those_of_a_request() {
    let mut cases = Vec::new();
    for (name, value) in [
        ("X", "y"),
        ("x y", "z"),
        ("x:", "y"),
        ("", "y"),
        ("x", "a\0b"),
        ("x", "a\rb"),
        ("x", "a\nb"),
        ("x", " a"),
        ("x", "a\t"),
        ("connection", "keep-alive"),
        ("proxy-connection", "keep-alive"),
        ("keep-alive", "5"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("te", "trailers, deflate"),
        (":made-up", "x"),
        (":status", "200"),
        // Valid, except for the preceding fields.
        (":authority", "x"),
    ] {
        cases.push((name, call_with(&[(name, value)], 5), Reset(PROTOCOL)));
    }
    for (name, value) in [("te", "trailers"), ("x", ""), ("x", "a b\tc"), ("x", "\u{e9}")] {
        cases.push((name, call_with(&[(name, value)], 5), Nothing));
    }
    let (post, scheme, path) = (&b"\x83"[..], &b"\x86"[..], field(":path", PATH));
    let grpc = field(GRPC.0, GRPC.1);
    let missing = |fields: &[&[u8]]| headed(&[&fields.concat(), &grpc]);
    cases.extend([
        ("no method", missing(&[scheme, &path]), Reset(PROTOCOL)),
        ("no scheme", missing(&[post, &path]), Reset(PROTOCOL)),
        ("no path", missing(&[post, scheme]), Reset(PROTOCOL)),
        ("an empty path", missing(&[post, scheme, &field(":path", "")]), Reset(PROTOCOL)),
        ("two methods", missing(&[post, post, scheme, &path]), Reset(PROTOCOL)),
        ("two schemes", missing(&[post, scheme, scheme, &path]), Reset(PROTOCOL)),
        ("two paths", missing(&[post, scheme, &path, &path]), Reset(PROTOCOL)),
        ("all, and an authority", missing(&[post, scheme, &path, b"\x41\x01x"]), Nothing),
        ("two authorities", missing(&[post, scheme, &path, b"\x41\x01x\xbe"]), Reset(PROTOCOL)),
    ]);
    hold(&cases);
}
