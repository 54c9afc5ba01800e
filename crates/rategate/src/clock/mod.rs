//! Clocks: the current time, and waits for later instants. Besides these files, only
//! `future/tokio.rs` reads a clock, which is tokio's.
//!
//! [`MonotonicClock`] is real and fast; [`SystemClock`] is real and plain; [`ManualClock`] is for
//! tests, and passes days in no time.

#[cfg(all(feature = "tsc", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod counter;
#[cfg(not(all(feature = "tsc", any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[path = "no_counter.rs"]
mod counter;
mod manual;
mod monotonic;
mod never_back;
mod system;
pub(crate) mod wait;
#[cfg(any(feature = "calendar", feature = "keyed", feature = "serde"))]
mod wall;

use std::sync::Arc;
use std::time::Duration;

pub use self::manual::ManualClock;
pub use self::monotonic::MonotonicClock;
pub(crate) use self::never_back::NeverBack;
pub use self::system::SystemClock;
#[cfg(any(feature = "calendar", feature = "keyed", feature = "serde"))]
pub(crate) use self::wall::wall_ns;
use crate::clock::wait::{CancelToken, Sleep, ThreadTimer, Timer, Wait, Wake};

/// A clock that limiters and throttles read, and wait on.
///
/// Readings are nanoseconds since an origin that the clock sets once. They should not go back.
/// Where they do, limiters and tables of keys use the newest reading that they have seen: nothing
/// is earned by it, no bound is broken, and nobody is denied who would not have been before. Time
/// stands still for them until the clock has caught up, and that is not in the wait that a denial
/// names.
pub trait Clock: Send + Sync {
    /// Returns the nanoseconds since the clock's origin.
    ///
    /// A limiter calls this while it holds the lock of its limit. Waiters of a cancellation token
    /// call it while they hold the token's lock. It must neither block nor call a limiter or a
    /// token.
    fn now_ns(&self) -> u64;

    /// Returns a reading that is not before any other reading that the caller knows of.
    ///
    /// Such a reading was made before by the same thread, or by another whose effects the caller
    /// has seen, behind a lock for example. The default reads the clock.
    ///
    /// A limiter calls this, while it holds the lock of its limit, where too early a reading
    /// would make it grant too much: to change its numbers, and to refund permits. A clock whose
    /// [`now_ns`](Self::now_ns) trades this order for speed implements this method as well.
    fn now_in_order_ns(&self) -> u64 {
        self.now_ns()
    }

    /// Returns `true` if a reading may be before an earlier one. The default is `true`.
    ///
    /// Limiters then keep the newest reading, at the cost of one load for each, and an atomic
    /// maximum where it is newer. A clock that returns `false` is read as it is. It may differ
    /// between threads all the same, as the counters of a machine's cores do: what its readings
    /// differ by may be denied too long, and breaks no bound.
    fn may_go_back(&self) -> bool {
        true
    }

    /// Blocks until the clock shows `until_ns` or more, or `cancel` is raised.
    ///
    /// Never returns [`Wake::Due`] early. A token that is raised already takes precedence.
    fn wait(&self, until_ns: u64, cancel: &CancelToken) -> Wake;

    /// Waits like [`Clock::wait`], with the precision and processor time that `wait` states.
    ///
    /// It waits until [`Wait::wake_ns`], and never ends before [`Wait::until_ns`]. A limiter
    /// waits by this method. The default waits until [`Wait::until_ns`] plainly, which is right
    /// wherever a wait costs nothing, as on a [`ManualClock`]. The real clocks honour the
    /// precision.
    fn wait_as(&self, wait: Wait, cancel: &CancelToken) -> Wake {
        self.wait(wait.until_ns(), cancel)
    }

    /// Sleeps once for about `requested_ns`, however long that really takes.
    ///
    /// Unlike [`Clock::wait`], it may end early where the platform's sleep does.
    fn sleep(&self, requested_ns: u64) {
        let _ = self.wait(self.now_ns().saturating_add(requested_ns), &CancelToken::new());
    }

    /// Returns `true` if readings advance by themselves, in real time. The default is `false`.
    ///
    /// On such a clock a caller can wait by reading it again and again. Waiters of a limit that
    /// makes up for no lateness do so for the last microseconds before their starts, tasks in
    /// their polls.
    fn is_real_time(&self) -> bool {
        false
    }

    /// Blocks a waiter that is not the first in its queue, as [`CancelToken::wait_on`] does.
    ///
    /// The default suits any clock: others end this wait. A clock may note that the thread waits.
    fn wait_for_turn(
        &self,
        cancel: &CancelToken,
        left: &mut dyn FnMut() -> Option<Duration>,
    ) -> Wake {
        cancel.wait_on(left)
    }

    /// Returns the timer by which tasks wait on this clock.
    ///
    /// The default suits any clock that runs with real time.
    fn timer(&self) -> &dyn Timer {
        &ThreadTimer
    }

    /// Returns a task's wait for `until_ns`, by the clock's [timer](Self::timer).
    ///
    /// It may end early or late: the waiter reads the clock and waits again.
    fn sleep_until(&self, until_ns: u64) -> Sleep {
        self.timer().after(Duration::from_nanos(until_ns.saturating_sub(self.now_ns())))
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now_ns(&self) -> u64 {
        (**self).now_ns()
    }

    fn now_in_order_ns(&self) -> u64 {
        (**self).now_in_order_ns()
    }

    fn may_go_back(&self) -> bool {
        (**self).may_go_back()
    }

    fn wait(&self, until_ns: u64, cancel: &CancelToken) -> Wake {
        (**self).wait(until_ns, cancel)
    }

    fn wait_as(&self, wait: Wait, cancel: &CancelToken) -> Wake {
        (**self).wait_as(wait, cancel)
    }

    fn sleep(&self, requested_ns: u64) {
        (**self).sleep(requested_ns);
    }

    fn is_real_time(&self) -> bool {
        (**self).is_real_time()
    }

    fn wait_for_turn(
        &self,
        cancel: &CancelToken,
        left: &mut dyn FnMut() -> Option<Duration>,
    ) -> Wake {
        (**self).wait_for_turn(cancel, left)
    }

    fn timer(&self) -> &dyn Timer {
        (**self).timer()
    }

    fn sleep_until(&self, until_ns: u64) -> Sleep {
        (**self).sleep_until(until_ns)
    }
}
