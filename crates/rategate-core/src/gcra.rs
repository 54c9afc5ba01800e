//! The generic cell rate algorithm (GCRA): a continuous token bucket whose whole memory is one
//! instant.
//!
//! The state is the *theoretical arrival time* (TAT): the instant by which everything granted so
//! far will have been earned at the rate. Each permit moves it one permit's time later. A request
//! passes while that leaves the TAT within a burst of now.
//!
//! ```text
//!      now                  TAT         now + burst
//!  -----+--------------------+---------------+-----> time
//!       |<- not yet earned ->|<- available ->|
//! ```
//!
//! # Contract
//!
//! * **Units.** Instants and lengths are nanoseconds; the TAT keeps the fraction of one exactly.
//! * **Ceiling.** Any half-open window of `W` ns sees at most `ceil((W + tau) / T)` permits, with
//!   `T` one permit's time and `tau = (burst - 1) T` (docs/theory.md, section 1.1; ITU-T I.371).
//! * **Starts.** The ceiling holds for real starts (the default), and for promised instants where
//!   a schedule promises instants.
//! * **Retry.** Exact: one nanosecond sooner the request is still denied.
//! * **Clock.** Going backwards denies more, never less; at the end of 64 bits nothing wraps.
//! * **Rounding.** Instants round up, against the caller, and never accumulate: a promised start
//!   keeps its fraction. Only a full bucket drops what it cannot hold.
//! * **Refund.** Exact while the bucket would not have been full without those permits: until
//!   `(burst - remaining)` permits' time after the grant, less their own. The newest grant comes
//!   back exactly at any time. Of older ones only what time has not made up for comes back.
//! * **Charge.** Moves the TAT on by the permits' time, past the burst. A debt of `d` permits is
//!   earned back in their time.
//! * **Change.** What is left stays left, to a fraction of a permit, as far as the new burst holds
//!   it; a debt stays as many permits. From then on the new rate holds.
//! * **Cost.** 64 bytes; a decision is a few additions, and one division for several permits.
//!
//! # Example
//!
//! ```
//! use core::num::NonZeroU64;
//! use rategate_core::gcra::Gcra;
//! use rategate_core::ledger::Ledger;
//! use rategate_core::verdict::{Denial, Verdict};
//!
//! // Two permits per second, one at a time.
//! let mut limit = Ledger::new(Gcra::per_second(2), 0);
//! assert!(matches!(limit.try_acquire(0, 1)?, Verdict::Granted(_)));
//! let retry_after_ns = NonZeroU64::new(400_000_000);
//! assert_eq!(limit.try_acquire(100_000_000, 1)?, Verdict::Denied(Denial { retry_after_ns }));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::num::NonZeroU64;

use crate::debt::Charge;
use crate::error::{LimitError, or_panic};
use crate::exact::{Exact, Pace};
use crate::policy::{Bucket, Correction, Policy, Taken};
#[cfg(feature = "serde")]
use crate::portable::{Portable, SavedError, Shift};
use crate::rate::{Kind, Rate};
use crate::refund::Refund;
use crate::verdict::{Opening, Refusal, on_clock};

/// A rate and the burst that may pass at one instant after a long silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Gcra {
    rate: Rate,
    burst: NonZeroU64,
}

/// The state of one bucket: what has been used so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    tat: Exact,
    /// The pace in which `tat` counts its fraction.
    pace: Pace,
    /// The instant since which nothing has been earned, because the rate is never.
    frozen_at_ns: Option<u64>,
}

impl State {
    /// Returns the state of a bucket with this TAT.
    pub(crate) const fn with_tat(tat: Exact, pace: Pace) -> Self {
        Self { tat, pace, frozen_at_ns: None }
    }

    /// Returns the pace of a bucket that earns something.
    pub(crate) fn pace_if_running(&self) -> Option<Pace> {
        self.frozen_at_ns.is_none().then_some(self.pace)
    }

    pub(crate) const fn tat(&self) -> Exact {
        self.tat
    }

    /// Returns `true` if the grant continues from the exact TAT instead of its start rounded up.
    ///
    /// A promise does: it starts at its exact instant, which the clock shows rounded up. Any
    /// other grant starts at its own instant: a bucket that was full by then could hold no more.
    fn goes_on_for(&self, grant: Taken) -> bool {
        grant.is_promise() && self.tat.rounds_up_to_at_least(grant.start_ns.into())
    }
}

impl Gcra {
    /// Creates a limit of at most `burst` permits at once, earned back at `rate`.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPermits`] if `burst` is zero.
    pub const fn new(rate: Rate, burst: u64) -> Result<Self, LimitError> {
        match NonZeroU64::new(burst) {
            Some(burst) => Ok(Self { rate, burst }),
            None => Err(LimitError::ZeroPermits),
        }
    }

    /// Creates a limit of one permit at once, earned back at `rate`: starts are evenly spaced.
    #[must_use]
    pub const fn spaced(rate: Rate) -> Self {
        Self { rate, burst: NonZeroU64::MIN }
    }

    /// Creates a limit of `permits` per second, one at once unless [`burst`](Self::burst) allows
    /// more.
    ///
    /// ```
    /// use rategate_core::gcra::Gcra;
    ///
    /// const UPLOADS: Gcra = Gcra::per_second(10).burst(20);
    /// assert_eq!(UPLOADS, "10/s burst 20".parse()?);
    /// # Ok::<(), rategate_core::error::PolicyTextError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `permits` is zero. Numbers from outside are for [`new`](Self::new).
    #[must_use]
    #[track_caller]
    pub const fn per_second(permits: u64) -> Self {
        Self::spaced(Rate::per_second(permits))
    }

    /// Creates a limit of `permits` per minute, one at once unless [`burst`](Self::burst) allows
    /// more.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is zero.
    #[must_use]
    #[track_caller]
    pub const fn per_minute(permits: u64) -> Self {
        Self::spaced(Rate::per_minute(permits))
    }

    /// Creates a limit of `permits` per hour, one at once unless [`burst`](Self::burst) allows
    /// more.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is zero.
    #[must_use]
    #[track_caller]
    pub const fn per_hour(permits: u64) -> Self {
        Self::spaced(Rate::per_hour(permits))
    }

    /// Creates a limit of `permits` per day of 24 hours, one at once unless
    /// [`burst`](Self::burst) allows more.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is zero.
    #[must_use]
    #[track_caller]
    pub const fn per_day(permits: u64) -> Self {
        Self::spaced(Rate::per_day(permits))
    }

    /// Allows up to `permits` at one instant, after a silence long enough to earn them.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is zero.
    #[must_use]
    #[track_caller]
    pub const fn burst(self, permits: u64) -> Self {
        or_panic(Self::new(self.rate, permits))
    }

    /// Returns the rate at which permits are earned back.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns the maximum number of permits at one instant.
    #[must_use]
    pub const fn burst_size(&self) -> NonZeroU64 {
        self.burst
    }
}

/// The time whose permits make a batch, if the burst allows.
const BATCH_NS: u64 = 50_000;
const MAX_BATCH: u64 = 1_024;

impl Gcra {
    /// Returns the number of permits that a thread should take at a time, to use them one by one:
    /// those of 50 us at the rate, at most a 64th of the burst and `MAX_BATCH`, and at least one.
    ///
    /// A few threads with full batches therefore leave the burst nearly whole.
    pub(crate) fn batch(&self) -> u64 {
        let Kind::Paced(pace) = self.rate.kind() else { return 1 };
        let brought = pace.permits_in(Exact::at(BATCH_NS.into()));
        let brought = u64::try_from(brought).unwrap_or(u64::MAX);
        brought.min(self.burst.get() >> 6).clamp(1, MAX_BATCH)
    }
}

impl Gcra {
    fn take_back(&self, state: &mut State, refund: Refund) -> u64 {
        let pace = match self.rate.kind() {
            Kind::Paced(pace) => pace,
            Kind::Unlimited => return refund.permits,
            Kind::Never => return 0,
        };
        let found = Exact::at(refund.busy_until_ns.into());
        let behind = pace.add(found, pace.time_of(refund.granted));
        let permits = refund.permits_behind(pace, state.tat, behind);
        state.tat = pace.sub(state.tat, pace.time_of(permits));
        permits
    }

    /// Fills the bucket, at most until it is full. At the rate never the debt stands still, and
    /// only credits reduce it.
    fn credit(&self, state: &mut State, now_ns: u64, permits: u64) -> u64 {
        if self.rate == Rate::UNLIMITED {
            return 0;
        }
        let (pace, now) = (state.pace, Exact::at(state.frozen_at_ns.unwrap_or(now_ns).into()));
        let debt = pace.sub(state.tat, now);
        let missing = u64::try_from(pace.permits_begun_in(debt)).unwrap_or(u64::MAX);
        let back = permits.min(missing);
        if back > 0 {
            state.tat = pace.add(now, pace.sub(debt, pace.time_of(back)));
        }
        back
    }

    /// Moves the TAT on. It stays within the longest debt, which is 584 years without a bound.
    fn charge(&self, state: &mut State, charge: Charge) -> u64 {
        let Charge { now_ns, permits, debt } = charge;
        if self.rate == Rate::UNLIMITED {
            return permits;
        }
        let (pace, now) = (state.pace, Exact::at(state.frozen_at_ns.unwrap_or(now_ns).into()));
        let tat = state.tat.max(now);
        let last = pace.add(now, pace.time_of(self.burst.get()));
        let last = pace.add(last, Exact::at(debt.max_ns().into()));
        let room = u64::try_from(pace.permits_in(pace.sub(last, tat))).unwrap_or(u64::MAX);
        let booked = permits.min(room);
        if booked > 0 {
            state.tat = pace.add(tat, pace.time_of(booked));
        }
        booked
    }
}

impl Policy for Gcra {
    type State = State;

    fn fresh(&self, now_ns: u64) -> State {
        let (pace, frozen_at_ns) = match self.rate.kind() {
            Kind::Paced(pace) => (pace, None),
            Kind::Unlimited => (Pace::new(NonZeroU64::MIN, NonZeroU64::MIN), None),
            Kind::Never => (Pace::new(NonZeroU64::MIN, NonZeroU64::MIN), Some(now_ns)),
        };
        State { tat: Exact::at(now_ns.into()), pace, frozen_at_ns }
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
        let Some(leftover) = self.burst.get().checked_sub(permits.get()) else {
            return Err(Refusal::exceeds(permits, self.burst.get()));
        };
        if state.frozen_at_ns.is_some() {
            return Err(Refusal::TimeCannotHelp);
        }
        // The request passes at `s` if tat + permits <= s + burst.
        let opens = state.pace.sub(state.tat, state.pace.time_of(leftover)).ceil();
        on_clock(opens.max(from_ns.into()), from_ns).map(Opening::at)
    }

    fn take(&self, state: &mut State, grant: Taken) {
        let start = Exact::at(grant.start_ns.into());
        let keeps_fraction = state.goes_on_for(grant);
        let earned_by = if keeps_fraction { state.tat } else { state.tat.max(start) };
        state.tat = state.pace.add(earned_by, state.pace.time_of(grant.permits.get()));
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        match self.rate.kind() {
            Kind::Unlimited => u64::MAX,
            Kind::Never => 0,
            Kind::Paced(pace) => {
                let owed = pace.sub(state.tat, Exact::at(now_ns.into()));
                let free = pace.sub(pace.time_of(self.burst.get()), owed);
                u64::try_from(pace.permits_in(free)).unwrap_or(u64::MAX)
            }
        }
    }

    fn slack_ns(&self) -> u64 {
        match self.rate.kind() {
            Kind::Paced(pace) => {
                let tolerance = pace.time_of(self.burst.get().saturating_sub(1));
                u64::try_from(tolerance.ns).unwrap_or(u64::MAX)
            }
            Kind::Never | Kind::Unlimited => 0,
        }
    }

    /// Returns the TAT that the grant finds: without the grant, the bucket could not be full
    /// before it.
    fn busy_until_ns(&self, state: &State, grant: Taken) -> u64 {
        let tat_ns = u64::try_from(state.tat.ns).unwrap_or(u64::MAX);
        // A promise continues from the fraction that its start was rounded up from.
        if state.goes_on_for(grant) { tat_ns } else { tat_ns.max(grant.start_ns) }
    }

    fn correct(&self, state: &mut State, correction: Correction) -> Option<u64> {
        match correction {
            Correction::Back(refund) => Some(self.take_back(state, refund)),
            Correction::Credit { now_ns, permits } => Some(self.credit(state, now_ns, permits)),
            Correction::Charge(charge) => Some(self.charge(state, charge)),
            Correction::End(_) | Correction::Refill { .. } => None,
        }
    }

    fn is_bucket(&self) -> bool {
        true
    }

    fn bucket(&self, state: &State) -> Option<Bucket> {
        match self.rate.kind() {
            Kind::Paced(pace) => Some(Bucket { tat: state.tat, pace }),
            Kind::Never | Kind::Unlimited => None,
        }
    }

    fn set_bucket(&self, state: &mut State, bucket: Bucket) {
        state.tat = bucket.tat;
    }

    fn debt(&self, state: &State, now_ns: u64) -> u64 {
        if self.rate == Rate::UNLIMITED {
            return 0;
        }
        let (pace, now) = (state.pace, Exact::at(state.frozen_at_ns.unwrap_or(now_ns).into()));
        let over = pace.sub(pace.sub(state.tat, now), pace.time_of(self.burst.get()));
        u64::try_from(pace.permits_begun_in(over)).unwrap_or(u64::MAX)
    }

    fn debt_ends_ns(&self, state: &State, from_ns: u64) -> Option<u64> {
        if self.debt(state, from_ns) == 0 {
            return Some(from_ns);
        }
        let pace = state.pace_if_running()?;
        pace.sub(state.tat, pace.time_of(self.burst.get())).ceil().try_into().ok()
    }

    /// Returns the TAT, at which the bucket is full. A full bucket that earns nothing stays full.
    fn fresh_at_ns(&self, state: &State) -> Option<u64> {
        match (self.rate.kind(), state.frozen_at_ns) {
            (Kind::Unlimited, _) => Some(0),
            (Kind::Paced(_), None) => state.tat.ceil().try_into().ok(),
            (Kind::Never, Some(since_ns)) => (state.tat <= Exact::at(since_ns.into())).then_some(0),
            (Kind::Paced(_), Some(_)) | (Kind::Never, None) => None,
        }
    }

    fn rebase(&self, state: &mut State, old: &Self, now_ns: u64) {
        let now = Exact::at(now_ns.into());
        if let Some(since_ns) = state.frozen_at_ns.take() {
            let frozen_ns = u128::from(now_ns.saturating_sub(since_ns));
            state.tat.ns = state.tat.ns.saturating_add(frozen_ns);
        }
        if old.rate == Rate::UNLIMITED {
            state.tat = now;
        }
        let new_pace = match self.rate.kind() {
            Kind::Paced(pace) => pace,
            Kind::Never | Kind::Unlimited => state.pace,
        };
        let in_use = state.pace.rescale(state.pace.sub(state.tat, now), new_pace);
        // What is left stays left, as far as the new burst holds it. A bucket that was unlimited
        // has all of that.
        let (was, is) = (old.burst.get(), self.burst.get());
        let was = if old.rate == Rate::UNLIMITED { is } else { was };
        let more = new_pace.add(in_use, new_pace.time_of(is.saturating_sub(was)));
        let in_use = new_pace.sub(more, new_pace.time_of(was.saturating_sub(is)));
        state.tat = new_pace.add(now, in_use);
        state.pace = new_pace;
        state.frozen_at_ns = (self.rate == Rate::NEVER).then_some(now_ns);
    }
}

#[cfg(feature = "serde")]
impl Portable for Gcra {
    /// The TAT; or, at the rate never, the debt, which stands still, and the pace in which it
    /// counts.
    type Saved = (Exact, Option<Pace>);

    fn save(&self, state: &State, _now_ns: u64) -> Self::Saved {
        let State { tat, pace, frozen_at_ns } = *state;
        match frozen_at_ns {
            None => (tat, None),
            Some(since_ns) => (pace.sub(tat, Exact::at(since_ns.into())), Some(pace)),
        }
    }

    fn load(&self, saved: Self::Saved, since: Shift) -> Result<State, SavedError> {
        let now_ns = since.now_ns();
        Ok(match (self.rate.kind(), saved) {
            (Kind::Unlimited, _) => self.fresh(now_ns),
            (Kind::Paced(pace), (tat, None)) => State::with_tat(since.exact(tat, pace)?, pace),
            (Kind::Never, (debt, Some(pace))) if debt.is_in(pace) => {
                let tat = pace.add(Exact::at(now_ns.into()), debt);
                State { tat, pace, frozen_at_ns: Some(now_ns) }
            }
            _ => return Err(SavedError::Malformed),
        })
    }
}
