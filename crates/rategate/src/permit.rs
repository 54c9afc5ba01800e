//! Permits of an operation in flight, whose drop, on any thread, ends the operation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rategate_core::adaptive::Outcome;

use crate::clock::{Clock, MonotonicClock};
use crate::decision::{Decision, Denial, Grant};
use crate::error::{AcquireError, Expired, ShareError, TryAcquireError};
use crate::limiter::Limiter;
use crate::shared::Shared;
use rategate_core::policy::Ending;
use rategate_core::share::Share;
use rategate_core::span::whole_ns;

/// Permits of an operation in flight, returned by [`Limiter::permit`] or [`Limiter::try_permit`].
///
/// Dropped, it ends the operation, even in a panic or on another thread. With
/// [`Concurrency`](crate::Concurrency) the permits are free again; with
/// [`CommitLog`](crate::CommitLog) they commit at the drop. That is safe for every effect before
/// the drop, so a caller that waits for an acknowledgement keeps the permit until then. Other
/// policies count nothing in flight, and nothing happens.
///
/// It outlives the limiter's handles, and a closed limiter needs nothing back. A caller that
/// leaks it (`mem::forget`) keeps these permits from the other callers for ever, but no more.
///
/// ```
/// use std::time::Duration;
///
/// use rategate::{CommitLog, Limiter, ManualClock};
///
/// let clock = ManualClock::new();
/// let policy = CommitLog::new(1, Duration::from_nanos(1_000));
/// let limiter = Limiter::with_clock(policy, clock.clone());
/// let permit = limiter.permit(1)?;
/// clock.advance(Duration::from_nanos(70)); // the request is on its way, and then the answer comes
/// permit.commit();
/// assert_eq!(limiter.permit(1)?.grant().released_at().as_nanos(), 1_070);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropped, a permit ends its operation"]
pub struct Permit<C: Clock = MonotonicClock> {
    shared: Arc<Shared<C>>,
    grant: Grant,
    permits: u64,
}

impl<C: Clock> Limiter<C> {
    /// Takes `permits`, waits until they may start, and returns a value whose drop ends the
    /// operation.
    ///
    /// Blocks the thread: in a task, use [`AsyncLimiter::permit`](crate::AsyncLimiter::permit).
    /// In a debug build with the feature `tokio` it panics on a thread that drives tasks.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire).
    pub fn permit(&self, permits: u64) -> Result<Permit<C>, AcquireError> {
        let grant = self.acquire(permits)?;
        Ok(Permit::new(Arc::clone(self.shared()), grant, permits))
    }

    /// Takes `permits` at once, as a value whose drop ends the operation, or not at all.
    ///
    /// The inner result is the limit's decision; the outer reports why there was none.
    ///
    /// ```
    /// use rategate::{Concurrency, Limiter};
    ///
    /// let limiter = Limiter::new(Concurrency::new(1));
    /// let first = limiter.try_permit(1)?;
    /// assert!(first.is_ok() && limiter.try_permit(1)?.is_err());
    /// drop(first);
    /// assert!(limiter.try_permit(1)?.is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`try_acquire`](Self::try_acquire).
    pub fn try_permit(&self, permits: u64) -> Result<Result<Permit<C>, Denial>, TryAcquireError> {
        Ok(match self.try_acquire(permits)? {
            Decision::Granted(grant) => Ok(Permit::new(Arc::clone(self.shared()), grant, permits)),
            Decision::Denied(denial) => Err(denial),
        })
    }

    /// Takes `permits` at once, like [`try_permit`](Self::try_permit), if a share of the limit has
    /// room for them too: load shedding by priority.
    ///
    /// The operations of all priorities count in a share, so those with a smaller one are denied
    /// first. It is a part of the limit as it is now, rounded up, so that one operation starts at
    /// an idle limit. Several limits together are each judged by that part of themselves; those
    /// that do not limit operations in flight, as a whole. There is no wait in a share.
    ///
    /// ```
    /// use rategate::{AdaptiveConcurrency, Limiter, Share};
    ///
    /// // At most 20 at first. Batch jobs leave 12 of them to the others.
    /// let limiter = Limiter::new(AdaptiveConcurrency::new(1, 500));
    /// let batch = Share::percent(40);
    /// let jobs: Vec<_> = (0..8).map(|_| limiter.try_permit_in_share(1, batch)).collect();
    /// assert!(jobs.iter().all(|job| matches!(job, Ok(Ok(_)))));
    /// assert!(limiter.try_permit_in_share(1, batch)?.is_err());
    /// assert!(limiter.try_permit(1)?.is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShareError`], whose `NothingInFlight` is for limits without shares.
    pub fn try_permit_in_share(
        &self,
        permits: u64,
        share: Share,
    ) -> Result<Result<Permit<C>, Denial>, ShareError> {
        Ok(match self.shared().try_in_share(permits, share)? {
            Decision::Granted(grant) => Ok(Permit::new(Arc::clone(self.shared()), grant, permits)),
            Decision::Denied(denial) => Err(denial),
        })
    }
}

impl<C: Clock> Permit<C> {
    pub(crate) const fn new(shared: Arc<Shared<C>>, grant: Grant, permits: u64) -> Self {
        Self { shared, grant, permits }
    }

    /// Returns the grant of the permits.
    #[must_use]
    pub const fn grant(&self) -> Grant {
        self.grant
    }

    /// Returns the number of permits.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.permits
    }

    /// Starts the operation, if its grant is at most `max_delay` old.
    ///
    /// The age counts on the limiter's clock, from the instant at which the limit counts the
    /// grant: its [start](Grant::released_at), or its [promise](Grant::promised_at) where the limit
    /// keeps promised instants. A thread that was delayed meanwhile learns of it here, and a guard
    /// of `max_delay` covers all others.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rategate::{Limiter, ManualClock, SlidingLog};
    ///
    /// let clock = ManualClock::new();
    /// let log = SlidingLog::new(1, Duration::from_nanos(1_000));
    /// let log = log.with_guard(Duration::from_nanos(50))?;
    /// let limiter = Limiter::with_clock(log, clock.clone());
    /// let permit = limiter.permit(1)?.start_within(Duration::from_nanos(50))?;
    /// clock.advance(Duration::from_nanos(51)); // too late by now for another start
    /// let expired = permit.start_within(Duration::from_nanos(50)).unwrap_err();
    /// assert_eq!(expired.late(), Duration::from_nanos(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Expired`] if more has passed. The operation must not start, so its permits are refunded
    /// as far as the policy can, as [`abort`](Self::abort) does.
    pub fn start_within(self, max_delay: Duration) -> Result<Self, Expired> {
        let counted_at = self.shared.counted_at(&self.grant);
        let passed_ns = self.shared.now_ns().saturating_sub(whole_ns(counted_at));
        match passed_ns.saturating_sub(whole_ns(max_delay)) {
            0 => Ok(self),
            late_ns => {
                self.abort();
                Err(Expired { late_ns })
            }
        }
    }

    /// Ends the operation: its effect has been acknowledged, or may have happened. A drop does so
    /// too.
    pub fn commit(self) {}

    /// Ends an operation that was served, be it with an error: its latency says how busy the
    /// server is.
    ///
    /// This and the next two are for an [`AdaptiveConcurrency`](crate::AdaptiveConcurrency) or
    /// [`AdaptiveRate`](crate::AdaptiveRate). For all others they are [commits](Self::commit).
    ///
    /// ```
    /// use rategate::{AdaptiveConcurrency, Limiter};
    ///
    /// let limiter = Limiter::new(AdaptiveConcurrency::new(5, 200));
    /// let permit = limiter.permit(1)?;
    /// // The call to the server comes here.
    /// permit.served();
    /// assert_eq!(limiter.max_in_flight()?, Some(20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn served(self) {
        self.end(Outcome::Served);
    }

    /// Ends an operation that was refused or took too long: the server has too much to do.
    pub fn dropped(self) {
        self.end(Outcome::Dropped);
    }

    /// Ends an operation that says nothing about the server, such as one that was cancelled. A drop
    /// does so too.
    pub fn ignored(self) {}

    fn end(mut self, outcome: Outcome) {
        let permits = std::mem::take(&mut self.permits);
        // A closed limiter needs nothing back.
        let _ = self.shared.end(permits, self.grant.ending(outcome));
    }

    /// Returns the grant, and leaves the end of the operation to the caller.
    ///
    /// Nothing releases its permits any more, unless
    /// [`Limiter::release`](crate::Limiter::release) or [`Limiter::abort`](crate::Limiter::abort)
    /// does. This is for limits that turn out to count nothing in flight: it takes no lock, as a
    /// drop may.
    #[must_use = "the permits may have to be released"]
    pub fn into_grant(mut self) -> Grant {
        self.permits = 0;
        self.grant
    }

    /// Aborts the operation, which had no effect and never will. Refunds its permits at once, if
    /// possible.
    ///
    /// An operation that failed may have had its effect all the same: [commit](Self::commit) it.
    /// Only [`Concurrency`](crate::Concurrency) and [`CommitLog`](crate::CommitLog) can refund
    /// here; with the other policies the permits are charged.
    pub fn abort(mut self) {
        let permits = std::mem::take(&mut self.permits);
        // A closed limiter needs nothing back.
        let _ = self.shared.end(permits, Ending::Aborted);
    }
}

impl<C: Clock> Drop for Permit<C> {
    fn drop(&mut self) {
        if self.permits > 0 {
            let _ = self.shared.end(self.permits, Ending::Released);
        }
    }
}

impl<C: Clock> fmt::Debug for Permit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own: [(&str, &dyn fmt::Debug); 2] =
            [("permits", &self.permits), ("released_at", &self.grant.released_at())];
        self.shared.fmt_as(f, "Permit", &own)
    }
}
