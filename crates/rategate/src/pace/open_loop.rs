//! The open loop: operations of a load, each released at its due instant.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::iter::{Enumerate, Fuse};
use std::sync::PoisonError;
use std::time::Duration;

use crate::clock::wait::{CancelToken, Listeners, Precision, Wait, Wake};
use crate::clock::{Clock, MonotonicClock};
use crate::sync::{Mutex, MutexGuard};

/// A load whose operations are released at their due instants, however long those before take.
///
/// Users of a system do not wait for each other's responses, and neither does this loop: the load
/// alone says when an operation is due. Threads and tasks call it through a shared reference, and
/// each call gets the next operation.
///
/// * **Never early.** No operation is released before it is due.
/// * **Once and in order.** Each operation goes to one call, in the order of the load.
/// * **Nothing is skipped.** If all callers are slow, what has become due meanwhile is released
///   at once, in order, to the calls that come.
/// * **Honest times.** [`Release::wait`] counts from the due instant, not from the call. So does
///   a response time that is measured from [`Release::scheduled_at`].
/// * **Instants** count from the start of the load, which is when the loop is made.
///
/// The load is [`Operations`](rategate_core::shape::Operations), or any other instants in
/// nanoseconds since the start. They are drawn one by one under the loop's lock, so they may come
/// from a file, but their iterator must not call the loop. One that is earlier than the one
/// before it is released late.
///
/// ```
/// use std::time::Duration;
///
/// use rategate::ManualClock;
/// use rategate::pace::OpenLoop;
/// use rategate::pace::shape::Load;
///
/// let load: Load = "ramp:0/s>2/s@2s then constant:2/s@1s".parse()?;
/// let clock = ManualClock::new();
/// let requests = OpenLoop::with_clock(load.into_operations(), clock.clone());
/// let mut waits = Vec::new();
/// while let Some(release) = requests.wait() {
///     // The second request takes 1.2 s, and the third is late because of it.
///     clock.advance(Duration::from_millis(if release.number() == 1 { 1200 } else { 100 }));
///     let response_time = requests.now() - release.scheduled_at();
///     println!("request {}: {response_time:?}", release.number());
///     waits.push(release.wait().as_millis());
/// }
/// // Due at 0, 1.414, 2, 2.5 and 3 s.
/// assert_eq!(waits, [0, 0, 614, 214, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Threads share the loop by reference, as in [`std::thread::scope`], or in an
/// [`Arc`](std::sync::Arc). Tasks call [`wait_async`](Self::wait_async).
pub struct OpenLoop<I, C = MonotonicClock> {
    clock: C,
    start_ns: u64,
    left: Mutex<Left<I>>,
    cancel: CancelToken,
    /// The tasks that wait, which a close wakes.
    listeners: Listeners,
}

/// The operations that no call has yet.
struct Left<I> {
    instants: Enumerate<Fuse<I>>,
    /// Those of calls that were given up. They come first.
    returned: BinaryHeap<Reverse<DueOperation>>,
}

/// An operation, and when it is due on the loop's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DueOperation {
    number: u64,
    pub(crate) due_ns: u64,
}

/// An operation that may start now.
#[must_use = "an operation is released once"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    number: u64,
    scheduled_ns: u64,
    at_ns: u64,
}

impl Release {
    /// Returns the number of the operation in the load, counted from 0.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the scheduled time: when the operation was due, since the start of the load.
    #[must_use]
    pub const fn scheduled_at(&self) -> Duration {
        Duration::from_nanos(self.scheduled_ns)
    }

    /// Returns the release instant: when the call really returned, since the start of the load.
    #[must_use]
    pub const fn released_at(&self) -> Duration {
        Duration::from_nanos(self.at_ns)
    }

    /// Returns the wait time: how late the operation is, from the scheduled time to the release
    /// instant.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        Duration::from_nanos(self.at_ns.saturating_sub(self.scheduled_ns))
    }
}

impl<I: Iterator<Item = u64>> OpenLoop<I> {
    /// Starts a load now, in real time.
    #[must_use]
    pub fn new(load: impl IntoIterator<IntoIter = I>) -> Self {
        Self::with_clock(load, MonotonicClock::new())
    }
}

impl<I: Iterator<Item = u64>, C: Clock> OpenLoop<I, C> {
    /// Starts a load now, on `clock`.
    #[must_use]
    pub fn with_clock(load: impl IntoIterator<IntoIter = I>, clock: C) -> Self {
        let instants = load.into_iter().fuse().enumerate();
        Self {
            start_ns: clock.now_ns(),
            clock,
            left: Mutex::new(Left { instants, returned: BinaryHeap::new() }),
            cancel: CancelToken::new(),
            listeners: Listeners::default(),
        }
    }

    /// Waits until the next operation is due. `None` once the load is over, or the loop closed.
    ///
    /// Blocks the thread: do not call it on a thread that drives tasks. In a debug build with the
    /// feature `tokio` it panics there if it has to wait.
    pub fn wait(&self) -> Option<Release> {
        let operation = self.claim()?;
        let wait = Wait::exactly(operation.due_ns, Precision::Precise);
        match self.clock.wait_as(wait, &self.cancel) {
            Wake::Due => Some(self.release(operation)),
            Wake::Cancelled => None,
        }
    }

    /// Ends all waits: no operation is released any more.
    pub fn close(&self) {
        self.cancel.cancel();
        self.listeners.call();
    }

    /// Returns the time since the start of the load.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now_ns().saturating_sub(self.start_ns))
    }

    /// Takes the next operation out of the load. `None` if there is none, or the loop is closed.
    ///
    /// An instant beyond the end of the clock never comes, and neither does any after it.
    pub(crate) fn claim(&self) -> Option<DueOperation> {
        if self.is_closed() {
            return None;
        }
        let mut left = self.left();
        if let Some(Reverse(operation)) = left.returned.pop() {
            return Some(operation);
        }
        let (number, due_ns) = left.instants.next()?;
        let due_ns = self.start_ns.checked_add(due_ns)?;
        Some(DueOperation { number: u64::try_from(number).ok()?, due_ns })
    }

    /// Puts an operation back that was not released. The next call gets it.
    pub(crate) fn put_back(&self, operation: DueOperation) {
        self.left().returned.push(Reverse(operation));
    }

    /// Releases an operation that is due.
    pub(crate) fn release(&self, operation: DueOperation) -> Release {
        let DueOperation { number, due_ns } = operation;
        // Another reading of the clock may be older than the one that ended the wait.
        let at_ns = self.clock.now_ns().max(due_ns);
        Release {
            number,
            scheduled_ns: due_ns.saturating_sub(self.start_ns),
            at_ns: at_ns.saturating_sub(self.start_ns),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.cancel.is_cancelled()
    }

    fn left(&self) -> MutexGuard<'_, Left<I>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<I, C> OpenLoop<I, C> {
    pub(crate) const fn clock(&self) -> &C {
        &self.clock
    }

    pub(crate) const fn listeners(&self) -> &Listeners {
        &self.listeners
    }
}

/// Writes one line: the time since the start, and whether the loop is closed.
impl<I: Iterator<Item = u64>, C: Clock> fmt::Debug for OpenLoop<I, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenLoop")
            .field("now", &self.now())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
