//! The verbs of the limiter for tasks that never wait: those of the limiter for threads.

use std::time::Duration;

use rategate_core::adaptive::Outcome;
use rategate_core::all_of::AllOf;
use rategate_core::debt::Charged;
use rategate_core::share::Share;

use super::limiter::AsyncLimiter;
use crate::clock::Clock;
use crate::decision::{Decision, Denial, Grant};
use crate::error::{
    ChargeError, ClassError, Closed, ReconfigureError, ShareError, TryAcquireError,
};
use crate::hold::Hold;
use crate::permit::Permit;
use crate::stats::LimitStats;
use crate::status::Status;
use rategate_core::line::QueueBounds;

/// Each is the verb of its name of [`Limiter`](crate::Limiter), with its errors.
///
/// To end a wait from outside, drop its future: there is no `acquire_unless`.
impl<C: Clock> AsyncLimiter<C> {
    /// Takes `permits` at once, or reports how long until they could be taken.
    ///
    /// # Errors
    ///
    /// Those of [`Limiter::try_acquire`](crate::Limiter::try_acquire).
    #[inline]
    pub fn try_acquire(&self, permits: u64) -> Result<Decision, TryAcquireError> {
        self.limiter().try_acquire(permits)
    }

    /// Takes `permits` at once, as a value whose drop ends the operation, or reports a denial.
    ///
    /// # Errors
    ///
    /// Those of [`Limiter::try_permit`](crate::Limiter::try_permit).
    pub fn try_permit(&self, permits: u64) -> Result<Result<Permit<C>, Denial>, TryAcquireError> {
        self.limiter().try_permit(permits)
    }

    /// Takes `permits` at once if a share of the limit has room for them: see
    /// [`Limiter::try_permit_in_share`](crate::Limiter::try_permit_in_share).
    ///
    /// # Errors
    ///
    /// [`ShareError`].
    pub fn try_permit_in_share(
        &self,
        permits: u64,
        share: Share,
    ) -> Result<Result<Permit<C>, Denial>, ShareError> {
        self.limiter().try_permit_in_share(permits, share)
    }

    /// Holds an estimate of `permits` until the true cost is known, or reports a denial.
    ///
    /// # Errors
    ///
    /// Those of [`Limiter::try_hold`](crate::Limiter::try_hold).
    pub fn try_hold(
        &self,
        permits: u64,
        ttl: Duration,
    ) -> Result<Result<Hold<C>, Denial>, TryAcquireError> {
        self.limiter().try_hold(permits, ttl)
    }

    /// Returns how long until a try for `permits` would pass, if no other call comes first.
    ///
    /// # Errors
    ///
    /// Those of [`Limiter::peek`](crate::Limiter::peek).
    pub fn peek(&self, permits: u64) -> Result<Option<Duration>, TryAcquireError> {
        self.limiter().peek(permits)
    }

    /// Returns the largest number of permits that a try could take now.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn remaining(&self) -> Result<u64, Closed> {
        self.limiter().remaining()
    }

    /// Charges `permits` that have been used already, whether they fit or not: see
    /// [`Limiter::charge`](crate::Limiter::charge).
    ///
    /// # Errors
    ///
    /// [`ChargeError`].
    pub fn charge(&self, permits: u64) -> Result<Charged, ChargeError> {
        self.limiter().charge(permits)
    }

    /// Ends operations in flight: see [`Limiter::release`](crate::Limiter::release).
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn release(&self, permits: u64) -> Result<bool, Closed> {
        self.limiter().release(permits)
    }

    /// Ends the operations of a grant in some way: see
    /// [`Limiter::release_with_outcome`](crate::Limiter::release_with_outcome).
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn release_with_outcome(&self, grant: &Grant, outcome: Outcome) -> Result<bool, Closed> {
        self.limiter().release_with_outcome(grant, outcome)
    }

    /// Returns the maximum number of permits in flight now: see
    /// [`Limiter::max_in_flight`](crate::Limiter::max_in_flight).
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn max_in_flight(&self) -> Result<Option<u64>, Closed> {
        self.limiter().max_in_flight()
    }

    /// Aborts operations in flight that had no effect: see
    /// [`Limiter::abort`](crate::Limiter::abort).
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn abort(&self, permits: u64) -> Result<bool, Closed> {
        self.limiter().abort(permits)
    }

    /// Adds permits from outside: see [`Limiter::refill`](crate::Limiter::refill).
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn refill(&self, permits: u64) -> Result<bool, Closed> {
        self.limiter().refill(permits)
    }

    /// Resets the limit to a fresh state: see [`Limiter::reset`](crate::Limiter::reset).
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn reset(&self) -> Result<bool, Closed> {
        self.limiter().reset()
    }

    /// Replaces the limit, for waiters too: see
    /// [`Limiter::reconfigure`](crate::Limiter::reconfigure).
    ///
    /// # Errors
    ///
    /// [`ReconfigureError`].
    pub fn reconfigure(&self, limits: impl Into<AllOf>) -> Result<(), ReconfigureError> {
        self.limiter().reconfigure(limits)
    }

    /// Creates a handle for a class of callers: see [`Limiter::class`](crate::Limiter::class).
    ///
    /// # Errors
    ///
    /// [`ClassError`].
    pub fn class(&self, weight: u64) -> Result<Self, ClassError> {
        self.limiter().class(weight).map(Self::of)
    }

    /// Bounds the wait queue: see [`Limiter::bound_queue`](crate::Limiter::bound_queue).
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn bound_queue(&self, bounds: QueueBounds) -> Result<(), Closed> {
        self.limiter().bound_queue(bounds)
    }

    /// Returns the number of waiters, threads and tasks.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn waiting(&self) -> Result<u32, Closed> {
        self.limiter().waiting()
    }

    /// Counts, for all handles, what the limit grants and denies: see [`Limiter::with_stats`].
    ///
    /// [`Limiter::with_stats`]: crate::Limiter::with_stats
    #[must_use]
    pub fn with_stats(self, name: &str) -> Self {
        self.limiter().shared().count_as(name);
        self
    }

    /// Returns the limit's statistics, if they are [enabled](Self::with_stats).
    #[must_use]
    pub fn stats(&self) -> Option<&LimitStats> {
        self.limiter().stats()
    }

    /// Closes the limiter for all handles, those of threads too: see
    /// [`Limiter::close`](crate::Limiter::close).
    pub fn close(&self) {
        self.limiter().close();
    }

    /// Returns `true` if the limiter has been closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.limiter().is_closed()
    }

    /// Returns the time of the limiter's clock: the time since the clock's origin.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.limiter().now()
    }
}

impl<C: Clock> AsyncLimiter<C> {
    /// Credits `permits` without a grant: see [`Limiter::credit`](crate::Limiter::credit).
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn credit(&self, permits: u64) -> Result<u64, Closed> {
        self.limiter().credit(permits)
    }

    /// Returns the status of the limit: the permits left, and the time until it is fresh again.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn status(&self) -> Result<Status, Closed> {
        self.limiter().status()
    }
}
