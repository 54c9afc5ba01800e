//! Wakes before a start, on clocks that run by themselves: a task is roused, looks at the clock in its poll,
//! and takes. On a clock moved by hand none of it happens.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use rategate::{AsyncLimiter, Clock, Gcra, ManualClock, MonotonicClock, SlidingLog};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Notes when it was called first.
struct Called {
    clock: MonotonicClock,
    at_ns: AtomicU64,
    thread: thread::Thread,
}

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.at_ns.fetch_min(self.clock.now_ns(), Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// A task that is polled when it is woken and not before takes after its start and was woken before it, as
/// soon as the limiter has seen how late wakes are.
#[test]
fn a_task_is_woken_before_its_start() {
    let clock = MonotonicClock::new();
    let limiter = AsyncLimiter::with_clock(SlidingLog::new(1, 2 * MS).unwrap(), clock);
    let called =
        Arc::new(Called { clock, at_ns: AtomicU64::new(u64::MAX), thread: thread::current() });
    let waker = Waker::from(Arc::clone(&called));
    let (mut early, mut last_ns) = (0, None);
    for _ in 0..200 {
        called.at_ns.store(u64::MAX, Ordering::SeqCst);
        let mut wait = limiter.acquire(1);
        let grant = loop {
            if let Poll::Ready(taken) = Pin::new(&mut wait).poll(&mut Context::from_waker(&waker)) {
                break taken.unwrap();
            }
            thread::park();
        };
        assert!(last_ns.is_none_or(|last_ns| grant.release_ns() - last_ns >= 2 * MS));
        last_ns = Some(grant.release_ns());
        early += u32::from(called.at_ns.load(Ordering::SeqCst) < grant.promised_ns());
    }
    assert!(early > 20, "{early} of 200 were woken before their starts");
}

/// A poll so near the start that no timer is worth it waits in place: none that begins within 80 us of the
/// start is in vain.
#[test]
fn a_poll_near_the_start_waits_for_it() {
    let clock = MonotonicClock::new();
    let limiter = AsyncLimiter::with_clock(Gcra::new("200/s".parse().unwrap(), 1).unwrap(), clock);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..20 {
        let (mut wait, mut last_ns) = (limiter.acquire(1), None);
        let grant = loop {
            let now_ns = clock.now_ns();
            match Pin::new(&mut wait).poll(&mut context) {
                Poll::Ready(taken) => break taken.unwrap(),
                Poll::Pending => last_ns = Some(now_ns),
            }
        };
        let start_ns = grant.promised_ns();
        assert!(grant.release_ns() >= start_ns);
        assert!(
            last_ns.is_none_or(|last_ns| last_ns + 80 * US < start_ns),
            "{last_ns:?} {start_ns}"
        );
    }
}

/// On a clock moved by hand a poll before the start leaves at once, however near that is.
#[test]
fn no_poll_looks_at_a_clock_that_is_moved_by_hand() {
    let clock = ManualClock::stepped();
    let limiter = AsyncLimiter::with_clock(SlidingLog::new(1, MS).unwrap(), clock.clone());
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut limiter.acquire(1)).poll(&mut context).is_ready());
    let mut wait = limiter.acquire(1);
    for now_ns in [0, MS - 50 * US, MS - 1] {
        clock.set(now_ns);
        assert!(Pin::new(&mut wait).poll(&mut context).is_pending());
    }
    clock.set(MS);
    assert!(Pin::new(&mut wait).poll(&mut context).is_ready());
}
