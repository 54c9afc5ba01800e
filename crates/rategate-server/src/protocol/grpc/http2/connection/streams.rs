//! Which streams there are, and what the number of another one says.

use std::collections::VecDeque;

use bytes::BytesMut;

use super::Connection;
use super::ending::Ending;
use crate::protocol::budget::RESET;
use crate::protocol::grpc::http2::wire::{Frame, Reason, put_reset};
use crate::protocol::rls::Decide;

/// What the number of a stream says of it (RFC 9113, section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has not begun.
    Idle,
    /// It is here.
    Open(usize),
    /// The other end may not know yet that it is over: what it says means nothing.
    Ignored,
    /// The other end has said that it is over, or begun a later one in its place.
    Closed,
}

/// Streams that ended here before the other end had said all.
#[derive(Debug, Default)]
pub(super) struct Cut {
    /// The last ones.
    ids: VecDeque<u32>,
    /// Up to this number others are forgotten: any may have been one.
    forgotten: u32,
}

/// So many are told apart.
const MOST_CUT: usize = 64;

impl<D: Decide + Send + Sync + 'static> Connection<D> {
    pub(super) fn find(&self, id: u32) -> Option<usize> {
        self.streams.iter().rposition(|stream| stream.id == id)
    }

    pub(super) fn state(&self, id: u32) -> State {
        // The other end begins streams of odd numbers alone.
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

    /// The other end gives a stream up.
    pub(super) fn reset(&mut self, frame: &Frame<'_>) -> Result<(), Reason> {
        frame.number()?;
        let state = self.state(frame.stream);
        if state == State::Idle {
            return Err(Reason::Protocol);
        }
        self.budget.spend(RESET)?;
        if let State::Open(index) = state {
            self.forget(index);
        }
        Ok(())
    }

    /// A stream on which the other end breaks the protocol is given up. The others go on.
    pub(super) fn refuse(
        &mut self,
        index: usize,
        reason: Reason,
        out: &mut BytesMut,
    ) -> Result<(), Reason> {
        self.budget.spend(RESET)?;
        if let Some(stream) = self.streams.get(index) {
            self.cut.put_reset(out, stream.id, reason);
            self.forget(index);
        }
        Ok(())
    }

    /// A stream has ended: what it held may come anew.
    pub(super) fn forget(&mut self, index: usize) {
        if index < self.streams.len() {
            let stream = self.streams.swap_remove(index);
            self.windows.free(stream.held);
            if stream.is_asked {
                self.later.retain(|(id, _)| *id != stream.id);
            }
        }
    }
}

impl Cut {
    /// Tells the other end that a stream is over, and keeps in mind that it may not know.
    pub(super) fn put_reset(&mut self, out: &mut BytesMut, id: u32, reason: Reason) {
        put_reset(out, id, reason);
        if self.ids.len() >= MOST_CUT {
            self.forgotten = self.ids.pop_front().map_or(id, |id| self.forgotten.max(id));
        }
        self.ids.push_back(id);
    }

    fn has(&self, id: u32) -> bool {
        id <= self.forgotten || self.ids.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_may_not_know_is_never_taken_for_one_who_does() {
        let (mut cut, mut out) = (Cut::default(), BytesMut::new());
        let ids = || (1..1000).step_by(6);
        for id in ids() {
            assert!(!cut.has(id));
            cut.put_reset(&mut out, id, Reason::NoError);
        }
        assert!(ids().all(|id| cut.has(id)));
        assert!(cut.ids.len() <= MOST_CUT);
        // Of the last ones the others are told apart.
        assert!((900..1000).all(|id| cut.has(id) == (id % 6 == 1)));
    }
}
