//! Decisions by a single limiter.

use std::time::Duration;

use rategate::charge::Hold;
use rategate::error::ShareError;
use rategate::{AsyncLimiter, Clock, Decision, Limiter, Permit, TryAcquireError};

use super::taken::{CachedInFlight, Known, Taken, cancel_hold, in_flight};
use super::{Answer, Gate, Limit, LimitRequest, Outcome, Pass, PendingOutcome, decide, waited_for};
use crate::headers::Numbers;
use crate::refusal::Reason;

/// One limiter for all requests.
pub(crate) struct One<C: Clock> {
    limiter: Limiter<C>,
    known: CachedInFlight,
}

impl<C: Clock> One<C> {
    pub(crate) fn new(limiter: Limiter<C>) -> Self {
        Self { limiter, known: CachedInFlight::default() }
    }
}

impl<C> Gate for One<C>
where
    C: Clock + 'static,
{
    fn pass(&self, limit_request: LimitRequest, _name: Vec<u8>) -> Pass {
        decide(&RequestLimiter { limiter: &self.limiter, known: &self.known }, limit_request)
    }

    fn wait(&self, limit_request: LimitRequest) -> Option<Duration> {
        self.limiter.peek(limit_request.cost).ok().flatten()
    }

    fn changes(&self) -> u64 {
        self.limiter.changes()
    }

    fn numbers(&self, _tier: usize) -> Option<Numbers> {
        self.limiter.with_limit(|limit| Numbers::of(limit.policies()))
    }
}

/// A limiter, and the value that a request keeps while it holds permits.
pub(super) struct RequestLimiter<'a, C: Clock, K> {
    pub(super) limiter: &'a Limiter<C>,
    pub(super) known: &'a K,
}

impl<C, K> Limit for RequestLimiter<'_, C, K>
where
    C: Clock + 'static,
    K: Known,
{
    fn try_take(&self, limit_request: LimitRequest) -> Answer {
        let refusal = |error| match error {
            TryAcquireError::ExceedsCapacity(_) => Reason::TooCostly,
            _ => Reason::Closed,
        };
        if !limit_request.share.is_whole() {
            let LimitRequest { cost, share, .. } = limit_request;
            let permit =
                self.limiter.try_permit_in_share(cost, share).map_err(|error| match error {
                    ShareError::ExceedsCapacity(_) => Reason::TooCostly,
                    ShareError::NothingInFlight => Reason::NoShares,
                    _ => Reason::Closed,
                })?;
            return Ok(permit.map(|permit| Some(self.held(permit))));
        }
        if self.known.counts_in_flight(self.limiter) {
            let permit = self.limiter.try_permit(limit_request.cost).map_err(refusal)?;
            return Ok(permit.map(|permit| Some(self.held(permit))));
        }
        if limit_request.may_return {
            let hold = self.limiter.try_hold(limit_request.cost, Duration::MAX);
            let known = self.known.clone();
            return Ok(hold.map_err(refusal)?.map(|hold| Some(held_for(hold, known))));
        }
        Ok(match self.limiter.try_acquire(limit_request.cost).map_err(refusal)? {
            Decision::Granted(_) => Ok(None),
            Decision::Denied(denial) => Err(denial),
        })
    }

    fn peek(&self, permits: u64) -> Option<Duration> {
        self.limiter.peek(permits).ok().flatten()
    }

    fn remaining(&self) -> u64 {
        self.limiter.remaining().unwrap_or(0)
    }

    fn wait(
        &self,
        limit_request: LimitRequest,
        max_wait: Duration,
    ) -> Result<PendingOutcome, Reason> {
        let async_limiter = AsyncLimiter::from(self.limiter.clone());
        Ok(Box::pin(
            WaitingCall { async_limiter, known: self.known.clone() }.wait(limit_request, max_wait),
        ))
    }
}

impl<C, K> RequestLimiter<'_, C, K>
where
    C: Clock + 'static,
    K: Known,
{
    /// Returns a permit in flight as the request's passage.
    fn held(&self, permit: Permit<C>) -> Taken {
        in_flight(permit, self.known.clone())
    }
}

/// Returns a hold as what may come back after a request.
pub(super) fn held_for<C, K>(hold: Hold<C>, known: K) -> Taken
where
    C: Clock + 'static,
    K: Send + 'static,
{
    Taken::Charged(cancel_hold(hold, known))
}

/// A waiting request. It drops the limiter before `known`, which is about it.
struct WaitingCall<C, K> {
    async_limiter: AsyncLimiter<C>,
    known: K,
}

impl<C, K> WaitingCall<C, K>
where
    C: Clock + 'static,
    K: Known,
{
    async fn wait(self, limit_request: LimitRequest, max_wait: Duration) -> Outcome {
        let limit = RequestLimiter { limiter: self.async_limiter.limiter(), known: &self.known };
        let LimitRequest { cost, may_return, .. } = limit_request;
        let waited = if self.known.counts_in_flight(limit.limiter) {
            let permit = self.async_limiter.permit_within(cost, max_wait).await;
            permit.map(|permit| Some(limit.held(permit)))
        } else if may_return {
            let hold = self.async_limiter.hold_within(cost, Duration::MAX, max_wait).await;
            hold.map(|hold| Some(held_for(hold, self.known.clone())))
        } else {
            let grant = self.async_limiter.acquire_within(cost, max_wait).await;
            grant.map(|_| None)
        };
        waited_for(&limit, limit_request, waited)
    }
}
