//! Wakes before a start, on clocks that run by themselves: a task is woken early, reads the clock
//! in its poll, and takes. On a manual clock none of this happens.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use rategate::wait::{CancelToken, Wake};
use rategate::{AsyncLimiter, Clock, Gcra, ManualClock, MonotonicClock, SlidingLog};
use rategate_testkit::ns;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A waker that records its first call.
struct Called {
    clock: MonotonicClock,
    at_ns: AtomicU64,
    thread: thread::Thread,
}

impl std::task::Wake for Called {
    fn wake(self: Arc<Self>) {
        self.at_ns.fetch_min(self.clock.now_ns(), Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// A task that is polled only when woken takes after its start and is woken before it, once the
/// limiter has measured how late wakes are. A machine whose processors sleep deeply wakes everybody
/// late for a while, so one of five runs has to show it.
#[test]
fn a_task_is_woken_before_its_start() {
    let early: Vec<u32> = (0..5).map(|_| early_wakes()).take_while(|early| *early <= 20).collect();
    assert!(early.len() < 5, "{early:?} of 200 were woken before their starts");
}

/// Returns how many of 200 tasks are woken before their starts.
fn early_wakes() -> u32 {
    let clock = MonotonicClock::new();
    let limiter = AsyncLimiter::with_clock(SlidingLog::new(1, Duration::from_nanos(2 * MS)), clock);
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
        assert!(last_ns.is_none_or(|last_ns| ns(grant.released_at()) - last_ns >= 2 * MS));
        last_ns = Some(ns(grant.released_at()));
        early += u32::from(called.at_ns.load(Ordering::SeqCst) < ns(grant.promised_at()));
    }
    early
}

/// A poll that is too near the start for a timer waits in place: no poll that begins within 80 us
/// of the start returns pending.
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
        let start_ns = ns(grant.promised_at());
        assert!(ns(grant.released_at()) >= start_ns);
        assert!(
            last_ns.is_none_or(|last_ns| last_ns + 80 * US < start_ns),
            "{last_ns:?} {start_ns}"
        );
    }
}

/// A clock that runs by itself, by 100 ns from each reading to the next.
#[derive(Default)]
struct Running(AtomicU64);

impl Clock for Running {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(100, Ordering::SeqCst) + 100
    }

    fn wait(&self, _until_ns: u64, _cancel: &CancelToken) -> Wake {
        unreachable!("no thread waits here")
    }

    fn is_real_time(&self) -> bool {
        true
    }
}

/// Callers have time to read a clock of their own: with a long window, a task that waits for its
/// start in the poll takes 4 us after it.
#[test]
fn a_start_leaves_a_margin() {
    let policy = SlidingLog::new(1, Duration::from_nanos(5 * MS));
    let limiter = AsyncLimiter::with_clock(policy, Running::default());
    let mut context = Context::from_waker(Waker::noop());
    let mut late_ns = Vec::new();
    for _ in 0..10 {
        let mut wait = limiter.acquire(1);
        let grant = loop {
            if let Poll::Ready(taken) = Pin::new(&mut wait).poll(&mut context) {
                break taken.unwrap();
            }
        };
        late_ns.push(ns(grant.released_at()) - ns(grant.promised_at()));
    }
    // The first does not wait, and until the second has taken, the window's length is unknown.
    assert!(late_ns[2..].iter().all(|late_ns| (4_000..5_000).contains(late_ns)), "{late_ns:?}");
}

/// On a manual clock a poll before the start returns at once, however near that is.
#[test]
fn no_poll_looks_at_a_clock_that_is_moved_by_hand() {
    let clock = ManualClock::stepped();
    let limiter =
        AsyncLimiter::with_clock(SlidingLog::new(1, Duration::from_nanos(MS)), clock.clone());
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut limiter.acquire(1)).poll(&mut context).is_ready());
    let mut wait = limiter.acquire(1);
    for now_ns in [0, MS - 50 * US, MS - 1] {
        clock.set(Duration::from_nanos(now_ns));
        assert!(Pin::new(&mut wait).poll(&mut context).is_pending());
    }
    clock.set(Duration::from_nanos(MS));
    assert!(Pin::new(&mut wait).poll(&mut context).is_ready());
}
