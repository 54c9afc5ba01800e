//! HTTP/2 frames (RFC 9113, section 4): their heads, and the frames that the server sends.

use bytes::{BufMut, BytesMut};

use crate::grpc::{Code, ENCODING, Status};

/// The text that a client sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The longest frame that is received, which is the default of the protocol.
pub const MAX_FRAME: usize = 16_384;

/// The length of a frame's head.
pub const HEAD: usize = 9;

/// The kind of a frame: data of a call.
pub const DATA: u8 = 0;
/// The kind of a frame: a head, or the fields at the end.
pub const HEADERS: u8 = 1;
/// The kind of a frame: a priority, which is ignored.
pub const PRIORITY: u8 = 2;
/// The kind of a frame: the end of a stream by an error.
pub const RST_STREAM: u8 = 3;
/// The kind of a frame: settings of a connection.
pub const SETTINGS: u8 = 4;
/// The kind of a frame: a push, which no client may send.
pub const PUSH_PROMISE: u8 = 5;
/// The kind of a frame: a ping.
pub const PING: u8 = 6;
/// The kind of a frame: the end of a connection.
pub const GOAWAY: u8 = 7;
/// The kind of a frame: credit for more data.
pub const WINDOW_UPDATE: u8 = 8;
/// The kind of a frame: more of a head.
pub const CONTINUATION: u8 = 9;

/// The flag of `SETTINGS` and `PING`.
pub const ACK: u8 = 1;
/// The flag of the last frame of a stream.
pub const END_STREAM: u8 = 1;
/// The flag of the last frame of a head.
pub const END_HEADERS: u8 = 4;
/// The flag of a frame with padding.
pub const PADDED: u8 = 8;
/// The flag of a head with a priority.
pub const WITH_PRIORITY: u8 = 0x20;

/// The reason for resetting a stream or ending a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// None: the end is regular.
    NoError,
    /// The peer breaks the protocol.
    Protocol,
    /// The peer sends more than it may.
    FlowControl,
    /// A frame of a stream that has ended.
    StreamClosed,
    /// A frame of a wrong length.
    FrameSize,
    /// The stream was not begun, and may be repeated.
    RefusedStream,
    /// The stream is no longer needed.
    Cancel,
    /// The fields of a head cannot be decoded.
    Compression,
    /// The peer asks for too much.
    EnhanceYourCalm,
}

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The kind.
    pub kind: u8,
    /// The flags.
    pub flags: u8,
    /// The number of the stream, 0 for the connection.
    pub stream: u32,
    /// The bytes after the head.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Returns the first frame if it is complete. Otherwise returns the number of bytes it needs,
    /// as far as known.
    ///
    /// # Errors
    ///
    /// [`Reason::FrameSize`] for a frame that is longer than [`MAX_FRAME`].
    pub fn first(bytes: &'a [u8]) -> Result<Result<Self, usize>, Reason> {
        let Some((&[l0, l1, l2, kind, flags, s0, s1, s2, s3], rest)) =
            bytes.split_first_chunk::<HEAD>()
        else {
            return Ok(Err(HEAD));
        };
        let length = usize::try_from(u32::from_be_bytes([0, l0, l1, l2])).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(Reason::FrameSize);
        }
        let stream = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
        Ok(match rest.get(..length) {
            Some(payload) => Ok(Self { kind, flags, stream, payload }),
            None => Err(length.saturating_add(HEAD)),
        })
    }

    /// Returns `true` if the frame has `flag`.
    #[must_use]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag > 0
    }

    /// Returns the length of the frame, in bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.payload.len().saturating_add(HEAD)
    }

    /// Returns the payload without its padding.
    ///
    /// # Errors
    ///
    /// [`Reason::Protocol`] for more padding than payload, [`Reason::FrameSize`] without a length.
    pub fn unpadded(&self) -> Result<&'a [u8], Reason> {
        if !self.has(PADDED) {
            return Ok(self.payload);
        }
        let (padding, rest) = self.payload.split_first().ok_or(Reason::FrameSize)?;
        let length = rest.len().checked_sub(usize::from(*padding)).ok_or(Reason::Protocol)?;
        rest.get(..length).ok_or(Reason::Protocol)
    }

    /// Returns `true` if `priority` makes the frame's stream depend on itself. Priorities are
    /// otherwise ignored.
    #[must_use]
    pub fn depends_on_itself(&self, priority: [u8; 5]) -> bool {
        let [a, b, c, d, _] = priority;
        u32::from_be_bytes([a & 0x7f, b, c, d]) == self.stream
    }

    /// Returns the payload as a number.
    ///
    /// # Errors
    ///
    /// [`Reason::FrameSize`] unless the payload has four bytes.
    pub fn number(&self) -> Result<u32, Reason> {
        let number = self.payload.try_into().map_err(|_| Reason::FrameSize)?;
        Ok(u32::from_be_bytes(number))
    }
}

/// Writes the head of a frame. The caller writes its payload next.
pub fn put_frame(out: &mut BytesMut, kind: u8, flags: u8, stream: u32, length: usize) {
    let [_, a, b, c] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    out.put_slice(&[a, b, c, kind, flags]);
    out.put_u32(stream);
}

/// Writes the settings: the maximum number of streams, their windows, and the maximum size of a
/// head.
pub fn put_settings(out: &mut BytesMut, streams: u32, window: u32, max_head_bytes: usize) {
    put_frame(out, SETTINGS, 0, 0, 18);
    let max_head_bytes = u32::try_from(max_head_bytes).unwrap_or(u32::MAX);
    for (name, value) in [(3_u16, streams), (4, window), (6, max_head_bytes)] {
        out.put_u16(name);
        out.put_u32(value);
    }
}

/// Writes credit for `more` bytes of data.
pub fn put_window(out: &mut BytesMut, stream: u32, more: u32) {
    put_frame(out, WINDOW_UPDATE, 0, stream, 4);
    out.put_u32(more);
}

/// Writes the end of a stream by an error.
pub fn put_reset(out: &mut BytesMut, stream: u32, reason: Reason) {
    put_frame(out, RST_STREAM, 0, stream, 4);
    out.put_u32(u32::from(reason.number()));
}

/// Writes a ping, to check that the peer is present.
pub fn put_ping(out: &mut BytesMut) {
    put_frame(out, PING, 0, 0, 8);
    out.put_u64(0);
}

/// Writes the end of the connection. No stream after `last` was begun.
pub fn put_goaway(out: &mut BytesMut, last: u32, reason: Reason) {
    put_frame(out, GOAWAY, 0, 0, 8);
    out.put_u32(last);
    out.put_u32(u32::from(reason.number()));
}

/// The fields `:status: 200`, by its index in the static table, and `content-type:
/// application/grpc`, by the index of its name.
const ANSWER: &[u8] = b"\x88\x0f\x10\x10application/grpc";

/// The field `grpc-status: 0`.
const OK: &[u8] = b"\x00\x0bgrpc-status\x010";

/// Writes the head of a reply.
pub fn put_answer(out: &mut BytesMut, stream: u32) {
    put_frame(out, HEADERS, END_HEADERS, stream, ANSWER.len());
    out.put_slice(ANSWER);
}

/// Writes the end of a reply.
pub fn put_end(out: &mut BytesMut, stream: u32, status: &Status) {
    if status.code == Code::Ok {
        put_frame(out, HEADERS, END_HEADERS | END_STREAM, stream, OK.len());
        out.put_slice(OK);
        return;
    }
    let mut block = BytesMut::new();
    put_status(&mut block, status);
    put_frame(out, HEADERS, END_HEADERS | END_STREAM, stream, block.len());
    out.put_slice(&block);
}

/// Writes the refusal of a request that is not gRPC: a reply with this HTTP status alone.
pub fn put_http_refusal(out: &mut BytesMut, stream: u32, status: u16) {
    let mut block = BytesMut::new();
    // The name by its index in the table.
    block.put_u8(0x08);
    put_text(&mut block, status.to_string().as_bytes());
    put_frame(out, HEADERS, END_HEADERS | END_STREAM, stream, block.len());
    out.put_slice(&block);
}

/// Writes a reply that has only an end.
pub fn put_refusal(out: &mut BytesMut, stream: u32, status: &Status) {
    let mut block = BytesMut::from(ANSWER);
    put_status(&mut block, status);
    if status.code == Code::Unimplemented {
        put_field(&mut block, b"grpc-accept-encoding", ENCODING.as_bytes());
    }
    put_frame(out, HEADERS, END_HEADERS | END_STREAM, stream, block.len());
    out.put_slice(&block);
}

fn put_status(block: &mut BytesMut, status: &Status) {
    put_field(block, b"grpc-status", status.code.number().as_bytes());
    if status.code != Code::Ok {
        put_field(block, b"grpc-message", status.field().as_bytes());
    }
}

fn put_field(block: &mut BytesMut, name: &[u8], value: &[u8]) {
    block.put_u8(0);
    put_text(block, name);
    put_text(block, value);
}

fn put_text(block: &mut BytesMut, text: &[u8]) {
    // Texts are short: see `Status::field`.
    let mut rest = text.len();
    if rest < 127 {
        block.put_u8(u8::try_from(rest).unwrap_or(0));
    } else {
        block.put_u8(127);
        rest = rest.saturating_sub(127);
        while rest >= 128 {
            block.put_u8(u8::try_from(rest & 0x7f).unwrap_or(0) | 0x80);
            rest >>= 7;
        }
        block.put_u8(u8::try_from(rest).unwrap_or(0));
    }
    block.put_slice(text);
}

impl Reason {
    const fn number(self) -> u8 {
        match self {
            Self::NoError => 0,
            Self::Protocol => 1,
            Self::FlowControl => 3,
            Self::StreamClosed => 5,
            Self::FrameSize => 6,
            Self::RefusedStream => 7,
            Self::Cancel => 8,
            Self::Compression => 9,
            Self::EnhanceYourCalm => 11,
        }
    }
}
