//! Who waits for a limiter's starts: it applies a precision, and knows when a thread last woke.

#![allow(dead_code, reason = "limiters are to wait by it")]

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Alarm, Precision, Wait, Wake};
use crate::clock::Clock;

/// Wakes that would come closer together than this are coalesced by [`Precision::Auto`].
const CLOSE_NS: u64 = 400_000;

/// The least time between two wakes that are coalesced.
pub(crate) const GATHER_NS: u64 = 1_000_000;

/// Waits in the manner of a [`Precision`], for all threads that share a limit.
#[derive(Debug)]
pub(crate) struct Waiter {
    precision: Precision,
    /// What a coalesced wake may be late by: [`GATHER_NS`], or less for a limit that cannot make up
    /// for that much.
    gather_ns: u64,
    /// When a thread last woke; zero before that. It is a hint and orders nothing, so relaxed will
    /// do.
    last_wake_ns: AtomicU64,
}

impl Waiter {
    /// A waiter that coalesces wakes over at most `gather_ns`; with zero, it never does.
    pub(crate) fn new(precision: Precision, gather_ns: u64) -> Self {
        let gather_ns = gather_ns.min(GATHER_NS);
        Self { precision, gather_ns, last_wake_ns: AtomicU64::new(0) }
    }

    /// Blocks until `clock` shows `until_ns` or more, or `alarm` is raised. Never ends early; late
    /// by `gather_ns` at most, and by what the clock's own waits are.
    pub(crate) fn wait<C: Clock>(&self, clock: &C, until_ns: u64, alarm: &Alarm) -> Wake {
        if alarm.is_raised() {
            return Wake::Raised;
        }
        // What is due is no wake, and moves no other.
        if clock.now_ns() >= until_ns {
            return Wake::Due;
        }
        let wake = clock.wait_as(self.planned(until_ns), alarm);
        if wake == Wake::Due {
            self.last_wake_ns.fetch_max(clock.now_ns(), Ordering::Relaxed);
        }
        wake
    }

    fn planned(&self, until_ns: u64) -> Wait {
        let last_wake_ns = self.last_wake_ns.load(Ordering::Relaxed);
        // A lone wait, however short, disturbs nobody.
        let close = last_wake_ns > 0 && until_ns.saturating_sub(last_wake_ns) < CLOSE_NS;
        match self.precision {
            Precision::Auto if !close || self.gather_ns == 0 => {
                Wait::exactly(until_ns, Precision::Precise)
            }
            Precision::Auto | Precision::Coalesced => self.gathered(until_ns, last_wake_ns),
            exact @ (Precision::Precise | Precision::Spin) => Wait::exactly(until_ns, exact),
        }
    }

    fn gathered(&self, until_ns: u64, last_wake_ns: u64) -> Wait {
        let next_ns = match last_wake_ns {
            0 => until_ns,
            last_wake_ns => last_wake_ns.saturating_add(self.gather_ns),
        };
        // Only a clock that was set back leads past the bound.
        Wait::together(until_ns, next_ns.min(until_ns.saturating_add(self.gather_ns)))
    }
}
