//! Tasks that wait for a limiter: on a manual clock, under tokio, under smol, and without a
//! runtime.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use rategate::policy::Mode;
use rategate::wait::{QueueBounds, Sleep, Timed, Timer, WhenFull};
use rategate::{
    AcquireError, AsyncLimiter, Clock, Concurrency, Decision, Gcra, Limiter, ManualClock,
    SlidingLog, TryAcquireError, TwoTimeline,
};
use rategate_testkit::ns;

use rategate_testkit::executor::{Task, play};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;

/// Runs a single future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        thread::park();
    }
}

fn gcra(rate: &str, burst: u64) -> Gcra {
    Gcra::new(rate.parse().unwrap(), burst).unwrap()
}

fn is_pending<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> bool {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// Each leaked future holds its permits for one grace period.
#[test]
fn leaked_futures_cost_a_grace_period_each() {
    for leaked in [1, 5] {
        let clock = ManualClock::stepped();
        let limiter = AsyncLimiter::with_clock(gcra("1000/s", 1), clock.clone());
        let _ = limiter.limiter().try_acquire(1).unwrap();
        for _ in 0..leaked {
            let mut future = Box::pin(limiter.acquire(1));
            assert!(is_pending(&mut future));
            std::mem::forget(future);
        }
        let mut last = Box::pin(limiter.acquire(1));
        while is_pending(&mut last) {
            clock.advance(Duration::from_micros(100));
        }
        let waited_ms = clock.now_ns() / MS;
        let graces_ms = 10 * leaked;
        let permits_ms = leaked + 1;
        assert!((graces_ms..=graces_ms + permits_ms + 1).contains(&waited_ms), "{waited_ms} ms");
    }
}

/// A denial is exact except for a due waiter: it is shorter if that leaves, and longer if it
/// takes late.
#[test]
fn a_waiter_that_is_due_moves_the_retry() {
    for leaves in [true, false] {
        let clock = ManualClock::stepped();
        let limiter = AsyncLimiter::with_clock(gcra("1000/s", 1), clock.clone());
        let _ = limiter.limiter().try_acquire(1).unwrap();
        let mut waiting = Box::pin(limiter.acquire(1));
        assert!(is_pending(&mut waiting));
        clock.advance(Duration::from_micros(1_400));
        let Decision::Denied(denial) = limiter.limiter().try_acquire(1).unwrap() else {
            panic!("a waiter is due")
        };
        let retry_after = denial.retry_after().unwrap();
        if leaves {
            drop(waiting);
            assert!(
                limiter.limiter().try_acquire(1).unwrap().is_granted(),
                "before {retry_after:?}"
            );
        } else {
            clock.advance(Duration::from_nanos(u64::try_from(retry_after.as_nanos()).unwrap()));
            assert!(
                !limiter.limiter().try_acquire(1).unwrap().is_granted(),
                "after {retry_after:?}"
            );
            assert!(!is_pending(&mut waiting));
        }
    }
}

/// S0.36: the async form has the starts of the blocking one, on a clock without waiting threads.
#[test]
fn tasks_start_as_threads_do() {
    let clock = ManualClock::stepped();
    let limiter =
        AsyncLimiter::with_clock(SlidingLog::new(2, Duration::from_nanos(S)), clock.clone());
    let starts = Mutex::new(Vec::new());
    let mut tasks: Vec<_> = (0..3)
        .map(|task| {
            let (limiter, starts) = (&limiter, &starts);
            Task::new(async move {
                for _ in 0..3 {
                    let grant = limiter.acquire(1).await.unwrap();
                    starts.lock().unwrap().push((ns(grant.released_at()) / MS, task));
                }
            })
        })
        .collect();
    play(&clock, &mut tasks, 100 * S);
    assert!(tasks.iter().all(|task| task.result.is_some()));
    drop(tasks);
    let starts = starts.into_inner().unwrap();
    let instants: Vec<_> = starts.iter().map(|start| start.0).collect();
    assert_eq!(instants, [0, 0, 1_000, 1_000, 2_000, 2_000, 3_000, 3_000, 4_000]);
    assert_eq!(clock.sleeping(), 0);
}

/// There is one timer for the whole queue, whose order is that of the first polls, not of
/// creation.
#[test]
fn the_queue_is_in_order_of_the_first_poll_and_has_one_timer() {
    let clock = ManualClock::stepped();
    let limiter = AsyncLimiter::with_clock(gcra("10/s", 1), clock.clone());
    limiter.limiter().acquire(1).unwrap();
    let made: Vec<_> = (0..20_u64).map(|n| (n, limiter.acquire(1))).collect();
    let mut tasks: Vec<_> = made
        .into_iter()
        .rev()
        .map(|(n, future)| Task::new(async move { (n, ns(future.await.unwrap().released_at())) }))
        .collect();
    assert_eq!((clock.sleeping(), limiter.limiter().waiting()), (1, Ok(20)));
    play(&clock, &mut tasks, 100 * S);
    let starts: Vec<_> = tasks.iter().map(|task| task.result.unwrap()).collect();
    let expected: Vec<_> = (0..20).map(|k| (19 - k, (k + 1) * S / 10)).collect();
    assert_eq!(starts, expected);
}

/// A taker of ten among takers of one has its turn in order, and the rate is fully used.
#[test]
fn a_large_request_is_not_overtaken() {
    let clock = ManualClock::stepped();
    let limiter = AsyncLimiter::with_clock(gcra("1000/s", 10), clock.clone());
    let granted: Vec<_> = (0..9).map(|_| AtomicU64::new(0)).collect();
    let mut tasks: Vec<_> = (0..9)
        .map(|taker| {
            let (limiter, granted) = (&limiter, &granted);
            Task::new(async move {
                let permits = if taker == 8 { 10 } else { 1 };
                loop {
                    limiter.acquire(permits).await.unwrap();
                    granted[taker].fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    play(&clock, &mut tasks, 2 * S);
    let granted: Vec<u64> = granted.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    let even_share = granted[8];
    assert!((110..=113).contains(&even_share), "2000 permits, 18 a round: {granted:?}");
    // The first found the bucket full, before the others came.
    assert!(granted[1..].iter().all(|count| count.abs_diff(even_share) <= 2), "{granted:?}");
    assert!((even_share..=even_share + 12).contains(&granted[0]), "{granted:?}");
}

/// A dropped future frees its waiter slot for those behind it; a leaked one has its turn and no
/// more.
#[test]
fn a_dropped_future_leaves_the_queue() {
    let clock = ManualClock::stepped();
    let limiter = AsyncLimiter::with_clock(gcra("1/s", 1), clock.clone());
    limiter.limiter().acquire(1).unwrap();
    let mut tasks: Vec<_> = (0..8).map(|_| Task::new(limiter.acquire(1))).collect();
    for gone in [0, 3, 7] {
        tasks[gone].future = None;
    }
    std::mem::forget(tasks[4].future.take());
    play(&clock, &mut tasks, 100 * S);
    let second_of = |task: &Task<'_, Result<rategate::Grant, _>>| {
        task.result.map(|result| ns(result.unwrap().released_at()) / S)
    };
    let starts: Vec<_> = tasks.iter().map(second_of).collect();
    // The leaked one costs a grace period of 10 ms.
    assert_eq!(starts, [None, Some(1), Some(2), None, None, Some(3), Some(4), None]);
    assert_eq!(limiter.limiter().waiting(), Ok(0));
    let next = limiter.reserve(1).unwrap();
    assert_eq!(ns(next.promised_at()), 5 * S + 10 * MS, "nothing else lost");
}

/// A wait that borrows nothing can be moved anywhere, outlives its handle, and leaves the queue
/// as any other.
#[test]
fn an_owned_wait_is_as_good() {
    let clock = ManualClock::stepped();
    let limiter = AsyncLimiter::with_clock(gcra("1/s", 1), clock.clone());
    limiter.limiter().acquire(1).unwrap();
    let waits: Vec<_> = (0..4).map(|_| limiter.acquire_owned(1)).collect();
    let handle = limiter.limiter().clone();
    drop(limiter);
    let mut tasks: Vec<Task<'static, _>> = waits.into_iter().map(Task::new).collect();
    tasks[1].future = None;
    assert_eq!(handle.waiting(), Ok(3));
    for second in 1..=2 {
        clock.set(Duration::from_secs(second));
        tasks.iter_mut().for_each(Task::run);
    }
    let start_of = |task: &Task<'_, Result<rategate::Grant, _>>| {
        task.result.map(|result| ns(result.unwrap().released_at()))
    };
    assert_eq!(tasks.iter().map(start_of).collect::<Vec<_>>(), [Some(S), None, Some(2 * S), None]);
    handle.close();
    tasks[3].run();
    assert_eq!(tasks[3].result, Some(Err(AcquireError::Closed)));
}

/// A task that leaves between its start and its poll has ended its operation, if those are
/// counted.
#[test]
fn leaving_after_the_start_releases() {
    let clock = ManualClock::stepped();
    let limiter = AsyncLimiter::with_clock(Concurrency::new(1), clock);
    limiter.limiter().acquire(1).unwrap();
    let mut first = Task::new(limiter.acquire(1));
    let mut second = Task::new(limiter.acquire(1));
    limiter.limiter().release(1).unwrap();
    assert!(first.is_woken(), "granted");
    first.future = None;
    second.run();
    assert!(second.result.unwrap().is_ok());
    let Decision::Denied(_) = limiter.try_acquire(1).unwrap() else { panic!("one at a time") };
}

/// A deadline that cannot be met fails at once; one that can, or whose start is unknown, does
/// not.
#[test]
fn deadlines_are_known_at_once() {
    let clock = ManualClock::stepped();
    let limiter = AsyncLimiter::with_clock(gcra("1/s", 1), clock.clone());
    limiter.limiter().acquire(1).unwrap();
    let mut waiting = vec![
        Task::new(limiter.acquire_within(1, Duration::from_secs(1))),
        Task::new(limiter.acquire_within(1, Duration::from_secs(1))),
        Task::new(limiter.acquire_within(1, Duration::from_secs(2))),
    ];
    let Some(Err(AcquireError::TooLong(error))) = waiting[1].result else { panic!() };
    assert_eq!((error.wait().as_secs(), error.retry_after().as_secs()), (2, 1));
    let reserved = limiter.reserve_within(1, Duration::from_secs(3)).unwrap();
    assert_eq!(ns(reserved.promised_at()), 3 * S);
    let Decision::Denied(denial) = limiter.try_acquire(1).unwrap() else { panic!() };
    assert_eq!(ns(denial.retry_after().unwrap()), 4 * S);
    assert_eq!(limiter.limiter().remaining(), Ok(0));
    play(&clock, &mut waiting, 9 * S);
    assert!(waiting[0].result.unwrap().is_ok() && waiting[2].result.unwrap().is_ok());

    let oven = AsyncLimiter::with_clock(Concurrency::new(1), clock.clone());
    oven.limiter().acquire(1).unwrap();
    let mut waiting = vec![Task::new(oven.acquire_within(1, Duration::from_secs(1)))];
    assert!(waiting[0].result.is_none());
    play(&clock, &mut waiting, 99 * S);
    assert_eq!(waiting[0].result, Some(Err(AcquireError::DeadlinePassed)));
}

/// A full queue refuses the new waiter, or evicts its newest one.
#[test]
fn a_full_queue_is_an_error() {
    let limiter = AsyncLimiter::with_clock(gcra("1/s", 1), ManualClock::stepped());
    limiter.limiter().acquire(1).unwrap();
    limiter.limiter().bound_queue(QueueBounds::new(2)).unwrap();
    let mut tasks: Vec<_> = (0..3).map(|_| Task::new(limiter.acquire(1))).collect();
    assert_eq!(tasks[2].result, Some(Err(AcquireError::QueueFull)));
    let evicting = QueueBounds::new(2).when_full(WhenFull::EvictNewest);
    limiter.limiter().bound_queue(evicting).unwrap();
    tasks.push(Task::new(limiter.acquire(1)));
    tasks[1].run();
    assert_eq!(tasks[1].result, Some(Err(AcquireError::Evicted)));
    assert!(tasks[0].result.is_none() && tasks[3].result.is_none());
}

/// X4.6: closing wakes all waiters, in the queue and for reservations.
#[test]
fn closing_wakes_all_tasks() {
    let clock = ManualClock::stepped();
    let limiter = AsyncLimiter::with_clock(gcra("1/s", 1), clock.clone());
    let kept = limiter.reserve(1).unwrap().keep();
    let reserved = limiter.reserve(1).unwrap();
    let mut reserved = Task::new(reserved.wait());
    let mut waiting = Task::new(limiter.acquire(1));
    limiter.close();
    reserved.run();
    waiting.run();
    assert_eq!(reserved.result, Some(Err(AcquireError::Closed)));
    assert_eq!(waiting.result, Some(Err(AcquireError::Closed)));
    assert_eq!(Task::new(limiter.acquire(1)).result, Some(Err(AcquireError::Closed)));
    assert_eq!(limiter.try_acquire(1), Err(TryAcquireError::Closed));
    assert_eq!(ns(kept.released_at()), 0);
}

/// A reservation waits by the clock, and is returned when it is dropped before its start.
#[test]
fn reservations_wait_or_go_back() {
    let clock = ManualClock::stepped();
    let limiter = AsyncLimiter::with_clock(gcra("1/s", 1), clock.clone());
    let tasks: Vec<_> = (0..3).map(|_| limiter.reserve(1).unwrap()).collect();
    let mut tasks: Vec<_> = tasks.into_iter().map(|reserved| Task::new(reserved.wait())).collect();
    tasks[1].future = None;
    play(&clock, &mut tasks, 9 * S);
    assert_eq!(ns(tasks[2].result.unwrap().unwrap().released_at()), 2 * S);
    assert!(limiter.reserve(1).unwrap().cancel());
}

/// New numbers apply to queued tasks, and the timer is set anew.
#[test]
fn queued_tasks_are_served_by_the_new_limit() {
    let clock = ManualClock::stepped();
    let limiter = AsyncLimiter::with_clock(gcra("1/h", 1), clock.clone());
    limiter.limiter().acquire(1).unwrap();
    let mut tasks: Vec<_> = (0..3).map(|_| Task::new(limiter.acquire(1))).collect();
    limiter.limiter().reconfigure(gcra("1/s", 1)).unwrap();
    play(&clock, &mut tasks, 10 * S);
    let starts: Vec<_> =
        tasks.iter().map(|task| ns(task.result.unwrap().unwrap().released_at())).collect();
    assert_eq!(starts, [S, 2 * S, 3 * S]);
}

/// Threads and tasks share one queue.
#[test]
fn threads_and_tasks_share_the_queue() {
    let clock = ManualClock::stepped();
    let limiter = AsyncLimiter::with_clock(gcra("1/s", 1), clock.clone());
    limiter.limiter().acquire(1).unwrap();
    thread::scope(|scope| {
        let (sent, starts) = channel();
        let mut tasks = Vec::new();
        for number in 1..=6_u64 {
            if number % 2 == 0 {
                tasks.push(Task::new(limiter.acquire(1)));
            } else {
                let (limiter, sent) = (&limiter, sent.clone());
                scope.spawn(move || {
                    sent.send((number, ns(limiter.limiter().acquire(1).unwrap().promised_at())))
                        .unwrap();
                });
            }
            while limiter.limiter().waiting() != Ok(u32::try_from(number).unwrap()) {
                thread::yield_now();
            }
        }
        drop(sent);
        for second in 1..=6 {
            clock.set(Duration::from_secs(second));
            while limiter.limiter().waiting() != Ok(u32::try_from(6 - second).unwrap()) {
                tasks.iter_mut().for_each(Task::run);
                thread::yield_now();
            }
        }
        let mut starts: Vec<_> = starts.iter().collect();
        starts.sort_unstable();
        assert_eq!(starts, [(1, S), (3, 3 * S), (5, 5 * S)]);
        for (task, start_ns) in tasks.iter_mut().zip([2 * S, 4 * S, 6 * S]) {
            task.run();
            assert_eq!(ns(task.result.unwrap().unwrap().promised_at()), start_ns);
        }
    });
}

/// A timer that wakes late, by up to two milliseconds.
struct Late(ManualClock);

impl Timer for Late {
    fn after(&self, time: Duration) -> Sleep {
        let late = Duration::from_nanos(ns(time).next_multiple_of(MS) + MS);
        Timer::after(&self.0, late)
    }
}

/// A coarse timer does not reduce the rate: of an average schedule, not even for one task that
/// sends its next request only after its start.
#[test]
fn coarse_timers_lose_no_rate() {
    for (rate, tasks) in [("2000/s", 1), ("2000/s", 7), ("100000/s", 1), ("100000/s", 50)] {
        let clock = ManualClock::stepped();
        let average = TwoTimeline::new(rate.parse().unwrap(), Mode::Average, None);
        let timed = Timed::new(clock.clone(), Late(clock.clone()));
        let limiter = AsyncLimiter::with_clock(average, timed);
        let granted = AtomicU64::new(0);
        let mut tasks: Vec<_> = (0..tasks)
            .map(|_| {
                let (limiter, granted) = (&limiter, &granted);
                Task::new(async move {
                    while ns(limiter.acquire(1).await.unwrap().released_at()) < 3 * S {
                        granted.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        play(&clock, &mut tasks, 4 * S);
        drop(tasks);
        let expected: u64 = rate.strip_suffix("/s").unwrap().parse::<u64>().unwrap() * 3;
        let granted = granted.into_inner();
        assert!(
            granted >= expected - expected / 1_000 && granted <= expected + 1,
            "{rate}: {granted}"
        );
    }
}

/// A task with a hundred thousand requests a second is woken once in a millisecond, and starts
/// all that is due by then.
#[test]
fn wakes_close_together_are_gathered() {
    struct Counted(ManualClock, AtomicU64);
    impl Timer for Counted {
        fn after(&self, time: Duration) -> Sleep {
            self.1.fetch_add(1, Ordering::Relaxed);
            Timer::after(&self.0, time)
        }
    }
    impl Timer for &'static Counted {
        fn after(&self, time: Duration) -> Sleep {
            (**self).after(time)
        }
    }
    let clock = ManualClock::stepped();
    let timer: &'static Counted = Box::leak(Box::new(Counted(clock.clone(), AtomicU64::new(0))));
    let average = TwoTimeline::new("100000/s".parse().unwrap(), Mode::Average, None);
    let limiter = AsyncLimiter::with_clock(average, Timed::new(clock.clone(), timer));
    let mut tasks =
        vec![Task::new(async { while ns(limiter.acquire(1).await.unwrap().released_at()) < S {} })];
    play(&clock, &mut tasks, 2 * S);
    let wakes = timer.1.load(Ordering::Relaxed);
    assert!((990..=1_010).contains(&wakes), "{wakes}");
}

/// A waker that panics, and a task that does, stop no other task.
#[test]
fn panics_stop_no_other_task() {
    struct PanickingWaker;
    impl Wake for PanickingWaker {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics on purpose");
        }
    }
    let clock = ManualClock::stepped();
    let limiter = AsyncLimiter::with_clock(gcra("1/s", 1), clock.clone());
    limiter.limiter().acquire(1).unwrap();
    let mut bombed = Box::pin(limiter.acquire(1));
    let bomb = Waker::from(Arc::new(PanickingWaker));
    assert!(bombed.as_mut().poll(&mut Context::from_waker(&bomb)).is_pending());
    let mut tasks = vec![Task::new(limiter.acquire(1)), Task::new(limiter.acquire(1))];
    play(&clock, &mut tasks, 9 * S);
    assert!(tasks.iter().all(|task| task.result.is_some_and(|result| result.is_ok())));
}

/// S4.20: tasks run without a runtime, in real time.
#[test]
fn no_runtime_is_needed() {
    let limiter = AsyncLimiter::new(gcra("1000/s", 1));
    let from_ns = ns(limiter.limiter().now());
    block_on(async {
        for _ in 0..20 {
            let grant = limiter.acquire(1).await.unwrap();
            assert!(ns(grant.released_at()) >= ns(grant.promised_at()));
        }
    });
    assert!(ns(limiter.limiter().now()) - from_ns >= 19 * MS);
}

/// The thread's timer serves smol as well.
#[test]
fn smol_needs_no_more() {
    let limiter = AsyncLimiter::new(gcra("10000/s", 1));
    smol::block_on(async {
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let limiter = limiter.clone();
                smol::spawn(
                    async move { limiter.acquire(1).await.map(|grant| ns(grant.promised_at())) },
                )
            })
            .collect();
        let mut starts = Vec::new();
        for task in tasks {
            starts.push(task.await.unwrap());
        }
        starts.sort_unstable();
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 100 * US));
    });
}

#[cfg(feature = "async-io")]
#[test]
fn async_io_wakes_in_time() {
    use rategate::MonotonicClock;
    use rategate::wait::AsyncIoTimer;
    let clock = Timed::new(MonotonicClock::new(), AsyncIoTimer);
    let limiter = AsyncLimiter::with_clock(gcra("1000/s", 1), clock);
    let from_ns = ns(limiter.limiter().now());
    smol::block_on(async {
        for _ in 0..20 {
            limiter.acquire(1).await.unwrap();
        }
    });
    assert!(ns(limiter.limiter().now()) - from_ns >= 19 * MS);
}

#[cfg(feature = "tokio")]
mod under_tokio {
    use rategate::wait::TokioTimer;
    use rategate::{MonotonicClock, TokioClock};
    use tokio::runtime::{Builder, Handle};

    use super::*;

    /// Tokio's paused clock drives a limiter exactly.
    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_is_enough() {
        let clock = TokioClock::new(Handle::current());
        let limiter =
            AsyncLimiter::with_clock(SlidingLog::new(2, Duration::from_nanos(3_600 * S)), clock);
        let tasks: Vec<_> = (0..6)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { ns(limiter.acquire(1).await.unwrap().promised_at()) })
            })
            .collect();
        let mut starts = Vec::new();
        for task in tasks {
            starts.push(task.await.unwrap() / S);
        }
        assert_eq!(starts, [0, 0, 3_600, 3_600, 7_200, 7_200]);
    }

    /// A timeout that ends a wait lets the next waiter move up.
    #[tokio::test(start_paused = true)]
    async fn a_timeout_returns_its_permits() {
        let limiter =
            AsyncLimiter::with_clock(gcra("1/min", 1), TokioClock::new(Handle::current()));
        limiter.acquire(1).await.unwrap();
        let patient = limiter.clone();
        let hasty = tokio::time::timeout(Duration::from_secs(10), limiter.acquire(1));
        let patient =
            tokio::spawn(async move { ns(patient.acquire(1).await.unwrap().promised_at()) });
        assert!(hasty.await.is_err());
        assert_eq!(patient.await.unwrap() / S, 60);
    }

    /// A dropped runtime stops no waiter elsewhere, even if the timer was that runtime's.
    #[test]
    fn a_dropped_runtime_stops_no_other_task() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let timer = TokioTimer::new(runtime.handle().clone());
        let clock = Timed::new(MonotonicClock::new(), timer);
        let limiter = AsyncLimiter::with_clock(gcra("4/s", 1), clock);
        limiter.limiter().acquire(1).unwrap();
        for _ in 0..3 {
            let limiter = limiter.clone();
            runtime.spawn(async move { limiter.acquire(1).await });
        }
        while limiter.limiter().waiting() != Ok(3) {
            thread::yield_now();
        }
        let elsewhere = {
            let limiter = limiter.clone();
            thread::spawn(move || block_on(async { limiter.acquire(1).await.map(|_| ()) }))
        };
        while limiter.limiter().waiting() != Ok(4) {
            thread::yield_now();
        }
        drop(runtime);
        assert_eq!(elsewhere.join().unwrap(), Ok(()));
        // Later waits on this limiter use a thread, too.
        assert!(block_on(limiter.acquire(1)).is_ok());
        assert!(block_on(limiter.acquire(1)).is_ok());
    }
}

/// After an event loop that stalled, a new call is behind a due task that has not been polled
/// yet, whether the limit counts real starts or promises instants.
#[test]
fn a_new_waiter_queues_behind_a_due_one() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let log = Limiter::new(SlidingLog::new(2, Duration::from_nanos(20 * MS)));
    for limiter in [log.clone(), log.with_promised_starts()] {
        let limiter = AsyncLimiter::from(limiter.with_grace(Duration::from_secs(5)));
        thread::sleep(Duration::from_millis(25));
        let order = runtime.block_on(async {
            limiter.acquire(2).await.unwrap();
            let (sent, order) = channel();
            let (waiting, waiter) = (limiter.clone(), sent.clone());
            let first = tokio::spawn(async move {
                waiting.acquire(1).await.unwrap();
                waiter.send("waited").unwrap();
            });
            tokio::task::yield_now().await;
            // The loop stalls until long after the start, with permits for both.
            thread::sleep(Duration::from_millis(60));
            limiter.acquire(1).await.unwrap();
            sent.send("came later").unwrap();
            first.await.unwrap();
            drop(sent);
            order.iter().collect::<Vec<_>>()
        });
        assert_eq!(order, ["waited", "came later"]);
    }
}
