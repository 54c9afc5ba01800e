//! Holds: estimates of what an operation will use, until its true cost is known.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rategate_core::debt::Debt;
use rategate_core::fair::ClassId;
use rategate_core::holds::{self, Committed};
use rategate_core::line::Request;
use rategate_core::span::whole_ns;

use crate::clock::{Clock, MonotonicClock};
use crate::decision::{Decision, Denial, Grant};
use crate::error::{AcquireError, Closed, TryAcquireError};
use crate::limiter::Limiter;
use crate::section::Estimate;
use crate::shared::Shared;
use crate::status::{Status, status};

/// Permits held for an operation whose cost is known later, returned by [`Limiter::try_hold`] and
/// [`Limiter::hold`].
///
/// It ends once: by a [`commit`](Self::commit) of what was used, by a drop, which cancels it, or
/// by itself when its time is over. An operation that may have used something has to commit, even
/// where it failed or panicked: what a dropped hold kept is others' at once.
///
/// # Bound
///
/// In any window, what is used exceeds the limit by at most what was used beyond the estimates,
/// and by late commits. Hold an upper bound, for longer than the operation can last, and nothing
/// exceeds it.
///
/// A hold counts as its permits would, taken when it began: after a minute it is no longer in a
/// log of a minute, and a bucket has earned it back. For a maximum of permits held *at once*, use
/// [`Concurrency`](crate::Concurrency). There, and in a [`CommitLog`](crate::CommitLog), permits
/// come back at any end and a shortfall is not charged; a commit log counts the used part as
/// effects from the commit on, and all of a hold that ran to its end.
///
/// It outlives the limiter's handles. Leaked, it ends when its time is over.
///
/// ```
/// use std::time::Duration;
///
/// use rategate::charge::{Committed, Settled};
/// use rategate::{Gcra, Limiter, ManualClock};
///
/// // 100 tokens: five calls that may take 80 each do not pass together.
/// let tokens = Limiter::with_clock(Gcra::per_hour(100).burst(100), ManualClock::new());
/// let hold = tokens.try_hold(80, Duration::from_secs(60))?.unwrap();
/// assert!(tokens.try_hold(80, Duration::from_secs(60))?.is_err());
/// assert_eq!(hold.commit(15)?, Committed::InTime(Settled::Back { permits: 65 }));
/// assert_eq!(tokens.remaining()?, 85);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropped, a hold is cancelled"]
pub struct Hold<C: Clock = MonotonicClock> {
    owner: Owner<C>,
    has_ended: bool,
    /// Set if all of it counts as used where it is dropped.
    is_kept: bool,
    held: holds::Hold,
}

/// The limit that keeps what is held.
enum Owner<C: Clock> {
    Limiter(Arc<Shared<C>>, ClassId),
    /// That of a key, which has no limiter of its own.
    Key(Arc<dyn KeysWithHolds>, KeyName),
}

/// A key of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyName {
    pub(crate) id: [u64; 2],
    pub(crate) tier: usize,
}

/// A table of limits that keep what is held.
pub(crate) trait KeysWithHolds: Send + Sync {
    /// Ends a hold of a key.
    fn commit(&self, name: KeyName, hold: holds::Hold, actual: u64) -> Result<Committed, Closed>;

    /// Ends a hold of a key. Also returns the status of its limit.
    fn commit_with_status(
        &self,
        name: KeyName,
        hold: holds::Hold,
        actual: u64,
    ) -> Result<(Committed, Status), Closed>;

    /// Ends a hold of a key, all of which was used. One that has ended changes nothing.
    fn keep(&self, name: KeyName, hold: holds::Hold);
}

impl<C: Clock> Limiter<C> {
    /// Holds an estimate of `permits` until the true cost is known, or reports how long until it
    /// could be held. Never waits.
    ///
    /// The hold ends by itself after `ttl`, so choose that longer than the operation; one of no
    /// time has ended already, and its commit is late. No permits are always held. While anything
    /// is held, the limiter decides under its lock.
    ///
    /// A denial names the time until the first of the other holds ends, if that is sooner than what
    /// it would have to wait for otherwise. A reservation and a wait with a deadline count holds as
    /// used; a waiter is served early when one ends.
    ///
    /// # Errors
    ///
    /// The errors of [`try_acquire`](Self::try_acquire).
    pub fn try_hold(
        &self,
        permits: u64,
        ttl: Duration,
    ) -> Result<Result<Hold<C>, Denial>, TryAcquireError> {
        self.try_hold_ns(permits, whole_ns(ttl))
    }

    pub(crate) fn try_hold_ns(
        &self,
        permits: u64,
        ttl_ns: u64,
    ) -> Result<Result<Hold<C>, Denial>, TryAcquireError> {
        let decided = self.shared().try_hold(permits, ttl_ns);
        self.shared().record_try(permits, &decided.map(|(decision, _)| decision));
        match decided? {
            (_, Some(hold)) => Ok(Ok(self.held(hold))),
            (Decision::Denied(denial), None) => Ok(Err(denial)),
            // No grant is without a hold.
            (Decision::Granted(_), None) => Err(TryAcquireError::Closed),
        }
    }

    /// Waits until an estimate of `permits` fits, and holds it until the true cost is known.
    ///
    /// The caller queues like those of [`acquire`](Self::acquire). The time of the hold counts
    /// from its start. It is judged like one of [`try_hold`](Self::try_hold), except with
    /// [promised starts](Self::with_promised_starts): what other callers were promised meanwhile
    /// may then keep a part of the excess of a token bucket.
    ///
    /// Blocks the thread: in a task, use [`AsyncLimiter::hold`](crate::AsyncLimiter::hold). In a
    /// debug build with the feature `tokio` it panics on a thread that drives tasks.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::{Gcra, Limiter};
    ///
    /// let tokens = Limiter::new(Gcra::per_second(1_000_000).burst(1_000));
    /// let first = tokens.hold(1_000, Duration::from_millis(5))?;
    /// let second = tokens.hold(1_000, Duration::from_secs(60))?; // waits for a millisecond
    /// assert!(second.ends_at() > first.ends_at());
    /// second.commit(700)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire).
    pub fn hold(&self, permits: u64, ttl: Duration) -> Result<Hold<C>, AcquireError> {
        self.hold_requested(self.request(permits), ttl)
    }

    /// Holds an estimate as [`hold`](Self::hold) does, if it fits within `max_wait`.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire_within`](Self::acquire_within).
    pub fn hold_within(
        &self,
        permits: u64,
        ttl: Duration,
        max_wait: Duration,
    ) -> Result<Hold<C>, AcquireError> {
        self.hold_requested(self.request(permits).within(Some(whole_ns(max_wait))), ttl)
    }

    fn hold_requested(&self, request: Request, ttl: Duration) -> Result<Hold<C>, AcquireError> {
        let (precision, mut estimate) = (self.precision(), Estimate::new(whole_ns(ttl)));
        let ended = self.shared().wait_uncounted(request, precision, None, Some(&estimate));
        self.shared().record_wait(request.permits, &ended);
        self.held_by(ended, &mut estimate)
    }

    /// Returns the end of a wait with its hold.
    pub(crate) fn held_by(
        &self,
        ended: Result<Grant, AcquireError>,
        estimate: &mut Estimate,
    ) -> Result<Hold<C>, AcquireError> {
        ended?;
        // No grant of an estimate is without a hold.
        estimate.held.take().map(|held| self.held(held)).ok_or(AcquireError::Closed)
    }

    pub(crate) fn held(&self, hold: holds::Hold) -> Hold<C> {
        let owner = Owner::Limiter(Arc::clone(self.shared()), self.request(0).class);
        Hold { owner, has_ended: false, is_kept: false, held: hold }
    }
}

impl<C: Clock> Limiter<C> {
    /// Ends a hold of which the caller has no guard.
    pub(crate) fn commit_held(
        &self,
        hold: holds::Hold,
        actual: u64,
        debt: Debt,
    ) -> Result<Committed, Closed> {
        let class = self.request(0).class;
        self.shared().section_in_order(|section| section.commit(class, hold, actual, debt))
    }
}

impl<C: Clock> Hold<C> {
    /// Ends the hold as [`commit`](Self::commit) does, and returns the limit's status after that.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn commit_with_status(mut self, actual: u64) -> Result<(Committed, Status), Closed> {
        self.has_ended = true;
        match &self.owner {
            Owner::Limiter(shared, class) => {
                let (hold, debt) = (self.held, shared.debt_terms());
                shared.section_in_order(|section| {
                    let committed = section.commit(*class, hold, actual, debt);
                    (committed, status(section))
                })
            }
            Owner::Key(table, name) => table.commit_with_status(*name, self.held, actual),
        }
    }
}

impl<C: Clock> Hold<C> {
    pub(crate) fn of_key(table: Arc<dyn KeysWithHolds>, name: KeyName, held: holds::Hold) -> Self {
        Self { owner: Owner::Key(table, name), has_ended: false, is_kept: false, held }
    }

    /// Returns the number of permits held.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.held.permits
    }

    /// Returns the instant at which the hold ends by itself, on the limiter's clock.
    #[must_use]
    pub const fn ends_at(&self) -> Duration {
        Duration::from_nanos(self.held.end_ns)
    }

    /// Ends the hold: the operation has used `actual` permits.
    ///
    /// An excess comes back, and a shortfall is [charged](Limiter::charge). If the hold has ended
    /// before, all of `actual` is charged.
    ///
    /// A token bucket that would have been full without the excess has no room for it, and loses
    /// it. A schedule and a [backfill pool](crate::BackfillPool) take back what is proven not to
    /// have been made up for since. Of a window, a log or a schedule whose numbers have
    /// changed since, nothing may come back.
    ///
    /// # Errors
    ///
    /// [`Closed`]: a closed limiter counts nothing any more.
    pub fn commit(mut self, actual: u64) -> Result<Committed, Closed> {
        self.end(actual)
    }

    /// Ends the hold: the operation has used nothing, and never will. A drop does so too.
    pub fn cancel(mut self) {
        self.is_kept = false;
    }

    /// Ends the hold, all of which counts as used. If it has ended, nothing is charged.
    ///
    /// It is for the owner of a hold whose operation may have been counted before: one that was
    /// restored from an older snapshot.
    pub fn keep(mut self) {
        self.end_as_used();
    }

    /// Returns a hold all of which counts as used where it is dropped, as if [kept](Self::keep).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::{Gcra, Limiter};
    ///
    /// let tokens = Limiter::new(Gcra::per_hour(10).burst(10));
    /// drop(tokens.try_hold(4, Duration::MAX)?.unwrap());
    /// assert_eq!(tokens.remaining()?, 10);
    /// drop(tokens.try_hold(4, Duration::MAX)?.unwrap().kept_if_dropped());
    /// assert_eq!(tokens.remaining()?, 6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn kept_if_dropped(mut self) -> Self {
        self.is_kept = true;
        self
    }

    fn end_as_used(&mut self) {
        self.has_ended = true;
        match &self.owner {
            Owner::Limiter(shared, _) => {
                let hold = self.held;
                // A closed limiter counts nothing any more.
                let _ = shared.section_in_order(|section| {
                    section.change(|limit, now_ns| limit.end_hold(now_ns, hold, hold.permits))
                });
            }
            Owner::Key(table, name) => table.keep(*name, self.held),
        }
    }

    fn end(&mut self, actual: u64) -> Result<Committed, Closed> {
        self.has_ended = true;
        let hold = self.held;
        match &self.owner {
            Owner::Limiter(shared, class) => {
                let debt = shared.debt_terms();
                shared.section_in_order(|section| section.commit(*class, hold, actual, debt))
            }
            Owner::Key(table, name) => table.commit(*name, hold, actual),
        }
    }
}

impl<C: Clock> Drop for Hold<C> {
    fn drop(&mut self) {
        if !self.has_ended && self.is_kept {
            self.end_as_used();
        } else if !self.has_ended {
            // A closed limiter needs nothing back.
            let _ = self.end(0);
        }
    }
}

impl<C: Clock> fmt::Debug for Hold<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own: [(&str, &dyn fmt::Debug); 2] =
            [("permits", &self.held.permits), ("ends_at", &self.ends_at())];
        match &self.owner {
            Owner::Limiter(shared, _) => shared.fmt_as(f, "Hold", &own),
            Owner::Key(..) => {
                let mut shown = f.debug_struct("Hold");
                for (name, value) in &own {
                    shown.field(name, value);
                }
                shown.finish_non_exhaustive()
            }
        }
    }
}
