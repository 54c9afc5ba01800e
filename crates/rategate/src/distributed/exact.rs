//! The exact mode: the store decides each call.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::inner::Inner;
use super::inner::decision::deadline::PendingCall;
use super::inner::decision::{DecidedBy, Decision, DecisionFuture, Grant};
use super::watch::CheckedReply;
use crate::clock::Clock;
use crate::store::{Key, LeaseId, Reply, Store, StoreError, StoreRequest};

/// The effect of a decision on the store.
#[derive(Clone, Copy, Debug)]
enum Effect {
    /// Takes permits that pass, under a lease if they are in flight.
    Take(Option<LeaseId>),
    /// Takes nothing.
    Peek,
    /// Counts permits in any case, 0 too.
    Charge(u64),
}

impl<S: Store, C: Clock + 'static> Inner<S, C> {
    pub(super) fn exact(
        self: &Arc<Self>,
        key: Key,
        permits: NonZeroU64,
        lease: Option<LeaseId>,
    ) -> DecisionFuture {
        self.submit_decision(key, permits, Effect::Take(lease))
    }

    /// Returns the decision that a call would get, by the store or the fallback. Takes nothing.
    pub(super) fn peek(self: &Arc<Self>, key: Key, permits: NonZeroU64) -> DecisionFuture {
        self.submit_decision(key, permits, Effect::Peek)
    }

    /// Takes permits that count in any case.
    pub(super) fn acquire_or_charge(self: &Arc<Self>, key: Key, permits: u64) -> DecisionFuture {
        let at_least_one = NonZeroU64::new(permits).unwrap_or(NonZeroU64::MIN);
        self.submit_decision(key, at_least_one, Effect::Charge(permits))
    }

    fn submit_decision(
        self: &Arc<Self>,
        key: Key,
        permits: NonZeroU64,
        effect: Effect,
    ) -> DecisionFuture {
        let takes = effect.takes();
        let backend = self.store.backend_of(&key);
        let requested_ns = self.clock.now_ns();
        if let Err(for_ns) = self.watch.pass(backend, requested_ns, self.store.revivals(backend)) {
            return self.now(Ok(self.without_store(&key, permits, for_ns, takes)));
        }
        let call = PendingCall::new(self, Arc::clone(&key), permits, takes, requested_ns);
        let (caller, deciding) = DecisionFuture::later(call);
        let inner = Arc::clone(self);
        let plan = Arc::clone(&self.store_plan);
        let request_key = Arc::clone(&key);
        let request = match effect {
            Effect::Take(lease) => StoreRequest::Decide { plan, key: request_key, permits, lease },
            Effect::Peek => StoreRequest::Peek { plan, key: request_key, permits },
            Effect::Charge(permits) => StoreRequest::Charge {
                plan,
                key: request_key,
                permits,
                debt: self.debt,
                once: None,
            },
        };
        self.store.submit(
            request,
            Box::new(move |answer| {
                let (checked_reply, change) =
                    inner.watch.received(backend, requested_ns, inner.clock.now_ns(), answer);
                inner.report_change(change);
                let decision = inner.decided(&key, permits, effect, checked_reply);
                inner.reply_to(caller, decision);
            }),
        );
        deciding
    }

    fn decided(
        &self,
        key: &Key,
        permits: NonZeroU64,
        effect: Effect,
        checked_reply: CheckedReply,
    ) -> Result<Decision, StoreError> {
        match checked_reply {
            CheckedReply::Usable(Reply::Verdict(verdict), now_ns) => {
                let lease = if let Effect::Take(lease) = effect { lease } else { None };
                let decision =
                    Decision::of_verdict(DecidedBy::Store, verdict, lease, effect.takes());
                Ok(decision.at(now_ns))
            }
            CheckedReply::Usable(Reply::Charged(reply), now_ns) => {
                Ok(Decision::of_charge(reply).at(now_ns))
            }
            CheckedReply::Usable(..) => Ok(self.without_store(key, permits, None, effect.takes())),
            CheckedReply::None { for_ns } => {
                Ok(self.without_store(key, permits, for_ns, effect.takes()))
            }
            CheckedReply::StoreError(fault) => Err(fault),
        }
    }

    /// Returns the request that refunds permits of a grant by the store.
    pub(super) fn returned(
        &self,
        key: Key,
        permits: NonZeroU64,
        grant: Grant,
    ) -> Option<StoreRequest<S::Plan>> {
        let plan = Arc::clone(&self.store_plan);
        match (grant.lease, grant.receipt) {
            (Some(lease), _) => Some(StoreRequest::Release { plan, key, permits, lease }),
            (None, Some(receipt)) => Some(StoreRequest::Refund { plan, key, receipt, permits }),
            (None, None) => None,
        }
    }
}

impl Effect {
    /// Returns `true` if a fallback takes permits in its place.
    const fn takes(self) -> bool {
        matches!(self, Self::Take(_) | Self::Charge(1..))
    }
}
