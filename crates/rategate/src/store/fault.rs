//! Why a question has no answer.

use std::error::Error;
use std::fmt;

use rategate_core::error::ExceedsCapacity;

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The store did not answer in time, or not at all. Whoever asked does not know whether permits were taken.
    Gone(Gone),
    /// More permits than could ever pass together.
    Exceeds(ExceedsCapacity),
    /// The question makes no sense to the store: permits in flight without a name, a receipt of another plan.
    /// What, and what would be right.
    Question(String),
    /// The store was closed by its owner.
    Closed,
}

/// How a store is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gone {
    /// No answer within the budget.
    Late,
    /// No connection.
    Unreachable(String),
    /// It answers, but not the question: it starts, has no memory left, is a replica, lacks a part.
    Unable(String),
    /// It has no room for one more key. Those that it knows go on, so it is asked as ever.
    Full(String),
    /// A state of this key is not as the store keeps it. All other keys go on, so the store is asked as ever.
    Key(String),
    /// It answers what only a human can mend: who asks is not allowed to, or keys hold something else's data.
    Broken(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(gone) => write!(f, "the store is gone: {gone}"),
            Self::Exceeds(error) => error.fmt(f),
            Self::Question(why) => write!(f, "a question that makes no sense: {why}"),
            Self::Closed => f.write_str("the store was closed"),
        }
    }
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => f.write_str("no answer in time"),
            Self::Unreachable(why) => write!(f, "no connection: {why}"),
            Self::Unable(why) | Self::Full(why) | Self::Key(why) | Self::Broken(why) => {
                f.write_str(why)
            }
        }
    }
}

impl Error for Fault {}
impl Error for Gone {}
