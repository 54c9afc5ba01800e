//! Clocks: what time it is, and how to wait for later. [`MonotonicClock`] is the real one, and fast;
//! [`SystemClock`] is real and plain; [`ManualClock`] is for tests, and passes days in no time.

#[cfg(all(feature = "tsc", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod counter;
#[cfg(not(all(feature = "tsc", any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[path = "no_counter.rs"]
mod counter;
mod manual;
mod monotonic;
mod system;
mod wall;

use std::sync::Arc;

pub use self::manual::ManualClock;
pub use self::monotonic::MonotonicClock;
pub use self::system::SystemClock;
pub(crate) use self::wall::wall_ns;
use crate::wait::{Alarm, Sleep, ThreadTimer, Timer, Wait, Wake};

/// A clock that limiters and throttles read, and wait on.
///
/// Readings are nanoseconds since an origin that the clock picks once. They should not go back;
/// where they do, nothing is earned by it, and no bound is broken: a limit goes by the reading as it is, or
/// by the newest that it has seen.
pub trait Clock: Send + Sync {
    /// Nanoseconds since the clock's origin.
    ///
    /// A limiter calls this while it holds the lock of its limit, and an alarm's waiters call it
    /// while they hold the alarm. It must neither block nor call a limiter or an alarm.
    fn now_ns(&self) -> u64;

    /// Returns a reading that is not before any other that the caller knows of: made before by the same thread, or
    /// by another whose effects it has seen, behind a lock for example. What is provided here reads the clock.
    ///
    /// A limiter calls this, while it holds the lock of its limit, where a reading that is too early would have it
    /// give too much: to change its numbers, and to take permits back. A clock whose [`now_ns`](Self::now_ns) is
    /// faster than it is orderly has this besides.
    fn now_in_order_ns(&self) -> u64 {
        self.now_ns()
    }

    /// Blocks until the clock shows `until_ns` or more, or `alarm` is raised. Never returns
    /// [`Wake::Due`] early; an alarm that is already raised goes before everything.
    fn wait(&self, until_ns: u64, alarm: &Alarm) -> Wake;

    /// Waits like [`Clock::wait`], with as much care and processor time as `wait` says: until
    /// [`Wait::wake_ns`], and never until before [`Wait::until_ns`].
    ///
    /// A limiter waits by this method. What is provided here waits until [`Wait::until_ns`]
    /// plainly, which is right wherever a wait costs nothing, as on a [`ManualClock`]. The real
    /// clocks do what is asked.
    fn wait_as(&self, wait: Wait, alarm: &Alarm) -> Wake {
        self.wait(wait.until_ns(), alarm)
    }

    /// Sleeps once for about `asked_ns`, however long that really takes. Unlike
    /// [`Clock::wait`], it may end early where the platform's sleep does.
    fn sleep(&self, asked_ns: u64) {
        let _ = self.wait(self.now_ns().saturating_add(asked_ns), &Alarm::new());
    }

    /// Returns whether readings go on by themselves, in real time, so that looking at the clock again and
    /// again is a way to wait. What is provided here says no.
    ///
    /// On a clock of which this is true, waiters of a limit that makes up for no lateness look at it for
    /// the last microseconds before their starts, tasks in their polls.
    fn is_real_time(&self) -> bool {
        false
    }

    /// How tasks wait on this clock. What is provided here is right for any clock that runs with
    /// real time.
    fn timer(&self) -> &dyn Timer {
        &ThreadTimer
    }

    /// A task's wait for `until_ns`, by the clock's [timer](Self::timer). It may end early or late: who
    /// waits looks at the clock and waits again.
    fn sleep_until(&self, until_ns: u64) -> Sleep {
        self.timer().after(until_ns.saturating_sub(self.now_ns()))
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now_ns(&self) -> u64 {
        (**self).now_ns()
    }

    fn now_in_order_ns(&self) -> u64 {
        (**self).now_in_order_ns()
    }

    fn wait(&self, until_ns: u64, alarm: &Alarm) -> Wake {
        (**self).wait(until_ns, alarm)
    }

    fn wait_as(&self, wait: Wait, alarm: &Alarm) -> Wake {
        (**self).wait_as(wait, alarm)
    }

    fn sleep(&self, asked_ns: u64) {
        (**self).sleep(asked_ns);
    }

    fn is_real_time(&self) -> bool {
        (**self).is_real_time()
    }

    fn timer(&self) -> &dyn Timer {
        (**self).timer()
    }

    fn sleep_until(&self, until_ns: u64) -> Sleep {
        (**self).sleep_until(until_ns)
    }
}
