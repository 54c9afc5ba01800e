//! An executor for tests: a list of tasks, and a clock that advances when none of them can run.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rategate::ManualClock;

/// A waker that sets a flag.
#[derive(Default)]
pub(crate) struct Flag(pub(crate) AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A task on the list.
pub(crate) struct Task<'a, T> {
    pub(crate) future: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
    pub(crate) flag: Arc<Flag>,
    pub(crate) result: Option<T>,
}

impl<'a, T> Task<'a, T> {
    /// Returns a task that has been polled once.
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'a) -> Self {
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let mut task = Self { future: Some(Box::pin(future)), flag, result: None };
        task.run();
        task
    }

    /// Polls the task if it was woken, as an executor would.
    pub(crate) fn run(&mut self) {
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
pub(crate) fn play<T>(clock: &ManualClock, tasks: &mut [Task<'_, T>], end_ns: u64) {
    loop {
        for task in &mut *tasks {
            task.run();
        }
        if tasks.iter().any(|task| task.future.is_some() && task.flag.0.load(Ordering::SeqCst)) {
            continue;
        }
        match clock.step() {
            Some(now) if now <= Duration::from_nanos(end_ns) => {}
            _ => return,
        }
    }
}
