//! The futures of a task's wait for permits.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rategate_core::fair::ClassId;
use rategate_core::line::{Joined, Request, WaiterId};

use crate::clock::{Clock, MonotonicClock};
use crate::decision::Grant;
use crate::error::AcquireError;
use crate::hold::Hold;
use crate::limiter::Limiter;
use crate::section::{CriticalSection, Estimate, Notifier};
use crate::shared::Shared;

/// The future of [`AsyncLimiter::acquire`](crate::AsyncLimiter::acquire).
///
/// It has a slot in the wait queue from its first poll on.
///
/// # Cancelling
///
/// Dropped while it waits, it leaves the queue, and what it held is refunded, even when its start
/// had come. Those behind it move up, and each that is due then is woken. On a schedule that
/// promises instants it may be dropped after its start but before it was polled. Its permits then
/// count as used, and one that would count in flight has ended.
///
/// A future that is leaked, by [`mem::forget`](std::mem::forget), or is not polled when it is
/// woken, holds its permits for the [grace period](crate::Limiter::with_grace), once, and blocks
/// those behind it for that time.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Acquire<'a, C: Clock> {
    shared: &'a Arc<Shared<C>>,
    wait: Wait,
}

/// The future of [`AsyncLimiter::acquire_owned`](crate::AsyncLimiter::acquire_owned).
///
/// It is an [`Acquire`] that borrows nothing, for a task or a type that keeps it between polls.
#[must_use = "a future does nothing unless it is awaited"]
pub struct AcquireOwned<C: Clock = MonotonicClock> {
    shared: Arc<Shared<C>>,
    wait: Wait,
}

/// The future of [`AsyncLimiter::acquire_within`](crate::AsyncLimiter::acquire_within).
///
/// It is an [`Acquire`] with a deadline.
#[must_use = "a future does nothing unless it is awaited"]
pub struct AcquireWithin<'a, C: Clock> {
    acquire: Acquire<'a, C>,
    max_wait_ns: u64,
}

/// The future of [`AsyncLimiter::hold`](crate::AsyncLimiter::hold).
///
/// It is an [`AcquireOwned`] that holds what it takes. Dropped, it leaves the queue.
#[must_use = "a future does nothing unless it is awaited"]
pub struct AcquireHold<C: Clock = MonotonicClock> {
    limiter: Limiter<C>,
    wait: Wait,
    estimate: Estimate,
    max_wait_ns: Option<u64>,
}

/// One wait, wherever its limiter is kept. Its owner has to [leave](Self::leave) before the drop.
#[derive(Debug)]
struct Wait {
    permits: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    New { class: ClassId, is_provisional: bool },
    Waiting(WaiterId),
    Done,
}

impl<'a, C: Clock> Acquire<'a, C> {
    pub(super) const fn new(shared: &'a Arc<Shared<C>>, request: Request) -> Self {
        Self { shared, wait: Wait::new(request) }
    }

    pub(super) const fn within(self, max_wait_ns: u64) -> AcquireWithin<'a, C> {
        AcquireWithin { acquire: self, max_wait_ns }
    }
}

impl<C: Clock> AcquireHold<C> {
    pub(super) fn new(limiter: Limiter<C>, request: Request, ttl_ns: u64) -> Self {
        let max_wait_ns = request.max_wait_ns;
        Self { limiter, wait: Wait::new(request), estimate: Estimate::new(ttl_ns), max_wait_ns }
    }

    /// Returns a future for a caller that runs later than the future is polled: see
    /// [`AcquireOwned::provisionally`].
    pub fn provisionally(mut self) -> Self {
        self.wait.make_provisional();
        self
    }
}

impl<C: Clock> AcquireOwned<C> {
    pub(super) const fn new(shared: Arc<Shared<C>>, request: Request) -> Self {
        Self { shared, wait: Wait::new(request) }
    }

    /// Returns a future for a caller that runs later than the future is polled.
    ///
    /// Its first poll joins the wait queue even where the permits are free, and then wakes it. A
    /// later poll takes them, and that instant is the start that the limit counts. So an event
    /// loop polls first to keep the order of its callers, and polls again as each of them runs.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::future::Future;
    /// use std::pin::pin;
    /// use std::task::{Context, Poll, Waker};
    /// use std::time::Duration;
    ///
    /// use rategate::{AsyncLimiter, Gcra, ManualClock};
    ///
    /// let clock = ManualClock::stepped();
    /// let limiter = AsyncLimiter::with_clock(Gcra::per_second(1), clock.clone());
    /// let mut wait = pin!(limiter.acquire_owned(1).provisionally());
    /// let context = &mut Context::from_waker(Waker::noop());
    /// assert!(wait.as_mut().poll(context).is_pending());
    ///
    /// clock.advance(Duration::from_millis(5));
    /// let Poll::Ready(Ok(grant)) = wait.poll(context) else { panic!("the permit is free") };
    /// assert_eq!(grant.released_at(), Duration::from_millis(5));
    /// ```
    pub fn provisionally(mut self) -> Self {
        self.wait.make_provisional();
        self
    }

    /// Returns `true` if the wait has ended with an error, which the next poll returns.
    ///
    /// A poll may take permits. So a loop that wants one caller to take them before another asks
    /// this first.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        match &self.wait.state {
            State::Waiting(waiter_slot) => self.shared.has_failed(waiter_slot),
            State::New { .. } | State::Done => false,
        }
    }
}

impl<C: Clock> AcquireWithin<'_, C> {
    /// Returns a future for a caller that runs later than the future is polled: see
    /// [`AcquireOwned::provisionally`].
    pub fn provisionally(mut self) -> Self {
        self.acquire.wait.make_provisional();
        self
    }
}

impl Wait {
    const fn new(request: Request) -> Self {
        let Request { permits, class, is_provisional, .. } = request;
        Self { permits, state: State::New { class, is_provisional } }
    }

    const fn make_provisional(&mut self) {
        if let State::New { is_provisional, .. } = &mut self.state {
            *is_provisional = true;
        }
    }

    fn poll<C: Clock>(
        &mut self,
        shared: &Arc<Shared<C>>,
        max_wait_ns: Option<u64>,
        estimate: Option<&Estimate>,
        context: &Context<'_>,
    ) -> Poll<Result<Grant, AcquireError>> {
        let polled = self.poll_uncounted(shared, max_wait_ns, estimate, context);
        if let Poll::Ready(ended) = &polled {
            shared.record_wait(self.permits, ended);
        }
        polled
    }

    fn poll_uncounted<C: Clock>(
        &mut self,
        shared: &Arc<Shared<C>>,
        max_wait_ns: Option<u64>,
        estimate: Option<&Estimate>,
        context: &Context<'_>,
    ) -> Poll<Result<Grant, AcquireError>> {
        let permits = self.permits;
        match &self.state {
            &State::New { class, is_provisional } => {
                self.state = State::Done;
                if estimate.is_none()
                    && !is_provisional
                    && let Some(grant) = shared.take_at_once(permits)
                {
                    return Poll::Ready(Ok(grant));
                }
                shared.time_tasks();
                let request = Request { permits, max_wait_ns, class, is_provisional };
                let notifier = || Notifier::Task(context.waker().clone());
                let join = |section: &mut CriticalSection<'_>| {
                    let joined = section.join(request, notifier);
                    if let Ok(Joined::Granted(grant)) = &joined {
                        section.hold_granted(grant, estimate);
                    }
                    joined
                };
                match shared.section_to_join(join) {
                    Ok(Ok(Joined::Granted(grant))) => Poll::Ready(Ok(Grant::as_promised(&grant))),
                    Ok(Ok(Joined::Waits(waiter_slot))) => {
                        self.state = State::Waiting(waiter_slot);
                        Poll::Pending
                    }
                    Ok(Err(from_rejection)) => {
                        Poll::Ready(Err(AcquireError::from_rejection(from_rejection, max_wait_ns)))
                    }
                    Err(closed) => Poll::Ready(Err(closed.into())),
                }
            }
            State::Waiting(waiter_slot) => {
                let Some(collected) = shared.collect(waiter_slot, context.waker(), estimate) else {
                    return Poll::Pending;
                };
                self.state = State::Done;
                Poll::Ready(shared.ended(collected))
            }
            // Polled again after its end, like any future that is fused.
            State::Done => Poll::Pending,
        }
    }

    /// Leaves the wait queue.
    fn leave<C: Clock>(&self, shared: &Shared<C>) {
        if let State::Waiting(waiter_slot) = &self.state {
            shared.leave(waiter_slot);
        }
    }
}

impl<C: Clock> Future for Acquire<'_, C> {
    type Output = Result<Grant, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self.shared;
        self.wait.poll(shared, None, None, context)
    }
}

impl<C: Clock> Future for AcquireHold<C> {
    type Output = Result<Hold<C>, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { limiter, wait, estimate, max_wait_ns } = &mut *self;
        let polled = wait.poll(limiter.shared(), *max_wait_ns, Some(&*estimate), context);
        polled.map(|ended| limiter.held_by(ended, estimate))
    }
}

impl<C: Clock> Future for AcquireWithin<'_, C> {
    type Output = Result<Grant, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (shared, max_wait_ns) = (self.acquire.shared, self.max_wait_ns);
        self.acquire.wait.poll(shared, Some(max_wait_ns), None, context)
    }
}

impl<C: Clock> Future for AcquireOwned<C> {
    type Output = Result<Grant, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { shared, wait } = &mut *self;
        wait.poll(shared, None, None, context)
    }
}

impl<C: Clock> Drop for Acquire<'_, C> {
    fn drop(&mut self) {
        self.wait.leave(self.shared);
    }
}

impl<C: Clock> Drop for AcquireOwned<C> {
    fn drop(&mut self) {
        self.wait.leave(&self.shared);
    }
}

impl<C: Clock> Drop for AcquireHold<C> {
    fn drop(&mut self) {
        self.wait.leave(self.limiter.shared());
    }
}

impl<C: Clock> fmt::Debug for Acquire<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("wait", &self.wait).finish_non_exhaustive()
    }
}

impl<C: Clock> fmt::Debug for AcquireOwned<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireOwned").field("wait", &self.wait).finish_non_exhaustive()
    }
}

impl<C: Clock> fmt::Debug for AcquireHold<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireHold").field("wait", &self.wait).finish_non_exhaustive()
    }
}

impl<C: Clock> fmt::Debug for AcquireWithin<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("AcquireWithin");
        shown.field("acquire", &self.acquire).field("max_wait_ns", &self.max_wait_ns).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the waiter slot of 40 bytes, a waiter takes 64.
    #[test]
    fn a_wait_is_small() {
        assert!(size_of::<Acquire<'_, MonotonicClock>>() <= 24);
        assert!(size_of::<AcquireOwned>() <= 24);
    }
}
