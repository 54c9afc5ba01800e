//! The interface between an algorithm and everything that drives it.
//!
//! A policy is a limit, checked once and immutable; its state is separate and small. A policy
//! only says *when* a request could start and *what is left* once it has, or once a part of it
//! came back. Promises, cancelling and the clamped clock are common to all policies and live in
//! [`ledger`](crate::ledger).

use core::fmt::Debug;
use core::num::NonZeroU64;

use crate::debt::Charge;
use crate::exact::{Exact, Pace};
use crate::outcome::Outcome;
use crate::refund::Refund;
use crate::verdict::{Opening, Refusal};

/// A rate limiting algorithm with its numbers.
pub trait Policy: Clone + Debug + PartialEq {
    /// The memory of the algorithm.
    type State: Clone + Debug;

    /// Returns the state of a fresh limit at `now_ns`: the first request passes at once.
    fn fresh(&self, now_ns: u64) -> Self::State;

    /// Returns the first instant, not before `from_ns`, at which `permits` may start together.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] that says why there is no such instant.
    fn opening(
        &self,
        state: &Self::State,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal>;

    /// Returns the first instant, not before `from_ns`, at which `permits` may start together
    /// with others that are held for waiters.
    ///
    /// The held permits count as if they started at `held.from_ns`. An instant later than that
    /// may turn out too early, since those waiters may take their permits later still.
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
        // These are more than can ever start together. So the held ones start first, now at the
        // soonest, but not before what the state knows of: starts never decrease.
        let mut state = state.clone();
        let first = self.opening(&state, held.from_ns, NonZeroU64::MIN);
        let held_ns = first.map_or(held.from_ns, |first| first.start_ns.max(held.from_ns));
        let taken = Taken { from_ns: held_ns, start_ns: held_ns, permits: held.permits };
        self.take(&mut state, taken);
        self.opening(&state, from_ns, permits)
    }

    /// Returns `true` if the policy promises instants on an open schedule, which lateness must
    /// not shift. All others bound what starts, so a start counts when it happens.
    fn keeps_schedule(&self) -> bool {
        false
    }

    /// Returns how far behind its promised instant on a schedule a waiter may start, where the
    /// policy bounds what a late caller may catch up on. `None`: however far.
    fn most_late_ns(&self) -> Option<u64> {
        None
    }

    /// Records a grant. Starts never decrease from one call to the next.
    fn take(&self, state: &mut Self::State, grant: Taken);

    /// Returns the maximum number of permits that one request at `now_ns` could take.
    fn remaining(&self, state: &Self::State, now_ns: u64) -> u64;

    /// Returns the instant from which no decision can tell this state from a [fresh](Self::fresh)
    /// one if no calls come, so that a table may evict its key. Returns `None` if time alone
    /// never restores it, or the policy does not know.
    ///
    /// The instant ignores what the refund of an earlier grant may change.
    fn fresh_at_ns(&self, _state: &Self::State) -> Option<u64> {
        None
    }

    /// Returns `true` if that instant has come.
    fn is_as_fresh(&self, state: &Self::State, now_ns: u64) -> bool {
        self.fresh_at_ns(state).is_some_and(|fresh_ns| fresh_ns <= now_ns)
    }

    /// Returns the number of bytes that a state takes on the heap.
    fn heap_bytes(&self, _state: &Self::State) -> usize {
        0
    }

    /// Carries a state over from the numbers of `old` to those of `self` at `now_ns`. Permits in
    /// use stay in use: what is left is the new allowance less those.
    fn rebase(&self, state: &mut Self::State, old: &Self, now_ns: u64);

    /// Returns by how much a caller may be late, again and again, without any loss of the rate:
    /// what it did not use by then can be used at once.
    fn slack_ns(&self) -> u64 {
        0
    }

    /// Corrects what has been taken. Returns the number of permits by which it did, or that ended.
    ///
    /// `None` where the policy knows no such correction. A charge is kept as promises of later
    /// starts then, and of all others nothing changes.
    fn correct(&self, _state: &mut Self::State, _correction: Correction) -> Option<u64> {
        None
    }

    /// Returns until when the limit could not be at rest if `grant`, which comes next, were not
    /// taken and nothing came back.
    ///
    /// A [`Back`](Correction::Back) is judged by this instant. An earlier one is always true as
    /// well; a later one is allowed where the policy does not need to know.
    fn busy_until_ns(&self, _state: &Self::State, _grant: Taken) -> u64 {
        u64::MAX
    }

    /// Returns `true` if the policy is a token bucket, at whatever rate.
    fn is_bucket(&self) -> bool {
        false
    }

    /// Returns the state as a token bucket, if it is one that earns something.
    ///
    /// Permits that are [held](crate::holds) come back to it exactly, by
    /// [`set_bucket`](Self::set_bucket); to all others by a [`Back`](Correction::Back).
    fn bucket(&self, _state: &Self::State) -> Option<Bucket> {
        None
    }

    /// Moves a bucket back, where [`bucket`](Self::bucket) returns one.
    fn set_bucket(&self, _state: &mut Self::State, _bucket: Bucket) {}

    /// Returns by how many permits the state exceeds the limit at `now_ns`.
    fn debt(&self, _state: &Self::State, _now_ns: u64) -> u64 {
        0
    }

    /// Returns the first instant, not before `from_ns`, at which the state does not exceed the
    /// limit if no calls come. `None` beyond the end of the clock, or if time alone cannot help.
    fn debt_ends_ns(&self, _state: &Self::State, from_ns: u64) -> Option<u64> {
        Some(from_ns)
    }

    /// Returns `true` if the policy counts operations [in flight](Self::in_flight), so that their
    /// [end](Correction::End) changes something.
    fn counts_in_flight(&self) -> bool {
        false
    }

    /// Returns the number of permits in flight, or 0 if the policy does not count them.
    fn in_flight(&self, _state: &Self::State) -> u64 {
        0
    }

    /// Returns the maximum number of permits in flight at `now_ns`, if the policy limits them.
    fn max_in_flight(&self, _state: &Self::State, _now_ns: u64) -> Option<u64> {
        None
    }

    /// Returns `true` if the limit moves by the [outcomes](Ending::Of) of operations.
    fn follows_outcomes(&self) -> bool {
        false
    }
}

/// A token bucket: the instant by which everything taken will have been earned, and the pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub(crate) tat: Exact,
    pub(crate) pace: Pace,
}

/// Permits held for waiters whose start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The instant from which they may be taken: now.
    pub from_ns: u64,
    /// The number of permits.
    pub permits: NonZeroU64,
}

/// A correction of what has been taken from a limit: less of it, or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Correction {
    /// Permits of a started grant come back that had no effect: as many as leave the limit at least
    /// as full as if they had never been taken. A correction of that many permits or fewer would
    /// have taken back all of them.
    Back(Refund),
    /// Permits come back for which there is no grant, up to a full limit. In a bucket the last of
    /// them may fit only in part.
    ///
    /// The caller vouches for them: in any window as many more permits pass as come back in it, and
    /// no more. A log drops its newest permits first: every window that ends after them includes
    /// this instant too. Operations in flight are aborted: do not end them as well.
    Credit {
        /// The instant.
        now_ns: u64,
        /// The number of permits.
        permits: u64,
    },
    /// Permits have been used already, whether they fit or not; see [`debt`](crate::debt).
    Charge(Charge),
    /// Operations have ended. More permits than are in flight count as those in flight.
    End(Ended),
    /// Permits come from outside, as into a [pool](crate::backfill_pool).
    Refill {
        /// The instant.
        now_ns: u64,
        /// The number of permits.
        permits: u64,
    },
}

impl Correction {
    /// Returns the instant of the correction.
    pub(crate) const fn now_ns(&self) -> u64 {
        match *self {
            Self::Back(Refund { now_ns, .. })
            | Self::Credit { now_ns, .. }
            | Self::Charge(Charge { now_ns, .. })
            | Self::End(Ended { now_ns, .. })
            | Self::Refill { now_ns, .. } => now_ns,
        }
    }

    /// Returns the correction by another clock, which shows `clock` of an instant.
    pub(crate) fn by(self, clock: impl Fn(u64) -> u64) -> Self {
        let now_ns = clock(self.now_ns());
        match self {
            Self::Back(back) => {
                Self::Back(Refund { now_ns, start_ns: clock(back.start_ns), ..back })
            }
            Self::Credit { permits, .. } => Self::Credit { now_ns, permits },
            Self::Charge(charge) => Self::Charge(Charge { now_ns, ..charge }),
            Self::End(ended) => Self::End(Ended { now_ns, ..ended }),
            Self::Refill { permits, .. } => Self::Refill { now_ns, permits },
        }
    }

    /// Returns the end of operations that it is to a limit on those in flight: what comes back had
    /// no effect.
    pub(crate) fn as_end(self, in_flight: u64) -> Option<Ended> {
        let (permits, how) = match self {
            Self::Back(Refund { permits, .. }) | Self::Credit { permits, .. } => {
                (permits, Ending::Aborted)
            }
            Self::End(Ended { permits, how, .. }) => (permits, how),
            Self::Charge(_) | Self::Refill { .. } => return None,
        };
        Some(Ended { now_ns: self.now_ns(), permits: permits.min(in_flight), how })
    }
}

/// Operations that have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The instant at which they ended.
    pub now_ns: u64,
    /// The number of their permits.
    pub permits: u64,
    /// The way in which they ended.
    pub how: Ending,
}

/// The way in which operations end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// They may have had their effect.
    Released,
    /// They provably had no effect and never will. Operations that failed or were cut short may
    /// have had theirs all the same.
    Aborted,
    /// They are of one grant, and a limit may [follow](crate::adaptive) what its server bears.
    Of {
        /// The instant at which they started.
        start_ns: u64,
        /// What the end says of the server.
        outcome: Outcome,
    },
}

/// A grant as a policy records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The instant of the request. Before `start_ns`, the grant is a promise, and `start_ns` is
    /// the exact instant of the schedule rounded up to the clock. Equal to it, the caller came
    /// late or just in time.
    pub from_ns: u64,
    /// The instant of the start.
    pub start_ns: u64,
    /// The number of permits.
    pub permits: NonZeroU64,
}

impl Taken {
    /// Returns `true` if the caller has to wait for the start.
    #[must_use]
    pub const fn is_promise(&self) -> bool {
        self.from_ns < self.start_ns
    }
}
