//! The answers of a lock-free form: verdicts and batches.

use core::num::NonZeroU64;

use crate::refund::RefundEpoch;

/// A decision of a lock-free form, or its statement that the ledger has to decide.
#[must_use = "an unused grant is a lost permit"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockFreeVerdict {
    /// The permits were granted and start now.
    Granted {
        /// The clock reading from which the grant counts: the caller's own, or an earlier one where
        /// the clock was not read.
        start_ns: u64,
        /// The scheduled time, as in [`Grant`](crate::verdict::Grant::scheduled_ns).
        scheduled_ns: u64,
    },
    /// Nothing was taken.
    Denied {
        /// The exact time until the same try passes if no other caller comes first; `None` if time
        /// alone cannot help.
        retry_after_ns: Option<NonZeroU64>,
    },
    /// The lock-free form is sealed or cannot decide this; the ledger can.
    Sealed,
}

impl LockFreeVerdict {
    #[inline]
    pub(super) fn denied(retry_after_ns: u64) -> Self {
        // A denial with a wait of zero is not valid.
        match NonZeroU64::new(retry_after_ns) {
            None => Self::Sealed,
            retry_after_ns => Self::Denied { retry_after_ns },
        }
    }
}

/// A batch of permits that a thread has taken in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitBatch {
    /// The number of permits in the batch.
    pub permits: u64,
    /// The clock reading from which the permits count.
    pub start_ns: u64,
    /// The state that the batch left behind, which the return of some of its permits needs.
    pub(super) mark: Mark,
}

/// The result of a request for a batch from a lock-free form.
#[must_use = "an unused batch is lost"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchVerdict {
    /// At least the requested minimum was taken.
    Taken(PermitBatch),
    /// Nothing was taken.
    Denied {
        /// The exact time until a try for the minimum passes if no other caller comes first.
        retry_after_ns: NonZeroU64,
    },
    /// The lock-free form cannot decide, or has no batches. A try can decide.
    Unknown,
}

/// The state that a batch has left behind, and the configuration to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) value: u64,
    pub(super) base: u64,
    /// The refund epoch at that time.
    pub(super) epoch: RefundEpoch,
}
