//! The permits that a request has taken, and their return: by the head of the response, or at the
//! end of its body.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rategate::adaptive::Outcome;
use rategate::charge::Hold;
use rategate::{Clock, Limiter, Permit};

/// The permits that a request has taken.
pub(crate) enum Taken {
    /// Permits that the head of the response may refund.
    Charged(Refund),
    /// Permits in flight, until the response has ended.
    InFlight(Box<dyn InFlight>),
}

/// A closure that refunds the permits of a request.
type Refund = Box<dyn FnOnce() + Send>;

impl Taken {
    /// Handles the head of the response, which determines whether the request counts. Returns the
    /// permits that stay in flight until the body has ended.
    pub(crate) fn answered(self, is_refunded: bool, outcome: Outcome) -> Option<Box<dyn InFlight>> {
        match self {
            Self::Charged(refund_grant) => {
                if is_refunded {
                    refund_grant();
                }
                None
            }
            Self::InFlight(mut permits) => {
                permits.end_as(if is_refunded { End::WithoutEffect } else { End::As(outcome) });
                Some(permits)
            }
        }
    }

    /// Handles the failure of the service. Permits in flight end here.
    pub(crate) fn failed(self) {
        if let Self::InFlight(mut permits) = self {
            permits.end_as(End::As(Outcome::Dropped));
        }
    }
}

/// The end of permits in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum End {
    /// They return without an effect.
    WithoutEffect,
    /// They say how busy the server is.
    As(Outcome),
    /// They say nothing.
    #[default]
    Unknown,
}

/// Permits in flight. Dropping them ends them.
pub(crate) trait InFlight: Send + Sync {
    /// Sets the end that they have when this is dropped.
    fn end_as(&mut self, end: End);
}

/// Permits of a limiter in flight. `K` is dropped after them.
struct Flight<C: Clock, K> {
    permit: Option<Permit<C>>,
    end: End,
    _known: K,
}

impl<C, K> InFlight for Flight<C, K>
where
    C: Clock,
    K: Send + Sync,
{
    fn end_as(&mut self, end: End) {
        self.end = end;
    }
}

impl<C: Clock, K> Drop for Flight<C, K> {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        match self.end {
            End::WithoutEffect => permit.abort(),
            End::As(Outcome::Served) => permit.served(),
            End::As(Outcome::Dropped) => permit.dropped(),
            End::As(Outcome::Ignored) | End::Unknown => permit.ignored(),
        }
    }
}

/// Knowledge about a limiter. A request with permits in flight keeps it, and drops it after them.
pub(super) trait Known: Clone + Send + Sync + 'static {
    /// Returns `true` if the limiter counts requests in flight, or follows how they end.
    ///
    /// A limit's policy may only be known at run time.
    fn counts_in_flight<C: Clock>(&self, limiter: &Limiter<C>) -> bool {
        needs_the_end(limiter)
    }
}

/// The cached answer of a limiter, renewed after each change of its limit, since it takes the
/// lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct CachedInFlight(Arc<AtomicU64>);

impl Known for CachedInFlight {
    fn counts_in_flight<C: Clock>(&self, limiter: &Limiter<C>) -> bool {
        // Starts at 1, to differ from the initial value.
        let number = || limiter.changes().saturating_add(1).saturating_mul(2);
        let changes = number();
        let remembered = self.0.load(Ordering::Relaxed);
        if remembered & !1 == changes {
            return remembered & 1 == 1;
        }
        let counts = needs_the_end(limiter);
        if number() == changes {
            self.0.store(changes | u64::from(counts), Ordering::Relaxed);
        }
        counts
    }
}

fn needs_the_end<C: Clock>(limiter: &Limiter<C>) -> bool {
    // A release of 0 permits only tests the policy.
    limiter.release(0).unwrap_or(false) || limiter.follows_outcomes().unwrap_or(false)
}

/// Returns a permit in flight as taken permits.
pub(super) fn in_flight<C, K>(permit: Permit<C>, known: K) -> Taken
where
    C: Clock + 'static,
    K: Send + Sync + 'static,
{
    Taken::InFlight(Box::new(Flight { permit: Some(permit), end: End::default(), _known: known }))
}

/// Returns a closure that brings back what a request holds. Dropped without a call, all of it
/// counts as used. `K` is dropped after the hold.
pub(super) fn cancel_hold<C, K>(hold: Hold<C>, known: K) -> Refund
where
    C: Clock + 'static,
    K: Send + 'static,
{
    let both = (hold.kept_if_dropped(), known);
    Box::new(move || {
        let (hold, known) = both;
        hold.cancel();
        drop(known);
    })
}
