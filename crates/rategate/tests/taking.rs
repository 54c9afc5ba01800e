//! Waiters that take late, among reservations, changes and waiters that gave up. None is
//! overtaken for ever, no permit is lost, and no window is over.

use rategate::policy::Mode;
use rategate::{AcquireError, AsyncLimiter, Clock, Concurrency, Gcra, Grant, Limiter};
use rategate::{ManualClock, SlidingLog, TwoTimeline};
use rategate_testkit::ns;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

const MS: u64 = 1_000_000;

type Wait<'a> = Pin<Box<dyn Future<Output = Result<Grant, AcquireError>> + 'a>>;

fn poll(wait: &mut Wait<'_>) -> Option<Result<Grant, AcquireError>> {
    match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ended) => Some(ended),
        Poll::Pending => None,
    }
}

fn wait_for<C: Clock + 'static>(limiter: &AsyncLimiter<C>) -> Wait<'_> {
    Box::pin(limiter.acquire(1))
}

/// Returns the start of a wait, in milliseconds.
fn started(wait: &mut Wait<'_>) -> Option<u64> {
    poll(wait).map(|grant| ns(grant.unwrap().released_at()) / MS)
}

/// Returns a limiter of one permit in any 100 ms, of which the first is taken at zero.
fn one_in_100_ms() -> (AsyncLimiter<ManualClock>, ManualClock) {
    let clock = ManualClock::stepped();
    let limiter =
        AsyncLimiter::with_clock(SlidingLog::new(1, Duration::from_nanos(100 * MS)), clock.clone());
    limiter.limiter().acquire(1).unwrap();
    (limiter, clock)
}

#[test]
fn a_reservation_stands_behind_all_who_wait_however_late_the_first_was() {
    let (limiter, clock) = one_in_100_ms();
    let _all = limiter.limiter().clone().with_grace(Duration::from_secs(60));
    let mut waits: Vec<Wait<'_>> = (0..24).map(|_| wait_for(&limiter)).collect();
    assert!(waits.iter_mut().all(|wait| poll(wait).is_none()));
    assert_eq!(limiter.limiter().peek(1), Ok(Some(Duration::from_millis(2_500))));
    clock.advance(Duration::from_secs(5));
    assert_eq!(started(&mut waits[0]), Some(5_000));
    // The other 23 start from 5.1 s to 7.3 s.
    let promised = ns(limiter.limiter().reserve(1).unwrap().keep().promised_at());
    assert!(promised >= 7_400 * MS, "{promised}");
}

#[test]
fn a_waiter_that_is_a_little_late_each_time_is_not_passed_by_reservations_for_ever() {
    let (limiter, clock) = one_in_100_ms();
    let mut wait: Wait<'_> = Box::pin(limiter.acquire(1));
    assert!(poll(&mut wait).is_none());
    let mut next_ms = 100;
    for _ in 0..4 {
        clock.advance(Duration::from_nanos(next_ms * MS + MS - clock.now_ns()));
        let promised_ms = ns(limiter.limiter().reserve(1).unwrap().keep().promised_at()) / MS;
        clock.advance(Duration::from_nanos(MS));
        if started(&mut wait).is_some() {
            return;
        }
        next_ms = promised_ms + 100;
    }
    panic!("passed four times");
}

#[test]
fn what_is_held_is_withdrawn_also_after_the_limit_has_become_one_that_promises() {
    let clock = ManualClock::stepped();
    let of = |mode| TwoTimeline::new("10/s".parse().unwrap(), mode, None);
    let limiter = AsyncLimiter::with_clock(of(Mode::Strict), clock.clone());
    limiter.limiter().acquire(1).unwrap();
    let mut waits: Vec<Wait<'_>> = (0..3).map(|_| wait_for(&limiter)).collect();
    assert!(waits.iter_mut().all(|wait| poll(wait).is_none()));
    clock.advance(Duration::from_millis(100));
    limiter.limiter().reconfigure(of(Mode::Average)).unwrap();
    clock.advance(Duration::from_millis(200));
    assert!(started(&mut waits[1]).is_some() && started(&mut waits[2]).is_some());
    clock.advance(Duration::from_millis(100));
    assert!(started(&mut waits[0]).is_some(), "the late one comes at last");

    let (limiter, clock) = one_in_100_ms();
    let mut leaked: Wait<'_> = Box::pin(limiter.acquire(1));
    assert!(poll(&mut leaked).is_none());
    clock.advance(Duration::from_millis(100));
    assert_eq!(limiter.limiter().waiting(), Ok(1));
    let _all = limiter.limiter().clone().with_promised_starts();
    std::mem::forget(leaked);
    clock.advance(Duration::from_secs(60));
    assert!(limiter.limiter().try_acquire(1).unwrap().is_granted());
}

#[test]
fn waiters_that_are_all_later_than_the_grace_period_start() {
    let clock = ManualClock::stepped();
    let limiter =
        AsyncLimiter::with_clock(SlidingLog::new(1, Duration::from_nanos(MS)), clock.clone());
    let _all = limiter.limiter().clone().with_grace(Duration::from_millis(1));
    let mut waits: Vec<Wait<'_>> = (0..20).map(|_| wait_for(&limiter)).collect();
    let mut rounds = 0;
    while !waits.is_empty() {
        // Each is polled 5 ms after it may have been woken.
        waits.retain_mut(|wait| poll(wait).is_none());
        clock.advance(Duration::from_millis(5));
        rounds += 1;
        assert!(rounds < 200, "{} still wait", waits.len());
    }
}

#[test]
fn a_change_that_changes_nothing_lets_no_late_reservation_through() {
    for change in 0..3 {
        let (limiter, clock) = one_in_100_ms();
        let mut waited: Wait<'_> = Box::pin(limiter.reserve(1).unwrap().wait());
        let kept = limiter.limiter().reserve(1).unwrap();
        assert!(poll(&mut waited).is_none());
        match change {
            1 => assert_eq!(limiter.limiter().refill(1), Ok(false)),
            2 => limiter
                .limiter()
                .reconfigure(SlidingLog::new(1, Duration::from_nanos(100 * MS)))
                .unwrap(),
            _ => {}
        }
        clock.advance(Duration::from_millis(108));
        assert!(poll(&mut waited).is_none(), "another is promised 92 ms later");
        assert_eq!(ns(kept.keep().promised_at()), 200 * MS);
        clock.advance(Duration::from_millis(192));
        assert_eq!(started(&mut waited), Some(300));
    }
}

#[test]
fn waiters_that_return_keep_their_order_and_their_deadlines() {
    for tries in [false, true] {
        let (limiter, clock) = one_in_100_ms();
        let mut first: Wait<'_> = Box::pin(limiter.acquire_within(1, Duration::from_millis(235)));
        let mut others: [Wait<'_>; 2] = [(); 2].map(|()| wait_for(&limiter));
        assert!(poll(&mut first).is_none() && others.iter_mut().all(|wait| poll(wait).is_none()));
        for _ in 0..24 {
            clock.advance(Duration::from_millis(5));
            assert!(limiter.limiter().waiting().is_ok());
        }
        assert_eq!(started(&mut others[1]), Some(120), "the others came too late for theirs");
        clock.advance(Duration::from_millis(2));
        assert!(poll(&mut first).is_none());
        clock.advance(Duration::from_millis(2));
        assert!(poll(&mut others[0]).is_none());
        if tries {
            assert!(!limiter.limiter().try_acquire(1).unwrap().is_granted());
        }
        clock.advance(Duration::from_millis(96));
        assert_eq!(started(&mut first), Some(220), "with a try: {tries}");
    }
}

#[test]
fn a_reservation_taken_on_time_delays_no_later_retry() {
    for is_waited in [false, true] {
        let clock = ManualClock::stepped();
        let bucket = Gcra::new("10/s".parse().unwrap(), 1).unwrap();
        let limiter = AsyncLimiter::with_clock(bucket, clock.clone());
        limiter.limiter().acquire(1).unwrap();
        let reserved = limiter.reserve(1).unwrap();
        let mut reserved: Wait<'_> = if is_waited {
            Box::pin(reserved.wait())
        } else {
            let grant = reserved.keep();
            Box::pin(std::future::ready(Ok(grant)))
        };
        let _ = is_waited && poll(&mut reserved).is_none();
        let mut next: Wait<'_> = Box::pin(limiter.acquire(1));
        assert!(poll(&mut next).is_none() && limiter.limiter().peek(1).is_ok());
        clock.advance(Duration::from_millis(100));
        assert!(poll(&mut reserved).is_some());
        let mut last: Wait<'_> = Box::pin(limiter.acquire_within(1, Duration::from_secs(10)));
        assert!(poll(&mut last).is_none());
        assert_eq!(limiter.limiter().peek(1), Ok(Some(Duration::from_millis(300))));
    }
}

#[test]
fn a_reset_drops_no_hold_of_another() {
    let (limiter, clock) = one_in_100_ms();
    let mut reserved: Wait<'_> = Box::pin(limiter.reserve(1).unwrap().wait());
    assert!(poll(&mut reserved).is_none());
    clock.advance(Duration::from_millis(50));
    assert_eq!(limiter.limiter().reset(), Ok(true));
    let mut next: Wait<'_> = Box::pin(limiter.acquire(1));
    let _ = poll(&mut next);
    drop(reserved);
    assert!(!limiter.limiter().try_acquire(1).unwrap().is_granted(), "behind one that is due");
    assert_eq!(started(&mut next), Some(50));
}

/// A waiter that is never late comes an hour late, and later one never comes.
#[test]
fn one_large_lateness_decays() {
    let (limiter, clock) = one_in_100_ms();
    let mut late: Wait<'_> = Box::pin(limiter.acquire(1));
    assert!(poll(&mut late).is_none());
    clock.advance(Duration::from_secs(3_600));
    assert!(started(&mut late).is_some());
    for _ in 0..150 {
        let mut on_time: Wait<'_> = Box::pin(limiter.acquire(1));
        assert!(poll(&mut on_time).is_none());
        clock.advance(Duration::from_millis(100));
        assert!(started(&mut on_time).is_some());
    }
    let mut leaked: Wait<'_> = Box::pin(limiter.acquire(1));
    let mut next: Wait<'_> = Box::pin(limiter.acquire(1));
    assert!(poll(&mut leaked).is_none() && poll(&mut next).is_none());
    clock.advance(Duration::from_millis(100));
    assert_eq!(limiter.limiter().waiting(), Ok(2));
    std::mem::forget(leaked);
    clock.advance(Duration::from_millis(20));
    assert!(started(&mut next).is_some(), "after 10 ms");
}

/// A thread learns when a due waiter before it is withdrawn, even if no timer of tasks runs.
#[test]
fn a_thread_behind_a_task_that_never_comes_waits_one_grace_period() {
    let limiter = Limiter::new(Concurrency::new(1));
    let tasks = AsyncLimiter::from(limiter.clone());
    assert!(limiter.try_acquire(1).unwrap().is_granted());
    let mut stalled: Wait<'_> = Box::pin(tasks.acquire(1));
    assert!(poll(&mut stalled).is_none());
    let behind = limiter.clone();
    let (ended, wait) = mpsc::channel();
    thread::spawn(move || ended.send(behind.acquire(1).is_ok()));
    while limiter.waiting().unwrap() < 2 {
        thread::yield_now();
    }
    // The thread sleeps, with no start to wait for.
    thread::sleep(Duration::from_millis(50));
    limiter.release(1).unwrap();
    assert_eq!(wait.recv_timeout(Duration::from_secs(20)), Ok(true));
}

/// A thread with a start of its own, much later, learns of the withdrawal too.
#[test]
fn a_thread_that_knows_its_start_does_not_wait_for_it_behind_a_task_that_never_comes() {
    let limiter = Limiter::new(SlidingLog::new(1, Duration::from_nanos(2_000 * MS)));
    let tasks = AsyncLimiter::from(limiter.clone());
    let first = ns(limiter.acquire(1).unwrap().released_at());
    let mut stalled: Wait<'_> = Box::pin(tasks.acquire(1));
    assert!(poll(&mut stalled).is_none());
    let second = ns(limiter.acquire(1).unwrap().released_at());
    let apart_ms = (second - first) / MS;
    assert!((2_000..3_500).contains(&apart_ms), "{apart_ms} ms");
}
