//! The fixed window: at most N permits in each window of a grid. Most published quotas state this
//! limit, and it is the weakest of all: across a border up to 2N pass in an instant.
//!
//! ```text
//!   N = 3   |        ooo|ooo        |          six within a moment, and every window holds
//!           +-----------+-----------+---> time
//!          k M      (k + 1) M
//! ```
//!
//! The windows have one length, or they are the days, weeks or months of a
//! [calendar](crate::calendar).
//!
//! # Contract
//!
//! * **Units.** Nanoseconds. Windows of one length start at the clock's zero, or at the first
//!   grant; those of a calendar count from its grid's origin, by convention the year 1970.
//! * **Ceiling.** At most N permits in each window; in any span of time that touches k windows at
//!   most k N.
//! * **Starts.** The ceiling holds for real starts (the default), and for promised instants where
//!   a schedule promises instants.
//! * **Retry.** Exact: the next border, or sooner if the request fits now. In a carried debt it may
//!   be a later border.
//! * **Clock.** Going backwards stays in the newest window; at the end of 64 bits nothing wraps.
//! * **Refund.** Exact within the grant's window, under the same numbers. Later nothing comes back.
//! * **Charge.** Counts in the window, past N too. A debt ends with its window, or, if it is
//!   carried, N of it at each border.
//! * **Change.** The count carries over into the window around the change, also from windows of one
//!   length to those of a calendar. Where only N changes, or the rules of a calendar's zone, a
//!   window in use ends where it would have. A grid that starts at the first grant starts anew
//!   where its length changes: at the change if anything is in use, else at the next grant.
//! * **Saved.** The state has its window. One that ends at no border of the grid by then lasts
//!   until the next one.
//! * **Cost.** 32 bytes, and two comparisons within a window. A new window takes a division, or asks
//!   the calendar.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate_core::fixed_window::{Anchor, FixedWindow};
//! use rategate_core::ledger::Ledger;
//! use rategate_core::verdict::Verdict;
//!
//! let mut limit = Ledger::new(FixedWindow::new(1, Duration::from_nanos(1_000), Anchor::Epoch), 0);
//! assert!(matches!(limit.try_acquire(999, 1)?, Verdict::Granted(_)));
//! assert!(matches!(limit.try_acquire(1_000, 1)?, Verdict::Granted(_)), "a border lies between");
//! assert!(matches!(limit.try_acquire(1_001, 1)?, Verdict::Denied(_)));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::num::NonZeroU64;
use core::time::Duration;

use crate::calendar::{Calendar, NEVER, Window};
use crate::debt::{Charge, Debt};
use crate::error::{LimitError, or_panic};
use crate::policy::{Correction, Policy, Taken};
#[cfg(feature = "serde")]
use crate::portable::{Portable, SavedError, Shift};
use crate::span::checked;
use crate::verdict::{Opening, Refusal, on_clock};
use crate::window_debt::{self, Count};

/// A limit of at most `permits` in each window of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct FixedWindow {
    permits: NonZeroU64,
    windows: Windows,
}

/// The windows of a grid, which follow each other without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub enum Windows {
    /// Windows of one length.
    Even {
        /// The length, in nanoseconds.
        period_ns: NonZeroU64,
        /// The start of the grid.
        anchor: Anchor,
    },
    /// The windows of a calendar, by a clock that shows the time since 1970.
    Of(Calendar),
}

/// The start of the grid of windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub enum Anchor {
    /// The clock's zero.
    #[default]
    Epoch,
    /// The first grant.
    FirstCall,
}

/// The count of the newest window. A fresh limit has had none: its state ends at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct State {
    start_ns: u64,
    /// The first instant behind the window, or [`NEVER`].
    end_ns: u64,
    used: u64,
    /// `true` if later windows pay what exceeds the limit.
    is_carried: bool,
}

/// The maximum number of permits that charges bring into a window.
pub const MAX_CHARGED: u64 = (1 << 63) - 1;

impl FixedWindow {
    /// Creates a limit of at most `permits` in each window of `period` from `anchor` on.
    ///
    /// # Panics
    ///
    /// Panics where [`try_new`](Self::try_new) fails.
    #[must_use]
    #[track_caller]
    pub const fn new(permits: u64, period: Duration, anchor: Anchor) -> Self {
        or_panic(Self::try_new(permits, period, anchor))
    }

    /// Creates a limit of at most `permits` in each window of `period` from `anchor` on.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPermits`], [`LimitError::ZeroPeriod`] or [`LimitError::PeriodTooLong`].
    pub const fn try_new(
        permits: u64,
        period: Duration,
        anchor: Anchor,
    ) -> Result<Self, LimitError> {
        match checked(permits, period, u64::MAX) {
            Ok((permits, period_ns)) => {
                Ok(Self { permits, windows: Windows::Even { period_ns, anchor } })
            }
            Err(error) => Err(error),
        }
    }

    /// Creates a limit of at most `permits` in each window of a calendar.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPermits`].
    pub const fn of_calendar(permits: u64, calendar: Calendar) -> Result<Self, LimitError> {
        match NonZeroU64::new(permits) {
            Some(permits) => Ok(Self { permits, windows: Windows::Of(calendar) }),
            None => Err(LimitError::ZeroPermits),
        }
    }

    /// Returns a limit of another number of permits in each of the same windows.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPermits`].
    pub const fn with_permits(self, permits: u64) -> Result<Self, LimitError> {
        match NonZeroU64::new(permits) {
            Some(permits) => Ok(Self { permits, ..self }),
            None => Err(LimitError::ZeroPermits),
        }
    }

    /// Returns the maximum number of permits in a window.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.permits.get()
    }

    /// Returns the windows.
    #[must_use]
    pub const fn windows(&self) -> Windows {
        self.windows
    }

    /// Returns the calendar that has the windows, if one has.
    #[must_use]
    pub const fn calendar(&self) -> Option<Calendar> {
        match self.windows {
            Windows::Of(calendar) => Some(calendar),
            Windows::Even { .. } => None,
        }
    }

    /// Returns `true` if both have the same numbers. The rules of a calendar's zone may differ.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let are_same = match (self.windows, other.windows) {
            (Windows::Of(own), Windows::Of(other)) => own.digest() == other.digest(),
            (own, other) => own == other,
        };
        are_same && self.permits == other.permits
    }

    /// Returns the length of all windows in nanoseconds; those of a calendar have no common one.
    #[must_use]
    pub const fn period_ns(&self) -> Option<NonZeroU64> {
        match self.windows {
            Windows::Even { period_ns, .. } => Some(period_ns),
            Windows::Of(_) => None,
        }
    }

    /// Returns `true` if the windows start at the first grant, which no clock tells.
    #[must_use]
    pub const fn starts_at_grant(&self) -> bool {
        matches!(self.windows, Windows::Even { anchor: Anchor::FirstCall, .. })
    }

    /// Returns the time from `at_ns` to the `nth` border after it, in nanoseconds; `u64::MAX` if that
    /// lies beyond what a calendar knows. The first is the end of the window around `at_ns`. A grid
    /// that starts at a first grant is taken to start then.
    #[must_use]
    pub fn border_in_ns(&self, at_ns: u64, nth: u64) -> u64 {
        let Window { start_ns, end_ns, .. } = self.window(&State::default(), at_ns);
        let border_ns = self.border_ns(start_ns, end_ns, nth.saturating_sub(1));
        let left_ns = border_ns.map(|border_ns| border_ns.saturating_sub(at_ns.into()));
        left_ns.and_then(|left_ns| left_ns.try_into().ok()).unwrap_or(u64::MAX)
    }

    /// Returns the window around `at_ns`, on the grid of a state.
    fn window(&self, state: &State, at_ns: u64) -> Window {
        let (period_ns, border_ns) = match self.windows {
            Windows::Of(calendar) => return calendar.window(at_ns),
            Windows::Even { period_ns, anchor: Anchor::Epoch } => (period_ns, 0),
            Windows::Even { period_ns, .. } if state.is_fresh() => (period_ns, at_ns),
            Windows::Even { period_ns, .. } => (period_ns, state.end_ns),
        };
        let since_ns = at_ns.saturating_sub(border_ns);
        let start_ns = at_ns.saturating_sub(since_ns % period_ns);
        let end_ns = start_ns.saturating_add(period_ns.get());
        Window { start_ns, end_ns, number: since_ns / period_ns }
    }

    /// Returns the permits used in the window around `at_ns`, which is the newest or a later one.
    fn used(&self, state: &State, at_ns: u64) -> u64 {
        if !state.is_over(at_ns) {
            return state.used;
        }
        if state.used == 0 || !state.is_carried {
            return 0;
        }
        let [next, window] = [state.end_ns, at_ns].map(|at_ns| self.window(state, at_ns).number);
        let borders = window.saturating_sub(next).saturating_add(1);
        window_debt::after(self.permits, state.used, borders)
    }

    /// Returns the border at which at most `available` permits are used, or `None` if it lies
    /// beyond what a calendar knows. More than those are used in the newest window.
    fn opens_ns(&self, state: &State, available: u64) -> Option<u128> {
        let State { start_ns, end_ns, used, is_carried } = *state;
        let borders = window_debt::borders_until(self.permits, used, is_carried, available);
        self.border_ns(start_ns, end_ns, borders.saturating_sub(1))
    }

    /// Returns the border that comes `later` borders after the end of a window, or `None` if it lies
    /// beyond what a calendar knows.
    fn border_ns(&self, start_ns: u64, end_ns: u64, later: u64) -> Option<u128> {
        match self.windows {
            Windows::Of(_) if end_ns == NEVER => None,
            Windows::Of(calendar) => calendar.later_border(end_ns, later).map(u128::from),
            Windows::Even { period_ns, .. } => {
                let period_ns = u128::from(period_ns.get());
                let end_ns = match end_ns {
                    // The clock's last instant is in the window before it.
                    NEVER => u128::from(start_ns).saturating_add(period_ns).max(1 << u64::BITS),
                    end_ns => end_ns.into(),
                };
                Some(end_ns.saturating_add(period_ns.saturating_mul(later.into())))
            }
        }
    }

    /// Returns the state in the window around `at_ns`.
    pub(crate) fn moved_to(&self, state: &State, at_ns: u64) -> State {
        let mut state = *state;
        if self.used(&state, at_ns) > 0 {
            self.count(&mut state, at_ns, 0, Debt::FORGOTTEN);
        } else {
            self.set_used(&mut state, 0, false);
        }
        state
    }

    /// Returns the window around `at_ns` and its count, unless later windows pay some of it, or the
    /// grid has not begun.
    pub(crate) fn count_at(&self, state: &State, at_ns: u64) -> Option<Count> {
        if state.is_fresh() && self.starts_at_grant() {
            return None;
        }
        let mut state = self.moved_to(state, at_ns);
        if state.is_over(at_ns) {
            self.begin(&mut state, at_ns);
        }
        let State { start_ns, end_ns, used, is_carried } = state;
        (!is_carried).then_some(Count { start_ns, end_ns, used })
    }

    /// Counts permits in the window around `at_ns`, or in the newest if that is later.
    fn count(&self, state: &mut State, at_ns: u64, permits: u64, debt: Debt) {
        let used = self.used(state, at_ns);
        // A debt that has been paid is over, and the next one ends in its own way.
        let is_owed = state.is_carried && used > self.permits();
        if state.is_over(at_ns) {
            self.begin(state, at_ns);
        }
        self.set_used(state, used.saturating_add(permits), debt.is_carried() || is_owed);
    }

    /// Begins the window around `at_ns`, which is not before the end of the newest.
    fn begin(&self, state: &mut State, at_ns: u64) {
        let Window { start_ns, end_ns, .. } = self.window(state, at_ns);
        (state.start_ns, state.end_ns) = (start_ns.max(state.end_ns), end_ns);
    }

    /// Returns how many permits a window may count with such debts. A bound on carried ones counts
    /// by the length of this window: those of a calendar have others.
    fn max_used(&self, now_ns: u64, debt: Debt) -> u64 {
        let length_ns = match self.windows {
            Windows::Even { period_ns, .. } => period_ns.get(),
            Windows::Of(calendar) if debt.is_carried() => {
                calendar.window(now_ns).length_ns().max(1)
            }
            Windows::Of(_) => 1,
        };
        window_debt::max_used(self.permits, debt, length_ns, MAX_CHARGED)
    }

    const fn set_used(&self, state: &mut State, used: u64, is_carried: bool) {
        state.used = used;
        state.is_carried = is_carried && used > self.permits();
    }

    /// Lets a window that ends at no border of the grid last until the next one.
    fn align(&self, state: &mut State) {
        let Window { start_ns, end_ns, .. } = self.window(state, state.end_ns.saturating_sub(1));
        (state.start_ns, state.end_ns) = (start_ns, end_ns);
    }
}

impl State {
    pub(crate) const fn of_count(Count { start_ns, end_ns, used }: Count) -> Self {
        Self { start_ns, end_ns, used, is_carried: false }
    }

    /// Returns the newest window and its count, unless later windows pay some of it.
    pub(crate) const fn to_count(self) -> Option<Count> {
        let Self { start_ns, end_ns, used, is_carried } = self;
        if is_carried { None } else { Some(Count { start_ns, end_ns, used }) }
    }

    /// Returns the begin of the newest window.
    pub(crate) const fn start_ns(&self) -> u64 {
        self.start_ns
    }

    const fn is_fresh(&self) -> bool {
        self.end_ns == 0
    }

    /// Returns `true` if the window has ended by then.
    const fn is_over(&self, at_ns: u64) -> bool {
        self.end_ns <= at_ns && self.end_ns != NEVER
    }

    const fn contains(&self, at_ns: u64) -> bool {
        self.start_ns <= at_ns && !self.is_over(at_ns)
    }
}

impl Policy for FixedWindow {
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
        let Some(available) = self.permits().checked_sub(permits.get()) else {
            return Err(Refusal::exceeds(permits, self.permits()));
        };
        if self.used(state, from_ns) <= available {
            return Ok(Opening::at(from_ns));
        }
        match self.opens_ns(state, available) {
            Some(opens_ns) => on_clock(opens_ns, from_ns).map(Opening::at),
            None => Err(Refusal::BeyondClock { wait_ns: NEVER }),
        }
    }

    fn take(&self, state: &mut State, grant: Taken) {
        self.count(state, grant.start_ns, grant.permits.get(), Debt::FORGOTTEN);
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        self.permits().saturating_sub(self.used(state, now_ns))
    }

    fn correct(&self, state: &mut State, correction: Correction) -> Option<u64> {
        let moved = match correction {
            // Only while the grant's window lasts. A new grid may have counted them in another.
            Correction::Back(refund) => {
                let is_current = state.contains(refund.start_ns) && state.contains(refund.now_ns);
                let is_known = refund.returned.is_some() && is_current;
                let back = if is_known { refund.permits.min(state.used) } else { 0 };
                self.set_used(state, state.used.saturating_sub(back), state.is_carried);
                back
            }
            Correction::Credit { now_ns, permits } => {
                let back = permits.min(self.used(state, now_ns));
                if back > 0 {
                    self.count(state, now_ns, 0, Debt::FORGOTTEN);
                    self.set_used(state, state.used.saturating_sub(back), state.is_carried);
                }
                back
            }
            Correction::Charge(Charge { now_ns, permits, debt }) => {
                let max_used = self.max_used(now_ns, debt);
                let booked = permits.min(max_used.saturating_sub(self.used(state, now_ns)));
                if booked > 0 {
                    self.count(state, now_ns, booked, debt);
                }
                booked
            }
            Correction::End(_) | Correction::Refill { .. } => return None,
        };
        Some(moved)
    }

    fn debt(&self, state: &State, now_ns: u64) -> u64 {
        self.used(state, now_ns).saturating_sub(self.permits())
    }

    fn debt_ends_ns(&self, state: &State, from_ns: u64) -> Option<u64> {
        if self.debt(state, from_ns) == 0 {
            return Some(from_ns);
        }
        self.opens_ns(state, self.permits())?.try_into().ok()
    }

    /// Returns the first border at which the count is zero. A grid that starts at a first grant
    /// never recovers, since its start must be kept.
    fn fresh_at_ns(&self, state: &State) -> Option<u64> {
        match state.used {
            _ if self.starts_at_grant() && !state.is_fresh() => None,
            0 => Some(0),
            _ => self.opens_ns(state, 0)?.try_into().ok(),
        }
    }

    fn rebase(&self, state: &mut State, old: &Self, now_ns: u64) {
        let (old_windows, goes_on, is_found) = match (self.windows, old.windows) {
            (Windows::Of(new), Windows::Of(old)) => {
                let is_found = new.is_known() && !old.is_known();
                (Windows::Of(old.known_as(&new)), new.digest() == old.digest(), is_found)
            }
            (new, old) => (old, new == old, false),
        };
        let used = Self { windows: old_windows, ..*old }.used(state, now_ns);
        let is_carried = state.is_carried && used > old.permits();
        // A clock that went back stays in the newest window.
        let now_ns = now_ns.max(state.start_ns);
        // Without its borders a calendar had one window for all time.
        let is_lost = is_found && state.end_ns == NEVER;
        if !goes_on || is_lost || (used == 0 && !self.starts_at_grant()) {
            *state = State::default();
        }
        if used > 0 && state.is_over(now_ns) {
            self.begin(state, now_ns);
        } else if used > 0 && is_found {
            self.align(state);
        }
        self.set_used(state, used, is_carried);
    }
}

#[cfg(feature = "serde")]
impl Portable for FixedWindow {
    type Saved = State;

    fn save(&self, state: &State, now_ns: u64) -> State {
        self.moved_to(state, now_ns)
    }

    /// Restores the window. A grid that starts at a first grant moves with its windows, and others
    /// do not.
    fn load(&self, mut saved: State, since: Shift) -> Result<State, SavedError> {
        if saved.used > MAX_CHARGED.max(self.permits()) {
            return Err(SavedError::Malformed);
        }
        if saved.is_fresh() {
            return Ok(State::default());
        }
        let mut end_ns = u128::from(saved.end_ns);
        if let Windows::Even { period_ns, .. } = self.windows
            && let Some(passed_ns) = since.zero_ns().checked_sub(end_ns)
        {
            // Each border up to the clock's zero has paid for a window.
            let borders =
                passed_ns.checked_div(period_ns.get().into()).unwrap_or(0).saturating_add(1);
            end_ns = end_ns.saturating_add(borders.saturating_mul(period_ns.get().into()));
            saved.used = match u64::try_from(borders) {
                Ok(borders) if saved.is_carried => {
                    window_debt::after(self.permits, saved.used, borders)
                }
                _ => 0,
            };
        }
        let mut state = State {
            start_ns: since.clock_ns(saved.start_ns),
            end_ns: since.clock_ns(u64::try_from(end_ns).unwrap_or(NEVER)).max(1),
            ..saved
        };
        if !state.is_carried && state.is_over(since.now_ns()) {
            state.used = 0;
        }
        if self.starts_at_grant() {
            return Ok(state);
        }
        if state.used == 0 {
            return Ok(State::default());
        }
        if self.calendar().is_none_or(|calendar| calendar.is_known()) {
            self.align(&mut state);
        }
        Ok(state)
    }
}
