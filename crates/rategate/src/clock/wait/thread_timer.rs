//! The timer that needs no runtime: one thread for the whole process.
//!
//! It is our own: a library's timer cannot set the slack of its thread, on which the lateness of
//! a wake-up depends, and has no thread in a forked child.

use std::collections::BTreeMap;
use std::future::Future;
use std::mem::replace;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::real::Slack;
use super::{CancelToken, Sleep, Timer};
use crate::panics::quietly;
use crate::process::{PerProcess, ProcessBound};
use rategate_core::span::whole_ns;

/// A timer for tasks under any executor, or none, in real time.
///
/// It is a thread that the process starts when the first task has to wait, and keeps. It serves
/// all limiters.
///
/// It wakes as exactly as a [precise](crate::wait::Precision::Precise) wait of a thread, which is
/// usually some 10 us late; on Linux its timer slack is 1 ns.
///
/// If the system cannot start the thread, the task that would start a wait blocks for a part of
/// it, at most 1 ms at a time. A forked child starts a thread of its own when its first task has
/// to wait.
///
/// ```
/// use std::time::Duration;
///
/// use rategate::wait::{ThreadTimer, Timer};
///
/// // Any executor can wait for it.
/// let mut sleep = ThreadTimer.after(Duration::from_millis(1));
/// let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// while sleep.as_mut().poll(&mut context).is_pending() {
///     std::thread::yield_now();
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadTimer;

impl Timer for ThreadTimer {
    fn after(&self, time: Duration) -> Sleep {
        let due_ns = now_ns().saturating_add(whole_ns(time));
        Box::pin(Sleeping { due_ns, call: None })
    }
}

/// The state that the thread and sleeping tasks share.
///
/// A forked child, which does not have the thread, has another.
struct TimerState {
    calls: Mutex<Calls>,
    /// Nudged when a new call is due before all others. The token is never cancelled.
    wake_signal: CancelToken,
}

struct Calls {
    /// The wakers to call, by the instant and then in arrival order.
    due: BTreeMap<(u64, u64), Waker>,
    next_id: u64,
    has_thread: bool,
}

impl TimerState {
    fn open() -> &'static Self {
        static TIMER_STATE: PerProcess<TimerState> = PerProcess::new();
        TIMER_STATE.get_or_init(|| Self {
            calls: Mutex::new(Calls { due: BTreeMap::new(), next_id: 0, has_thread: false }),
            wake_signal: CancelToken::new(),
        })
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread that wakes tasks, unless it runs. Returns `true` if there is one.
    fn ensure_thread(&'static self) -> bool {
        if replace(&mut self.calls().has_thread, true) {
            return true;
        }
        let thread = thread::Builder::new().name("rategate-timer".to_owned());
        let spawned = thread.spawn(|| self.work()).is_ok();
        self.calls().has_thread = spawned;
        spawned
    }

    fn work(&self) {
        let _slack = Slack::minimal();
        loop {
            let _ = self.wake_signal.wait_on(|| {
                let first_ns = self.calls().due.first_key_value().map(|(&(due_ns, _), _)| due_ns);
                let Some(first_ns) = first_ns else { return Some(Duration::MAX) };
                let left_ns = first_ns.saturating_sub(now_ns());
                (left_ns > 0).then(|| Duration::from_nanos(left_ns))
            });
            let at_ns = now_ns();
            let due = {
                let mut calls = self.calls();
                let later = calls.due.split_off(&(at_ns.saturating_add(1), 0));
                replace(&mut calls.due, later)
            };
            // A waker that panics must not keep the other tasks asleep.
            for waker in due.into_values() {
                quietly(|| waker.wake());
            }
        }
    }
}

/// Returns the instant by the clock of all these waits, in nanoseconds since its first reading.
///
/// A forked child goes on with it, so that an instant means the same there.
fn now_ns() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    whole_ns(ORIGIN.get_or_init(Instant::now).elapsed())
}

/// One wait.
struct Sleeping {
    due_ns: u64,
    /// The call that is left with the thread. A forked child lacks the thread, and makes another
    /// call.
    call: Option<ProcessBound<Call>>,
}

/// A call that the thread has to make, unless this is dropped before.
struct Call {
    timer_state: &'static TimerState,
    key: (u64, u64),
}

impl Future for Sleeping {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let left_ns = self.due_ns.saturating_sub(now_ns());
        if left_ns == 0 {
            return Poll::Ready(());
        }
        let timer_state = TimerState::open();
        if !timer_state.ensure_thread() {
            thread::sleep(Duration::from_nanos(left_ns.min(1_000_000)));
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let known = self.call.as_ref().and_then(ProcessBound::get).map(|call| call.key);
        let mut calls = timer_state.calls();
        let key = known.unwrap_or_else(|| {
            calls.next_id = calls.next_id.wrapping_add(1);
            (self.due_ns, calls.next_id)
        });
        let before = calls.due.insert(key, waker);
        let is_first = calls.due.first_key_value().is_some_and(|(first, _)| *first == key);
        drop(calls);
        if known.is_none() {
            self.call = Some(ProcessBound::new(Call { timer_state, key }));
        }
        // Outside the lock, because it may run any code.
        drop(before);
        if is_first {
            timer_state.wake_signal.nudge();
        }
        Poll::Pending
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let waker = self.timer_state.calls().due.remove(&self.key);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "a test computes in plain numbers")]

    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicU64);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    struct PanickingWaker;

    impl Wake for PanickingWaker {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics, as this test expects");
        }
    }

    /// Each task is woken once, none early, even behind a waker that panics; a task that left is
    /// not woken.
    #[test]
    fn wakes_each_once_and_never_early() {
        let (counter, dropped) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
        let mut sleeps: Vec<Sleep> =
            [3, 1, 2, 60_000].map(|ms| ThreadTimer.after(Duration::from_millis(ms))).into();
        let wakers =
            [&counter, &counter, &counter, &dropped].map(|counter| Waker::from(counter.clone()));
        let mut bomb = ThreadTimer.after(Duration::from_micros(500));
        let from = Instant::now();
        // On a slow machine some may be due already, and need no wake.
        let mut woken = 3;
        for (sleep, waker) in sleeps.iter_mut().zip(&wakers) {
            woken -= u64::from(sleep.as_mut().poll(&mut Context::from_waker(waker)).is_ready());
        }
        let _ =
            bomb.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(PanickingWaker))));
        sleeps.pop();
        while counter.0.load(Ordering::SeqCst) < woken {
            thread::yield_now();
        }
        assert!(from.elapsed() >= Duration::from_micros(2_900) || woken < 3);
        let mut context = Context::from_waker(Waker::noop());
        assert!(sleeps.iter_mut().all(|sleep| sleep.as_mut().poll(&mut context).is_ready()));
        assert_eq!(Arc::strong_count(&dropped), 2, "ours, and the waker here");
    }
}
