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
//! * **Cost.** 48 bytes, and 16 for each distinct instant of a commit within M; O(1) amortised, and
//!   for several permits O(number of commits that must have cooled).
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

use alloc::collections::VecDeque;
use core::num::NonZeroU64;
use core::time::Duration;

use crate::error::{LimitError, or_panic};
use crate::policy::{Ended, Ending, Policy, Taken};
use crate::portable::{Portable, Reader, WordsError, Writer, tag};
use crate::span::checked;
use crate::span::exact_ns;
use crate::verdict::{Opening, Refusal, on_clock};

/// The maximum number of slots.
pub const MAX_PERMITS: u64 = 4_294_967_295;

/// A limit of at most `permits` effects in any window of `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitLog {
    permits: NonZeroU64,
    period_ns: NonZeroU64,
    guard_ns: u64,
}

/// The slots that are not free, and some that have become free since the last grant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The permits granted and not yet committed.
    held: u64,
    /// The commits, oldest first. Those free by the newest grant are dropped, so these and `held`
    /// together are never more than the slots of the limit at that grant.
    cooling: VecDeque<Commit>,
    /// The sum of the permits of all commits.
    total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Commit {
    instant_ns: u64,
    permits: u64,
}

impl State {
    /// Returns the number of permits granted and not yet committed.
    #[must_use]
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// Lets `permits` cool from `now_ns`, or from the newest commit if a clock has gone back
    /// since: later is safe.
    fn cool(&mut self, now_ns: u64, permits: u64) {
        self.total = self.total.saturating_add(permits);
        match self.cooling.back_mut() {
            Some(newest) if newest.instant_ns >= now_ns => {
                newest.permits = newest.permits.saturating_add(permits);
            }
            _ => self.cooling.push_back(Commit { instant_ns: now_ns, permits }),
        }
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
        match checked(permits, period, MAX_PERMITS) {
            Ok((permits, period_ns)) => Ok(Self { permits, period_ns, guard_ns: 0 }),
            Err(error) => Err(error),
        }
    }

    /// Lengthens the period by `guard`, in place of any earlier guard.
    ///
    /// # Errors
    ///
    /// [`LimitError::PeriodTooLong`] if period and guard together exceed 584 years.
    pub fn with_guard(self, guard: Duration) -> Result<Self, LimitError> {
        let guard_ns = exact_ns(guard).ok_or(LimitError::PeriodTooLong)?;
        self.period_ns.checked_add(guard_ns).ok_or(LimitError::PeriodTooLong)?;
        Ok(Self { guard_ns, ..self })
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
        let product = u128::from(self.period_ns.get()).saturating_mul(parts.into());
        let guard_ns = product.div_ceil(1_000_000);
        let guard_ns = u64::try_from(guard_ns).map_err(|_| LimitError::PeriodTooLong)?;
        self.with_guard(Duration::from_nanos(guard_ns))
    }

    /// Returns the maximum number of effects in any window.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.permits.get()
    }

    /// Returns the part of the cooling that is the guard, in nanoseconds.
    #[must_use]
    pub const fn guard_ns(&self) -> u64 {
        self.guard_ns
    }

    /// Returns how long a slot cools: the window and its guard.
    #[must_use]
    pub const fn cools_for_ns(&self) -> u64 {
        self.period_ns.get().saturating_add(self.guard_ns)
    }

    /// Returns when the slots of a commit are free again.
    fn free_ns(&self, commit: &Commit) -> u128 {
        u128::from(commit.instant_ns).saturating_add(self.cools_for_ns().into())
    }

    fn expire_before(&self, state: &mut State, at_ns: u64) {
        while let Some(oldest) = state.cooling.front() {
            if self.free_ns(oldest) > at_ns.into() {
                break;
            }
            state.total = state.total.saturating_sub(oldest.permits);
            state.cooling.pop_front();
        }
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
        let Some(available) = self.permits.get().checked_sub(permits.get()) else {
            return Err(Refusal::exceeds(permits, self.permits.get()));
        };
        let Some(available) = available.checked_sub(state.held) else {
            return Err(Refusal::Held);
        };
        let (mut cooling, mut start_ns) = (state.total, u128::from(from_ns));
        for oldest in &state.cooling {
            if cooling <= available {
                break;
            }
            cooling = cooling.saturating_sub(oldest.permits);
            start_ns = start_ns.max(self.free_ns(oldest));
        }
        on_clock(start_ns, from_ns).map(Opening::at)
    }

    fn take(&self, state: &mut State, grant: Taken) {
        self.expire_before(state, grant.start_ns);
        state.held = state.held.saturating_add(grant.permits.get());
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        let hot = state.cooling.iter().rev().take_while(|at| self.free_ns(at) > now_ns.into());
        let cooling = hot.fold(0_u64, |sum, commit| sum.saturating_add(commit.permits));
        self.permits.get().saturating_sub(state.held).saturating_sub(cooling)
    }

    fn fresh_at_ns(&self, state: &State) -> Option<u64> {
        match state.cooling.back() {
            _ if state.held > 0 => None,
            None => Some(0),
            Some(newest) => self.free_ns(newest).try_into().ok(),
        }
    }

    fn heap_bytes(&self, state: &State) -> usize {
        state.cooling.capacity().saturating_mul(size_of::<Commit>())
    }

    fn rebase(&self, state: &mut State, old: &Self, now_ns: u64) {
        old.expire_before(state, now_ns);
    }

    fn counts_in_flight(&self) -> bool {
        true
    }

    fn in_flight(&self, state: &State) -> u64 {
        state.held
    }

    /// Commits slots, which cool from now on, or frees them if their operations had no effect.
    fn end(&self, state: &mut State, ended: Ended) -> bool {
        let permits = ended.permits.min(state.held);
        state.held = state.held.saturating_sub(permits);
        if permits > 0 && ended.how != Ending::Aborted {
            state.cool(ended.now_ns, permits);
        }
        true
    }
}

impl Portable for CommitLog {
    fn tag(&self) -> u16 {
        tag::COMMIT_LOG
    }

    fn write_numbers(&self, words: &mut Writer) {
        words.word(self.permits.get());
        words.word(self.period_ns.get());
        words.word(self.guard_ns);
    }

    fn read_numbers(tag: u16, words: &mut Reader<'_>) -> Result<Self, WordsError> {
        tag::expect(tag, tag::COMMIT_LOG)?;
        Ok(Self::try_new(words.word()?, words.span()?)?.with_guard(words.span()?)?)
    }

    fn write_state(&self, state: &State, words: &mut Writer) {
        words.word(state.held);
        let now_ns = u128::from(words.now_ns());
        let cooling = state.cooling.iter().filter(|commit| self.free_ns(commit) > now_ns);
        words.log(NonZeroU64::MIN, cooling.map(|commit| (commit.instant_ns, commit.permits)));
    }

    /// Restores the log. What was held commits now, or when the last promise has started: its
    /// effect came at some instant before.
    fn read_state(&self, words: &mut Reader<'_>) -> Result<State, WordsError> {
        let (held, settled_ns) = (words.word()?, words.settled_ns());
        let mut state = State::default();
        for (instant_ns, permits) in words.log(NonZeroU64::MIN, self.cools_for_ns())? {
            state.cool(instant_ns, permits);
        }
        if held > 0 {
            state.cool(settled_ns, held);
        }
        Ok(state)
    }
}
