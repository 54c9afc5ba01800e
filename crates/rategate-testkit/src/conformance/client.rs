//! A client that submits requests to a store by its one verb, and waits for the replies.

use std::num::NonZeroU64;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rategate::charge::Debt;
use rategate::store::{
    ChargeReply, CreditReply, Denial, EndReply, Grant, Key, LeaseId, Receipt, ReservationEnd,
    ReservationId, ReserveReply, Rule, Store, StoreError, StoreReply, StoreRequest, Verdict,
};

/// A time longer than any store's budget.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client of a store that sends requests about one key.
pub struct StoreClient<S: Store> {
    store: Arc<S>,
    plan: Arc<S::Plan>,
    key: Key,
}

// A plan need not be `Debug`.
impl<S: Store> std::fmt::Debug for StoreClient<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreClient").field("key", &self.key).finish_non_exhaustive()
    }
}

impl<S: Store> StoreClient<S> {
    /// Returns a client for these limits of a key.
    pub fn new(store: &Arc<S>, rules: &[(&str, Rule)], key: &str) -> Self {
        let plan = Arc::new(store.plan(rules).unwrap());
        Self { store: Arc::clone(store), plan, key: key.as_bytes().into() }
    }

    /// Returns a client for another key, under the same limits.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        let (store, plan) = (Arc::clone(&self.store), Arc::clone(&self.plan));
        Self { store, plan, key: key.as_bytes().into() }
    }

    /// Returns the plan and the key, for requests of the caller's own.
    pub fn plan_and_key(&self) -> (Arc<S::Plan>, Key) {
        (Arc::clone(&self.plan), Arc::clone(&self.key))
    }

    /// Submits a request and waits for its reply, which comes exactly once.
    pub fn submit(&self, request: StoreRequest<S::Plan>) -> Result<StoreReply, StoreError> {
        let (sender, receiver) = mpsc::channel();
        self.store.submit(
            request,
            Box::new(move |answer| {
                let _ = sender.send(answer);
            }),
        );
        let answer = receiver.recv_timeout(PATIENCE);
        answer.expect("the store did not call back within its budget")
    }

    fn verdict(&self, request: StoreRequest<S::Plan>) -> Result<Verdict, StoreError> {
        self.submit(request).map(|answer| answer.verdict().expect("a reply that is no verdict"))
    }

    fn count(&self, request: StoreRequest<S::Plan>) -> Result<u64, StoreError> {
        self.submit(request).map(|answer| answer.count().expect("a reply that is no count"))
    }

    /// Decides a request for permits.
    pub fn decide(&self, permits: u64) -> Result<Verdict, StoreError> {
        self.decide_as(permits, None)
    }

    /// Decides a request for permits in flight.
    pub fn hold(&self, permits: u64, lease: LeaseId) -> Result<Verdict, StoreError> {
        self.decide_as(permits, Some(lease))
    }

    fn decide_as(&self, permits: u64, lease: Option<LeaseId>) -> Result<Verdict, StoreError> {
        let ((plan, key), permits) = (self.plan_and_key(), number(permits));
        self.verdict(StoreRequest::Decide { plan, key, permits, lease })
    }

    /// Takes as many of the permits as pass.
    pub fn debit(&self, permits: u64) -> Result<Verdict, StoreError> {
        let ((plan, key), permits) = (self.plan_and_key(), number(permits));
        self.verdict(StoreRequest::Debit { plan, key, permits })
    }

    /// Returns the decision that a request would have, without taking permits.
    pub fn peek(&self, permits: u64) -> Result<Verdict, StoreError> {
        let ((plan, key), permits) = (self.plan_and_key(), number(permits));
        self.verdict(StoreRequest::Peek { plan, key, permits })
    }

    /// Refunds permits of a grant.
    pub fn refund(&self, receipt: &Receipt, permits: u64) -> Result<u64, StoreError> {
        let ((plan, key), permits) = (self.plan_and_key(), number(permits));
        let receipt = receipt.clone();
        self.count(StoreRequest::Refund { plan, key, receipt, permits })
    }

    /// Credits permits without a grant.
    pub fn credit(&self, permits: u64) -> Result<u64, StoreError> {
        let ((plan, key), permits) = (self.plan_and_key(), number(permits));
        let reply = self.submit(StoreRequest::Credit { plan, key, permits, once: None });
        reply.map(|reply| reply.credited().expect("a reply that is no outcome of a credit").permits)
    }

    /// Credits permits without a grant, once under an id.
    pub fn credit_once(&self, permits: u64, id: ReservationId) -> Result<CreditReply, StoreError> {
        let ((plan, key), permits) = (self.plan_and_key(), number(permits));
        let reply = self.submit(StoreRequest::Credit { plan, key, permits, once: Some(id) });
        reply.map(|reply| reply.credited().expect("a reply that is no outcome of a credit"))
    }

    /// Charges permits that were used already.
    pub fn charge(&self, permits: u64, debt: Debt) -> Result<ChargeReply, StoreError> {
        self.charge_as(permits, debt, None)
    }

    /// Charges permits that were used already, once under an id.
    pub fn charge_once(
        &self,
        permits: u64,
        debt: Debt,
        id: ReservationId,
    ) -> Result<ChargeReply, StoreError> {
        self.charge_as(permits, debt, Some(id))
    }

    fn charge_as(
        &self,
        permits: u64,
        debt: Debt,
        once: Option<ReservationId>,
    ) -> Result<ChargeReply, StoreError> {
        let (plan, key) = self.plan_and_key();
        let reply = self.submit(StoreRequest::Charge { plan, key, permits, debt, once });
        reply.map(|reply| reply.charged().expect("a reply that is no outcome of a charge"))
    }

    /// Holds an estimate under an id, for so many microseconds.
    pub fn reserve(
        &self,
        permits: u64,
        id: ReservationId,
        ttl_us: u64,
    ) -> Result<ReserveReply, StoreError> {
        self.reserve_sparing(permits, id, ttl_us, 0)
    }

    /// Holds an estimate under an id, for so many microseconds, where as many more permits as are
    /// spared would pass.
    pub fn reserve_sparing(
        &self,
        permits: u64,
        id: ReservationId,
        ttl_us: u64,
        spared: u64,
    ) -> Result<ReserveReply, StoreError> {
        let ((plan, key), permits) = (self.plan_and_key(), number(permits));
        let ttl_ns = number(ttl_us * 1_000);
        let reply = self.submit(StoreRequest::Reserve { plan, key, permits, id, ttl_ns, spared });
        reply.map(|reply| reply.reserved().expect("a reply that is not to a reservation"))
    }

    /// Ends a reservation.
    pub fn end(
        &self,
        id: ReservationId,
        end: ReservationEnd,
        debt: Debt,
    ) -> Result<EndReply, StoreError> {
        let (plan, key) = self.plan_and_key();
        let reply = self.submit(StoreRequest::End { plan, key, id, end, debt });
        reply.map(|reply| reply.ended().expect("a reply that is not to an end"))
    }

    /// Ends permits in flight.
    pub fn release(&self, permits: u64, lease: LeaseId) -> Result<u64, StoreError> {
        let ((plan, key), permits) = (self.plan_and_key(), number(permits));
        self.count(StoreRequest::Release { plan, key, permits, lease })
    }

    /// Extends the lease of permits in flight.
    pub fn renew(&self, permits: u64, lease: LeaseId) -> Result<u64, StoreError> {
        let ((plan, key), permits) = (self.plan_and_key(), number(permits));
        self.count(StoreRequest::Renew { plan, key, permits, lease })
    }

    /// Drops the states of the key.
    pub fn reset(&self) -> Result<u64, StoreError> {
        let (plan, key) = self.plan_and_key();
        self.count(StoreRequest::Reset { plan, key })
    }

    /// Decides a request that must be granted.
    pub fn granted(&self, permits: u64) -> Grant {
        granted(self.decide(permits).unwrap())
    }

    /// Decides a request that must be denied.
    pub fn denied(&self, permits: u64) -> Denial {
        denied(self.decide(permits).unwrap())
    }

    /// Returns the number of permits that one call could take.
    pub fn remaining(&self) -> u64 {
        match self.peek(1).unwrap() {
            Verdict::Granted(grant) => grant.remaining,
            Verdict::Denied(denial) => denial.remaining,
        }
    }
}

/// Returns a number of permits or a time, which is not zero.
pub(crate) fn number(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).expect("a request for 0 permits or no time; it must be at least 1")
}

/// Returns the wait that a denial reports, in microseconds, the unit of the slowest clock.
pub(crate) fn wait_us(denial: Denial) -> Option<u64> {
    denial.retry_after_ns.map(|ns| ns.get().div_ceil(1_000))
}

/// Returns the grant of a verdict that must be one.
#[track_caller]
pub fn granted(verdict: Verdict) -> Grant {
    match verdict {
        Verdict::Granted(grant) => grant,
        Verdict::Denied(denial) => panic!("{denial:?}"),
    }
}

/// Returns the denial of a verdict that must be one.
#[track_caller]
pub fn denied(verdict: Verdict) -> Denial {
    match verdict {
        Verdict::Denied(denial) => denial,
        Verdict::Granted(grant) => panic!("{grant:?}"),
    }
}
