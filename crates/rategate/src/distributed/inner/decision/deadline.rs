//! Deadlines of callers, kept without the store's own thread.
//!
//! A blocking thread keeps its deadline by itself. Tasks are woken at theirs by one sleep on
//! the limiter's clock, set for the earliest deadline. It is not cancelled when that call
//! completes, so most calls set no timer.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::{Decision, Grant};
use crate::clock::Clock;
use crate::clock::wait::{Sleep, ThreadTimer, Timer as _};
use crate::distributed::inner::Inner;
use crate::panics::quietly;
use crate::process::PerProcess;
use crate::store::{Key, Store};

/// A call that has its own deadline, and its actions then.
pub(in crate::distributed) trait Deadline: Send + Sync {
    /// Returns the time that the caller may still wait; `None` once that is over.
    fn left(&self) -> Option<Duration>;

    /// Decides without the store.
    fn decide(&self) -> Decision;

    /// Refunds a grant that the caller no longer waits for.
    fn give_up(&self, grant: Grant);

    /// Sets the task to wake at the deadline, replacing an earlier one.
    fn watch(self: Arc<Self>, task: &Waker);

    /// Takes the task that is to be woken.
    fn task(&self) -> Option<Waker>;
}

/// A call that waits for a reply of the store.
pub(in crate::distributed) struct PendingCall<S: Store, C: Clock + 'static> {
    inner: Arc<Inner<S, C>>,
    key: Key,
    permits: NonZeroU64,
    takes: bool,
    until_ns: u64,
    task: Mutex<Option<Waker>>,
}

impl<S: Store, C: Clock + 'static> PendingCall<S, C> {
    /// Creates a call made at `requested_ns`, with a deadline of the budget plus a quarter.
    ///
    /// A store that reports its own lateness does so before that.
    pub(in crate::distributed) fn new(
        inner: &Arc<Inner<S, C>>,
        key: Key,
        permits: NonZeroU64,
        takes: bool,
        requested_ns: u64,
    ) -> Arc<Self> {
        let budget_ns = inner.budget_ns.saturating_add(inner.budget_ns >> 2);
        let until_ns = requested_ns.saturating_add(budget_ns);
        let (inner, task) = (Arc::clone(inner), Mutex::new(None));
        Arc::new(Self { inner, key, permits, takes, until_ns, task })
    }

    fn named(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store, C: Clock + 'static> Deadline for PendingCall<S, C> {
    fn left(&self) -> Option<Duration> {
        let left_ns = self.until_ns.saturating_sub(self.inner.clock.now_ns());
        (left_ns > 0).then(|| Duration::from_nanos(left_ns))
    }

    fn decide(&self) -> Decision {
        let decision = self.inner.without_store(&self.key, self.permits, None, self.takes);
        self.inner.counters.add(&decision);
        decision
    }

    fn give_up(&self, grant: Grant) {
        if self.takes {
            self.inner.refund(Arc::clone(&self.key), self.permits, grant);
        }
    }

    fn watch(self: Arc<Self>, task: &Waker) {
        let mut named = self.named();
        if named.as_ref().is_some_and(|known| known.will_wake(task)) {
            return;
        }
        let before = named.replace(task.clone());
        drop(named);
        // A first task is new to the sleep, as is one registered after a premature wake-up.
        if before.is_none() {
            let call: Weak<Self> = Arc::downgrade(&self);
            if self.inner.deadlines.get_or_init(Deadlines::default).add(self.until_ns, call) {
                self.inner.wake_late_tasks();
            }
        }
    }

    fn task(&self) -> Option<Waker> {
        self.named().take()
    }
}

impl fmt::Debug for dyn Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deadline")
    }
}

/// The waiting tasks of a limiter. A forked child, which has none of them, has its own.
pub(in crate::distributed) type TaskDeadlines = PerProcess<Deadlines>;

/// The deadlines of tasks, and the sleep that is set for the earliest.
#[derive(Default)]
pub(in crate::distributed) struct Deadlines(Mutex<State>);

#[derive(Default)]
struct State {
    /// The calls in the order of their deadlines.
    ///
    /// A completed call stays as an expired weak reference until it reaches the front.
    calls: VecDeque<(u64, Weak<dyn Deadline>)>,
    /// The instant that the sleep is set for, if any.
    set_ns: Option<u64>,
    sleep: Option<Sleep>,
    /// The number of times it was set.
    generation: u64,
}

impl Deadlines {
    /// Adds a call. Returns `true` if the sleep has to be set for it.
    fn add(&self, until_ns: u64, call: Weak<dyn Deadline>) -> bool {
        let mut state = self.state();
        state.drop_answered();
        let at = state.calls.partition_point(|&(other_ns, _)| other_ns <= until_ns);
        state.calls.insert(at, (until_ns, call));
        state.set_ns.is_none_or(|set_ns| until_ns < set_ns)
    }

    /// Takes the calls whose deadline has come.
    ///
    /// Returns them, the instant to sleep until, and the number of that setting.
    fn take_overdue(&self, now_ns: u64) -> (Vec<Arc<dyn Deadline>>, Option<u64>, u64) {
        let mut state = self.state();
        let late = state.calls.partition_point(|&(until_ns, _)| until_ns <= now_ns);
        let late = state.calls.drain(..late).filter_map(|(_, call)| call.upgrade()).collect();
        state.drop_answered();
        state.generation = state.generation.wrapping_add(1);
        state.set_ns = state.calls.front().map(|&(until_ns, _)| until_ns);
        let before = state.sleep.take();
        let (set_ns, generation) = (state.set_ns, state.generation);
        drop(state);
        quietly(|| drop(before));
        (late, set_ns, generation)
    }

    /// Stores a sleep, unless a later setting has replaced it.
    fn keep(&self, sleep: Sleep, generation: u64) {
        let mut state = self.state();
        let unused =
            if state.generation == generation { state.sleep.replace(sleep) } else { Some(sleep) };
        drop(state);
        quietly(|| drop(unused));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn drop_answered(&mut self) {
        while self.calls.front().is_some_and(|(_, call)| call.strong_count() == 0) {
            self.calls.pop_front();
        }
    }
}

impl<S: Store, C: Clock + 'static> Inner<S, C> {
    /// Wakes the tasks whose deadline has come, and sets the sleep for the next.
    fn wake_late_tasks(self: &Arc<Self>) {
        let deadlines = self.deadlines.get_or_init(Deadlines::default);
        loop {
            let (late, next_ns, generation) = deadlines.take_overdue(self.clock.now_ns());
            for task in late.iter().filter_map(|call| call.task()) {
                // User code, whose panic must not spread.
                quietly(|| task.wake());
            }
            let Some(next_ns) = next_ns else { return };
            let waker = Waker::from(Arc::new(OverdueWaker(Arc::downgrade(self))));
            if let (sleep, Poll::Pending) = begin(&self.clock, next_ns, &waker) {
                return deadlines.keep(sleep, generation);
            }
        }
    }
}

/// Begins a sleep by the clock's timer, or by a thread if the clock has none.
fn begin(clock: &impl Clock, until_ns: u64, waker: &Waker) -> (Sleep, Poll<()>) {
    let polled = |mut sleep: Sleep| {
        let polled = sleep.as_mut().poll(&mut Context::from_waker(waker));
        (sleep, polled)
    };
    let begun = catch_unwind(AssertUnwindSafe(|| polled(clock.sleep_until(until_ns))));
    begun.unwrap_or_else(|payload| {
        quietly(|| drop(payload));
        polled(ThreadTimer.after(Duration::from_nanos(until_ns.saturating_sub(clock.now_ns()))))
    })
}

/// A waker that wakes the overdue tasks when the sleep ends.
struct OverdueWaker<S: Store, C: Clock + 'static>(Weak<Inner<S, C>>);

impl<S: Store, C: Clock + 'static> Wake for OverdueWaker<S, C> {
    fn wake(self: Arc<Self>) {
        if let Some(inner) = self.0.upgrade() {
            inner.wake_late_tasks();
        }
    }
}
