//! Requests to a store.

use std::num::NonZeroU64;
use std::sync::Arc;

use rategate_core::debt::Debt;

use super::reply::Receipt;
use crate::random::random_id;

/// The key whose limit is meant: any bytes.
pub type Key = Arc<[u8]>;

/// The 128-bit id of a lease, which no other holder has.
///
/// The same id with another number of permits is another lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseId(pub [u8; 16]);

impl LeaseId {
    /// Draws an id from the system's randomness, which no other holder has, in this process or
    /// another.
    #[must_use]
    pub fn random() -> Self {
        Self(random_id())
    }
}

/// The 128-bit id of a reservation, or of a request that counts once, which its caller chooses and
/// no other caller has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReservationId(pub [u8; 16]);

impl ReservationId {
    /// Draws an id from the system's randomness, which no other caller has, in this process or
    /// another.
    #[must_use]
    pub fn random() -> Self {
        Self(random_id())
    }
}

/// The end of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReservationEnd {
    /// As many permits were used; all that were held if `None`.
    Commit {
        /// The permits used.
        used: Option<u64>,
    },
    /// Nothing was used.
    Cancel,
    /// Nothing was used, and the id is unused again: the caller did not get all that it needs.
    ///
    /// Of a reservation that was committed or cancelled it changes nothing.
    Withdraw,
}

/// A request to a store.
#[derive(Clone, Debug)]
pub enum StoreRequest<P> {
    /// Takes all these permits under every limit of the set, or none.
    ///
    /// Repeated while a lease of this id is held, it is granted again, takes nothing, and extends
    /// the lease to its full time from now.
    Decide {
        /// The limits.
        plan: Arc<P>,
        /// The key.
        key: Key,
        /// The number of permits.
        permits: NonZeroU64,
        /// The lease that holds them, where a limit counts permits in flight.
        lease: Option<LeaseId>,
    },
    /// Takes as many of these permits as pass now, at least 1, for a node to grant on its own.
    ///
    /// A denial states when one passes. More than could ever pass together are an error here too.
    Debit {
        /// The limits; none of them counts permits in flight.
        plan: Arc<P>,
        /// The key.
        key: Key,
        /// The most permits to take.
        permits: NonZeroU64,
    },
    /// Returns the reply that [`Decide`](Self::Decide) would get. Takes nothing.
    Peek {
        /// The limits.
        plan: Arc<P>,
        /// The key.
        key: Key,
        /// The number of permits.
        permits: NonZeroU64,
    },
    /// Refunds permits of a grant, which had no effect and will have none, each permit once.
    Refund {
        /// The limits of the grant.
        plan: Arc<P>,
        /// The key.
        key: Key,
        /// The receipt of the grant.
        receipt: Receipt,
        /// The number of permits.
        permits: NonZeroU64,
    },
    /// Credits permits without a grant.
    ///
    /// At most as many come back as have been taken and not earned again, and at most as many per
    /// request as one call can take. The caller vouches for them: in any window, the permits that
    /// pass exceed the limit by no more than come back in it. Sent twice, it counts twice, unless
    /// it has an id.
    Credit {
        /// The limits; none of them counts permits in flight.
        plan: Arc<P>,
        /// The key.
        key: Key,
        /// The most permits to credit.
        permits: NonZeroU64,
        /// The id under which it counts once. It is known for this key only.
        once: Option<ReservationId>,
    },
    /// Counts permits that have been used already, whether they fit or not.
    ///
    /// Each limit is charged on its own, and those of permits in flight are left out. Sent twice,
    /// it counts twice, unless it has an id.
    Charge {
        /// The limits; at least one of them does not count permits in flight.
        plan: Arc<P>,
        /// The key.
        key: Key,
        /// The number of permits. With 0, the reply only describes the limits.
        permits: u64,
        /// The way in which a debt ends.
        debt: Debt,
        /// The id under which it counts once. It is known for this key only, and not remembered
        /// where nothing is charged.
        once: Option<ReservationId>,
    },
    /// Holds an estimate under every limit of the set, or nothing, until its [end](Self::End) or
    /// until its time is over.
    ///
    /// Sent again under its id it holds nothing more, does not prolong the time, and gets the
    /// first verdict. A denial leaves the id unused.
    Reserve {
        /// The limits; none of them counts permits in flight.
        plan: Arc<P>,
        /// The key.
        key: Key,
        /// The estimate.
        permits: NonZeroU64,
        /// The id of the reservation. It is known for this key only.
        id: ReservationId,
        /// The time after which the reservation ends by itself, as if cancelled then.
        ttl_ns: NonZeroU64,
        /// The permits of each limit that reservations leave free: the estimate is held only where
        /// as many more would pass. 0 for all of the limit.
        spared: u64,
    },
    /// Ends a reservation: an excess comes back, a shortfall is charged.
    ///
    /// After the reservation's time, all that was used is charged. Sent again it changes nothing,
    /// and gets the first outcome.
    End {
        /// The limits of the reservation.
        plan: Arc<P>,
        /// The key.
        key: Key,
        /// The id of the reservation.
        id: ReservationId,
        /// The permits that were used.
        end: ReservationEnd,
        /// The way in which a debt ends.
        debt: Debt,
    },
    /// Ends permits in flight. A second time does nothing.
    Release {
        /// The limits of the grant.
        plan: Arc<P>,
        /// The key.
        key: Key,
        /// The number of permits granted.
        permits: NonZeroU64,
        /// The lease.
        lease: LeaseId,
    },
    /// Renews permits in flight for their full time from now.
    Renew {
        /// The limits of the grant.
        plan: Arc<P>,
        /// The key.
        key: Key,
        /// The number of permits granted.
        permits: NonZeroU64,
        /// The lease.
        lease: LeaseId,
    },
    /// Resets the key, as if it had used nothing.
    Reset {
        /// The limits.
        plan: Arc<P>,
        /// The key.
        key: Key,
    },
}

impl<P> StoreRequest<P> {
    /// Returns the key that the request concerns.
    #[must_use]
    pub const fn key(&self) -> &Key {
        match self {
            Self::Decide { key, .. }
            | Self::Debit { key, .. }
            | Self::Peek { key, .. }
            | Self::Refund { key, .. }
            | Self::Credit { key, .. }
            | Self::Charge { key, .. }
            | Self::Reserve { key, .. }
            | Self::End { key, .. }
            | Self::Release { key, .. }
            | Self::Renew { key, .. }
            | Self::Reset { key, .. } => key,
        }
    }
}
