//! Tokio's timer, and its clock, which tests can pause.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::clock::Clock;
use crate::clock::wait::{CancelToken, Sleep, Timer, Wait, Wake, on_real_time};

/// The timer of a tokio runtime, which wakes at whole milliseconds and about one late.
///
/// Combine it with a clock by [`Timed`](crate::wait::Timed). Once the runtime has shut down,
/// [`ThreadTimer`](crate::wait::ThreadTimer) wakes the tasks that still wait elsewhere.
///
/// The runtime must have its time driver enabled, as one made by `#[tokio::main]` has; without
/// it, [`ThreadTimer`](crate::wait::ThreadTimer) does the work, too.
#[derive(Clone, Debug)]
pub struct TokioTimer {
    runtime: Handle,
}

impl TokioTimer {
    /// Returns the timer of the runtime that this is called in.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    #[must_use]
    #[track_caller]
    pub fn current() -> Self {
        Self::new(Handle::current())
    }

    /// Returns the timer of `runtime`.
    #[must_use]
    pub const fn new(runtime: Handle) -> Self {
        Self { runtime }
    }
}

impl Timer for TokioTimer {
    fn after(&self, time: Duration) -> Sleep {
        let _entered = self.runtime.enter();
        Box::pin(sleep(time))
    }
}

/// The time of a tokio runtime: real, or paused and advanced by its tests.
///
/// Tasks wait by its [timer](TokioTimer).
///
/// A pause is seen on the threads of that runtime only, as with tokio's own clock. A thread that
/// blocks on this clock waits in real time.
#[derive(Clone, Debug)]
pub struct TokioClock {
    origin: Instant,
    timer: TokioTimer,
}

impl TokioClock {
    /// Creates a clock of the runtime that this is called in. It shows zero now.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    #[must_use]
    #[track_caller]
    pub fn current() -> Self {
        Self::new(Handle::current())
    }

    /// Creates a clock of `runtime` that shows zero now.
    #[must_use]
    pub fn new(runtime: Handle) -> Self {
        let origin = {
            let _entered = runtime.enter();
            Instant::now()
        };
        Self { origin, timer: TokioTimer::new(runtime) }
    }
}

impl Clock for TokioClock {
    fn now_ns(&self) -> u64 {
        let elapsed = Instant::now().saturating_duration_since(self.origin);
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }

    fn wait(&self, until_ns: u64, cancel: &CancelToken) -> Wake {
        on_real_time(Wait::plainly(until_ns), cancel, || self.now_ns())
    }

    fn wait_as(&self, wait: Wait, cancel: &CancelToken) -> Wake {
        on_real_time(wait, cancel, || self.now_ns())
    }

    fn timer(&self) -> &dyn Timer {
        &self.timer
    }
}
