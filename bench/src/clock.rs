//! The clock that all processes of a machine share.

use rustix::time::{ClockId, clock_gettime};

/// Returns the nanoseconds since the machine was started.
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let [seconds, ns] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.wrapping_mul(1_000_000_000).wrapping_add(ns)
}

/// Returns the minimum distance of two readings, one right after the other.
#[must_use]
pub fn cost_ns() -> u64 {
    let apart = |_| {
        let from = now_ns();
        now_ns().saturating_sub(from)
    };
    (0..1_000).map(apart).min().unwrap_or(0)
}
