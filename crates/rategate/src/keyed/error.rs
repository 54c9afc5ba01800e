//! What a table can answer besides "granted" and "not yet".

use std::error::Error;
use std::fmt;

use rategate_core::error::{DebtError, ExceedsCapacity};

use crate::error::{Closed, LimiterError, SettleError};

/// Why a table gave no answer. Nothing is taken then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyedError {
    /// More permits than could ever pass together.
    ExceedsCapacity(ExceedsCapacity),
    /// There is no room for one more key, or for this one to grow, and [`Room`](super::Room) says that
    /// it is to be refused. It may be otherwise a moment later.
    TableFull,
    /// The function that says a key's tier has named one that is not there.
    NoSuchTier {
        /// The tier it named.
        tier: usize,
        /// How many there are, from 0 on.
        tiers: usize,
    },
    /// What is owed is too much, or could never be paid.
    Debt(DebtError),
    /// Two parts of one call are of the same key, or of the same limiter: ask it for the sum.
    AskedTwice,
    /// Somebody who has this key's [limiter](super::Keyed::limiter) has closed it.
    Closed,
}

impl fmt::Display for KeyedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExceedsCapacity(error) => error.fmt(f),
            Self::TableFull => f.write_str("the table of keys is full"),
            Self::NoSuchTier { tier, tiers } => {
                write!(f, "there is no tier {tier}: the table has {tiers}, from 0 on")
            }
            Self::Debt(error) => error.fmt(f),
            Self::AskedTwice => {
                f.write_str("two parts of one call are of the same limit: ask it for the sum")
            }
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

impl From<DebtError> for KeyedError {
    fn from(error: DebtError) -> Self {
        Self::Debt(error)
    }
}

impl From<Closed> for KeyedError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<LimiterError> for KeyedError {
    fn from(error: LimiterError) -> Self {
        match error {
            LimiterError::ExceedsCapacity(error) => Self::ExceedsCapacity(error),
            LimiterError::Closed => Self::Closed,
        }
    }
}

impl From<SettleError> for KeyedError {
    fn from(error: SettleError) -> Self {
        match error {
            SettleError::Debt(error) => Self::Debt(error),
            SettleError::Closed => Self::Closed,
        }
    }
}
