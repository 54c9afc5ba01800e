//! How all of it ends: calls that take too long, a connection that is to end in order, and one that cannot go on.

use std::time::Instant;

use bytes::BytesMut;

use super::Connection;
use crate::protocol::grpc::http2::stream::Stream;
use crate::protocol::grpc::http2::wire::{Reason, put_goaway, put_ping};
use crate::protocol::grpc::status::{Code, Status};
use crate::protocol::rls::Decide;

/// How far the end of a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Not,
    /// The other end is told of it, and may not know yet.
    Told,
    /// No more calls begin: what the other end says of later ones means nothing.
    Known,
}

impl<D: Decide + Send + Sync + 'static> Connection<D> {
    /// Streams that are not done have a deadline from now on. The first of all deadlines.
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

    /// Ends what took too long, and goes on with what has waited for long enough. Has to be called at least once in a while: the budget grows with time.
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
            } else if stream.is_answered {
                // It is the caller who does not take the answer.
                self.cut.put_reset(out, stream.id, Reason::Cancel);
                self.forget(index);
            } else {
                self.fail(index, Status::late(), out);
            }
        }
        self.windows.credit_much(out);
        Ok(())
    }

    /// Soon no more calls begin: those that are on their way do, until the other end is known to have heard of it, by its
    /// answer to a ping. Whoever watches is told, and then that it is over.
    pub(in super::super) fn drain(&mut self, out: &mut BytesMut) {
        if self.ending != Ending::Not {
            return;
        }
        self.ending = Ending::Told;
        put_goaway(out, 0x7fff_ffff, Reason::NoError);
        put_ping(out);
        self.end_lasting(out);
    }

    /// No more calls begin; those that there are go on.
    pub(in super::super) fn close(&mut self, out: &mut BytesMut) {
        if self.ending != Ending::Known {
            self.ending = Ending::Known;
            put_goaway(out, self.last, Reason::NoError);
            self.end_lasting(out);
        }
    }

    /// Ends what would never end by itself.
    fn end_lasting(&mut self, out: &mut BytesMut) {
        self.tell_all(out);
        let never_ends = |stream: &Stream| stream.is_lasting() && stream.end.is_none();
        while let Some(index) = self.streams.iter().position(never_ends) {
            self.fail(index, Status::new(Code::Unavailable, "the server is going away"), out);
        }
    }

    /// Whether nothing is left to do after a drain.
    pub(in super::super) fn is_over(&self) -> bool {
        self.ending == Ending::Known && self.streams.is_empty()
    }

    /// The last that is said when something is wrong with the connection.
    pub(in super::super) fn give_up(&self, reason: Reason, out: &mut BytesMut) {
        put_goaway(out, self.last, reason);
    }
}
