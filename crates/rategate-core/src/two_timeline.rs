//! Two timelines: an ideal one that says when each operation should start, and a dispatch one that
//! says when it may. The distance between them is the wait time, exact for every operation and
//! free of coordinated omission.
//!
//! ```text
//!   ideal     |  |  |  |  |  |  |  |  |     one slice apart, for ever
//!   asked              ^ late
//!   strict             |  |  |  |  |        never closer than a slice; the wait stays
//!   burst 1.5          | | | |  |  |        a slice / 1.5 until the wait is zero
//!   average            |||||||  |  |        everything owed at once
//!   damped 1/2         ||| |  |  |          half of the gap forfeited at each call
//! ```
//!
//! # Contract
//!
//! * **Units.** Instants are nanoseconds; ideal instants keep their fraction exactly, so the
//!   long-run error stays below one permit at any rate.
//! * **Never early.** An operation starts at or after its ideal instant (theory 3.1).
//! * **Ceiling.** With one slice `T`: strict, `ceil(W / T)` in any half-open window; burst `b`,
//!   `ceil((W + 2 ns) b / T)` (theory 3.2; the two nanoseconds are explained at [`Mode::Burst`]);
//!   average and damped with a catch-up bound, `ceil((W + catch_up) / T)` (theory 3.6).
//! * **Wait.** `start - ideal` for each operation. Forfeited time moves the dispatch timeline only;
//!   the wait keeps telling of it (the two accounts of theory 3.5).
//! * **Retry.** Exact.
//! * **Change.** Operations already due keep their ideal instants, the fraction of a permit earned
//!   so far stays earned, and waits continue without a jump.
//! * **Clock.** A reading that is less than a nanosecond past an ideal instant is on time.
//! * **Cost.** A few words and one schedule piece; a decision is a few additions.
//!
//! # Example
//!
//! ```
//! use rategate_core::ledger::Ledger;
//! use rategate_core::limit::Limit;
//! use rategate_core::ratio::Ratio;
//! use rategate_core::two_timeline::{Mode, TwoTimeline};
//! use rategate_core::verdict::Verdict;
//!
//! // One millisecond late at 1000/s, catching up at one and a half times the rate.
//! let limiter = TwoTimeline::new("1000/s".parse()?, Mode::Burst(Ratio::new(3, 2)?), None);
//! let mut limit = Ledger::new(limiter, 0);
//! let waits = [1_000_000; 4].map(|now_ns| match limit.reserve(now_ns, 1, None) {
//!     Ok(Verdict::Granted(grant)) => grant.wait_ns(),
//!     other => unreachable!("{other:?}"),
//! });
//! assert_eq!(waits, [1_000_000, 666_666, 333_332, 0]);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::num::NonZeroU64;

use crate::compensation::Shift;
use crate::exact::{Exact, Pace};
use crate::lateness::{delayed, forfeit};
use crate::policy::{Policy, Taken};
use crate::rate::{Kind, Rate};
use crate::ratio::Ratio;
use crate::schedule::{Due, DueAt, Schedule, Track};
use crate::verdict::{Opening, Refusal, on_clock};
use crate::wide::mul_div_ceil;

/// A schedule, and what a caller that is behind it may do about that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwoTimeline {
    schedule: Schedule,
    mode: Mode,
    catch_up_ns: Option<u64>,
}

/// How a gap between the schedule and the clock is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By running at full speed: the average rate is what counts.
    Average,
    /// As average, but each late call forfeits `gap / 2^shift` of the gap it finds.
    Damped {
        /// The power of two: 2 for a quarter.
        shift: Shift,
    },
    /// Not at all: time that was not used is forfeited, and no two operations come closer than
    /// one slice.
    Strict,
    /// By running at this multiple of the rate, with even steps.
    ///
    /// The step is `slice / ratio`. Its fraction of a nanosecond is carried and paid in steps of
    /// two nanoseconds, which gives the very waits of EngineBlock's own test (666 666 and 333 332
    /// where the exact ones are 666 666 2/3 and 333 333 1/3): an operation may come up to two
    /// nanoseconds before the exact end of its step, never before its ideal instant.
    Burst(Ratio),
}

/// Where both timelines stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The ideal timeline.
    track: Track,
    /// Forfeited time: what the dispatch timeline lies behind the ideal one.
    idle_ns: u128,
    /// Burst mode: the earliest next start, less the fraction not yet paid.
    gate_ns: u128,
    unpaid: u128,
}

impl TwoTimeline {
    /// A constant `rate`, with gaps closed by `mode`, of which at most the newest `catch_up_ns`
    /// count (`None`: all).
    #[must_use]
    pub const fn new(rate: Rate, mode: Mode, catch_up_ns: Option<u64>) -> Self {
        Self::on_schedule(Schedule::constant(rate), mode, catch_up_ns)
    }

    /// The same along any schedule, such as a ramp.
    #[must_use]
    pub const fn on_schedule(schedule: Schedule, mode: Mode, catch_up_ns: Option<u64>) -> Self {
        Self { schedule, mode, catch_up_ns }
    }

    /// The rate, once any ramp is over.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.schedule.final_rate()
    }

    /// The open timespan: how long ago the next operation could have started. It is what callers
    /// could catch up on at this instant, and zero while they keep up.
    #[must_use]
    pub fn backlog_ns(&self, state: &State, now_ns: u64) -> u64 {
        match state.track.nth(0) {
            Due::At(first) => {
                let first = delayed(first, state.idle_ns);
                let gap_ns = u128::from(now_ns).saturating_sub(first.ceil_ns());
                u64::try_from(gap_ns).unwrap_or(u64::MAX)
            }
            Due::AtOnce | Due::Never => 0,
        }
    }

    /// The most permits at one instant.
    fn most(&self) -> u64 {
        match (self.mode, self.rate().0, self.catch_up_ns) {
            (_, Kind::Unlimited, _) => u64::MAX,
            (Mode::Strict | Mode::Burst(_), ..) => 1,
            (_, Kind::Paced(pace), Some(catch_up_ns)) => {
                let permits = pace.permits_in(Exact::at(catch_up_ns.into()));
                u64::try_from(permits).unwrap_or(u64::MAX).saturating_add(1)
            }
            _ => u64::MAX,
        }
    }

    /// What a call at `at_ns` forfeits.
    fn forfeited_ns(&self, first: DueAt, last: DueAt, at_ns: u128) -> u128 {
        let gap_ns = at_ns.saturating_sub(first.ceil_ns());
        let by_mode = match self.mode {
            Mode::Strict => gap_ns,
            Mode::Damped { shift } => gap_ns.checked_shr(shift.get()).unwrap_or(0),
            Mode::Average | Mode::Burst(_) => 0,
        };
        by_mode.max(forfeit(first, last, at_ns, self.catch_up_ns))
    }

    /// The first instant at which a damped call finds its last permit due, after forfeiting.
    fn damped_opening_ns(&self, first: DueAt, last: DueAt) -> u128 {
        let opens = |at_ns: u128| {
            last.ceil_ns().saturating_add(self.forfeited_ns(first, last, at_ns)) <= at_ns
        };
        // At least half of a gap remains, so twice the distance is enough.
        let distance_ns = last.ceil_ns().saturating_sub(first.ceil_ns());
        let mut low = last.ceil_ns();
        let mut high = low.saturating_add(distance_ns).saturating_add(2);
        while low < high {
            let middle = low.midpoint(high);
            if opens(middle) {
                high = middle;
            } else {
                low = middle.saturating_add(1);
            }
        }
        low
    }

    /// Burst mode: one step of the gate, as whole nanoseconds, a remainder and its divisor.
    fn step(&self, pace: Pace) -> Option<(u128, u128, u128)> {
        let Mode::Burst(ratio) = self.mode else { return None };
        let time = u128::from(pace.period_ns().get()).checked_mul(ratio.denominator().get().into());
        let parts = u128::from(pace.permits().get()).checked_mul(ratio.numerator().get().into());
        let (time, parts) = (time?, parts?);
        Some((time.checked_div(parts)?, time.checked_rem(parts)?, parts))
    }

    fn pace(&self) -> Option<Pace> {
        match self.rate().0 {
            Kind::Paced(pace) => Some(pace),
            Kind::Never | Kind::Unlimited => None,
        }
    }

    fn close_gate(&self, state: &mut State, start_ns: u64) {
        let Some((step_ns, rest, parts)) = self.pace().and_then(|pace| self.step(pace)) else {
            return;
        };
        let late_ns = u128::from(start_ns).saturating_sub(state.gate_ns);
        state.unpaid = state.unpaid.saturating_sub(late_ns.saturating_mul(parts));
        state.unpaid = state.unpaid.saturating_add(rest);
        state.gate_ns = u128::from(start_ns).saturating_add(step_ns);
        let two_ns = parts.saturating_mul(2);
        if let Some(unpaid) = state.unpaid.checked_sub(two_ns) {
            state.unpaid = unpaid;
            state.gate_ns = state.gate_ns.saturating_add(2);
        }
    }
}

impl Policy for TwoTimeline {
    type State = State;

    fn fresh(&self, now_ns: u64) -> State {
        State { track: Track::new(self.schedule, now_ns), idle_ns: 0, gate_ns: 0, unpaid: 0 }
    }

    fn opening(
        &self,
        state: &State,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        let most = self.most();
        if permits.get() > most {
            return Err(Refusal::exceeds(permits, most));
        }
        let last = state.track.nth(permits.get().saturating_sub(1));
        let (first, last) = match (state.track.nth(0), last) {
            (Due::At(first), Due::At(last)) => (first, last),
            (Due::AtOnce, _) | (_, Due::AtOnce) => {
                let scheduled_ns = Some(from_ns);
                return Ok(Opening { start_ns: from_ns, opens_ns: from_ns, scheduled_ns });
            }
            _ => return Err(Refusal::TimeCannotHelp),
        };
        let (dispatch, dispatch_last) =
            (delayed(first, state.idle_ns), delayed(last, state.idle_ns));
        let opens_ns = match self.mode {
            Mode::Damped { .. } if permits.get() > 1 => {
                self.damped_opening_ns(dispatch, dispatch_last)
            }
            Mode::Burst(_) => dispatch_last.ceil_ns().max(state.gate_ns),
            Mode::Average | Mode::Damped { .. } | Mode::Strict => dispatch_last.ceil_ns(),
        };
        let start_ns = on_clock(opens_ns.max(from_ns.into()), from_ns)?;
        let scheduled_ns = u64::try_from(last.floor_ns).unwrap_or(start_ns).min(start_ns);
        Ok(Opening { start_ns, opens_ns: start_ns, scheduled_ns: Some(scheduled_ns) })
    }

    fn take(&self, state: &mut State, grant: Taken) {
        let last = state.track.nth(grant.permits.get().saturating_sub(1));
        if let (Due::At(first), Due::At(last)) = (state.track.nth(0), last) {
            let (first, last) = (delayed(first, state.idle_ns), delayed(last, state.idle_ns));
            let forfeited_ns = self.forfeited_ns(first, last, grant.start_ns.into());
            state.idle_ns = state.idle_ns.saturating_add(forfeited_ns);
        }
        state.track.advance(grant.permits.get());
        self.close_gate(state, grant.start_ns);
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        let now = u128::from(now_ns);
        let first = match state.track.nth(0) {
            Due::At(first) => delayed(first, state.idle_ns),
            Due::AtOnce => return u64::MAX,
            Due::Never => return 0,
        };
        if first.ceil_ns() > now || state.gate_ns > now {
            return 0;
        }
        let idle_ns = state.idle_ns.saturating_add(self.forfeited_ns(first, first, now));
        let due = state.track.due_by(now.saturating_sub(idle_ns));
        due.max(1).min(self.most())
    }

    fn rebase(&self, state: &mut State, old: &Self, now_ns: u64) {
        let now = u128::from(now_ns);
        state.track.change(self.schedule, now.saturating_sub(state.idle_ns));
        // What is left of the last step takes its share of a step at the new numbers.
        let step_ns = |policy: &Self| Some(policy.step(policy.pace()?)?.0);
        let ahead_ns = state.gate_ns.saturating_sub(now);
        state.gate_ns = match (step_ns(old), step_ns(self)) {
            (Some(was_ns), Some(step_ns)) => {
                let step_ns = u64::try_from(step_ns.saturating_add(1)).unwrap_or(u64::MAX);
                let scaled_ns = mul_div_ceil(ahead_ns, step_ns, was_ns.max(1));
                now.saturating_add(scaled_ns.unwrap_or(u128::MAX))
            }
            _ => 0,
        };
        state.unpaid = 0;
    }
}
