//! A limit of at most N operations in flight. A permit comes back when its operation ends, not
//! when time passes: a pizza oven with unknown baking times.
//!
//! N is a number, or [follows measurements](crate::adaptive) between a floor and a ceiling.
//!
//! ```text
//!   N = 2    1 |=========|
//!            2    |==============|
//!            3           |=====|            the third starts as the first ends
//!            ------------+-----------> time
//! ```
//!
//! # Contract
//!
//! * **Ceiling.** At most N permits taken and not yet released, at any instant. Where N follows
//!   measurements, each start finds no more than N in flight with it, and N is within its bounds
//!   whatever is measured; operations in flight keep their permits.
//! * **Retry.** None: time alone cannot help, so a denial carries no wait.
//! * **Refund.** Equal to a release, for an operation that never started.
//! * **Change.** A lower N takes effect as operations end; operations in flight keep their permits.
//! * **Capacity.** One request takes at most N permits; where N follows measurements, at most its
//!   floor, so that no waiter waits for a limit that may never come.
//! * **Idle.** A limit that follows measurements begins anew after ten minutes with nothing in
//!   flight.
//! * **Cost.** 16 bytes, and some 400 on the heap where N follows measurements. Each operation
//!   that ends costs the same then, and nothing is allocated.
//!
//! # Example
//!
//! ```
//! use rategate_core::concurrency::Concurrency;
//! use rategate_core::ledger::Ledger;
//! use rategate_core::limit::Limit;
//! use rategate_core::verdict::Verdict;
//!
//! let mut oven = Ledger::new(Concurrency::new(1), 0);
//! assert!(matches!(oven.try_acquire(0, 1)?, Verdict::Granted(_)));
//! assert!(matches!(oven.try_acquire(1_000, 1)?, Verdict::Denied(_)));
//! oven.release(1_800, 1);
//! assert!(matches!(oven.try_acquire(1_800, 1)?, Verdict::Granted(_)));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use alloc::boxed::Box;
use core::num::NonZeroU64;

use crate::adaptive::{Adaptation, Bounds, Learned, Method, Sample};
use crate::error::{LimitError, or_panic};
use crate::policy::{Ended, Policy, Taken};
use crate::portable::{Portable, Reader, WordsError, Writer, tag};
use crate::refund::Refund;
use crate::verdict::{Opening, Refusal};

/// The limit at first of one that follows measurements.
const FIRST: u32 = 20;

/// A limit on operations in flight: a number, or one that follows measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    bound: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Fixed(NonZeroU64),
    Following(Adaptation),
}

/// The number of operations in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    in_flight: u64,
    /// The controller of a limit that follows measurements.
    learned: Option<Box<Learned>>,
}

impl Concurrency {
    /// Creates a limit of at most `permits` in flight.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is zero.
    #[must_use]
    pub const fn new(permits: u64) -> Self {
        or_panic(Self::try_new(permits))
    }

    /// Creates a limit of at most `permits` in flight.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPermits`] if `permits` is zero.
    pub const fn try_new(permits: u64) -> Result<Self, LimitError> {
        match NonZeroU64::new(permits) {
            Some(permits) => Ok(Self { bound: Bound::Fixed(permits) }),
            None => Err(LimitError::ZeroPermits),
        }
    }

    /// Creates a limit that follows measurements between a floor and a ceiling: as many operations
    /// as the server works on at once, and a few more. It begins with 20, or the bound next to it.
    ///
    /// ```
    /// use rategate_core::concurrency::Concurrency;
    ///
    /// let limit = Concurrency::adaptive(5, 200);
    /// assert_eq!((limit.permits(), limit.capacity()), (200, 5));
    /// ```
    ///
    /// # Panics
    ///
    /// Panics unless `1 <= floor <= ceiling`.
    #[must_use]
    pub const fn adaptive(floor: u32, ceiling: u32) -> Self {
        let first = if FIRST > ceiling { ceiling } else { FIRST };
        let first = if floor > first && floor <= ceiling { floor } else { first };
        Self::following(Adaptation::new(Bounds::new(floor, first, ceiling)))
    }

    /// Creates a limit that follows measurements in a way of its own.
    #[must_use]
    pub const fn following(adaptation: Adaptation) -> Self {
        Self { bound: Bound::Following(adaptation) }
    }

    /// Returns the maximum number of permits in flight: of a limit that follows measurements its
    /// ceiling.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        match self.bound {
            #[expect(clippy::as_conversions, reason = "widening, in a constant")]
            Bound::Following(adaptation) => adaptation.bounds().ceiling() as u64,
            Bound::Fixed(permits) => permits.get(),
        }
    }

    /// Returns how the limit follows measurements, if it does.
    #[must_use]
    pub const fn adaptation(&self) -> Option<Adaptation> {
        match self.bound {
            Bound::Following(adaptation) => Some(adaptation),
            Bound::Fixed(_) => None,
        }
    }

    /// Returns the maximum number of permits of one request.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        match self.bound {
            #[expect(clippy::as_conversions, reason = "widening, in a constant")]
            Bound::Following(adaptation) => adaptation.bounds().floor() as u64,
            Bound::Fixed(permits) => permits.get(),
        }
    }

    /// Returns the limit in force at `now_ns`.
    #[must_use]
    pub fn limit(&self, state: &State, now_ns: u64) -> u64 {
        match (self.adaptation(), &state.learned) {
            (Some(adaptation), Some(learned)) => {
                learned.limit(adaptation, state.in_flight == 0, now_ns)
            }
            (Some(adaptation), None) => adaptation.bounds().first().into(),
            (None, _) => self.permits(),
        }
    }

    fn learned(&self) -> Option<Box<Learned>> {
        self.adaptation().map(|adaptation| Box::new(Learned::new(adaptation)))
    }
}

impl State {
    /// Ends operations, and returns how many of them there were.
    fn end(&mut self, now_ns: u64, permits: u64, sample: Option<Sample>) -> u64 {
        let ended = permits.min(self.in_flight);
        self.in_flight = self.in_flight.saturating_sub(ended);
        if let Some(learned) = &mut self.learned {
            learned.end(now_ns, sample);
        }
        ended
    }
}

impl Policy for Concurrency {
    type State = State;

    fn fresh(&self, _now_ns: u64) -> State {
        State { in_flight: 0, learned: self.learned() }
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
        if let (0, Some(adaptation), Some(learned)) =
            (state.in_flight, self.adaptation(), &mut state.learned)
        {
            learned.begin(adaptation, grant.start_ns);
        }
        state.in_flight = state.in_flight.saturating_add(grant.permits.get());
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        self.limit(state, now_ns).saturating_sub(state.in_flight).min(self.capacity())
    }

    fn fresh_at_ns(&self, state: &State) -> Option<u64> {
        let fresh_ns = || state.learned.as_ref().map_or(0, |learned| learned.fresh_at_ns());
        (state.in_flight == 0).then(fresh_ns)
    }

    fn heap_bytes(&self, state: &State) -> usize {
        state.learned.as_ref().map_or(0, |_| size_of::<Learned>())
    }

    fn rebase(&self, state: &mut State, old: &Self, _now_ns: u64) {
        match (old.adaptation(), self.adaptation(), &mut state.learned) {
            (Some(old), Some(new), Some(learned)) => learned.rebase(old, new),
            _ => state.learned = self.learned(),
        }
    }

    /// Ends an operation that never was in flight: do not release it as well.
    fn refund(&self, state: &mut State, refund: Refund) -> u64 {
        state.end(refund.now_ns, refund.permits, None)
    }

    /// Takes permits back like a [refund](Policy::refund).
    fn credit(&self, state: &mut State, now_ns: u64, permits: u64) -> u64 {
        state.end(now_ns, permits, None)
    }

    fn counts_in_flight(&self) -> bool {
        true
    }

    fn max_in_flight(&self, state: &State, now_ns: u64) -> Option<u64> {
        Some(self.limit(state, now_ns))
    }

    fn in_flight(&self, state: &State) -> u64 {
        state.in_flight
    }

    fn release(&self, state: &mut State, now_ns: u64, permits: u64) -> bool {
        state.end(now_ns, permits, None);
        true
    }

    fn abort(&self, state: &mut State, now_ns: u64, permits: u64) -> bool {
        self.release(state, now_ns, permits)
    }

    fn release_with_outcome(&self, state: &mut State, ended: Ended) -> bool {
        state.end(ended.now_ns, ended.permits, Some(ended.sample()));
        true
    }
}

/// The words of a limit that follows measurements come after the others: the floor, the limit at
/// first, the method and the seed; and in a state the limit that it has found, and when it was last
/// used.
impl Portable for Concurrency {
    fn tag(&self) -> u16 {
        if self.adaptation().is_some() { tag::ADAPTIVE_CONCURRENCY } else { tag::CONCURRENCY }
    }

    fn write_numbers(&self, words: &mut Writer) {
        words.word(self.permits());
        if let Some(adaptation) = self.adaptation() {
            words.word(adaptation.bounds().floor().into());
            words.word(adaptation.bounds().first().into());
            words.word(adaptation.method().number());
            words.word(adaptation.seed().into());
        }
    }

    fn read_numbers(tag: u16, words: &mut Reader<'_>) -> Result<Self, WordsError> {
        if tag != tag::ADAPTIVE_CONCURRENCY {
            tag::expect(tag, tag::CONCURRENCY)?;
            return Ok(Self::try_new(words.word()?)?);
        }
        let mut bound = || {
            let word = words.word()?;
            u32::try_from(word).map_err(|_| words.malformed())
        };
        let (ceiling, floor, first) = (bound()?, bound()?, bound()?);
        let bounds = Bounds::try_new(floor, first, ceiling)?;
        let method = Method::of_number(words.word()?).ok_or_else(|| words.malformed())?;
        let seed = u32::try_from(words.word()?).map_err(|_| words.malformed())?;
        let adaptation = Adaptation::new(bounds).with_method(method).with_seed(seed);
        Ok(Self::following(adaptation))
    }

    fn write_state(&self, state: &State, words: &mut Writer) {
        words.word(state.in_flight);
        if let Some(learned) = &state.learned {
            words.optional(learned.idle_since_ns().map(|_| learned.found()));
            words.instant(learned.idle_since_ns().unwrap_or(words.now_ns()).into());
        }
    }

    /// Restores an idle limit: what was in flight has ended, since no holder is left to release it.
    fn read_state(&self, words: &mut Reader<'_>) -> Result<State, WordsError> {
        let _ = words.word()?;
        let mut state = self.fresh(0);
        if let Some(adaptation) = self.adaptation() {
            let found = words.optional()?;
            let idle_since_ns = words.instant()?.on_clock();
            if let Some(found) = found {
                let learned = Learned::beginning_with(adaptation, found, idle_since_ns);
                state.learned = Some(Box::new(learned));
            }
        }
        Ok(state)
    }
}
