//! The commit log: at most N *effects* in any half-open window of length M, however long each
//! takes to follow its grant.
//!
//! There are N slots. A grant holds a slot until the operation commits: until its effect, or
//! until word that the effect has happened, such as a peer's acknowledgement. From then on the
//! slot cools for M, and is free again.
//!
//! ```text
//!   N = 1        granted   effect  committed               free again
//!   -------------|==========x=======|---------- M -----------|-----> time
//!                        held                  cooling        granted
//! ```
//!
//! A [sliding log](crate::sliding_log) bounds the grants, and with a guard also effects whose
//! delays differ by a known jitter. This one needs no knowledge of the delay. It is the limit for
//! a peer that disconnects clients that send too much.
//!
//! # Contract
//!
//! * **Ceiling.** At most N effects in any window `[t, t + M)`, each of them at any instant from
//!   its grant to its commit (docs/theory.md, section 2.5 d, e). By a clock that runs slower than
//!   this one, the same holds with [a guard](CommitLog::with_clock_error_ppm).
//! * **Starts.** The ceiling holds for real starts (the default), and for promised instants where
//!   a schedule promises instants.
//! * **Commit.** An [end](crate::ledger::Ledger::end) commits: the slot cools from the
//!   reading of the clock that comes with the call. Releasing more than are held commits those
//!   that are held.
//! * **Abort.** [`abort`](crate::ledger::Ledger::abort) frees held slots at once: for operations
//!   that provably had no effect and never will. An operation that merely failed may have
//!   arrived, and commits.
//! * **Retry.** Exact, and equality passes: a slot committed at `t` is free at `t + M`. Where only
//!   held slots stand in the way, time alone cannot help, and a denial carries no wait.
//! * **Rate.** Under lasting demand N / (M + the mean time from grant to commit).
//! * **Change.** Commits keep their instants. What had cooled under the old numbers stays free. A
//!   lower N takes effect as slots come free, and held slots stay held.
//! * **Clock.** Going backwards earns nothing twice; at the end of 64 bits nothing wraps.
//! * **Cost.** That of a [sliding log](crate::sliding_log) of the commits, and 8 bytes.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate_core::commit_log::CommitLog;
//! use rategate_core::ledger::Ledger;
//! use rategate_core::verdict::Verdict;
//!
//! let mut limit = Ledger::new(CommitLog::new(1, Duration::from_nanos(1_000)), 0);
//! assert!(matches!(limit.try_acquire(0, 1)?, Verdict::Granted(_)));
//! assert_eq!(limit.peek(5_000, 1)?, None, "not yet acknowledged: time alone cannot help");
//! limit.release(5_000, 1);
//! assert_eq!(limit.peek(5_000, 1)?, Some(1_000));
//! assert!(matches!(limit.try_acquire(6_000, 1)?, Verdict::Granted(_)));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::num::NonZeroU64;
use core::time::Duration;

use crate::error::{LimitError, or_panic};
use crate::policy::{Correction, Ended, Ending, Policy, Taken};
#[cfg(feature = "serde")]
use crate::portable::{Portable, SavedError, Shift};
use crate::sliding_log::{self, SlidingLog};
use crate::verdict::{Opening, Refusal, on_clock};

pub use crate::sliding_log::MAX_PERMITS;

/// A limit of at most `permits` effects in any window of `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct CommitLog {
    /// The log of the commits.
    log: SlidingLog,
}

/// The slots that are not free, and some that have become free since the last grant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The permits granted and not yet committed.
    held: u64,
    /// The commits. These and `held` together are never more than the slots of the limit at the
    /// newest grant.
    cooling: sliding_log::State,
}

impl State {
    /// Returns the number of permits granted and not yet committed.
    #[must_use]
    pub const fn held(&self) -> u64 {
        self.held
    }
}

impl CommitLog {
    /// Creates a limit of at most `permits` effects in any window of `period`, by the clock
    /// that the limit is used with.
    ///
    /// # Panics
    ///
    /// Panics where [`try_new`](Self::try_new) fails.
    #[must_use]
    #[track_caller]
    pub const fn new(permits: u64, period: Duration) -> Self {
        or_panic(Self::try_new(permits, period))
    }

    /// Creates a limit of at most `permits` effects in any window of `period`, by the clock
    /// that the limit is used with.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPermits`], [`LimitError::ZeroPeriod`], [`LimitError::PeriodTooLong`], or
    /// [`LimitError::TooManyPermits`] above [`MAX_PERMITS`].
    pub const fn try_new(permits: u64, period: Duration) -> Result<Self, LimitError> {
        match SlidingLog::try_new(permits, period) {
            Ok(log) => Ok(Self { log }),
            Err(error) => Err(error),
        }
    }

    /// Lengthens the period by `guard`, in place of any earlier guard.
    ///
    /// # Errors
    ///
    /// [`LimitError::PeriodTooLong`] if period and guard together exceed 584 years.
    pub fn with_guard(self, guard: Duration) -> Result<Self, LimitError> {
        Ok(Self { log: self.log.with_guard(guard)? })
    }

    /// Adds a guard for a peer that counts by its own clock, while this clock runs at most
    /// `parts` in a million faster than the peer's.
    ///
    /// Slots cool for `period * (1 + parts / 10^6)`, rounded up, so for at least a period by the
    /// peer's clock. 200 is plenty for two clocks of quartz. It replaces any earlier
    /// [guard](Self::with_guard).
    ///
    /// # Errors
    ///
    /// [`LimitError::PeriodTooLong`] if period and guard together exceed 584 years.
    pub fn with_clock_error_ppm(self, parts: u64) -> Result<Self, LimitError> {
        let period_ns = self.cools_for_ns().saturating_sub(self.guard_ns());
        let product = u128::from(period_ns).saturating_mul(parts.into());
        let guard_ns = product.div_ceil(1_000_000);
        let guard_ns = u64::try_from(guard_ns).map_err(|_| LimitError::PeriodTooLong)?;
        self.with_guard(Duration::from_nanos(guard_ns))
    }

    /// Returns the maximum number of effects in any window.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.log.permits()
    }

    /// Returns the part of the cooling that is the guard, in nanoseconds.
    #[must_use]
    pub const fn guard_ns(&self) -> u64 {
        self.log.guard_ns()
    }

    /// Returns how long a slot cools: the window and its guard.
    #[must_use]
    pub const fn cools_for_ns(&self) -> u64 {
        self.log.held_for_ns()
    }
}

impl Policy for CommitLog {
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
        let Some(available) = available.checked_sub(state.held) else {
            return Err(Refusal::Held);
        };
        let start_ns = self.log.emptied_to(&state.cooling, from_ns, available);
        on_clock(start_ns, from_ns).map(Opening::at)
    }

    fn take(&self, state: &mut State, grant: Taken) {
        self.log.expire_before(&mut state.cooling, grant.start_ns);
        state.held = state.held.saturating_add(grant.permits.get());
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        self.log.remaining(&state.cooling, now_ns).saturating_sub(state.held)
    }

    fn fresh_at_ns(&self, state: &State) -> Option<u64> {
        if state.held > 0 { None } else { self.log.fresh_at_ns(&state.cooling) }
    }

    fn heap_bytes(&self, state: &State) -> usize {
        self.log.heap_bytes(&state.cooling)
    }

    fn rebase(&self, state: &mut State, old: &Self, now_ns: u64) {
        self.log.rebase(&mut state.cooling, &old.log, now_ns);
    }

    fn counts_in_flight(&self) -> bool {
        true
    }

    fn in_flight(&self, state: &State) -> u64 {
        state.held
    }

    /// Commits slots, which cool from now on, or from the newest commit if a clock has gone back
    /// since: later is safe. Frees them if their operations had no effect.
    fn correct(&self, state: &mut State, correction: Correction) -> Option<u64> {
        let Ended { now_ns, permits, how } = correction.as_end(state.held)?;
        state.held = state.held.saturating_sub(permits);
        if permits > 0 && how != Ending::Aborted {
            self.log.add(&mut state.cooling, now_ns, permits);
        }
        Some(permits)
    }
}

#[cfg(feature = "serde")]
impl Portable for CommitLog {
    type Saved = (u64, <SlidingLog as Portable>::Saved);

    fn save(&self, state: &State, now_ns: u64) -> Self::Saved {
        (state.held, self.log.save(&state.cooling, now_ns))
    }

    /// Restores the log. What was held commits now, or when the last promise has started: its
    /// effect came at some instant before.
    fn load(&self, (held, cooling): Self::Saved, since: Shift) -> Result<State, SavedError> {
        let mut cooling = self.log.load(cooling, since)?;
        if held > 0 {
            self.log.add(&mut cooling, since.settled_ns(), held);
        }
        Ok(State { held: 0, cooling })
    }
}
