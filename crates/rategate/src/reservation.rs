//! A start that is promised and not yet used: to be waited for, kept or given back.

use std::fmt;
use std::sync::Arc;

use rategate_core::concurrent::Concurrent;

use crate::clock::{Clock, MonotonicClock};
use crate::decision::Grant;
use crate::error::AcquireError;
use crate::shared::{Promise, Shared};
use crate::wait::Precision;

/// Permits promised for one instant, from [`Limiter::reserve`](crate::Limiter::reserve).
///
/// Dropped unused, it is cancelled: before its start everything goes back, and the place to the
/// next call that fits in; from its start on it is too late, and the permits are spent. Where
/// operations in flight count, as with [`Concurrency`](crate::Concurrency), this one has ended then,
/// like that of a [`Permit`](crate::Permit).
///
/// ```
/// use rategate::{Limiter, ManualClock, SlidingLog};
///
/// let limiter = Limiter::with_clock(SlidingLog::new(1, 1_000_000_000)?, ManualClock::new());
/// let first = limiter.reserve(1)?.keep();
/// let second = limiter.reserve(1)?;
/// assert_eq!((first.promised_ns(), second.promised_ns()), (0, 1_000_000_000));
/// drop(second);
/// assert_eq!(limiter.reserve(1)?.promised_ns(), 1_000_000_000, "given back");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropped, a reservation is cancelled"]
pub struct Reservation<L: Concurrent, C: Clock = MonotonicClock> {
    shared: Arc<Shared<L, C>>,
    precision: Precision,
    promise: Promise,
    /// Whether dropping it gives nothing back any more.
    settled: bool,
}

impl<L: Concurrent, C: Clock> Reservation<L, C> {
    pub(crate) const fn new(
        shared: Arc<Shared<L, C>>,
        precision: Precision,
        promise: Promise,
    ) -> Self {
        Self { shared, precision, promise, settled: false }
    }

    /// Returns the promised start: the first nanosecond at which the operation may start, on the
    /// limiter's clock.
    #[must_use]
    pub const fn promised_ns(&self) -> u64 {
        self.promise.grant.promised_ns
    }

    pub(crate) const fn promise(&self) -> &Promise {
        &self.promise
    }

    /// What its limiter's handles share.
    pub(crate) const fn shared(&self) -> &Arc<Shared<L, C>> {
        &self.shared
    }

    /// Waits until the start, and takes the permits then. Where the limit bounds what starts, they
    /// count from the instant of taking; a thread that wakes too late to fit before what was promised to
    /// others waits on, first in line.
    ///
    /// Blocks the thread: in a task, use [`AsyncReservation::wait`](crate::AsyncReservation::wait). In a debug build
    /// with the feature `tokio` it panics on a thread that drives tasks.
    ///
    /// If the start has come already, the grant is the caller's even where the limiter is closed: its
    /// permits are spent.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Closed`] if the limiter is closed before the permits are taken; they are given
    /// back. A late waiter's other errors are those of [`Limiter::acquire`](crate::Limiter::acquire).
    pub fn wait(mut self) -> Result<Grant, AcquireError> {
        self.settled = true;
        self.shared.keep(&self.promise, self.precision)
    }

    /// Uses the permits without waiting here, also where the limiter has been closed since. The
    /// operation must not start before [`Grant::promised_ns`].
    #[must_use = "it says when the operation may start"]
    pub fn keep(mut self) -> Grant {
        self.settled = true;
        Grant::as_promised(&self.promise.grant)
    }

    /// Gives the permits back. Returns whether that was in time, before the start.
    #[expect(
        clippy::must_use_candidate,
        reason = "giving back is worth doing whatever comes of it"
    )]
    pub fn cancel(mut self) -> bool {
        self.settled = true;
        self.give_back()
    }

    fn give_back(&self) -> bool {
        self.shared.cancel(&self.promise) || {
            let permits = self.promise.grant.permits;
            // To a limiter that is closed nothing has to go back.
            let _ = self.shared.release(permits);
            false
        }
    }
}

impl<L: Concurrent, C: Clock> Drop for Reservation<L, C> {
    fn drop(&mut self) {
        if !self.settled {
            self.give_back();
        }
    }
}

impl<L: Concurrent, C: Clock> fmt::Debug for Reservation<L, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grant = &self.promise.grant;
        let own: [(&str, &dyn fmt::Debug); 2] =
            [("permits", &grant.permits), ("promised_ns", &grant.promised_ns)];
        self.shared.fmt_as(f, "Reservation", &own)
    }
}
