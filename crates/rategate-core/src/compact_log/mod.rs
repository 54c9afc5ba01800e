//! The compact log: a sliding log for tables of many keys. It grants at most N permits in *any*
//! window of length M, and a key takes no more memory than its log needs.
//!
//! It is the log of [`sliding_log`](crate::sliding_log) on a grid, and makes the same decisions.
//! It stores grid points instead of instants, as distances or as counts, whichever is shorter for
//! the current contents:
//!
//! ```text
//!   grid points     0   1   2   3   4   5   6   7   8   9  ...       M / Q in a window
//!   permits         3               1   1           1
//!
//!   runs            0:3             4:1 1:1         3:1             (gap, count) for each run
//!   gaps            0 0 0           4   1           3               a gap for each permit
//!   histogram       3   0   0   0   1   1   0   0   1               a count for each point
//! ```
//!
//! # Contract
//!
//! * **Units.** Instants and lengths are nanoseconds.
//! * **Ceiling.** At most N permits in any window `[t, t + M)`, at every phase; with a guard G
//!   the same for effects that come up to G apart, as in the sliding log.
//! * **Starts.** The ceiling holds for real starts (the default), and for promised instants where
//!   a schedule promises instants.
//! * **Rate.** A grant counts as made at the next point of the grid of Q ns, never sooner, so it
//!   leaves the log less than Q late. Under lasting demand that grants at least N / (M + G + Q),
//!   and N / (M + G) if Q divides M + G (docs/theory.md, section 6.2). By default Q is a
//!   thousandth of M: 0.1 % at most. [`exact`](CompactLog::exact) loses nothing.
//! * **Retry.** Exact; equality passes, since windows are half-open.
//! * **Forms.** All of them decide alike (docs/theory.md, section 6.6), so the form in use
//!   affects only the memory.
//! * **Refund.** The permits leave the log, if they are still in it; with a grid, not across a
//!   change of the numbers.
//! * **Charge.** Permits like any others, past N too; the log then grows beyond what N permits
//!   take. A debt ends as its permits leave the log; one to be carried is not in the log.
//! * **Change.** Grants keep their points. What had left the log under the old numbers does not
//!   return. On another grid they count as made at its next point, and a grant after the change
//!   no sooner than they do.
//! * **Clock.** Going backwards earns nothing twice; at the end of 64 bits nothing wraps.
//! * **Memory.** 24 bytes; no more for a key with permits at one point, or at two less than 2^32
//!   points apart with up to 65 535 permits each. Otherwise 32 bytes more and the entries. With
//!   `n` permits at `r` of the `s` points from the oldest to the newest, `w` bits for a gap and
//!   `c` for the count of the fullest point, these take `min(n w, r (w + c), s c)` bits
//!   (docs/theory.md, section 6.10), and up to a quarter and four entries more to grow into. `w`
//!   is such that few gaps are wider, and each of those takes a few entries. That is the size
//!   when the log is written. It is written anew when it is full, when it has fallen to a
//!   quarter, and once per round of the ring if that saves a quarter. Expired permits take
//!   nothing, from the next grant or [`trim`](CompactLog::trim) on.
//! * **Cost.** O(1) amortised. Now and then a grant writes the whole log anew: when it has grown
//!   by a quarter, fallen to a quarter, cannot encode a wider gap or a larger count, or has gone
//!   round once. O(number of entries that must leave) for several permits, and for a refund
//!   O(number of entries after it).
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate_core::compact_log::CompactLog;
//! use rategate_core::ledger::Ledger;
//! use rategate_core::limit::Limit;
//! use rategate_core::verdict::Verdict;
//!
//! // 10 000 in any second, to the millisecond.
//! let mut limit = Ledger::new(CompactLog::new(10_000, Duration::from_secs(1)), 0);
//! for n in 0..10_000 {
//!     assert!(matches!(limit.try_acquire(n * 100_000, 1)?, Verdict::Granted(_)));
//! }
//! let Verdict::Denied(denial) = limit.try_acquire(999_999_999, 1)? else { unreachable!() };
//! assert_eq!(denial.retry_after_ns.map(u64::from), Some(1));
//! assert!(limit.state().heap_bytes() < 1_000, "a tenth of a byte for each");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

mod few;
mod fields;
mod head;
mod ring;
mod shape;
mod state;
mod words;

use core::num::NonZeroU64;
use core::time::Duration;

use self::shape::{Caps, Entry};
pub use self::state::{Form, State};
use crate::debt::{Charge, Charged};
use crate::error::{LimitError, or_panic};
use crate::policy::{Policy, Taken};
use crate::refund::Refund;
use crate::span::checked;
use crate::span::exact_ns;
use crate::verdict::{Opening, Refusal, on_clock};

/// The maximum number of permits that a log counts.
pub const MAX_PERMITS: u64 = 4_294_967_295;

/// The maximum number of permits that charges bring into a log.
pub const MAX_CHARGED: u64 = 1 << 62;

/// The default number of parts into which the grid cuts the period.
pub const DEFAULT_PARTS: u64 = 1_000;

/// A limit of at most `permits` in any window of `period`, on a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactLog {
    permits: NonZeroU64,
    period_ns: NonZeroU64,
    guard_ns: u64,
    resolution_ns: NonZeroU64,
}

impl CompactLog {
    /// Creates a limit of at most `permits` in any window of `period`, without a guard, on a
    /// grid of a thousandth of the period.
    ///
    /// # Panics
    ///
    /// Panics where [`try_new`](Self::try_new) fails.
    #[must_use]
    pub const fn new(permits: u64, period: Duration) -> Self {
        or_panic(Self::try_new(permits, period))
    }

    /// Creates a limit of at most `permits` in any window of `period`, without a guard, on a
    /// grid of a thousandth of the period.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPermits`], [`LimitError::ZeroPeriod`], [`LimitError::PeriodTooLong`], or
    /// [`LimitError::TooManyPermits`] above [`MAX_PERMITS`].
    pub const fn try_new(permits: u64, period: Duration) -> Result<Self, LimitError> {
        let (permits, period_ns) = match checked(permits, period, MAX_PERMITS) {
            Ok(numbers) => numbers,
            Err(error) => return Err(error),
        };
        // A period of fewer nanoseconds has no finer grid than these.
        let resolution_ns = match period_ns.get().checked_div(DEFAULT_PARTS) {
            Some(ns) => NonZeroU64::new(ns),
            None => None,
        };
        let resolution_ns = match resolution_ns {
            Some(resolution_ns) => resolution_ns,
            None => NonZeroU64::MIN,
        };
        Ok(Self { permits, period_ns, guard_ns: 0, resolution_ns })
    }

    /// Adds a guard for effects that follow their grants by at most `guard` more than the
    /// quickest of them, such as a network's jitter.
    ///
    /// # Errors
    ///
    /// [`LimitError::PeriodTooLong`] if period and guard together exceed 584 years.
    pub fn with_guard(self, guard: Duration) -> Result<Self, LimitError> {
        let guard_ns = exact_ns(guard).ok_or(LimitError::PeriodTooLong)?;
        self.period_ns.checked_add(guard_ns).ok_or(LimitError::PeriodTooLong)?;
        Ok(Self { guard_ns, ..self })
    }

    /// Puts the limit on a grid of `resolution`.
    ///
    /// # Errors
    ///
    /// [`LimitError::Resolution`] if it is zero or longer than the period.
    pub fn with_resolution(self, resolution: Duration) -> Result<Self, LimitError> {
        match exact_ns(resolution).and_then(NonZeroU64::new) {
            Some(resolution_ns) if resolution_ns <= self.period_ns => {
                Ok(Self { resolution_ns, ..self })
            }
            _ => Err(LimitError::Resolution),
        }
    }

    /// Puts the limit on a grid of `parts` parts of the period, rounded down to a nanosecond. At
    /// most one such part of the rate is lost.
    ///
    /// # Errors
    ///
    /// [`LimitError::Resolution`] if `parts` is zero, or more than the period has nanoseconds.
    pub fn with_parts(self, parts: u64) -> Result<Self, LimitError> {
        let resolution_ns = self.period_ns.get().checked_div(parts);
        let resolution_ns =
            resolution_ns.and_then(NonZeroU64::new).ok_or(LimitError::Resolution)?;
        Ok(Self { resolution_ns, ..self })
    }

    /// Makes the limit exact to the nanosecond: no loss of rate, and some three bytes for each
    /// permit of a thousand a second.
    #[must_use]
    pub const fn exact(self) -> Self {
        Self { resolution_ns: NonZeroU64::MIN, ..self }
    }

    /// Returns the maximum number of permits in any window.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.permits.get()
    }

    /// Returns the guard: by how much later than the quickest effects others may come.
    #[must_use]
    pub const fn guard_ns(&self) -> u64 {
        self.guard_ns
    }

    /// Returns how long a grant stays in the log: the window and its guard.
    #[must_use]
    pub const fn held_for_ns(&self) -> u64 {
        self.period_ns.get().saturating_add(self.guard_ns)
    }

    /// Returns the distance of the grid's points, in nanoseconds.
    #[must_use]
    pub const fn resolution_ns(&self) -> u64 {
        self.resolution_ns.get()
    }

    /// Frees the memory of what has left the log by `now_ns`, as the next grant would. No
    /// decision changes.
    pub fn trim(&self, state: &mut State, now_ns: u64) {
        self.expire_before(state, now_ns);
    }

    /// Returns the bounds on what the log can have to hold.
    const fn caps(&self) -> Caps {
        let (permits, window_ns) = (self.permits.get(), self.held_for_ns());
        Caps { permits, window_ns, cell_ns: self.resolution_ns }
    }

    /// Returns the grid point at which a grant at `start_ns` counts as made.
    const fn tick_of(&self, start_ns: u64) -> u64 {
        start_ns.div_ceil(self.resolution_ns.get())
    }

    /// Returns the instant of a grid point. The one beyond the end of the clock is the end.
    const fn instant_ns(&self, tick: u64) -> u64 {
        tick.saturating_mul(self.resolution_ns.get())
    }

    /// Returns when the permits of a grid point leave the log.
    fn release_ns(&self, tick: u64) -> u128 {
        u128::from(self.instant_ns(tick)).saturating_add(self.held_for_ns().into())
    }

    /// Returns the newest grid point whose permits have left the log at `at_ns`, or `None` if
    /// those of the oldest have not.
    fn expired_by(&self, state: &State, at_ns: u64) -> Option<u64> {
        // Usually no division: a grant has just dropped what had left the log.
        if self.release_ns(state.oldest()) > at_ns.into() {
            return None;
        }
        at_ns.checked_sub(self.held_for_ns())?.checked_div(self.resolution_ns.get())
    }

    /// Returns the only grid point whose permits are in the log at `at_ns`, and their number;
    /// `None` if there are several. For an empty log it returns any point with no permits.
    pub(crate) fn only_cell(&self, state: &State, at_ns: u64) -> Option<(u64, u64)> {
        let is_in = |cell: &Entry| self.release_ns(cell.tick) > at_ns.into();
        let mut cells = state.cells().filter(is_in);
        let only = cells.next().map_or((0, 0), |cell| (cell.tick, cell.permits));
        cells.next().is_none().then_some(only)
    }

    /// Returns a log with the permits of one grid point.
    pub(crate) fn with_cell(&self, tick: u64, permits: u64) -> State {
        State::of(core::iter::once(Entry { tick, permits }), self.caps())
    }

    /// Returns the first instant, not before `from_ns`, at which at most `available` permits are in
    /// the log.
    fn emptied_to(&self, state: &State, from_ns: u64, available: u64) -> u128 {
        let last = state.last_to_leave(available);
        last.map_or(0, |last| self.release_ns(last)).max(from_ns.into())
    }

    fn expire_before(&self, state: &mut State, at_ns: u64) {
        if let Some(expired) = self.expired_by(state, at_ns) {
            state.expire(expired, self.caps());
        }
    }
}

impl Policy for CompactLog {
    type State = State;

    fn fresh(&self, _now_ns: u64) -> State {
        State::default()
    }

    fn opening(
        &self,
        state: &State,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        let Some(available) = self.permits.get().checked_sub(permits.get()) else {
            return Err(Refusal::exceeds(permits, self.permits.get()));
        };
        on_clock(self.emptied_to(state, from_ns, available), from_ns).map(Opening::at)
    }

    fn take(&self, state: &mut State, grant: Taken) {
        self.expire_before(state, grant.start_ns);
        // Only a coarser grid's permits can count as granted later than this one.
        let tick = self.tick_of(grant.start_ns).max(state.newest());
        state.push(Entry { tick, permits: grant.permits.get() }, self.caps());
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        let expired = self.expired_by(state, now_ns);
        let held = expired.map_or_else(|| state.permits(), |expired| state.permits_after(expired));
        self.permits.get().saturating_sub(held)
    }

    /// Removes the permits from the log, if they are still in it.
    fn refund(&self, state: &mut State, refund: Refund) -> u64 {
        // An earlier grid may have counted them as granted at another instant.
        if refund.returned.is_none() && self.resolution_ns.get() > 1 {
            return 0;
        }
        let tick = self.tick_of(refund.start_ns);
        if self.release_ns(tick) <= refund.now_ns.into() {
            return 0;
        }
        state.take_back(tick, refund.permits, self.caps())
    }

    /// Removes the newest permits from the log.
    fn credit(&self, state: &mut State, now_ns: u64, permits: u64) -> u64 {
        self.expire_before(state, now_ns);
        let mut left = permits;
        while left > 0 && state.permits() > 0 {
            let back = state.take_back(state.newest(), left, self.caps());
            if back == 0 {
                break;
            }
            left = left.saturating_sub(back);
        }
        permits.saturating_sub(left)
    }

    fn charge(&self, state: &mut State, charge: Charge) -> Option<Charged> {
        let Charge { now_ns, permits, debt } = charge;
        if debt.is_carried() {
            return None;
        }
        self.expire_before(state, now_ns);
        let booked = permits.min(MAX_CHARGED.saturating_sub(state.permits()));
        if booked > 0 {
            state.insert(Entry { tick: self.tick_of(now_ns), permits: booked }, self.caps());
        }
        Some(Charged::of(permits, booked, self.debt(state, now_ns)))
    }

    fn debt(&self, state: &State, now_ns: u64) -> u64 {
        let expired = self.expired_by(state, now_ns);
        let held = expired.map_or_else(|| state.permits(), |expired| state.permits_after(expired));
        held.saturating_sub(self.permits.get())
    }

    fn debt_ends_ns(&self, state: &State, from_ns: u64) -> Option<u64> {
        self.emptied_to(state, from_ns, self.permits.get()).try_into().ok()
    }

    fn fresh_at_ns(&self, state: &State) -> Option<u64> {
        match state.permits() {
            0 => Some(0),
            _ => self.release_ns(state.newest()).try_into().ok(),
        }
    }

    fn heap_bytes(&self, state: &State) -> usize {
        state.heap_bytes()
    }

    fn rebase(&self, state: &mut State, old: &Self, now_ns: u64) {
        old.expire_before(state, now_ns);
        if self.resolution_ns != old.resolution_ns {
            let regrid =
                |entry: Entry| Entry { tick: self.tick_of(old.instant_ns(entry.tick)), ..entry };
            *state = State::of(state.entries().map(regrid), self.caps());
        }
    }
}
