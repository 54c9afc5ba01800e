//! Decisions by a single limiter.

use std::time::Duration;

use rategate::{AsyncLimiter, Clock, Concurrent, Decision, Grant, Limiter, LimiterError, Permit};

use super::taken::{Known, Remembered, Taken, give_back, in_flight, may_count_in_flight};
use super::{Answer, Ask, Gate, Limit, Outcome, Pass, Passage, Turn, decide, waited_for};
use crate::headers::Numbers;
use crate::refusal::Reason;

/// One limiter for all requests.
pub(crate) struct One<L: Concurrent, C: Clock> {
    limiter: Limiter<L, C>,
    known: Remembered,
}

impl<L: Concurrent, C: Clock> One<L, C> {
    pub(crate) fn new(limiter: Limiter<L, C>) -> Self {
        Self { limiter, known: Remembered::default() }
    }
}

impl<L, C> Gate for One<L, C>
where
    L: Concurrent + Send + 'static,
    C: Clock + 'static,
{
    fn pass(&self, ask: Ask, _name: Vec<u8>) -> Pass {
        decide(&Of { limiter: &self.limiter, known: &self.known }, ask)
    }

    fn wait(&self, ask: Ask) -> Option<Duration> {
        self.limiter.peek(ask.cost).ok().flatten()
    }

    fn changes(&self) -> u64 {
        self.limiter.changes()
    }

    fn numbers(&self, _tier: usize) -> Option<Numbers> {
        self.limiter.with_limit(|limit| Numbers::of_limit(limit))
    }
}

/// A limiter, and the value that a request keeps while it holds permits.
pub(super) struct Of<'a, L: Concurrent, C: Clock, K> {
    pub(super) limiter: &'a Limiter<L, C>,
    pub(super) known: &'a K,
}

impl<L, C, K> Limit for Of<'_, L, C, K>
where
    L: Concurrent + Send + 'static,
    C: Clock + 'static,
    K: Known,
{
    fn try_take(&self, ask: Ask) -> Answer {
        let refusal = |error| match error {
            LimiterError::ExceedsCapacity(_) => Reason::TooCostly,
            _ => Reason::Closed,
        };
        if may_count_in_flight::<L>() {
            let permit = self.limiter.try_permit(ask.cost).map_err(refusal)?;
            return Ok(permit.map(|permit| self.held(permit, ask)));
        }
        Ok(match self.limiter.try_acquire(ask.cost).map_err(refusal)? {
            Decision::Granted(grant) => Ok(self.spent(grant, ask)),
            Decision::Denied(denial) => Err(denial),
        })
    }

    fn peek(&self, permits: u64) -> Option<Duration> {
        self.limiter.peek(permits).ok().flatten()
    }

    fn remaining(&self) -> u64 {
        self.limiter.remaining().unwrap_or(0)
    }

    fn wait(&self, ask: Ask, longest: Duration) -> Result<Turn, Reason> {
        let line = AsyncLimiter::from(self.limiter.clone());
        Ok(Box::pin(InLine { line, known: self.known.clone() }.wait(ask, longest)))
    }
}

impl<L, C, K> Of<'_, L, C, K>
where
    L: Concurrent + Send + 'static,
    C: Clock + 'static,
    K: Known,
{
    /// Returns a permit as the request's passage.
    fn held(&self, permit: Permit<L, C>, ask: Ask) -> Passage {
        if !self.known.counts_in_flight(self.limiter) {
            return self.spent(permit.into_grant(), ask);
        }
        Passage { grant: permit.grant(), taken: Some(in_flight(permit, self.known.clone())) }
    }

    fn spent(&self, grant: Grant, ask: Ask) -> Passage {
        let taken = ask.may_return.then(|| Taken::Spent(give_back(self.limiter, grant)));
        Passage { grant, taken }
    }
}

/// A waiting request. It drops the limiter before the value known of it.
struct InLine<L: Concurrent, C, K> {
    line: AsyncLimiter<L, C>,
    known: K,
}

impl<L, C, K> InLine<L, C, K>
where
    L: Concurrent + Send + 'static,
    C: Clock + 'static,
    K: Known,
{
    async fn wait(self, ask: Ask, longest: Duration) -> Outcome {
        let limit = Of { limiter: self.line.limiter(), known: &self.known };
        let waited = if may_count_in_flight::<L>() {
            let permit = self.line.permit_within(ask.cost, longest).await;
            permit.map(|permit| limit.held(permit, ask))
        } else {
            let grant = self.line.acquire_within(ask.cost, longest).await;
            grant.map(|grant| limit.spent(grant, ask))
        };
        waited_for(&limit, ask, waited)
    }
}
