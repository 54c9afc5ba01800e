//! The exact mode: the store decides each call.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::deadline::PendingCall;
use super::decision::{By, Deciding, Decision, Grant};
use super::inner::Inner;
use super::watch::Worth;
use crate::clock::Clock;
use crate::store::{Fault, Key, LeaseId, Question, Reply, Store, Verdict};

impl<S: Store, C: Clock + 'static> Inner<S, C> {
    pub(super) fn exact(
        self: &Arc<Self>,
        key: Key,
        permits: NonZeroU64,
        lease: Option<LeaseId>,
    ) -> Deciding {
        self.ask_store(key, permits, lease, true)
    }

    /// Returns the decision that a call would get, by the store or the fallback. Takes nothing.
    pub(super) fn peek(self: &Arc<Self>, key: Key, permits: NonZeroU64) -> Deciding {
        self.ask_store(key, permits, None, false)
    }

    fn ask_store(
        self: &Arc<Self>,
        key: Key,
        permits: NonZeroU64,
        lease: Option<LeaseId>,
        takes: bool,
    ) -> Deciding {
        let part = self.store.part_of(&key);
        let asked_ns = self.clock.now_ns();
        if let Err(for_ns) = self.watch.pass(part, asked_ns, self.store.revivals(part)) {
            return self.now(Ok(self.without_store(&key, permits, for_ns, takes)));
        }
        let call = PendingCall::new(self, Arc::clone(&key), permits, takes, asked_ns);
        let (told, deciding) = Deciding::later(call);
        let inner = Arc::clone(self);
        let plan = Arc::clone(&self.store_plan);
        let asked_key = Arc::clone(&key);
        let question = if takes {
            Question::Decide { plan, key: asked_key, permits, lease }
        } else {
            Question::Peek { plan, key: asked_key, permits }
        };
        self.store.put(
            question,
            Box::new(move |answer| {
                let (worth, change) =
                    inner.watch.heard(part, asked_ns, inner.clock.now_ns(), answer);
                inner.tell(change);
                let decision = inner.decided(&key, permits, lease, worth, takes);
                inner.tell_caller(told, decision);
            }),
        );
        deciding
    }

    fn decided(
        &self,
        key: &Key,
        permits: NonZeroU64,
        lease: Option<LeaseId>,
        worth: Worth,
        takes: bool,
    ) -> Result<Decision, Fault> {
        match worth {
            Worth::Good(Reply::Verdict(Verdict::Granted(grant))) => {
                // A peek takes nothing that could be refunded.
                let receipt = takes.then_some(grant.receipt);
                let remaining = Some(grant.remaining);
                let until_ns = None;
                Ok(Decision::Granted(Grant { by: By::Store, remaining, receipt, lease, until_ns }))
            }
            Worth::Good(Reply::Verdict(Verdict::Denied(denial))) => {
                let denied = Decision::denied(By::Store, denial.retry_after_ns);
                Ok(denied.leaving(denial.remaining))
            }
            Worth::Good(_) => Ok(self.without_store(key, permits, None, takes)),
            Worth::None { for_ns } => Ok(self.without_store(key, permits, for_ns, takes)),
            Worth::Fault(fault) => Err(fault),
        }
    }

    /// Returns the request that refunds permits of a grant by the store.
    pub(super) fn returned(
        &self,
        key: Key,
        permits: NonZeroU64,
        grant: Grant,
    ) -> Option<Question<S::Plan>> {
        let plan = Arc::clone(&self.store_plan);
        match (grant.lease, grant.receipt) {
            (Some(lease), _) => Some(Question::Release { plan, key, permits, lease }),
            (None, Some(receipt)) => Some(Question::Refund { plan, key, receipt, permits }),
            (None, None) => None,
        }
    }
}
