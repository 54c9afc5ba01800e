//! A clock that is combined with another timer.

use crate::clock::Clock;
use crate::clock::wait::{CancelToken, Timer, Wait, Wake};

/// A clock on which tasks wait by a timer of your choice, such as the runtime's own.
///
/// ```
/// use std::time::Duration;
///
/// use rategate::wait::{Sleep, ThreadTimer, Timed, Timer};
/// use rategate::{AsyncLimiter, Gcra, MonotonicClock};
///
/// /// Wakes no more often than every millisecond.
/// struct Lazy;
///
/// impl Timer for Lazy {
///     fn after(&self, time: Duration) -> Sleep {
///         ThreadTimer.after(time.max(Duration::from_millis(1)))
///     }
/// }
///
/// let clock = Timed::new(MonotonicClock::new(), Lazy);
/// let limiter = AsyncLimiter::with_clock(Gcra::per_second(10), clock);
/// # drop(limiter);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Timed<C, T> {
    clock: C,
    timer: T,
}

impl<C: Clock, T: Timer> Timed<C, T> {
    /// Combines `clock` with `timer`, which replaces its own.
    #[must_use]
    pub const fn new(clock: C, timer: T) -> Self {
        Self { clock, timer }
    }
}

impl<C: Clock, T: Timer> Clock for Timed<C, T> {
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn now_in_order_ns(&self) -> u64 {
        self.clock.now_in_order_ns()
    }

    fn may_go_back(&self) -> bool {
        self.clock.may_go_back()
    }

    fn wait(&self, until_ns: u64, cancel: &CancelToken) -> Wake {
        self.clock.wait(until_ns, cancel)
    }

    fn wait_as(&self, wait: Wait, cancel: &CancelToken) -> Wake {
        self.clock.wait_as(wait, cancel)
    }

    fn sleep(&self, requested_ns: u64) {
        self.clock.sleep(requested_ns);
    }

    fn is_real_time(&self) -> bool {
        self.clock.is_real_time()
    }

    fn timer(&self) -> &dyn Timer {
        &self.timer
    }
}
