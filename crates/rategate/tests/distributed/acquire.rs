//! Waiting callers get their permits when they are due and no sooner; a wait that would be too
//! long is denied.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rategate::distributed::{Decision, Distributed};
use rategate::store::MemoryStore;
use rategate::{Clock, Gcra, ManualClock, Rate};

use crate::distributed::{MS, S};

fn limiter(clock: &ManualClock) -> Distributed<MemoryStore<ManualClock>, ManualClock> {
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    let bucket = Gcra::new(Rate::per_second(10), 1).unwrap();
    Distributed::builder(store).with_clock(clock.clone()).limit("a", bucket).build().unwrap()
}

#[test]
fn a_thread_waits_as_long_as_it_has_to() {
    let clock = ManualClock::new();
    let limiter = limiter(&clock);
    let start_ns = clock.now_ns();
    for attempt in 0..5 {
        assert!(
            limiter
                .acquire_within_blocking(b"key", 1, Duration::from_nanos(S))
                .unwrap()
                .is_granted()
        );
        let after_ns = clock.now_ns() - start_ns;
        // Each wait is longer than the exact one by a sixteenth at most.
        let min_ns = attempt * 100 * MS;
        assert!((min_ns..=min_ns * 17 / 16).contains(&after_ns), "turn {attempt}: {after_ns} ns");
    }
}

#[test]
fn no_call_waits_past_its_deadline() {
    let clock = ManualClock::new();
    let limiter = limiter(&clock);
    assert!(limiter.acquire_within_blocking(b"key", 1, Duration::ZERO).unwrap().is_granted());
    let before_ns = clock.now_ns();
    let denied = limiter.acquire_within_blocking(b"key", 1, Duration::from_millis(99)).unwrap();
    let Decision::Denied(denial) = denied else { panic!("there is nothing") };
    assert_eq!(denial.retry_after, Some(Duration::from_millis(100)));
    assert_eq!(clock.now_ns(), before_ns);
    assert!(
        limiter
            .acquire_within_blocking(b"key", 1, Duration::from_millis(100))
            .unwrap()
            .is_granted()
    );
}

#[test]
fn a_task_waits_by_the_clock() {
    let clock = ManualClock::stepped();
    let limiter = limiter(&clock);
    assert!(limiter.try_acquire(b"key", 1).wait().unwrap().is_granted());
    let mut acquiring = pin!(limiter.acquire_within(b"key", 1, Duration::from_nanos(S)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(acquiring.as_mut().poll(&mut context).is_pending());
    clock.advance(Duration::from_millis(99));
    assert!(acquiring.as_mut().poll(&mut context).is_pending());
    clock.advance(Duration::from_millis(8));
    let Poll::Ready(decision) = acquiring.as_mut().poll(&mut context) else { panic!("it is time") };
    assert!(decision.unwrap().is_granted());
}
