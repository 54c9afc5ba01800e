//! Charges and credits that count once under an id.

use std::num::NonZeroU64;

use super::Distributed;
use crate::clock::Clock;
use crate::store::{ChargeReply, CreditReply, Key, Pending, ReservationId, Store, StoreExt as _};

impl<S: Store, C: Clock + Clone + 'static> Distributed<S, C> {
    /// [Charges](Self::charge) permits once: the same again under its id changes nothing.
    ///
    /// After [`StoreError::Unavailable`](crate::store::StoreError::Unavailable) the caller sends it
    /// again under the same id. The store remembers the id of a key for ten minutes, and loses it
    /// together with the charge, if it loses data.
    ///
    /// ```
    /// use std::num::NonZeroU64;
    /// use std::sync::Arc;
    ///
    /// use rategate::distributed::Distributed;
    /// use rategate::store::{MemoryStore, ReservationId};
    /// use rategate::{Gcra, ManualClock};
    ///
    /// let store = Arc::new(MemoryStore::with_clock(ManualClock::new()));
    /// let tokens = Distributed::builder(store)
    ///     .limit("tokens", Gcra::per_second(1000).burst(1000))
    ///     .build()?;
    /// let (id, cost) = (ReservationId::random(), NonZeroU64::new(1700).ok_or("no cost")?);
    /// assert_eq!(tokens.charge_once(b"tenant 1", cost, id).wait()?.charged.debt, 700);
    /// // The first reply was lost on the way to the caller.
    /// assert!(tokens.charge_once(b"tenant 1", cost, id).wait()?.is_repeated);
    /// assert_eq!(tokens.charge(b"tenant 1", NonZeroU64::MIN).wait()?.charged.debt, 701);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors of the reply
    ///
    /// Those of [`charge`](Self::charge), and
    /// [`StoreError::OtherRequest`](crate::store::StoreError::OtherRequest).
    pub fn charge_once(
        &self,
        key: &[u8],
        permits: NonZeroU64,
        id: ReservationId,
    ) -> Pending<ChargeReply> {
        let inner = self.inner();
        let charge = (permits.get(), id);
        inner.store.charge_once(&inner.store_plan, &Key::from(key), charge, inner.debt)
    }

    /// [Credits](Self::credit) permits once: the same again under its id changes nothing.
    ///
    /// # Errors of the reply
    ///
    /// [`StoreError::OtherRequest`](crate::store::StoreError::OtherRequest).
    pub fn credit_once(
        &self,
        key: &[u8],
        permits: NonZeroU64,
        id: ReservationId,
    ) -> Pending<CreditReply> {
        let inner = self.inner();
        inner.store.credit_once(&inner.store_plan, &Key::from(key), permits, id)
    }
}
