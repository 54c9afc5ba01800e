//! What a store is asked.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::reply::Receipt;
use crate::random::random_id;

/// Whose limit it is: any bytes.
pub type Key = Arc<[u8]>;

/// The name of permits in flight: 128 bits that no other holder has. With another number of permits the same name
/// is another lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseId(pub [u8; 16]);

impl LeaseId {
    /// Draws a name that no other holder has, in this process or another, by the system's randomness.
    #[must_use]
    pub fn random() -> Self {
        Self(random_id())
    }
}

/// A question to a store.
#[derive(Clone, Debug)]
pub enum Question<P> {
    /// These permits under all limits of the plan, or none. Asked again while it is held under the same name, it
    /// is granted again, takes nothing, and goes on for its full time from now.
    Decide {
        /// The limits.
        plan: Arc<P>,
        /// Whose.
        key: Key,
        /// How many.
        permits: NonZeroU64,
        /// Under which name they are held, where a limit is of permits in flight.
        lease: Option<LeaseId>,
    },
    /// As many of these permits as pass now, from 1 on: what a node hands out on its own. A denial says when one
    /// passes; more than could ever pass together are an error here too.
    Debit {
        /// The limits; none of them of permits in flight.
        plan: Arc<P>,
        /// Whose.
        key: Key,
        /// How many at most.
        permits: NonZeroU64,
    },
    /// What [`Decide`](Self::Decide) would say. Takes nothing.
    Peek {
        /// The limits.
        plan: Arc<P>,
        /// Whose.
        key: Key,
        /// How many.
        permits: NonZeroU64,
    },
    /// Permits of a grant come back: they had no effect, and will have none. Once for each permit.
    Refund {
        /// The limits of the grant.
        plan: Arc<P>,
        /// Whose.
        key: Key,
        /// What the grant said.
        receipt: Receipt,
        /// How many.
        permits: NonZeroU64,
    },
    /// Permits come back without a grant to show, as many as have been taken and not earned again, and in one question no more
    /// than one call can take. It is the caller's word: in any window as many more pass as come back in it, and no more.
    GiveBack {
        /// The limits; none of them of permits in flight.
        plan: Arc<P>,
        /// Whose.
        key: Key,
        /// How many at most.
        permits: NonZeroU64,
    },
    /// Permits in flight have ended. A second time does nothing.
    Release {
        /// The limits of the grant.
        plan: Arc<P>,
        /// Whose.
        key: Key,
        /// As many as were granted.
        permits: NonZeroU64,
        /// Under which name.
        lease: LeaseId,
    },
    /// Permits in flight go on, for their full time from now.
    Renew {
        /// The limits of the grant.
        plan: Arc<P>,
        /// Whose.
        key: Key,
        /// As many as were granted.
        permits: NonZeroU64,
        /// Under which name.
        lease: LeaseId,
    },
    /// The key has used nothing.
    Reset {
        /// The limits.
        plan: Arc<P>,
        /// Whose.
        key: Key,
    },
    /// A member of a group is alive, and asks for its share.
    Beat(Beat),
}

/// A sign of life of a member that shares a total with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Which group.
    pub group: Key,
    /// Who: 128 bits that no other member has.
    pub member: [u8; 16],
    /// What all members have together.
    pub total: u64,
    /// What the member cannot give up yet, permits in flight, of the share it has.
    pub at_least: u64,
    /// For how long it is a member from now on, in ns; 0 to leave at once.
    pub length_ns: u64,
    /// How long after a member had it for the last time a share may still matter, in ns: the limit's period.
    pub memory_ns: u64,
}
