//! Permits that come back: the ends of operations, and refills.

use rategate_core::adaptive::Outcome;
use rategate_core::policy::Ending;

use super::Limiter;
use crate::clock::Clock;
use crate::decision::Grant;
use crate::error::Closed;

impl<C: Clock> Limiter<C> {
    /// Ends operations in flight. Returns `true` if a policy here counts them.
    ///
    /// Only [`Concurrency`](crate::Concurrency) and [`CommitLog`](crate::CommitLog) do. With the
    /// first, the permits are free again; with the second, the operations have committed.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn release(&self, permits: u64) -> Result<bool, Closed> {
        self.shared.end(permits, Ending::Released)
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
        self.shared.end(grant.permits(), grant.ending(outcome))
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
        self.shared.end(permits, Ending::Aborted)
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
