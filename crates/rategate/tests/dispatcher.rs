//! Tasks submitted to a dispatcher: order, instants, bounds and ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use rategate::pace::SubmitError;
use rategate::pace::{Dispatcher, Report};
use rategate::wait::{CancelToken, Wake};
use rategate::{AcquireError, Clock, Gcra, Limiter, ManualClock, Rate, SlidingLog};
use rategate_testkit::ns;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// S1.8, S1.9, S1.10, S1.12: callers return at once, and tasks run in order at the instants of
/// blocking mode.
#[test]
fn dispatching_obeys_the_bound_of_blocking() {
    let policy = SlidingLog::new(51, Duration::from_nanos(S));
    let clock = ManualClock::new();
    let dispatcher = Dispatcher::new(Limiter::with_clock(policy, clock.clone()), 1_000).unwrap();
    let (done, runs) = channel();
    for task in 0..51 * 5 {
        let done = done.clone();
        dispatcher
            .submit(move |grant| done.send((task, ns(grant.released_at()))).unwrap())
            .unwrap();
    }
    let report = dispatcher.shutdown().unwrap();
    assert_eq!(report, Report { ran: 51 * 5, ..Report::default() });

    let blocking = Limiter::with_clock(policy, ManualClock::new());
    let ideal = (0..51 * 5).map(|task| (task, ns(blocking.acquire(1).unwrap().released_at())));
    assert_eq!(runs.try_iter().collect::<Vec<_>>(), ideal.collect::<Vec<_>>());
}

/// S1.9, X1.6: a slow task delays the tasks behind it, and no burst follows.
#[test]
fn a_slow_task_is_followed_by_no_burst() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock(SlidingLog::new(2, Duration::from_nanos(S)), clock.clone());
    let dispatcher = Dispatcher::new(limiter, 100).unwrap();
    let starts = Arc::new(Mutex::new(Vec::new()));
    for task in 0..10 {
        let (clock, starts) = (clock.clone(), Arc::clone(&starts));
        let run = move |grant: rategate::Grant| {
            starts.lock().unwrap().push(ns(grant.released_at()));
            clock.advance(if task == 3 {
                Duration::from_secs(7)
            } else {
                Duration::from_nanos(MS)
            });
        };
        dispatcher.submit(run).unwrap();
    }
    assert_eq!(dispatcher.shutdown().unwrap().ran, 10);
    let starts = starts.lock().unwrap();
    assert!(starts.windows(3).all(|three| three[2] - three[0] >= S), "{starts:?}");
}

/// S1.1, S1.11: whatever the phase, a sampler over one period never counts more than 51 starts,
/// and in saturation exactly 51.
#[test]
fn a_sampler_at_any_phase_counts_51() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock(SlidingLog::new(51, Duration::from_nanos(S)), clock.clone());
    let dispatcher = Dispatcher::new(limiter, 1_000).unwrap();
    let (done, runs) = channel();
    for task in 0..600 {
        let (clock, done) = (clock.clone(), done.clone());
        let run = move |grant: rategate::Grant| {
            done.send(ns(grant.released_at())).unwrap();
            // Equal work in each round of 51, since a slow one would cost its round a start.
            clock.advance(Duration::from_nanos(task % 51 * 37 % 11 * MS));
        };
        dispatcher.submit(run).unwrap();
    }
    dispatcher.shutdown();
    let starts: Vec<u64> = runs.try_iter().collect();
    let end_ns = starts.last().unwrap() - S;
    for phase_ns in (0..end_ns).step_by(997_331) {
        let window = phase_ns..phase_ns + S;
        let count = starts.iter().filter(|start_ns| window.contains(start_ns)).count();
        assert_eq!(count, 51, "from {phase_ns} ns on");
    }
}

/// A task that panics is counted and stops nothing, even if its payload panics when dropped.
#[test]
fn a_panic_stops_nothing() {
    struct ThrowsAgain;
    impl Drop for ThrowsAgain {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(()));
        }
    }
    let limiter =
        Limiter::with_clock(SlidingLog::new(1, Duration::from_nanos(1)), ManualClock::new());
    let dispatcher = Dispatcher::new(limiter, 10).unwrap();
    for task in 0..6 {
        let run = move |_| match task {
            1 => std::panic::resume_unwind(Box::new(())),
            4 => std::panic::resume_unwind(Box::new(ThrowsAgain)),
            _ => {}
        };
        dispatcher.submit(run).unwrap();
    }
    let report = dispatcher.shutdown().unwrap();
    assert_eq!((report.ran, report.panicked, report.dropped), (4, 2, 0));
}

/// The queue is bounded, and a task that finds it full is returned and can be submitted again.
#[test]
fn a_full_queue_returns_the_task() {
    let limiter =
        Limiter::with_clock(SlidingLog::new(1, Duration::from_nanos(1)), ManualClock::new());
    let dispatcher = Dispatcher::new(limiter, 2).unwrap();
    let (started, has_started) = channel();
    let (go, wait) = channel::<()>();
    let first = move |_| {
        started.send(()).unwrap();
        wait.recv().unwrap();
    };
    dispatcher.submit(first).unwrap();
    has_started.recv().unwrap();
    let ran = Arc::new(AtomicU64::new(0));
    let count = || {
        let ran = Arc::clone(&ran);
        move |_| {
            ran.fetch_add(1, Ordering::SeqCst);
        }
    };
    dispatcher.submit(count()).unwrap();
    dispatcher.submit(count()).unwrap();
    let Err(SubmitError::QueueFull(task)) = dispatcher.submit(count()) else {
        panic!("the queue is not full")
    };
    go.send(()).unwrap();
    let mut task = Some(task);
    while let Some(again) = task.take() {
        task = dispatcher.submit_boxed(again).err().map(SubmitError::into_task);
        thread::yield_now();
    }
    assert_eq!(dispatcher.shutdown().unwrap().ran, 4);
    assert_eq!(ran.load(Ordering::SeqCst), 3);
}

/// Aborting wakes the dispatcher from its wait and drops the tasks that have not run. The limiter
/// lives on, and the pending permit is returned.
#[test]
fn aborting_drops_the_rest() {
    let clock = ManualClock::stepped();
    let limiter = Limiter::with_clock(SlidingLog::new(1, Duration::from_nanos(S)), clock.clone());
    let dispatcher = Dispatcher::new(limiter.clone(), 10).unwrap();
    for _ in 0..5 {
        dispatcher.submit(|_| {}).unwrap();
    }
    while clock.waiting() < 1 {
        thread::yield_now();
    }
    let report = dispatcher.abort().unwrap();
    assert_eq!(report, Report { ran: 1, dropped: 4, ..Report::default() });
    assert!(!limiter.is_closed());
    assert_eq!(ns(limiter.reserve(1).unwrap().promised_at()), S);
    let (held, released) = sync_channel::<()>(1);
    let dispatcher = Dispatcher::new(limiter, 10).unwrap();
    dispatcher.submit(move |_| drop(held)).unwrap();
    drop(dispatcher);
    assert!(released.recv_timeout(Duration::from_secs(60)).is_err(), "the task is dropped");
}

/// X4.6: once the limiter is closed, the dispatcher takes no more tasks and reports the reason,
/// which differs for a rate of never.
#[test]
fn a_closed_limiter_ends_the_dispatcher() {
    let clock = ManualClock::stepped();
    let limiter = Limiter::with_clock(SlidingLog::new(1, Duration::from_nanos(S)), clock.clone());
    let dispatcher = Dispatcher::new(limiter.clone(), 10).unwrap();
    for _ in 0..3 {
        dispatcher.submit(|_| {}).unwrap();
    }
    while clock.waiting() < 1 {
        thread::yield_now();
    }
    limiter.close();
    assert!(matches!(dispatcher.submit(|_| {}), Err(SubmitError::Closed(_))));
    let report = dispatcher.shutdown().unwrap();
    assert_eq!((report.ran, report.dropped), (1, 2));
    assert_eq!(report.stopped_by, Some(AcquireError::Closed));

    let never = Limiter::new(Gcra::new(Rate::NEVER, 1).unwrap());
    let _ = never.try_acquire(1);
    let dispatcher = Dispatcher::new(never, 10).unwrap();
    dispatcher.submit(|_| {}).unwrap();
    let report = dispatcher.shutdown().unwrap();
    assert_eq!((report.dropped, report.stopped_by), (1, Some(AcquireError::TimeCannotHelp)));
}

/// Returns the report that a task gets from ending its own dispatcher, and the starts of the
/// tasks behind it.
fn ended_from_inside(
    end: impl FnOnce(Dispatcher) -> Option<Report> + Send + 'static,
) -> (Option<Report>, Vec<(u64, u64)>) {
    let limiter =
        Limiter::with_clock(SlidingLog::new(1, Duration::from_nanos(S)), ManualClock::new());
    let dispatcher = Dispatcher::new(limiter, 10).unwrap();
    let (hand_over, take) = channel();
    let (answer, answers) = channel();
    dispatcher.submit(move |_| answer.send(end(take.recv().unwrap())).unwrap()).unwrap();
    let (done, runs) = channel();
    for task in 0..4 {
        let done = done.clone();
        dispatcher
            .submit(move |grant| done.send((task, ns(grant.released_at()))).unwrap())
            .unwrap();
    }
    drop(done);
    hand_over.send(dispatcher).unwrap();
    // The iteration ends when the last task has run or is dropped.
    (answers.recv().unwrap(), runs.iter().collect())
}

/// A task that shuts its own dispatcher down gets no report, and the tasks behind it still run.
/// If it aborts or drops the dispatcher, they do not.
#[test]
fn a_task_may_end_its_own_dispatcher() {
    let (report, starts) = ended_from_inside(Dispatcher::shutdown);
    assert_eq!(report, None);
    assert_eq!(starts, [(0, S), (1, 2 * S), (2, 3 * S), (3, 4 * S)]);
    assert_eq!(ended_from_inside(Dispatcher::abort), (None, Vec::new()));
    let dropped = |dispatcher| {
        drop::<Dispatcher>(dispatcher);
        None
    };
    assert_eq!(ended_from_inside(dropped), (None, Vec::new()));
}

/// A clock that panics on request.
struct Broken(Arc<AtomicBool>);

impl Clock for Broken {
    fn now_ns(&self) -> u64 {
        assert!(!self.0.load(Ordering::SeqCst), "the clock is broken");
        0
    }

    fn wait(&self, _: u64, _: &CancelToken) -> Wake {
        Wake::Due
    }
}

/// If the clock panics, the report still accounts for every task and gives the reason.
#[test]
fn a_panicking_clock_leaves_a_report() {
    let broken = Arc::new(AtomicBool::new(false));
    let clock = Broken(Arc::clone(&broken));
    let limiter = Limiter::with_clock(SlidingLog::new(9, Duration::from_nanos(S)), clock);
    let dispatcher = Dispatcher::new(limiter, 10).unwrap();
    // None runs before all are submitted: the dispatcher accepts none once the clock has panicked.
    let all = Arc::new(Barrier::new(2));
    for task in 0..5 {
        let (broken, all) = (Arc::clone(&broken), Arc::clone(&all));
        let run = move |_| {
            if task == 0 {
                all.wait();
            }
            broken.store(task == 1, Ordering::SeqCst);
        };
        dispatcher.submit(run).unwrap();
    }
    all.wait();
    let report = dispatcher.shutdown().unwrap();
    let ideal = Report { ran: 2, dropped: 3, limiter_panicked: true, ..Report::default() };
    assert_eq!(report, ideal);
}
