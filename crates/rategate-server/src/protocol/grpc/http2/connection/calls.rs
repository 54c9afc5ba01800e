//! Calls of one message: the message arrives in any number of frames, is decided, and receives its
//! reply at once or later.

use std::task::{Context, Poll};

use bytes::BytesMut;
use rategate_protocol::grpc::{self, BadFrame};
use rategate_protocol::http2::{END_STREAM, Frame, Reason, put_answer};

use super::Connection;
use super::streams::State;
use crate::net::RefusalReason;
use crate::protocol::grpc::Unary;
use crate::protocol::grpc::head::Method;
use crate::protocol::rls::{Decide, RlsAnswer, RlsError};

impl<D: Decide + Send + Sync + 'static> Connection<D> {
    pub(super) fn data(&mut self, frame: &Frame<'_>, out: &mut BytesMut) -> Result<(), Reason> {
        let index = match self.state(frame.stream) {
            State::Idle => return Err(Reason::Protocol),
            State::Open(index) => Some(index),
            State::Ignored => None,
            State::Closed => return Err(Reason::StreamClosed),
        };
        let length = u32::try_from(frame.payload.len()).unwrap_or(u32::MAX);
        self.windows.received(frame.payload.len())?;
        let data = frame.unpadded()?;
        let is_ended = frame.has(END_STREAM);
        if data.is_empty() && !is_ended {
            self.budget.spend(1)?;
        }
        let Some(index) = index else {
            // The data arrived too late, for a call that has its reply already.
            self.budget.spend(u32::from(!is_ended))?;
            self.windows.free(length);
            return Ok(());
        };
        let Some(stream) = self.streams.get_mut(index) else { return Ok(()) };
        if stream.is_ended {
            return Err(Reason::StreamClosed);
        }
        stream.receive.received(frame.payload.len())?;
        stream.held = stream.held.saturating_add(length);
        if is_ended {
            return self.end(index, data, out);
        }
        if !stream.received(data.len(), false) {
            return self.refuse(index, Reason::Protocol, out);
        }
        stream.bytes.extend_from_slice(data);
        self.continue_reading(index, out);
        Ok(())
    }

    /// Continues reading a call whose messages are incomplete.
    pub(super) fn continue_reading(&mut self, index: usize, out: &mut BytesMut) {
        match self.streams.get(index) {
            Some(stream) if stream.hold.is_some() => {}
            Some(stream) if stream.method.is_conversation() => self.converse(index, out),
            _ => self.gather(index, out),
        }
    }

    /// Continues reading a message. Bytes that cannot become a message are refused before the rest
    /// has arrived.
    fn gather(&mut self, index: usize, out: &mut BytesMut) {
        // A message in parts may fill the whole window.
        self.windows.credit(out);
        let Some(stream) = self.streams.get(index) else { return };
        match grpc::length(&stream.bytes, self.rls.inner.settings.max_message_bytes) {
            Ok(Some(whole)) if stream.bytes.len() > whole => {
                self.bad_frame(index, BadFrame::Several, out);
            }
            Ok(_) => {}
            Err(bad) => self.bad_frame(index, bad, out),
        }
    }

    /// Ends a call whose bytes are not a message.
    pub(super) fn bad_frame(&mut self, index: usize, bad: BadFrame, out: &mut BytesMut) {
        let Some(stream) = self.streams.get(index) else { return };
        let (start, method) = (out.len(), stream.method);
        put_answer(out, stream.id);
        let data = self.begin_data(index, out);
        match self.rls.bad_frame(method, bad, out) {
            Ok(()) => {
                // A denial is a reply that costs no more work than others. Clients of a proxy
                // therefore cannot end its connection by sending long messages.
                self.budget.earn();
                self.refused(Some(RefusalReason::TooLong));
                self.send(index, data, out);
            }
            Err(status) => {
                out.truncate(start);
                self.fail(index, status, out);
            }
        }
    }

    /// Handles the end of the caller's data. `rest` is the last part.
    pub(super) fn end(
        &mut self,
        index: usize,
        rest: &[u8],
        out: &mut BytesMut,
    ) -> Result<(), Reason> {
        let Some(stream) = self.streams.get_mut(index) else { return Ok(()) };
        if std::mem::replace(&mut stream.is_ended, true) {
            return Err(Reason::StreamClosed);
        }
        if stream.hold.is_some() {
            stream.bytes.extend_from_slice(rest);
            return Ok(());
        }
        if !stream.received(rest.len(), true) {
            return self.refuse(index, Reason::Protocol, out);
        }
        if stream.method.is_conversation() {
            stream.bytes.extend_from_slice(rest);
            self.converse(index, out);
            return Ok(());
        }
        let gathered;
        let bytes = if stream.bytes.is_empty() {
            rest
        } else {
            stream.bytes.extend_from_slice(rest);
            gathered = std::mem::take(&mut stream.bytes);
            &gathered
        };
        let method = stream.method;
        #[cfg(feature = "otlp")]
        let _within = stream.span.map(crate::engine::CallerSpan::enter);
        match grpc::only(bytes, self.rls.inner.settings.max_message_bytes) {
            Ok(message) if method == Method::Watch => self.watch(index, message, out),
            Ok(message) => self.ask(index, method, message, out),
            Err(bad) => self.bad_frame(index, bad, out),
        }
        Ok(())
    }

    /// Requests a decision, and replies if it is made at once.
    fn ask(&mut self, index: usize, method: Method, message: &[u8], out: &mut BytesMut) {
        let Some(stream) = self.streams.get(index) else { return };
        let (start, id) = (out.len(), stream.id);
        let may_credit = self.rls.may_credit(stream.token, self.token_required);
        put_answer(out, id);
        let data = self.begin_data(index, out);
        let decided = self.rls.unary(method, may_credit, message, out);
        if decided.is_err() {
            out.truncate(start);
        }
        match decided {
            Ok(refusal) => {
                self.budget.earn();
                self.refused(refusal);
                self.send(index, data, out);
            }
            Err(Unary::Failed(failure)) => self.fail(index, failure, out),
            Err(Unary::Later(later)) => {
                // The decision is in progress, even if the caller does not wait for it.
                self.budget.earn();
                if let Some(stream) = self.streams.get_mut(index) {
                    stream.awaits_store = true;
                }
                self.later.push((id, later));
            }
        }
    }

    /// Polls the decisions that wait for stores, and writes their replies. Returns `Ready` only if
    /// there was one.
    pub(in super::super) fn poll_later(
        &mut self,
        context: &mut Context<'_>,
        out: &mut BytesMut,
    ) -> Poll<()> {
        let mut poll = Poll::Pending;
        let mut at = 0_usize;
        while let Some((id, later)) = self.later.get_mut(at) {
            let id = *id;
            let Poll::Ready(answer) = later.as_mut().poll(context) else {
                at = at.saturating_add(1);
                continue;
            };
            drop(self.later.swap_remove(at));
            self.answer(id, answer, out);
            poll = Poll::Ready(());
        }
        poll
    }

    fn answer(&mut self, id: u32, answer: Result<RlsAnswer, RlsError>, out: &mut BytesMut) {
        let Some(index) = self.find(id) else { return };
        if let Some(stream) = self.streams.get_mut(index) {
            stream.awaits_store = false;
        }
        match answer {
            Ok(answer) => {
                put_answer(out, id);
                let data = self.begin_data(index, out);
                self.rls.write(&answer, out);
                self.refused(answer.refusal());
                self.send(index, data, out);
            }
            Err(error) => self.fail(index, error, out),
        }
        self.windows.credit_much(out);
    }
}
