//! Attacks on a server, each on a thread of its own, until a flag ends them.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use super::talk::{AbuseProtocol, opening};
use crate::grpc::RATE_LIMITS;
use crate::load::h2::{fields, frame};

/// The number of callers that send a byte now and then, at each listener.
const SLOW: usize = 300;
/// The number of callers that send nothing.
const IDLE: usize = 10_000;
/// The number of idle callers of one listener, which the ports of one address limit.
const IDLE_EACH: usize = IDLE / 3;
const PATIENCE: Duration = Duration::from_millis(20);
/// The bytes sent of a frame that is too long, before the sender gives up.
const OVERSIZED: usize = 8 << 20;

/// The targets of the attacks, their end, and their counts.
#[derive(Debug, Default)]
pub(super) struct Field {
    /// The ports of RESP, HTTP and gRPC.
    pub(super) ports: [u16; 3],
    pub(super) is_over: AtomicBool,
    pub(super) conversations: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) max_idle: AtomicU64,
}

pub(super) type Attack = fn(&Field, Rng);

pub(super) const ALL: [(&str, Attack); 6] = [
    ("mutated conversations", mutated),
    ("mutated conversations", mutated),
    ("slow callers", slow),
    ("idle callers", idle),
    ("oversized frames", oversized),
    ("rapid resets", resets),
];

impl Field {
    fn is_running(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn connect(&self, tongue: AbuseProtocol) -> Option<TcpStream> {
        let index = AbuseProtocol::ALL.iter().position(|other| *other == tongue).unwrap_or(0);
        let stream = TcpStream::connect(("127.0.0.1", self.ports[index]));
        let Ok(stream) = stream else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            thread::sleep(PATIENCE);
            return None;
        };
        let _ = stream.set_nodelay(true);
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
        self.conversations.fetch_add(1, Ordering::Relaxed);
        Some(stream)
    }
}

/// Sends mutated conversations in pieces, and reads the replies or not.
fn mutated(field: &Field, mut dice: Rng) {
    while field.is_running() {
        let tongue = AbuseProtocol::ALL[dice.usize(..AbuseProtocol::ALL.len())];
        let Some(mut stream) = field.connect(tongue) else { continue };
        let bytes = tongue.mutated(&mut dice);
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let whole = dice.usize(..2) == 0;
            let (piece, later) =
                rest.split_at(if whole { rest.len() } else { 1 + dice.usize(..rest.len().max(1)) });
            if stream.write_all(piece).is_err() {
                break;
            }
            rest = later;
        }
        if dice.usize(..4) > 0 {
            discard(&mut stream, 64 << 10);
        }
    }
}

/// Reads until the end, or at most `max_bytes` bytes.
fn discard(stream: &mut TcpStream, max_bytes: usize) {
    let (mut buffer, mut received) = ([0; 4096], 0);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        received += count;
        if received > max_bytes {
            return;
        }
    }
}

/// Sends a byte for each of many callers, again and again; a disconnected caller comes back.
fn slow(field: &Field, mut dice: Rng) {
    let mut callers: Vec<(TcpStream, Vec<u8>, usize)> = Vec::new();
    while field.is_running() {
        if callers.len() < SLOW * AbuseProtocol::ALL.len() {
            let tongue = AbuseProtocol::ALL[callers.len() % 3];
            if let Some(stream) = field.connect(tongue) {
                let _ = stream.set_nonblocking(true);
                callers.push((stream, tongue.valid(&mut dice), 0));
            }
        }
        let index = dice.usize(..callers.len().max(1));
        let Some((stream, bytes, at)) = callers.get_mut(index) else { continue };
        // One byte before the end it stays for ever.
        let next = bytes.get(*at).filter(|_| *at + 2 < bytes.len());
        let sent = next.map_or(Ok(0), |byte| stream.write(&[*byte]));
        let received = stream.read(&mut [0; 64]);
        let is_closed = |result: &std::io::Result<usize>| {
            matches!(
                result,
                Err(error) if error.kind() != ErrorKind::WouldBlock
            )
        };
        if is_closed(&sent) || is_closed(&received) || matches!(received, Ok(0)) {
            callers.swap_remove(index);
        } else if next.is_some() {
            *at += 1;
        }
        thread::sleep(Duration::from_micros(500));
    }
}

/// Keeps as many idle connections as the system allows.
fn idle(field: &Field, mut dice: Rng) {
    let mut callers = Vec::new();
    while field.is_running() {
        if callers.len() < IDLE_EACH * 3 {
            match field.connect(AbuseProtocol::ALL[callers.len() % 3]) {
                Some(stream) => {
                    let _ = stream.set_nonblocking(true);
                    callers.push(stream);
                }
                // A limit is reached, on either side: half of the callers leave.
                None => callers.truncate(callers.len() / 2),
            }
            field.max_idle.fetch_max(callers.len() as u64, Ordering::Relaxed);
        }
        let index = dice.usize(..callers.len().max(1));
        let is_closed =
            callers.get_mut(index).is_some_and(|stream| matches!(stream.read(&mut [0; 64]), Ok(0)));
        if is_closed {
            callers.swap_remove(index);
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// Sends heads that announce large frames, and then their contents, until the server closes.
fn oversized(field: &Field, mut dice: Rng) {
    const HEADS: [(AbuseProtocol, &[u8]); 10] = [
        (AbuseProtocol::Resp, b"*2147483647\r\n"),
        (AbuseProtocol::Resp, b"*1000000\r\n$1\r\na\r\n"),
        (AbuseProtocol::Resp, b"*2\r\n$4\r\nECHO\r\n$536870912\r\n"),
        (AbuseProtocol::Resp, b"*3\r\n*3\r\n*3\r\n*3\r\n"),
        (
            AbuseProtocol::Http,
            b"POST /throttle HTTP/1.1\r\nhost: a\r\ncontent-length: 10000000000\r\n\r\n",
        ),
        (
            AbuseProtocol::Http,
            b"POST /v1/check HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nfffffff\r\n",
        ),
        (AbuseProtocol::Http, b"GET / HTTP/1.1\r\nx: "),
        (
            AbuseProtocol::Grpc,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\
              \xff\xff\xff\x00\x01\x00\x00\x00\x01",
        ),
        (
            AbuseProtocol::Grpc,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\
              \x00\x00\x01\x01\x00\x00\x00\x00\x01\x83",
        ),
        (AbuseProtocol::Resp, b""),
    ];
    while field.is_running() {
        let (tongue, head) = &HEADS[dice.usize(..HEADS.len())];
        let Some(mut stream) = field.connect(*tongue) else { continue };
        let filler = match (tongue, dice.usize(..3)) {
            // Header fields that never end.
            (AbuseProtocol::Grpc, 0) => frame(9, 0, 1, &[0x83; 16_000]),
            (_, 1) => b"$1\r\na\r\n".repeat(2_000),
            _ => vec![b'a'; 16_000],
        };
        let mut sent = stream.write_all(head).map_or(OVERSIZED, |()| 0);
        while sent < OVERSIZED && field.is_running() && stream.write_all(&filler).is_ok() {
            sent += filler.len();
        }
        discard(&mut stream, 64 << 10);
    }
}

/// Begins and resets streams, and sends pings and settings that need replies, faster than any
/// client should.
fn resets(field: &Field, mut dice: Rng) {
    const STREAMS: u32 = 20_000;
    while field.is_running() {
        let Some(mut stream) = field.connect(AbuseProtocol::Grpc) else { continue };
        let mut sent = stream.write_all(&opening());
        let kind = dice.usize(..3);
        for number in 0..STREAMS {
            if sent.is_err() || !field.is_running() {
                break;
            }
            let id = 2 * number + 1;
            let bytes = match kind {
                0 => {
                    [frame(1, 4, id, &fields(RATE_LIMITS)), frame(3, 0, id, &[0, 0, 0, 8])].concat()
                }
                1 => frame(6, 0, 0, &[0; 8]),
                _ => frame(4, 0, 0, &[0, 4, 0, 1, 0, 0]),
            };
            sent = stream.write_all(&bytes.repeat(if kind == 0 { 1 } else { 16 }));
        }
        discard(&mut stream, 1 << 20);
    }
}
