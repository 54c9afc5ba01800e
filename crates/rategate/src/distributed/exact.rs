//! Exact: the store decides each call.

use std::num::NonZeroU64;
use std::sync::Arc;

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
        let part = self.store.part_of(&key);
        let asked_ns = self.clock.now_ns();
        if let Err(for_ns) = self.watch.pass(part, asked_ns) {
            return self.now(Ok(self.without_store(&key, permits, for_ns)));
        }
        let (told, heard) = oneshot::channel();
        let inner = Arc::clone(self);
        let plan = Arc::clone(&self.store_plan);
        let question = Question::Decide { plan, key: Arc::clone(&key), permits, lease };
        self.store.put(
            question,
            Box::new(move |answer| {
                let (worth, change) =
                    inner.watch.heard(part, asked_ns, inner.clock.now_ns(), answer);
                inner.tell(change);
                let decision = inner.decided(&key, permits, lease, worth);
                if let Err(unheard) = inner.tell_caller(told, decision) {
                    inner.give_up(key, permits, unheard);
                }
            }),
        );
        Deciding::later(heard)
    }

    fn decided(
        &self,
        key: &Key,
        permits: NonZeroU64,
        lease: Option<LeaseId>,
        worth: Worth,
    ) -> Result<Decision, Fault> {
        match worth {
            Worth::Good(Reply::Verdict(Verdict::Granted(grant))) => {
                let receipt = Some(grant.receipt);
                Ok(Decision::Granted(Grant { by: By::Store, receipt, lease }))
            }
            Worth::Good(Reply::Verdict(Verdict::Denied(denial))) => {
                Ok(Decision::denied(By::Store, denial.retry_after_ns))
            }
            Worth::Good(_) => Ok(self.without_store(key, permits, None)),
            Worth::None { for_ns } => Ok(self.without_store(key, permits, for_ns)),
            Worth::Fault(fault) => Err(fault),
        }
    }

    /// Nobody waits for it any more, so nothing was done with it.
    fn give_up(&self, key: Key, permits: NonZeroU64, decision: Result<Decision, Fault>) {
        if let Ok(Decision::Granted(grant)) = decision
            && let Some(question) = self.returned(key, permits, grant)
        {
            self.store.put(question, Box::new(|_| ()));
        }
    }

    /// What gives permits of a grant of the store's back.
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
