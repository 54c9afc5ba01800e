//! Calls that wait before their token has any effect, because too many wrong tokens were shown
//! before.
//!
//! Each call waits alone. Other calls on the connection, which may belong to a proxy, go on.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use rategate_protocol::http2::Reason;

use super::Connection;
use crate::net::{Attempt, RefusalReason};
use crate::protocol::grpc::head::Method;
use crate::protocol::grpc::http2::fields::Unpacked;
use crate::protocol::grpc::http2::stream::Stream;
use crate::protocol::rls::{Decide, RlsMethod};

impl<D: Decide + Send + Sync + 'static> Connection<D> {
    /// Delays a call, and buffers its data up to its window, with a right or wrong token.
    pub(super) fn hold(&mut self, id: u32, is_ended: bool, unpacked: &Unpacked, attempt: Attempt) {
        let method = Method::Rls(RlsMethod::ShouldRateLimit);
        let mut stream = Stream::new(id, method, Duration::ZERO, &self.windows);
        stream.until = Instant::now().checked_add(attempt.pause);
        (stream.is_ended, stream.attempt) = (is_ended, Some(attempt));
        stream.hold = Some(Box::new(*unpacked));
        self.streams.push(stream);
    }

    /// Resumes a call whose pause is over.
    pub(super) fn release(&mut self, index: usize, out: &mut BytesMut) -> Result<(), Reason> {
        if index >= self.streams.len() {
            return Ok(());
        }
        let held = self.streams.swap_remove(index);
        let Some(unpacked) = held.hold else { return Ok(()) };
        let has_more = !held.bytes.is_empty() || !held.is_ended;
        let Some(index) = self.call(held.id, held.is_ended, &unpacked, held.attempt, out) else {
            self.windows.free(held.held);
            return Ok(());
        };
        let Some(stream) = self.streams.get_mut(index) else { return Ok(()) };
        stream.held = held.held;
        if held.is_ended {
            return self.end(index, &held.bytes, out);
        }
        if has_more && !stream.received(held.bytes.len(), false) {
            return self.refuse(index, Reason::Protocol, out);
        }
        stream.bytes = held.bytes;
        self.continue_reading(index, out);
        Ok(())
    }

    /// Records the end of a call, refused or not. After the last permitted wrong token no more
    /// calls begin, and current calls go on.
    pub(super) fn ended(
        &mut self,
        attempt: Option<Attempt>,
        reason: Option<RefusalReason>,
        out: &mut BytesMut,
    ) {
        match attempt {
            // The call has waited already.
            Some(attempt) => {
                let _ = attempt.end(reason);
            }
            None => self.refused(reason),
        }
        if self.attempts.are_over() {
            self.close(out);
        }
    }
}
