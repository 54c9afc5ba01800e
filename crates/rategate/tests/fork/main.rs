//! A process that forks: the child has none of the library's threads, and waits for none of them.

#![cfg(unix)]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{TryRecvError, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use rategate::pace::Dispatcher;
use rategate::pace::SubmitError;
use rategate::store::{LeaseId, PerProcess};
use rategate::wait::{Sleep, ThreadTimer, Timed, Timer};
use rategate::{AsyncLimiter, Gcra, Limiter, MonotonicClock};
use rategate_testkit::forked::in_child;
use rategate_testkit::ns;
use smol::future::block_on;

/// Returns a limit of one permit every 20 ms.
fn slow() -> Gcra {
    Gcra::new("50/s".parse().unwrap(), 1).unwrap()
}

/// Takes a permit that is free and one that is not, on the timer of the process.
fn wait_once(limiter: &AsyncLimiter) {
    block_on(async {
        let first = limiter.acquire(1).await.unwrap();
        let second = limiter.acquire(1).await.unwrap();
        assert!(ns(second.promised_at()) - ns(first.promised_at()) >= 20_000_000);
    });
    // The timer's thread wakes a task before it releases the limiter. A fork just then would copy
    // its locks.
    thread::sleep(Duration::from_millis(20));
}

#[test]
fn a_limiter_made_in_the_child_waits() {
    wait_once(&AsyncLimiter::new(slow()));
    in_child(|| wait_once(&AsyncLimiter::new(slow())));
    wait_once(&AsyncLimiter::new(slow()));
}

#[test]
fn a_limiter_of_the_parent_waits_in_the_child() {
    let limiter = AsyncLimiter::new(slow());
    wait_once(&limiter);
    in_child(|| wait_once(&limiter));
    wait_once(&limiter);
}

#[test]
fn a_grandchild_has_a_timer_too() {
    let limiter = AsyncLimiter::new(slow());
    wait_once(&limiter);
    in_child(|| {
        wait_once(&limiter);
        in_child(|| wait_once(&limiter));
        wait_once(&limiter);
    });
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A pending wait belongs to the parent's timer. Polled in the child, it moves to the child's
/// timer; dropped there, it does not affect the parent's.
#[test]
fn a_sleep_under_way_goes_on_in_the_child() {
    let (mut kept, mut dropped) = (
        ThreadTimer.after(Duration::from_millis(200)),
        ThreadTimer.after(Duration::from_nanos(1 << 40)),
    );
    let start = Instant::now();
    for sleep in [&mut kept, &mut dropped] {
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    in_child(move || {
        drop(dropped);
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&flag));
        assert!(kept.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        block_on(ThreadTimer.after(Duration::from_millis(250)));
        assert!(flag.0.load(Ordering::SeqCst), "the child's timer wakes by the newest waker");
        assert!(kept.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert!(start.elapsed() >= Duration::from_millis(200));
    });
}

/// In the child submitted tasks are returned, and neither an end nor a drop waits. The parent's
/// work goes on.
#[test]
fn a_dispatcher_stays_with_the_parent() {
    let make = || Dispatcher::new(Limiter::new(slow()), 10).unwrap();
    let (shut, aborted, dropped) = (make(), make(), make());
    let (done, runs) = channel();
    let parents = done.clone();
    dropped.submit(move |_| parents.send("parent").unwrap()).unwrap();
    let (shut, aborted, dropped) = [shut, aborted, dropped].map(|it| Mutex::new(Some(it))).into();
    let take = |it: &Mutex<Option<Dispatcher>>| it.lock().unwrap().take().unwrap();
    in_child(|| {
        let refused = shut.lock().unwrap().as_ref().unwrap().submit(|_| unreachable!());
        let Err(error @ SubmitError::Forked(_)) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().contains("forked"), "{error}");
        assert_eq!(take(&shut).shutdown(), None);
        assert_eq!(take(&aborted).abort(), None);
        drop(take(&dropped));
        let fresh = make();
        fresh.submit(move |_| done.send("child").unwrap()).unwrap();
        assert_eq!(fresh.shutdown().unwrap().ran, 1);
    });
    assert_eq!(take(&dropped).shutdown().unwrap().ran, 1);
    assert_eq!(runs.try_iter().collect::<Vec<_>>(), ["parent"]);
    for it in [&shut, &aborted] {
        let it = take(it);
        it.submit(|_| ()).unwrap();
        assert_eq!(it.shutdown().unwrap().ran, 1);
    }
}

/// A child makes its own value, and drops none of the parent's.
#[test]
fn values_belong_to_a_process() {
    struct Loud(u32);
    impl Drop for Loud {
        fn drop(&mut self) {
            assert_eq!(self.0, std::process::id(), "dropped in a process that did not make it");
        }
    }
    let values = PerProcess::new();
    let make = || Loud(std::process::id());
    let parents = values.get_or_init(make).0;
    in_child(move || {
        assert_ne!(values.get_or_init(make).0, parents);
        assert_eq!(values.get_or_init(make).0, std::process::id());
        drop(values);
    });
}

/// A random name of a child differs from the next one of its parent.
#[test]
fn names_are_drawn_apart() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("names_are_drawn_apart");
    // This sets the thread's generator up.
    let _ = LeaseId::random();
    in_child(|| std::fs::write(&path, LeaseId::random().0).unwrap());
    assert_ne!(std::fs::read(&path).unwrap(), LeaseId::random().0);
}

/// Another thread waits while the process forks.
#[test]
fn a_fork_beside_tasks_that_wait() {
    let (going, ended) = channel::<()>();
    // The parts that a process makes once are made before, since a fork meanwhile is for the
    // caller to avoid.
    wait_once(&AsyncLimiter::new(slow()));
    thread::scope(|scope| {
        scope.spawn(move || {
            let limiter = AsyncLimiter::new(Gcra::new("2000/s".parse().unwrap(), 1).unwrap());
            while ended.try_recv() == Err(TryRecvError::Empty) {
                block_on(limiter.acquire(1)).unwrap();
            }
        });
        // The channel is dropped even if a child fails.
        let _going = going;
        for _ in 0..20 {
            in_child(|| wait_once(&AsyncLimiter::new(slow())));
        }
    });
}

/// Polls a wait of the parent's, which stays pending.
fn begin(wait: &mut (impl Future + Unpin)) {
    assert!(Pin::new(wait).poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// The timer that the parent has set for its own task does not serve the child, even if in time.
#[test]
fn a_task_of_the_child_is_woken_behind_one_of_the_parent() {
    let limiter = AsyncLimiter::new(slow());
    block_on(limiter.acquire(1)).unwrap();
    let mut parents = limiter.acquire_owned(1);
    begin(&mut parents);
    in_child(|| assert!(block_on(limiter.acquire(1)).is_ok()));
    block_on(parents).unwrap();
}

/// A task that waits at the fork continues in the child, and in the parent.
#[test]
fn a_task_that_waits_at_the_fork_goes_on_in_the_child() {
    let limiter = AsyncLimiter::new(slow());
    for _ in 0..10 {
        block_on(limiter.acquire(1)).unwrap();
        let waits = Mutex::new(Some(limiter.acquire_owned(1)));
        begin(waits.lock().unwrap().as_mut().unwrap());
        in_child(|| assert!(block_on(waits.lock().unwrap().take().unwrap()).is_ok()));
        block_on(waits.into_inner().unwrap().unwrap()).unwrap();
    }
}

/// A timer that once stops the thread that sets it, until a fork has been made.
struct Stopped {
    is_armed: AtomicBool,
    reached: Barrier,
    forked: Barrier,
}

impl Timer for &'static Stopped {
    fn after(&self, time: Duration) -> Sleep {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            self.reached.wait();
            self.forked.wait();
        }
        ThreadTimer.after(time)
    }
}

/// A thread that sets the timer holds the timer's lock while the process forks.
#[test]
fn a_watch_that_is_held_at_the_fork_is_not_in_the_child() {
    let (reached, forked) = (Barrier::new(2), Barrier::new(2));
    let stopped = Stopped { is_armed: AtomicBool::new(true), reached, forked };
    let stopped: &'static Stopped = Box::leak(Box::new(stopped));
    let limiter = AsyncLimiter::with_clock(slow(), Timed::new(MonotonicClock::new(), stopped));
    block_on(limiter.acquire(1)).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| block_on(limiter.acquire(1)).unwrap());
        stopped.reached.wait();
        let child = catch_unwind(AssertUnwindSafe(|| {
            in_child(|| assert!(block_on(limiter.acquire(1)).is_ok()));
        }));
        stopped.forked.wait();
        let _ = waits.join().unwrap();
        child.unwrap();
    });
}

/// Threads that wait at the fork do not exist in the child. Each delays the child's own threads
/// for one grace period.
#[test]
fn threads_that_wait_at_the_fork_do_not_stop_those_of_the_child() {
    let limiter = Limiter::new(slow());
    limiter.acquire(1).unwrap();
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| limiter.acquire(1).unwrap());
        }
        while limiter.waiting().unwrap() < 4 {
            thread::yield_now();
        }
        // No thread is now between two waits with the lock held.
        thread::sleep(Duration::from_millis(5));
        in_child(|| assert!(limiter.acquire(1).is_ok()));
    });
}
