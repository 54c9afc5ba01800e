//! The seam between an algorithm and everything that drives it.
//!
//! A policy is a limit, checked once and frozen; its state is apart and small. A policy only says
//! *when* a request could start and *what is left* once it has, or once a part of it came back. Promises, cancelling and the
//! clamped clock are the same for all of them and stand in [`ledger`](crate::ledger).

use core::fmt::Debug;
use core::num::NonZeroU64;

use crate::refund::Refund;
use crate::verdict::{Opening, Refusal};

/// One rate limiting algorithm with its numbers.
pub trait Policy: Clone + Debug + PartialEq {
    /// What the algorithm remembers.
    type State: Clone + Debug;

    /// The state of a fresh limit at `now_ns`: the first request passes at once.
    fn fresh(&self, now_ns: u64) -> Self::State;

    /// The first instant, not before `from_ns`, at which `permits` may start together.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] that says why there is none.
    fn opening(
        &self,
        state: &Self::State,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal>;

    /// Returns the first instant, not before `from_ns`, at which `permits` may start together with
    /// others that are held at `held.from_ns` for waiters who have not taken them yet. Later than that
    /// instant, it may turn out to be too early: those waiters may take later still.
    ///
    /// # Errors
    ///
    /// Those of [`opening`](Self::opening).
    fn opening_behind(
        &self,
        state: &Self::State,
        from_ns: u64,
        held: Held,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        match self.opening(state, from_ns, permits.saturating_add(held.permits.get())) {
            Err(Refusal::Exceeds(_)) => {}
            opening => return opening,
        }
        // More than ever start together: first those that are held, and they at the soonest now, but
        // not before what the state knows of: starts never decrease.
        let mut state = state.clone();
        let first = self.opening(&state, held.from_ns, NonZeroU64::MIN);
        let held_ns = first.map_or(held.from_ns, |first| first.start_ns.max(held.from_ns));
        let taken = Taken { from_ns: held_ns, start_ns: held_ns, permits: held.permits };
        self.take(&mut state, taken);
        self.opening(&state, from_ns, permits)
    }

    /// Whether the policy promises instants on an open schedule, which lateness must not shift. All
    /// others bound what starts, so a start counts when it happens.
    fn keeps_schedule(&self) -> bool {
        false
    }

    /// Records a grant. Starts never decrease from one call to the next.
    fn take(&self, state: &mut Self::State, grant: Taken);

    /// The most permits that one request at `now_ns` could take.
    fn remaining(&self, state: &Self::State, now_ns: u64) -> u64;

    /// From when on no decision can tell this state from a [fresh](Self::fresh) one, if nobody asks
    /// meanwhile, so that whoever has many may forget it. What a grant of before may give back is not
    /// among them. `None` if time alone makes it no fresh one, or the policy does not know.
    fn fresh_at_ns(&self, _state: &Self::State) -> Option<u64> {
        None
    }

    /// Whether that instant has come.
    fn is_as_fresh(&self, state: &Self::State, now_ns: u64) -> bool {
        self.fresh_at_ns(state).is_some_and(|fresh_ns| fresh_ns <= now_ns)
    }

    /// How many bytes a state takes besides its own.
    fn heap_bytes(&self, _state: &Self::State) -> usize {
        0
    }

    /// Carries a state over from the numbers of `old` to those of `self` at `now_ns`. Permits in use stay in use:
    /// what is left is the new allowance less those.
    fn rebase(&self, state: &mut Self::State, old: &Self, now_ns: u64);

    /// How late a caller may come again and again without any loss of the rate: what was not used
    /// meanwhile can be used at once.
    fn slack_ns(&self) -> u64 {
        0
    }

    /// Puts permits in from outside. Returns whether the policy takes any.
    fn refill(&self, _state: &mut Self::State, _now_ns: u64, _permits: u64) -> bool {
        false
    }

    /// Until when the limit could not be at rest if `grant`, which comes next, were not taken and
    /// nothing came back: what a [`refund`](Self::refund) of it will be judged by. Sooner is always
    /// true as well; later where the policy does not need to know.
    fn busy_until_ns(&self, _state: &Self::State, _grant: Taken) -> u64 {
        u64::MAX
    }

    /// Takes permits of a started grant back, as many as leave the state at least as full as if they
    /// had never been taken. Returns how many. If it is `n`, it would have been any lower number.
    fn refund(&self, _state: &mut Self::State, _refund: Refund) -> u64 {
        0
    }

    /// Takes back permits without a grant to show, up to a full limit: as many as there are to be taken back at
    /// `now_ns`. Returns how many; of a bucket the last of them may find room for a part of itself only. What comes
    /// back is the caller's word: in any window as many more permits pass as come back in it, and no more.
    ///
    /// A log loses its newest permits first: whatever window ends after them holds this instant too.
    fn credit(&self, _state: &mut Self::State, _now_ns: u64, _permits: u64) -> u64 {
        0
    }

    /// Whether the policy counts operations in flight, so that [`release`](Self::release) and
    /// [`forgo`](Self::forgo) change something.
    fn counts_in_flight(&self) -> bool {
        false
    }

    /// Takes note that operations have ended at `now_ns`. Returns whether the policy counts
    /// operations in flight. More than are in flight is as many as are.
    fn release(&self, _state: &mut Self::State, _now_ns: u64, _permits: u64) -> bool {
        false
    }

    /// Takes note that operations in flight never were: they provably had no effect, and never will.
    /// Returns whether the policy counts operations in flight.
    fn forgo(&self, _state: &mut Self::State, _now_ns: u64, _permits: u64) -> bool {
        false
    }
}

/// Permits held for waiters whose start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The instant from which they may be taken: now.
    pub from_ns: u64,
    /// How many.
    pub permits: NonZeroU64,
}

/// A grant as a policy records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The instant of asking. Before `start_ns`, the grant is a promise, and `start_ns` is the
    /// exact instant of the schedule rounded up to the clock; equal to it, the caller came late or
    /// just in time.
    pub from_ns: u64,
    /// The instant of starting.
    pub start_ns: u64,
    /// How many permits.
    pub permits: NonZeroU64,
}

impl Taken {
    /// Whether the caller has to wait for the start.
    #[must_use]
    pub const fn is_promise(&self) -> bool {
        self.from_ns < self.start_ns
    }
}
