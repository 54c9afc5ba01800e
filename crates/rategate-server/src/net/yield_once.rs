//! Delays writes until every call that has arrived is decided.
//!
//! A write wakes the client that waits for it, and that costs more than a decision. Written call
//! by call, a client that is faster than the server sleeps and is woken for each reply. Written
//! together, the client is woken once for all of them.

use std::task::{Context, Poll};

/// A yield that lets all other ready tasks of this thread run first, once.
#[derive(Debug, Default)]
pub(crate) struct YieldOnce {
    has_yielded: bool,
}

impl YieldOnce {
    /// Returns `Pending` the first time and wakes the task behind all tasks that are ready. The
    /// next call returns `Ready`, and the cycle starts again.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.has_yielded = !self.has_yielded;
        if self.has_yielded {
            context.waker().wake_by_ref();
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }
}
