//! The world of a model: a clock that one thread sets while others read it, its timer, and tasks.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as Count, Ordering};
use std::task::{Context, Poll, Wake as Wakes, Waker};
use std::time::Duration;

use loom::sync::atomic::AtomicU64;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use rategate::policy::Anchor;
use rategate::wait::{CancelToken, Sleep, Timer, Wake};
use rategate::{AcquireError, AllOf, AsyncLimiter, Clock, Concurrency, FixedWindow, Grant};
use rategate_core::span::whole_ns;

/// Explores all schedules with a bounded number of preemptions: three, or `LOOM_MAX_PREEMPTIONS`.
pub(crate) fn explore(model: impl Fn(&ManualTime) + Send + Sync + 'static) {
    explore_within(3, model);
}

/// Explores as [`explore`] does, with so many preemptions unless more are asked for.
pub(crate) fn explore_within(
    preemptions: usize,
    model: impl Fn(&ManualTime) + Send + Sync + 'static,
) {
    let schedules = Arc::new(Count::new(0));
    let counted = Arc::clone(&schedules);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 100_000;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let time = ManualTime::default();
        model(&time);
        // A timer and the limiter that set it may hold each other.
        time.drop_all();
    });
    let name = std::thread::current().name().unwrap_or("model").to_owned();
    eprintln!("{name}: {} schedules", schedules.load(Ordering::Relaxed));
}

/// A step of time, large enough that no wake-up is merged with the one before.
pub(crate) const S: u64 = 1_000_000;

/// Returns a window of so many permits in each `S`.
pub(crate) fn window(permits: u64) -> AllOf {
    behind_the_lock(FixedWindow::new(permits, Duration::from_nanos(S), Anchor::Epoch))
}

/// Returns a window of one permit in each so many `S`.
pub(crate) fn at_each(steps: u64) -> AllOf {
    behind_the_lock(FixedWindow::new(1, Duration::from_nanos(steps * S), Anchor::Epoch))
}

/// Returns the window twice. One alone has a lock-free form.
fn behind_the_lock(window: FixedWindow) -> AllOf {
    AllOf::default().and(window).and(window)
}

/// Returns a limit of so many permits in flight.
pub(crate) fn at_once(permits: u64) -> Concurrency {
    Concurrency::new(permits)
}

/// Starts a thread of the model.
pub(crate) fn start<T: 'static>(work: impl FnOnce() -> T + 'static) -> thread::JoinHandle<T> {
    thread::spawn(work)
}

loom::thread_local! {
    /// The last reading of this thread.
    static LAST_NS: Cell<u64> = Cell::new(0);
}

/// A manual clock that starts at zero.
#[derive(Clone, Default)]
pub(crate) struct ManualTime(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// It is not under the lock: a reader of the clock may see it late.
    now_ns: AtomicU64,
    waits: Mutex<Waits>,
}

#[derive(Default)]
struct Waits {
    threads: Vec<(u64, u64, CancelToken)>,
    tasks: Vec<(u64, u64, Waker)>,
    last_id: u64,
}

impl Waits {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

impl ManualTime {
    /// Sets the clock, and wakes the waiters that are due.
    pub(crate) fn set(&self, now_ns: u64) {
        self.0.now_ns.store(now_ns, Ordering::Release);
        let mut waits = self.0.waits.lock().unwrap();
        let threads: Vec<_> = waits.threads.extract_if(.., |wait| wait.1 <= now_ns).collect();
        let tasks: Vec<_> = waits.tasks.extract_if(.., |wait| wait.1 <= now_ns).collect();
        drop(waits);
        for (.., cancel) in threads {
            cancel.nudge();
        }
        for (.., waker) in tasks {
            waker.wake();
        }
    }

    fn drop_all(&self) {
        let waits = std::mem::take(&mut *self.0.waits.lock().unwrap());
        drop(waits);
    }
}

impl Clock for ManualTime {
    fn now_ns(&self) -> u64 {
        let now_ns = self.0.now_ns.load(Ordering::Acquire);
        LAST_NS.with(|last_ns| last_ns.set(now_ns));
        now_ns
    }

    fn may_go_back(&self) -> bool {
        false
    }

    fn wait(&self, until_ns: u64, cancel: &CancelToken) -> Wake {
        let mut waits = self.0.waits.lock().unwrap();
        let id = waits.next_id();
        if self.now_ns() < until_ns {
            waits.threads.push((id, until_ns, cancel.clone()));
        }
        drop(waits);
        let wake = cancel.wait_on(|| (self.now_ns() < until_ns).then_some(Duration::MAX));
        self.0.waits.lock().unwrap().threads.retain(|wait| wait.0 != id);
        wake
    }

    fn timer(&self) -> &dyn Timer {
        self
    }
}

impl Timer for ManualTime {
    fn after(&self, time: Duration) -> Sleep {
        // The timer counts from its caller's last reading of the clock. Otherwise it would be
        // late by the time passed since, which no model could tell from a timer set wrong.
        let until_ns = LAST_NS.with(Cell::get) + whole_ns(time);
        Box::pin(Sleeping { time: self.clone(), until_ns, id: None })
    }
}

struct Sleeping {
    time: ManualTime,
    until_ns: u64,
    id: Option<u64>,
}

impl Sleeping {
    fn leave(&mut self, waits: &mut Waits) -> Option<Waker> {
        let id = self.id.take()?;
        let index = waits.tasks.iter().position(|wait| wait.0 == id)?;
        Some(waits.tasks.swap_remove(index).2)
    }
}

impl Future for Sleeping {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let time = self.time.clone();
        let mut waits = time.0.waits.lock().unwrap();
        let removed = self.leave(&mut waits);
        let is_due = time.now_ns() >= self.until_ns;
        if !is_due {
            let id = waits.next_id();
            waits.tasks.push((id, self.until_ns, context.waker().clone()));
            self.id = Some(id);
        }
        drop(waits);
        drop(removed);
        if is_due { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        if self.id.is_some() {
            let time = self.time.clone();
            let removed = self.leave(&mut time.0.waits.lock().unwrap());
            drop(removed);
        }
    }
}

/// The waker of a task, for which a thread waits meanwhile.
#[derive(Default)]
pub(crate) struct BlockingWaker {
    has_woken: Mutex<bool>,
    waker_slot: Condvar,
}

impl BlockingWaker {
    pub(crate) fn wait_until_woken(&self) {
        let mut has_woken = self.has_woken.lock().unwrap();
        while !*has_woken {
            has_woken = self.waker_slot.wait(has_woken).unwrap();
        }
        *has_woken = false;
    }
}

impl Wakes for BlockingWaker {
    fn wake(self: Arc<Self>) {
        *self.has_woken.lock().unwrap() = true;
        self.waker_slot.notify_one();
    }
}

/// A future and its waker. A drop cancels it.
pub(crate) struct Task<T> {
    /// `None` once it has been dropped.
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    blocking_waker: Arc<BlockingWaker>,
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        // A model that has failed can take no locks any more.
        if std::thread::panicking() {
            std::mem::forget(self.future.take());
        }
    }
}

impl<T> Task<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self { future: Some(Box::pin(future)), blocking_waker: Arc::default() }
    }

    /// Polls the future once.
    pub(crate) fn poll(&mut self) -> Poll<T> {
        let waker = Waker::from(Arc::clone(&self.blocking_waker));
        self.future.as_mut().unwrap().as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Polls the future once, and checks that it is pending.
    pub(crate) fn waiting(mut self) -> Self {
        assert!(self.poll().is_pending());
        self
    }

    /// Replaces the waker from the next poll on.
    pub(crate) fn elsewhere(mut self) -> Self {
        self.blocking_waker = Arc::default();
        self
    }

    /// Polls the future at once and whenever it is woken, until it is ready.
    pub(crate) fn finish(mut self) -> T {
        loop {
            if let Poll::Ready(result) = self.poll() {
                return result;
            }
            self.blocking_waker.wait_until_woken();
        }
    }

    /// Finishes a future that has been polled, once it has been woken.
    pub(crate) fn finish_once_woken(self) -> T {
        self.blocking_waker.wait_until_woken();
        self.finish()
    }
}

/// The result of a wait.
pub(crate) type Ended = Result<Grant, AcquireError>;

/// A limiter of a model.
pub(crate) type Tasks = AsyncLimiter<ManualTime>;

/// Returns a task that waits for permits.
pub(crate) fn acquiring(limiter: &AsyncLimiter<ManualTime>, permits: u64) -> Task<Ended>
where
{
    let limiter = limiter.clone();
    Task::new(async move { limiter.acquire(permits).await })
}

/// Returns a task that waits for one permit, up to a deadline.
pub(crate) fn acquiring_within(limiter: &AsyncLimiter<ManualTime>, ns: u64) -> Task<Ended>
where
{
    let limiter = limiter.clone();
    Task::new(async move { limiter.acquire_within(1, Duration::from_nanos(ns)).await })
}
