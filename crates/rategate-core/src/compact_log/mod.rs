//! The sliding log for a table of many keys: at most N permits in *any* window of length M, and no more
//! memory for a key than its log has to say.
//!
//! It is the log of [`sliding_log`](crate::sliding_log) on a grid, decision for decision. It remembers
//! grid points instead of instants, as distances or as counts, whichever is shorter for what is in the
//! log at the time:
//!
//! ```text
//!   grid points     0   1   2   3   4   5   6   7   8   9  ...       G = M / Q of them
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
//! * **Ceiling.** At most N permits in any window `[t, t + M)`, at every phase; with a guard G the same
//!   for effects that come up to G apart, as in the sliding log.
//! * **Starts.** The ceiling holds for real starts (default); where a schedule promises instants, for promised
//!   instants.
//! * **Rate.** A grant counts as made at the next point of the grid of Q ns, never sooner, so its
//!   place is free less than Q late: under lasting demand at least N / (M + G + Q), and N / (M + G)
//!   if Q divides M + G (theory 6.2). If not said otherwise, Q is a thousandth of M: 0.1 % at most.
//!   [`exact`](CompactLog::exact) loses nothing.
//! * **Retry.** Exact; equality passes, since windows are half-open.
//! * **Forms.** All of them decide alike (theory 6.6), so which one is in use changes nothing but the
//!   memory.
//! * **Refund.** The permits leave the log, if they are still in it; with a grid, not across a change
//!   of the numbers.
//! * **Change.** Grants stay with their points; what the old numbers had let go is gone. On another grid
//!   they count as made at its next point, and a grant after the change no sooner than they do.
//! * **Clock.** Going backwards earns nothing twice; at the end of 64 bits nothing wraps.
//! * **Memory.** 24 bytes; no more for a key with permits at one point, or at two less than 2^32 points
//!   apart with up to 65 535 permits each. Otherwise 32 bytes more and, with `n` permits at `r` of
//!   the `s` points from the oldest to the newest, `w` bits for a gap and `c` for the count of the
//!   fullest point, `min(n w, r (w + c), s c)` bits (theory 6.10), and up to a quarter and four
//!   entries more to grow into; `w` is such that few gaps are wider, and each of those takes a few
//!   entries. That is when it is written, which it is anew when it is full, when it has
//!   fallen to a quarter, and once a lap if that saves a quarter. What is over takes nothing, from
//!   the next grant or [`trim`](CompactLog::trim) on.
//! * **Cost.** O(1) amortised. Now and then a grant writes the whole log anew: when it has grown by a
//!   quarter, fallen to a quarter, has no place for a wider gap or a larger count, or has gone round
//!   once. O(number of entries that must leave) for several permits, and for a refund O(number of
//!   entries behind it).
//!
//! # Example
//!
//! ```
//! use rategate_core::compact_log::CompactLog;
//! use rategate_core::ledger::Ledger;
//! use rategate_core::limit::Limit;
//! use rategate_core::verdict::Verdict;
//!
//! // 10 000 in any second, to the millisecond.
//! let mut limit = Ledger::new(CompactLog::new(10_000, 1_000_000_000)?, 0);
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

use self::shape::{Caps, Entry};
pub use self::state::{Form, State};
use crate::error::LimitError;
use crate::policy::{Policy, Taken};
use crate::refund::Refund;
use crate::verdict::{Opening, Refusal, on_clock};

/// The most permits a log counts.
pub const MAX_PERMITS: u64 = 4_294_967_295;

/// Into how many parts the grid cuts the period if nobody says otherwise.
pub const DEFAULT_PARTS: u64 = 1_000;

/// At most `permits` in any window of `period_ns`, on a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactLog {
    permits: NonZeroU64,
    period_ns: NonZeroU64,
    guard_ns: u64,
    resolution_ns: NonZeroU64,
}

impl CompactLog {
    /// At most `permits` in any window of `period_ns`, with no guard, on a grid of a thousandth of the
    /// period.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPermits`], [`LimitError::ZeroPeriod`], or
    /// [`LimitError::TooManyPermits`] above [`MAX_PERMITS`].
    pub fn new(permits: u64, period_ns: u64) -> Result<Self, LimitError> {
        let permits = NonZeroU64::new(permits).ok_or(LimitError::ZeroPermits)?;
        let period_ns = NonZeroU64::new(period_ns).ok_or(LimitError::ZeroPeriod)?;
        if permits.get() > MAX_PERMITS {
            return Err(LimitError::TooManyPermits { most: MAX_PERMITS });
        }
        let log = Self { permits, period_ns, guard_ns: 0, resolution_ns: NonZeroU64::MIN };
        // A period of fewer nanoseconds has no finer grid than these.
        Ok(log.with_parts(DEFAULT_PARTS).unwrap_or(log))
    }

    /// The same limit for effects that follow their grants by at most `guard_ns` more than the
    /// quickest of them: a network's jitter, say.
    ///
    /// # Errors
    ///
    /// [`LimitError::PeriodTooLong`] if period and guard together pass 584 years.
    pub fn with_guard(self, guard_ns: u64) -> Result<Self, LimitError> {
        self.period_ns.checked_add(guard_ns).ok_or(LimitError::PeriodTooLong)?;
        Ok(Self { guard_ns, ..self })
    }

    /// The same limit on a grid of `resolution_ns`.
    ///
    /// # Errors
    ///
    /// [`LimitError::Resolution`] if it is zero or longer than the period.
    pub fn with_resolution(self, resolution_ns: u64) -> Result<Self, LimitError> {
        match NonZeroU64::new(resolution_ns) {
            Some(resolution_ns) if resolution_ns <= self.period_ns => {
                Ok(Self { resolution_ns, ..self })
            }
            _ => Err(LimitError::Resolution),
        }
    }

    /// The same limit on a grid of one of so many parts of the period, rounded down to a nanosecond: of
    /// the rate, at most that part is lost.
    ///
    /// # Errors
    ///
    /// [`LimitError::Resolution`] if there are none, or more than the period has nanoseconds.
    pub fn with_parts(self, parts: u64) -> Result<Self, LimitError> {
        let resolution_ns = self.period_ns.get().checked_div(parts);
        self.with_resolution(resolution_ns.ok_or(LimitError::Resolution)?)
    }

    /// The same limit with every nanosecond told apart: no loss, and some three bytes for each permit
    /// of a thousand a second.
    #[must_use]
    pub const fn exact(self) -> Self {
        Self { resolution_ns: NonZeroU64::MIN, ..self }
    }

    /// The most permits in any window.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.permits.get()
    }

    /// By how much later than the quickest effects may come.
    #[must_use]
    pub const fn guard_ns(&self) -> u64 {
        self.guard_ns
    }

    /// How long a grant stays in the log: the window and its guard.
    #[must_use]
    pub const fn held_for_ns(&self) -> u64 {
        self.period_ns.get().saturating_add(self.guard_ns)
    }

    /// The distance of the grid's points.
    #[must_use]
    pub const fn resolution_ns(&self) -> u64 {
        self.resolution_ns.get()
    }

    /// Gives the memory back of what is over at `now_ns`, as the next grant would. No decision changes.
    pub fn trim(&self, state: &mut State, now_ns: u64) {
        self.forget_before(state, now_ns);
    }

    /// The most that the log can have to hold.
    const fn caps(&self) -> Caps {
        let (permits, window_ns) = (self.permits.get(), self.held_for_ns());
        Caps { permits, window_ns, cell_ns: self.resolution_ns }
    }

    /// The grid point at which a grant at `start_ns` counts as made.
    const fn tick_of(&self, start_ns: u64) -> u64 {
        start_ns.div_ceil(self.resolution_ns.get())
    }

    /// The instant of a grid point. The one beyond the end of the clock is the end.
    const fn instant_ns(&self, tick: u64) -> u64 {
        tick.saturating_mul(self.resolution_ns.get())
    }

    /// When the permits of a grid point leave the log.
    fn release_ns(&self, tick: u64) -> u128 {
        u128::from(self.instant_ns(tick)).saturating_add(self.held_for_ns().into())
    }

    /// The newest grid point whose permits have left the log at `at_ns`; `None` if those of the oldest
    /// have not.
    fn gone_by(&self, state: &State, at_ns: u64) -> Option<u64> {
        // No division as a rule: a grant has just forgotten what was over.
        if self.release_ns(state.oldest()) > at_ns.into() {
            return None;
        }
        at_ns.checked_sub(self.held_for_ns())?.checked_div(self.resolution_ns.get())
    }

    /// The one grid point whose permits are in the log at `at_ns`, and how many; `None` if there are several.
    /// Of an empty log, any point with none.
    pub(crate) fn only_cell(&self, state: &State, at_ns: u64) -> Option<(u64, u64)> {
        let is_in = |cell: &Entry| self.release_ns(cell.tick) > at_ns.into();
        let mut cells = state.cells().filter(is_in);
        let only = cells.next().map_or((0, 0), |cell| (cell.tick, cell.permits));
        cells.next().is_none().then_some(only)
    }

    /// A log with the permits of one grid point.
    pub(crate) fn with_cell(&self, tick: u64, permits: u64) -> State {
        State::of(core::iter::once(Entry { tick, permits }), self.caps())
    }

    fn forget_before(&self, state: &mut State, at_ns: u64) {
        if let Some(gone) = self.gone_by(state, at_ns) {
            state.forget(gone, self.caps());
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
        let Some(room) = self.permits.get().checked_sub(permits.get()) else {
            return Err(Refusal::exceeds(permits, self.permits.get()));
        };
        let Some(last_to_leave) = state.last_to_leave(room) else {
            return Ok(Opening::at(from_ns));
        };
        let start_ns = self.release_ns(last_to_leave).max(from_ns.into());
        on_clock(start_ns, from_ns).map(Opening::at)
    }

    fn take(&self, state: &mut State, grant: Taken) {
        self.forget_before(state, grant.start_ns);
        // Only a coarser grid's permits can count as granted later than this one.
        let tick = self.tick_of(grant.start_ns).max(state.newest());
        state.push(Entry { tick, permits: grant.permits.get() }, self.caps());
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        let gone = self.gone_by(state, now_ns);
        let held = gone.map_or_else(|| state.permits(), |gone| state.permits_after(gone));
        self.permits.get().saturating_sub(held)
    }

    /// The permits leave the log, if they are still in it.
    fn refund(&self, state: &mut State, refund: Refund) -> u64 {
        // An older grid may have counted them as granted at another instant.
        if refund.returned.is_none() && self.resolution_ns.get() > 1 {
            return 0;
        }
        let tick = self.tick_of(refund.start_ns);
        if self.release_ns(tick) <= refund.now_ns.into() {
            return 0;
        }
        state.take_back(tick, refund.permits, self.caps())
    }

    /// The newest permits leave the log.
    fn credit(&self, state: &mut State, now_ns: u64, permits: u64) -> u64 {
        self.forget_before(state, now_ns);
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
        old.forget_before(state, now_ns);
        if self.resolution_ns != old.resolution_ns {
            let regrid =
                |entry: Entry| Entry { tick: self.tick_of(old.instant_ns(entry.tick)), ..entry };
            *state = State::of(state.entries().map(regrid), self.caps());
        }
    }
}
