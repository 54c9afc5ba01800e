//! HTTP/2 to the letter, in the order of RFC 9113: errors, and unusual but valid input, frame by
//! frame. Rows that have the numbers of cases of h2spec are the list of `docs/http2.md`.

mod calls;
mod connection;
mod fields;
mod packed;
mod streams;

use std::collections::BTreeMap;
use std::fmt;

use crate::rls::abuse::{Frame, PATH, Raw, call, frame, head, right_message, server};
use crate::rls::common::Server;

/// The reaction to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reported {
    /// Nothing, or what no other of these says.
    Nothing,
    /// A confirmation of a ping, or of settings after the first.
    Confirmed,
    /// A reply on stream 1.
    Reply,
    /// So many bytes of a reply on stream 1, and no more: the windows are used up.
    Bytes(usize),
    /// A reset of a stream with this code; the others continue.
    Reset(u8),
    /// The end of the connection with this code.
    Goaway(u8),
}

use Reported::{Bytes, Confirmed, Goaway, Nothing, Reply, Reset};

const PROTOCOL: u8 = 1;
const FLOW_CONTROL: u8 = 3;
const STREAM_CLOSED: u8 = 5;
const FRAME_SIZE: u8 = 6;
const REFUSED_STREAM: u8 = 7;
const COMPRESSION: u8 = 9;

const GRPC: (&str, &str) = ("content-type", "application/grpc");

/// The numbers of the cases of h2spec that a row is, what is sent, its bytes, and the reaction.
type Row = (&'static str, &'static str, Vec<u8>, Reported);

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |code: &u8| match *code {
            PROTOCOL => "PROTOCOL_ERROR",
            FLOW_CONTROL => "FLOW_CONTROL_ERROR",
            STREAM_CLOSED => "STREAM_CLOSED",
            FRAME_SIZE => "FRAME_SIZE_ERROR",
            REFUSED_STREAM => "REFUSED_STREAM",
            COMPRESSION => "COMPRESSION_ERROR",
            code => panic!("the code {code}"),
        };
        match self {
            Nothing => f.write_str("goes on"),
            Confirmed => f.write_str("`ACK`"),
            Reply => f.write_str("replies"),
            Bytes(1) => f.write_str("1 byte"),
            Bytes(count) => write!(f, "{count} bytes"),
            Reset(code) => write!(f, "`RST_STREAM` {}", name(code)),
            Goaway(code) => write!(f, "`GOAWAY` {}", name(code)),
        }
    }
}

/// Returns the reaction to these bytes, followed by a call and a ping. The call is answered unless
/// its windows are used up.
fn reported(server: &Server, bytes: &[u8]) -> Reported {
    const LATER: u32 = 1001;
    const LAST: [u8; 8] = *b"the last";
    let mut raw = Raw::greeted(server);
    raw.send(bytes);
    raw.send(&[call(LATER), frame(6, 0, 0, &LAST)].concat());
    let (mut reported, mut settings, mut data, mut is_later_answered) = (Nothing, 0, 0, false);
    while let Some(frame) = raw.next() {
        match frame {
            (7, _, 0, payload) => return Goaway(payload[7]),
            (6, 1, 0, payload) if payload == LAST && is_later_answered => return reported,
            (6, 1, 0, payload) if payload == LAST => return Bytes(data),
            (6, 1, 0, _) => reported = Confirmed,
            (4, 1, 0, _) if settings == 1 => reported = Confirmed,
            (4, 1, 0, _) => settings += 1,
            (1, 5, LATER, _) => is_later_answered = true,
            (3, _, stream, payload) if payload[3] != 0 => {
                assert_ne!(stream, LATER);
                reported = Reset(payload[3]);
            }
            (1, _, 1, _) => reported = Reply,
            (0, _, 1, payload) => data += payload.len(),
            _ => {}
        }
    }
    panic!("the connection ended without a word");
}

/// Returns the reaction to the first bytes of a connection, after the server's settings.
fn reported_first(server: &Server, bytes: &[u8]) -> Reported {
    let mut raw = Raw::new(server);
    raw.send(bytes);
    assert_eq!(raw.next().unwrap().0, 4, "settings come first");
    let is_last = |(kind, flags, ..): &Frame| *kind == 7 || (*kind == 4 && *flags == 1);
    match std::iter::from_fn(|| raw.next()).find(is_last).unwrap() {
        (7, _, 0, payload) => {
            assert!(raw.next().is_none(), "the connection goes on");
            Goaway(payload[7])
        }
        _ => Confirmed,
    }
}

fn hold(rows: &[Row]) {
    let server = server();
    for (cases, what, bytes, expected) in rows {
        assert_eq!(reported(&server, bytes), *expected, "{cases} {what}");
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

#[test]
fn settings_come_first() {
    let server = server();
    for (cases, what, bytes, expected) in connection::starts() {
        assert_eq!(reported_first(&server, &bytes), expected, "{cases} {what}");
    }
}

#[test]
fn frames_and_packed_fields() {
    hold(&connection::frames());
    hold(&packed::rows());
}

#[test]
fn streams_have_states() {
    hold(&streams::states());
}

/// After more ended streams than are remembered, late frames of them are still tolerated.
#[test]
fn many_refused_calls_may_still_be_on_their_way() {
    let refused = |n: u32| frame(1, 4, 1 + 2 * n, &head(PATH, &[]));
    let sent_call = |n: u32| frame(0, 1, 1 + 2 * n, &right_message());
    let bytes = (0..300).flat_map(refused).chain((0..300).flat_map(sent_call)).collect::<Vec<_>>();
    assert_eq!(reported(&server(), &bytes), Reply);
}

#[test]
fn frames_of_streams_and_settings() {
    hold(&streams::frames());
    hold(&connection::settings());
}

#[test]
fn frames_of_the_connection_and_windows() {
    hold(&connection::others());
    hold(&streams::continuations());
}

#[test]
fn a_call_is_a_head_data_and_perhaps_trailers() {
    hold(&calls::rows());
}

#[test]
fn fields_are_those_of_a_request() {
    hold(&fields::rows());
}

/// The page lists each case of h2spec once, with the reaction that is tested here.
#[test]
fn the_page_has_all_cases() {
    let rows = [
        connection::starts(),
        connection::frames(),
        packed::rows(),
        streams::states(),
        streams::frames(),
        connection::settings(),
        connection::others(),
        streams::continuations(),
        calls::rows(),
        fields::rows(),
    ];
    let mut tested = BTreeMap::new();
    for (cases, _, _, reaction) in rows.into_iter().flatten() {
        for case in cases.split_whitespace() {
            assert_eq!(tested.insert(case, reaction.to_string()), None, "{case} is tested twice");
        }
    }
    let mut listed = BTreeMap::new();
    for line in include_str!("../../../../../docs/http2.md").lines() {
        let Some(row) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else {
            continue;
        };
        let columns: Vec<_> = row.split(" | ").collect();
        if let [case, _, _, reaction] = columns[..]
            && case.contains('/')
        {
            assert_eq!(listed.insert(case, reaction.to_owned()), None, "{case} is listed twice");
        }
    }
    assert_eq!(tested, listed);
    assert_eq!(listed.len(), 147);
}
