//! Errors of a keyed table.

use std::error::Error;
use std::fmt;

use rategate_core::error::{CountsInFlight, ExceedsCapacity};

use super::{ChargeError, Closed, TryAcquireError};

/// An error of a keyed table. The call takes nothing then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyedError {
    /// The request is for more permits than could ever pass together.
    ExceedsCapacity(ExceedsCapacity),
    /// The table has no capacity for one more key, or for this one to grow.
    ///
    /// A single try for a new key fails so only with
    /// [`Overflow::Refuse`](crate::keyed::Overflow::Refuse). A later call may succeed.
    TableFull,
    /// The tier function returned a tier that does not exist.
    NoSuchTier {
        /// The tier it returned.
        tier: usize,
        /// The number of tiers, counted from 0.
        tiers: usize,
    },
    /// The limit counts operations in flight and nothing else, so nothing is charged to it.
    CountsInFlight,
    /// Two parts of one call are for the same key or limiter: request the sum in one part.
    Duplicate,
    /// The key's [limiter](crate::Keyed::limiter) has been closed.
    Closed,
}

impl fmt::Display for KeyedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExceedsCapacity(error) => error.fmt(f),
            Self::TableFull => f.write_str("the table of keys is full"),
            Self::NoSuchTier { tier, tiers } => {
                write!(f, "tier {tier} does not exist: the table has {tiers} tiers, counted from 0")
            }
            Self::CountsInFlight => CountsInFlight.fmt(f),
            Self::Duplicate => f.write_str(
                "two parts of one request are for the same limit: request the sum in one part",
            ),
            Self::Closed => f.write_str("the limiter of this key is closed"),
        }
    }
}

impl Error for KeyedError {}

impl From<ExceedsCapacity> for KeyedError {
    fn from(error: ExceedsCapacity) -> Self {
        Self::ExceedsCapacity(error)
    }
}

impl From<CountsInFlight> for KeyedError {
    fn from(_: CountsInFlight) -> Self {
        Self::CountsInFlight
    }
}

impl From<Closed> for KeyedError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<TryAcquireError> for KeyedError {
    fn from(error: TryAcquireError) -> Self {
        match error {
            TryAcquireError::ExceedsCapacity(error) => Self::ExceedsCapacity(error),
            TryAcquireError::Closed => Self::Closed,
        }
    }
}

impl From<ChargeError> for KeyedError {
    fn from(error: ChargeError) -> Self {
        match error {
            ChargeError::CountsInFlight => Self::CountsInFlight,
            ChargeError::Closed => Self::Closed,
        }
    }
}

/// The error of a call that could not be decided. Nothing is taken then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryAllError {
    /// The index of the part that could not be decided.
    pub at: usize,
    /// The reason.
    pub error: KeyedError,
}

impl fmt::Display for TryAllError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit {}: {}", self.at, self.error)
    }
}

impl Error for TryAllError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}
