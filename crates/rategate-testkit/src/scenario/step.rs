//! Explicit calls, and their expected results.

use rategate_core::adaptive::Outcome as Ending;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::fair::ClassId;
use serde::Deserialize;

use super::{Ns, first_class, one};
use crate::report::Outcome;

/// An explicit call.
#[derive(Clone, Debug)]
pub struct Step {
    /// The clock's reading, since its start. It may go backwards.
    pub at_ns: u64,
    /// The index of the earlier step that the call refers to by its name. The step's own index, if
    /// the call refers to none.
    pub of: usize,
    /// The call to make.
    pub call: Call,
    /// The expected result of the call.
    pub expect: StepExpect,
}

/// A call made by a step.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Call {
    /// A try, which is granted at once or denied.
    Try {
        /// The number of permits.
        #[serde(default = "one")]
        permits: u64,
    },
    /// A reservation, which promises a start.
    Reserve {
        /// The number of permits.
        #[serde(default = "one")]
        permits: u64,
        /// The maximum wait that the caller accepts.
        max_wait: Option<Ns>,
    },
    /// A wait in the queue.
    Wait {
        /// The number of permits.
        #[serde(default = "one")]
        permits: u64,
        /// The maximum wait that the caller accepts.
        max_wait: Option<Ns>,
        /// The class in whose queue it waits.
        #[serde(skip, default = "first_class")]
        class: ClassId,
        /// The time for which it holds what it was granted, if it holds an estimate.
        ttl: Option<Ns>,
    },
    /// A withdrawal of a wait.
    Leave {},
    /// The end of operations, which frees or commits what they hold.
    Release {
        /// The number of permits of the operations.
        #[serde(default = "one")]
        permits: u64,
    },
    /// The end of the operations of a grant, in some way.
    End {
        /// The way in which they ended.
        #[serde(with = "EndingWord")]
        outcome: Ending,
    },
    /// A charge of permits that have been used already.
    Charge {
        /// The number of permits.
        #[serde(default = "one")]
        permits: u64,
    },
    /// A cancellation of a reservation, or of a hold.
    Cancel {},
    /// A hold of an estimate.
    Hold {
        /// The number of permits.
        #[serde(default = "one")]
        permits: u64,
        /// The time after which it ends by itself.
        ttl: Ns,
    },
    /// A commit of a hold.
    Commit {
        /// The number of permits that were used.
        actual: u64,
    },
    /// A change of the limits.
    Set {
        /// All limits, changed and unchanged.
        #[serde(skip)]
        limits: Vec<AnyPolicy>,
    },
    /// A peek, which takes nothing.
    Peek {
        /// The number of permits that the peek is for.
        #[serde(default = "one")]
        permits: u64,
    },
    /// A refill of a backfill pool.
    Refill {
        /// The number of permits.
        #[serde(default = "one")]
        permits: u64,
    },
}

impl Call {
    /// Returns `true` if the call refers to the grant of another call.
    pub(crate) const fn is_about_a_grant(&self) -> bool {
        matches!(self, Self::Commit { .. } | Self::Cancel {} | Self::End { .. })
    }

    /// Returns `true` if the call holds what it is granted.
    pub(crate) const fn holds(&self) -> bool {
        matches!(self, Self::Hold { .. } | Self::Wait { ttl: Some(_), .. })
    }
}

#[derive(Deserialize)]
#[serde(remote = "Ending", rename_all = "kebab-case")]
enum EndingWord {
    Served,
    Dropped,
    Ignored,
}

/// The expected result of a step; only fields that are given are compared.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepExpect {
    /// The outcome of the call.
    pub outcome: Option<Outcome>,
    /// The instant at which it may start, since the clock's start.
    pub start: Option<Ns>,
    /// The time until it would pass.
    pub retry_after: Option<Ns>,
    /// The start less the scheduled time.
    pub wait: Option<Ns>,
    /// The instant at which a wait ended, since the clock's start.
    pub ended: Option<Ns>,
    /// The number of permits that came back.
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
