//! Saves and restores limiters.

use rategate_core::all_of::AllOf;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::concurrent::HasLockFree;
use rategate_core::ledger::Ledger;
use rategate_core::portable::{Portable, RestoreContext, RestoreTarget};

use super::error::SnapshotError;
use super::plain::Snapshot;
use super::time::{Downtime, SavedAt};
use crate::clock::{Clock, MonotonicClock};
use crate::limiter::Limiter;

impl<P: HasLockFree + Portable, C: Clock> Limiter<Ledger<P>, C> {
    /// Returns the limiter's current state as plain data.
    ///
    /// Promises count as taken, including those of reservations that are cancelled later; the wait
    /// queue is not saved. A closed limiter can still be saved.
    ///
    /// The lock is held while the state is copied.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let (clock_ns, saved) = self.shared().section_even_if_closed(|section| {
            section.change(|limit, now_ns| (now_ns, vec![limit.save(now_ns)]))
        });
        Snapshot::of(SavedAt::now(clock_ns), saved)
    }

    /// Restores a limiter on a clock of the caller's own, under the limit of `policy`.
    ///
    /// Instants before the clock's zero count as zero, so the limit is closed longer. A clock that
    /// shows [as much as the old one would](SavedAt::going_on) loses nothing.
    ///
    /// # Errors
    ///
    /// As [`restore`](Limiter::restore).
    pub fn restore_with_clock(
        policy: P,
        clock: C,
        saved: &Snapshot,
        downtime: Downtime,
    ) -> Result<Self, SnapshotError> {
        let since = saved.saved_at().on_clock(&clock, downtime);
        Self::restore_since(policy, clock, saved, since)
    }

    fn restore_since(
        policy: P,
        clock: C,
        saved: &Snapshot,
        since: RestoreContext,
    ) -> Result<Self, SnapshotError> {
        match saved.saved() {
            [limit] => {
                let target = RestoreTarget::new(policy, &limit.numbers)?;
                Ok(Self::over(target.limit(&limit.state, since)?, clock))
            }
            limits => Err(SnapshotError::OtherCount { found: limits.len(), policies: 1 }),
        }
    }
}

impl<P: HasLockFree + Portable> Limiter<Ledger<P>> {
    /// Restores a limiter in real time, under the limit of `policy`.
    ///
    /// If the limit differs from the saved one, it comes into force now. The clock continues where
    /// the old one was left, after `downtime`.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Limit`] if it is of another policy or no limit at all, and
    /// [`SnapshotError::OtherCount`] if it is of several limits.
    pub fn restore(policy: P, saved: &Snapshot, downtime: Downtime) -> Result<Self, SnapshotError> {
        let since = saved.saved_at().going_on(downtime);
        Self::restore_since(policy, MonotonicClock::starting_at(since.now_ns), saved, since)
    }
}

impl<C: Clock> Limiter<AllOf, C> {
    /// Returns the current state of all limits as plain data.
    ///
    /// See [`snapshot`](Limiter::snapshot) of one limit.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let (clock_ns, saved) = self.shared().section_even_if_closed(|section| {
            section.change(|limit, now_ns| (now_ns, limit.save(now_ns)))
        });
        Snapshot::of(SavedAt::now(clock_ns), saved)
    }

    /// Restores several limits on a clock of the caller's own, under `policies`, in their order.
    ///
    /// # Errors
    ///
    /// As [`restore_all_of`](Limiter::restore_all_of).
    pub fn restore_all_of_with_clock(
        policies: &[AnyPolicy],
        clock: C,
        saved: &Snapshot,
        downtime: Downtime,
    ) -> Result<Self, SnapshotError> {
        let since = saved.saved_at().on_clock(&clock, downtime);
        Self::restore_all_of_since(policies, clock, saved, since)
    }

    fn restore_all_of_since(
        policies: &[AnyPolicy],
        clock: C,
        saved: &Snapshot,
        since: RestoreContext,
    ) -> Result<Self, SnapshotError> {
        let (found, policies_in_all) = (saved.limits(), policies.len());
        if found != policies_in_all {
            return Err(SnapshotError::OtherCount { found, policies: policies_in_all });
        }
        Ok(Self::over(AllOf::restore(policies, saved.saved(), since)?, clock))
    }
}

impl Limiter<AllOf> {
    /// Restores several limits in real time, under `policies`, in their order.
    ///
    /// Their clock continues where the old one was left, after `downtime`.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::OtherCount`] unless they are as many, and [`SnapshotError::Limit`] unless
    /// they are of the same kinds.
    pub fn restore_all_of(
        policies: &[AnyPolicy],
        saved: &Snapshot,
        downtime: Downtime,
    ) -> Result<Self, SnapshotError> {
        let since = saved.saved_at().going_on(downtime);
        let clock = MonotonicClock::starting_at(since.now_ns);
        Self::restore_all_of_since(policies, clock, saved, since)
    }
}
