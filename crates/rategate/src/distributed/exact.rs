//! The exact mode: the store decides each call.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::deadline::PendingCall;
use super::decision::{DecidedBy, Decision, DecisionFuture, Grant};
use super::inner::Inner;
use super::watch::CheckedReply;
use crate::clock::Clock;
use crate::store::{Key, LeaseId, Reply, Store, StoreError, StoreRequest};

impl<S: Store, C: Clock + 'static> Inner<S, C> {
    pub(super) fn exact(
        self: &Arc<Self>,
        key: Key,
        permits: NonZeroU64,
        lease: Option<LeaseId>,
    ) -> DecisionFuture {
        self.submit_decision(key, permits, lease, true)
    }

    /// Returns the decision that a call would get, by the store or the fallback. Takes nothing.
    pub(super) fn peek(self: &Arc<Self>, key: Key, permits: NonZeroU64) -> DecisionFuture {
        self.submit_decision(key, permits, None, false)
    }

    fn submit_decision(
        self: &Arc<Self>,
        key: Key,
        permits: NonZeroU64,
        lease: Option<LeaseId>,
        takes: bool,
    ) -> DecisionFuture {
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
        let request = if takes {
            StoreRequest::Decide { plan, key: request_key, permits, lease }
        } else {
            StoreRequest::Peek { plan, key: request_key, permits }
        };
        self.store.submit(
            request,
            Box::new(move |answer| {
                let (checked_reply, change) =
                    inner.watch.received(backend, requested_ns, inner.clock.now_ns(), answer);
                inner.report_change(change);
                let decision = inner.decided(&key, permits, lease, checked_reply, takes);
                inner.reply_to(caller, decision);
            }),
        );
        deciding
    }

    fn decided(
        &self,
        key: &Key,
        permits: NonZeroU64,
        lease: Option<LeaseId>,
        checked_reply: CheckedReply,
        takes: bool,
    ) -> Result<Decision, StoreError> {
        match checked_reply {
            CheckedReply::Usable(Reply::Verdict(verdict)) => {
                Ok(Decision::of_verdict(DecidedBy::Store, verdict, lease, takes))
            }
            CheckedReply::Usable(_) => Ok(self.without_store(key, permits, None, takes)),
            CheckedReply::None { for_ns } => Ok(self.without_store(key, permits, for_ns, takes)),
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
