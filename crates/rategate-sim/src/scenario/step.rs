//! Explicit calls, and what must come out of them.

use rategate_core::any_policy::AnyPolicy;
use rategate_core::fair::ClassId;

use crate::report::Outcome;

/// One explicit call.
#[derive(Clone, Debug)]
pub struct Step {
    /// The clock's reading, from its start. May go backwards.
    pub at_ns: u64,
    /// What is called.
    pub call: Call,
    /// What must come out of it.
    pub expect: StepExpect,
}

/// What a step calls.
#[derive(Clone, Debug)]
pub enum Call {
    /// Grants at once or denies.
    Try {
        /// How many permits.
        permits: u64,
        /// By which a later step may settle or refund it.
        name: Option<String>,
    },
    /// Promises a start.
    Reserve {
        /// How many permits.
        permits: u64,
        /// By which a later step may cancel, settle or refund it.
        name: Option<String>,
        /// The longest wait that the caller accepts.
        max_wait_ns: Option<u64>,
    },
    /// Stands in line.
    Wait {
        /// How many permits.
        permits: u64,
        /// By which a later step may leave, settle or refund it.
        name: Option<String>,
        /// The longest wait that the caller accepts.
        max_wait_ns: Option<u64>,
        /// In whose line.
        class: ClassId,
    },
    /// Gives the wait of that name up.
    Leave {
        /// Which.
        name: String,
    },
    /// Ends operations, which frees or commits what they hold.
    Release {
        /// Of how many permits.
        permits: u64,
    },
    /// Makes good for an estimate.
    Settle {
        /// Of which call.
        name: String,
        /// How many permits it took in truth.
        actual: u64,
    },
    /// Gives back what had no effect.
    Refund {
        /// Of which call.
        name: String,
        /// How many permits.
        permits: u64,
    },
    /// Cancels the reservation of that name.
    Cancel {
        /// Which.
        name: String,
    },
    /// Puts these limits into force.
    Set {
        /// All of them, changed and unchanged.
        limits: Vec<AnyPolicy>,
    },
    /// Looks without taking.
    Peek {
        /// How many permits would be asked for.
        permits: u64,
    },
    /// Puts permits into a backfill pool.
    Refill {
        /// How many.
        permits: u64,
    },
}

impl Call {
    /// Whether it needs to know what another call was granted.
    pub(crate) const fn is_about_a_grant(&self) -> bool {
        matches!(self, Self::Settle { .. } | Self::Refund { .. })
    }
}

/// What must come out of a step; only what is given is compared.
#[derive(Clone, Debug, Default)]
pub struct StepExpect {
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// When it may start, from the clock's start.
    pub start_ns: Option<u64>,
    /// How long until it would pass.
    pub retry_after_ns: Option<u64>,
    /// Start less scheduled time.
    pub wait_ns: Option<u64>,
    /// When a wait ended, from the clock's start.
    pub ended_ns: Option<u64>,
    /// How many permits went back.
    pub back: Option<u64>,
    /// How many permits are owed.
    pub owed: Option<u64>,
    /// What a try could still take.
    pub remaining: Option<u64>,
}
