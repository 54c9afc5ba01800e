//! The error of a distributed limiter that cannot be set up.

use std::error::Error;
use std::fmt;

use rategate_core::node::{GuardError, NodeConfigError};

use crate::store::PlanError;

/// An error in the configuration of a limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupError {
    /// No limit was given.
    NoLimit,
    /// A field of [`Leases`](crate::distributed::Leases) is zero.
    Zero {
        /// The name of the field.
        field: &'static str,
    },
    /// The store cannot keep a limit.
    Plan(PlanError),
    /// The lease config is invalid.
    LeaseConfig(NodeConfigError),
    /// The leases are too long for their limit.
    Guard {
        /// The label of the limit.
        label: String,
        /// The error, with the longest lease accepted.
        error: GuardError,
    },
    /// A limit of permits in flight can only be decided by the store.
    ///
    /// It requires [`Mode::Exact`](crate::distributed::Mode::Exact), and [`OnUnavailable::Deny`](crate::distributed::OnUnavailable::Deny) or [`OnUnavailable::Admit`](crate::distributed::OnUnavailable::Admit).
    InFlight {
        /// The label of the limit.
        label: String,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLimit => f.write_str("no limit: add at least one, with a label"),
            Self::Zero { field } => write!(f, "`{field}` is zero; it must be above zero"),
            Self::Plan(error) => error.fmt(f),
            Self::LeaseConfig(error) => error.fmt(f),
            Self::Guard { label, error } => write!(f, "limit `{label}`: {error}"),
            Self::InFlight { label } => write!(
                f,
                "limit `{label}`: permits in flight require the exact mode, and `Deny` or `Admit` \
                 while the store is unavailable"
            ),
        }
    }
}

impl Error for SetupError {}
