//! Reservations: estimates that are held in the store under an id, until the cost is known.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate_core::span::whole_ns;

use super::inner::Strategy;
use super::{Distributed, partitioned_counts_elsewhere};
use crate::clock::Clock;
use crate::store::{
    ChargeReply, EndReply, Key, Pending, Reply, ReservationEnd, ReservationId, ReserveReply,
    ReserveVerdict, Store, StoreError, StoreExt as _, StoreReply, StoreRequest,
};

impl<S: Store, C: Clock + Clone + 'static> Distributed<S, C> {
    /// Holds an estimate of a key's permits in the store, under every limit or none.
    ///
    /// It is held until its [end](Self::end), or until `ttl` is over by the store's clock, as if it
    /// were cancelled then. No permits are always held, and leave no trace: the end of such a
    /// reservation is unknown.
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
    /// use rategate::store::{EndOutcome, MemoryStore, ReservationEnd, ReservationId, ReserveVerdict};
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
    /// [`StoreError::Exceeds`]; [`StoreError::InvalidRequest`], for a `ttl` of zero, a limit that
    /// counts permits in flight, and a partitioned limit, whose permits are not in the store.
    pub fn reserve(
        &self,
        key: &[u8],
        permits: u64,
        id: ReservationId,
        ttl: Duration,
    ) -> Pending<ReserveReply> {
        if let Err(error) = self.check_reservations() {
            return Pending::failed(error);
        }
        let Some(ttl_ns) = NonZeroU64::new(whole_ns(ttl)) else {
            let why = "a reservation of no time holds nothing: give it a time above zero";
            return Pending::failed(StoreError::InvalidRequest(why.to_owned()));
        };
        let inner = self.inner();
        let (plan, key) = (&inner.store_plan, Key::from(key));
        match NonZeroU64::new(permits) {
            Some(permits) => inner.store.reserve(plan, &key, permits, (id, ttl_ns)),
            None => self.reserve_nothing(key, ttl_ns),
        }
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
        let charge = StoreRequest::Charge { plan, key, permits: 0, debt };
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
    /// # Errors of the reply
    ///
    /// Those of [`Self::reserve`], and [`StoreError::InvalidRequest`] for a debt that the store
    /// cannot carry.
    pub fn end(&self, key: &[u8], id: ReservationId, end: ReservationEnd) -> Pending<EndReply> {
        if let Err(error) = self.check_reservations() {
            return Pending::failed(error);
        }
        let inner = self.inner();
        inner.store.end(&inner.store_plan, &Key::from(key), id, end, inner.debt)
    }

    fn check_reservations(&self) -> Result<(), StoreError> {
        let inner = self.inner();
        if inner.held_ns.is_some() {
            let why = "a limit counts permits in flight: use `hold` instead of `reserve`";
            return Err(StoreError::InvalidRequest(why.to_owned()));
        }
        match inner.strategy {
            Strategy::Partitioned(_) => Err(partitioned_counts_elsewhere()),
            Strategy::Exact | Strategy::Leased(_) => Ok(()),
        }
    }
}
