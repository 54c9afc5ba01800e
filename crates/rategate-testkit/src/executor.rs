//! An executor for tests: a list of tasks, and a clock that advances when none of them can run.
//!
//! ```
//! use rategate::{AsyncLimiter, ManualClock, SlidingLog};
//! use rategate_testkit::executor::{Task, play};
//! use std::time::Duration;
//!
//! let (clock, minute) = (ManualClock::stepped(), Duration::from_secs(60));
//! let limiter = AsyncLimiter::with_clock(SlidingLog::new(1, minute), clock.clone());
//! let mut tasks = [Task::new(limiter.acquire(1)), Task::new(limiter.acquire(1))];
//! play(&clock, &mut tasks, 60_000_000_000);
//! let starts = tasks.map(|task| task.result.unwrap().unwrap().released_at().as_nanos());
//! assert_eq!(starts, [0, 60_000_000_000]);
//! ```

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rategate::ManualClock;

/// A waker that sets a flag.
#[derive(Debug, Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A task on the list.
pub struct Task<'a, T> {
    /// The future, until the task has ended. Setting it to `None` drops it.
    pub future: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
    flag: Arc<Flag>,
    /// The result, once the task has ended.
    pub result: Option<T>,
}

impl<'a, T> Task<'a, T> {
    /// Returns a task that has been polled once.
    pub fn new(future: impl Future<Output = T> + Send + 'a) -> Self {
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let mut task = Self { future: Some(Box::pin(future)), flag, result: None };
        task.run();
        task
    }

    /// Returns `true` if the task was woken and has not been polled since.
    pub fn is_woken(&self) -> bool {
        self.flag.0.load(Ordering::SeqCst)
    }

    /// Polls the task if it was woken, as an executor would.
    pub fn run(&mut self) {
        while self.flag.0.swap(false, Ordering::SeqCst) {
            let Some(future) = &mut self.future else { return };
            let waker = Waker::from(Arc::clone(&self.flag));
            if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                self.result = Some(result);
                self.future = None;
            }
        }
    }
}

/// Runs woken tasks, and advances the clock when there are none, until `end_ns`.
pub fn play<T>(clock: &ManualClock, tasks: &mut [Task<'_, T>], end_ns: u64) {
    loop {
        for task in &mut *tasks {
            task.run();
        }
        if tasks.iter().any(|task| task.future.is_some() && task.is_woken()) {
            continue;
        }
        match clock.step() {
            Some(now) if now <= Duration::from_nanos(end_ns) => {}
            _ => return,
        }
    }
}

// A future need not be `Debug`, nor its result.
impl<T> fmt::Debug for Task<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("flag", &self.flag).finish_non_exhaustive()
    }
}
