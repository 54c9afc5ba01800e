//! Explicit calls, and their expected results.

use rategate_core::adaptive::Outcome as Ending;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::fair::ClassId;

use crate::report::Outcome;

/// An explicit call.
#[derive(Clone, Debug)]
pub struct Step {
    /// The clock's reading, since its start. It may go backwards.
    pub at_ns: u64,
    /// The call to make.
    pub call: Call,
    /// The expected result of the call.
    pub expect: StepExpect,
}

/// A call made by a step.
#[derive(Clone, Debug)]
pub enum Call {
    /// A try, which is granted at once or denied.
    Try {
        /// The number of permits.
        permits: u64,
        /// The name by which a later step may settle or refund it.
        name: Option<String>,
    },
    /// A reservation, which promises a start.
    Reserve {
        /// The number of permits.
        permits: u64,
        /// The name by which a later step may cancel, settle or refund it.
        name: Option<String>,
        /// The maximum wait that the caller accepts.
        max_wait_ns: Option<u64>,
    },
    /// A wait in the queue.
    Wait {
        /// The number of permits.
        permits: u64,
        /// The name by which a later step may leave, settle or refund it.
        name: Option<String>,
        /// The maximum wait that the caller accepts.
        max_wait_ns: Option<u64>,
        /// The class in whose queue it waits.
        class: ClassId,
    },
    /// A withdrawal of the wait of that name.
    Leave {
        /// The name of the wait.
        name: String,
    },
    /// The end of operations, which frees or commits what they hold.
    Release {
        /// The number of permits of the operations.
        permits: u64,
    },
    /// The end of the operations of a grant, in some way.
    End {
        /// The name of the call that was granted.
        name: String,
        /// The way in which they ended.
        ending: Ending,
    },
    /// A settlement of an estimate.
    Settle {
        /// The name of the call.
        name: String,
        /// The number of permits that it really took.
        actual: u64,
    },
    /// A refund of permits that had no effect.
    Refund {
        /// The name of the call.
        name: String,
        /// The number of permits.
        permits: u64,
    },
    /// A charge of permits that have been used already.
    Charge {
        /// The number of permits.
        permits: u64,
    },
    /// A cancellation of the reservation of that name.
    Cancel {
        /// The name of the reservation.
        name: String,
    },
    /// A hold of an estimate.
    Hold {
        /// The number of permits.
        permits: u64,
        /// The time after which it ends by itself.
        ttl_ns: u64,
        /// The name by which a later step may commit or cancel it.
        name: Option<String>,
    },
    /// A commit of a hold.
    Commit {
        /// The name of the hold.
        name: String,
        /// The number of permits that were used.
        actual: u64,
    },
    /// A cancellation of the hold of that name.
    CancelHold {
        /// The name of the hold.
        name: String,
    },
    /// A change of the limits.
    Set {
        /// All limits, changed and unchanged.
        limits: Vec<AnyPolicy>,
    },
    /// A peek, which takes nothing.
    Peek {
        /// The number of permits that the peek is for.
        permits: u64,
    },
    /// A refill of a backfill pool.
    Refill {
        /// The number of permits.
        permits: u64,
    },
}

impl Call {
    /// Returns `true` if the call refers to the grant of another call.
    pub(crate) const fn is_about_a_grant(&self) -> bool {
        matches!(self, Self::Settle { .. } | Self::Refund { .. } | Self::End { .. })
    }
}

/// The expected result of a step; only fields that are given are compared.
#[derive(Clone, Debug, Default)]
pub struct StepExpect {
    /// The outcome of the call.
    pub outcome: Option<Outcome>,
    /// The instant at which it may start, since the clock's start.
    pub start_ns: Option<u64>,
    /// The time until it would pass.
    pub retry_after_ns: Option<u64>,
    /// The start less the scheduled time.
    pub wait_ns: Option<u64>,
    /// The instant at which a wait ended, since the clock's start.
    pub ended_ns: Option<u64>,
    /// The number of permits refunded.
    pub back: Option<u64>,
    /// The number of permits owed.
    pub owed: Option<u64>,
    /// The number of permits by which the limit is exceeded.
    pub debt: Option<u64>,
    /// The number of permits not charged.
    pub forgiven: Option<u64>,
    /// The number of permits that a try could still take.
    pub remaining: Option<u64>,
}
