//! The fixed window: at most N permits in each window of a grid. Most published quotas state this
//! limit, and it is the weakest of all: across a border up to 2N pass in an instant.
//!
//! ```text
//!   N = 3   |        ooo|ooo        |          six within a moment, and every window holds
//!           +-----------+-----------+---> time
//!          k M      (k + 1) M
//! ```
//!
//! # Contract
//!
//! * **Units.** Nanoseconds. The grid starts at the clock's zero, or at the first grant.
//! * **Ceiling.** At most N permits in each window `[k M, (k + 1) M)`; in a window of length W at
//!   any phase at most `N (ceil(W / M) + 1)`.
//! * **Starts.** The ceiling holds for real starts (the default), and for promised instants where
//!   a schedule promises instants.
//! * **Retry.** Exact: the next border, or sooner if the request fits now. In a carried debt it may
//!   be a later border.
//! * **Clock.** Going backwards stays in the newest window; at the end of 64 bits nothing wraps.
//! * **Refund.** Exact within the grant's window, under the same numbers. Later nothing comes back.
//! * **Charge.** Counts in the window, past N too. A debt ends with its window, or, if it is
//!   carried, N of it at each border.
//! * **Change.** The count carries over into the new window.
//! * **Cost.** 40 bytes and one division.
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

mod words;

use core::num::NonZeroU64;
use core::time::Duration;

use crate::debt::{Charge, Charged, Debt};
use crate::error::{LimitError, or_panic};
use crate::policy::{Policy, Taken};
use crate::refund::Refund;
use crate::span::checked;
use crate::verdict::{Opening, Refusal, on_clock};
use crate::window_debt::{self, Count};

/// A limit of at most `permits` in each window of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    permits: NonZeroU64,
    period_ns: NonZeroU64,
    anchor: Anchor,
}

/// The start of the grid of windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anchor {
    /// The clock's zero.
    #[default]
    Epoch,
    /// The first grant.
    FirstCall,
}

/// The count of the newest window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The start of the grid, once that is known.
    anchor_ns: Option<u64>,
    window_ns: u64,
    used: u64,
    /// `true` if later windows pay what exceeds the limit.
    is_carried: bool,
}

/// The maximum number of permits that charges bring into a window.
pub const MAX_CHARGED: u64 = CARRIED - 1;

/// The bit that marks the count of a carried debt where a state is kept in words.
const CARRIED: u64 = 1 << 63;

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
            Ok((permits, period_ns)) => Ok(Self { permits, period_ns, anchor }),
            Err(error) => Err(error),
        }
    }

    /// Returns the maximum number of permits in a window.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.permits.get()
    }

    /// Returns the length of a window, in nanoseconds.
    #[must_use]
    pub const fn period_ns(&self) -> u64 {
        self.period_ns.get()
    }

    /// Returns the start of the grid.
    #[must_use]
    pub const fn anchor(&self) -> Anchor {
        self.anchor
    }

    /// Returns the start of the window around `at_ns`.
    fn window_of(&self, anchor_ns: u64, at_ns: u64) -> u64 {
        let into_ns = at_ns.saturating_sub(anchor_ns).checked_rem(self.period_ns.get());
        at_ns.saturating_sub(into_ns.unwrap_or(0))
    }

    /// Returns the permits used in the window around `at_ns`, which is the newest or a later one.
    fn used(&self, state: &State, at_ns: u64) -> u64 {
        let Some(anchor_ns) = state.anchor_ns else { return 0 };
        let window_ns = self.window_of(anchor_ns, at_ns);
        if window_ns <= state.window_ns {
            state.used
        } else if state.is_carried {
            let since_ns = window_ns.saturating_sub(state.window_ns);
            let borders = since_ns.checked_div(self.period_ns.get()).unwrap_or(0);
            window_debt::after(self.permits, state.used, borders)
        } else {
            0
        }
    }

    /// Returns the first border at which at most `available` permits are used.
    fn opens_ns(&self, state: &State, available: u64) -> u128 {
        let (used, is_carried) = (state.used, state.is_carried);
        let borders = window_debt::borders_until(self.permits, used, is_carried, available);
        self.border_ns(state, borders)
    }

    /// Returns the instant `borders` borders after the begin of the newest window.
    fn border_ns(&self, state: &State, borders: u64) -> u128 {
        let since_ns = u128::from(borders).saturating_mul(self.period_ns.get().into());
        u128::from(state.window_ns).saturating_add(since_ns)
    }

    /// Returns the state in the window around `at_ns`.
    pub(crate) fn moved_to(&self, state: &State, at_ns: u64) -> State {
        let mut state = *state;
        if self.used(&state, at_ns) > 0 {
            self.count(&mut state, at_ns, 0, Debt::FORGOTTEN);
        } else {
            state.used = 0;
        }
        state
    }

    /// Returns the window around `at_ns` and its count, unless later windows pay some of it, the
    /// grid has not begun, or the window reaches beyond the clock.
    pub(crate) fn count_at(&self, state: &State, at_ns: u64) -> Option<Count> {
        let anchor_ns = state.anchor_ns?;
        let State { window_ns, used, is_carried, .. } = self.moved_to(state, at_ns);
        let start_ns = self.window_of(anchor_ns, at_ns).max(window_ns);
        let end_ns = start_ns.checked_add(self.period_ns.get())?;
        (!is_carried || used <= self.permits()).then_some(Count { start_ns, end_ns, used })
    }

    pub(crate) const fn with_count(&self, Count { start_ns, used, .. }: Count) -> State {
        let anchor_ns = match self.anchor {
            Anchor::Epoch => 0,
            Anchor::FirstCall => start_ns,
        };
        State { anchor_ns: Some(anchor_ns), window_ns: start_ns, used, is_carried: false }
    }

    /// Counts permits in the window around `at_ns`, or in the newest if that is later.
    fn count(&self, state: &mut State, at_ns: u64, permits: u64, debt: Debt) {
        let anchor_ns = *state.anchor_ns.get_or_insert(at_ns);
        let used = self.used(state, at_ns);
        state.window_ns = self.window_of(anchor_ns, at_ns).max(state.window_ns);
        state.used = used.saturating_add(permits);
        // A debt that has been paid is over, and the next one ends in its own way.
        let is_owed = state.is_carried && used > self.permits();
        state.is_carried = debt.is_carried() || is_owed;
    }
}

impl State {
    /// Returns the count of the newest window, if no later one pays any of it.
    pub(crate) const fn used_alone(&self) -> Option<u64> {
        if self.is_carried { None } else { Some(self.used) }
    }

    /// Returns the begin of the newest window.
    pub(crate) const fn window_ns(&self) -> u64 {
        self.window_ns
    }
}

impl Policy for FixedWindow {
    type State = State;

    fn fresh(&self, _now_ns: u64) -> State {
        let anchor_ns = match self.anchor {
            Anchor::Epoch => Some(0),
            Anchor::FirstCall => None,
        };
        State { anchor_ns, window_ns: 0, used: 0, is_carried: false }
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
        on_clock(self.opens_ns(state, available), from_ns).map(Opening::at)
    }

    fn take(&self, state: &mut State, grant: Taken) {
        self.count(state, grant.start_ns, grant.permits.get(), Debt::FORGOTTEN);
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        self.permits().saturating_sub(self.used(state, now_ns))
    }

    /// Takes permits back only while the grant's window lasts. A new grid may have counted them
    /// in another.
    fn refund(&self, state: &mut State, refund: Refund) -> u64 {
        let Some(anchor_ns) = state.anchor_ns.filter(|_| refund.returned.is_some()) else {
            return 0;
        };
        let is_current = |instant_ns: u64| self.window_of(anchor_ns, instant_ns) == state.window_ns;
        if !is_current(refund.start_ns) || !is_current(refund.now_ns) {
            return 0;
        }
        let permits = refund.permits.min(state.used);
        state.used = state.used.saturating_sub(permits);
        permits
    }

    /// Lowers the window's count, at most to zero.
    fn credit(&self, state: &mut State, now_ns: u64, permits: u64) -> u64 {
        let back = permits.min(self.used(state, now_ns));
        if back > 0 {
            self.count(state, now_ns, 0, Debt::FORGOTTEN);
            state.used = state.used.saturating_sub(back);
        }
        back
    }

    fn charge(&self, state: &mut State, charge: Charge) -> Option<Charged> {
        let Charge { now_ns, permits, debt } = charge;
        let max_used = window_debt::max_used(self.permits, debt, self.period_ns.get(), MAX_CHARGED);
        let booked = permits.min(max_used.saturating_sub(self.used(state, now_ns)));
        if booked > 0 {
            self.count(state, now_ns, booked, debt);
        }
        Some(Charged::of(permits, booked, self.debt(state, now_ns)))
    }

    fn debt(&self, state: &State, now_ns: u64) -> u64 {
        self.used(state, now_ns).saturating_sub(self.permits())
    }

    fn debt_ends_ns(&self, state: &State, from_ns: u64) -> Option<u64> {
        if self.debt(state, from_ns) == 0 {
            return Some(from_ns);
        }
        self.opens_ns(state, self.permits()).try_into().ok()
    }

    /// Returns the first border at which the count is zero. A grid anchored at a first call never
    /// recovers, since the anchor must be kept.
    fn fresh_at_ns(&self, state: &State) -> Option<u64> {
        match self.anchor {
            Anchor::Epoch if state.used > 0 => self.opens_ns(state, 0).try_into().ok(),
            Anchor::FirstCall if state.anchor_ns.is_some() => None,
            Anchor::Epoch | Anchor::FirstCall => Some(0),
        }
    }

    fn rebase(&self, state: &mut State, old: &Self, now_ns: u64) {
        let used = old.used(state, now_ns);
        if self.anchor != old.anchor {
            state.anchor_ns = match self.anchor {
                Anchor::Epoch => Some(0),
                Anchor::FirstCall => Some(now_ns),
            };
        }
        if let Some(anchor_ns) = state.anchor_ns {
            state.window_ns = self.window_of(anchor_ns, now_ns);
        }
        state.used = used;
        state.is_carried &= used > old.permits().max(self.permits());
    }
}
