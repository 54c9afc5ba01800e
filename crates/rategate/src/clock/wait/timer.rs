//! Timers, which end the waits of tasks: a task has no thread of its own to block.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// A future that ends once its timer's time has come.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A timer that ends the waits of tasks on time, as a runtime's timer does.
///
/// A limiter has one such wait at a time, however many tasks wait in its queue: for the start of
/// the first. So a timer need not be fast. It may be coarse where the limit makes up for that: on
/// a schedule and a bucket with a burst a late wake delays those tasks, and takes nothing from
/// the rate. On a log, a window or a bucket of one it costs rate;
/// [`ThreadTimer`](crate::wait::ThreadTimer) has the least lateness.
///
/// Every [`Clock`](crate::Clock) has a timer, which is [`ThreadTimer`](crate::wait::ThreadTimer) by
/// default. To use a runtime's own, see [`Timed`](crate::wait::Timed).
pub trait Timer: Send + Sync {
    /// Returns a wait that ends about `time` from now.
    ///
    /// It may end early: the waiter reads its clock and sleeps again. It may be polled, and
    /// dropped, anywhere: outside the runtime, and after that has shut down. If it cannot go on
    /// then, it should end, or panic; [`ThreadTimer`](crate::wait::ThreadTimer) takes over the rest
    /// of the wait.
    fn after(&self, time: Duration) -> Sleep;
}

impl fmt::Debug for dyn Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timer")
    }
}
