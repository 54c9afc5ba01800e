//! The sliding log: at most N permits in *any* half-open window of length M. It is the strictest
//! promise of all, kept by remembering when each permit was granted.
//!
//! A request starts at the first instant by which enough of the N most recent permits are at
//! least M old. A request below the limit never waits.
//!
//! ```text
//!   N = 3           |<---------- M ---------->|
//!   --1----2-----3--+-------------------------+1--2-----3----> time
//!     |             request: all three in use  ^ granted: the first is M old
//!     |<---------- M ---------->|
//! ```
//!
//! # Contract
//!
//! * **Units.** Instants and lengths are nanoseconds.
//! * **Ceiling.** At most N permits in any window `[t, t + M)`, at every phase (docs/theory.md,
//!   section 2.2, the slot argument). With a guard G the same holds for effects that come up to G
//!   apart (docs/theory.md, section 2.5 a): a grant stays in the log for M + G.
//! * **Starts.** The ceiling holds for real starts (the default), and for promised instants where
//!   a schedule promises instants.
//! * **Best possible.** No schedule that keeps the order of requests grants any of them sooner
//!   (docs/theory.md, section 2.3).
//! * **Retry.** Exact; equality passes, since windows are half-open.
//! * **Resolution.** With a grid of Q ns a grant counts as made at the next point of the grid,
//!   never sooner. The ceiling holds, and under lasting demand the rate is at least N / (M + Q), or
//!   N / M if Q divides M (docs/theory.md, section 6.2).
//! * **Refund.** Exact: the permits leave the log. On a grid, not across a change of the numbers.
//! * **Charge.** Permits like any others, past N too. A debt ends as they leave the log; one to be
//!   carried is not in the log.
//! * **Change.** Grants keep their instants; on another grid they count as made at its next point,
//!   and a grant after the change no sooner than they do. What had left the log under the old
//!   numbers does not return.
//! * **Clock.** Going backwards earns nothing twice; at the end of 64 bits nothing wraps.
//! * **Memory.** 24 bytes, and no more while all permits are at one point of the grid. Beyond that
//!   some 16 bytes for each point with permits, or a byte where points are close together: with
//!   10,000 permits a second 1.1 KB on a grid of a thousandth, 11 KB on one of a 65,535th, and
//!   194 KB to the nanosecond. Up to four times what is needed while the log empties.
//! * **Cost.** O(1) amortised; for several permits O(number of points that must leave), and for a
//!   refund O(number of points after it). Now and then a grant writes the whole log anew: when it
//!   has outgrown its memory, or fallen to a quarter of it.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate_core::ledger::Ledger;
//! use rategate_core::sliding_log::SlidingLog;
//! use rategate_core::verdict::Verdict;
//!
//! let mut limit = Ledger::new(SlidingLog::new(2, Duration::from_secs(1)), 0);
//! let starts: Vec<u64> = [800, 900, 1_100, 1_200]
//!     .map(|at_ms| match limit.reserve(at_ms * 1_000_000, 1, None) {
//!         Ok(Verdict::Granted(grant)) => grant.start_ns / 1_000_000,
//!         other => unreachable!("{other:?}"),
//!     })
//!     .to_vec();
//! assert_eq!(starts, [800, 900, 1_800, 1_900]);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

mod state;

#[cfg(feature = "serde")]
use alloc::vec::Vec;
#[cfg(feature = "serde")]
use core::mem::replace;
use core::num::NonZeroU64;
use core::time::Duration;

use self::state::Cell;
pub use self::state::State;
use crate::debt::Charge;
use crate::error::{LimitError, or_panic};
use crate::policy::{Correction, Policy, Taken};
#[cfg(feature = "serde")]
use crate::portable::{Portable, SavedError, Shift};
use crate::span::checked;
use crate::span::exact_ns;
use crate::verdict::{Opening, Refusal, on_clock};

/// The maximum number of permits that a log counts.
pub const MAX_PERMITS: u64 = 4_294_967_295;

/// The maximum number of permits that charges bring into a log.
pub const MAX_CHARGED: u64 = 1 << 62;

/// The number of parts into which a [compact](SlidingLog::compact) log's grid cuts the period.
pub const COMPACT_PARTS: u64 = 1_000;

/// A limit of at most `permits` in any window of `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SlidingLog {
    permits: NonZeroU64,
    period_ns: NonZeroU64,
    guard_ns: u64,
    resolution_ns: NonZeroU64,
}

impl SlidingLog {
    /// Creates a limit of at most `permits` in any window of `period`, without a guard and
    /// exact to the nanosecond.
    ///
    /// # Panics
    ///
    /// Panics where [`try_new`](Self::try_new) fails.
    #[must_use]
    #[track_caller]
    pub const fn new(permits: u64, period: Duration) -> Self {
        or_panic(Self::try_new(permits, period))
    }

    /// Creates a limit of at most `permits` in any window of `period`, without a guard and
    /// exact to the nanosecond.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPermits`], [`LimitError::ZeroPeriod`], [`LimitError::PeriodTooLong`], or
    /// [`LimitError::TooManyPermits`] above [`MAX_PERMITS`].
    pub const fn try_new(permits: u64, period: Duration) -> Result<Self, LimitError> {
        match checked(permits, period, MAX_PERMITS) {
            Ok((permits, period_ns)) => {
                Ok(Self { permits, period_ns, guard_ns: 0, resolution_ns: NonZeroU64::MIN })
            }
            Err(error) => Err(error),
        }
    }

    /// Adds a guard for effects that follow their grants by at most `guard` more than the
    /// quickest of them, such as a network's jitter.
    ///
    /// # Errors
    ///
    /// [`LimitError::PeriodTooLong`] if period and guard together exceed 584 years.
    pub fn with_guard(self, guard: Duration) -> Result<Self, LimitError> {
        let guard_ns = exact_ns(guard).ok_or(LimitError::PeriodTooLong)?;
        Self { guard_ns, ..self }.checked()
    }

    /// Puts the limit on a grid of `resolution`: less memory for a little of the rate.
    ///
    /// # Errors
    ///
    /// [`LimitError::Resolution`] if it is zero or longer than the period.
    pub fn with_resolution(self, resolution: Duration) -> Result<Self, LimitError> {
        let resolution_ns = exact_ns(resolution).and_then(NonZeroU64::new);
        let resolution_ns = resolution_ns.ok_or(LimitError::Resolution)?;
        Self { resolution_ns, ..self }.checked()
    }

    fn checked(self) -> Result<Self, LimitError> {
        if self.permits.get() > MAX_PERMITS {
            return Err(LimitError::TooManyPermits { max: MAX_PERMITS });
        }
        self.period_ns.checked_add(self.guard_ns).ok_or(LimitError::PeriodTooLong)?;
        if self.resolution_ns > self.period_ns {
            return Err(LimitError::Resolution);
        }
        Ok(self)
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

    /// Puts the limit on a grid of a thousandth of the period, for tables of many keys: little
    /// memory, for at most a thousandth of the rate.
    #[must_use]
    pub const fn compact(self) -> Self {
        match NonZeroU64::new(self.period_ns.get().wrapping_div(COMPACT_PARTS)) {
            Some(resolution_ns) => Self { resolution_ns, ..self },
            // A period of fewer nanoseconds has no finer grid than these.
            None => Self { resolution_ns: NonZeroU64::MIN, ..self },
        }
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

    /// Returns a log of single permits that count as granted at these instants, in order.
    pub(crate) fn log_of(&self, instants_ns: &[u64]) -> State {
        let cell = |&instant_ns| Cell { tick: self.tick_of(instant_ns), permits: 1 };
        State::of(instants_ns.iter().map(cell))
    }

    /// Returns when a grant at `start_ns` counts as made.
    pub(crate) const fn counted_ns(&self, start_ns: u64) -> u64 {
        self.instant_ns(self.tick_of(start_ns))
    }

    /// Returns when the newest permit counts as granted.
    pub(crate) fn newest_ns(&self, state: &State) -> u64 {
        self.instant_ns(state.newest())
    }

    /// Returns when each permit still in the log at `at_ns` leaves it, in order.
    pub(crate) fn releases_after(
        &self,
        state: &State,
        at_ns: u64,
    ) -> impl Iterator<Item = u64> + Clone {
        let held = state.cells().filter_map(move |cell| {
            // An instant beyond the clock is never reached.
            let release_ns = u64::try_from(self.release_ns(cell.tick)).unwrap_or(u64::MAX);
            (release_ns > at_ns).then_some((release_ns, cell.permits))
        });
        held.flat_map(|(release_ns, permits)| (0..permits).map(move |_| release_ns))
    }

    /// Returns the only grid point whose permits are in the log at `at_ns`, and their number;
    /// `None` if there are several. For an empty log it returns any point with no permits.
    pub(crate) fn only_cell(&self, state: &State, at_ns: u64) -> Option<(u64, u64)> {
        let mut cells = state.cells().filter(|cell| self.release_ns(cell.tick) > at_ns.into());
        let only = cells.next().map_or((0, 0), |cell| (cell.tick, cell.permits));
        cells.next().is_none().then_some(only)
    }

    /// Returns a log with the permits of one grid point.
    pub(crate) fn with_cell(tick: u64, permits: u64) -> State {
        State::of(core::iter::once(Cell { tick, permits }))
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

    /// Returns the permits still in the log at `at_ns`.
    pub(crate) fn held(&self, state: &State, at_ns: u64) -> u64 {
        let expired = self.expired_by(state, at_ns);
        expired.map_or_else(|| state.permits(), |expired| state.permits_after(expired))
    }

    /// Returns the first instant, not before `from_ns`, at which at most `available` permits are in
    /// the log.
    pub(crate) fn emptied_to(&self, state: &State, from_ns: u64, available: u64) -> u128 {
        let last = state.last_to_leave(available);
        last.map_or(0, |last| self.release_ns(last)).max(from_ns.into())
    }

    /// Adds permits, not before the newest: only permits of a coarser grid, before a change, can
    /// count as granted later than these.
    pub(crate) fn add(&self, state: &mut State, at_ns: u64, permits: u64) {
        let tick = self.tick_of(at_ns).max(state.newest());
        state.push(Cell { tick, permits });
    }

    pub(crate) fn expire_before(&self, state: &mut State, at_ns: u64) {
        if let Some(expired) = self.expired_by(state, at_ns) {
            state.expire(expired);
        }
    }
}

impl Policy for SlidingLog {
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
        self.add(state, grant.start_ns, grant.permits.get());
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        self.permits.get().saturating_sub(self.held(state, now_ns))
    }

    fn correct(&self, state: &mut State, correction: Correction) -> Option<u64> {
        match correction {
            // Exactly, if they are still in it. An earlier grid may have counted them as granted at
            // another instant.
            Correction::Back(refund) => {
                let tick = self.tick_of(refund.start_ns);
                let is_known = refund.returned.is_some() || self.resolution_ns.get() == 1;
                let is_in = is_known && self.release_ns(tick) > refund.now_ns.into();
                Some(if is_in { state.take_back(tick, refund.permits) } else { 0 })
            }
            // The newest permits.
            Correction::Credit { now_ns, permits } => {
                self.expire_before(state, now_ns);
                let mut left = permits;
                while left > 0 && state.permits() > 0 {
                    left = left.saturating_sub(state.take_back(state.newest(), left));
                }
                Some(permits.saturating_sub(left))
            }
            Correction::Charge(Charge { now_ns, permits, debt }) if !debt.is_carried() => {
                self.expire_before(state, now_ns);
                let booked = permits.min(MAX_CHARGED.saturating_sub(state.permits()));
                if booked > 0 {
                    // A restored log may contain promises of later starts.
                    state.push(Cell { tick: self.tick_of(now_ns), permits: booked });
                }
                Some(booked)
            }
            _ => None,
        }
    }

    fn debt(&self, state: &State, now_ns: u64) -> u64 {
        self.held(state, now_ns).saturating_sub(self.permits.get())
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
                |cell: Cell| Cell { tick: self.tick_of(old.instant_ns(cell.tick)), ..cell };
            *state = State::of(state.cells().map(regrid));
        }
    }
}

#[cfg(feature = "serde")]
crate::portable::read_checked!(SlidingLog {
    permits: NonZeroU64,
    period_ns: NonZeroU64,
    guard_ns: u64,
    resolution_ns: NonZeroU64
});

#[cfg(feature = "serde")]
impl Portable for SlidingLog {
    /// The points of the grid with permits, each as its distance from the one before, and how many.
    type Saved = Vec<(u64, u64)>;

    fn save(&self, state: &State, now_ns: u64) -> Self::Saved {
        let held = state.cells().filter(|cell| self.release_ns(cell.tick) > now_ns.into());
        let gaps = held.scan(0, |last, Cell { tick, permits }| {
            Some((tick.saturating_sub(replace(last, tick)), permits))
        });
        gaps.collect()
    }

    /// Restores the log. Grants of another clock count as made at the next point of its grid.
    fn load(&self, saved: Self::Saved, since: Shift) -> Result<State, SavedError> {
        let permits = saved.iter().fold(0_u64, |sum, (_, permits)| sum.saturating_add(*permits));
        let last = saved.iter().try_fold(0_u64, |tick, (gap, _)| tick.checked_add(*gap));
        if last.is_none() || permits > MAX_CHARGED.saturating_add(MAX_PERMITS) {
            return Err(SavedError::Malformed);
        }
        let cells = saved.iter().scan(0_u64, |tick, &(gap, permits)| {
            *tick = tick.saturating_add(gap);
            Some(Cell { tick: *tick, permits })
        });
        let held = cells.filter(|cell| self.release_ns(cell.tick) > since.then_ns());
        Ok(State::of(held.map(|Cell { tick, permits }| {
            let tick = self.tick_of(since.clock_ns(self.instant_ns(tick)));
            Cell { tick, permits }
        })))
    }
}
