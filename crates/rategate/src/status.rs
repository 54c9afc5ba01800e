//! The status of a limit, and its corrections by the owner: credit and reset.

use std::time::Duration;

use rategate_core::debt::{Charged, Debt};
use rategate_core::ledger::Ledger;
use rategate_core::packed::Packed;
use rategate_core::verdict::{self, Verdict};

use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::{ChargeError, Closed, TryAcquireError};
use crate::limiter::Limiter;
use crate::section::CriticalSection;

/// The status of a limit: its current numbers, read without taking permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The most permits that a try could take now: see [`remaining`](crate::Keyed::remaining).
    pub remaining: u64,
    /// The time until nothing that was taken counts any more, if no other call comes and all that is
    /// held is used.
    ///
    /// From then on, and not a nanosecond sooner, the limit behaves like a fresh one. 0 if it
    /// does now. `None` where time alone does not bring that about, where callers wait for the
    /// limit, and beyond the end of the clock.
    pub fresh_in: Option<Duration>,
    /// The permits by which the limit is exceeded: more than 0 only after a
    /// [charge](crate::charge).
    pub debt: u64,
    /// The time until the limit is not exceeded any more, or until a hold ends, if that is sooner: 0
    /// if it is not exceeded. `None` where time alone does not bring that about.
    pub debt_ends_in: Option<Duration>,
    /// The number of permits that a fresh limit of these numbers grants at once.
    ///
    /// While [numbers change](crate::Keyed::reconfigure), it tells which of them `remaining` is
    /// counted by.
    pub capacity: u64,
}

impl Status {
    /// Creates a status, for tests of code that reads one.
    #[must_use]
    pub const fn new(remaining: u64, fresh_in: Option<Duration>, capacity: u64) -> Self {
        let debt_ends_in = Some(Duration::ZERO);
        Self { remaining, fresh_in, debt: 0, debt_ends_in, capacity }
    }

    /// Returns the status of a limit with waiters.
    pub(crate) const fn blocked(capacity: u64) -> Self {
        Self::new(0, None, capacity)
    }

    #[inline]
    pub(crate) fn of_value(numbers: Packed, value: u64, now_ns: u64) -> Self {
        let remaining = numbers.remaining(value, now_ns);
        let fresh_in = numbers.fresh_in_ns(value, now_ns).map(Duration::from_nanos);
        let status = Self::new(remaining, fresh_in, numbers.capacity());
        match if remaining == 0 { numbers.debt(value, now_ns) } else { 0 } {
            0 => status,
            debt => {
                let ends_in_ns = numbers.debt_ends_in_ns(value, now_ns);
                Self { debt, debt_ends_in: Some(Duration::from_nanos(ends_in_ns)), ..status }
            }
        }
    }

    pub(crate) fn of_ledger(ledger: &Ledger, now_ns: u64) -> Self {
        let fresh_ns = ledger.fresh_at_ns(now_ns);
        let fresh_in =
            fresh_ns.map(|fresh_ns| Duration::from_nanos(fresh_ns.saturating_sub(now_ns)));
        let (remaining, capacity) = (ledger.remaining(now_ns), ledger.limits().max_at_once());
        let status = Self::new(remaining, fresh_in, capacity);
        // A debt may be a promise, before which some permits fit.
        if remaining > 0 && ledger.promised() == 0 {
            return status;
        }
        let debt_ends_in = ledger.debt_ends_in_ns(now_ns).map(Duration::from_nanos);
        Self { debt: ledger.debt(now_ns), debt_ends_in, ..status }
    }
}

impl<C: Clock> Limiter<C> {
    /// Calls `status` with the limit itself, for example to read the numbers in force.
    ///
    /// The lock is held meanwhile, so `status` should be short, and call no limiter.
    ///
    /// ```
    /// use rategate::{Gcra, Limiter};
    ///
    /// let limiter = Limiter::new(Gcra::per_second(1).burst(10));
    /// limiter.reconfigure(Gcra::per_second(2).burst(20))?;
    /// let in_force = limiter.with_limit(|limit| limit.limits().only().map(|only| only.policy()));
    /// assert_eq!(in_force, Some(Gcra::per_second(2).burst(20).into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_limit<T>(&self, status: impl FnOnce(&Ledger) -> T) -> T {
        self.shared().section_even_if_closed(|section| status(section.limit()))
    }

    /// Resets the limit to a fresh state. Returns `true` if that changed anything observable.
    ///
    /// All that was used, held and promised is dropped, and commits of earlier holds are late.
    /// Waiters stay in the queue.
    ///
    /// Operations in flight are not counted any more: to end one from before the reset ends one
    /// of those after it.
    ///
    /// ```
    /// use rategate::{Gcra, Limiter, ManualClock};
    ///
    /// let limiter = Limiter::with_clock(Gcra::per_second(1).burst(10), ManualClock::new());
    /// assert!(limiter.try_acquire(4)?.is_granted());
    /// assert_eq!(limiter.reset(), Ok(true));
    /// assert_eq!(limiter.reset(), Ok(false));
    /// assert_eq!(limiter.remaining(), Ok(10));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn reset(&self) -> Result<bool, Closed> {
        self.shared().change(Ledger::restart)
    }

    /// Returns a number that differs after each change of the limit, and after the closing.
    ///
    /// Takes no lock.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.shared().on_demand().batches_or_new().epoch()
    }
}

impl<C: Clock> Limiter<C> {
    /// Credits `permits` without a grant, but at most as many as were granted and not earned
    /// again. Returns how many.
    ///
    /// The caller vouches that they had no effect. A bucket's level rises, to its capacity at
    /// most, and of the last permit perhaps only a fraction fits. The count of the current window
    /// falls, to zero at least. A log drops its newest permits first. Operations in flight are
    /// [aborted](Self::abort). A schedule takes back what can still be caught up on. A fresh
    /// limit takes back nothing. Promises stay: [cancel](crate::Reservation::cancel) them.
    ///
    /// A [hold](Self::hold) brings back no more than it took. Here the bound is the caller's word: in
    /// any window at most as many permits start as the limit allows, and as many again as are
    /// credited in that window.
    ///
    /// ```
    /// use rategate::{Gcra, Limiter, ManualClock};
    ///
    /// let limiter = Limiter::with_clock(Gcra::per_second(1).burst(10), ManualClock::new());
    /// assert!(limiter.try_acquire(4)?.is_granted());
    /// assert_eq!(limiter.credit(3)?, 3);
    /// assert_eq!(limiter.credit(3)?, 1, "up to full");
    /// assert_eq!(limiter.remaining()?, 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn credit(&self, permits: u64) -> Result<u64, Closed> {
        self.shared().change(|limit, now_ns| limit.credit(now_ns, permits))
    }

    /// Returns the status of the limit: the permits left, and the time until it is fresh again.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn status(&self) -> Result<Status, Closed> {
        self.shared().section(status)
    }

    /// Makes a try, and returns the status of the limit after it.
    pub(crate) fn try_with_status(
        &self,
        permits: u64,
    ) -> Result<(Decision, Status), TryAcquireError> {
        let result = self.shared().section(|section| {
            let decided = section.decide_behind_all(permits, |limit, now_ns| {
                limit.try_acquire(now_ns, permits).map_err(TryAcquireError::from)
            })?;
            let blocked = Verdict::Denied(verdict::Denial { retry_after_ns: None });
            Ok((Decision::of(&decided.unwrap_or(blocked)), status(section)))
        })?;
        if let Some(stats) = self.stats() {
            let remaining = || result.map_or(0, |(_, status)| status.remaining);
            stats.record_try(permits, &result.map(|(decision, _)| decision), remaining);
        }
        result
    }
}

impl<C: Clock> Limiter<C> {
    /// Charges permits, and returns the status of the limit after that.
    pub(crate) fn charge_with_status(
        &self,
        permits: u64,
        debt: Debt,
    ) -> Result<(Charged, Status), ChargeError> {
        self.shared().section_in_order(|section| {
            let charged = section.change(|limit, now_ns| limit.charge(now_ns, permits, debt))?;
            Ok((charged, status(section)))
        })?
    }
}

/// Returns the status of the limit behind a lock, after all waiters.
pub(crate) fn status(section: &mut CriticalSection<'_>) -> Status {
    if !section.state().is_queue_empty() {
        return Status::blocked(section.limit().limits().max_at_once());
    }
    let status = section.behind_all(|limit, now_ns| Status::of_ledger(limit, now_ns));
    status.unwrap_or_else(|| Status::blocked(section.limit().limits().max_at_once()))
}
