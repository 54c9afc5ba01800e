//! Ends of calls and connections: deadlines, orderly shutdown and fatal errors.

use std::time::Instant;

use bytes::BytesMut;
use rategate_protocol::grpc::{Code, Status};
use rategate_protocol::http2::{Reason, put_goaway, put_ping};

use super::Connection;
use crate::protocol::grpc::http2::stream::Stream;
use crate::protocol::rls::Decide;

/// The progress of a connection's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Not,
    /// The peer has been notified, but may not know it yet.
    Announced,
    /// No more calls begin. Frames of later calls are ignored.
    Known,
}

impl<D: Decide + Send + Sync + 'static> Connection<D> {
    /// Sets the deadlines of streams that have none yet, and returns the earliest of all.
    pub(in super::super) fn deadline(&mut self, now: impl FnOnce() -> Instant) -> Option<Instant> {
        if self.streams.iter().any(|stream| stream.is_timed() && stream.until.is_none()) {
            let now = now();
            for stream in &mut self.streams {
                if stream.is_timed() && stream.until.is_none() {
                    stream.until = now.checked_add(stream.wait);
                }
            }
        }
        self.streams.iter().filter_map(|stream| stream.until).min()
    }

    /// Ends the calls whose deadline has passed, and resumes calls whose pause is over. Has to be
    /// called regularly, since the budget grows with time.
    pub(in super::super) fn late(
        &mut self,
        now: Instant,
        out: &mut BytesMut,
    ) -> Result<(), Reason> {
        self.budget.wait(now);
        while let Some(index) =
            self.streams.iter().position(|stream| stream.until.is_some_and(|until| until <= now))
        {
            let Some(stream) = self.streams.get_mut(index) else { break };
            stream.until = None;
            if stream.hold.is_some() {
                self.release(index, out)?;
            } else if stream.quota.is_begun() && stream.end.is_none() {
                self.assign(index, out);
            } else if stream.is_answered {
                // The caller does not read the reply.
                self.cut.put_reset(out, stream.id, Reason::Cancel);
                self.remove_stream(index);
            } else {
                self.fail(index, Status::late(), out);
            }
        }
        self.windows.credit_much(out);
        Ok(())
    }

    /// Begins the end: calls that are on their way still begin, until the peer confirms a ping.
    /// Watchers are notified, and then their calls end.
    pub(in super::super) fn drain(&mut self, out: &mut BytesMut) {
        if self.ending != Ending::Not {
            return;
        }
        self.ending = Ending::Announced;
        put_goaway(out, 0x7fff_ffff, Reason::NoError);
        put_ping(out);
        self.end_streaming(out);
    }

    /// Refuses new calls. Current calls go on.
    pub(in super::super) fn close(&mut self, out: &mut BytesMut) {
        if self.ending != Ending::Known {
            self.ending = Ending::Known;
            put_goaway(out, self.last, Reason::NoError);
            self.end_streaming(out);
        }
    }

    /// Ends the calls that would not end by themselves.
    fn end_streaming(&mut self, out: &mut BytesMut) {
        self.send_all_news(out);
        let never_ends = |stream: &Stream| stream.is_streaming() && stream.end.is_none();
        while let Some(index) = self.streams.iter().position(never_ends) {
            self.fail(index, Status::new(Code::Unavailable, "the server is going away"), out);
        }
    }

    /// Returns `true` if nothing is left to do after a drain.
    pub(in super::super) fn is_over(&self) -> bool {
        self.ending == Ending::Known && self.streams.is_empty()
    }

    /// Writes the last frame of a connection with a fatal error.
    pub(in super::super) fn give_up(&self, reason: Reason, out: &mut BytesMut) {
        put_goaway(out, self.last, reason);
    }
}
