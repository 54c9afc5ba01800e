//! Reservations for tasks: promised starts that a task waits for.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rategate_core::line::WaiterId;

use crate::clock::wait::Sleep;
use crate::clock::{Clock, MonotonicClock};
use crate::decision::Grant;
use crate::error::AcquireError;
use crate::reservation::Reservation;
use crate::shared::Shared;
use rategate_core::span::whole_ns;

/// Permits promised for one instant, returned by
/// [`AsyncLimiter::reserve`](crate::AsyncLimiter::reserve).
///
/// It is a [`Reservation`] whose wait is a future.
#[must_use = "dropped, a reservation is cancelled"]
pub struct AsyncReservation<C: Clock = MonotonicClock> {
    reservation: Reservation<C>,
}

impl<C: Clock> AsyncReservation<C> {
    pub(super) const fn new(reservation: Reservation<C>) -> Self {
        Self { reservation }
    }

    /// Returns the promised start: the first nanosecond at which the operation may start.
    ///
    /// It is an instant of the limiter's clock.
    #[must_use]
    pub const fn promised_at(&self) -> Duration {
        self.reservation.promised_at()
    }

    /// Waits until the start, and takes the permits then. A drop before that refunds them.
    ///
    /// # Errors
    ///
    /// The errors of [`Reservation::wait`].
    pub fn wait(self) -> Ready<C> {
        let shared = Arc::clone(self.reservation.shared());
        shared.time_tasks();
        let waiter_slot = shared.wait_for_promise(self.reservation.promise());
        Ready { reservation: Some(self.reservation), waiter_slot, sleep: None, id: None, shared }
    }

    /// Uses the permits without waiting here. The operation must not start before
    /// [`Grant::promised_at`].
    #[must_use = "it says when the operation may start"]
    pub fn keep(self) -> Grant {
        self.reservation.keep()
    }

    /// Cancels the reservation. Returns `true` if that was in time, before the start.
    #[expect(clippy::must_use_candidate, reason = "a cancellation is useful whatever it returns")]
    pub fn cancel(self) -> bool {
        self.reservation.cancel()
    }
}

impl<C: Clock> fmt::Debug for AsyncReservation<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reservation.fmt(f)
    }
}

/// The future of [`AsyncReservation::wait`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Ready<C: Clock> {
    /// Absent once it has been kept or cancelled.
    reservation: Option<Reservation<C>>,
    /// The waiter slot in which it takes its permits, where the limit bounds real starts.
    waiter_slot: Option<WaiterId>,
    sleep: Option<Sleep>,
    /// The id under which it is woken when the limiter is closed.
    id: Option<u64>,
    shared: Arc<Shared<C>>,
}

impl<C: Clock> Ready<C> {
    /// Waits until the start has come, or the limiter is closed.
    fn poll_due(&mut self, start_ns: u64, context: &mut Context<'_>) -> Poll<()> {
        self.id = Some(self.shared.on_demand().listeners.listen(self.id, context.waker().clone()));
        loop {
            let left_ns = start_ns.saturating_sub(self.shared.now_ns());
            if left_ns == 0 || self.shared.is_closed() {
                return Poll::Ready(());
            }
            let clock = self.shared.clock();
            let sleep = self.sleep.get_or_insert_with(|| clock.sleep_until(start_ns));
            ready!(sleep.as_mut().poll(context));
            self.sleep = None;
        }
    }
}

impl<C: Clock> Future for Ready<C> {
    type Output = Result<Grant, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Polled again after its end, like any future that is fused.
        let start = self.reservation.as_ref().map(Reservation::promised_at);
        let Some(start_ns) = start.map(whole_ns) else { return Poll::Pending };
        ready!(self.poll_due(start_ns, context));
        let Self { shared, waiter_slot, reservation, .. } = &mut *self;
        let Some(known) = waiter_slot else {
            // There is nothing left to wait for.
            let reservation = reservation.take();
            return reservation
                .map_or(Poll::Pending, |reservation| Poll::Ready(reservation.wait()));
        };
        let Some(collected) = shared.collect(known, context.waker(), None) else {
            return Poll::Pending;
        };
        *waiter_slot = None;
        if let Some(reservation) = reservation.take() {
            let _ = reservation.keep();
        }
        Poll::Ready(shared.ended(collected))
    }
}

impl<C: Clock> Drop for Ready<C> {
    fn drop(&mut self) {
        if let Some(waiter_slot) = self.waiter_slot.take() {
            self.shared.leave(&waiter_slot);
            if let Some(reservation) = self.reservation.take() {
                // Leaving has refunded what it held.
                let _ = reservation.keep();
            }
        }
        if let Some(id) = self.id {
            self.shared.on_demand().listeners.leave(id);
        }
    }
}

impl<C: Clock> fmt::Debug for Ready<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready").field("reservation", &self.reservation).finish_non_exhaustive()
    }
}
