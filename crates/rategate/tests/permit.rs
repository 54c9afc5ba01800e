//! Permits as values: the events that end an operation, and those that do not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use rategate::adaptive::{Adaptation, Bounds, Method, Outcome};
use rategate::keyed::Capacity;
use rategate::{
    AcquireError, AdaptiveConcurrency, AdaptiveRate, AsyncLimiter, CommitLog, Concurrency, Grant,
    Keyed, Limiter, ManualClock, Rate, Share, SlidingLog, TryAcquireError,
};
use rategate_testkit::executor::{Task, play};
use rategate_testkit::ns;

type Commits = Limiter<ManualClock>;

fn commits(permits: u64, period_ns: u64) -> (Commits, ManualClock) {
    let clock = ManualClock::new();
    let policy = CommitLog::new(permits, Duration::from_nanos(period_ns));
    (Limiter::with_clock(policy, clock.clone()), clock)
}

/// X1.5: a slot is held from the grant to the drop, and cools from then on; `commit` is a drop by
/// name.
#[test]
fn a_permit_commits_where_it_is_dropped() {
    let (limiter, clock) = commits(2, 1_000);
    let (first, second) = (limiter.permit(1).unwrap(), limiter.permit(1).unwrap());
    assert_eq!((first.permits(), ns(first.grant().released_at())), (1, 0));
    assert!(limiter.try_permit(1).unwrap().is_err());
    clock.advance(Duration::from_nanos(300));
    drop(first);
    clock.advance(Duration::from_nanos(200));
    second.commit();
    assert_eq!(limiter.peek(1), Ok(Some(Duration::from_nanos(800))));
    assert_eq!(limiter.peek(2), Ok(Some(Duration::from_micros(1))));
    // This call waits, as `acquire` does.
    assert_eq!(ns(limiter.permit(1).unwrap().grant().released_at()), 1_300);
}

#[test]
fn an_aborted_permit_is_free_at_once() {
    let (limiter, clock) = commits(3, 1_000);
    let permit = limiter.permit(2).unwrap();
    clock.advance(Duration::from_nanos(10));
    permit.abort();
    assert_eq!(limiter.remaining(), Ok(3));
    // Aborting one permit does not affect others.
    let (own, others) = (limiter.permit(1).unwrap(), limiter.permit(1).unwrap());
    own.abort();
    assert_eq!(limiter.peek(3), Ok(None), "still held");
    drop(others);
    let oven = Limiter::new(Concurrency::new(1));
    oven.permit(1).unwrap().abort();
    drop(oven.permit(1).unwrap());
    assert_eq!(oven.remaining(), Ok(1));
    // A limit that does not count operations in flight takes no permit back.
    let log = Limiter::with_clock(SlidingLog::new(1, Duration::from_micros(1)), clock);
    log.permit(1).unwrap().abort();
    assert_eq!(log.remaining(), Ok(0));
}

/// X1.6: a start that comes too late fails, and counts as no effect.
#[test]
fn a_late_start_is_refused() {
    let max_delay = Duration::from_nanos(50);
    let (limiter, clock) = commits(1, 1_000);
    let permit = limiter.permit(1).unwrap();
    clock.advance(Duration::from_nanos(50));
    let permit = permit.start_within(max_delay).expect("the last instant is in time");
    clock.advance(Duration::from_nanos(1));
    let expired = permit.start_within(max_delay).unwrap_err();
    assert_eq!(expired.late(), Duration::from_nanos(1));
    assert_eq!(expired.to_string(), "the permit expired 1ns ago");
    assert_eq!(limiter.remaining(), Ok(1), "free at once");
    assert!(limiter.permit(1).unwrap().start_within(Duration::MAX).is_ok());
}

/// X1.6: the time runs from the instant that the limit counts. For a late caller that is the
/// instant of taking, so that the guard after it is whole; where the limit keeps promises, it is
/// the promised one.
#[test]
fn the_time_runs_from_the_start_that_counts() {
    for (is_promised, late_ns) in [(false, None), (true, Some(2))] {
        let clock = ManualClock::stepped();
        let limiter =
            Limiter::with_clock(SlidingLog::new(1, Duration::from_micros(1)), clock.clone());
        let limiter = if is_promised { limiter.with_promised_starts() } else { limiter };
        drop(limiter.permit(1).unwrap());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| limiter.permit(1).unwrap());
            while clock.waiting() < 1 {
                thread::yield_now();
            }
            clock.set(Duration::from_nanos(1_007));
            let permit = waiting.join().unwrap();
            assert_eq!(
                (ns(permit.grant().promised_at()), ns(permit.grant().released_at())),
                (1_000, 1_007)
            );
            let expired = permit.start_within(Duration::from_nanos(5)).err();
            assert_eq!(expired.map(|expired| expired.late()), late_ns.map(Duration::from_nanos));
            if expired.is_none() {
                let permit = limiter.try_permit(1).unwrap().expect_err("1 of 1");
                assert_eq!(permit.retry_after(), Some(Duration::from_micros(1)), "from 1 007 on");
            }
        });
    }
}

#[test]
fn a_try_tells_not_yet_from_never() {
    let (limiter, _) = commits(1, 1_000);
    let permit = limiter.try_permit(1).unwrap().unwrap();
    assert_eq!(limiter.try_permit(1).unwrap().unwrap_err().retry_after(), None);
    drop(permit);
    let denial = limiter.try_permit(1).unwrap().unwrap_err();
    assert_eq!(denial.retry_after(), Some(Duration::from_micros(1)));
    assert!(matches!(limiter.try_permit(2), Err(TryAcquireError::ExceedsCapacity(_))));
    // Zero permits hold nothing.
    drop(limiter.try_permit(0).unwrap().unwrap());
    limiter.try_permit(0).unwrap().unwrap().abort();
    limiter.close();
    assert_eq!(limiter.try_permit(1).unwrap_err(), TryAcquireError::Closed);
    assert_eq!(limiter.permit(1).unwrap_err(), AcquireError::Closed);
}

/// A dropped permit ends its operation on another thread, in a panic, after the limiter is
/// closed, and after its last handle is dropped. None of these drops panics.
#[test]
fn a_permit_ends_wherever_it_is_dropped() {
    let (limiter, clock) = commits(3, 1_000);
    let permit = limiter.permit(1).unwrap();
    thread::spawn(move || drop(permit)).join().unwrap();
    let permit = limiter.permit(1).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _permit = permit;
        panic!("the operation fails");
    }));
    assert!(panicked.is_err());
    assert_eq!(limiter.peek(3), Ok(Some(Duration::from_micros(1))), "both have committed");

    // A permit that is leaked costs its own permits.
    std::mem::forget(limiter.permit(1).unwrap());
    clock.advance(Duration::from_micros(1));
    assert_eq!((limiter.remaining(), limiter.peek(3)), (Ok(2), Ok(None)));

    let permits = [(); 2].map(|()| limiter.permit(1).unwrap());
    limiter.close();
    let [first, second] = permits;
    first.abort();
    drop(limiter);
    assert!(second.start_within(Duration::ZERO).is_ok());
}

/// In real time and on many threads, there are never more permits than the limit allows.
#[test]
fn permits_of_many_threads_are_never_too_many() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let (oven, inside) = (Limiter::new(Concurrency::new(3)), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    if let Ok(permit) = oven.try_permit(1).unwrap() {
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                }
            });
        }
    });
    assert_eq!(oven.remaining(), Ok(3));
}

/// A reservation whose start has come is used up. Where operations in flight count, it has ended
/// once it can no longer be used, and does not hold its permits for ever.
#[test]
fn a_reservation_dropped_after_its_start_has_ended() {
    let clock = ManualClock::new();
    let oven = Limiter::with_clock(Concurrency::new(2), clock.clone());
    let (kept, dropped) = (oven.reserve(1).unwrap(), oven.reserve(1).unwrap());
    let _ = kept.keep();
    assert_eq!(oven.remaining(), Ok(0));
    drop(dropped);
    assert_eq!(oven.remaining(), Ok(1));
    assert!(!oven.reserve(1).unwrap().cancel());
    assert_eq!(oven.remaining(), Ok(1));

    let peer = Limiter::with_clock(CommitLog::new(1, Duration::from_micros(1)), clock.clone());
    let reserved = peer.reserve(1).unwrap();
    clock.advance(Duration::from_nanos(70));
    drop(reserved);
    assert_eq!(
        ns(peer.acquire(1).unwrap().released_at()),
        1_070,
        "it may have had its effect until then"
    );

    let log = Limiter::with_clock(SlidingLog::new(1, Duration::from_micros(1)), clock.clone());
    drop(log.reserve(1).unwrap());
    assert_eq!(log.remaining(), Ok(0), "used up");
}

/// A limit that follows measurements grows with the end of an operation, and so starts more than
/// one waiter, in order. An operation that says nothing about the server starts one.
#[test]
fn waiters_start_as_a_limit_that_follows_measurements_grows() {
    let clock = ManualClock::stepped();
    let adaptation = Adaptation::new(Bounds::new(1, 2, 3)).with_method(Method::Aimd);
    let limiter =
        AsyncLimiter::with_clock(AdaptiveConcurrency::following(adaptation), clock.clone());
    let (first, second) = (limiter.try_permit(1).unwrap(), limiter.try_permit(1).unwrap());
    let (first, second) = (first.unwrap(), second.unwrap());
    let mut tasks = [(); 4].map(|()| Task::new(limiter.permit(1)));
    let started = |tasks: &mut [Task<'_, _>]| {
        play(&clock, tasks, 1);
        tasks.iter().map(|task| task.result.is_some()).collect::<Vec<_>>()
    };
    assert_eq!(started(&mut tasks), [false; 4]);
    first.served();
    assert_eq!(limiter.max_in_flight(), Ok(Some(3)));
    assert_eq!(started(&mut tasks), [true, true, false, false]);
    second.ignored();
    assert_eq!(started(&mut tasks), [true, true, true, false]);
    tasks[0].result.take().unwrap().unwrap().dropped();
    assert_eq!(limiter.max_in_flight(), Ok(Some(2)));
    assert!(!started(&mut tasks)[3], "there are still two");
    drop(tasks[1].result.take());
    assert!(started(&mut tasks)[3]);
}

/// A refusal delays the waiters, in order. A reservation keeps its instant.
#[test]
fn waiters_follow_a_rate_that_is_cut() {
    const PROMISED: u64 = 500_000_000;
    let clock = ManualClock::stepped();
    // The refusal takes the rate to the floor.
    let [floor, ceiling] = [7, 8].map(Rate::per_second);
    let policy = AdaptiveRate::new(floor, ceiling);
    let limiter = AsyncLimiter::with_clock(policy, clock.clone());
    let first = limiter.try_permit(1).unwrap().unwrap();
    let mut tasks = [(); 3].map(|()| Task::new(limiter.permit(1)));
    tasks.iter_mut().for_each(Task::run);
    let promised = limiter.limiter().reserve(1).unwrap().keep();
    assert_eq!(ns(promised.released_at()), PROMISED);
    first.dropped();
    play(&clock, &mut tasks, 1_000_000_000);
    let starts = tasks
        .iter()
        .map(|task| ns(task.result.as_ref().unwrap().as_ref().unwrap().grant().released_at()));
    assert_eq!(starts.collect::<Vec<_>>(), [142_857_143, 285_714_286, 642_857_143]);
}

/// A table of keys follows each server by itself.
#[test]
fn keys_follow_their_own_servers() {
    let clock = ManualClock::new();
    let adaptation = Adaptation::new(Bounds::new(1, 2, 50)).with_method(Method::Aimd);
    let policy = AdaptiveConcurrency::following(adaptation);
    let keyed: Keyed<str, _> = Keyed::with_clock(policy, Capacity::default(), clock.clone());
    for _ in 0..5 {
        for (key, outcome) in [("good", Outcome::Served), ("bad", Outcome::Dropped)] {
            let grants = std::iter::from_fn(|| keyed.try_acquire(key, 1).unwrap().granted());
            let grants: Vec<Grant> = grants.collect();
            clock.advance(Duration::from_millis(5));
            for grant in grants {
                assert_eq!(keyed.release_with_outcome(key, &grant, outcome), Ok(true));
            }
        }
    }
    let in_flight =
        |key| std::iter::from_fn(|| keyed.try_acquire(key, 1).unwrap().granted()).count();
    assert_eq!((in_flight("good"), in_flight("bad")), (14, 1));
}

/// A try within a share counts the permits of waiters whose start has come, although they have not
/// taken them yet.
#[test]
fn a_share_counts_waiters_whose_start_has_come() {
    let limiter = AsyncLimiter::with_clock(Concurrency::new(10), ManualClock::new());
    let all = limiter.try_permit(10).unwrap().unwrap();
    let mut waiting = [(); 5].map(|()| Task::new(limiter.permit(1)));
    waiting.iter_mut().for_each(Task::run);
    drop(all);
    let batch = |_| limiter.try_permit_in_share(1, Share::percent(60)).unwrap().ok();
    let granted: Vec<_> = (0..8).filter_map(batch).collect();
    assert_eq!(granted.len(), 1, "five of six are those of waiters");
    waiting.iter_mut().for_each(Task::run);
    assert!(waiting.iter().all(|task| matches!(task.result, Some(Ok(_)))));
}
