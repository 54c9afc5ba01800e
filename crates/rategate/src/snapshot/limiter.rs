//! Saves and restores limiters.

use std::time::Duration;

use rategate_core::all_of::AllOf;
use rategate_core::saved::{RestoreContext, restore};

use super::error::SnapshotError;
use super::plain::Snapshot;
use super::time::{Downtime, SavedAt};
use crate::clock::{Clock, MonotonicClock};
use crate::limiter::Limiter;

impl<C: Clock> Limiter<C> {
    /// Returns the limiter's current state as plain data.
    ///
    /// Promises count as taken, including those of reservations that are cancelled later; the wait
    /// queue is not saved. A closed limiter can still be saved.
    ///
    /// The lock is held while the state is copied.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let (clock_ns, saved) = self.shared().section_even_if_closed(|section| {
            section.change(|limit, now_ns| (now_ns, limit.save(now_ns)))
        });
        Snapshot::of(SavedAt::now(clock_ns), saved)
    }

    /// Restores a limiter on a clock of the caller's own, under these limits.
    ///
    /// Instants before the clock's zero count as zero, so the limit is closed longer. A clock that
    /// shows [as much as the old one would](SavedAt::going_on) loses nothing.
    ///
    /// # Errors
    ///
    /// As [`restore`](Limiter::restore).
    pub fn restore_with_clock(
        limits: impl Into<AllOf>,
        clock: C,
        saved: &Snapshot,
        downtime: Downtime,
    ) -> Result<Self, SnapshotError> {
        let since = saved.saved_at().on_clock(&clock, downtime);
        Self::restore_since(limits.into(), clock, saved, since)
    }

    fn restore_since(
        limits: AllOf,
        clock: C,
        saved: &Snapshot,
        since: RestoreContext,
    ) -> Result<Self, SnapshotError> {
        let (found, policies) = (saved.limits(), limits.policies().len());
        if found != policies {
            return Err(SnapshotError::OtherCount { found, policies });
        }
        Ok(Self::over(restore(limits, saved.saved(), since)?, clock))
    }
}

impl Limiter {
    /// Restores a limiter in real time, under these limits.
    ///
    /// If the limit differs from the saved one, it comes into force now. The clock continues where
    /// the old one was left, after `downtime`.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Limit`] if it is of another policy or no limit at all, and
    /// [`SnapshotError::OtherCount`] if it is of another number of limits.
    pub fn restore(
        limits: impl Into<AllOf>,
        saved: &Snapshot,
        downtime: Downtime,
    ) -> Result<Self, SnapshotError> {
        let since = saved.saved_at().going_on(downtime);
        Self::restore_since(
            limits.into(),
            MonotonicClock::starting_at(Duration::from_nanos(since.now_ns)),
            saved,
            since,
        )
    }
}
