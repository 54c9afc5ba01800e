//! Many threads on one limiter, run as a simulation on a stepped clock.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rategate::error::Closed;
use rategate::error::ReconfigureError;
use rategate::pace::Dispatcher;
use rategate::pace::Throttle;
use rategate::wait::CancelToken;
use rategate::{
    AcquireError, AllOf, Clock, Decision, Gcra, Limiter, ManualClock, MonotonicClock, Reservation,
    SlidingLog, TryAcquireError,
};
use rategate_testkit::ns;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// Runs `threads` copies of `work` on a stepped clock, which advances whenever all of them wait.
fn simulate(clock: &ManualClock, threads: usize, work: impl Fn(usize) + Sync) {
    let live = AtomicUsize::new(threads);
    thread::scope(|scope| {
        for thread in 0..threads {
            let (live, work) = (&live, &work);
            scope.spawn(move || {
                work(thread);
                live.fetch_sub(1, Ordering::SeqCst);
            });
        }
        loop {
            // `live` is read first: threads that ended since do not wait, so the two cannot be
            // equal.
            match live.load(Ordering::SeqCst) {
                0 => break,
                live if live == clock.waiting() => drop(clock.step()),
                _ => thread::yield_now(),
            }
        }
    });
}

fn action(clock: &ManualClock, lasts_ns: u64) {
    let _ = clock.wait(clock.now_ns() + lasts_ns, &CancelToken::new());
}

/// S4.3, S4.6, S4.13, S4.16, X4.2: ten threads share two starts a second, with 250 ms of work
/// each: two start at each whole second, and the end is at 4250 ms.
#[test]
fn ten_threads_share_a_gate_to_the_millisecond() {
    let clock = ManualClock::stepped();
    let limiter = Limiter::with_clock(SlidingLog::new(2, Duration::from_nanos(S)), clock.clone());
    let starts = Mutex::new(Vec::new());
    simulate(&clock, 10, |_| {
        let grant = limiter.clone().acquire(1).unwrap();
        starts.lock().unwrap().push(ns(grant.released_at()) / MS);
        action(&clock, 250 * MS);
    });
    let mut starts = starts.into_inner().unwrap();
    starts.sort_unstable();
    assert_eq!(starts, [0, 0, 1_000, 1_000, 2_000, 2_000, 3_000, 3_000, 4_000, 4_000]);
    assert_eq!(clock.now_ns(), 4_250 * MS);
}

/// New numbers reach every queued thread, not only the first, although the queue has been booked
/// since. Each sleeps for its reported start, and learns of the new one.
#[test]
fn every_sleeping_thread_sees_a_new_limit() {
    let clock = ManualClock::stepped();
    let rate = |text: &str| Gcra::new(text.parse().unwrap(), 1).unwrap();
    let limiter = Limiter::with_clock(rate("1/h"), clock.clone());
    limiter.acquire(1).unwrap();
    thread::scope(|scope| {
        let threads: Vec<_> = (1..=3_usize)
            .map(|waiting| {
                let thread = scope.spawn(|| limiter.acquire(1));
                while clock.waiting() < waiting {
                    thread::yield_now();
                }
                thread
            })
            .collect();
        limiter.reconfigure(rate("1/s")).unwrap();
        // A request for the end of the queue books all of it anew.
        assert!(limiter.reserve_within(1, Duration::from_secs(1)).is_err());
        for (second, thread) in (1..).zip(threads) {
            clock.set(Duration::from_secs(second));
            let asleep_until = Instant::now() + Duration::from_secs(10);
            while !thread.is_finished() {
                if Instant::now() > asleep_until {
                    limiter.close();
                }
                thread::yield_now();
            }
            let grant = thread.join().unwrap().unwrap();
            assert_eq!(
                (ns(grant.released_at()), ns(grant.promised_at())),
                (second * S, second * S)
            );
        }
    });
}

/// An interrupted wait returns what it held, anywhere in the queue, and those behind it move up.
/// A permit granted by then belongs to the caller.
#[test]
fn an_interrupted_wait_leaves_the_queue() {
    let clock = ManualClock::stepped();
    let limiter = Limiter::with_clock(Gcra::new("1/s".parse().unwrap(), 1).unwrap(), clock.clone());
    limiter.acquire(1).unwrap();
    let cancels = [CancelToken::new(), CancelToken::new(), CancelToken::new(), CancelToken::new()];
    thread::scope(|scope| {
        let threads: Vec<_> = (1..)
            .zip(&cancels)
            .map(|(waiting, cancel)| {
                let thread = scope.spawn(|| limiter.acquire_unless(1, cancel));
                while limiter.waiting() != Ok(waiting) {
                    thread::yield_now();
                }
                thread
            })
            .collect();
        for (left, leaver) in [(3, 0), (2, 2)] {
            cancels[leaver].cancel();
            while limiter.waiting() != Ok(left) {
                thread::yield_now();
            }
        }
        for (left, second) in [(1, 1), (0, 2)] {
            clock.set(Duration::from_secs(second));
            while limiter.waiting() != Ok(left) {
                thread::yield_now();
            }
        }
        let ended = threads.into_iter().map(|thread| thread.join().unwrap());
        let starts: Vec<_> =
            ended.map(|ended| ended.map(|grant| ns(grant.promised_at()))).collect();
        let interrupted = Err(AcquireError::Interrupted);
        assert_eq!(starts, [interrupted, Ok(S), interrupted, Ok(2 * S)]);
    });
    assert_eq!(limiter.acquire_unless(1, &cancels[0]), Err(AcquireError::Interrupted), "at once");
    limiter.close();
    assert_eq!(limiter.acquire_unless(1, &CancelToken::new()), Err(AcquireError::Closed));
}

/// X1.4, S3.13, X3.4: concurrent threads never share a slot, and every grant is counted.
#[test]
fn no_slot_is_given_twice() {
    let limiter =
        Limiter::with_clock(SlidingLog::new(3, Duration::from_micros(1)), ManualClock::stepped());
    let starts = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..150 {
                    let start_ns = ns(limiter.reserve(1).unwrap().keep().released_at());
                    starts.lock().unwrap().push(start_ns);
                }
            });
        }
    });
    let mut starts = starts.into_inner().unwrap();
    starts.sort_unstable();
    let ideal: Vec<u64> = (0..8 * 150).map(|call| call / 3 * 1_000).collect();
    assert_eq!(starts, ideal);
}

/// S3.7, X3.9, S4.20: a million requests of ten threads, with pauses of 10 to 90 ms, never exceed
/// a hundred per 5 s, and a denied caller gets the time of its retry.
#[test]
fn a_million_requests_of_ten_threads() {
    let clock = ManualClock::new();
    let limiter =
        Limiter::with_clock(SlidingLog::new(100, Duration::from_nanos(5 * S)), clock.clone());
    let starts = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for thread in 0..10_u64 {
            let (clock, limiter, starts) = (&clock, &limiter, &starts);
            scope.spawn(move || {
                let mut random = Rng::with_seed(thread);
                for _ in 0..100_000 {
                    match limiter.try_acquire(1).unwrap() {
                        Decision::Granted(grant) => {
                            starts.lock().unwrap().push(ns(grant.released_at()));
                        }
                        Decision::Denied(denial) => {
                            let retry_after = denial.retry_after().unwrap();
                            assert!(
                                retry_after <= Duration::from_secs(5) && !retry_after.is_zero()
                            );
                        }
                    }
                    action(clock, random.u64(10..=90) * MS);
                }
            });
        }
    });
    let mut starts = starts.into_inner().unwrap();
    starts.sort_unstable();
    assert!(starts.len() > 1_000, "{}", starts.len());
    assert!(starts.windows(101).all(|window| window[100] - window[0] >= 5 * S));
}

/// X4.6, S4.5: closing wakes all waiters, returns promised permits, and ends everything.
#[test]
fn closing_wakes_the_waiters() {
    let clock = ManualClock::stepped();
    let limiter = Limiter::with_clock(SlidingLog::new(1, Duration::from_nanos(S)), clock.clone());
    limiter.acquire(1).unwrap();
    let reserved = limiter.reserve(1).unwrap();
    thread::scope(|scope| {
        let waits = [(); 3].map(|()| scope.spawn(|| limiter.acquire(1)));
        while clock.waiting() < 3 {
            thread::yield_now();
        }
        limiter.close();
        for wait in waits {
            assert_eq!(wait.join().unwrap(), Err(AcquireError::Closed));
        }
    });
    assert!(limiter.is_closed() && limiter.clone().is_closed());
    assert_eq!(reserved.wait(), Err(AcquireError::Closed));
    assert_eq!(limiter.acquire(1), Err(AcquireError::Closed));
    assert_eq!(limiter.acquire_within(1, Duration::MAX), Err(AcquireError::Closed));
    assert_eq!(limiter.try_acquire(1), Err(TryAcquireError::Closed));
    assert_eq!(limiter.peek(1), Err(TryAcquireError::Closed));
    assert_eq!(limiter.reserve(1).unwrap_err(), AcquireError::Closed);
    assert_eq!(limiter.remaining(), Err(Closed));
    assert_eq!(limiter.refill(1), Err(Closed));
    assert_eq!(limiter.release(1), Err(Closed));
    assert_eq!(limiter.abort(1), Err(Closed));
    assert_eq!(
        limiter.reconfigure(SlidingLog::new(2, Duration::from_nanos(S))),
        Err(ReconfigureError::Closed)
    );
    limiter.close();
    let all = Limiter::new(AllOf::default());
    all.close();
    assert_eq!(all.reconfigure(AllOf::default()), Err(ReconfigureError::Closed));
    assert_eq!(clock.now_ns(), 0, "no wait took time");
}

/// A promise made before closing belongs to the caller once its start has come, and is returned
/// before that: `Closed` always means that no permit is used up.
#[test]
fn closing_takes_back_no_start_that_has_come() {
    let clock = ManualClock::stepped();
    let limiter = Limiter::with_clock(SlidingLog::new(1, Duration::from_nanos(S)), clock.clone());
    let reserved = [(); 4].map(|()| limiter.reserve(1).unwrap());
    clock.set(Duration::from_nanos(S + 5));
    limiter.close();
    let [first, second, third, fourth] = reserved;
    let grants = [first, second].map(|reserved| reserved.wait().unwrap());
    assert_eq!(
        grants.map(|grant| (ns(grant.promised_at()), ns(grant.released_at()))),
        [(0, S + 5), (S, S + 5)]
    );
    assert_eq!(third.wait(), Err(AcquireError::Closed));
    assert_eq!(ns(fourth.keep().released_at()), 3 * S);
}

/// X4.6: in real time too, a waiter of an hour wakes when the limiter is closed.
#[test]
fn closing_wakes_a_real_sleeper() {
    let limiter = Limiter::new(SlidingLog::new(1, Duration::from_nanos(3_600 * S)));
    limiter.acquire(1).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| limiter.acquire(1));
        thread::sleep(Duration::from_millis(10));
        limiter.close();
        assert_eq!(waiting.join().unwrap(), Err(AcquireError::Closed));
    });
}

/// New numbers apply to waiters, whether sooner or later; a reservation keeps its promise.
#[test]
fn a_waiter_is_served_by_new_numbers() {
    let rate = |text: &str| Gcra::new(text.parse().unwrap(), 1).unwrap();
    let clock = ManualClock::stepped();
    let limiter = Limiter::with_clock(rate("1/s"), clock.clone());
    limiter.acquire(1).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| ns(limiter.acquire(1).unwrap().released_at()));
        while clock.waiting() < 1 {
            thread::yield_now();
        }
        limiter.reconfigure(rate("1/min")).unwrap();
        while !waiting.is_finished() {
            clock.step();
            thread::yield_now();
        }
        assert_eq!(waiting.join().unwrap(), 60 * S, "later");
        let waiting = scope.spawn(|| ns(limiter.acquire(1).unwrap().released_at()));
        while clock.waiting() < 1 {
            thread::yield_now();
        }
        limiter.reconfigure(rate("1/s")).unwrap();
        clock.set(Duration::from_secs(61));
        assert_eq!(waiting.join().unwrap(), 61 * S, "sooner");
    });
    let reserved = limiter.reserve(1).unwrap();
    limiter.reconfigure(rate("1/h")).unwrap();
    assert_eq!(ns(reserved.promised_at()), 62 * S);
}

/// Threads start in the order of their requests, whatever the size.
#[test]
fn starts_come_in_the_order_of_asking() {
    let clock = ManualClock::stepped();
    let limiter =
        Limiter::with_clock(Gcra::new("10/s".parse().unwrap(), 5).unwrap(), clock.clone());
    let starts = Mutex::new(Vec::new());
    simulate(&clock, 6, |thread| {
        // Requests are one nanosecond apart, so that their order is known.
        action(&clock, u64::try_from(thread).unwrap() + 1);
        let grant = limiter.acquire([5, 1, 4, 1, 2, 3][thread]).unwrap();
        starts.lock().unwrap().push((thread, ns(grant.released_at())));
    });
    let mut starts = starts.into_inner().unwrap();
    starts.sort_unstable();
    assert!(starts.is_sorted_by_key(|(_, start_ns)| *start_ns), "{starts:?}");
    assert_eq!(starts.last().unwrap().1, 1_100 * MS + 1);
}

/// S4.6, S4.16: shared types can be shared between threads, and the others can be sent.
#[test]
fn everything_may_go_to_other_threads() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    shared::<Limiter>();
    shared::<Limiter<ManualClock>>();
    shared::<ManualClock>();
    shared::<MonotonicClock>();
    shared::<CancelToken>();
    sent::<Reservation>();
    sent::<Throttle>();
    sent::<Dispatcher>();
}

/// S3.12: the maximum of a log changes under load from many threads, in both directions and
/// beyond its initial ring. Nothing is lost or invented: each window holds at most what the
/// largest limit in force allows, and afterwards what the last one does.
#[test]
fn a_log_grows_and_shrinks_under_load() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock(SlidingLog::new(3, Duration::from_nanos(S)), clock.clone());
    let starts = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..60_000 {
                    if let Decision::Granted(grant) = limiter.try_acquire(1).unwrap() {
                        starts.lock().unwrap().push(ns(grant.released_at()));
                    }
                    clock.advance(Duration::from_nanos(MS / 50));
                }
            });
        }
        for permits in [40, 7, 1_000, 2, 5_000, 300].repeat(20) {
            limiter.reconfigure(SlidingLog::new(permits, Duration::from_nanos(S))).unwrap();
            for _ in 0..200 {
                let _ = limiter.peek(1);
                thread::yield_now();
            }
        }
    });
    let mut starts = starts.into_inner().unwrap();
    starts.sort_unstable();
    assert!(starts.windows(5_001).all(|span| span[5_000] - span[0] >= S));
    clock.advance(Duration::from_nanos(S));
    assert_eq!(limiter.remaining(), Ok(300));
    let granted = (0..1_000).filter(|_| limiter.try_acquire(1).unwrap().is_granted()).count();
    assert_eq!(granted, 300);
}
