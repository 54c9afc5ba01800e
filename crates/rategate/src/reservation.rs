//! Reservations: promised starts that are waited for, kept or cancelled.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rategate_core::policy::Ending;

use crate::clock::wait::Precision;
use crate::clock::{Clock, MonotonicClock};
use crate::decision::Grant;
use crate::error::AcquireError;
use crate::shared::{Promise, Shared};

/// Permits promised for one instant, returned by [`Limiter::reserve`](crate::Limiter::reserve).
///
/// Dropped unused, a reservation is cancelled. Before its start all permits are refunded, and its
/// slot goes to the next call that fits into it. From its start on it is too late: the permits
/// are charged. Where operations in flight count, as with [`Concurrency`](crate::Concurrency),
/// this one has then ended, like that of a [`Permit`](crate::Permit).
///
/// ```
/// use std::time::Duration;
///
/// use rategate::{Limiter, ManualClock, SlidingLog};
///
/// let policy = SlidingLog::new(1, Duration::from_secs(1));
/// let limiter = Limiter::with_clock(policy, ManualClock::new());
/// let first = limiter.reserve(1)?.keep();
/// let second = limiter.reserve(1)?;
/// assert_eq!(first.promised_at(), Duration::ZERO);
/// assert_eq!(second.promised_at(), Duration::from_secs(1));
/// drop(second);
/// assert_eq!(limiter.reserve(1)?.promised_at(), Duration::from_secs(1), "refunded");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropped, a reservation is cancelled"]
pub struct Reservation<C: Clock = MonotonicClock> {
    shared: Arc<Shared<C>>,
    precision: Precision,
    promise: Promise,
    /// `true` if a drop refunds nothing any more.
    settled: bool,
}

impl<C: Clock> Reservation<C> {
    pub(crate) const fn new(
        shared: Arc<Shared<C>>,
        precision: Precision,
        promise: Promise,
    ) -> Self {
        Self { shared, precision, promise, settled: false }
    }

    /// Returns the promised start: the first nanosecond at which the operation may start.
    ///
    /// It is an instant of the limiter's clock: the time since that clock's origin.
    #[must_use]
    pub const fn promised_at(&self) -> Duration {
        Duration::from_nanos(self.promise.grant.promised_ns)
    }

    pub(crate) const fn promise(&self) -> &Promise {
        &self.promise
    }

    /// Returns the state that its limiter's handles share.
    pub(crate) const fn shared(&self) -> &Arc<Shared<C>> {
        &self.shared
    }

    /// Waits until the start, and takes the permits then.
    ///
    /// Where the limit bounds real starts, permits count from the instant of taking. A thread may
    /// wake too late to fit before what was promised to others; it then waits on at the head of
    /// the queue.
    ///
    /// Blocks the thread: in a task, use
    /// [`AsyncReservation::wait`](crate::wait::AsyncReservation::wait). In a debug build with the
    /// feature `tokio` it panics on a thread that drives tasks.
    ///
    /// If the start has come already, the grant is the caller's even where the limiter is closed:
    /// its permits are charged.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Closed`] if the limiter is closed before the permits are taken; they are
    /// refunded. A late waiter's other errors are those of
    /// [`Limiter::acquire`](crate::Limiter::acquire).
    pub fn wait(mut self) -> Result<Grant, AcquireError> {
        self.settled = true;
        self.shared.keep(&self.promise, self.precision)
    }

    /// Uses the permits without waiting here, even where the limiter has been closed since.
    ///
    /// The operation must not start before [`Grant::promised_at`].
    #[must_use = "it says when the operation may start"]
    pub fn keep(mut self) -> Grant {
        self.settled = true;
        Grant::as_promised(&self.promise.grant)
    }

    /// Cancels the reservation. Returns `true` if that was in time, before the start.
    #[expect(clippy::must_use_candidate, reason = "a cancellation is useful whatever it returns")]
    pub fn cancel(mut self) -> bool {
        self.settled = true;
        self.withdraw()
    }

    fn withdraw(&self) -> bool {
        self.shared.cancel(&self.promise) || {
            let permits = self.promise.grant.permits;
            // A closed limiter needs nothing back.
            let _ = self.shared.end(permits, Ending::Released);
            false
        }
    }
}

impl<C: Clock> Drop for Reservation<C> {
    fn drop(&mut self) {
        if !self.settled {
            self.withdraw();
        }
    }
}

impl<C: Clock> fmt::Debug for Reservation<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grant = &self.promise.grant;
        let own: [(&str, &dyn fmt::Debug); 2] =
            [("permits", &grant.permits), ("promised_ns", &grant.promised_ns)];
        self.shared.fmt_as(f, "Reservation", &own)
    }
}
