//! Decisions by a single limiter.

use std::time::Duration;

use rategate::error::ShareError;
use rategate::{AsyncLimiter, Clock, Decision, Grant, Limiter, Permit, TryAcquireError};

use super::taken::{CachedInFlight, Known, Taken, in_flight, refund_grant};
use super::{
    Answer, Gate, Limit, LimitRequest, Outcome, Pass, PassedRequest, PendingOutcome, decide,
    waited_for,
};
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
            return Ok(permit.map(|permit| self.held(permit, limit_request)));
        }
        if self.known.may_count_in_flight(self.limiter) {
            let permit = self.limiter.try_permit(limit_request.cost).map_err(refusal)?;
            return Ok(permit.map(|permit| self.held(permit, limit_request)));
        }
        Ok(match self.limiter.try_acquire(limit_request.cost).map_err(refusal)? {
            Decision::Granted(grant) => Ok(self.charged(grant, limit_request)),
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
    /// Returns a permit as the request's passage.
    fn held(&self, permit: Permit<C>, limit_request: LimitRequest) -> PassedRequest {
        if !self.known.counts_in_flight(self.limiter) {
            return self.charged(permit.into_grant(), limit_request);
        }
        PassedRequest { grant: permit.grant(), taken: Some(in_flight(permit, self.known.clone())) }
    }

    fn charged(&self, grant: Grant, limit_request: LimitRequest) -> PassedRequest {
        let taken =
            limit_request.may_return.then(|| Taken::Charged(refund_grant(self.limiter, grant)));
        PassedRequest { grant, taken }
    }
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
        let permit = self.async_limiter.permit_within(limit_request.cost, max_wait).await;
        let waited = permit.map(|permit| limit.held(permit, limit_request));
        waited_for(&limit, limit_request, waited)
    }
}
