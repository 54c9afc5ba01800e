//! The clock for tests, which passes days in no time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::Clock;
use crate::clock::wait::{CancelToken, Sleep, Timer, Wake};
use rategate_core::span::whole_ns;

/// A clock for tests, which advances only by calls or by waits.
///
/// Clones show the same time. There are two ways of passing time:
///
/// * [`ManualClock::new`]: a wait itself moves the clock to its end and returns at once, so a
///   loop of waits runs in no time. With [`ManualClock::with_sleep`] each sleep takes longer or
///   shorter than requested.
/// * [`ManualClock::stepped`]: a wait blocks its thread until the clock is moved by a call of
///   [`advance`](Self::advance), [`set`](Self::set) or [`step`](Self::step).
///
/// ```
/// use std::time::Duration;
///
/// use rategate::{Limiter, ManualClock, SlidingLog};
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::with_clock(SlidingLog::new(1, Duration::from_secs(60)), clock.clone());
/// for _ in 0..10 {
///     limiter.acquire(1)?;
/// }
/// assert_eq!(clock.now(), Duration::from_secs(540), "nine minutes, in no time");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ManualClock {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<ManualState>,
    passing: Passing,
}

struct ManualState {
    now_ns: u64,
    /// Stepped only: the waiting threads, and the instants that they wait for.
    waiters: Vec<Waiter>,
    /// Stepped only: the sleeping tasks, and the instants that they wait for.
    sleepers: Vec<Sleeper>,
    next_id: u64,
}

struct Sleeper {
    id: u64,
    until_ns: u64,
    waker: Waker,
}

struct Waiter {
    id: u64,
    until_ns: u64,
    cancel: CancelToken,
}

/// A function that returns how long a sleep really takes, given the requested time.
type Oversleep = Box<dyn FnMut(Duration) -> Duration + Send>;

enum Passing {
    ByWaiting(Mutex<Oversleep>),
    Stepped,
}

impl ManualClock {
    /// Creates a clock at zero that every wait moves to its exact end.
    #[must_use]
    pub fn new() -> Self {
        Self::with_sleep(|requested| requested)
    }

    /// Creates a clock at zero on which a sleep of `requested` takes `slept(requested)`.
    ///
    /// A real machine oversleeps, and some undersleep. A [wait](Clock::wait) to an instant sleeps
    /// again until it has come, at least a nanosecond each time; a [sleep](Clock::sleep) sleeps
    /// once.
    #[must_use]
    pub fn with_sleep(slept: impl FnMut(Duration) -> Duration + Send + 'static) -> Self {
        Self::passing(Passing::ByWaiting(Mutex::new(Box::new(slept))))
    }

    /// Creates a clock at zero on which waits block until a call moves the clock.
    #[must_use]
    pub fn stepped() -> Self {
        Self::passing(Passing::Stepped)
    }

    /// Returns the time since the clock's origin.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns())
    }

    /// Lets `time` pass, and wakes the waiters that this makes due.
    ///
    /// At its end, after 584 years, the clock stands still.
    pub fn advance(&self, time: Duration) {
        self.move_time(|now_ns| now_ns.saturating_add(whole_ns(time)));
    }

    /// Sets the time since the clock's origin, back if need be, and wakes the waiters that this
    /// makes due.
    pub fn set(&self, now: Duration) {
        self.move_time(|_| whole_ns(now));
    }

    /// Moves a stepped clock to the nearest instant that a thread or a task waits for.
    ///
    /// Returns that instant, or `None` without waiters. Together with [`waiting`](Self::waiting)
    /// this runs threads as a simulation: step once all of them wait.
    pub fn step(&self) -> Option<Duration> {
        let state = self.state();
        let threads = state.waiters.iter().map(|waiter| waiter.until_ns);
        let nearest = threads.chain(state.sleepers.iter().map(|sleeper| sleeper.until_ns)).min();
        drop(state);
        if let Some(until_ns) = nearest {
            self.move_time(|now_ns| now_ns.max(until_ns));
        }
        nearest.map(Duration::from_nanos)
    }

    /// Returns the number of threads that wait on a stepped clock.
    ///
    /// Threads that a move has made due do not count any more, though they may not have run yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state().waiters.len()
    }

    /// Returns the number of tasks' waits on a stepped clock. A limiter has one for its whole
    /// queue.
    #[must_use]
    pub fn sleeping(&self) -> usize {
        self.state().sleepers.len()
    }

    fn passing(passing: Passing) -> Self {
        let (waiters, sleepers) = (Vec::new(), Vec::new());
        let state = ManualState { now_ns: 0, waiters, sleepers, next_id: 0 };
        Self { inner: Arc::new(Inner { state: Mutex::new(state), passing }) }
    }

    fn state(&self) -> MutexGuard<'_, ManualState> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn move_time(&self, to: impl FnOnce(u64) -> u64) {
        let mut state = self.state();
        state.now_ns = to(state.now_ns);
        let now_ns = state.now_ns;
        let due = state.waiters.extract_if(.., |waiter| waiter.until_ns <= now_ns);
        let cancels: Vec<CancelToken> = due.map(|waiter| waiter.cancel).collect();
        let due = state.sleepers.extract_if(.., |sleeper| sleeper.until_ns <= now_ns);
        let wakers: Vec<Waker> = due.map(|sleeper| sleeper.waker).collect();
        // A waiter locks its token while it reads the clock, so the clock must be unlocked first.
        drop(state);
        for cancel in with_distinct_signals(cancels) {
            cancel.nudge();
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Makes one sleep of a clock that waiting moves.
    fn sleep_once(&self, sleep: &Mutex<Oversleep>, requested_ns: u64, min_ns: u64) {
        let from_ns = self.now_ns();
        // The clock is unlocked meanwhile: `slept` may read it.
        let requested = Duration::from_nanos(requested_ns);
        let slept = sleep.lock().unwrap_or_else(PoisonError::into_inner)(requested);
        let until_ns = from_ns.saturating_add(whole_ns(slept).max(min_ns));
        // Sleeps of several threads overlap; they do not add up.
        self.move_time(|now_ns| now_ns.max(until_ns));
    }

    fn wait_for_step(&self, until_ns: u64, cancel: &CancelToken) -> Wake {
        let mut state = self.state();
        let id = state.next_id;
        state.next_id = id.wrapping_add(1);
        if state.now_ns < until_ns && !cancel.is_cancelled() {
            state.waiters.push(Waiter { id, until_ns, cancel: cancel.clone() });
        }
        drop(state);
        let wake = cancel.wait_on(|| (self.now_ns() < until_ns).then_some(Duration::MAX));
        self.state().waiters.retain(|waiter| waiter.id != id);
        wake
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("ManualClock")
            .field("now_ns", &state.now_ns)
            .field("waiting", &state.waiters.len())
            .finish_non_exhaustive()
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.state().now_ns
    }

    fn wait(&self, until_ns: u64, cancel: &CancelToken) -> Wake {
        let Passing::ByWaiting(sleep) = &self.inner.passing else {
            return self.wait_for_step(until_ns, cancel);
        };
        loop {
            if cancel.is_cancelled() {
                return Wake::Cancelled;
            }
            match until_ns.saturating_sub(self.now_ns()) {
                0 => return Wake::Due,
                left_ns => self.sleep_once(sleep, left_ns, 1),
            }
        }
    }

    fn sleep(&self, requested_ns: u64) {
        match &self.inner.passing {
            Passing::ByWaiting(sleep) => self.sleep_once(sleep, requested_ns, 0),
            Passing::Stepped => {
                let until_ns = self.now_ns().saturating_add(requested_ns);
                let _ = self.wait_for_step(until_ns, &CancelToken::new());
            }
        }
    }

    fn timer(&self) -> &dyn Timer {
        self
    }

    /// Returns a wait for that very instant, however the clock is moved meanwhile.
    fn sleep_until(&self, until_ns: u64) -> Sleep {
        Box::pin(Sleeping { place: Place::Unlisted(self.clone()), until_ns })
    }
}

impl Timer for ManualClock {
    fn after(&self, time: Duration) -> Sleep {
        self.sleep_until(self.now_ns().saturating_add(whole_ns(time)))
    }
}

/// A task's wait.
struct Sleeping {
    place: Place,
    until_ns: u64,
}

/// A task's place among those that sleep.
enum Place {
    Unlisted(ManualClock),
    /// The number in the clock's list. The list has the waker, which may own the wait: with a
    /// handle of the clock, all three would keep each other alive.
    Listed(Weak<Inner>, u64),
}

impl Future for Sleeping {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Without a handle no call can move the clock.
        let Some(clock) = self.clock() else { return Poll::Pending };
        if let Passing::ByWaiting(_) = &clock.inner.passing {
            let _ = clock.wait(self.until_ns, &CancelToken::new());
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let removed = self.leave();
        let mut state = clock.state();
        if state.now_ns >= self.until_ns {
            return Poll::Ready(());
        }
        let (id, until_ns) = (state.next_id, self.until_ns);
        state.next_id = id.wrapping_add(1);
        state.sleepers.push(Sleeper { id, until_ns, waker });
        drop(state);
        // Outside the lock, because it may run any code.
        drop(removed);
        self.place = Place::Listed(Arc::downgrade(&clock.inner), id);
        Poll::Pending
    }
}

impl Sleeping {
    fn clock(&self) -> Option<ManualClock> {
        match &self.place {
            Place::Unlisted(clock) => Some(clock.clone()),
            Place::Listed(inner, _) => Some(ManualClock { inner: inner.upgrade()? }),
        }
    }

    fn leave(&self) -> Option<Sleeper> {
        let Place::Listed(_, id) = self.place else { return None };
        let clock = self.clock()?;
        let sleepers = &mut clock.state().sleepers;
        let index = sleepers.iter().position(|sleeper| sleeper.id == id)?;
        Some(sleepers.swap_remove(index))
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

/// Keeps one token per wake signal: one nudge wakes all waiters of a signal.
fn with_distinct_signals(mut cancels: Vec<CancelToken>) -> Vec<CancelToken> {
    cancels.sort_unstable_by_key(CancelToken::signal_id);
    cancels.dedup_by_key(|cancel| cancel.signal_id());
    cancels
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A waker that owns the wait, as that of a limiter's timer does.
    #[derive(Default)]
    struct Owner(Mutex<Option<Sleep>>);

    impl std::task::Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn a_clock_is_freed_while_a_wait_owned_by_its_waker_is_pending() {
        let clock = ManualClock::stepped();
        let inner = Arc::downgrade(&clock.inner);
        let owner = Arc::new(Owner::default());
        let mut sleep = clock.sleep_until(1);
        let waker = Waker::from(Arc::clone(&owner));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        *owner.0.lock().unwrap() = Some(sleep);
        drop((owner, waker, clock));
        assert!(inner.upgrade().is_none());
    }

    /// Each wake signal is raised exactly once, however many waiters an advance makes due.
    #[test]
    fn each_wake_signal_is_raised_once() {
        let (one, other) = (CancelToken::new(), CancelToken::new());
        let cancels = vec![one.clone(), other.clone(), one.child(), one.clone(), other.child()];
        let mut rung: Vec<usize> =
            with_distinct_signals(cancels).iter().map(CancelToken::signal_id).collect();
        let mut ideal = vec![one.signal_id(), other.signal_id()];
        rung.sort_unstable();
        ideal.sort_unstable();
        assert_eq!(rung, ideal);
    }
}
