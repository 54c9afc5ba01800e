//! The clock that all processes of a machine share.

use rustix::time::{ClockId, clock_gettime};

/// Returns the nanoseconds since the machine was started.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Returns the minimum distance of two readings, one right after the other.
pub(crate) fn cost_ns() -> u64 {
    let apart = |_| {
        let from = now_ns();
        now_ns().saturating_sub(from)
    };
    (0..1_000).map(apart).min().unwrap_or(0)
}
