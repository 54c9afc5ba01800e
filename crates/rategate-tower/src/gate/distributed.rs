//! Decisions by a limit that several processes share.

use std::num::NonZeroU64;
use std::sync::Arc;

use rategate::Clock;
use rategate::distributed::{
    DecidedBy, Decision, DecisionFuture, Denial, Distributed, Grant, LeaseGuard,
};
use rategate::store::{LeaseId, Store, StoreError};

use super::taken::{End, InFlight, Taken};
use super::{Gate, KeyStatus, LimitRequest, Outcome, Pass, refused};
use crate::refusal::{Reason, Refusal};

/// A request in the store's terms.
struct Call<S: Store, C: Clock + Clone + 'static> {
    limiter: Distributed<S, C>,
    name: Box<[u8]>,
    /// The name of its permits in flight, where the limit counts those.
    lease: Option<LeaseId>,
}

impl<S: Store, C: Clock + Clone + 'static> Gate for Distributed<S, C> {
    fn pass(&self, limit_request: LimitRequest, name: Vec<u8>) -> Pass {
        if !limit_request.share.is_whole() {
            return Pass::Now(refused(Reason::NoShares));
        }
        let limiter = self.clone();
        let lease = limiter.counts_in_flight().then(LeaseId::random);
        let call = Arc::new(Call { limiter, name: name.into(), lease });
        match (lease, limit_request.max_wait) {
            (Some(lease), _) => call
                .decided(call.limiter.hold(&call.name, limit_request.cost, lease), limit_request),
            (None, None) => call
                .decided(call.limiter.try_acquire(&call.name, limit_request.cost), limit_request),
            (None, Some(max_wait)) => Pass::Later(Box::pin(async move {
                let cost = limit_request.cost;
                let waited = call.limiter.acquire_within(&call.name, cost, max_wait).await;
                call.outcome(waited, limit_request)
            })),
        }
    }
}

impl<S: Store, C: Clock + Clone + 'static> Call<S, C> {
    /// Returns a decision, at once if the store need not reply.
    fn decided(self: &Arc<Self>, deciding: DecisionFuture, limit_request: LimitRequest) -> Pass {
        match deciding.at_once() {
            Ok(decision) => Pass::Now(self.outcome(decision, limit_request)),
            Err(deciding) => {
                let call = Arc::clone(self);
                Pass::Later(Box::pin(async move { call.outcome(deciding.await, limit_request) }))
            }
        }
    }

    fn outcome(
        self: &Arc<Self>,
        decision: Result<Decision, StoreError>,
        limit_request: LimitRequest,
    ) -> Outcome {
        match decision {
            Ok(Decision::Granted(grant)) => {
                let remaining = grant.remaining.filter(|_| limit_request.reports_status);
                let key_status =
                    remaining.map(|remaining| KeyStatus::new(limit_request, remaining, None));
                Outcome::Passed(key_status, self.taken(grant, limit_request))
            }
            Ok(Decision::Denied(denial)) => denied(denial, limit_request),
            Err(StoreError::Exceeds(_)) => refused(Reason::TooCostly),
            Err(StoreError::Closed) => refused(Reason::Closed),
            Err(_) => refused(Reason::Undecided),
        }
    }

    fn taken(self: &Arc<Self>, grant: Grant, limit_request: LimitRequest) -> Option<Taken> {
        let permits = NonZeroU64::new(limit_request.cost)?;
        let call = Arc::clone(self);
        match (self.lease, grant.by) {
            (Some(lease), DecidedBy::Store) => {
                let guard = call.limiter.keep(&call.name, permits, lease);
                Some(Taken::InFlight(Box::new(Flight(guard))))
            }
            // Permits that this node granted without the store are not held in the store.
            (Some(_), _) => None,
            (None, _) => limit_request.may_return.then(|| -> Taken {
                Taken::Charged(Box::new(move || call.limiter.refund(&call.name, permits, grant)))
            }),
        }
    }
}

fn denied(denial: Denial, limit_request: LimitRequest) -> Outcome {
    let retry_after = denial.retry_after;
    // Without the store and without a local limit, the client has not exceeded anything.
    let is_undecided = denial.by == DecidedBy::Fallback && denial.remaining.is_none();
    let reason = if is_undecided { Reason::Undecided } else { Reason::OverLimit };
    let remaining = denial.remaining.filter(|_| limit_request.reports_status);
    let max_remaining = limit_request.cost.saturating_sub(1);
    let key_status = remaining
        .map(|remaining| KeyStatus::new(limit_request, remaining.min(max_remaining), retry_after));
    Outcome::Refused(Refusal::new(reason, retry_after), key_status)
}

/// Permits in flight in a store, renewed until this is dropped.
struct Flight<S: Store, C: Clock + Clone + 'static>(
    #[expect(dead_code, reason = "kept for its drop")] LeaseGuard<S, C>,
);

impl<S: Store, C: Clock + Clone + 'static> InFlight for Flight<S, C> {
    /// Does nothing: permits in flight in a store leave no trace in either case.
    fn end_as(&mut self, _end: End) {}
}
