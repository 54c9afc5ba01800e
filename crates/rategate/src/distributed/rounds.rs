//! Background work at scheduled instants.
//!
//! It runs in one thread for each limiter that needs it, or in calls of
//! [`attend`](super::Distributed::attend).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::wait::{CancelToken, Wake};

/// A schedule of instants and the work due at each.
#[derive(Debug)]
pub(super) struct WorkSchedule<T> {
    due: Mutex<BinaryHeap<Due<T>>>,
    wake_signal: CancelToken,
}

#[derive(Debug)]
struct Due<T> {
    at_ns: Reverse<u64>,
    what: T,
}

impl<T> WorkSchedule<T> {
    pub(super) fn new() -> Self {
        Self { due: Mutex::new(BinaryHeap::new()), wake_signal: CancelToken::new() }
    }

    /// Schedules work at `at_ns`.
    pub(super) fn add(&self, at_ns: u64, what: T) {
        let mut due = self.due();
        let is_first = due.peek().is_none_or(|first| at_ns < first.at_ns.0);
        due.push(Due { at_ns: Reverse(at_ns), what });
        drop(due);
        if is_first {
            self.wake_signal.nudge();
        }
    }

    /// Takes the next work that is due at `now_ns`.
    pub(super) fn take(&self, now_ns: u64) -> Option<T> {
        let mut due = self.due();
        due.peek()
            .is_some_and(|first| first.at_ns.0 <= now_ns)
            .then(|| due.pop())?
            .map(|due| due.what)
    }

    /// Returns the time of the next work.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.due().peek().map(|first| first.at_ns.0)
    }

    /// Blocks until `left_ns` returns 0, and calls it again whenever work is added.
    ///
    /// Returns `false` once the token is cancelled.
    pub(super) fn wait(&self, left_ns: impl Fn() -> Option<u64>) -> bool {
        let woken = self.wake_signal.wait_on(|| match left_ns() {
            Some(0) => None,
            left => Some(Duration::from_nanos(left.unwrap_or(u64::MAX))),
        });
        woken == Wake::Due
    }

    /// Returns the cancellation token that ends the waiting thread.
    pub(super) fn wake_signal(&self) -> &CancelToken {
        &self.wake_signal
    }

    fn due(&self) -> MutexGuard<'_, BinaryHeap<Due<T>>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> PartialEq for Due<T> {
    fn eq(&self, other: &Self) -> bool {
        self.at_ns == other.at_ns
    }
}

impl<T> Eq for Due<T> {}

impl<T> PartialOrd for Due<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Due<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at_ns.cmp(&other.at_ns)
    }
}
