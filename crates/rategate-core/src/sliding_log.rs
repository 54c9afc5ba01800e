//! The sliding log: at most N permits in *any* half-open window of length M. It is the strictest
//! promise of all, kept by remembering when each permit was granted.
//!
//! A request starts at the first instant by which enough of the N most recent permits are at
//! least M old. A request below the limit never waits.
//!
//! ```text
//!   N = 3           |<---------- M ---------->|
//!   --1----2-----3--+-------------------------+1--2-----3----> time
//!     |             request: all three in use  ^ granted: the first is M old
//!     |<---------- M ---------->|
//! ```
//!
//! # Contract
//!
//! * **Units.** Instants and lengths are nanoseconds.
//! * **Ceiling.** At most N permits in any window `[t, t + M)`, at every phase (docs/theory.md,
//!   section 2.2, the slot argument). With a guard G the same holds for effects that come up to G
//!   apart (docs/theory.md, section 2.5 a): a grant stays in the log for M + G.
//! * **Starts.** The ceiling holds for real starts (the default), and for promised instants where
//!   a schedule promises instants.
//! * **Best possible.** No schedule that keeps the order of requests grants any of them sooner
//!   (docs/theory.md, section 2.3).
//! * **Retry.** Exact; equality passes, since windows are half-open.
//! * **Resolution.** With a grid of Q ns a grant counts as made at the next point of the grid.
//!   The ceiling holds, the rate falls to no less than N / (M + Q), and memory to M / Q entries
//!   (docs/theory.md, section 6.2).
//! * **Refund.** Exact: the permits leave the log. On a grid, not across a change of the numbers.
//! * **Charge.** An entry like any other, past N too. A debt ends as entries leave the log; one to
//!   be carried is not in the log.
//! * **Change.** Grants keep their instants. What had left the log under the old numbers does not
//!   return.
//! * **Clock.** Going backwards earns nothing twice; at the end of 64 bits nothing wraps.
//! * **Cost.** 16 bytes for each distinct instant within M; O(1) amortised, and for several
//!   permits O(number of log entries that must leave).
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate_core::ledger::Ledger;
//! use rategate_core::limit::Limit;
//! use rategate_core::sliding_log::SlidingLog;
//! use rategate_core::verdict::Verdict;
//!
//! let mut limit = Ledger::new(SlidingLog::new(2, Duration::from_secs(1)), 0);
//! let starts: Vec<u64> = [800, 900, 1_100, 1_200]
//!     .map(|at_ms| match limit.reserve(at_ms * 1_000_000, 1, None) {
//!         Ok(Verdict::Granted(grant)) => grant.start_ns / 1_000_000,
//!         other => unreachable!("{other:?}"),
//!     })
//!     .to_vec();
//! assert_eq!(starts, [800, 900, 1_800, 1_900]);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use alloc::collections::VecDeque;
use core::num::NonZeroU64;
use core::time::Duration;

use crate::debt::{Charge, Charged};
use crate::error::{LimitError, or_panic};
use crate::policy::{Policy, Taken};
use crate::portable::{Portable, Reader, WordsError, Writer, tag};
use crate::refund::Refund;
use crate::span::checked;
use crate::span::exact_ns;
use crate::verdict::{Opening, Refusal, on_clock};

/// The maximum number of permits that a log counts.
pub const MAX_PERMITS: u64 = 4_294_967_295;

/// The maximum number of permits that charges bring into a log.
pub const MAX_CHARGED: u64 = 1 << 62;

/// A limit of at most `permits` in any window of `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    permits: NonZeroU64,
    period_ns: NonZeroU64,
    guard_ns: u64,
    resolution_ns: NonZeroU64,
}

/// The log of permits granted within the last period, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    entries: VecDeque<Entry>,
    /// The sum of all entries' permits.
    total: u128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// The instant at which the permits count as granted: the start, rounded up to the grid.
    instant_ns: u64,
    permits: u64,
}

impl State {
    /// Returns a log of single permits that count as granted at these instants, in order.
    pub(crate) fn of_instants(instants_ns: &[u64]) -> Self {
        let mut state = Self::default();
        for &instant_ns in instants_ns {
            state.record(instant_ns, 1);
        }
        state
    }

    /// Returns when the newest permit counts as granted.
    pub(crate) fn newest_ns(&self) -> u64 {
        self.entries.back().map_or(0, |newest| newest.instant_ns)
    }

    /// Adds permits to the log, which stays in order. After a change of the grid, or from a
    /// thread whose clock is a little behind, a permit may count as granted before the newest.
    fn record(&mut self, instant_ns: u64, permits: u64) {
        self.total = self.total.saturating_add(permits.into());
        let newer = self.entries.iter().rev().take_while(|entry| entry.instant_ns > instant_ns);
        let index = self.entries.len().saturating_sub(newer.count());
        match index.checked_sub(1).and_then(|last| self.entries.get_mut(last)) {
            Some(last) if last.instant_ns == instant_ns => {
                last.permits = last.permits.saturating_add(permits);
            }
            _ => self.entries.insert(index, Entry { instant_ns, permits }),
        }
    }
}

impl SlidingLog {
    /// Creates a limit of at most `permits` in any window of `period`, without a guard and
    /// exact to the nanosecond.
    ///
    /// # Panics
    ///
    /// Panics where [`try_new`](Self::try_new) fails.
    #[must_use]
    pub const fn new(permits: u64, period: Duration) -> Self {
        or_panic(Self::try_new(permits, period))
    }

    /// Creates a limit of at most `permits` in any window of `period`, without a guard and
    /// exact to the nanosecond.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPermits`], [`LimitError::ZeroPeriod`], [`LimitError::PeriodTooLong`], or
    /// [`LimitError::TooManyPermits`] above [`MAX_PERMITS`].
    pub const fn try_new(permits: u64, period: Duration) -> Result<Self, LimitError> {
        match checked(permits, period, MAX_PERMITS) {
            Ok((permits, period_ns)) => {
                Ok(Self { permits, period_ns, guard_ns: 0, resolution_ns: NonZeroU64::MIN })
            }
            Err(error) => Err(error),
        }
    }

    /// Adds a guard for effects that follow their grants by at most `guard` more than the
    /// quickest of them, such as a network's jitter.
    ///
    /// # Errors
    ///
    /// [`LimitError::PeriodTooLong`] if period and guard together exceed 584 years.
    pub fn with_guard(self, guard: Duration) -> Result<Self, LimitError> {
        let guard_ns = exact_ns(guard).ok_or(LimitError::PeriodTooLong)?;
        self.period_ns.checked_add(guard_ns).ok_or(LimitError::PeriodTooLong)?;
        Ok(Self { guard_ns, ..self })
    }

    /// Puts the limit on a grid of `resolution`: less memory for a little of the rate.
    ///
    /// # Errors
    ///
    /// [`LimitError::Resolution`] if it is zero or longer than the period.
    pub fn with_resolution(self, resolution: Duration) -> Result<Self, LimitError> {
        match exact_ns(resolution).and_then(NonZeroU64::new) {
            Some(resolution_ns) if resolution_ns <= self.period_ns => {
                Ok(Self { resolution_ns, ..self })
            }
            _ => Err(LimitError::Resolution),
        }
    }

    /// Returns the maximum number of permits in any window.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.permits.get()
    }

    /// Returns the guard: by how much later than the quickest effects others may come.
    #[must_use]
    pub const fn guard_ns(&self) -> u64 {
        self.guard_ns
    }

    /// Returns how long a grant stays in the log: the window and its guard.
    #[must_use]
    pub const fn held_for_ns(&self) -> u64 {
        self.period_ns.get().saturating_add(self.guard_ns)
    }

    /// Returns the distance of the grid's points, in nanoseconds.
    #[must_use]
    pub const fn resolution_ns(&self) -> u64 {
        self.resolution_ns.get()
    }

    /// Returns when each permit still in the log at `at_ns` leaves it, in order.
    pub(crate) fn releases_after(
        &self,
        state: &State,
        at_ns: u64,
    ) -> impl Iterator<Item = u64> + Clone {
        let held = state.entries.iter().filter_map(move |entry| {
            let release_ns = self.release_ns(entry);
            // An instant beyond the clock is never reached.
            let release_ns = u64::try_from(release_ns).unwrap_or(u64::MAX);
            (release_ns > at_ns).then_some((release_ns, entry.permits))
        });
        held.flat_map(|(release_ns, permits)| (0..permits).map(move |_| release_ns))
    }

    /// Returns when a grant at `start_ns` counts as made.
    pub(crate) fn counted_ns(&self, start_ns: u64) -> u64 {
        start_ns.checked_next_multiple_of(self.resolution_ns.get()).unwrap_or(u64::MAX)
    }

    /// Returns when an entry leaves the log.
    fn release_ns(&self, entry: &Entry) -> u128 {
        u128::from(entry.instant_ns).saturating_add(self.held_for_ns().into())
    }

    /// Returns the permits still in the log at `at_ns`.
    pub(crate) fn held(&self, state: &State, at_ns: u64) -> u64 {
        let expired =
            state.entries.iter().take_while(|entry| self.release_ns(entry) <= at_ns.into());
        let held = state.total.saturating_sub(expired.map(|entry| u128::from(entry.permits)).sum());
        u64::try_from(held).unwrap_or(u64::MAX)
    }

    /// Returns the first instant, not before `from_ns`, at which at most `available` permits are in
    /// the log.
    fn emptied_to(&self, state: &State, from_ns: u64, available: u64) -> u128 {
        let mut held = state.total;
        let mut start_ns = u128::from(from_ns);
        for oldest in &state.entries {
            if held <= available.into() {
                break;
            }
            held = held.saturating_sub(oldest.permits.into());
            start_ns = start_ns.max(self.release_ns(oldest));
        }
        start_ns
    }

    fn expire_before(&self, state: &mut State, at_ns: u64) {
        while let Some(oldest) = state.entries.front() {
            if self.release_ns(oldest) > at_ns.into() {
                break;
            }
            state.total = state.total.saturating_sub(oldest.permits.into());
            state.entries.pop_front();
        }
    }
}

impl Policy for SlidingLog {
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
        on_clock(self.emptied_to(state, from_ns, available), from_ns).map(Opening::at)
    }

    fn take(&self, state: &mut State, grant: Taken) {
        self.expire_before(state, grant.start_ns);
        state.record(self.counted_ns(grant.start_ns), grant.permits.get());
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        self.permits.get().saturating_sub(self.held(state, now_ns))
    }

    /// Removes the permits from the log, exactly, if they are still in it.
    fn refund(&self, state: &mut State, refund: Refund) -> u64 {
        // An earlier grid may have counted them as granted at another instant.
        if refund.returned.is_none() && self.resolution_ns.get() > 1 {
            return 0;
        }
        let instant_ns = self.counted_ns(refund.start_ns);
        let found = state.entries.binary_search_by_key(&instant_ns, |entry| entry.instant_ns);
        let Ok(index) = found else { return 0 };
        let Some(entry) = state.entries.get_mut(index) else { return 0 };
        if self.release_ns(entry) <= refund.now_ns.into() {
            return 0;
        }
        let permits = refund.permits.min(entry.permits);
        entry.permits = entry.permits.saturating_sub(permits);
        state.total = state.total.saturating_sub(permits.into());
        if entry.permits == 0 {
            state.entries.remove(index);
        }
        permits
    }

    /// Removes the newest permits from the log.
    fn credit(&self, state: &mut State, now_ns: u64, permits: u64) -> u64 {
        self.expire_before(state, now_ns);
        let mut left = permits;
        while let Some(newest) = state.entries.back_mut().filter(|_| left > 0) {
            let back = left.min(newest.permits);
            newest.permits = newest.permits.saturating_sub(back);
            state.total = state.total.saturating_sub(back.into());
            left = left.saturating_sub(back);
            if newest.permits == 0 {
                state.entries.pop_back();
            }
        }
        permits.saturating_sub(left)
    }

    fn charge(&self, state: &mut State, charge: Charge) -> Option<Charged> {
        let Charge { now_ns, permits, debt } = charge;
        if debt.is_carried() {
            return None;
        }
        self.expire_before(state, now_ns);
        let booked = permits.min(MAX_CHARGED.saturating_sub(self.held(state, now_ns)));
        if booked > 0 {
            state.record(self.counted_ns(now_ns), booked);
        }
        Some(Charged::of(permits, booked, self.debt(state, now_ns)))
    }

    fn debt(&self, state: &State, now_ns: u64) -> u64 {
        self.held(state, now_ns).saturating_sub(self.permits.get())
    }

    fn debt_ends_ns(&self, state: &State, from_ns: u64) -> Option<u64> {
        self.emptied_to(state, from_ns, self.permits.get()).try_into().ok()
    }

    fn fresh_at_ns(&self, state: &State) -> Option<u64> {
        state.entries.back().map_or(Some(0), |newest| self.release_ns(newest).try_into().ok())
    }

    fn heap_bytes(&self, state: &State) -> usize {
        state.entries.capacity().saturating_mul(size_of::<Entry>())
    }

    fn rebase(&self, state: &mut State, old: &Self, now_ns: u64) {
        old.expire_before(state, now_ns);
    }
}

impl Portable for SlidingLog {
    fn tag(&self) -> u16 {
        tag::SLIDING_LOG
    }

    fn write_numbers(&self, words: &mut Writer) {
        words.word(self.permits.get());
        words.word(self.period_ns.get());
        words.word(self.guard_ns);
        words.word(self.resolution_ns.get());
    }

    fn read_numbers(tag: u16, words: &mut Reader<'_>) -> Result<Self, WordsError> {
        tag::expect(tag, tag::SLIDING_LOG)?;
        let log = Self::try_new(words.word()?, words.span()?)?.with_guard(words.span()?)?;
        Ok(log.with_resolution(words.span()?)?)
    }

    fn write_state(&self, state: &State, words: &mut Writer) {
        let now_ns = u128::from(words.now_ns());
        let held = state.entries.iter().filter(|entry| self.release_ns(entry) > now_ns);
        let held = held.map(|entry| (entry.instant_ns, entry.permits));
        words.log(NonZeroU64::MIN, held);
    }

    /// Restores the log. On a grid, instants of another clock stay between its points, as after a
    /// change of the grid.
    fn read_state(&self, words: &mut Reader<'_>) -> Result<State, WordsError> {
        let mut state = State::default();
        for (instant_ns, permits) in words.log(NonZeroU64::MIN, self.held_for_ns())? {
            state.record(instant_ns, permits);
        }
        Ok(state)
    }
}
