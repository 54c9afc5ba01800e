//! Answers leave when everybody whose call has come was heard.
//!
//! A write wakes whoever waits for it, and that costs more than a decision. Written call by call, a caller who is faster than the
//! server sleeps and is woken for each answer; written together, for all of them.

use std::task::{Context, Poll};

/// Lets all others of this thread who are ready go first, once.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    is_asked: bool,
}

impl Turn {
    /// Pending the first time, and whoever polls is woken behind all who were ready before; then ready, and it begins anew.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.is_asked = !self.is_asked;
        if self.is_asked {
            context.waker().wake_by_ref();
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }
}
