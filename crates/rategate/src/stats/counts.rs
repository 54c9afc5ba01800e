//! Counters of calls and permits, with a lane for each thread.

use std::fmt;

use super::lanes::{Lanes, OwnLane};
use super::outcome::Outcome;
use crate::sync::{AtomicU64, Ordering};

/// The most threads that have counters of their own, of 128 bytes; as many again are shared.
const MAX_LANES: usize = 32;

/// The counts of a limit since its statistics began.
///
/// Each number only grows. They are read one after another while other threads count, so a call
/// may be in one number and not yet in another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// The calls that were granted.
    pub granted_calls: u64,
    /// The permits granted to those calls.
    pub granted_permits: u64,
    /// The granted calls that left less than a tenth of the limit.
    pub near_calls: u64,
    /// The calls that were denied.
    pub denied_calls: u64,
    /// The permits that the denied calls requested.
    pub denied_permits: u64,
    /// The new keys for which a table had no capacity.
    pub overflows: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { granted_calls, granted_permits, near_calls, denied_calls, .. } = self;
        write!(f, "granted {granted_calls} calls of {granted_permits} permits, ")?;
        write!(f, "{near_calls} near the limit; denied {denied_calls}")?;
        write!(f, " of {}; {} overflows", self.denied_permits, self.overflows)
    }
}

/// Counters that grow while they are read.
#[derive(Debug)]
pub(super) struct Tallies {
    lanes: Lanes<Lane>,
}

/// The counters of one lane. A call adds to one of its tallies.
#[derive(Debug, Default)]
struct Lane {
    far: Tally,
    near: Tally,
    denied: Tally,
    overflows: AtomicU64,
}

/// A count of calls and permits. Nothing is ordered by them, so all accesses are relaxed.
#[derive(Debug, Default)]
struct Tally {
    calls: AtomicU64,
    /// The permits minus the calls, modulo 2^64: a call for one permit, the common case, adds
    /// nothing.
    extra: AtomicU64,
}

impl Tallies {
    pub(super) fn new() -> Self {
        Self { lanes: Lanes::new(MAX_LANES, Lane::default) }
    }

    /// Counts a call, and returns its number within its kind and its lane.
    #[inline]
    pub(super) fn add(&self, permits: u64, outcome: Outcome) -> u64 {
        let Some(OwnLane { lane, is_unshared }) = self.lanes.own() else { return 0 };
        let tally = match outcome {
            Outcome::Granted { is_near: false } => &lane.far,
            Outcome::Granted { is_near: true } => &lane.near,
            Outcome::Denied { .. } => &lane.denied,
        };
        tally.add(1, permits, is_unshared)
    }

    /// Counts granted calls, and their permits in total.
    pub(super) fn add_granted(&self, calls: u64, permits: u64) {
        if let Some(OwnLane { lane, is_unshared }) = self.lanes.own() {
            lane.far.add(calls, permits, is_unshared);
        }
    }

    pub(super) fn add_overflow(&self) {
        if let Some(OwnLane { lane, is_unshared }) = self.lanes.own() {
            add(&lane.overflows, 1, is_unshared);
        }
    }

    pub(super) fn sum(&self) -> Counts {
        let mut sum = Counts::default();
        for lane in self.lanes.all() {
            let (far_calls, far_permits) = lane.far.read();
            let (near_calls, near_permits) = lane.near.read();
            let (denied_calls, denied_permits) = lane.denied.read();
            let overflows = lane.overflows.load(Ordering::Relaxed);
            sum = Counts {
                granted_calls: sum.granted_calls.wrapping_add(far_calls).wrapping_add(near_calls),
                granted_permits: (sum.granted_permits.wrapping_add(far_permits))
                    .wrapping_add(near_permits),
                near_calls: sum.near_calls.wrapping_add(near_calls),
                denied_calls: sum.denied_calls.wrapping_add(denied_calls),
                denied_permits: sum.denied_permits.wrapping_add(denied_permits),
                overflows: sum.overflows.wrapping_add(overflows),
            };
        }
        sum
    }
}

impl Tally {
    #[inline]
    fn add(&self, calls: u64, permits: u64, is_unshared: bool) -> u64 {
        if permits != calls {
            add(&self.extra, permits.wrapping_sub(calls), is_unshared);
        }
        add(&self.calls, calls, is_unshared)
    }

    fn read(&self) -> (u64, u64) {
        let calls = self.calls.load(Ordering::Relaxed);
        (calls, calls.wrapping_add(self.extra.load(Ordering::Relaxed)))
    }
}

/// Adds to a counter, and returns its previous value.
///
/// If no other thread writes to it, no write can come between the load and the store, which
/// cost less than an atomic addition.
#[inline]
fn add(counter: &AtomicU64, more: u64, is_unshared: bool) -> u64 {
    if !is_unshared {
        return counter.fetch_add(more, Ordering::Relaxed);
    }
    let before = counter.load(Ordering::Relaxed);
    counter.store(before.wrapping_add(more), Ordering::Relaxed);
    before
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    /// No count is lost, even when more threads than lanes count at once.
    #[test]
    fn nothing_is_lost() {
        const THREADS: u64 = 16;
        const CALLS: u64 = 100_000;
        let tallies = Tallies::new();
        let start = Barrier::new(16);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..CALLS {
                        tallies.add(3, Outcome::Granted { is_near: false });
                    }
                });
            }
        });
        let Counts { granted_calls, granted_permits, .. } = tallies.sum();
        assert_eq!(granted_calls, THREADS.wrapping_mul(CALLS));
        assert_eq!(granted_permits, granted_calls.wrapping_mul(3));
    }
}
