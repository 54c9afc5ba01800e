//! Which streams there are.

use super::Connection;
use super::ending::Ending;
use crate::protocol::grpc::http2::budget::RESET;
use crate::protocol::grpc::http2::wire::{Frame, Reason};
use crate::protocol::rls::Decide;

impl<D: Decide + Send + Sync + 'static> Connection<D> {
    pub(super) fn find(&self, id: u32) -> Option<usize> {
        self.streams.iter().rposition(|stream| stream.id == id)
    }

    /// Whether nothing has been said of a stream that might be.
    pub(super) fn is_to_come(&self, stream: u32) -> bool {
        stream > self.last && self.ending != Ending::Known
    }

    /// The other end gives a stream up.
    pub(super) fn reset(&mut self, frame: &Frame<'_>) -> Result<(), Reason> {
        frame.number()?;
        if frame.stream == 0 || self.is_to_come(frame.stream) {
            return Err(Reason::Protocol);
        }
        self.budget.spend(RESET)?;
        if let Some(index) = self.find(frame.stream) {
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
