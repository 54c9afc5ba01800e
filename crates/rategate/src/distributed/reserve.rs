//! Reservations: estimates that are held in the store under an id, until the cost is known.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate_core::span::whole_ns;

use super::Distributed;
use super::held::Estimate;
use super::inner::leased::Entry;
use super::inner::{Inner, Strategy};
use crate::clock::Clock;
use crate::store::{
    ChargeReply, EndReply, Key, Pending, Reply, ReservationEnd, ReservationId, ReserveReply,
    ReserveVerdict, Store, StoreError, StoreExt as _, StoreReply, StoreRequest, Unavailable,
};

impl<S: Store, C: Clock + Clone + 'static> Distributed<S, C> {
    /// Holds an estimate of a key's permits, under every limit or none.
    ///
    /// It is held until its [end](Self::end), or until `ttl` is over by the store's clock, as if it
    /// were cancelled then. In [`Leased`](super::Mode::Leased) mode this node holds what fits its
    /// borrowed permits, without a round trip and by its own clock, and ends it by itself; the
    /// store holds the rest. No permits are always held, and leave no trace: the end of such a
    /// reservation is unknown. Permits in flight come back whole at any end, whatever was used.
    ///
    /// The circuit breaker and the fallback play no part: only the store can hold what other nodes
    /// respect. After [`StoreError::Unavailable`] the caller may send the request again **under the
    /// same id**: it is held once. Dropping the future ends nothing. After a denial, the id may be
    /// used again.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use rategate::distributed::Distributed;
    /// use rategate::store::{
    ///     EndOutcome, MemoryStore, ReservationEnd, ReservationId, ReserveVerdict,
    /// };
    /// use rategate::charge::Settled;
    /// use rategate::{Gcra, ManualClock};
    ///
    /// // 1000 tokens a minute. A model's reply costs at most 800.
    /// let store = Arc::new(MemoryStore::with_clock(ManualClock::new()));
    /// let tokens = Distributed::builder(store)
    ///     .limit("tokens", Gcra::per_minute(1000).burst(1000))
    ///     .build()?;
    /// let (id, ttl) = (ReservationId::random(), Duration::from_secs(30));
    /// let held = tokens.reserve(b"tenant 1", 800, id, ttl).wait()?;
    /// assert!(matches!(held.verdict, ReserveVerdict::Held { .. }));
    /// assert!(!tokens.try_acquire(b"tenant 1", 500).wait()?.is_granted());
    ///
    /// // It has cost 300. Whatever is lost on the way, the end may be sent again.
    /// let end = ReservationEnd::Commit { used: Some(300) };
    /// let ended = tokens.end(b"tenant 1", id, end).wait()?;
    /// assert_eq!(ended.outcome, EndOutcome::Committed(Settled::Back { permits: 500 }));
    /// assert!(tokens.end(b"tenant 1", id, end).wait()?.is_repeated);
    /// assert!(tokens.try_acquire(b"tenant 1", 500).wait()?.is_granted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors of the reply
    ///
    /// [`StoreError::Exceeds`]; [`StoreError::InvalidRequest`], for a `ttl` of zero;
    /// [`StoreError::CountsInFlight`], for no permits of limits that count permits in flight and nothing else.
    pub fn reserve(
        &self,
        key: &[u8],
        permits: u64,
        id: ReservationId,
        ttl: Duration,
    ) -> Pending<ReserveReply> {
        self.reserve_sparing(key, (permits, 0), id, ttl)
    }

    /// [Holds](Self::reserve) an estimate of `permits` where as many more as are spared would pass:
    /// of a limit that grants more than it should, such as a window that only counts.
    ///
    /// Unless no permits are spared, the store holds it in any mode.
    pub fn reserve_sparing(
        &self,
        key: &[u8],
        (permits, spared): (u64, u64),
        id: ReservationId,
        ttl: Duration,
    ) -> Pending<ReserveReply> {
        let Some(ttl_ns) = NonZeroU64::new(whole_ns(ttl)) else {
            let why = "a reservation of no time holds nothing: give it a time above zero";
            return Pending::failed(StoreError::InvalidRequest(why.to_owned()));
        };
        let (inner, key) = (self.inner(), Key::from(key));
        let Some(permits) = NonZeroU64::new(permits) else {
            return self.reserve_nothing(key, ttl_ns);
        };
        let estimate = Estimate { permits, id, ttl_ns };
        let leasing = match &inner.strategy {
            Strategy::Leased(leasing) if spared == 0 => leasing,
            _ => return self.reserve_at_store(key, (estimate, spared), None),
        };
        if let Err(Err(exceeds)) = inner.checked_permits(permits.get()) {
            return Pending::failed(exceeds);
        }
        // Without capacity for the key's leases the store decides.
        let entry = leasing.entry(&key, inner);
        let borrowed = entry.as_ref().and_then(|entry| inner.reserve_borrowed(entry, estimate));
        match borrowed {
            Some(reply) => here(StoreReply::reserved, Reply::Reserved(reply)),
            None => self.reserve_at_store(key, (estimate, 0), entry),
        }
    }

    /// Sends a reservation to the store. `entry` is where this node notes that it may be there.
    fn reserve_at_store(
        &self,
        key: Key,
        (estimate, spared): (Estimate, u64),
        entry: Option<Arc<Entry>>,
    ) -> Pending<ReserveReply> {
        let inner = Arc::clone(self.inner());
        let Estimate { permits, id, ttl_ns } = estimate;
        let (store, plan) = (Arc::clone(&inner.store), Arc::clone(&inner.store_plan));
        let request = StoreRequest::Reserve { plan, key, permits, id, ttl_ns, spared };
        Pending::requested(StoreReply::reserved, |callback| {
            let receive = move |reply: Result<StoreReply, StoreError>| {
                let reply = reply.and_then(|reply| inner.trusted(reply));
                if let Some(entry) = entry.filter(|_| leaves_nothing(&reply)) {
                    entry.not_at_store(id);
                }
                callback(reply);
            };
            store.submit(request, Box::new(receive));
        })
    }

    /// Returns the reply to a reservation of no permits: the numbers of a charge of none.
    fn reserve_nothing(&self, key: Key, ends_in_ns: NonZeroU64) -> Pending<ReserveReply> {
        let inner = self.inner();
        let (plan, debt) = (Arc::clone(&inner.store_plan), inner.debt);
        let held = move |reply: StoreReply| match reply.reply {
            Reply::Charged(ChargeReply { charged, remaining, .. }) => {
                let verdict = ReserveVerdict::Held { ends_in_ns };
                let (is_repeated, debt) = (false, charged.debt);
                let reserved = ReserveReply { verdict, is_repeated, remaining, debt };
                StoreReply { reply: Reply::Reserved(reserved), ..reply }
            }
            _ => reply,
        };
        let charge = StoreRequest::Charge { plan, key, permits: 0, debt, once: None };
        Pending::requested(StoreReply::reserved, |callback| {
            inner.store.submit(charge, Box::new(move |reply| callback(reply.map(held))));
        })
    }

    /// Ends a [reservation](Self::reserve): an excess comes back, and a shortfall is charged.
    ///
    /// After its time all that was used is charged, once. An unknown id changes nothing: the store
    /// has lost it, or has forgotten it, so the caller [charges](Self::charge) what was used. After
    /// [`StoreError::Unavailable`] the caller may send the request again: it counts once, and the
    /// reply is that to the first.
    ///
    /// What this node holds in borrowed permits is ended here, and by no other node. What was used
    /// beyond is taken from its borrowed permits, and then charged to the store once it can be
    /// reached: see [`Counts::waiting_charges`](super::Counts::waiting_charges). The numbers of
    /// such a reply are those of the borrowed permits, which have no debt.
    ///
    /// # Errors of the reply
    ///
    /// Those of [`Self::reserve`], and [`StoreError::InvalidRequest`] for a debt that the store
    /// cannot carry.
    pub fn end(&self, key: &[u8], id: ReservationId, end: ReservationEnd) -> Pending<EndReply> {
        let (inner, key) = (self.inner(), Key::from(key));
        if let Strategy::Leased(leasing) = &inner.strategy
            && let Some(entry) = leasing.known(&key)
            && let Some(reply) = inner.end_borrowed(&entry, id, end)
        {
            return here(StoreReply::ended, Reply::Ended(reply));
        }
        inner.store.end(&inner.store_plan, &key, id, end, inner.debt)
    }
}

impl<S: Store, C: Clock + 'static> Inner<S, C> {
    /// Returns a store's reply to a reservation, unless the store may have lost grants that still
    /// matter.
    ///
    /// # Errors
    ///
    /// [`Unavailable::Unable`]: the reservation may be sent again.
    fn trusted(&self, reply: StoreReply) -> Result<StoreReply, StoreError> {
        match (&reply.reply, self.watch.quarantine_left(reply.intact_for_ns)) {
            (
                Reply::Reserved(ReserveReply { verdict: ReserveVerdict::Held { .. }, .. }),
                Some(left_ns),
            ) => Err(StoreError::Unavailable(Unavailable::Unable(format!(
                "the store may have lost grants, so none of it counts for another {left_ns} ns"
            )))),
            _ => Ok(reply),
        }
    }
}

/// Returns `true` if the store certainly holds nothing after this reply to a reservation.
fn leaves_nothing(reply: &Result<StoreReply, StoreError>) -> bool {
    match reply {
        Ok(StoreReply { reply: Reply::Reserved(reserved), .. }) => {
            matches!(reserved.verdict, ReserveVerdict::Denied { .. })
        }
        Ok(_) | Err(StoreError::Unavailable(_) | StoreError::Closed) => false,
        Err(_) => true,
    }
}

/// Creates a reply of this node.
fn here<A>(read: fn(StoreReply) -> Option<A>, reply: Reply) -> Pending<A> {
    Pending::requested(read, |callback| {
        callback(Ok(StoreReply { reply, intact_for_ns: None, now_ns: None }));
    })
}
