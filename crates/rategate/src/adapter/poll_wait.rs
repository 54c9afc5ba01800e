//! The wait of an adaptor that is polled: one at a time, kept from poll to poll.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

#[cfg(feature = "futures")]
use crate::clock::Clock;
#[cfg(feature = "futures")]
use crate::future::{AcquireOwned, AsyncLimiter};

/// The wait of an adaptor. Dropped, it leaves the wait queue.
pub(super) struct PollWait<F>(Option<F>);

impl<F: Future + Unpin> PollWait<F> {
    /// Goes on with the wait that is under way, or with the one that `begin` returns. `None` from
    /// either: there is nothing to wait for.
    pub(super) fn poll(
        &mut self,
        begin: impl FnOnce() -> Option<F>,
        context: &mut Context<'_>,
    ) -> Poll<Option<F::Output>> {
        self.0 = self.0.take().or_else(begin);
        let Some(wait) = &mut self.0 else { return Poll::Ready(None) };
        let ended = ready!(Pin::new(wait).poll(context));
        self.0 = None;
        Poll::Ready(Some(ended))
    }

    /// Returns `true` if a wait is under way.
    pub(super) const fn is_waiting(&self) -> bool {
        self.0.is_some()
    }

    /// Ends the wait, if there is one.
    pub(super) fn leave(&mut self) {
        self.0 = None;
    }
}

/// Returns the wait for an item that costs `permits`, if it costs any.
#[cfg(feature = "futures")]
pub(super) fn wait_for<C: Clock>(
    limiter: &AsyncLimiter<C>,
    permits: u64,
) -> Option<AcquireOwned<C>> {
    (permits > 0).then(|| limiter.acquire_owned(permits))
}

impl<F> Default for PollWait<F> {
    fn default() -> Self {
        Self(None)
    }
}

impl<F: fmt::Debug> fmt::Debug for PollWait<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PollWait").field(&self.0).finish()
    }
}
