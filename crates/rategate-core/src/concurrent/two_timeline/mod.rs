//! Two timelines without a lock: the lock-free form of [`two_timeline`](crate::two_timeline).
//!
//! * `average.rs`: average mode with unbounded catching up. A try costs one addition while behind
//!   schedule; otherwise a clock reading and a swap.
//! * `spaced.rs`: strict, damped and burst mode, and average mode with a bound on catching up. A
//!   try costs a clock reading and two swaps.
//!
//! At most one of the two is open: a change of the mode seals one and opens the other.
//!
//! # Contract
//!
//! That of [`two_timeline`](crate::two_timeline). The ledger decides for ramps, what is left of
//! an earlier rate, a burst with a bound on catching up, several permits where permits are
//! spaced, and rates of which 59 bits of parts do not last a second.

mod average;
mod spaced;

use self::average::Average;
use self::spaced::Spaced;
use super::LockFreeVerdict;
use crate::two_timeline::{State, TwoTimeline};

pub use self::average::{MARGIN, REFRESH};

/// The shortest scale that is worth opening.
const MIN_HORIZON_NS: u64 = 1_000_000_000;

/// Two timelines that threads share without a lock.
#[derive(Debug)]
pub struct Timelines {
    average: Average,
    spaced: Spaced,
}

/// What any thread may do: see [`Fast`](super::Fast).
impl Timelines {
    pub(super) fn try_acquire(
        &self,
        read_ns: impl Fn() -> u64 + Copy,
        permits: u64,
    ) -> LockFreeVerdict {
        match self.try_briefly(read_ns, permits) {
            LockFreeVerdict::Sealed => self.try_fresh(read_ns, permits),
            verdict => verdict,
        }
    }

    #[inline]
    pub(super) fn try_briefly(
        &self,
        read_ns: impl Fn() -> u64 + Copy,
        permits: u64,
    ) -> LockFreeVerdict {
        if permits == 1 { self.average.try_cached(read_ns) } else { LockFreeVerdict::Sealed }
    }

    pub(super) fn peek(&self, now_ns: u64, permits: u64) -> Option<u64> {
        self.average.peek(now_ns, permits).or_else(|| self.spaced.peek(now_ns, permits))
    }

    pub(super) fn remaining(&self, now_ns: u64) -> Option<u64> {
        self.average.remaining(now_ns).or_else(|| self.spaced.remaining(now_ns))
    }

    /// Tries with a fresh reading of the clock.
    fn try_fresh(&self, read_ns: impl Fn() -> u64 + Copy, permits: u64) -> LockFreeVerdict {
        match self.average.try_fresh(read_ns, permits) {
            LockFreeVerdict::Sealed => self.spaced.try_acquire(read_ns, permits),
            answer => answer,
        }
    }
}

/// What only the thread with the ledger's lock does: see [`Fast`](super::Fast).
impl Timelines {
    pub(super) fn sealed() -> Self {
        Self { average: Average::sealed(), spaced: Spaced::sealed() }
    }

    pub(super) fn seal(&self, policy: &TwoTimeline) -> Option<State> {
        let pace = policy.constant_pace()?;
        let (since_ns, plain) = self.average.seal(pace).or_else(|| self.spaced.seal(pace))?;
        Some(policy.state_of(since_ns, plain))
    }

    pub(super) fn open(&self, policy: &TwoTimeline, state: &State, now_ns: u64) -> bool {
        let Some((pace, plain)) = policy.constant_pace().zip(policy.plain(state)) else {
            return false;
        };
        self.average.open(policy, pace, plain, now_ns)
            || self.spaced.open(policy, pace, plain, now_ns)
    }

    pub(super) fn change(
        &self,
        old: &TwoTimeline,
        new: &TwoTimeline,
        read_ns: impl Fn() -> u64 + Copy,
    ) -> Option<u64> {
        self.average.change(old, new, read_ns)
    }
}
