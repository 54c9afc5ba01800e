//! A rate of calls that follows the refusals of another party's server.

mod cubic;
mod level;
mod measured;

use alloc::boxed::Box;
use core::num::NonZeroU64;

use self::cubic::Cubic;
use self::level::{Level, PERMIT};
use super::Outcome;
use crate::debt::Charge;
use crate::error::{LimitError, or_panic};
use crate::policy::{Correction, Ended, Ending, Policy, Taken};
#[cfg(feature = "serde")]
use crate::portable::{Portable, SavedError, Shift};
use crate::rate::Rate;
use crate::verdict::{Opening, Refusal, on_clock};

/// A million: rates here are in millionths of a permit per second.
const MILLION: u128 = 1_000_000;
/// The nanoseconds of a million seconds: a rate of one permit in them is one millionth.
const MILLION_SECONDS_NS: u128 = 1_000_000_000_000_000;
/// The time without calls after which a rate begins anew: what it has found says nothing about the
/// server any more. An idle key of a table can then be evicted.
const FORGETS_NS: u64 = 600_000_000_000;

/// A rate of calls to another party's server that follows its refusals, between a floor and a
/// ceiling.
///
/// It falls to seven tenths of the rate that was used at a refusal, or of the rate in force if that
/// is less, and comes back along a cubic curve, as in the AWS SDKs. Few calls are refused: 1 of 500
/// of a client alone.
///
/// # Contract
///
/// * **Ceiling.** Any half-open window of `W` ns sees at most `ceil((W + (burst - 1) T) / T)`
///   starts, whatever is reported, with `T` one permit's time at the ceiling. What was reserved
///   before a cut keeps its instant; who waits follows the cut.
/// * **Exact.** The rate is a whole number of millionths of a permit per second, with floor and
///   ceiling rounded down to one, and nothing else is rounded but starts, up to a nanosecond. A
///   change of the rate moves no permit: what is in use stays in use, to a fraction of one.
/// * **Retry.** Exact, if the rate stays.
/// * **Growth.** A rate of which less than a half is used does not grow.
/// * **Refund.** The permits of the newest start come back; those of earlier ones only if the
///   limit cannot have been at rest since.
/// * **Idle.** It begins anew, at the ceiling, after ten minutes without a call.
/// * **Cost.** 80 bytes, and some 100 on the heap. Nothing is allocated for a call.
///
/// Each call reports its end: [`Outcome::Served`], or [`Outcome::Dropped`] if the server refused
/// it because there were too many. Whatever is ignored changes nothing.
///
/// ```
/// use rategate_core::adaptive::{AdaptiveRate, Outcome};
/// use rategate_core::any_policy::Member;
/// use rategate_core::ledger::Ledger;
/// use rategate_core::policy::Ending;
/// use rategate_core::rate::Rate;
/// use rategate_core::verdict::Verdict;
///
/// let policy = AdaptiveRate::new(Rate::per_second(1), Rate::per_second(80));
/// let mut limit = Ledger::new(policy, 0);
/// let Verdict::Granted(grant) = limit.try_acquire(0, 1)? else { panic!("nothing is in use") };
/// let how = Ending::Of { start_ns: grant.start_ns, outcome: Outcome::Dropped };
/// limit.end(1_000_000_000, 1, how);
/// // One call a second was used, and seven tenths of that are less than the floor.
/// let Some(Member::AdaptiveRate(_, state)) = limit.limits().only() else { unreachable!() };
/// assert_eq!(policy.rate(state), Rate::per_second(1));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct AdaptiveRate {
    bounds: RateBounds,
    burst: NonZeroU64,
}

/// The bounds of a rate, in millionths of a permit per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
struct RateBounds {
    floor: u64,
    ceiling: u64,
}

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
struct End {
    now_ns: u64,
    permits: u64,
    is_refused: bool,
}

/// The permits in use, and the rate that has been found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    level: Level,
    /// The rate in force, in millionths of a permit per second.
    rate: u64,
    controller: Box<Cubic>,
    /// The instant of the newest start.
    newest_ns: u64,
    /// The instant of the newest start or end. `None` before the first.
    idle_since_ns: Option<u64>,
}

impl RateBounds {
    fn checked(self) -> Result<Self, LimitError> {
        if self.floor == 0 || self.floor > self.ceiling {
            Err(LimitError::RateBounds)
        } else {
            Ok(self)
        }
    }

    const fn clamp(self, rate: u64) -> u64 {
        if rate < self.floor {
            self.floor
        } else if rate > self.ceiling {
            self.ceiling
        } else {
            rate
        }
    }
}

impl AdaptiveRate {
    /// Creates a limit of one permit at once whose rate is within these bounds.
    ///
    /// # Panics
    ///
    /// Panics unless the floor is at most the ceiling, and both are rates of some permits.
    #[must_use]
    #[track_caller]
    pub const fn new(floor: Rate, ceiling: Rate) -> Self {
        or_panic(Self::try_new(floor, ceiling))
    }

    /// Creates a limit of one permit at once whose rate is within these bounds.
    ///
    /// # Errors
    ///
    /// [`LimitError::RateBounds`] unless the floor is at most the ceiling, and both are at least a
    /// millionth of a permit per second, and finite.
    pub const fn try_new(floor: Rate, ceiling: Rate) -> Result<Self, LimitError> {
        match (millionths(floor), millionths(ceiling)) {
            (Some(floor), Some(ceiling)) if floor <= ceiling => {
                Ok(Self { bounds: RateBounds { floor, ceiling }, burst: NonZeroU64::MIN })
            }
            _ => Err(LimitError::RateBounds),
        }
    }

    /// Allows up to `permits` at one instant, after a silence long enough to earn them.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is zero.
    #[must_use]
    #[track_caller]
    pub const fn burst(self, permits: u64) -> Self {
        match NonZeroU64::new(permits) {
            Some(burst) => Self { burst, ..self },
            None => panic!("a burst of no permits: nothing could ever pass"),
        }
    }

    /// Returns the least rate.
    #[must_use]
    pub fn floor(self) -> Rate {
        rate_of(self.bounds.floor)
    }

    /// Returns the greatest rate.
    #[must_use]
    pub fn ceiling(self) -> Rate {
        rate_of(self.bounds.ceiling)
    }

    /// Returns the maximum number of permits at one instant.
    #[must_use]
    pub const fn burst_size(self) -> NonZeroU64 {
        self.burst
    }

    /// Returns the rate that has been found.
    #[must_use]
    pub fn rate(self, state: &State) -> Rate {
        rate_of(state.rate)
    }

    /// Returns a fresh state.
    fn begin(self, now_ns: u64) -> State {
        let controller = Box::new(Cubic::new(self.bounds, now_ns));
        let rate = controller.rate();
        State { level: Level::at(now_ns), rate, controller, newest_ns: 0, idle_since_ns: None }
    }
}

/// Returns a rate in millionths of a permit per second, rounded down, if it is at least one.
const fn millionths(rate: Rate) -> Option<u64> {
    let Some((permits, period_ns)) = rate.fraction() else { return None };
    #[expect(clippy::as_conversions, reason = "widening, in a constant function")]
    let (permits, period_ns) = (permits as u128, period_ns as u128);
    match permits.saturating_mul(MILLION_SECONDS_NS).checked_div(period_ns) {
        Some(rate) if rate > 0 => Some(u64_or_max(rate)),
        _ => None,
    }
}

const fn u64_or_max(number: u128) -> u64 {
    const MAX: u128 = 0xffff_ffff_ffff_ffff;
    #[expect(clippy::as_conversions, clippy::cast_possible_truncation, reason = "at most 64 bits")]
    if number < MAX { number as u64 } else { u64::MAX }
}

fn rate_of(millionths: u64) -> Rate {
    Rate::from_fraction(millionths.into(), MILLION_SECONDS_NS).unwrap_or(Rate::NEVER)
}

impl State {
    fn fresh_at_ns(&self) -> u64 {
        let forgotten_ns = self.idle_since_ns.map_or(0, |ns| ns.saturating_add(FORGETS_NS));
        let full_ns = self.level.falls_to(0, self.rate);
        forgotten_ns.max(u64::try_from(full_ns).unwrap_or(u64::MAX))
    }

    fn pass_to(&mut self, now_ns: u64) {
        self.level = self.level.at_ns(now_ns, self.rate);
    }
}

impl Policy for AdaptiveRate {
    type State = State;

    fn fresh(&self, now_ns: u64) -> State {
        self.begin(now_ns)
    }

    fn opening(
        &self,
        state: &State,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        let Some(rest) = self.burst.get().checked_sub(permits.get()) else {
            return Err(Refusal::exceeds(permits, self.burst.get()));
        };
        let opens_ns = state.level.falls_to(rest, state.rate);
        on_clock(opens_ns.max(from_ns.into()), from_ns).map(Opening::at)
    }

    fn take(&self, state: &mut State, grant: Taken) {
        if state.idle_since_ns.is_some() && state.fresh_at_ns() <= grant.start_ns {
            *state = self.begin(grant.start_ns);
        }
        state.level = if grant.is_promise() {
            state.level.at_promise(grant.start_ns, state.rate)
        } else {
            state.level.at_ns(grant.start_ns, state.rate)
        };
        state.level.add(grant.permits.get());
        state.newest_ns = grant.start_ns;
        state.idle_since_ns = Some(grant.start_ns);
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        state.level.at_ns(now_ns, state.rate).room_to(self.burst.get())
    }

    fn fresh_at_ns(&self, state: &State) -> Option<u64> {
        Some(state.fresh_at_ns())
    }

    fn heap_bytes(&self, _state: &State) -> usize {
        size_of::<Cubic>()
    }

    fn rebase(&self, state: &mut State, _old: &Self, now_ns: u64) {
        state.pass_to(now_ns);
        state.controller.rebound(self.bounds);
        state.rate = state.controller.rate();
    }

    /// Returns the time of all permits of a burst but one, at the ceiling.
    fn slack_ns(&self) -> u64 {
        let more = u128::from(self.burst.get().saturating_sub(1)).saturating_mul(PERMIT);
        let slack_ns = more.checked_div(self.bounds.ceiling.into()).unwrap_or(0);
        u64::try_from(slack_ns).unwrap_or(u64::MAX)
    }

    /// The limit may have been at rest when the grant came.
    fn busy_until_ns(&self, _state: &State, grant: Taken) -> u64 {
        grant.start_ns
    }

    /// A charge takes permits beyond the burst, within the longest debt at the rate of now.
    fn correct(&self, state: &mut State, correction: Correction) -> Option<u64> {
        match correction {
            Correction::Back(refund) => {
                let is_newest = refund.start_ns == state.newest_ns;
                let is_known = is_newest || refund.busy_until_ns >= refund.now_ns;
                if is_known {
                    state.level.sub(refund.permits);
                }
                Some(if is_known { refund.permits } else { 0 })
            }
            Correction::Credit { now_ns, permits } => {
                state.pass_to(now_ns);
                let back = permits.min(state.level.above(0));
                state.level.sub(back);
                Some(back)
            }
            Correction::Charge(Charge { now_ns, permits, debt }) => {
                state.pass_to(now_ns);
                let room = state.level.room_within(self.burst.get(), debt.max_ns(), state.rate);
                let booked = permits.min(room);
                if booked > 0 {
                    state.level.add(booked);
                    state.idle_since_ns = Some(now_ns);
                }
                Some(booked)
            }
            Correction::End(Ended { now_ns, permits, how: Ending::Of { outcome, .. } }) => {
                let is_refused = outcome == Outcome::Dropped;
                if outcome != Outcome::Ignored {
                    state.pass_to(now_ns);
                    state.controller.end(End { now_ns, permits, is_refused });
                    state.rate = state.controller.rate();
                    state.idle_since_ns = state.idle_since_ns.max(Some(now_ns));
                }
                Some(permits)
            }
            Correction::End(_) | Correction::Refill { .. } => None,
        }
    }

    fn debt(&self, state: &State, now_ns: u64) -> u64 {
        state.level.at_ns(now_ns, state.rate).above(self.burst.get())
    }

    fn debt_ends_ns(&self, state: &State, from_ns: u64) -> Option<u64> {
        let ends_ns = state.level.falls_to(self.burst.get(), state.rate);
        u64::try_from(ends_ns).ok().map(|ends_ns| ends_ns.max(from_ns))
    }

    fn follows_outcomes(&self) -> bool {
        true
    }
}

#[cfg(feature = "serde")]
crate::portable::read_checked!(RateBounds { floor: u64, ceiling: u64 });

#[cfg(feature = "serde")]
impl Portable for AdaptiveRate {
    /// The rate that has been found, if any, and when it was last used; and what is in use, and as
    /// of when.
    type Saved = (Option<(u64, u64)>, (u64, u128));

    fn save(&self, state: &State, _now_ns: u64) -> Self::Saved {
        let found = state.idle_since_ns.map(|since_ns| (state.rate, since_ns));
        (found, state.level.to_parts())
    }

    /// Restores the rate, as that of a limit to which it was cut when it was last used.
    fn load(&self, (found, level): Self::Saved, since: Shift) -> Result<State, SavedError> {
        let (at_ns, parts) = (since.clock_ns(level.0), level.1);
        let fresh = State { level: Level::from_parts(at_ns, parts), ..self.fresh(at_ns) };
        let Some((rate, since_ns)) = found else { return Ok(fresh) };
        let since_ns = since.clock_ns(since_ns);
        let rate = self.bounds.clamp(rate);
        let controller = Box::new(Cubic::beginning_with(self.bounds, rate, since_ns));
        let rate = controller.rate();
        Ok(State { rate, controller, idle_since_ns: Some(since_ns), ..fresh })
    }
}
