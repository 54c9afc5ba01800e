//! Wakes before a start, on clocks that run by themselves: a task is woken early, reads the clock
//! in its poll, and takes. On a manual clock none of this happens.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rategate::wait::{CancelToken, Sleep, Wake};
use rategate::{AsyncLimiter, Clock, Gcra, ManualClock, MonotonicClock, SlidingLog};
use rategate_testkit::ns;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

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

/// A clock that runs by itself, by 100 ns from each reading to the next, and wakes who sleeps when
/// it is told to.
#[derive(Default)]
struct Running {
    now_ns: AtomicU64,
    /// Until when somebody sleeps, and whom to wake then.
    asleep: Mutex<Option<(u64, Waker)>>,
}

impl Running {
    /// Wakes who sleeps, this late. Returns the instant that was slept for.
    fn wake(&self, late_ns: u64) -> u64 {
        let (until_ns, waker) = self.asleep.lock().unwrap().take().expect("nobody sleeps");
        self.now_ns.fetch_max(until_ns + late_ns, Ordering::SeqCst);
        waker.wake();
        until_ns
    }
}

impl Clock for &'static Running {
    fn now_ns(&self) -> u64 {
        self.now_ns.fetch_add(100, Ordering::SeqCst) + 100
    }

    fn wait(&self, _until_ns: u64, _cancel: &CancelToken) -> Wake {
        unreachable!("no thread waits here")
    }

    fn sleep_until(&self, until_ns: u64) -> Sleep {
        let clock = *self;
        Box::pin(poll_fn(move |context| {
            if clock.now_ns() >= until_ns {
                return Poll::Ready(());
            }
            *clock.asleep.lock().unwrap() = Some((until_ns, context.waker().clone()));
            Poll::Pending
        }))
    }

    fn is_real_time(&self) -> bool {
        true
    }
}

/// A machine that wakes everybody 60 us late costs a log nothing, once the limiter has measured
/// that: the timer is set for most of it before the start, and the poll waits for the rest.
#[test]
fn a_task_is_woken_before_its_start() {
    let clock: &Running = Box::leak(Box::default());
    let limiter = AsyncLimiter::with_clock(SlidingLog::new(1, Duration::from_nanos(2 * MS)), clock);
    let mut context = Context::from_waker(Waker::noop());
    let (mut last_ns, mut early_ns) = (None, 0);
    for nth in 0..100 {
        let (mut wait, mut woken_ns) = (limiter.acquire(1), None);
        let grant = loop {
            match Pin::new(&mut wait).poll(&mut context) {
                Poll::Ready(taken) => break taken.unwrap(),
                Poll::Pending => woken_ns = Some(clock.wake(60 * US)),
            }
        };
        let (start_ns, at_ns) = (ns(grant.promised_at()), ns(grant.released_at()));
        assert!(last_ns.is_none_or(|last_ns| at_ns - last_ns >= 2 * MS), "{nth}");
        last_ns = Some(at_ns);
        early_ns = woken_ns.map_or(0, |woken_ns| start_ns.saturating_sub(woken_ns));
        assert!(nth < 50 || at_ns - start_ns < 20 * US, "{nth}: {} ns late", at_ns - start_ns);
    }
    assert!((40 * US..50 * US).contains(&early_ns), "the timer was set {early_ns} ns early");
}

/// Callers have time to read a clock of their own: with a long window, a task that waits for its
/// start in the poll takes 4 us after it.
#[test]
fn a_start_leaves_a_margin() {
    let policy = SlidingLog::new(1, Duration::from_nanos(5 * MS));
    let clock: &Running = Box::leak(Box::default());
    let limiter = AsyncLimiter::with_clock(policy, clock);
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
