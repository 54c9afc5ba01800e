//! Batched average pacing: operations run back to back until enough delay has added up to be
//! worth a sleep, and errors of a sleep are carried into the next one.
//!
//! Operation `k` is due at `start + k / rate`. A call that is less than `min_sleep` early passes at
//! once; any other sleeps until its operation is due.
//!
//! ```text
//!   due   |  |  |  |  |  |  |  |  |  |          2000/s, min_sleep 1 ms
//!   done  @@ zzzzzz@@zzzzzz@@zzzzzz@@           two at a time, a sleep of 1 ms between
//!   ------+--------+--------+-------> time
//! ```
//!
//! # Contract
//!
//! * **Ceiling.** Any half-open window of `W` ns sees at most
//!   `ceil((W + catch_up + min_sleep) / T)` permits, with `T` one permit's time (docs/theory.md,
//!   section 1.4). It is an average limiter and promises nothing stricter: see
//!   [`two_timeline`](crate::two_timeline) for spacing, and [`sliding_log`](crate::sliding_log)
//!   for windows.
//! * **Starts.** The ceiling holds for real starts (the default), and for promised instants where
//!   a schedule promises instants.
//! * **Catch-up.** A caller that falls behind by more than `catch_up` forfeits the rest of the
//!   gap. `None` is the operation throttle's own behaviour: all lost time is made up for
//!   eventually, at full speed.
//! * **Carry.** A sleep that ends early or late shortens or lengthens the next: due instants are
//!   absolute and exact.
//! * **Retry.** Exact: the first instant at which the call is less than `min_sleep` early.
//! * **Refund.** Everything without a bound on catching up. With a bound, exactly until some time
//!   would have been forfeited without those permits, and the newest grant at any time. None
//!   across a change.
//! * **Two forms.** A caller that requests before its operation passes at once the first time.
//!   Waiting after the operation (the operation throttle's `Wait()`) is equal to that with the
//!   first permit taken at the start: [`Pacer::fresh_after`].
//! * **Cost.** A few words; a decision is a few additions.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate_core::ledger::Ledger;
//! use rategate_core::pacer::Pacer;
//! use rategate_core::verdict::Verdict;
//!
//! let second = Duration::from_secs(1);
//! let pacer = Pacer::new("2000/s".parse()?, Duration::from_millis(1), Some(second));
//! let mut limit = Ledger::new(pacer, 0);
//! let starts = [0; 4].map(|now_ns| match limit.reserve(now_ns, 1, None) {
//!     Ok(Verdict::Granted(grant)) => grant.start_ns,
//!     other => unreachable!("{other:?}"),
//! });
//! assert_eq!(starts, [0, 0, 1_000_000, 1_000_000], "two at a time");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::num::NonZeroU64;
use core::time::Duration;

use crate::exact::Exact;
use crate::policy::{Policy, Taken};
use crate::portable::{Portable, Reader, WordsError, Writer, tag};
use crate::rate::{Kind, Rate};
use crate::refund::Refund;
use crate::schedule::Schedule;
use crate::schedule::track::{Due, DueAt, Track};
use crate::search::first_after;
use crate::span::whole_ns;
use crate::verdict::{Opening, Refusal, on_clock};

/// The default shortest sleep: that of the operation throttle.
pub const DEFAULT_MIN_SLEEP_NS: u64 = 10_000_000;
/// The default bound on catching up: one second's worth of operations.
pub const DEFAULT_CATCH_UP_NS: u64 = 1_000_000_000;

/// A rate, the shortest sleep worth taking, and a bound on catching up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacer {
    rate: Rate,
    min_sleep_ns: u64,
    catch_up_ns: Option<u64>,
}

/// The state of a pacer: when the next operation is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    track: Track,
}

impl Pacer {
    /// Creates a pacer of `rate` on average, in batches worth at least `min_sleep`, catching up at
    /// most `catch_up` (`None`: everything). Beyond 584 years both are that long.
    #[must_use]
    pub const fn new(rate: Rate, min_sleep: Duration, catch_up: Option<Duration>) -> Self {
        let catch_up_ns = match catch_up {
            Some(catch_up) => Some(whole_ns(catch_up)),
            None => None,
        };
        Self { rate, min_sleep_ns: whole_ns(min_sleep), catch_up_ns }
    }

    /// Returns the average rate.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns the shortest sleep worth taking, in nanoseconds.
    #[must_use]
    pub const fn min_sleep_ns(&self) -> u64 {
        self.min_sleep_ns
    }

    /// Returns the bound on catching up, in nanoseconds, if there is one.
    #[must_use]
    pub const fn catch_up_ns(&self) -> Option<u64> {
        self.catch_up_ns
    }

    /// Returns the state for callers that wait *after* each operation: the first operation has
    /// had its permit at `now_ns`.
    #[must_use]
    pub fn fresh_after(&self, now_ns: u64) -> State {
        let mut state = self.fresh(now_ns);
        state.track.advance(1);
        state
    }

    /// Returns the maximum number of permits that can pass at one instant: those that the
    /// catch-up bound lets pile up, and those not worth a sleep.
    fn max(&self) -> u64 {
        let (Kind::Paced(pace), Some(catch_up_ns)) = (self.rate.kind(), self.catch_up_ns) else {
            return u64::MAX;
        };
        let early_ns = u128::from(self.min_sleep_ns).saturating_add(catch_up_ns.into());
        let parts = pace.to_parts(Exact::at(early_ns)).saturating_sub(1);
        let early = parts.checked_div(pace.period_ns().get().into()).unwrap_or(0);
        let caught_up = pace.permits_in(Exact::at(catch_up_ns.into()));
        u64::try_from(early.max(caught_up).saturating_add(1)).unwrap_or(u64::MAX)
    }

    /// Forfeits the time that a call at `at_ns` is too late to catch up on.
    fn forfeit(&self, state: &mut State, at_ns: u64) {
        if let Some(catch_up_ns) = self.catch_up_ns
            && let Some(bound_ns) = at_ns.checked_sub(catch_up_ns)
        {
            state.track.forfeit_before(bound_ns.into());
        }
    }

    /// Returns `true` if a call at `at_ns` has time to forfeit.
    fn is_too_late(&self, first: DueAt, at_ns: u64) -> bool {
        let bound_ns = self.catch_up_ns.and_then(|catch_up_ns| at_ns.checked_sub(catch_up_ns));
        bound_ns.is_some_and(|bound_ns| first.ceil_ns() < bound_ns.into())
    }

    /// Returns when the first and the last of `permits` are due for a call at `at_ns`.
    fn due(&self, state: &State, at_ns: u64, permits: u64) -> Result<(DueAt, DueAt), Due> {
        let both = |track: &Track| match (track.nth(0), track.nth(permits.saturating_sub(1))) {
            (Due::At(first), Due::At(last)) => Ok((first, last)),
            (other, Due::At(_)) | (_, other) => Err(other),
        };
        let (first, last) = both(&state.track)?;
        if !self.is_too_late(first, at_ns) {
            return Ok((first, last));
        }
        let mut state = state.clone();
        self.forfeit(&mut state, at_ns);
        both(&state.track)
    }

    /// Returns the first instant from `from_ns` on at which the call passes without a sleep. At
    /// `from_ns` its last permit is due at `due`.
    fn opens_ns(
        &self,
        state: &State,
        from_ns: u64,
        permits: u64,
        due: DueAt,
    ) -> Result<u64, Refusal> {
        let barely_early = due.floor_ns.saturating_add(1).saturating_sub(self.min_sleep_ns.into());
        let opens_ns = on_clock(barely_early.min(due.ceil_ns()).max(from_ns.into()), from_ns)?;
        // A later call may forfeit more, and find fewer than all of several permits due.
        let holds = |at_ns: u128| {
            let at_ns = on_clock(at_ns, from_ns)?;
            let due = self.due(state, at_ns, permits);
            Ok(due.is_ok_and(|(_, due)| self.passes(due, at_ns)))
        };
        if permits == 1 || holds(opens_ns.into())? {
            return Ok(opens_ns);
        }
        let later_ns = first_after(opens_ns.into(), holds)?;
        later_ns.map_or(Err(Refusal::TimeCannotHelp), |later_ns| on_clock(later_ns, from_ns))
    }

    /// Returns `true` if a call at `at_ns` passes without a sleep.
    fn passes(&self, due: DueAt, at_ns: u64) -> bool {
        let worth_sleeping_ns = u128::from(at_ns).saturating_add(self.min_sleep_ns.into());
        due.ceil_ns() <= at_ns.into() || due.floor_ns < worth_sleeping_ns
    }
}

impl Policy for Pacer {
    type State = State;

    fn fresh(&self, now_ns: u64) -> State {
        State { track: Track::new(Schedule::constant(self.rate), now_ns) }
    }

    fn keeps_schedule(&self) -> bool {
        true
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
        let (first, due) = match self.due(state, from_ns, permits.get()) {
            Ok((_, due)) if self.passes(due, from_ns) => return Ok(Opening::at(from_ns)),
            Err(Due::AtOnce) => return Ok(Opening::at(from_ns)),
            // Permits already due at an earlier rate have passed by now: more than `max` of them
            // never add up again.
            _ if permits.get() > self.max() => {
                return Err(Refusal::exceeds(permits, self.max()));
            }
            Ok(both) => both,
            Err(_) => return Err(Refusal::TimeCannotHelp),
        };
        let opens_ns = self.opens_ns(state, from_ns, permits.get(), due)?;
        // The sleep is worth it, so it is taken in full. It must not be so long that the first
        // permit would be beyond catching up.
        let latest_ns = match self.catch_up_ns {
            Some(catch_up_ns) => first.ceil_ns().saturating_add(catch_up_ns.into()),
            None => u128::MAX,
        };
        let start_ns = on_clock(due.ceil_ns().min(latest_ns), from_ns)?.max(opens_ns);
        Ok(Opening { start_ns, opens_ns, scheduled_ns: None })
    }

    fn take(&self, state: &mut State, grant: Taken) {
        self.forfeit(state, grant.start_ns);
        state.track.advance(grant.permits.get());
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        let early_ns = u128::from(now_ns).saturating_add(self.min_sleep_ns.into());
        if let Due::At(first) = state.track.nth(0)
            && self.is_too_late(first, now_ns)
        {
            let mut state = state.clone();
            self.forfeit(&mut state, now_ns);
            return self.remaining(&state, now_ns);
        }
        let mut passing = state.track.due_by(early_ns);
        // Exactly `min_sleep` early is worth the sleep. Only one operation can be, and it is the
        // last.
        let last = passing.checked_sub(1).map(|skip| state.track.nth(skip));
        if self.min_sleep_ns > 0
            && last == Some(Due::At(DueAt { floor_ns: early_ns, between: false }))
        {
            passing = passing.saturating_sub(1);
        }
        passing
    }

    fn slack_ns(&self) -> u64 {
        self.catch_up_ns.unwrap_or(u64::MAX)
    }

    /// Returns when the operation that the grant takes lies too far back to catch up on: without
    /// the grant, no time is forfeited before.
    fn busy_until_ns(&self, state: &State, grant: Taken) -> u64 {
        let Some(catch_up_ns) = self.catch_up_ns else { return u64::MAX };
        // On the rest of an earlier rate, an operation takes another time.
        let Kind::Paced(pace) = self.rate.kind() else { return 0 };
        let Some(next) = state.track.next_at(pace) else { return 0 };
        let until_ns = next.ns.saturating_add(catch_up_ns.into());
        u64::try_from(until_ns).unwrap_or(u64::MAX).max(grant.start_ns)
    }

    fn refund(&self, state: &mut State, refund: Refund) -> u64 {
        let pace = match self.rate.kind() {
            Kind::Paced(pace) => pace,
            Kind::Unlimited => return refund.permits,
            Kind::Never => return 0,
        };
        if refund.returned.is_none() {
            return 0;
        }
        let Some(next) = state.track.next_at(pace) else { return 0 };
        let permits = match (self.catch_up_ns, refund.busy_until_ns) {
            (None, _) => refund.permits,
            (_, 0) => 0,
            (Some(catch_up_ns), until_ns) => {
                let taken = pace.time_of(refund.granted);
                let behind = pace.add(Exact::at(until_ns.into()), taken);
                let at = pace.add(next, Exact::at(catch_up_ns.into()));
                refund.permits_behind(pace, at, behind)
            }
        };
        state.track.retreat(permits);
        permits
    }

    /// Takes back as many as can be caught up on, at a rate that has not changed since they were
    /// taken.
    fn credit(&self, state: &mut State, now_ns: u64, permits: u64) -> u64 {
        let Kind::Paced(pace) = self.rate.kind() else { return 0 };
        let from_ns = self.catch_up_ns.map_or(0, |catch_up_ns| now_ns.saturating_sub(catch_up_ns));
        let back = permits.min(state.track.max_retreat(pace, from_ns.into()));
        state.track.retreat(back);
        back
    }

    fn rebase(&self, state: &mut State, old: &Self, now_ns: u64) {
        if self.rate != old.rate {
            state.track.change(Schedule::constant(self.rate), now_ns.into());
        }
    }
}

impl Portable for Pacer {
    fn tag(&self) -> u16 {
        tag::PACER
    }

    fn write_numbers(&self, words: &mut Writer) {
        words.rate(self.rate);
        words.word(self.min_sleep_ns);
        words.optional(self.catch_up_ns);
    }

    fn read_numbers(tag: u16, words: &mut Reader<'_>) -> Result<Self, WordsError> {
        tag::expect(tag, tag::PACER)?;
        Ok(Self::new(words.rate()?, words.span()?, words.optional_span()?))
    }

    fn write_state(&self, state: &State, words: &mut Writer) {
        state.track.write(words);
    }

    fn read_state(&self, words: &mut Reader<'_>) -> Result<State, WordsError> {
        Ok(State { track: Track::read(words)? })
    }
}
