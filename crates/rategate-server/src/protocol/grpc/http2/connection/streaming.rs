//! Calls of many messages: health watches, reflection and assignments.

use bytes::{Bytes, BytesMut};
use rategate_protocol::grpc::{BadFrame, Status};
use rategate_protocol::http2::{Reason, put_answer, put_window};

use super::Connection;
use super::sending::MAX_UNWRITTEN;
use crate::net::RefusalReason;
use crate::protocol::grpc::head::Method;
use crate::protocol::grpc::health::Watcher;
use crate::protocol::grpc::service::next;
use crate::protocol::grpc::status::reason;
use crate::protocol::rls::Decide;

impl<D: Decide + Send + Sync + 'static> Connection<D> {
    pub(in super::super) fn is_watched(&self) -> bool {
        self.streams.iter().any(|stream| stream.watcher.is_some())
    }

    /// Sends news to all watchers.
    pub(in super::super) fn send_all_news(&mut self, out: &mut BytesMut) {
        for index in 0..self.streams.len() {
            self.send_news(index, out);
        }
    }

    pub(super) fn watch(&mut self, index: usize, message: &[u8], out: &mut BytesMut) {
        match self.rls.inner.health.watch(message) {
            Ok(watcher) => {
                if let Some(stream) = self.streams.get_mut(index) {
                    (stream.watcher, stream.until) = (Some(watcher), None);
                    stream.is_answered = true;
                    stream.passed();
                    put_answer(out, stream.id);
                }
                self.send_news(index, out);
            }
            Err(status) => self.fail(index, status, out),
        }
    }

    /// Sends news to a watcher, once its previous message has been sent.
    pub(super) fn send_news(&mut self, index: usize, out: &mut BytesMut) {
        if let Some(stream) = self.streams.get_mut(index)
            && stream.blocked.is_empty()
            && let Some(news) = stream.watcher.as_mut().and_then(Watcher::news)
        {
            stream.blocked = news;
            self.pump(index, out);
        }
    }

    /// Answers the messages of a call, each once the previous reply has been sent.
    pub(super) fn converse(&mut self, index: usize, out: &mut BytesMut) {
        loop {
            let Some(stream) = self.streams.get_mut(index) else { return };
            if !stream.blocked.is_empty() || stream.end.is_some() {
                return;
            }
            if out.len() >= MAX_UNWRITTEN {
                self.is_held_back = true;
                return;
            }
            match self.next_reply(index) {
                Ok(Some(answer)) => {
                    let Some(stream) = self.streams.get_mut(index) else { return };
                    stream.until = None;
                    stream.blocked = answer;
                    if !std::mem::replace(&mut stream.is_answered, true) {
                        stream.passed();
                        put_answer(out, stream.id);
                    }
                    self.free(index, out);
                    self.pump(index, out);
                }
                Ok(None) if self.streams.get(index).is_some_and(|stream| stream.is_ended) => {
                    let is_whole =
                        self.streams.get(index).is_some_and(|stream| stream.bytes.is_empty());
                    let status = if is_whole { Status::OK } else { BadFrame::CutOff.into() };
                    return self.fail(index, status, out);
                }
                Ok(None) => return,
                Err(status) => return self.fail(index, status, out),
            }
        }
    }

    /// Returns the reply to the first message of a call, if the message is complete.
    fn next_reply(&mut self, index: usize) -> Result<Option<Bytes>, Status> {
        let Some(stream) = self.streams.get_mut(index) else { return Ok(None) };
        if stream.method != Method::StreamQuotas {
            return next(&mut stream.bytes, self.rls.inner.settings.max_message_bytes);
        }
        let reply = stream.quota.next(&self.rls, &mut stream.bytes);
        if stream.quota.is_begun() {
            stream.wait = stream.quota.wait();
        }
        let refusal = match &reply {
            Ok(Some(reply)) if reply.lacks_capacity => Some(RefusalReason::NoCapacity),
            Ok(_) => None,
            Err(status) => reason(status),
        };
        self.refused(refusal);
        Ok(reply?.map(|reply| reply.bytes))
    }

    /// Sends the assignments that are due without a report.
    pub(super) fn assign(&mut self, index: usize, out: &mut BytesMut) {
        let max_wait = self.rls.inner.settings.max_wait;
        let Some(stream) = self.streams.get_mut(index) else { return };
        if stream.blocked.is_empty() {
            match stream.quota.due() {
                Ok(reply) => {
                    stream.wait = stream.quota.wait();
                    stream.blocked = reply;
                    self.pump(index, out);
                }
                Err(status) => {
                    self.refused(reason(&status));
                    self.fail(index, status, out);
                }
            }
        } else if stream.wait < max_wait {
            stream.wait = max_wait;
        } else {
            // The caller does not read the reply.
            self.cut.put_reset(out, stream.id, Reason::Cancel);
            self.remove_stream(index);
        }
    }

    /// Reopens the stream's window by the number of bytes that are no longer buffered.
    fn free(&mut self, index: usize, out: &mut BytesMut) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let kept = u32::try_from(stream.bytes.len()).unwrap_or(u32::MAX);
        let freed = stream.held.saturating_sub(kept);
        stream.held = kept;
        self.windows.free(freed);
        if freed > 0 && !stream.is_ended {
            // The window does not exceed its initial size.
            let _ = stream.receive.widen(i64::from(freed));
            put_window(out, stream.id, freed);
        }
    }
}
