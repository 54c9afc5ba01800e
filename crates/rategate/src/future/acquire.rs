//! A task's wait in line.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use rategate_core::concurrent::Concurrent;
use rategate_core::queue::{Joined, Outcome, Place};

use crate::clock::Clock;
use crate::decision::Grant;
use crate::error::AcquireError;
use crate::shared::Shared;
use crate::turn::Ear;

/// The future of [`AsyncLimiter::acquire`](crate::AsyncLimiter::acquire): a place in line from its
/// first poll on.
///
/// # Cancelling
///
/// Dropped while it waits, it leaves the line. What it held goes back, those behind it move up, and
/// whoever is due then is woken. Dropped after its start but before it was polled, its permits are
/// spent, except that operations [in flight](crate::Concurrency) count as never begun.
///
/// A future that is forgotten, by [`mem::forget`](std::mem::forget), is granted in its turn, to
/// nobody's use. It delays nobody longer than had it been used.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Acquire<'a, L: Concurrent, C: Clock> {
    shared: &'a Shared<L, C>,
    state: State,
}

#[derive(Debug)]
enum State {
    New { permits: u64, max_wait_ns: Option<u64> },
    Waiting { permits: u64, place: Place },
    Done,
}

impl<'a, L: Concurrent, C: Clock> Acquire<'a, L, C> {
    pub(super) const fn new(
        shared: &'a Shared<L, C>,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Self {
        Self { shared, state: State::New { permits, max_wait_ns } }
    }
}

impl<L: Concurrent, C: Clock> Future for Acquire<'_, L, C> {
    type Output = Result<Grant, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self.shared;
        match &self.state {
            &State::New { permits, max_wait_ns } => {
                self.state = State::Done;
                if let Some(grant) = shared.take_at_once(permits) {
                    return Poll::Ready(Ok(grant));
                }
                let ear = || Ear::Task(context.waker().clone());
                match shared.turn(|turn| turn.join(permits, max_wait_ns, ear)) {
                    Ok(Ok(Joined::Granted(grant))) => Poll::Ready(Ok(Grant::as_promised(&grant))),
                    Ok(Ok(Joined::Waits(place))) => {
                        self.state = State::Waiting { permits, place };
                        Poll::Pending
                    }
                    Ok(Err(turned)) => Poll::Ready(Err(AcquireError::turned(turned, max_wait_ns))),
                    Err(closed) => Poll::Ready(Err(closed.into())),
                }
            }
            State::Waiting { place, .. } => {
                let outcome = shared.turn_even_if_closed(|turn| {
                    let outcome = turn.collect(place);
                    if outcome.is_none() {
                        turn.listen(place, context.waker());
                    }
                    outcome
                });
                let Some(outcome) = outcome else { return Poll::Pending };
                self.state = State::Done;
                Poll::Ready(shared.ended(outcome))
            }
            // Polled again after its end, like any future that is fused.
            State::Done => Poll::Pending,
        }
    }
}

impl<L: Concurrent, C: Clock> Drop for Acquire<'_, L, C> {
    fn drop(&mut self) {
        let State::Waiting { permits, place } = &self.state else { return };
        self.shared.turn_even_if_closed(|turn| {
            if let Some(Outcome::Granted(_)) = turn.leave(place) {
                turn.change(|limit, now_ns| limit.forgo(now_ns, *permits));
            }
        });
    }
}

impl<L: Concurrent, C: Clock> fmt::Debug for Acquire<'_, L, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("state", &self.state).finish_non_exhaustive()
    }
}
