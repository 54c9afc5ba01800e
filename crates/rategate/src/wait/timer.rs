//! Waiting without a thread: what a task has instead.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// A future that ends once its timer's time has come.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Something that ends a wait on time for tasks, as a runtime's timer does.
///
/// A limiter has one such wait at a time, however many tasks wait in its queue: for the start of
/// the first. So a timer need not be fast. It may be coarse where the limit makes up for that: on a schedule and a
/// bucket with a burst a late wake delays those tasks, and takes nothing from the rate. On a log, a window or a bucket
/// of one it costs rate; [`ThreadTimer`](crate::ThreadTimer) is late the least.
///
/// Every [`Clock`](crate::Clock) has a timer: [`ThreadTimer`](crate::ThreadTimer), unless it says otherwise. To use a
/// runtime's own, see [`Timed`](crate::Timed).
pub trait Timer: Send + Sync {
    /// A wait that ends about `ns` nanoseconds from now. Ending early is no harm: whoever waits looks
    /// at his clock and sleeps again.
    ///
    /// It may be polled, and dropped, anywhere: outside the runtime, and after that is gone. If it
    /// cannot go on then, it should end, or panic; what cannot be had from this timer is left
    /// to [`ThreadTimer`](crate::ThreadTimer).
    fn after(&self, ns: u64) -> Sleep;
}

impl fmt::Debug for dyn Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timer")
    }
}
