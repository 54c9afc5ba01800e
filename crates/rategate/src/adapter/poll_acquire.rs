//! The wait of an adaptor that is polled: one at a time, kept from poll to poll.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::clock::Clock;
use crate::decision::Grant;
use crate::error::AcquireError;
use crate::future::{AcquireOwned, AsyncLimiter};

/// The wait of an adaptor. Dropped, it leaves the wait queue, and its grant is refunded.
pub(super) struct PollAcquire<C: Clock> {
    limiter: AsyncLimiter<C>,
    acquire: Option<AcquireOwned<C>>,
}

impl<C: Clock> PollAcquire<C> {
    pub(super) fn new(limiter: &AsyncLimiter<C>) -> Self {
        Self { limiter: limiter.clone(), acquire: None }
    }

    /// Waits for as many permits as `permits` returns, which is called if no wait is under way.
    ///
    /// Zero permits take no time, and yield no grant.
    pub(super) fn poll(
        &mut self,
        permits: impl FnOnce() -> u64,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Grant>, AcquireError>> {
        if self.acquire.is_none() {
            let permits = permits();
            if permits == 0 {
                return Poll::Ready(Ok(None));
            }
            self.acquire = Some(self.limiter.acquire_owned(permits));
        }
        let Some(acquire) = &mut self.acquire else { return Poll::Ready(Ok(None)) };
        let granted = ready!(Pin::new(acquire).poll(context));
        self.acquire = None;
        Poll::Ready(granted.map(Some))
    }

    /// Returns `true` if a wait is under way.
    pub(super) const fn is_waiting(&self) -> bool {
        self.acquire.is_some()
    }

    /// Ends the wait, if there is one.
    pub(super) fn leave(&mut self) {
        self.acquire = None;
    }

    /// Refunds what was granted and not used. A closed limiter needs nothing back.
    pub(super) fn refund(&self, grant: &Grant, permits: u64) {
        if permits > 0 {
            let _ = self.limiter.limiter().refund(grant, permits);
        }
    }
}

impl<C: Clock> fmt::Debug for PollAcquire<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollAcquire").field("acquire", &self.acquire).finish_non_exhaustive()
    }
}
