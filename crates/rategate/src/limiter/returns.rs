//! Permits that come back: refunds, the ends of operations, and refills.

use rategate_core::adaptive::Outcome;

use super::Limiter;
use crate::clock::Clock;
use crate::decision::Grant;
use crate::error::Closed;

impl<C: Clock> Limiter<C> {
    /// Refunds `permits` of a grant that had no effect and never will. Returns how many went back.
    ///
    /// Examples are a request that failed before it was sent, and an estimate that was too high.
    /// Fewer may go back: only so many that the limit is at least as full as if they had never
    /// been taken. Each permit can be refunded once; of a grant by a batch of a
    /// [`Local`](crate::Local) handle none can.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::{Limiter, ManualClock, SlidingLog};
    ///
    /// let policy = SlidingLog::new(2, Duration::from_secs(1));
    /// let limiter = Limiter::with_clock(policy, ManualClock::new());
    /// let grant = limiter.acquire(2)?;
    /// assert_eq!(limiter.refund(&grant, 1)?, 1, "one of them was never sent");
    /// assert!(limiter.try_acquire(1)?.is_granted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn refund(&self, grant: &Grant, permits: u64) -> Result<u64, Closed> {
        let grant = grant.as_granted();
        self.shared.section_in_order(|section| section.refund(self.class, &grant, permits))
    }

    /// Ends operations in flight. Returns `true` if a policy here counts them.
    ///
    /// Only [`Concurrency`](crate::Concurrency) and [`CommitLog`](crate::CommitLog) do. With the
    /// first, the permits are free again; with the second, the operations have committed.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn release(&self, permits: u64) -> Result<bool, Closed> {
        self.shared.release(permits)
    }

    /// Ends the operations of a grant in some way. Returns `true` if a policy here counts
    /// operations in flight, or follows their outcomes.
    ///
    /// It is a [release](Self::release) from which an
    /// [`AdaptiveConcurrency`](crate::AdaptiveConcurrency) or
    /// [`AdaptiveRate`](crate::AdaptiveRate) learns what its server bears.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn release_with_outcome(&self, grant: &Grant, outcome: Outcome) -> Result<bool, Closed> {
        self.shared.release_with_outcome(grant, grant.permits(), outcome)
    }

    /// Returns `true` if a policy here moves by the outcomes of operations.
    ///
    /// ```
    /// use rategate::{AdaptiveRate, Gcra, Limiter, Rate};
    ///
    /// let [floor, ceiling] = [1, 100].map(Rate::per_second);
    /// assert!(Limiter::new(AdaptiveRate::new(floor, ceiling)).follows_outcomes()?);
    /// assert!(!Limiter::new(Gcra::per_second(100)).follows_outcomes()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn follows_outcomes(&self) -> Result<bool, Closed> {
        self.shared.follows_outcomes()
    }

    /// Returns the maximum number of permits in flight now, if a policy here limits them.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn max_in_flight(&self) -> Result<Option<u64>, Closed> {
        self.shared.max_in_flight()
    }

    /// Aborts operations in flight that had no effect and never will: their permits are free at
    /// once.
    ///
    /// Returns `true` if a policy here counts operations in flight. An operation that failed may
    /// have had its effect all the same: it has [ended](Self::release).
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn abort(&self, permits: u64) -> Result<bool, Closed> {
        self.shared.abort(permits)
    }

    /// Adds permits from outside. Returns `true` if a policy here accepts them.
    ///
    /// Only a [`BackfillPool`](crate::BackfillPool) does.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn refill(&self, permits: u64) -> Result<bool, Closed> {
        self.shared.change(|limit, now_ns| limit.refill(now_ns, permits))
    }
}
