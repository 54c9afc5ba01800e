//! gRPC: HTTP/2 frames rendered in advance, as by a client whose header fields are already in its
//! table.

use rategate_bench::engines::Made;

use super::Dialect;
use super::key_sequence::KeySequence;
use super::tally::LoadTally;
use super::template::Template;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The bytes that the server may send on all streams together before the window is updated.
const WINDOW: u32 = 1 << 30;
/// The bytes that may be sent before the server updates its window.
const THEIR_WINDOW: i64 = 65_535;
/// The fields with indexed names or values, newest first, from 62 on: te, content-type,
/// authority, path.
const FIELDS: &[u8] = &[0x83, 0x86, 0xc1, 0xc0, 0xbf, 0xbe];

/// One connection.
#[derive(Clone, Debug)]
pub(crate) struct Grpc {
    /// The header block that puts its fields into the table.
    first: Option<Vec<u8>>,
    /// A DATA frame with the message.
    message: Template,
    streams: usize,
    next_id: u32,
    waiting: Vec<Waiting>,
    their_window: i64,
    received: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: u32,
    sent_ns: u64,
    is_allowed: Option<bool>,
}

impl Grpc {
    /// Creates a connection that calls this method with this message, `streams` calls at a time.
    pub(crate) fn new(path: &str, message: &[u8], streams: usize) -> Self {
        let mut body = vec![0];
        body.extend_from_slice(&(message.len() as u32).to_be_bytes());
        body.extend_from_slice(message);
        Self {
            first: Some(fields(path)),
            message: Template::new(frame(DATA, END_STREAM, 0, &body)),
            streams,
            next_id: 1,
            waiting: Vec::with_capacity(streams),
            their_window: THEIR_WINDOW,
            received: 0,
        }
    }

    fn frame(
        &mut self,
        head: Head,
        payload: &[u8],
        now_ns: u64,
        tally: &mut LoadTally,
        out: &mut Vec<u8>,
    ) -> Made<()> {
        match head.kind {
            DATA => {
                self.received += payload.len() as u32;
                if self.received > WINDOW / 2 {
                    out.extend_from_slice(&frame(
                        WINDOW_UPDATE,
                        0,
                        0,
                        &self.received.to_be_bytes(),
                    ));
                    self.received = 0;
                }
                // Both protocols decide by their first field: 1 grants. A message of a byte or
                // more follows its length.
                let waiting = self.waiting.iter_mut().find(|waiting| waiting.id == head.stream);
                if let (Some(waiting), Some(message)) = (waiting, payload.get(5..)) {
                    waiting.is_allowed = Some(message.starts_with(&[0x08, 1]));
                }
            }
            SETTINGS if head.flags & ACK == 0 => {
                out.extend_from_slice(&frame(SETTINGS, ACK, 0, &[]));
            }
            PING if head.flags & ACK == 0 => out.extend_from_slice(&frame(PING, ACK, 0, payload)),
            WINDOW_UPDATE if head.stream == 0 => {
                let more = payload.try_into().map_or(0, u32::from_be_bytes);
                self.their_window += i64::from(more);
            }
            GOAWAY => return Err(format!("GOAWAY: {}", String::from_utf8_lossy(payload)).into()),
            _ => {}
        }
        let ends = head.flags & END_STREAM != 0 && matches!(head.kind, DATA | HEADERS);
        if ends || head.kind == RST_STREAM {
            let index = self.waiting.iter().position(|waiting| waiting.id == head.stream);
            let waiting = self.waiting.swap_remove(index.ok_or("an end of an unknown stream")?);
            match waiting.is_allowed {
                Some(is_allowed) if ends => {
                    tally.answer(is_allowed, now_ns.saturating_sub(waiting.sent_ns));
                }
                _ => tally.fail(payload),
            }
        }
        Ok(())
    }
}

impl Dialect for Grpc {
    fn greet(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(PREFACE);
        out.extend_from_slice(&frame(SETTINGS, 0, 0, &[]));
        out.extend_from_slice(&frame(WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes()));
    }

    fn write_requests(&mut self, key_sequence: &mut KeySequence, now_ns: u64, out: &mut Vec<u8>) {
        while self.waiting.len() < self.streams && self.their_window > self.message.len() as i64 {
            let Some(key) = key_sequence.key() else { break };
            let id = self.next_id;
            self.next_id += 2;
            if let Some(fields) = self.first.take() {
                out.extend_from_slice(&frame(HEADERS, END_HEADERS, id, &fields));
            } else {
                head(HEADERS, END_HEADERS, id, FIELDS.len(), out);
                out.extend_from_slice(FIELDS);
            }
            let at = out.len() + 5;
            self.message.write(key, out);
            out[at..at + 4].copy_from_slice(&id.to_be_bytes());
            self.their_window -= (self.message.len() - HEAD) as i64;
            self.waiting.push(Waiting { id, sent_ns: now_ns, is_allowed: None });
        }
    }

    fn read_replies(
        &mut self,
        bytes: &[u8],
        now_ns: u64,
        tally: &mut LoadTally,
        out: &mut Vec<u8>,
    ) -> Made<usize> {
        let mut taken = 0;
        while let Some((head, payload)) = Head::read(bytes.get(taken..).unwrap_or_default()) {
            taken += HEAD + payload.len();
            self.frame(head, payload, now_ns, tally, out)?;
        }
        Ok(taken)
    }

    fn waits_for(&self) -> usize {
        self.waiting.len()
    }
}

#[derive(Clone, Copy)]
struct Head {
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Head {
    /// Reads the head of a frame and its payload, if all of it has arrived.
    #[inline]
    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let head = bytes.first_chunk::<HEAD>()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        let head = Self { kind: head[3], flags: head[4], stream };
        Some((head, bytes.get(HEAD..HEAD + length)?))
    }
}

fn head(kind: u8, flags: u8, stream: u32, length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

/// Returns a whole frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + payload.len());
    head(kind, flags, stream, payload.len(), &mut out);
    out.extend_from_slice(payload);
    out
}

/// Returns the fields of a call, each put into the table.
pub(crate) fn fields(path: &str) -> Vec<u8> {
    // POST and http are in the table from the start.
    let mut block = vec![0x83, 0x86];
    let mut literal = |name: &[u8], value: &str| {
        block.extend_from_slice(name);
        block.push(value.len() as u8);
        block.extend_from_slice(value.as_bytes());
    };
    literal(&[0x44], path);
    literal(&[0x41], "127.0.0.1");
    literal(&[0x5f], "application/grpc");
    literal(&[0x40, 2, b't', b'e'], "trailers");
    block
}

/// Returns a field of a protobuf message: its number, and a text or a nested message.
pub(crate) fn nested(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2, bytes.len() as u8];
    out.extend_from_slice(bytes);
    out
}

/// Returns a protobuf field with a number in it.
pub(crate) fn varint(number: u8, mut value: u64) -> Vec<u8> {
    let mut out = vec![number << 3];
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

#[cfg(test)]
mod tests {
    use super::{DATA, END_STREAM, Grpc, HEADERS, SETTINGS, frame};
    use crate::load::Dialect as _;
    use crate::load::key_sequence::KeySequence;
    use crate::load::tally::LoadTally;

    #[test]
    fn calls_are_answered_in_any_order() {
        let mut tally = LoadTally::nothing().unwrap();
        let mut grpc = Grpc::new("/a.B/C", b"########", 2);
        let (mut key_sequence, mut out) = (KeySequence::each(3, 1), Vec::new());
        grpc.write_requests(&mut key_sequence, 0, &mut out);
        assert_eq!(grpc.waits_for(), 2);
        let answer = |stream, code| {
            let body = frame(DATA, 0, stream, &[0, 0, 0, 0, 2, 8, code]);
            [frame(HEADERS, 4, stream, &[]), body, frame(HEADERS, 4 | END_STREAM, stream, &[])]
                .concat()
        };
        let bytes = [frame(SETTINGS, 0, 0, &[]), answer(3, 2), answer(1, 1)].concat();
        for cut in 0..bytes.len() {
            let mut grpc = grpc.clone();
            let taken = grpc
                .read_replies(&bytes[..cut], 5, &mut LoadTally::nothing().unwrap(), &mut Vec::new())
                .unwrap();
            assert!(taken <= cut);
        }
        assert_eq!(grpc.read_replies(&bytes, 5, &mut tally, &mut out).unwrap(), bytes.len());
        assert_eq!((tally.allowed, tally.denied, tally.failed, grpc.waits_for()), (1, 1, 0, 0));
        // An error has no message.
        grpc.write_requests(&mut key_sequence, 5, &mut out);
        let bytes = frame(HEADERS, 4 | END_STREAM, 5, &[]);
        grpc.read_replies(&bytes, 9, &mut tally, &mut out).unwrap();
        assert_eq!((tally.failed, grpc.waits_for()), (1, 0));
    }
}
