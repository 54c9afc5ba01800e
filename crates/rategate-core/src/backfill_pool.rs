//! A token bucket that loses nothing: what does not fit goes into a waiting pool, and comes back
//! at a bounded share of each refill.
//!
//! ```text
//!   refill x ──> active, up to `pool` ──────────────> take
//!        └─ the rest ─> waiting ─┐      ^
//!                                └──────┘ at most (ratio - 1) of min(x, pool) a refill,
//!                                         and up to `pool x ratio` in all
//! ```
//!
//! # Contract
//!
//! * **Conservation.** Active, waiting and consumed permits together are always all that was
//!   refilled. Permits only ever move (docs/theory.md, section 4.1).
//! * **Ceiling.** Any window of length `W` sees at most `ratio (pool + (W + r) rate)` permits,
//!   with `r` the longest time between refills by hand (docs/theory.md, section 4.2), and zero
//!   where the pool refills itself at each grant. The ratio bounds the *pool*: a short window may
//!   see all of it at once.
//! * **Starts.** The ceiling holds for real starts (the default), and for promised instants where
//!   a schedule promises instants.
//! * **Carry.** The fraction `(ratio - 1) x` of a refill is carried into the next. Many small
//!   refills therefore move as much as a large one while active permits are at `pool` or above.
//! * **Two ways to fill.** Without a rate, only a [refill](BackfillPool::refill) adds permits, and a
//!   denial names no wait. With a rate the pool starts with one permit and refills itself when permits are
//!   taken, from the clock: no thread.
//! * **Refund.** All of it comes back: into the active pool while that could not have been full
//!   without the grant, later into the waiting pool.
//! * **Retry.** Exact, with a rate.
//! * **Rounding.** Parts of a permit are kept in the rate's own fraction; a change of rate rounds
//!   down by less than one part.
//! * **Cost.** A few words; a denial searches its instant in 64 steps.
//!
//! # Example
//!
//! ```
//! use core::num::NonZeroU64;
//! use rategate_core::backfill_pool::BackfillPool;
//! use rategate_core::policy::Policy;
//!
//! let pool = BackfillPool::new(1_000, "1.25".parse()?, None)?;
//! let mut state = pool.fresh(0);
//! pool.refill(&mut state, 0, 2_000); // 1000 fit, 1000 wait, of which 250 come back at once
//! assert_eq!((pool.active(&state), pool.waiting(&state)), (1_250, 750));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::num::NonZeroU64;

use crate::error::LimitError;
use crate::policy::{Correction, Policy, Taken};
#[cfg(feature = "serde")]
use crate::portable::{Portable, SavedError, Shift};
use crate::rate::{Kind, Rate};
use crate::ratio::Ratio;
use crate::refund::Refund;
use crate::verdict::{Opening, Refusal, on_clock};
use crate::wide::mul_div_floor;

/// The maximum size of a pool, in permits.
pub const MAX_POOL: u64 = 4_294_967_295;

/// A pool, the share of it that a backlog may add, and the rate at which it refills itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BackfillPool {
    pool: NonZeroU64,
    ratio: Ratio,
    rate: Option<Rate>,
}

/// The contents of both pools, in parts of a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct State {
    /// The number of parts that make one permit: the rate's period in ns, so that a nanosecond
    /// earns a whole number of parts.
    per_permit: u64,
    active: u128,
    waiting: u128,
    /// The remainder of past refills' shares below a whole part, in units of one over the ratio's
    /// denominator.
    carry: u128,
    filled_until_ns: u64,
}

impl BackfillPool {
    /// Creates a pool of `pool` permits that a backlog may raise to `pool * ratio`, refilled by
    /// hand or, with a `rate`, by the clock.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPermits`], or [`LimitError::TooManyPermits`] above [`MAX_POOL`].
    pub fn new(pool: u64, ratio: Ratio, rate: Option<Rate>) -> Result<Self, LimitError> {
        let pool = NonZeroU64::new(pool).ok_or(LimitError::ZeroPermits)?;
        if pool.get() > MAX_POOL {
            return Err(LimitError::TooManyPermits { max: MAX_POOL });
        }
        // Keeps every product of parts, pool and ratio inside 128 bits.
        let per_permit = match rate.and_then(Rate::pace) {
            Some(pace) => u128::from(pace.period_ns().get()),
            _ => 1,
        };
        let scale = per_permit.saturating_mul(ratio.numerator().get().into()).saturating_mul(2);
        let max = u64::try_from(u128::MAX.wrapping_div(scale)).unwrap_or(u64::MAX);
        if pool.get() > max {
            return Err(LimitError::TooManyPermits { max });
        }
        Ok(Self { pool, ratio, rate })
    }

    fn checked(self) -> Result<Self, LimitError> {
        Self::new(self.pool.get(), self.ratio, self.rate)
    }

    /// Returns the number of permits in a full pool.
    #[must_use]
    pub const fn pool(&self) -> u64 {
        self.pool.get()
    }

    /// Returns the multiple of the pool that a backlog may raise it to.
    #[must_use]
    pub const fn burst_ratio(&self) -> Ratio {
        self.ratio
    }

    /// Returns the rate at which the clock refills the pool, if it does.
    #[must_use]
    pub const fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Returns the whole permits that can be taken now.
    #[must_use]
    pub fn active(&self, state: &State) -> u64 {
        whole(state.active, state)
    }

    /// Returns the whole permits held back for later.
    #[must_use]
    pub fn waiting(&self, state: &State) -> u64 {
        whole(state.waiting, state)
    }

    /// Adds permits from outside.
    pub fn refill(&self, state: &mut State, now_ns: u64, permits: u64) {
        *state = self.filled(state, now_ns);
        let parts = u128::from(permits).saturating_mul(state.per_permit.into());
        self.fill(state, parts);
    }

    /// Takes back all permits. Only what would have stayed active goes into the active pool: if
    /// the pool may have been full without the grant, the permits would have overflowed, and they
    /// wait now as they would have.
    ///
    /// Proof: let both pools together hold as much, and no more of it be active. That stays so
    /// after every refill, since each makes `active` the least of three sums of these.
    fn take_back(&self, state: &mut State, refund: Refund) -> u64 {
        if self.rate == Some(Rate::NEVER) {
            return 0;
        }
        *state = self.filled(state, refund.now_ns);
        let parts = u128::from(refund.permits).saturating_mul(state.per_permit.into());
        let available = self.whole_pool(state).saturating_sub(state.active);
        let stayed = if self.was_never_full(refund) { parts.min(available) } else { 0 };
        state.active = state.active.saturating_add(stayed);
        state.waiting = state.waiting.saturating_add(parts.saturating_sub(stayed));
        refund.permits
    }

    /// Credits the active pool as far as it has free capacity without its burst share. Permits
    /// without a grant never go into the waiting pool.
    fn credit(&self, state: &mut State, now_ns: u64, permits: u64) -> u64 {
        if matches!(self.rate.map(Rate::kind), Some(Kind::Never | Kind::Unlimited)) {
            return 0;
        }
        *state = self.filled(state, now_ns);
        let per_permit = u128::from(state.per_permit);
        let available = self.whole_pool(state).saturating_sub(state.active);
        let max = available.checked_div(per_permit).unwrap_or(0);
        let back = permits.min(u64::try_from(max).unwrap_or(u64::MAX));
        state.active = state.active.saturating_add(per_permit.saturating_mul(back.into()));
        back
    }

    /// Returns the maximum of whole permits at one instant.
    fn max(&self) -> u64 {
        let max = mul_div_floor(
            self.pool.get().into(),
            self.ratio.numerator().get(),
            self.ratio.denominator().get().into(),
        );
        max.and_then(|max| u64::try_from(max).ok()).unwrap_or(u64::MAX)
    }

    fn fill(&self, state: &mut State, parts: u128) {
        let pool = self.whole_pool(state);
        let denominator = u128::from(self.ratio.denominator().get());
        let over = self.ratio.numerator().get().saturating_sub(self.ratio.denominator().get());

        let fits = parts.min(pool.saturating_sub(state.active));
        state.active = state.active.saturating_add(fits);
        state.waiting = state.waiting.saturating_add(parts.saturating_sub(fits));

        // The part of the waiting pool that may move now: the burst share of this refill, ...
        let share = parts.min(pool).saturating_mul(over.into()).saturating_add(state.carry);
        let max = mul_div_floor(pool, self.ratio.numerator().get(), denominator);
        // ... up to the free capacity and to what waits.
        let available = max.unwrap_or(u128::MAX).saturating_sub(state.active);
        let moved = share.checked_div(denominator).unwrap_or(0).min(available).min(state.waiting);
        state.carry = share.checked_rem(denominator).unwrap_or(0);
        state.waiting = state.waiting.saturating_sub(moved);
        state.active = state.active.saturating_add(moved);
    }

    /// Returns the state at `now_ns`, with what the clock has earned by then.
    fn filled(&self, state: &State, now_ns: u64) -> State {
        let mut filled = *state;
        if let Some(pace) = self.rate.and_then(Rate::pace) {
            let elapsed_ns = u128::from(now_ns.saturating_sub(state.filled_until_ns));
            let parts = elapsed_ns.saturating_mul(pace.permits().get().into());
            if parts > 0 {
                self.fill(&mut filled, parts);
            }
        }
        filled.filled_until_ns = now_ns.max(state.filled_until_ns);
        filled
    }

    /// Returns the size of the pool in parts, without the burst share.
    fn whole_pool(&self, state: &State) -> u128 {
        u128::from(self.pool.get()).saturating_mul(state.per_permit.into())
    }

    /// Returns `true` if nothing could have overflowed since the grant, had it not been made. A
    /// refill by hand counts as a change of the numbers.
    fn was_never_full(&self, refund: Refund) -> bool {
        let Some(returned) = refund.returned else { return false };
        let sooner_ns = match self.rate.and_then(Rate::pace) {
            Some(pace) => pace.time_of(returned).ceil(),
            _ => 0,
        };
        u128::from(refund.now_ns).saturating_add(sooner_ns) <= refund.busy_until_ns.into()
    }

    /// Returns the first instant in `from_ns..` at which `permits` are active, if nothing is taken.
    fn filled_to(&self, state: &State, from_ns: u64, permits: u64) -> Result<u64, Refusal> {
        let Some(pace) = self.rate.and_then(Rate::pace) else { return Err(Refusal::Held) };
        let enough = |at_ns: u64| self.active(&self.filled(state, at_ns)) >= permits;
        // A whole pool's time fills it, and the next one brings all of the burst share.
        let pools = self.max().saturating_add(self.pool.get()).saturating_add(1);
        let max_ns = pace.time_of(pools).ceil().saturating_add(state.filled_until_ns.into());
        let (mut low, mut high) = (from_ns, u64::try_from(max_ns).unwrap_or(u64::MAX));
        if !enough(high) {
            return on_clock(max_ns, from_ns);
        }
        while low < high {
            let middle = low.midpoint(high);
            if enough(middle) {
                high = middle;
            } else {
                low = middle.saturating_add(1);
            }
        }
        Ok(low)
    }
}

impl Policy for BackfillPool {
    type State = State;

    fn fresh(&self, now_ns: u64) -> State {
        let per_permit = match self.rate.and_then(Rate::pace) {
            Some(pace) => pace.period_ns().get(),
            _ => 1,
        };
        // The first request of a pool that refills itself passes at once, as everywhere.
        let active = if self.rate.is_some() { per_permit.into() } else { 0 };
        State { per_permit, active, waiting: 0, carry: 0, filled_until_ns: now_ns }
    }

    fn opening(
        &self,
        state: &State,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        match self.rate.map(Rate::kind) {
            Some(Kind::Unlimited) => return Ok(Opening::at(from_ns)),
            Some(Kind::Never) => return Err(Refusal::TimeCannotHelp),
            _ => {}
        }
        if permits.get() > self.max() {
            return Err(Refusal::exceeds(permits, self.max()));
        }
        if self.active(&self.filled(state, from_ns)) >= permits.get() {
            return Ok(Opening::at(from_ns));
        }
        self.filled_to(state, from_ns, permits.get()).map(Opening::at)
    }

    fn take(&self, state: &mut State, grant: Taken) {
        *state = self.filled(state, grant.start_ns);
        let parts = u128::from(grant.permits.get()).saturating_mul(state.per_permit.into());
        state.active = state.active.saturating_sub(parts);
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        match self.rate.map(Rate::kind) {
            Some(Kind::Unlimited) => u64::MAX,
            Some(Kind::Never) => 0,
            _ => self.active(&self.filled(state, now_ns)),
        }
    }

    fn rebase(&self, state: &mut State, old: &Self, now_ns: u64) {
        *state = old.filled(state, now_ns);
        if let Some(pace) = self.rate.and_then(Rate::pace) {
            let (new, old) = (pace.period_ns().get(), u128::from(state.per_permit));
            let convert = |parts| mul_div_floor(parts, new, old).unwrap_or(u128::MAX);
            (state.active, state.waiting) = (convert(state.active), convert(state.waiting));
            state.per_permit = new;
        }
        if self.ratio != old.ratio {
            state.carry = 0;
        }
        // A smaller pool loses nothing either: what no longer fits waits.
        let max = u128::from(self.max()).saturating_mul(state.per_permit.into());
        let spilled = state.active.saturating_sub(max);
        state.active = state.active.saturating_sub(spilled);
        state.waiting = state.waiting.saturating_add(spilled);
    }

    /// Returns when the pool could be full at the soonest: once the rate has brought what is
    /// missing, if each refill brings all of its burst share. Without the grant it is not full
    /// before.
    fn busy_until_ns(&self, state: &State, grant: Taken) -> u64 {
        let Some(pace) = self.rate.and_then(Rate::pace) else { return u64::MAX };
        let filled = self.filled(state, grant.start_ns);
        let missing = self.whole_pool(state).saturating_sub(filled.active);
        let (num, den) = (self.ratio.numerator().get(), self.ratio.denominator().get());
        let brought = mul_div_floor(missing, den, num.into()).unwrap_or(0);
        let ns = brought.checked_div(pace.permits().get().into()).unwrap_or(0);
        grant.start_ns.saturating_add(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    fn correct(&self, state: &mut State, correction: Correction) -> Option<u64> {
        match correction {
            Correction::Back(refund) => Some(self.take_back(state, refund)),
            Correction::Credit { now_ns, permits } => Some(self.credit(state, now_ns, permits)),
            Correction::Refill { now_ns, permits } => {
                self.refill(state, now_ns, permits);
                Some(permits)
            }
            Correction::Charge(_) | Correction::End(_) => None,
        }
    }
}

fn whole(parts: u128, state: &State) -> u64 {
    u64::try_from(parts.checked_div(state.per_permit.into()).unwrap_or(0)).unwrap_or(u64::MAX)
}

#[cfg(feature = "serde")]
crate::portable::read_checked!(BackfillPool { pool: NonZeroU64, ratio: Ratio, rate: Option<Rate> });

#[cfg(feature = "serde")]
impl Portable for BackfillPool {
    type Saved = State;

    fn save(&self, state: &State, _now_ns: u64) -> State {
        *state
    }

    fn load(&self, saved: State, since: Shift) -> Result<State, SavedError> {
        let own = self.rate.and_then(Rate::pace).map(|pace| pace.period_ns().get());
        let is_own = own.is_none_or(|own| own == saved.per_permit) && saved.per_permit > 0;
        if !is_own || saved.carry >= self.ratio.denominator().get().into() {
            return Err(SavedError::Malformed);
        }
        Ok(State { filled_until_ns: since.clock_ns(saved.filled_until_ns), ..saved })
    }
}
