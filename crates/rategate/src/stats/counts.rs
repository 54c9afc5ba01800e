//! Counters of calls and permits, with a lane for each thread.

use std::fmt;

use super::lanes::Counters;
use super::outcome::Outcome;

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

/// Counters that grow while they are read: of calls far from the limit, near it and denied, each
/// with its permits less its calls, so that a call for one permit, the common case, adds one
/// number; and of overflows.
#[derive(Debug)]
pub(super) struct Tallies(Counters<7>);

const FAR: [usize; 2] = [0, 1];
const NEAR: [usize; 2] = [2, 3];
const DENIED: [usize; 2] = [4, 5];
const OVERFLOWS: usize = 6;

impl Tallies {
    pub(super) fn new() -> Self {
        Self(Counters::new(MAX_LANES))
    }

    /// Counts a call, and returns its number within its kind and its lane.
    #[inline]
    pub(super) fn add(&self, permits: u64, outcome: Outcome) -> u64 {
        let kind = match outcome {
            Outcome::Granted { is_near: false } => FAR,
            Outcome::Granted { is_near: true } => NEAR,
            Outcome::Denied { .. } => DENIED,
        };
        self.add_calls(kind, 1, permits)
    }

    /// Counts granted calls, and their permits in total.
    pub(super) fn add_granted(&self, calls: u64, permits: u64) {
        self.add_calls(FAR, calls, permits);
    }

    pub(super) fn add_overflow(&self) {
        self.0.add(OVERFLOWS, 1);
    }

    #[inline]
    fn add_calls(&self, [kind, extra]: [usize; 2], calls: u64, permits: u64) -> u64 {
        if permits != calls {
            self.0.add(extra, permits.wrapping_sub(calls));
        }
        self.0.add(kind, calls)
    }

    pub(super) fn sum(&self) -> Counts {
        let [far, far_extra, near, near_extra, denied, denied_extra, overflows] = self.0.sum();
        let granted = far.wrapping_add(near);
        Counts {
            granted_calls: granted,
            granted_permits: granted.wrapping_add(far_extra).wrapping_add(near_extra),
            near_calls: near,
            denied_calls: denied,
            denied_permits: denied.wrapping_add(denied_extra),
            overflows,
        }
    }
}
