//! Warm-up: a rate that a limit at rest reaches over a period, for servers that are slow at first.
//!
//! A server that has been idle has empty caches, few connections and code that is not compiled
//! yet. This limit therefore spaces permits further apart while it is *cold*, and by the interval
//! of its rate once it is *warm*. Each permit warms it, and rest cools it down.
//!
//! ```text
//!   interval
//!     c T |                      .    a cold limit, which has been at rest for a period
//!         |                  .   .
//!         |              .       .    each permit moves to the left, by one;
//!       T |-----------.          .    rest moves to the right, all the way in one period
//!         |  warm     :          .
//!         +-----------+----------+--> coldness, in permits
//!         0      P / 2T          P / 2T + 2P / ((1 + c) T)
//! ```
//!
//! With one permit's time `T`, the period `P` and the cold factor `c`, these are the numbers of
//! `SmoothWarmingUp` in Guava. An interval of the warm side is `T`, and the area of the cold side
//! is `P`: a cold limit in full use is warm after exactly that time.
//!
//! # Contract
//!
//! * **Units.** Nanoseconds. Both the coldness and the instant at which the next permit is due are
//!   exact fractions; an instant rounds up only where a clock shows it.
//! * **Ceiling.** Any half-open window of `W` ns sees at most `ceil((W + (m - 1) T) / T)` permits,
//!   with `m` the [largest request](WarmUp::with_max_request) (docs/theory.md, section 1.5). By
//!   default `m` is 1: permits are at least `T` apart, and rest earns none.
//! * **Warm-up.** From cold, exactly `2P / ((1 + c) T)` permits start in the first period, if that
//!   is a whole number and they start when they are due.
//! * **Several permits** start when the last of them is due, and cost what as many calls for one
//!   permit do. Rest pays for the permits before the last, as if they had come when they were due.
//!   In Guava the first one starts such a call, and the next caller pays; the instant at which the
//!   next caller is free is the same.
//! * **Rest.** The gap between the instant at which a permit was due and its start. A gap no longer
//!   than the interval before it is pacing, and cools nothing. A longer one counts in full. So a
//!   caller that tries again and again warms the limit, although its tries miss the due instants.
//! * **Starts.** The ceiling holds for real starts (the default), and for promised instants where
//!   a schedule promises instants.
//! * **Retry.** Exact: one nanosecond sooner the request is still denied.
//! * **Refund.** None: without a permit, the limit might have been colder for those after it.
//! * **Change.** The next permit stays due when it was. The share of the period by which the limit
//!   is cold stays, rounded up to a nanosecond. Rest until then no longer pays for permits. At the
//!   rate never, what is due waits, and the limit cools; from unlimited, it is warm.
//! * **Restoring.** With less than the true time since saving, the limit may be warmer than it
//!   would have been. The ceiling holds.
//! * **Cost.** 80 bytes; a decision is a product and a division of 256 bits.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate_core::ledger::Ledger;
//! use rategate_core::verdict::Verdict;
//! use rategate_core::warm_up::WarmUp;
//!
//! let warm_up = WarmUp::new("2/s".parse()?, Duration::from_secs(4))?;
//! let mut limit = Ledger::new(warm_up, 0);
//! let starts = [0; 7].map(|now_ns| match limit.reserve(now_ns, 1, None) {
//!     Ok(Verdict::Granted(grant)) => grant.start_ns / 1_000_000,
//!     other => unreachable!("{other:?}"),
//! });
//! assert_eq!(starts, [0, 1_375, 2_500, 3_375, 4_000, 4_500, 5_000], "warm after 4 s");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

mod curve;

use core::num::NonZeroU64;
use core::time::Duration;

use self::curve::Curve;
use crate::error::LimitError;
use crate::exact::Exact;
use crate::policy::{Policy, Taken};
#[cfg(feature = "serde")]
use crate::portable::{Portable, SavedError, Shift};
use crate::rate::{Kind, Rate};
use crate::ratio::Ratio;
use crate::span::exact_ns;
use crate::verdict::{Opening, Refusal, on_clock};
use crate::wide::mul_div_ceil;

/// A rate, the period in which a cold limit reaches it, and how slow it is at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct WarmUp {
    rate: Rate,
    period_ns: NonZeroU64,
    cold_factor: Ratio,
    max_request: NonZeroU64,
}

/// The coldness of a limit, and the instant at which its next permit is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct State {
    /// The instant at which the next permit would be due, had all since the last late start come
    /// at the interval of the rate.
    base: Exact,
    /// The coldness at the last late start: what lies between it and `coldness` is what permits
    /// since then have cost beyond that interval.
    ///
    /// The unit is that of the [`Curve`]; at the rate never, the nanosecond.
    began: u128,
    coldness: u128,
    rests: Rests,
}

/// The time that a limit rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
enum Rests {
    /// All of a gap that is longer than the interval of the last permit, in nanoseconds and rounded
    /// down.
    Beyond(u64),
    /// All time since an instant: the rate is never.
    Since(u64),
}

impl State {
    const fn interval_ns(&self) -> u64 {
        match self.rests {
            Rests::Beyond(interval_ns) => interval_ns,
            Rests::Since(_) => 0,
        }
    }
}

impl WarmUp {
    /// Creates a limit of `rate` that a cold limit reaches in `period`, from a third of it.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPeriod`], [`LimitError::PeriodTooLong`], or [`LimitError::WarmUpTooLong`]
    /// where the period times the numbers of the rate exceeds 128 bits. At 1000/s a period may be
    /// 584 years.
    pub fn new(rate: Rate, period: Duration) -> Result<Self, LimitError> {
        let period_ns = exact_ns(period).ok_or(LimitError::PeriodTooLong)?;
        let period_ns = NonZeroU64::new(period_ns).ok_or(LimitError::ZeroPeriod)?;
        let max_request = NonZeroU64::MIN;
        Self { rate, period_ns, cold_factor: Ratio::THREE, max_request }.checked()
    }

    /// Spaces the permits of a cold limit by `factor` times the interval of the rate; 3 by
    /// default. With 1 there is no warm-up.
    ///
    /// # Errors
    ///
    /// [`LimitError::WarmUpTooLong`], as in [`new`](Self::new).
    pub fn with_cold_factor(self, factor: Ratio) -> Result<Self, LimitError> {
        Self { cold_factor: factor, ..self }.checked()
    }

    /// Allows requests of up to `permits` permits, which start together; 1 by default.
    ///
    /// Tables evict no key of a limit that allows several: rest pays for some of them, so an idle
    /// limit and a new one decide differently.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPermits`].
    pub const fn with_max_request(self, permits: u64) -> Result<Self, LimitError> {
        match NonZeroU64::new(permits) {
            Some(max_request) => Ok(Self { max_request, ..self }),
            None => Err(LimitError::ZeroPermits),
        }
    }

    /// Returns the rate of a warm limit.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns the period in which a cold limit reaches its rate, in nanoseconds.
    #[must_use]
    pub const fn period_ns(&self) -> u64 {
        self.period_ns.get()
    }

    /// Returns how many times the interval of the rate a cold limit spaces permits by.
    #[must_use]
    pub const fn cold_factor(&self) -> Ratio {
        self.cold_factor
    }

    /// Returns the maximum number of permits in one request.
    #[must_use]
    pub const fn max_request(&self) -> u64 {
        self.max_request.get()
    }

    /// Returns for how long the limit would have to rest until it is cold: zero for a cold limit,
    /// the period for a warm one.
    #[must_use]
    pub fn warmth_ns(&self, state: &State, now_ns: u64) -> u64 {
        let Some(curve) = self.curve() else { return 0 };
        let mut state = *state;
        rest_until(&curve, &mut state, now_ns);
        let warmth = curve.max.saturating_sub(state.coldness);
        u64::try_from(curve.whole_ns(warmth)).unwrap_or(u64::MAX)
    }

    fn checked(self) -> Result<Self, LimitError> {
        match (self.rate.kind(), self.curve()) {
            (Kind::Paced(_), None) => Err(LimitError::WarmUpTooLong),
            _ => Ok(self),
        }
    }

    /// Returns the numbers of a rate that is neither never nor unlimited.
    fn curve(&self) -> Option<Curve> {
        Curve::new(self.rate.pace()?, self.period_ns, self.cold_factor)
    }

    /// Returns the instant at which the last of `permits` is due.
    fn due_ns(curve: &Curve, state: &State, permits: u64) -> u128 {
        let before = permits.saturating_sub(1);
        let surplus = curve.surplus(state.began, curve.warmed(state.coldness, before));
        let since = curve.pace.add(curve.pace.time_of(before), surplus.up);
        curve.pace.add(state.base, since).ceil()
    }

    /// Returns the state at `now_ns` in numbers that other rates share: whole nanoseconds.
    fn measured(&self, state: &State, now_ns: u64) -> Measured {
        if let Some(curve) = self.curve() {
            let mut state = *state;
            rest_until(&curve, &mut state, now_ns);
            let cold_ns = curve.whole_ns(state.coldness);
            let due_ns = Self::due_ns(&curve, &state, 1);
            return Measured { due_ns, cold_ns, rests: state.rests };
        }
        let Rests::Since(since_ns) = state.rests else {
            return Measured { due_ns: now_ns.into(), cold_ns: 0, rests: RESTING };
        };
        let frozen_ns = u128::from(now_ns.saturating_sub(since_ns));
        let cold_ns = state.coldness.saturating_add(frozen_ns).min(self.period_ns().into());
        let due_ns = state.base.ns.saturating_add(frozen_ns);
        Measured { due_ns, cold_ns, rests: RESTING }
    }
}

/// A state in whole nanoseconds.
struct Measured {
    /// The instant at which the next permit is due.
    due_ns: u128,
    /// The part of the period by which the limit is cold.
    cold_ns: u128,
    rests: Rests,
}

/// The next gap is rest, however short.
const RESTING: Rests = Rests::Beyond(0);

/// Takes permits that start when they are due.
fn advance(curve: &Curve, state: &mut State, permits: u64) {
    let Some(before) = permits.checked_sub(1) else { return };
    let before = curve.warmed(state.coldness, before);
    state.coldness = curve.warmed(state.coldness, permits);
    state.base = curve.pace.add(state.base, curve.pace.time_of(permits));
    let surplus = curve.surplus(before, state.coldness);
    let interval = curve.pace.add(curve.pace.time_of(1), surplus.down);
    state.rests = Rests::Beyond(u64::try_from(interval.ns).unwrap_or(u64::MAX));
}

/// Lets the limit rest until `at_ns`, if it has done so for longer than its last interval.
/// Returns `true` if so.
fn rest_until(curve: &Curve, state: &mut State, at_ns: u64) -> bool {
    let gap_ns = u128::from(at_ns).saturating_sub(WarmUp::due_ns(curve, state, 1));
    let has_rested = gap_ns > state.interval_ns().into();
    if has_rested {
        let coldness = curve.cooled(state.coldness, gap_ns);
        let base = Exact::at(at_ns.into());
        *state = State { base, began: coldness, coldness, rests: RESTING };
    }
    has_rested
}

impl Policy for WarmUp {
    type State = State;

    /// Returns the state of a cold limit.
    fn fresh(&self, now_ns: u64) -> State {
        let (coldness, rests) = match (self.rate.kind(), self.curve()) {
            (_, Some(curve)) => (curve.max, RESTING),
            (Kind::Never, None) => (self.period_ns().into(), Rests::Since(now_ns)),
            (_, None) => (0, RESTING),
        };
        State { base: Exact::at(now_ns.into()), began: coldness, coldness, rests }
    }

    fn opening(
        &self,
        state: &State,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        if self.rate == Rate::UNLIMITED {
            return Ok(Opening::at(from_ns));
        }
        if permits > self.max_request {
            return Err(Refusal::exceeds(permits, self.max_request()));
        }
        let Some(curve) = self.curve() else { return Err(Refusal::TimeCannotHelp) };
        let due_ns = Self::due_ns(&curve, state, permits.get());
        on_clock(due_ns.max(from_ns.into()), from_ns).map(Opening::at)
    }

    fn take(&self, state: &mut State, grant: Taken) {
        let Some(curve) = self.curve() else { return };
        advance(&curve, state, grant.permits.get().saturating_sub(1));
        let start_ns = u128::from(grant.start_ns);
        if !rest_until(&curve, state, grant.start_ns) && Self::due_ns(&curve, state, 1) < start_ns {
            (state.base, state.began) = (Exact::at(start_ns), state.coldness);
        }
        advance(&curve, state, 1);
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        let curve = match (self.rate.kind(), self.curve()) {
            (Kind::Unlimited, _) => return u64::MAX,
            (_, Some(curve)) => curve,
            (_, None) => return 0,
        };
        let is_due = |permits: u64| Self::due_ns(&curve, state, permits) <= now_ns.into();
        let (mut due, mut beyond) = (0, self.max_request().saturating_add(1));
        while beyond.saturating_sub(due) > 1 {
            let middle = due.midpoint(beyond);
            if is_due(middle) {
                due = middle;
            } else {
                beyond = middle;
            }
        }
        due
    }

    /// Returns the instant from which the limit is cold again. A limit that allows several permits
    /// in a request never becomes a fresh one, for which rest has not paid yet.
    fn fresh_at_ns(&self, state: &State) -> Option<u64> {
        let curve = match (self.rate.kind(), self.curve()) {
            (Kind::Unlimited, _) => return Some(0),
            _ if self.max_request() > 1 => return None,
            (_, Some(curve)) => curve,
            (_, None) => {
                let is_cold = state.coldness >= self.period_ns().into();
                let is_due = matches!(state.rests, Rests::Since(ns) if state.base.ns <= ns.into());
                return (is_cold && is_due).then_some(0);
            }
        };
        let rest_ns = match curve.whole_ns(curve.max.saturating_sub(state.coldness)) {
            0 => 0,
            rest_ns => rest_ns.max(u128::from(state.interval_ns()).saturating_add(1)),
        };
        Self::due_ns(&curve, state, 1).saturating_add(rest_ns).try_into().ok()
    }

    fn rebase(&self, state: &mut State, old: &Self, now_ns: u64) {
        if (self.rate, self.period_ns, self.cold_factor)
            == (old.rate, old.period_ns, old.cold_factor)
        {
            return;
        }
        let Measured { due_ns, cold_ns, rests } = old.measured(state, now_ns);
        let (period_ns, old_period_ns) = (self.period_ns(), u128::from(old.period_ns()));
        let cold_ns = mul_div_ceil(cold_ns, period_ns, old_period_ns);
        let cold_ns = cold_ns.unwrap_or(u128::MAX).min(period_ns.into());
        let (due_ns, coldness, rests) = match (self.rate.kind(), self.curve()) {
            (_, Some(curve)) => (due_ns, curve.cooled(0, cold_ns), rests),
            (Kind::Never, None) => (due_ns.max(now_ns.into()), cold_ns, Rests::Since(now_ns)),
            (_, None) => (now_ns.into(), 0, RESTING),
        };
        *state = State { base: Exact::at(due_ns), began: coldness, coldness, rests };
    }
}

#[cfg(feature = "serde")]
crate::portable::read_checked!(WarmUp {
    rate: Rate,
    period_ns: NonZeroU64,
    cold_factor: Ratio,
    max_request: NonZeroU64
});

#[cfg(feature = "serde")]
impl Portable for WarmUp {
    type Saved = State;

    fn save(&self, state: &State, _now_ns: u64) -> State {
        *state
    }

    /// Reads the state. Rest before the clock's zero cools the limit, however short it is.
    fn load(&self, saved: State, since: Shift) -> Result<State, SavedError> {
        let zero_ns = since.zero_ns();
        let Some(curve) = self.curve() else { return self.load_still(saved, since) };
        let is_paced = matches!(saved.rests, Rests::Beyond(_));
        if !is_paced || saved.began > curve.max || saved.coldness > saved.began {
            return Err(SavedError::Malformed);
        }
        let base = since.exact(saved.base, curve.pace)?;
        if saved.base.ns >= zero_ns {
            return Ok(State { base, ..saved });
        }
        let due_ns = Self::due_ns(&curve, &saved, 1);
        let rest_ns = zero_ns.saturating_sub(due_ns);
        let coldness = curve.cooled(saved.coldness, rest_ns);
        let base = Exact::at(due_ns.saturating_sub(zero_ns));
        let rests = if rest_ns > 0 { RESTING } else { saved.rests };
        Ok(State { base, began: coldness, coldness, rests })
    }
}

#[cfg(feature = "serde")]
impl WarmUp {
    /// Reads a state at a rate at which nothing is ever due.
    fn load_still(&self, saved: State, since: Shift) -> Result<State, SavedError> {
        let (period_ns, State { base, coldness, rests, .. }) = (self.period_ns().into(), saved);
        match (self.rate.kind(), rests) {
            (Kind::Unlimited, _) => Ok(self.fresh(since.now_ns())),
            (Kind::Never, Rests::Since(since_ns)) if coldness <= period_ns => {
                let rest_ns = since.zero_ns().saturating_sub(since_ns.into());
                let coldness = coldness.saturating_add(rest_ns).min(period_ns);
                let ahead_ns = base.ns.saturating_sub(since_ns.into());
                let since_ns = since.clock_ns(since_ns);
                let base = Exact::at(u128::from(since_ns).saturating_add(ahead_ns));
                Ok(State { base, began: coldness, coldness, rests: Rests::Since(since_ns) })
            }
            _ => Err(SavedError::Malformed),
        }
    }
}
