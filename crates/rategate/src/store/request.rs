//! Requests to a store.

use std::num::NonZeroU64;
use std::sync::Arc;

use rategate_core::debt::Debt;
use rategate_core::node::Heartbeat;

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
    /// pass exceed the limit by no more than come back in it.
    Credit {
        /// The limits; none of them counts permits in flight.
        plan: Arc<P>,
        /// The key.
        key: Key,
        /// The most permits to credit.
        permits: NonZeroU64,
    },
    /// Counts permits that have been used already, whether they fit or not.
    ///
    /// Each limit is charged on its own, and those of permits in flight are left out. Sent twice,
    /// it counts twice.
    Charge {
        /// The limits; at least one of them does not count permits in flight.
        plan: Arc<P>,
        /// The key.
        key: Key,
        /// The number of permits. With 0, the reply only describes the limits.
        permits: u64,
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
    /// Reports that a member of a group is alive, and requests its partition.
    Heartbeat {
        /// The group.
        group: Key,
        /// The member and its numbers.
        heartbeat: Heartbeat,
    },
}

impl<P> StoreRequest<P> {
    /// Returns the key that the request concerns; for a heartbeat, the group.
    #[must_use]
    pub const fn key(&self) -> &Key {
        match self {
            Self::Decide { key, .. }
            | Self::Debit { key, .. }
            | Self::Peek { key, .. }
            | Self::Refund { key, .. }
            | Self::Credit { key, .. }
            | Self::Charge { key, .. }
            | Self::Release { key, .. }
            | Self::Renew { key, .. }
            | Self::Reset { key, .. }
            | Self::Heartbeat { group: key, .. } => key,
        }
    }
}
