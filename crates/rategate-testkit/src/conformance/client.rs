//! A client that asks a store about one key, and waits for the replies.

use std::num::NonZeroU64;
use std::sync::Arc;

use rategate::charge::Debt;
use rategate::store::{
    ChargeReply, CreditReply, Denial, EndReply, Grant, Key, LeaseId, Receipt, ReservationEnd,
    ReservationId, ReserveReply, Rule, Store, StoreError, StoreExt as _, StoreRequest, Verdict,
};

type Replied<T> = Result<T, StoreError>;

/// A client of a store that sends requests about one key.
pub(crate) struct StoreClient<S: Store> {
    store: Arc<S>,
    plan: Arc<S::Plan>,
    key: Key,
}

impl<S: Store> StoreClient<S> {
    /// Returns a client for these limits of a key.
    pub(crate) fn new(store: &Arc<S>, rules: &[(&str, Rule)], key: &str) -> Self {
        let plan = Arc::new(store.plan(rules).unwrap());
        Self { store: Arc::clone(store), plan, key: key.as_bytes().into() }
    }

    /// Returns a client for another key, under the same limits.
    #[must_use]
    pub(crate) fn with_key(&self, key: &str) -> Self {
        let (store, plan) = (Arc::clone(&self.store), Arc::clone(&self.plan));
        Self { store, plan, key: key.as_bytes().into() }
    }

    /// Decides a request for permits.
    pub(crate) fn decide(&self, permits: u64) -> Replied<Verdict> {
        self.store.decide(&self.plan, &self.key, number(permits)).wait()
    }

    /// Decides a request for permits in flight.
    pub(crate) fn hold(&self, permits: u64, lease: LeaseId) -> Replied<Verdict> {
        self.store.hold(&self.plan, &self.key, number(permits), lease).wait()
    }

    /// Takes as many of the permits as pass.
    pub(crate) fn debit(&self, permits: u64) -> Replied<Verdict> {
        self.store.debit(&self.plan, &self.key, number(permits)).wait()
    }

    /// Returns the decision that a request would have, without taking permits.
    pub(crate) fn peek(&self, permits: u64) -> Replied<Verdict> {
        self.store.peek(&self.plan, &self.key, number(permits)).wait()
    }

    /// Refunds permits of a grant.
    pub(crate) fn refund(&self, receipt: &Receipt, permits: u64) -> Replied<u64> {
        self.store.refund(&self.plan, &self.key, receipt.clone(), number(permits)).wait()
    }

    /// Credits permits without a grant.
    pub(crate) fn credit(&self, permits: u64) -> Replied<u64> {
        self.store.credit(&self.plan, &self.key, number(permits)).wait()
    }

    /// Credits permits without a grant, once under an id.
    pub(crate) fn credit_once(&self, permits: u64, id: ReservationId) -> Replied<CreditReply> {
        self.store.credit_once(&self.plan, &self.key, number(permits), id).wait()
    }

    /// Charges permits that were used already.
    pub(crate) fn charge(&self, permits: u64, debt: Debt) -> Replied<ChargeReply> {
        self.store.charge(&self.plan, &self.key, permits, debt).wait()
    }

    /// Charges permits that were used already, once under an id.
    pub(crate) fn charge_once(
        &self,
        permits: u64,
        debt: Debt,
        id: ReservationId,
    ) -> Replied<ChargeReply> {
        self.store.charge_once(&self.plan, &self.key, (permits, id), debt).wait()
    }

    /// Holds an estimate under an id, for so many microseconds.
    pub(crate) fn reserve(
        &self,
        permits: u64,
        id: ReservationId,
        ttl_us: u64,
    ) -> Replied<ReserveReply> {
        self.reserve_sparing((permits, 0), id, ttl_us)
    }

    /// Holds an estimate under an id, for so many microseconds, where as many more permits as are
    /// spared would pass.
    pub(crate) fn reserve_sparing(
        &self,
        (permits, spared): (u64, u64),
        id: ReservationId,
        ttl_us: u64,
    ) -> Replied<ReserveReply> {
        let (plan, key) = (Arc::clone(&self.plan), Arc::clone(&self.key));
        let (permits, ttl_ns) = (number(permits), number(ttl_us * 1_000));
        let request = StoreRequest::Reserve { plan, key, permits, id, ttl_ns, spared };
        let reply = self.store.call(request).wait();
        reply.map(|reply| reply.reserved().expect("a reply that is not to a reservation"))
    }

    /// Ends a reservation.
    pub(crate) fn end(
        &self,
        id: ReservationId,
        end: ReservationEnd,
        debt: Debt,
    ) -> Replied<EndReply> {
        self.store.end(&self.plan, &self.key, id, end, debt).wait()
    }

    /// Ends permits in flight.
    pub(crate) fn release(&self, permits: u64, lease: LeaseId) -> Replied<u64> {
        self.store.release(&self.plan, &self.key, number(permits), lease).wait()
    }

    /// Extends the lease of permits in flight.
    pub(crate) fn renew(&self, permits: u64, lease: LeaseId) -> Replied<u64> {
        self.store.renew(&self.plan, &self.key, number(permits), lease).wait()
    }

    /// Drops the states of the key.
    pub(crate) fn reset(&self) -> Replied<u64> {
        self.store.reset(&self.plan, &self.key).wait()
    }

    /// Decides a request that must be granted.
    pub(crate) fn granted(&self, permits: u64) -> Grant {
        granted(self.decide(permits).unwrap())
    }

    /// Decides a request that must be denied.
    pub(crate) fn denied(&self, permits: u64) -> Denial {
        denied(self.decide(permits).unwrap())
    }

    /// Returns the number of permits that one call could take.
    pub(crate) fn remaining(&self) -> u64 {
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

/// Returns an id of requests that count once.
pub(crate) fn id_of(number: u64) -> ReservationId {
    let mut bytes = [5; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    ReservationId(bytes)
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
