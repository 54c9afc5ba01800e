//! Malicious clients, byte by byte, against the driver that reads its connections itself; and the
//! refusals of both drivers.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use proptest::prelude::*;
use prost::Message;
use rategate_server::protocol::grpc::Settings;

use crate::rls::calls::{descriptor, request};
use crate::rls::common::{Driver, Server, engine, rules};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0, u8::try_from(name.len()).unwrap()];
    field.extend(name.as_bytes());
    assert!(value.len() < 127);
    field.push(u8::try_from(value.len()).unwrap());
    field.extend(value.as_bytes());
    field
}

pub(crate) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Encodes `:method: POST`, `:scheme: http`, the path, and more fields.
pub(crate) fn head(path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut head = vec![0x83, 0x86];
    head.extend(field(":path", path));
    for (name, value) in fields {
        head.extend(field(name, value));
    }
    head
}

pub(crate) fn right_head() -> Vec<u8> {
    head(PATH, &[("content-type", "application/grpc"), ("te", "trailers")])
}

pub(crate) fn message(request: &RateLimitRequest) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(u32::try_from(request.encoded_len()).unwrap().to_be_bytes());
    bytes.extend(request.encode_to_vec());
    bytes
}

pub(crate) fn right_message() -> Vec<u8> {
    message(&request(&[descriptor(&[("remote_address", "10.0.0.1")])]))
}

pub(crate) fn call(stream: u32) -> Vec<u8> {
    [frame(1, 4, stream, &right_head()), frame(0, 1, stream, &right_message())].concat()
}

pub(crate) struct Raw(pub(crate) TcpStream);

pub(crate) type Frame = (u8, u8, u32, Vec<u8>);

impl Raw {
    pub(crate) fn new(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(crate) fn greeted(server: &Server) -> Self {
        let mut raw = Self::new(server);
        raw.send(&[PREFACE, &frame(4, 0, 0, &[])].concat());
        raw
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        // A server that has seen enough may have closed already.
        drop(self.0.write_all(bytes));
    }

    pub(crate) fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let length = usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).unwrap();
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some((head[3], head[4], stream, payload))
    }

    /// Returns the frames of a stream up to its end.
    pub(crate) fn answer(&mut self, stream: u32) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next() {
            if frame.2 == stream {
                let is_end = frame.0 == 3 || (frame.0 < 2 && frame.1 & 1 > 0);
                frames.push(frame);
                if is_end {
                    break;
                }
            }
        }
        frames
    }

    /// Returns the code with which the connection ends.
    pub(crate) fn goaway(&mut self) -> Option<u8> {
        loop {
            if let (7, _, 0, payload) = self.next()? {
                return Some(payload[7]);
            }
        }
    }
}

pub(crate) fn server() -> Server {
    server_with(Settings::default())
}

pub(crate) fn server_with(settings: Settings) -> Server {
    Server::start(Driver::Own, engine(rules()).0, settings)
}

pub(crate) fn contains_text(frames: &[Frame], text: &str) -> bool {
    frames.iter().any(|frame| {
        frame.0 == 1 && frame.3.windows(text.len()).any(|chunk| chunk == text.as_bytes())
    })
}

#[test]
fn an_answer_byte_by_byte() {
    let mut raw = Raw::greeted(&server());
    raw.send(&call(1));
    let frames = raw.answer(1);
    assert_eq!(frames[0], (1, 4, 1, b"\x88\x0f\x10\x10application/grpc".to_vec()));
    let message = b"\x00\x00\x00\x00\x1b\x08\x01\x12\x17\x08\x01\x12\x0d\
                    \x08\x0a\x10\x02\x1a\x07address\x18\x09\x22\x02\x08\x32";
    assert_eq!(frames[1], (0, 0, 1, message.to_vec()));
    assert_eq!(frames[2], (1, 5, 1, b"\x00\x0bgrpc-status\x010".to_vec()));
    assert_eq!(frames.len(), 3);
}

#[test]
fn calls_that_are_none_are_refused_alone() {
    let mut raw = Raw::greeted(&server());
    let grpc = ("content-type", "application/grpc");
    for (index, (head, expected)) in [
        (head("/no.such.Service/Call", &[grpc]), "no such method"),
        (head(PATH, &[grpc, ("grpc-encoding", "gzip")]), "grpc-accept-encoding"),
        (head(PATH, &[grpc, ("grpc-timeout", "soon")]), "grpc-timeout is no time"),
        (head(PATH, &[("content-type", "application/json")]), "415"),
        (head(PATH, &[]), "415"),
        ([vec![0x82, 0x86], field(":path", PATH)].concat(), "405"),
    ]
    .into_iter()
    .enumerate()
    {
        let stream = 1 + 2 * u32::try_from(index).unwrap();
        raw.send(&[frame(1, 4, stream, &head), frame(0, 1, stream, &right_message())].concat());
        let frames = raw.answer(stream);
        assert!(contains_text(&frames, expected), "{expected}: {frames:?}");
    }
    raw.send(&call(101));
    assert!(contains_text(&raw.answer(101), "grpc-status"));
}

#[test]
fn messages_that_are_none_are_refused_alone() {
    let mut raw = Raw::greeted(&server());
    let right = right_message();
    let mut packed = right.clone();
    packed[0] = 1;
    for (index, (bytes, expected)) in [
        (vec![], "there is no message"),
        (right[..7].to_vec(), "the call ends within a message"),
        (right[..3].to_vec(), "the call ends within a message"),
        ([right.clone(), right.clone()].concat(), "more than one message"),
        (packed, "compression"),
        (b"\x00\x00\x00\x00\x02\xff\xff".to_vec(), "malformed"),
    ]
    .into_iter()
    .enumerate()
    {
        let stream = 1 + 2 * u32::try_from(index).unwrap();
        raw.send(&[frame(1, 4, stream, &right_head()), frame(0, 1, stream, &bytes)].concat());
        let frames = raw.answer(stream);
        assert!(contains_text(&frames, expected), "{expected}: {frames:?}");
    }
    raw.send(&call(101));
    assert!(contains_text(&raw.answer(101), "grpc-status"));
}

/// A rate limit request is denied instead: see `hostile`.
#[test]
fn an_oversized_message_is_refused_by_its_prefix() {
    let mut raw = Raw::greeted(&server());
    let head = head("/grpc.health.v1.Health/Check", &[("content-type", "application/grpc")]);
    let begun = frame(0, 0, 1, b"\x00\x7f\xff\xff\xff");
    raw.send(&[frame(1, 4, 1, &head), begun].concat());
    assert!(contains_text(&raw.answer(1), "longer than 65536"));
}

#[test]
fn a_message_may_come_in_pieces() {
    let mut raw = Raw::greeted(&server());
    let head = right_head();
    let (first, rest) = head.split_at(7);
    raw.send(&[frame(1, 0, 1, first), frame(9, 4, 1, rest)].concat());
    for byte in right_message() {
        raw.send(&frame(0, 0, 1, &[byte]));
    }
    // Two bytes of padding and nothing else.
    raw.send(&frame(0, 8 | 1, 1, &[2, 0, 0]));
    let frames = raw.answer(1);
    assert_eq!(frames.len(), 3, "{frames:?}");
}

#[test]
fn too_much_of_anything_ends_the_connection() {
    let begun = || frame(1, 0, 1, &right_head());
    for (what, bytes, reason) in [
        ("a frame that is too long", vec![0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1], 6),
        (
            "a head without end",
            std::iter::once(begun())
                .chain((0..2000).map(|_| frame(9, 0, 1, &[0])))
                .collect::<Vec<_>>()
                .concat(),
            11,
        ),
        ("a ping too many", (0..2000).flat_map(|_| frame(6, 0, 0, &[0; 8])).collect(), 11),
        ("settings too many", (0..2000).flat_map(|_| frame(4, 0, 0, &[])).collect(), 11),
        (
            "nothing too often",
            [begun_call(1), (0..2000).flat_map(|_| frame(0, 0, 1, b"")).collect()].concat(),
            11,
        ),
        (
            "resets",
            (0..200)
                .flat_map(|n| [begun_call(1 + 2 * n), frame(3, 0, 1 + 2 * n, &[0; 4])].concat())
                .collect(),
            11,
        ),
        (
            "more than the window",
            [begun_call(1), (0..5).flat_map(|_| frame(0, 0, 1, &prefixed())).collect()].concat(),
            3,
        ),
    ] {
        let mut raw = Raw::greeted(&server());
        raw.send(&bytes);
        assert_eq!(raw.goaway(), Some(reason), "{what}");
        assert!(raw.next().is_none(), "{what}: the connection goes on");
    }
}

pub(crate) fn begun_call(stream: u32) -> Vec<u8> {
    frame(1, 4, stream, &right_head())
}

/// Encodes a watch, which continues after its request has ended.
pub(crate) fn call_without_answer(stream: u32) -> Vec<u8> {
    let head = head("/grpc.health.v1.Health/Watch", &[("content-type", "application/grpc")]);
    [frame(1, 4, stream, &head), frame(0, 1, stream, &[0; 5])].concat()
}

/// Returns the beginning of a message of the maximum length, 16 KiB of it. The following frames
/// belong to it.
fn prefixed() -> Vec<u8> {
    let mut bytes = vec![0, 0, 1, 0, 0];
    bytes.resize(16_384, 0);
    bytes
}

#[test]
fn garbage_is_no_connection() {
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"*1\r\n$4\r\nPING\r\n", b"\x16\x03\x01\x02\x00"]
    {
        let mut raw = Raw::new(&server());
        raw.send(garbage);
        assert_eq!(raw.goaway(), Some(1));
        assert!(raw.next().is_none());
    }
}

#[test]
fn streams_over_the_most_are_refused_and_the_others_go_on() {
    let mut raw = Raw::greeted(&server());
    let begun: Vec<u8> = (0..257).flat_map(|n| begun_call(1 + 2 * n)).collect();
    raw.send(&begun);
    let refused = raw.answer(1 + 2 * 256);
    assert_eq!(refused, [(3, 0, 513, vec![0, 0, 0, 7])]);
    for n in [0, 255] {
        raw.send(&frame(0, 1, 1 + 2 * n, &right_message()));
        assert_eq!(raw.answer(1 + 2 * n).len(), 3);
    }
    raw.send(&call(515));
    assert_eq!(raw.answer(515).len(), 3);
}

#[test]
fn a_slow_message_has_its_time() {
    let settings = Settings { max_wait: Duration::from_millis(200), ..Settings::default() };
    let server = server_with(settings);
    let mut raw = Raw::greeted(&server);
    let started = Instant::now();
    raw.send(&[begun_call(1), frame(0, 0, 1, &right_message()[..8])].concat());
    assert!(contains_text(&raw.answer(1), "the deadline has passed"));
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(200) && waited < Duration::from_secs(3), "{waited:?}");
    // The caller's own timeout is shorter.
    let head = head(PATH, &[("content-type", "application/grpc"), ("grpc-timeout", "20m")]);
    raw.send(&frame(1, 4, 3, &head));
    assert!(contains_text(&raw.answer(3), "the deadline has passed"));
    raw.send(&call(5));
    assert_eq!(raw.answer(5).len(), 3);
    // A silent client, and one whose preface never ends, have the same timeout.
    for begun in [&PREFACE[..20], PREFACE] {
        let mut silent = Raw::new(&server);
        silent.send(begun);
        assert_eq!(silent.goaway(), Some(0));
        assert!(silent.next().is_none());
    }
}

#[test]
fn half_a_connection_is_enough_for_nothing() {
    let mut raw = Raw::greeted(&server());
    raw.send(&[call(1), begun_call(3)].concat());
    raw.0.shutdown(Shutdown::Write).unwrap();
    let mut answered = 0;
    while let Some(frame) = raw.next() {
        answered += u32::from(frame.2 == 1);
        assert_ne!(frame.2, 3);
    }
    assert_eq!(answered, 3);
}

#[test]
fn an_answer_waits_for_its_window() {
    let mut raw = Raw::new(&server());
    // Streams may send ten bytes at first.
    let few = frame(4, 0, 0, &[0, 4, 0, 0, 0, 10]);
    raw.send(&[PREFACE, &few, &call(1)].concat());
    let mut data = Vec::new();
    while data.len() < 10 {
        let frame = raw.next().unwrap();
        if frame.0 == 0 {
            data.extend(frame.3);
        }
    }
    assert_eq!(data.len(), 10);
    raw.send(&frame(8, 0, 1, &100_u32.to_be_bytes()));
    let rest = raw.answer(1);
    data.extend(&rest[0].3);
    assert_eq!(data.len(), 32);
    assert_eq!(rest[1].0, 1);
}

#[test]
fn a_long_connection_keeps_its_windows() {
    let mut raw = Raw::greeted(&server());
    let long = "x".repeat(60_000);
    let long = message(&request(&[descriptor(&[("unheard", &long)])]));
    for n in 0..40 {
        let stream = 1 + 2 * n;
        raw.send(&begun_call(stream));
        for chunk in long.chunks(16_384) {
            raw.send(&frame(0, 0, stream, chunk));
        }
        raw.send(&frame(0, 1, stream, &[]));
        assert_eq!(raw.answer(stream).len(), 3, "{n}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn any_bytes_leave_the_server_as_it_was(
        frames in prop::collection::vec(
            (0..12_u8, any::<u8>(), 0..8_u32, prop::collection::vec(any::<u8>(), 0..40)),
            0..12,
        ),
        with_head in any::<bool>(),
    ) {
        static SERVER: std::sync::OnceLock<Server> = std::sync::OnceLock::new();
        let server = SERVER.get_or_init(server);
        let mut raw = Raw::greeted(server);
        if with_head {
            raw.send(&begun_call(1));
        }
        for (kind, flags, stream, payload) in frames {
            raw.send(&frame(kind, flags, stream, &payload));
        }
        drop(raw);
        let mut other = Raw::greeted(server);
        other.send(&call(1));
        prop_assert_eq!(other.answer(1).len(), 3);
    }
}

/// The settings for concurrent calls and head length are announced and enforced.
#[test]
fn streams_and_heads_are_those_of_the_settings() {
    let settings = Settings { max_streams: 3, max_head_bytes: 1_024, ..Settings::default() };
    let server = server_with(settings);
    let mut raw = Raw::greeted(&server);
    for nth in 0..4 {
        raw.send(&begun_call(1 + 2 * nth));
    }
    let refused = raw.answer(7);
    assert_eq!(refused, [(3, 0, 7, vec![0, 0, 0, 7])]);
    let mut raw = Raw::greeted(&server);
    let long = "x".repeat(120);
    let fields: Vec<_> = (0..10).map(|nth| (format!("x-{nth}"), long.clone())).collect();
    let fields: Vec<_> =
        fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    raw.send(&frame(1, 4, 1, &head(PATH, &fields)));
    assert!(contains_text(&raw.answer(1), "415"), "it is no call of gRPC, which is reported first");
}
