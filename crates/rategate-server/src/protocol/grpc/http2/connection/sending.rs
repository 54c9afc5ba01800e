//! Sending: data as far as the windows allow, then the ends of calls.

use bytes::{Bytes, BytesMut};
use rategate_protocol::grpc::Status;
use rategate_protocol::http2::{
    DATA, Frame, HEAD, MAX_FRAME, Reason, put_end, put_frame, put_refusal,
};

use super::Connection;
use super::streams::State;
use crate::protocol::grpc::status::Failure;
use crate::protocol::rls::Decide;

/// The number of unwritten bytes at which calls of many messages get no more replies until they
/// are written.
pub(super) const MAX_UNWRITTEN: usize = 64 << 10;

impl<D: Decide + Send + Sync + 'static> Connection<D> {
    /// Reserves the head of a data frame, and returns its position.
    pub(super) fn begin_data(&mut self, index: usize, out: &mut BytesMut) -> usize {
        let at = out.len();
        if let Some(stream) = self.streams.get_mut(index) {
            stream.is_answered = true;
            put_frame(out, DATA, 0, stream.id, 0);
        }
        at
    }

    /// Sends the written bytes as the data of a call of one message, and ends the call.
    pub(super) fn send(&mut self, index: usize, frame_at: usize, out: &mut BytesMut) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.passed();
        let data_at = frame_at.saturating_add(HEAD);
        let length = out.len().saturating_sub(data_at);
        let available = self.windows.send.available().min(stream.send.available());
        if length <= available.min(MAX_FRAME) {
            self.windows.send.sent(length);
            let [_, a, b, c] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
            if let Some(target) = out.get_mut(frame_at..frame_at.saturating_add(3)) {
                target.copy_from_slice(&[a, b, c]);
            }
            put_end(out, stream.id, &Status::OK);
            if !stream.is_ended {
                self.cut.put_reset(out, stream.id, Reason::NoError);
            }
            self.remove_stream(index);
            return;
        }
        stream.blocked = Bytes::copy_from_slice(out.get(data_at..).unwrap_or_default());
        stream.end = Some(Status::OK);
        out.truncate(frame_at);
        self.pump(index, out);
    }

    /// Sends blocked data as far as the windows allow, then the end, if there is one. Returns
    /// `true` if the stream was removed.
    pub(super) fn pump(&mut self, index: usize, out: &mut BytesMut) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        while !stream.blocked.is_empty() {
            let available =
                self.windows.send.available().min(stream.send.available()).min(MAX_FRAME);
            if available == 0 {
                return false;
            }
            let chunk = stream.blocked.split_to(available.min(stream.blocked.len()));
            stream.send.sent(chunk.len());
            self.windows.send.sent(chunk.len());
            put_frame(out, DATA, 0, stream.id, chunk.len());
            out.extend_from_slice(&chunk);
        }
        let Some(status) = stream.end.take() else { return false };
        put_end(out, stream.id, &status);
        if !stream.is_ended {
            self.cut.put_reset(out, stream.id, Reason::NoError);
        }
        self.remove_stream(index);
        true
    }

    /// Ends a call without a message, or without another.
    pub(super) fn fail(&mut self, index: usize, failure: impl Into<Failure>, out: &mut BytesMut) {
        let Failure { status, refusal } = failure.into();
        let Some(stream) = self.streams.get_mut(index) else { return };
        if stream.is_answered && stream.is_streaming() {
            stream.end = Some(status);
            self.pump(index, out);
            return;
        }
        // The server itself ends calls of many messages.
        let reason = if stream.is_streaming() { None } else { refusal };
        let attempt = stream.attempt.take();
        put_refusal(out, stream.id, &status);
        if !stream.is_ended {
            self.cut.put_reset(out, stream.id, Reason::NoError);
        }
        self.remove_stream(index);
        self.ended(attempt, reason, out);
    }

    /// Handles a window update of one stream, or of the connection.
    pub(super) fn window(&mut self, frame: &Frame<'_>, out: &mut BytesMut) -> Result<(), Reason> {
        let more = i64::from(frame.number()? & 0x7fff_ffff);
        self.budget.spend(1)?;
        if more == 0 {
            return Err(Reason::Protocol);
        }
        if frame.stream == 0 {
            self.windows.send.widen(more)?;
            self.pump_all(out);
            return Ok(());
        }
        match self.state(frame.stream) {
            State::Idle => Err(Reason::Protocol),
            State::Open(index) => {
                let stream = self.streams.get_mut(index);
                if let Some(Err(reason)) = stream.map(|stream| stream.send.widen(more)) {
                    return self.refuse(index, reason, out);
                }
                self.resume(index, out);
                Ok(())
            }
            State::Ignored | State::Closed => Ok(()),
        }
    }

    /// Applies the peer's initial stream window to all open streams.
    pub(super) fn change_windows(&mut self, first: u32) -> Result<(), Reason> {
        let more = self.windows.change_first(first);
        self.streams.iter_mut().try_for_each(|stream| stream.send.widen(more))
    }

    pub(super) fn pump_all(&mut self, out: &mut BytesMut) {
        let mut index = 0_usize;
        while index < self.streams.len() {
            if out.len() >= MAX_UNWRITTEN {
                self.is_held_back = true;
                return;
            }
            // After a removal, another stream has this index.
            if self.resume(index, out) {
                index = index.saturating_add(1);
            }
        }
    }

    /// Sends as much as the windows now allow. Returns `true` if the stream remains.
    fn resume(&mut self, index: usize, out: &mut BytesMut) -> bool {
        if self.pump(index, out) {
            return false;
        }
        let before = self.streams.len();
        match self.streams.get(index) {
            Some(stream) if stream.watcher.is_some() => self.send_news(index, out),
            Some(stream) if stream.method.is_conversation() => self.converse(index, out),
            _ => {}
        }
        self.streams.len() == before
    }

    /// Resumes held-back replies once all bytes are written. Returns `true` if there were any.
    pub(in super::super) fn resume_all(&mut self, out: &mut BytesMut) -> bool {
        let is_held_back = std::mem::take(&mut self.is_held_back);
        if is_held_back {
            self.pump_all(out);
        }
        is_held_back
    }
}
