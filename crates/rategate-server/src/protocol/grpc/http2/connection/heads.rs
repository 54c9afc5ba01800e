//! Heads: collected from frames, decoded, and dispatched to calls.

use bytes::BytesMut;
use rategate_protocol::grpc::{BadFrame, Status};
use rategate_protocol::http2::{
    END_HEADERS, END_STREAM, Frame, Reason, Unpacking, WITH_PRIORITY, put_http_refusal, put_refusal,
};

use super::Connection;
use super::streams::State;
use crate::net::{Attempt, RefusalReason};
use crate::protocol::budget::RESET;
use crate::protocol::grpc::head::Refusal;
use crate::protocol::grpc::http2::fields::{Kind, Unpacked, unpack};
use crate::protocol::grpc::http2::stream::Stream;
use crate::protocol::rls::Decide;

/// An incomplete head that continues in the next frame.
pub(super) struct Begun {
    stream: u32,
    /// `true` if the head is all of the call.
    is_ended: bool,
    /// The bytes received so far.
    block: Vec<u8>,
}

/// The maximum number of compressed bytes of a head, unless the settings allow longer heads. Within
/// this bound, a head over the maximum of the settings fails only its own call. It is still
/// decoded, to keep the tables of both ends equal.
const MAX_BLOCK: usize = 256 << 10;
/// The length from which a part of a head costs nothing: a head has few such parts.
const FREE_FRAGMENT_BYTES: usize = 8 << 10;

impl<D: Decide + Send + Sync + 'static> Connection<D> {
    /// Returns `true` if a head has begun and not ended.
    pub(in super::super) const fn is_within_a_head(&self) -> bool {
        self.head.is_some()
    }

    pub(super) fn headers(&mut self, frame: &Frame<'_>, out: &mut BytesMut) -> Result<(), Reason> {
        let mut block = frame.unpadded()?;
        if frame.has(WITH_PRIORITY) {
            let (&priority, rest) = block.split_first_chunk().ok_or(Reason::FrameSize)?;
            if frame.depends_on_itself(priority) {
                return Err(Reason::Protocol);
            }
            block = rest;
        }
        if frame.stream.is_multiple_of(2) {
            return Err(Reason::Protocol);
        }
        let (stream, is_ended) = (frame.stream, frame.has(END_STREAM));
        if frame.has(END_HEADERS) {
            return self.head(stream, is_ended, block, out);
        }
        self.charge_fragment(block.len())?;
        self.head = Some(Begun { stream, is_ended, block: block.to_vec() });
        Ok(())
    }

    pub(super) fn continuation(
        &mut self,
        frame: &Frame<'_>,
        out: &mut BytesMut,
    ) -> Result<(), Reason> {
        self.charge_fragment(frame.payload.len())?;
        let Some(mut begun) = self.head.take() else { return Err(Reason::Protocol) };
        if frame.stream != begun.stream {
            return Err(Reason::Protocol);
        }
        let length = begun.block.len().saturating_add(frame.payload.len());
        if length > MAX_BLOCK.max(self.rls.inner.settings.max_head_bytes) {
            return Err(Reason::EnhanceYourCalm);
        }
        begun.block.extend_from_slice(frame.payload);
        if frame.has(END_HEADERS) {
            return self.head(begun.stream, begun.is_ended, &begun.block, out);
        }
        self.head = Some(begun);
        Ok(())
    }

    /// Charges a part of an incomplete head.
    fn charge_fragment(&mut self, bytes: usize) -> Result<(), Reason> {
        Ok(self.budget.spend(u32::from(bytes < FREE_FRAGMENT_BYTES))?)
    }

    /// Handles a complete head: it begins a call, or is its trailers.
    fn head(
        &mut self,
        id: u32,
        is_ended: bool,
        block: &[u8],
        out: &mut BytesMut,
    ) -> Result<(), Reason> {
        let unpacked = unpack(&mut self.decoder, block, self.rls.inner.settings.max_head_bytes);
        let unpacked = unpacked.map_err(|Unpacking| Reason::Compression)?;
        match self.state(id) {
            State::Idle => self.begin(id, is_ended, &unpacked, out),
            State::Open(index) => {
                self.budget.spend(1)?;
                let are_last = is_ended && unpacked.kind == Kind::Trailers && !unpacked.is_too_long;
                self.trailers(index, are_last, out)
            }
            // A peer that has not received the GOAWAY may still send.
            State::Ignored => Ok(self.budget.spend(u32::from(id <= self.last))?),
            // A stream number is used once, and numbers increase.
            State::Closed => Err(Reason::Protocol),
        }
    }

    /// Handles more fields on an open stream. `are_last` is `true` if they are valid trailers.
    fn trailers(&mut self, index: usize, are_last: bool, out: &mut BytesMut) -> Result<(), Reason> {
        let is_ended = self.streams.get(index).is_some_and(|stream| stream.is_ended);
        if are_last || is_ended {
            self.end(index, &[], out)
        } else {
            self.refuse(index, Reason::Protocol, out)
        }
    }

    /// Begins a call, or refuses it.
    fn begin(
        &mut self,
        id: u32,
        is_ended: bool,
        unpacked: &Unpacked,
        out: &mut BytesMut,
    ) -> Result<(), Reason> {
        self.last = id;
        let max_streams = self.rls.inner.settings.max_streams;
        let is_full = self.streams.len() >= usize::try_from(max_streams).unwrap_or(usize::MAX);
        if is_full || unpacked.kind != Kind::Request {
            self.budget.spend(RESET)?;
            let reason = if is_full { Reason::RefusedStream } else { Reason::Protocol };
            self.cut.put_reset(out, id, reason);
            if !is_full {
                self.refused(Some(RefusalReason::Malformed));
            }
            return Ok(());
        }
        let token = unpacked.head.token;
        let mut attempt = None;
        if !self.attempts.pass(token) {
            let begun = self.attempts.begin(token);
            if !begun.pause.is_zero() {
                self.hold(id, is_ended, unpacked, begun);
                return Ok(());
            }
            attempt = Some(begun);
        }
        match self.call(id, is_ended, unpacked, attempt, out) {
            Some(index) if is_ended => self.end(index, &[], out),
            _ => Ok(()),
        }
    }

    /// Continues a call after its head. Returns its index, unless the call has already ended.
    pub(super) fn call(
        &mut self,
        id: u32,
        is_ended: bool,
        unpacked: &Unpacked,
        attempt: Option<Attempt>,
        out: &mut BytesMut,
    ) -> Option<usize> {
        let (head, max_wait) = (&unpacked.head, self.rls.inner.settings.max_wait);
        let called = if attempt.as_ref().is_none_or(Attempt::may_proceed) {
            head.call(&self.rls.inner.access, self.token_required)
        } else {
            Err(Refusal::Grpc(Status::no_token()))
        };
        let (method, timeout) = match called {
            Ok(call) => call,
            Err(refusal) => {
                match &refusal {
                    Refusal::Http(status) => put_http_refusal(out, id, *status),
                    Refusal::Grpc(status) => put_refusal(out, id, status),
                }
                if !is_ended {
                    self.cut.put_reset(out, id, Reason::NoError);
                }
                self.ended(attempt, refusal.reason(), out);
                return None;
            }
        };
        let wait = timeout.map_or(max_wait, |timeout| timeout.min(max_wait));
        let mut stream = Stream::new(id, method, wait, &self.windows);
        stream.bytes_expected = unpacked.length;
        (stream.token, stream.attempt) = (head.token, attempt);
        #[cfg(feature = "otlp")]
        {
            stream.span = head.span;
        }
        stream.is_ended = is_ended && unpacked.is_too_long;
        self.streams.push(stream);
        let index = self.streams.len().saturating_sub(1);
        if unpacked.is_too_long {
            // Only this call is refused, like a call whose message is too long.
            let max = self.rls.inner.settings.max_head_bytes;
            self.bad_frame(index, BadFrame::LongHead { max }, out);
            return None;
        }
        Some(index)
    }
}
