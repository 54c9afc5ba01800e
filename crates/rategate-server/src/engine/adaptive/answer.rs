//! The requests to an adaptive store: the store of the holders replies, and then the limit decides.

use std::num::NonZeroU64;
use std::sync::Arc;

use rategate::charge::Debt;
use rategate::error::ExceedsCapacity;
use rategate::store::{
    Callback, Denial, EndOutcome, Key, LeaseId, MemoryPlan, PlanError, Reply, ReservationEnd,
    ReserveVerdict, Rule as StoreRule, Store, StoreError, StoreReply, StoreRequest, Unavailable,
    Verdict,
};
use rategate::{Clock, Share};

use super::tracked::Ending;
use super::{AdaptiveStore, Holder, Inner};

/// An adaptive store as the calls of one share of its limits see it.
pub(in crate::engine) struct InShare<C> {
    pub(in crate::engine) store: Arc<AdaptiveStore<C>>,
    pub(in crate::engine) share: Share,
}

impl<C: Clock + 'static> AdaptiveStore<C> {
    /// Asks the store of the holders, which replies at once.
    fn ask(&self, request: StoreRequest<MemoryPlan>) -> Result<StoreReply, StoreError> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let callback = move |reply| {
            // The receiver is there until the store has replied.
            let _ = sender.send(reply);
        };
        self.store.submit(request, Box::new(callback));
        let none = || StoreError::Unavailable(Unavailable::Late);
        receiver.try_recv().unwrap_or_else(|_| Err(none()))
    }

    /// Replies to a request whose start has to fit into a share of the limit.
    fn answer(
        &self,
        request: StoreRequest<MemoryPlan>,
        share: Share,
    ) -> Result<StoreReply, StoreError> {
        let mut inner = self.lock();
        let key = Key::clone(request.key());
        let mut reply = match request {
            StoreRequest::Decide { plan, key, permits, lease: Some(lease) } => {
                self.decide(&mut inner, (plan, &key), (permits, share), lease)?
            }
            StoreRequest::Peek { plan, key, permits } => {
                let mut reply =
                    self.ask(StoreRequest::Peek { plan, key: Key::clone(&key), permits })?;
                if inner.room(&key, share) < permits.get() {
                    let retry_after_ns = inner.wait_ns(&key, permits.get(), share);
                    reply.reply = denied(retry_after_ns);
                }
                reply
            }
            StoreRequest::Reserve { plan, key, permits, id, ttl_ns, spared } => {
                inner.check(permits)?;
                let until_ns = inner.now_ns.saturating_add(ttl_ns.get());
                let same_key = Key::clone(&key);
                let (own, debt) = (Arc::clone(&plan), Debt::FORGOTTEN);
                let mut reply = self.ask(StoreRequest::Reserve {
                    plan,
                    key: same_key,
                    permits,
                    id,
                    ttl_ns,
                    spared,
                })?;
                if let Reply::Reserved(reserved) = &mut reply.reply
                    && matches!(reserved.verdict, ReserveVerdict::Held { .. })
                    && !reserved.is_repeated
                {
                    if let Some(fills_share) = inner.fit(&key, permits, share) {
                        let holder = Holder::reservation(id);
                        inner.begin(&key, holder, (permits, until_ns), fills_share);
                    } else {
                        let retry_after_ns = inner.wait_ns(&key, permits.get(), share);
                        reserved.verdict = ReserveVerdict::Denied { retry_after_ns };
                        let (key, end) = (Key::clone(&key), ReservationEnd::Withdraw);
                        self.ask(StoreRequest::End { plan: own, key, id, end, debt })?;
                    }
                }
                reply
            }
            StoreRequest::End { plan, key, id, end, debt } => {
                let same_key = Key::clone(&key);
                let reply = self.ask(StoreRequest::End { plan, key: same_key, id, end, debt })?;
                if let Reply::Ended(ended) = &reply.reply
                    && ended.outcome != EndOutcome::Unknown
                {
                    inner.end(&key, Holder::reservation(id), Ending::Ended);
                }
                reply
            }
            StoreRequest::Release { plan, key, permits, lease } => {
                let same_key = Key::clone(&key);
                let reply =
                    self.ask(StoreRequest::Release { plan, key: same_key, permits, lease })?;
                inner.end(&key, Holder::lease(lease, permits), Ending::Ended);
                reply
            }
            StoreRequest::Renew { plan, key, permits, lease } => {
                let same_key = Key::clone(&key);
                let reply =
                    self.ask(StoreRequest::Renew { plan, key: same_key, permits, lease })?;
                if reply.reply != Reply::Count(0) {
                    inner.renew(&key, Holder::lease(lease, permits), permits);
                }
                reply
            }
            StoreRequest::Reset { plan, key } => {
                inner.forget(&key);
                self.ask(StoreRequest::Reset { plan, key })?
            }
            other => self.ask(other)?,
        };
        let room = inner.room(&key, share);
        drop(inner);
        match &mut reply.reply {
            Reply::Verdict(Verdict::Granted(grant)) => grant.remaining = room,
            Reply::Verdict(Verdict::Denied(denial)) => denial.remaining = room,
            Reply::Reserved(reserved) => reserved.remaining = room,
            Reply::Ended(ended) => ended.remaining = room,
            _ => {}
        }
        Ok(reply)
    }

    fn decide(
        &self,
        inner: &mut Inner,
        (plan, key): (Arc<MemoryPlan>, &Key),
        (permits, share): (NonZeroU64, Share),
        lease: LeaseId,
    ) -> Result<StoreReply, StoreError> {
        inner.check(permits)?;
        let holder = Holder::lease(lease, permits);
        let (own, same_key) = (Arc::clone(&plan), Key::clone(key));
        let request = StoreRequest::Decide { plan, key: same_key, permits, lease: Some(lease) };
        let mut reply = self.ask(request)?;
        let Reply::Verdict(Verdict::Granted(grant)) = &reply.reply else { return Ok(reply) };
        if grant.is_repeated {
            inner.renew(key, holder, permits);
        } else if let Some(fills_share) = inner.fit(key, permits, share) {
            let until_ns = inner.now_ns.saturating_add(inner.held_ns);
            inner.begin(key, holder, (permits, until_ns), fills_share);
        } else {
            let key_again = Key::clone(key);
            self.ask(StoreRequest::Release { plan: own, key: key_again, permits, lease })?;
            reply.reply = denied(inner.wait_ns(key, permits.get(), share));
        }
        Ok(reply)
    }
}

impl Inner {
    /// Refuses a request for more than the floor: the limit may never be that high again.
    fn check(&self, permits: NonZeroU64) -> Result<(), StoreError> {
        let floor = u64::from(self.policy.adaptation().bounds().floor());
        if permits.get() > floor && !self.is_restoring {
            return Err(StoreError::Exceeds(ExceedsCapacity::new(permits.get(), floor)));
        }
        Ok(())
    }
}

const fn denied(retry_after_ns: Option<NonZeroU64>) -> Reply {
    Reply::Verdict(Verdict::Denied(Denial { retry_after_ns, remaining: 0, debt: 0 }))
}

impl<C: Clock + 'static> Store for InShare<C> {
    type Plan = MemoryPlan;

    fn plan(&self, rules: &[(&str, StoreRule)]) -> Result<MemoryPlan, PlanError> {
        self.store.store.plan(rules)
    }

    /// Calls `callback` before it returns, with no lock held.
    fn submit(&self, request: StoreRequest<MemoryPlan>, callback: Callback) {
        callback(self.store.answer(request, self.share));
    }
}
