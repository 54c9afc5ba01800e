//! A bound on operations in flight that follows measurements.

use alloc::boxed::Box;
use core::num::NonZeroU64;

use super::{Adaptation, Bounds, Change, Learned, Sample};
use crate::policy::{Correction, Ended, Ending, Policy, Taken};
#[cfg(feature = "serde")]
use crate::portable::{Portable, SavedError, Shift};
use crate::verdict::{Opening, Refusal};

/// The limit at first, unless another is given.
const FIRST: u32 = 20;

/// A bound on operations in flight that follows measurements between a floor and a ceiling.
///
/// # Contract
///
/// * **Ceiling.** Each start finds no more than the limit in flight with it, and the limit is
///   within its bounds whatever is measured. Operations in flight keep their permits.
/// * **Capacity.** One request takes at most the floor, so that no waiter waits for a limit that
///   may never come.
/// * **Retry.** None: time alone cannot help, so a denial carries no wait.
/// * **Idle.** It begins anew after ten minutes with nothing in flight.
/// * **Cost.** 16 bytes, and some 400 on the heap. Each operation that ends costs the same, and
///   nothing is allocated.
///
/// ```
/// use rategate_core::adaptive::{AdaptiveConcurrency, Outcome};
/// use rategate_core::ledger::Ledger;
/// use rategate_core::policy::Ending;
/// use rategate_core::verdict::Verdict;
///
/// let mut limit = Ledger::new(AdaptiveConcurrency::new(1, 200), 0);
/// let Verdict::Granted(grant) = limit.try_acquire(0, 1)? else { panic!("nothing is in flight") };
/// let how = Ending::Of { start_ns: grant.start_ns, outcome: Outcome::Served };
/// limit.end(10_000_000, 1, how);
/// assert_eq!(limit.max_in_flight(10_000_000), Some(20));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct AdaptiveConcurrency {
    adaptation: Adaptation,
}

/// The number of operations in flight, and the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    in_flight: u64,
    learned: Box<Learned>,
}

impl AdaptiveConcurrency {
    /// Creates a limit of as many operations as the server works on at once, and a few more. It
    /// begins with 20, or the bound next to it.
    ///
    /// # Panics
    ///
    /// Panics unless `1 <= floor <= ceiling`.
    #[must_use]
    #[track_caller]
    pub const fn new(floor: u32, ceiling: u32) -> Self {
        let first = if FIRST > ceiling { ceiling } else { FIRST };
        let first = if floor > first && floor <= ceiling { floor } else { first };
        Self::following(Adaptation::new(Bounds::new(floor, first, ceiling)))
    }

    /// Creates a limit that follows measurements in a way of its own.
    #[must_use]
    pub const fn following(adaptation: Adaptation) -> Self {
        Self { adaptation }
    }

    /// Returns how the limit follows measurements.
    #[must_use]
    pub const fn adaptation(&self) -> Adaptation {
        self.adaptation
    }

    /// Returns the maximum number of permits of one request.
    fn capacity(&self) -> u64 {
        self.adaptation.bounds().floor().into()
    }

    fn limit(&self, state: &State, now_ns: u64) -> u64 {
        state.learned.limit(self.adaptation, state.in_flight == 0, now_ns)
    }
}

impl State {
    /// Returns the number of changes of the limit, which wraps, and the last of them.
    #[must_use]
    pub const fn changes(&self) -> (u32, Option<Change>) {
        self.learned.changes()
    }

    /// Returns the latency without a queue, in nanoseconds, if the method knows one:
    /// [`Method::Knee`](super::Method::Knee) does.
    #[must_use]
    pub fn base_ns(&self) -> Option<u64> {
        self.learned.base_ns()
    }

    fn in_flight_at_most(&self) -> u32 {
        u32::try_from(self.in_flight).unwrap_or(u32::MAX)
    }

    /// Follows a start that took all that its [share](crate::share) of the limit had left.
    pub(crate) fn fill_share(&mut self, now_ns: u64) {
        self.learned.fill_share(self.in_flight_at_most(), now_ns);
    }
}

impl Policy for AdaptiveConcurrency {
    type State = State;

    fn fresh(&self, _now_ns: u64) -> State {
        State { in_flight: 0, learned: Box::new(Learned::new(self.adaptation)) }
    }

    fn opening(
        &self,
        state: &State,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        if permits.get() > self.capacity() {
            return Err(Refusal::exceeds(permits, self.capacity()));
        }
        if permits.get() > self.remaining(state, from_ns) {
            return Err(Refusal::Held);
        }
        Ok(Opening::at(from_ns))
    }

    fn take(&self, state: &mut State, grant: Taken) {
        if state.in_flight == 0 {
            state.learned.begin(self.adaptation, grant.start_ns);
        }
        state.in_flight = state.in_flight.saturating_add(grant.permits.get());
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        self.limit(state, now_ns).saturating_sub(state.in_flight).min(self.capacity())
    }

    fn fresh_at_ns(&self, state: &State) -> Option<u64> {
        (state.in_flight == 0).then(|| state.learned.fresh_at_ns())
    }

    fn heap_bytes(&self, _state: &State) -> usize {
        size_of::<Learned>()
    }

    fn rebase(&self, state: &mut State, old: &Self, _now_ns: u64) {
        state.learned.rebase(old.adaptation, self.adaptation);
    }

    fn counts_in_flight(&self) -> bool {
        true
    }

    fn follows_outcomes(&self) -> bool {
        true
    }

    fn max_in_flight(&self, state: &State, now_ns: u64) -> Option<u64> {
        Some(self.limit(state, now_ns))
    }

    fn in_flight(&self, state: &State) -> u64 {
        state.in_flight
    }

    fn correct(&self, state: &mut State, correction: Correction) -> Option<u64> {
        let Ended { now_ns, permits, how } = correction.as_end(state.in_flight)?;
        let sample = match how {
            Ending::Released | Ending::Aborted => None,
            Ending::Of { start_ns, outcome } => {
                let in_flight = state.in_flight_at_most();
                Some(Sample { start_ns, end_ns: now_ns, in_flight, outcome })
            }
        };
        if permits > 0 || matches!(correction, Correction::End(_)) {
            state.in_flight = state.in_flight.saturating_sub(permits);
            state.learned.end(now_ns, sample);
        }
        Some(permits)
    }
}

#[cfg(feature = "serde")]
impl Portable for AdaptiveConcurrency {
    /// The limit that has been found, and since when the last operation has ended.
    type Saved = Option<(u64, u64)>;

    fn save(&self, state: &State, _now_ns: u64) -> Self::Saved {
        Some((state.learned.found(), state.learned.idle_since_ns()?))
    }

    /// Restores an idle limit: what was in flight has ended, since no holder is left to release it.
    fn load(&self, saved: Self::Saved, since: Shift) -> Result<State, SavedError> {
        Ok(saved.map_or_else(
            || self.fresh(0),
            |(found, idle_since_ns)| {
                let idle_since_ns = since.clock_ns(idle_since_ns);
                let learned = Learned::beginning_with(self.adaptation, found, idle_since_ns);
                State { in_flight: 0, learned: Box::new(learned) }
            },
        ))
    }
}
