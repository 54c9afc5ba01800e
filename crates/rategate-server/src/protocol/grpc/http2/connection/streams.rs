//! The set of streams, and the state of any stream number.

use std::collections::VecDeque;

use bytes::BytesMut;
use rategate_protocol::http2::{Frame, Reason, put_reset};

use super::Connection;
use super::ending::Ending;
use crate::protocol::budget::RESET;
use crate::protocol::rls::Decide;

/// The state of a stream, by its number (RFC 9113, section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The stream has not begun.
    Idle,
    /// The stream is open, at this index.
    Open(usize),
    /// The stream has ended, but the peer may not know it: its frames are ignored.
    Ignored,
    /// The peer has ended the stream, or begun a later one instead.
    Closed,
}

/// The streams that ended here before the peer had ended them.
#[derive(Debug, Default)]
pub(super) struct Cut {
    /// The most recent of them.
    ids: VecDeque<u32>,
    /// The highest number dropped from `ids`. Any stream up to it may have been one of them.
    dropped_through: u32,
}

/// The maximum number of streams kept in `ids`.
const MAX_CUT: usize = 64;

impl<D: Decide + Send + Sync + 'static> Connection<D> {
    pub(super) fn find(&self, id: u32) -> Option<usize> {
        self.streams.iter().rposition(|stream| stream.id == id)
    }

    pub(super) fn state(&self, id: u32) -> State {
        // The peer begins streams of odd numbers only.
        if id.is_multiple_of(2) {
            return State::Idle;
        }
        if id > self.last {
            let is_too_late = self.ending == Ending::Known;
            return if is_too_late { State::Ignored } else { State::Idle };
        }
        match self.find(id) {
            Some(index) => State::Open(index),
            None if self.cut.has(id) => State::Ignored,
            None => State::Closed,
        }
    }

    /// Handles the reset of a stream by the peer.
    pub(super) fn reset(&mut self, frame: &Frame<'_>) -> Result<(), Reason> {
        frame.number()?;
        let state = self.state(frame.stream);
        if state == State::Idle {
            return Err(Reason::Protocol);
        }
        self.budget.spend(RESET)?;
        match state {
            State::Open(index) => self.remove_stream(index),
            // A peer that resets the stream, too, sends no more of it.
            State::Ignored => self.cut.confirm(frame.stream),
            State::Idle | State::Closed => {}
        }
        Ok(())
    }

    /// Resets a stream on which the peer violates the protocol. The others go on.
    pub(super) fn refuse(
        &mut self,
        index: usize,
        reason: Reason,
        out: &mut BytesMut,
    ) -> Result<(), Reason> {
        self.budget.spend(RESET)?;
        if let Some(stream) = self.streams.get(index) {
            self.cut.put_reset(out, stream.id, reason);
            self.remove_stream(index);
        }
        Ok(())
    }

    /// Removes a stream, and frees its part of the connection's window.
    pub(super) fn remove_stream(&mut self, index: usize) {
        if index < self.streams.len() {
            let stream = self.streams.swap_remove(index);
            self.windows.free(stream.held);
            if stream.awaits_store {
                self.later.retain(|(id, _)| *id != stream.id);
            }
        }
    }
}

impl Cut {
    /// Resets a stream, and records that the peer may not know it yet.
    pub(super) fn put_reset(&mut self, out: &mut BytesMut, id: u32, reason: Reason) {
        put_reset(out, id, reason);
        if self.ids.len() >= MAX_CUT {
            self.dropped_through =
                self.ids.pop_front().map_or(id, |id| self.dropped_through.max(id));
        }
        self.ids.push_back(id);
    }

    /// Records that the peer has ended a stream, too.
    fn confirm(&mut self, id: u32) {
        self.ids.retain(|cut| *cut != id);
    }

    fn has(&self, id: u32) -> bool {
        id <= self.dropped_through || self.ids.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_streams_are_never_taken_for_closed_ones() {
        let (mut cut, mut out) = (Cut::default(), BytesMut::new());
        let ids = || (1..1000).step_by(6);
        for id in ids() {
            assert!(!cut.has(id));
            cut.put_reset(&mut out, id, Reason::NoError);
        }
        assert!(ids().all(|id| cut.has(id)));
        assert!(cut.ids.len() <= MAX_CUT);
        // Of the most recent numbers, only the streams that were reset are reported.
        assert!((900..1000).all(|id| cut.has(id) == (id % 6 == 1)));
    }
}
