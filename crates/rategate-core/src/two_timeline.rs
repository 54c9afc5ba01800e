//! Two timelines: an ideal one that says when each operation should start, and a dispatch one
//! that says when it may. The distance between them is the wait time, exact for every operation
//! and free of coordinated omission.
//!
//! ```text
//!   ideal     |  |  |  |  |  |  |  |  |     one slice apart, for ever
//!   request            ^ late
//!   strict             |  |  |  |  |        never closer than a slice; the wait stays
//!   burst 1.5          | | | |  |  |        a slice / 1.5 until the wait is zero
//!   average            |||||||  |  |        everything owed at once
//!   damped 1/2         ||| |  |  |          half of the gap forfeited at each call
//!   batched            |||||||  || ||       as average, but in sleeps that are worth it
//! ```
//!
//! # Contract
//!
//! * **Units.** Instants are nanoseconds; ideal instants keep their fraction exactly, so the
//!   long-run error stays below one permit at any rate.
//! * **Never early.** An operation starts at or after its ideal instant (docs/theory.md, section
//!   3.1). A batched one may start less than `min_sleep` before it.
//! * **Ceiling.** With one slice `T`: strict, `ceil(W / T)` in any half-open window; burst `b`,
//!   `ceil((W + 2 ns) b / T)` (docs/theory.md, section 3.2; [`Mode::Burst`] explains the two
//!   nanoseconds); average and damped with a catch-up bound, `ceil((W + catch_up) / T)`
//!   (docs/theory.md, section 3.6); batched, `ceil((W + catch_up + min_sleep) / T)` (section 1.4).
//! * **Starts.** The ceiling holds for real starts (the default), and for promised instants where
//!   a schedule promises instants. Those of [waiters](crate::line) with a catch-up bound may lie
//!   10 ms further back.
//! * **Wait.** `start - ideal` for each operation. Forfeited time moves the dispatch timeline
//!   only; the wait time still includes it (the two accounts of docs/theory.md, section 3.5). A
//!   batched operation waits from its request on.
//! * **Carry.** A sleep that ends early or late shortens or lengthens the next: due instants are
//!   absolute and exact.
//! * **Retry.** Exact. Batched, the first instant at which the call is less than `min_sleep` early.
//! * **Refund.** Everything on average without a bound. Where late callers forfeit time, exactly
//!   until some would have been forfeited without those permits, and the newest grant at any
//!   time. None on a ramp, nor across a change. In burst mode the next step still counts from the
//!   last start.
//! * **Change.** Operations already due keep their ideal instants, the fraction of a permit earned
//!   so far stays earned, and waits continue without a jump.
//!   From batches to another mode, waits count anew from what is due then.
//! * **Clock.** A reading that is less than a nanosecond past an ideal instant is on time.
//! * **After the operation.** Callers that wait after each operation, as the operation throttle's
//!   do, have had its permit at the start: [`TwoTimeline::fresh_after`].
//! * **Cost.** A few words and one schedule piece; a decision is a few additions.
//!
//! # Example
//!
//! ```
//! use rategate_core::ledger::Ledger;
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

mod compensation;

use core::num::NonZeroU64;
use core::time::Duration;

pub use self::compensation::DampingShift;
use crate::exact::{Exact, Pace};
use crate::policy::{Correction, Policy, Taken};
#[cfg(feature = "serde")]
use crate::portable::{Portable, SavedError, Shift};
use crate::rate::{Kind, Rate};
use crate::ratio::Ratio;
use crate::refund::Refund;
use crate::schedule::track::{Due, DueAt, Track};
use crate::schedule::{Form, Schedule};
use crate::search::first_after;
use crate::span::whole_ns;
use crate::verdict::{Opening, Refusal, on_clock};
use crate::wide::mul_div_ceil;

/// The default shortest sleep: that of the operation throttle.
pub const DEFAULT_MIN_SLEEP_NS: u64 = 10_000_000;
/// The default bound on catching up in batches: one second's worth of operations.
pub const DEFAULT_CATCH_UP_NS: u64 = 1_000_000_000;

/// A schedule, and the way in which a caller behind it may catch up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct TwoTimeline {
    schedule: Schedule,
    mode: Mode,
    catch_up_ns: Option<u64>,
}

/// The way in which a gap between the schedule and the clock is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub enum Mode {
    /// Running at full speed: the average rate is what counts.
    Average,
    /// As average, but operations run back to back until enough delay has added up to be worth a
    /// sleep. A call that is less than that early passes at once; any other sleeps until its
    /// operation is due.
    ///
    /// ```text
    ///   due   |  |  |  |  |  |  |  |  |  |          2000/s, min_sleep 1 ms
    ///   done  @@ zzzzzz@@zzzzzz@@zzzzzz@@           two at a time, a sleep of 1 ms between
    ///   ------+--------+--------+-------> time
    /// ```
    Batched {
        /// The shortest sleep, in nanoseconds.
        min_sleep_ns: u64,
    },
    /// Running at full speed, but each late call forfeits `gap / 2^shift` of the gap it finds,
    /// measured to the last permit it requests.
    Damped {
        /// The power of two: 2 for a quarter.
        shift: DampingShift,
    },
    /// Never closing the gap: unused time is forfeited, and no two operations come closer than
    /// one slice.
    Strict,
    /// Running at this multiple of the rate, with even steps.
    ///
    /// The step is `slice / ratio`. Its fraction of a nanosecond is carried and paid in steps of
    /// two nanoseconds. An operation may therefore come up to two nanoseconds before the exact
    /// end of its step, never before its ideal instant. This gives the very waits of
    /// EngineBlock's own test: `666_666` and `333_332`, where the exact ones are `666_666 2/3`
    /// and `333_333 1/3`.
    Burst(Ratio),
}

/// The positions of both timelines.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct State {
    /// The instants at which operations should start. Never forfeits anything. In batches nobody
    /// asks for it.
    ideal: Option<Track>,
    /// The instants at which they may. Forfeited time takes its operations with it.
    dispatch: Track,
    /// The earliest next start in burst mode, less the fraction not yet paid.
    gate_ns: u128,
    unpaid: u128,
}

impl State {
    fn tracks(&mut self) -> impl Iterator<Item = &mut Track> {
        self.ideal.iter_mut().chain([&mut self.dispatch])
    }

    fn advance(&mut self, operations: u64) {
        self.tracks().for_each(|track| track.advance(operations));
    }
}

impl TwoTimeline {
    /// Creates a limit at a constant `rate`, with gaps closed by `mode`, of which at most the
    /// newest `catch_up` counts (`None`: all). Beyond 584 years it is that long.
    #[must_use]
    pub const fn new(rate: Rate, mode: Mode, catch_up: Option<Duration>) -> Self {
        Self::on_schedule(Schedule::constant(rate), mode, catch_up)
    }

    /// Creates a limit along any schedule, such as a ramp; the other arguments are those of
    /// [`new`](Self::new).
    #[must_use]
    pub const fn on_schedule(schedule: Schedule, mode: Mode, catch_up: Option<Duration>) -> Self {
        let catch_up_ns = match catch_up {
            Some(catch_up) => Some(whole_ns(catch_up)),
            None => None,
        };
        Self { schedule, mode, catch_up_ns }
    }

    /// Returns the rate, once any ramp is over.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.schedule.final_rate()
    }

    /// Returns the way in which a gap is closed.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns how much of a gap counts, in nanoseconds, if not all of it.
    #[must_use]
    pub const fn catch_up_ns(&self) -> Option<u64> {
        self.catch_up_ns
    }

    /// Returns the state for callers that wait *after* each operation: the first operation has
    /// had its permit at `now_ns`.
    #[must_use]
    pub fn fresh_after(&self, now_ns: u64) -> State {
        let mut state = self.fresh(now_ns);
        state.advance(1);
        state
    }

    pub(crate) const fn is_batched(&self) -> bool {
        matches!(self.mode, Mode::Batched { .. })
    }

    /// Returns by how much a call must be early for a sleep to be worth it.
    const fn min_sleep_ns(&self) -> u64 {
        match self.mode {
            Mode::Batched { min_sleep_ns } => min_sleep_ns,
            _ => 0,
        }
    }

    /// Returns `true` if an operation due then passes at `at_ns`: it is not early, or not so much
    /// that a sleep is worth it.
    fn passes(&self, due: DueAt, at_ns: u128) -> bool {
        due.ceil_ns() <= at_ns || due.floor_ns < at_ns.saturating_add(self.min_sleep_ns().into())
    }

    /// Returns the first instant at which an operation due then [passes](Self::passes).
    fn passes_from_ns(&self, due: DueAt) -> u128 {
        let barely_ns = due.floor_ns.saturating_add(1).saturating_sub(self.min_sleep_ns().into());
        barely_ns.min(due.ceil_ns())
    }

    /// Returns the open timespan: how long ago the next operation could have started. Callers
    /// could catch up on it at this instant; it is zero while they keep up.
    #[must_use]
    pub fn backlog_ns(&self, state: &State, now_ns: u64) -> u64 {
        match state.dispatch.nth(0) {
            Due::At(first) => {
                let gap_ns = u128::from(now_ns).saturating_sub(first.ceil_ns());
                u64::try_from(gap_ns).unwrap_or(u64::MAX)
            }
            Due::AtOnce | Due::Never => 0,
        }
    }

    /// Returns the maximum number of permits at one instant: those that the bound on catching up
    /// lets pile up, and those not worth a sleep.
    fn max(&self) -> u64 {
        match (self.rate().kind(), self.catch_up_ns) {
            (Kind::Unlimited, _) => u64::MAX,
            _ if self.is_one_at_a_time() => 1,
            (Kind::Paced(pace), Some(catch_up_ns)) => {
                let early_ns = u128::from(self.min_sleep_ns()).saturating_add(catch_up_ns.into());
                let parts = pace.to_parts(Exact::at(early_ns)).saturating_sub(1);
                let early = parts.checked_div(pace.period_ns().get().into()).unwrap_or(0);
                let caught_up = pace.permits_in(Exact::at(catch_up_ns.into()));
                u64::try_from(early.max(caught_up).saturating_add(1)).unwrap_or(u64::MAX)
            }
            _ => u64::MAX,
        }
    }

    /// Returns `true` if the mode spaces operations, so that no two permits start together.
    const fn is_one_at_a_time(&self) -> bool {
        matches!(self.mode, Mode::Strict | Mode::Burst(_))
    }

    /// Returns `true` if permits already due, at an earlier rate or by less than a nanosecond,
    /// are more than could pass at once in the long run.
    fn holds_now(&self, state: &State, at_ns: u64, permits: u64) -> bool {
        let last = self.last_due(state, at_ns.into(), permits);
        let passes = matches!(last, Due::At(last) if self.passes(last, at_ns.into()));
        passes && !self.is_one_at_a_time()
    }

    /// Forfeits the time that a call for `permits` at `at_ns` is too late for. Several permits
    /// are as late as the last of them: the time that they take themselves is no lateness.
    fn forfeit(&self, track: &mut Track, at_ns: u128, permits: u64) {
        if let Some(horizon_ns) = self.horizon_ns(track, at_ns, permits) {
            track.forfeit_before(horizon_ns);
        }
    }

    /// Returns the instant before which such a call forfeits all time, if any.
    fn horizon_ns(&self, track: &Track, at_ns: u128, permits: u64) -> Option<u128> {
        let (Due::At(first), Due::At(last)) = (track.nth(0), track.nth(permits.saturating_sub(1)))
        else {
            return None;
        };
        let late_ns = at_ns.saturating_sub(last.ceil_ns());
        let by_mode = match self.mode {
            Mode::Strict => late_ns,
            Mode::Damped { shift } => late_ns.checked_shr(shift.get()).unwrap_or(0),
            Mode::Average | Mode::Batched { .. } | Mode::Burst(_) => 0,
        };
        let forfeited_ns = by_mode.max(self.beyond_bound_ns(first, at_ns));
        (forfeited_ns > 0).then(|| first.ceil_ns().saturating_add(forfeited_ns))
    }

    /// Returns how much further back than the catch-up bound the next operation was due.
    fn beyond_bound_ns(&self, first: DueAt, at_ns: u128) -> u128 {
        let gap_ns = at_ns.saturating_sub(first.ceil_ns());
        self.catch_up_ns.map_or(0, |bound_ns| gap_ns.saturating_sub(bound_ns.into()))
    }

    /// Returns when the last of `permits` may start, for a call at `at_ns`.
    fn last_due(&self, state: &State, at_ns: u128, permits: u64) -> Due {
        let skip = permits.saturating_sub(1);
        match self.horizon_ns(&state.dispatch, at_ns, permits) {
            None => state.dispatch.nth(skip),
            Some(horizon_ns) => {
                let mut track = state.dispatch.clone();
                track.forfeit_before(horizon_ns);
                track.nth(skip)
            }
        }
    }

    /// Returns the first instant from `from_ns` on at which the last of `permits` may start.
    fn opening_ns(&self, state: &State, from_ns: u64, permits: u64) -> Result<u128, Due> {
        let last = |at_ns: u128| match self.last_due(state, at_ns, permits) {
            Due::At(last) => Ok(last),
            other => Err(other),
        };
        let opens_ns = self.passes_from_ns(last(from_ns.into())?).max(from_ns.into());
        // A later call forfeits more, and may find fewer than all of several permits due.
        let holds = |at_ns: u128| last(at_ns).map(|last| self.passes(last, at_ns));
        if permits == 1 || holds(opens_ns)? {
            return Ok(opens_ns);
        }
        first_after(opens_ns, holds)?.ok_or(Due::Never)
    }

    /// Returns the end of a batched call's sleep, which is worth it and so taken in full: when its
    /// last permit is due, but not so late that the first would be beyond catching up.
    fn end_of_sleep_ns(&self, state: &State, from_ns: u64, permits: u64) -> u128 {
        let (Due::At(first), Due::At(last)) = (
            self.last_due(state, from_ns.into(), 1),
            self.last_due(state, from_ns.into(), permits),
        ) else {
            return 0;
        };
        let latest_ns = self
            .catch_up_ns
            .map_or(u128::MAX, |catch_up_ns| first.ceil_ns().saturating_add(catch_up_ns.into()));
        last.ceil_ns().min(latest_ns)
    }

    /// Returns how far behind the clock the next operation may lie before time is forfeited.
    const fn patience_ns(&self) -> Option<u64> {
        match self.mode {
            Mode::Average | Mode::Batched { .. } | Mode::Burst(_) => self.catch_up_ns,
            Mode::Damped { .. } | Mode::Strict => Some(0),
        }
    }

    /// Returns one step of the gate in burst mode, as whole nanoseconds, a remainder and its
    /// divisor.
    pub(crate) fn step(&self, pace: Pace) -> Option<(u128, u128, u128)> {
        let Mode::Burst(ratio) = self.mode else { return None };
        let time = u128::from(pace.period_ns().get()).checked_mul(ratio.denominator().get().into());
        let parts = u128::from(pace.permits().get()).checked_mul(ratio.numerator().get().into());
        let (time, parts) = (time?, parts?);
        Some((time.checked_div(parts)?, time.checked_rem(parts)?, parts))
    }

    fn pace(&self) -> Option<Pace> {
        match self.rate().kind() {
            Kind::Paced(pace) => Some(pace),
            Kind::Never | Kind::Unlimited => None,
        }
    }

    /// Sets the gate in burst mode: the next operation starts at least a step after this one.
    fn close_gate(&self, state: &mut State, start_ns: u64) {
        let Mode::Burst(ratio) = self.mode else { return };
        if let Some(slice_ns) = state.dispatch.slice_on_ramp_ns() {
            let step_ns =
                mul_div_ceil(slice_ns, ratio.denominator().get(), ratio.numerator().get().into());
            state.gate_ns = u128::from(start_ns).saturating_add(step_ns.unwrap_or(u128::MAX));
            state.unpaid = 0;
            return;
        }
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

/// A state without remains of an earlier schedule, in plain numbers that a lock-free state can
/// hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    /// The instant at which the next operation should start; `dispatch` is when it may.
    pub(crate) ideal: Exact,
    pub(crate) dispatch: Exact,
    pub(crate) gate_ns: u128,
    pub(crate) unpaid: u128,
}

impl TwoTimeline {
    /// Returns the pace of a constant rate.
    pub(crate) const fn constant_pace(&self) -> Option<Pace> {
        match self.schedule.0 {
            Form::Constant(rate) => rate.pace(),
            Form::Ramp(_) => None,
        }
    }

    /// Returns the state in plain numbers, if nothing of an earlier schedule remains in it.
    pub(crate) fn plain(&self, state: &State) -> Option<Plain> {
        let pace = self.constant_pace()?;
        let (ideal, dispatch) =
            (state.ideal.as_ref()?.next_at(pace)?, state.dispatch.next_at(pace)?);
        Some(Plain { ideal, dispatch, gate_ns: state.gate_ns, unpaid: state.unpaid })
    }

    /// Returns the state with these numbers, on a schedule in force since `since_ns`.
    pub(crate) fn state_of(&self, since_ns: u64, plain: Plain) -> State {
        let track = |next| Track::going_on(self.schedule, since_ns, next);
        let Plain { ideal, dispatch, gate_ns, unpaid } = plain;
        State { ideal: Some(track(ideal)), dispatch: track(dispatch), gate_ns, unpaid }
    }
}

impl TwoTimeline {
    /// Returns how many operations of a grant can come back to the schedule.
    fn permits_back(&self, state: &State, refund: Refund) -> u64 {
        if self.schedule == Schedule::constant(Rate::UNLIMITED) {
            return refund.permits;
        }
        let Some(pace) = self.constant_pace().filter(|_| refund.returned.is_some()) else {
            return 0;
        };
        let ideal = state.ideal.as_ref().unwrap_or(&state.dispatch);
        let tracks = (ideal.next_at(pace), state.dispatch.next_at(pace));
        let (Some(_), Some(next)) = tracks else { return 0 };
        match (self.patience_ns(), refund.busy_until_ns) {
            (None, _) => refund.permits,
            (_, 0) => 0,
            (Some(patience_ns), busy_until_ns) => {
                let taken = pace.time_of(refund.granted);
                let behind = pace.add(Exact::at(busy_until_ns.into()), taken);
                let at = pace.add(next, Exact::at(patience_ns.into()));
                refund.permits_behind(pace, at, behind)
            }
        }
    }

    /// Returns how many operations can be caught up on, at a rate that has not changed since they
    /// were taken.
    fn most_back(&self, state: &State, now_ns: u64) -> u64 {
        let Some(pace) = self.constant_pace() else { return 0 };
        let from_ns =
            self.patience_ns().map_or(0, |patience_ns| now_ns.saturating_sub(patience_ns));
        let dispatch = state.dispatch.max_retreat(pace, from_ns.into());
        state.ideal.as_ref().map_or(dispatch, |ideal| dispatch.min(ideal.max_retreat(pace, 0)))
    }
}

impl Policy for TwoTimeline {
    type State = State;

    fn fresh(&self, now_ns: u64) -> State {
        let track = Track::new(self.schedule, now_ns);
        let ideal = (!self.is_batched()).then(|| track.clone());
        State { ideal, dispatch: track, gate_ns: 0, unpaid: 0 }
    }

    fn keeps_schedule(&self) -> bool {
        !self.is_one_at_a_time()
    }

    fn most_late_ns(&self) -> Option<u64> {
        self.catch_up_ns
    }

    fn opening(
        &self,
        state: &State,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        let max = self.max();
        if permits.get() > max && !self.holds_now(state, from_ns, permits.get()) {
            return Err(Refusal::exceeds(permits, max));
        }
        let opens_ns = match self.opening_ns(state, from_ns, permits.get()) {
            Ok(opens_ns) => opens_ns.max(state.gate_ns),
            Err(Due::AtOnce) => {
                let scheduled_ns = state.ideal.is_some().then_some(from_ns);
                return Ok(Opening { start_ns: from_ns, opens_ns: from_ns, scheduled_ns });
            }
            Err(_) => return Err(Refusal::TimeCannotHelp),
        };
        let Some(ideal) = &state.ideal else {
            let opens_ns = on_clock(opens_ns, from_ns)?;
            let start_ns = if opens_ns > from_ns {
                let end_ns = self.end_of_sleep_ns(state, from_ns, permits.get());
                on_clock(end_ns, from_ns)?.max(opens_ns)
            } else {
                opens_ns
            };
            return Ok(Opening { start_ns, opens_ns, scheduled_ns: None });
        };
        let ideal = ideal.nth(permits.get().saturating_sub(1));
        let start_ns = on_clock(opens_ns.max(from_ns.into()), from_ns)?;
        let scheduled_ns = match ideal {
            Due::At(ideal) => u64::try_from(ideal.floor_ns).unwrap_or(start_ns).min(start_ns),
            Due::AtOnce | Due::Never => start_ns,
        };
        Ok(Opening { start_ns, opens_ns: start_ns, scheduled_ns: Some(scheduled_ns) })
    }

    fn take(&self, state: &mut State, grant: Taken) {
        self.forfeit(&mut state.dispatch, grant.start_ns.into(), grant.permits.get());
        state.advance(grant.permits.get());
        self.close_gate(state, grant.start_ns);
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        let now = u128::from(now_ns);
        let first = match state.dispatch.nth(0) {
            Due::At(first) => first,
            Due::AtOnce => return u64::MAX,
            Due::Never => return 0,
        };
        if !self.passes(first, now) || state.gate_ns > now {
            return 0;
        }
        let mut track = state.dispatch.clone();
        // The last of the due operations is not late, so only the bound forfeits any time.
        track.forfeit_before(first.ceil_ns().saturating_add(self.beyond_bound_ns(first, now)));
        if self.is_one_at_a_time() {
            return 1;
        }
        let early_ns = now.saturating_add(self.min_sleep_ns().into());
        let due = track.due_by(early_ns);
        // Exactly `min_sleep` early is worth the sleep. Only one operation can be, and it is the
        // last.
        let exactly = Due::At(DueAt { floor_ns: early_ns, between: false });
        let is_early = early_ns > now && track.nth(due.saturating_sub(1)) == exactly;
        due.saturating_sub(is_early.into()).max(1)
    }

    fn slack_ns(&self) -> u64 {
        match self.mode {
            Mode::Average | Mode::Batched { .. } => self.catch_up_ns.unwrap_or(u64::MAX),
            Mode::Damped { .. } | Mode::Strict | Mode::Burst(_) => 0,
        }
    }

    /// Returns when the operation that the grant takes lies too far back: without the grant, no
    /// time is forfeited before.
    fn busy_until_ns(&self, state: &State, grant: Taken) -> u64 {
        let Some(patience_ns) = self.patience_ns() else { return u64::MAX };
        // Lateness is that of the last permit: with fewer permits it would have been later, and
        // would have forfeited more.
        let by_last = matches!(self.mode, Mode::Strict | Mode::Damped { .. });
        if by_last && grant.permits.get() > 1 {
            return 0;
        }
        // On the rest of an earlier rate, an operation takes another time.
        let next = self.constant_pace().and_then(|pace| state.dispatch.next_at(pace));
        let Some(next) = next else { return 0 };
        let horizon_ns =
            self.horizon_ns(&state.dispatch, grant.start_ns.into(), grant.permits.get());
        let next_ns = horizon_ns.unwrap_or(0).max(next.ns);
        u64::try_from(next_ns).unwrap_or(u64::MAX).saturating_add(patience_ns)
    }

    /// Returns operations to the schedule. Where steps are spaced, the next one still keeps its
    /// distance from the last start.
    fn correct(&self, state: &mut State, correction: Correction) -> Option<u64> {
        let back = match correction {
            Correction::Back(refund) => self.permits_back(state, refund),
            Correction::Credit { now_ns, permits } => permits.min(self.most_back(state, now_ns)),
            _ => return None,
        };
        if self.constant_pace().is_some() {
            state.tracks().for_each(|track| track.retreat(back));
        }
        Some(back)
    }

    fn rebase(&self, state: &mut State, old: &Self, now_ns: u64) {
        let now = u128::from(now_ns);
        if self.schedule != old.schedule {
            state.tracks().for_each(|track| track.change(self.schedule, now));
        }
        state.ideal = match state.ideal.take() {
            _ if self.is_batched() => None,
            // Whatever was forfeited in batches is so in both.
            ideal => ideal.or_else(|| Some(state.dispatch.clone())),
        };
        // The rest of the last step is scaled to a step at the new numbers.
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

#[cfg(feature = "serde")]
impl Portable for TwoTimeline {
    type Saved = State;

    fn save(&self, state: &State, _now_ns: u64) -> State {
        state.clone()
    }

    fn load(&self, saved: State, since: Shift) -> Result<State, SavedError> {
        if saved.ideal.is_some() == self.is_batched() {
            return Err(SavedError::Malformed);
        }
        let ideal = saved.ideal.map(|ideal| ideal.moved(self.schedule, since)).transpose()?;
        let dispatch = saved.dispatch.moved(self.schedule, since)?;
        // A gate from before the clock's zero has paid a little less of its fraction.
        let gate_ns = since.instant_ns(saved.gate_ns);
        Ok(State { ideal, dispatch, gate_ns, ..saved })
    }
}
