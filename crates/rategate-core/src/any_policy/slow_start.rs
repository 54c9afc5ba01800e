//! Slow start: a factor on a limit whose permits come with time, for servers that are slow at
//! first.
//!
//! A server that has just started, or has been idle, has empty caches and few connections. A limit
//! with a slow start brings permits at a tenth of its rate at first, and at the whole rate after a
//! period. This is the slow start of Envoy, whose factor here rises in a straight line.
//!
//! ```text
//!   factor
//!        1 |            ___________         the rate of the limit inside
//!          |         _-
//!          |      _-                        permits come as if the limit's clock
//!      0.1 |   _-                           went slowly at first
//!          +---+--------+-----------> time
//!           first     first permit + P
//! ```
//!
//! The limit inside decides by a clock of its own, which goes at the factor. From the end of the
//! ramp on that clock is the true one, so every decision is that of the limit inside.
//!
//! [`WarmUp`](crate::warm_up::WarmUp) is another limit for such servers. It spaces single permits,
//! and each permit warms it. A slow start leaves bursts and windows as they are, and the server is
//! warm by time.
//!
//! # Contract
//!
//! * **Units.** Nanoseconds. The clock of the limit inside shows whole ones, rounded down; the
//!   rounding never adds up.
//! * **Ceiling.** That of the limit inside, in every window: its clock never goes faster than time
//!   (docs/theory.md, section 1.6).
//! * **Ramp.** Permits that take a time `D` to come take the same time by the slow clock. Within
//!   `d` of the first permit it advances by `f d + (1 - f) d^2 / 2P`, with `f` the first factor.
//! * **Begin.** A ramp begins with the first permit, whenever that comes, and with the first one
//!   after a rest. A rest is a period `P` or more without a permit since the limit inside has fully
//!   recovered. Denials and reads begin no ramp, and end no rest.
//! * **Schedules** and pools do not recover by time alone. Their ramp begins once: when the limiter
//!   is made, or the key of a table is first used. So create such a limiter when the work begins.
//!   That of a window anchored at its first grant begins once, with that grant.
//! * **Full at first.** What the limit inside grants at once, it grants at once to a cold server
//!   too: its burst, or all of a window. A burst of 1 leaves the rate alone.
//! * **Starts.** As those of the limit inside.
//! * **Retry.** Exact: one nanosecond sooner the request is still denied.
//! * **Refund.** As the limit inside, for grants of the present ramp and after it. The ramp goes
//!   on, as the server has been in use. What a [hold](crate::holds) has left over comes back as by
//!   a refund.
//! * **Charge.** As the limit inside. The bound on a debt counts by its clock, so that within a
//!   ramp a debt may last longer than that.
//! * **Change.** A ramp that has begun goes on as it began. A new period and first factor hold from
//!   the next ramp on. The limit inside changes as it does alone.
//! * **Restoring.** The ramp goes on. A rest before the clock's zero counts from zero only.
//! * **Clock.** Nothing wraps. A ramp ends with the clock at the latest.
//! * **Cost.** 32 bytes more than the limit inside. In a ramp a product and a division of 128 bits,
//!   and a search of at most 128 such steps for the instant that a denial names.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate_core::gcra::Gcra;
//! use rategate_core::ledger::Ledger;
//! use rategate_core::slow_start::SlowStart;
//! use rategate_core::verdict::Verdict;
//!
//! let slow = SlowStart::new(Gcra::per_second(1), Duration::from_secs(10))?;
//! let mut limit = Ledger::new(slow, 0);
//! let starts = [0; 8].map(|now_ns| match limit.reserve(now_ns, 1, None) {
//!     Ok(Verdict::Granted(grant)) => grant.start_ns / 1_000_000,
//!     other => unreachable!("{other:?}"),
//! });
//! assert_eq!(starts, [0, 3_732, 5_647, 7_129, 8_382, 9_488, 10_500, 11_500]);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

mod ramp;
mod timed;

#[cfg(feature = "serde")]
use alloc::vec::Vec;
use core::num::NonZeroU64;
use core::time::Duration;

use self::ramp::Ramp;
use self::timed::Timed;
use crate::any_policy::{AnyPolicy, Member};
use crate::error::LimitError;
use crate::policy::{Correction, Policy, Taken};
#[cfg(feature = "serde")]
use crate::portable::{Portable, SavedError, Shift};
use crate::share::Share;
use crate::span::exact_ns;
use crate::verdict::{Opening, Refusal};

/// A limit, and the period in which it reaches its rate: after its first permit, or after its
/// creation for [schedules and pools](self#contract).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SlowStart {
    policy: Timed,
    period_ns: NonZeroU64,
    first: Share,
}

/// The state of the limit inside, by its own clock, and the ramp that the clock follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    inner: Member,
    /// `None` before the first permit.
    ramp: Option<Ramp>,
    /// The instant from which the limit inside is full if no permit is taken, as of the newest one.
    /// A state inside need not keep what has left it.
    full_ns: u64,
}

impl SlowStart {
    /// Creates a limit that begins at a tenth of the rate of `policy`, and reaches it after
    /// `period`.
    ///
    /// # Errors
    ///
    /// [`LimitError::NotTimed`] for a policy whose permits do not come with time,
    /// [`LimitError::WindowOnClock`] for a fixed window on the clock's grid,
    /// [`LimitError::ZeroPeriod`], or [`LimitError::PeriodTooLong`].
    pub fn new(policy: impl Into<AnyPolicy>, period: Duration) -> Result<Self, LimitError> {
        let policy = Timed::new(policy.into())?;
        let period_ns = exact_ns(period).ok_or(LimitError::PeriodTooLong)?;
        let period_ns = NonZeroU64::new(period_ns).ok_or(LimitError::ZeroPeriod)?;
        Ok(Self { policy, period_ns, first: Share::TENTH })
    }

    /// Begins at this share of the rate; 10 % by default. With all of it there is no slow start.
    #[must_use]
    pub const fn with_first_share(mut self, share: Share) -> Self {
        self.first = share;
        self
    }

    fn checked(self) -> Result<Self, LimitError> {
        Timed::new(self.policy())?;
        Ok(self)
    }

    /// Returns the limit inside.
    #[must_use]
    pub const fn policy(&self) -> AnyPolicy {
        self.policy.any()
    }

    /// Returns the period in which the limit reaches its rate, in nanoseconds.
    #[must_use]
    pub const fn period_ns(&self) -> u64 {
        self.period_ns.get()
    }

    /// Returns the share of the rate at which a ramp begins.
    #[must_use]
    pub const fn first_share(&self) -> Share {
        self.first
    }
}

impl SlowStart {
    /// Returns the factor on the rate at `now_ns`, in millionths and rounded down: a million after
    /// the ramp, and the first share of it for a limit whose next permit begins one.
    #[must_use]
    pub fn factor_millionths(&self, state: &State, now_ns: u64) -> u64 {
        self.read(state, now_ns, |_, ramp| ramp.millionths(now_ns))
    }

    /// Returns the ramp that the clock follows at `at_ns`, or `None` if a permit then begins one.
    fn ramp_at(&self, state: &State, at_ns: u64) -> Option<Ramp> {
        let has_rested = self.rested_ns(state).is_some_and(|rested_ns| rested_ns <= at_ns);
        state.ramp.filter(|_| !has_rested)
    }

    /// Returns the end of a period without a permit in which the limit inside was full, if it is on
    /// the clock.
    ///
    /// It counts from full recovery. The time before that is no rest: a slow limit in full use has
    /// only such gaps.
    fn rested_ns(&self, state: &State) -> Option<u64> {
        state.inner.fresh_at_ns()?;
        state.full_ns.checked_add(self.period_ns())
    }

    /// Returns the instant, not before `from_ns`, from which the limit inside is full. A schedule,
    /// of which no time makes a fresh one, has none.
    fn full_ns(inner: &Member, ramp: Ramp, from_ns: u64) -> u64 {
        inner.fresh_at_ns().map_or(from_ns, |full_ns| ramp.outer_ns(full_ns, from_ns))
    }

    /// Returns the limit inside and its ramp, as a permit at `at_ns` begins both.
    fn begun(&self, at_ns: u64) -> (Member, Ramp) {
        let ramp = Ramp::from(at_ns, self.period_ns, self.first);
        (Member::fresh(self.policy(), ramp.inner_ns(at_ns)), ramp)
    }

    /// Reads the limit inside as a permit at `at_ns` would find it. Nothing is written, so the
    /// ramp does not begin.
    fn read<T>(&self, state: &State, at_ns: u64, read: impl FnOnce(&Member, Ramp) -> T) -> T {
        if let Some(ramp) = self.ramp_at(state, at_ns) {
            return read(&state.inner, ramp);
        }
        let (inner, ramp) = self.begun(at_ns);
        read(&inner, ramp)
    }
}

impl Policy for SlowStart {
    type State = State;

    fn fresh(&self, now_ns: u64) -> State {
        let inner = Member::fresh(self.policy(), now_ns);
        if inner.is_as_fresh(now_ns) {
            return State { inner, ramp: None, full_ns: now_ns };
        }
        let (inner, ramp) = self.begun(now_ns);
        State { inner, ramp: Some(ramp), full_ns: now_ns }
    }

    fn opening(
        &self,
        state: &State,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        self.read(state, from_ns, |inner, ramp| {
            let inner_from_ns = ramp.inner_ns(from_ns);
            let lead_ns = inner_from_ns.saturating_sub(from_ns);
            let opening = inner.opening(inner_from_ns, permits);
            let opening = opening.map_err(|refusal| refusal.seen_from(lead_ns))?;
            let start_ns = ramp.outer_ns(opening.start_ns, from_ns);
            let opens_ns = match opening.opens_ns {
                same_ns if same_ns == opening.start_ns => start_ns,
                other_ns => ramp.outer_ns(other_ns, from_ns),
            };
            let scheduled_ns = opening.scheduled_ns.map(|scheduled_ns| {
                // The slow clock stands still for a while, and that is no wait.
                if scheduled_ns >= ramp.inner_ns(start_ns) {
                    start_ns
                } else {
                    ramp.outer_ns(scheduled_ns, 0)
                }
            });
            Ok(Opening { start_ns, opens_ns, scheduled_ns })
        })
    }

    fn keeps_schedule(&self) -> bool {
        self.policy().keeps_schedule()
    }

    /// Returns that of the limit inside, whose clock is never faster than time.
    fn most_late_ns(&self) -> Option<u64> {
        self.policy().most_late_ns()
    }

    fn take(&self, state: &mut State, grant: Taken) {
        let ramp = self.ramp_at(state, grant.start_ns).unwrap_or_else(|| {
            let (inner, ramp) = self.begun(grant.start_ns);
            state.inner = inner;
            ramp
        });
        state.inner.take(ramp.taken(grant));
        state.ramp = Some(ramp);
        state.full_ns = Self::full_ns(&state.inner, ramp, grant.start_ns);
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        self.read(state, now_ns, |inner, ramp| inner.remaining(ramp.inner_ns(now_ns)))
    }

    /// Returns the end of the rest after which a permit begins a ramp.
    fn fresh_at_ns(&self, state: &State) -> Option<u64> {
        if state.ramp.is_none() { Some(0) } else { self.rested_ns(state) }
    }

    fn heap_bytes(&self, state: &State) -> usize {
        state.inner.heap_bytes()
    }

    /// Carries the limit inside over, by its clock. The ramp goes on as it began.
    fn rebase(&self, state: &mut State, old: &Self, now_ns: u64) {
        match old.ramp_at(state, now_ns) {
            Some(ramp) => {
                state.inner.change(self.policy(), ramp.inner_ns(now_ns));
                let full_ns = Self::full_ns(&state.inner, ramp, now_ns);
                // One that is full has been so since the instant known, at the latest since now.
                state.full_ns = if full_ns > now_ns { full_ns } else { state.full_ns.min(now_ns) };
            }
            None => *state = self.fresh(now_ns),
        }
    }

    /// Returns the slack of the limit inside, which a ramp could only lengthen.
    fn slack_ns(&self) -> u64 {
        self.policy().slack_ns()
    }

    /// Returns the instant by the clock inside, by which a refund is judged. Never before the true
    /// one, it takes nothing from other limits of which the earliest instant counts.
    fn busy_until_ns(&self, state: &State, grant: Taken) -> u64 {
        self.read(state, grant.start_ns, |inner, ramp| inner.busy_until_ns(ramp.taken(grant)))
    }

    /// Corrects the limit inside, by its clock. A charge begins a ramp as a grant does; to one
    /// whose next permit begins a ramp nothing comes back: it is full.
    fn correct(&self, state: &mut State, correction: Correction) -> Option<u64> {
        let (now_ns, ramp) = (correction.now_ns(), self.ramp_at(state, correction.now_ns()));
        let is_charge = matches!(correction, Correction::Charge(_));
        if ramp.is_none() && !is_charge {
            return None;
        }
        let (mut begun, ramp) = if let Some(ramp) = ramp {
            (None, ramp)
        } else {
            let (inner, ramp) = self.begun(now_ns);
            (Some(inner), ramp)
        };
        let inner = begun.as_mut().unwrap_or(&mut state.inner);
        let moved = inner.correct(correction.by(|ns| ramp.inner_ns(ns)))?;
        if is_charge && moved > 0 {
            if let Some(begun) = begun {
                state.inner = begun;
            }
            state.ramp = Some(ramp);
            state.full_ns = Self::full_ns(&state.inner, ramp, now_ns);
        }
        Some(moved)
    }

    fn debt(&self, state: &State, now_ns: u64) -> u64 {
        self.read(state, now_ns, |inner, ramp| inner.debt(ramp.inner_ns(now_ns)))
    }

    fn debt_ends_ns(&self, state: &State, from_ns: u64) -> Option<u64> {
        self.read(state, from_ns, |inner, ramp| {
            let ends_ns = inner.debt_ends_ns(ramp.inner_ns(from_ns))?;
            Some(ramp.outer_ns(ends_ns, from_ns))
        })
    }
}

#[cfg(feature = "serde")]
crate::portable::read_checked!(SlowStart { policy: Timed, period_ns: NonZeroU64, first: Share });

#[cfg(feature = "serde")]
impl Portable for SlowStart {
    /// The ramp, if it has begun, the instant from which the limit is full, and the limit inside.
    /// The instants inside are by another clock, but all of them move alike.
    type Saved = Option<(Ramp, u64, Vec<u8>)>;

    fn save(&self, state: &State, now_ns: u64) -> Self::Saved {
        Some((state.ramp?, state.full_ns, state.inner.save(now_ns, Vec::new())))
    }

    fn load(&self, saved: Self::Saved, since: Shift) -> Result<State, SavedError> {
        let Some((ramp, full_ns, inner)) = saved else { return Ok(self.fresh(since.now_ns())) };
        let ramp = Ramp { end_ns: since.clock_ns(ramp.end_ns), ..ramp };
        let inner = Member::load(self.policy(), &inner, since)?;
        Ok(State { inner, ramp: Some(ramp), full_ns: since.clock_ns(full_ns) })
    }
}
