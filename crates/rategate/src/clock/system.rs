//! The plain clock: real time, read from the standard library each time.

use std::time::{Duration, Instant};

use super::Clock;
use crate::clock::wait::{CancelToken, Wait, Wake, assert_may_block, on_real_time};
use rategate_core::span::whole_ns;

/// A clock of real time since it was made, read from the operating system each time.
///
/// No change of the wall clock affects it. 64 bits of nanoseconds last 584 years.
///
/// It is the plain choice: no calibration and no thread. Prefer it to
/// [`MonotonicClock`](super::MonotonicClock) where instants have to agree exactly with
/// [`Instant`], or where the processor's counter is not to be trusted. A reading costs about as
/// much as [`Instant::now`]: some tens of nanoseconds at best, a system call at worst.
///
/// ```
/// use std::time::Duration;
///
/// use rategate::{Clock, Limiter, SlidingLog, SystemClock};
///
/// let clock = SystemClock::new();
/// let limiter = Limiter::with_clock(SlidingLog::new(1, Duration::from_millis(1)), clock);
/// limiter.acquire(1)?;
/// limiter.acquire(1)?;
/// assert!(clock.now_ns() >= 1_000_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    origin: Instant,
    /// The reading that it showed at its origin.
    started_ns: u64,
}

/// Returns `true` if the standard library has a clock on this target.
const fn has_time() -> bool {
    !cfg!(all(target_family = "wasm", target_os = "unknown"))
}

impl SystemClock {
    /// Creates a clock that shows zero now.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(Duration::ZERO)
    }

    /// Creates a clock that shows `now` now: one that goes on where another was left.
    ///
    /// # Panics
    ///
    /// Panics where the standard library has no clock: on `wasm32-unknown-unknown`. Implement
    /// [`Clock`](super::Clock) there, and pass it to `with_clock`.
    #[must_use]
    #[track_caller]
    pub fn starting_at(now: Duration) -> Self {
        assert!(
            has_time(),
            "this target has no clock in the standard library: implement `rategate::Clock`, by \
             `performance.now()` in a browser, and make limiters by `with_clock`"
        );
        Self { origin: Instant::now(), started_ns: whole_ns(now) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        let elapsed = self.origin.elapsed();
        let whole_ns = elapsed.as_secs().saturating_mul(1_000_000_000);
        let elapsed_ns = whole_ns.saturating_add(elapsed.subsec_nanos().into());
        elapsed_ns.saturating_add(self.started_ns)
    }

    fn may_go_back(&self) -> bool {
        false
    }

    fn wait(&self, until_ns: u64, cancel: &CancelToken) -> Wake {
        on_real_time(Wait::plainly(until_ns), cancel, || self.now_ns())
    }

    fn wait_as(&self, wait: Wait, cancel: &CancelToken) -> Wake {
        on_real_time(wait, cancel, || self.now_ns())
    }

    fn is_real_time(&self) -> bool {
        true
    }

    fn sleep(&self, requested_ns: u64) {
        assert_may_block();
        std::thread::sleep(Duration::from_nanos(requested_ns));
    }
}
