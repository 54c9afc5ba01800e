//! Conversations that a server of each protocol accepts, and mutations of them.

use fastrand::Rng;

use crate::grpc::{RATE_LIMITS, request_message};
use crate::load::h2::{fields, frame};
use crate::load::resp::command;
use crate::ours::WIDE_RULE;

/// The maximum length of a conversation, in bytes.
const MAX_BYTES: usize = 1 << 17;
/// The values by which a mutation replaces numbers.
const NUMBERS: [&str; 10] = [
    "0",
    "-1",
    "1",
    "4294967295",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "1e9",
    "",
    "2147483648",
];

/// The protocol of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbuseProtocol {
    Resp,
    Http,
    Grpc,
}

impl AbuseProtocol {
    pub(super) const ALL: [Self; 3] = [Self::Resp, Self::Http, Self::Grpc];

    /// Returns a valid conversation.
    pub(super) fn valid(self, dice: &mut Rng) -> Vec<u8> {
        let mut bytes = if self == Self::Grpc { opening() } else { Vec::new() };
        for number in 0..=dice.usize(..6) as u32 {
            let key = format!("{}", dice.usize(..1_000));
            bytes.extend(match self {
                Self::Resp => resp(dice, &key),
                Self::Http => http(dice, &key),
                Self::Grpc => call(2 * number + 1, &key),
            });
        }
        bytes
    }

    /// Returns a mutated conversation.
    pub(super) fn mutated(self, dice: &mut Rng) -> Vec<u8> {
        let mut bytes = self.valid(dice);
        for _ in 0..=dice.usize(..4) {
            mutate(self, &mut bytes, dice);
            bytes.truncate(MAX_BYTES);
        }
        bytes
    }
}

fn mutate(tongue: AbuseProtocol, bytes: &mut Vec<u8>, dice: &mut Rng) {
    let (at, length) = (dice.usize(..bytes.len().max(1)), dice.usize(..64));
    let end = (at + length).min(bytes.len());
    match dice.usize(..9) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << dice.usize(..8)),
        3 => bytes.iter_mut().skip(at).take(length).for_each(|byte| *byte = dice.u8(..)),
        4 => drop(bytes.splice(at..at, (0..length).map(|_| dice.u8(..)).collect::<Vec<_>>())),
        5 => {
            let repeated = bytes.get(at..end).unwrap_or_default().repeat(1 + dice.usize(..40));
            drop(bytes.splice(at..at, repeated));
        }
        6 => drop(bytes.splice(
            at..end,
            AbuseProtocol::ALL[dice.usize(..AbuseProtocol::ALL.len())].valid(dice),
        )),
        7 => drop(bytes.splice(at..at, tongue.valid(dice))),
        _ => {
            let Some(from) = bytes.iter().skip(at).position(u8::is_ascii_digit) else { return };
            let from = at + from;
            let digits = bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
            drop(bytes.splice(from..from + digits, NUMBERS[dice.usize(..NUMBERS.len())].bytes()));
        }
    }
}

fn resp(dice: &mut Rng, key: &str) -> Vec<u8> {
    let all: [&[&str]; 14] = [
        &["CL.THROTTLE", key, "9", "1", "60"],
        &["CL.THROTTLE", key, "9", "1", "60", "-3"],
        &["THROTTLE", key, "9", "1", "60", "2"],
        &["RATEGATE.CHECK", WIDE_RULE, "1", key],
        &["PING"],
        &["ECHO", key],
        &["HELLO", "3"],
        &["HELLO", "2", "AUTH", "default", key],
        &["CLIENT", "SETNAME", key],
        &["COMMAND", "DOCS"],
        &["SELECT", "0"],
        &["INFO"],
        &["RESET"],
        &["QUIT"],
    ];
    command(all[dice.usize(..all.len().max(1))])
}

fn http(dice: &mut Rng, key: &str) -> Vec<u8> {
    let body = format!(r#"{{"key":"{key}","max_burst":9,"count_per_period":1,"period":60}}"#);
    let length = body.len();
    match dice.usize(..6) {
        0 => "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
        1 => format!("GET /v1/keys/{WIDE_RULE}/{key} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        2 => format!(
            "POST /throttle HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
             {length:x}\r\n{body}\r\n0\r\n\r\n"
        ),
        3 => format!(
            "POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\
             expect: 100-continue\r\n\r\n{body}"
        ),
        4 => "GET /metrics HTTP/1.0\r\n\r\n".to_owned(),
        _ => format!(
            "POST /throttle HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        ),
    }
    .into_bytes()
}

/// Returns the preface, and settings.
pub(super) fn opening() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes
}

/// Returns a whole call on this stream, its header fields as literals.
pub(super) fn call(stream: u32, key: &str) -> Vec<u8> {
    let message = request_message(WIDE_RULE, key);
    let mut body = vec![0, 0, 0, 0, message.len() as u8];
    body.extend_from_slice(&message);
    [frame(1, 4, stream, &fields(RATE_LIMITS)), frame(0, 1, stream, &body)].concat()
}
