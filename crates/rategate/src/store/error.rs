//! Errors of a store.

use std::error::Error;
use std::fmt;

use rategate_core::error::{CountsInFlight, ExceedsCapacity};

/// An error in place of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// The store replied too late, or not at all. The caller does not know whether permits were
    /// taken or charged.
    Unavailable(Unavailable),
    /// The request is for more permits than could ever pass together.
    Exceeds(ExceedsCapacity),
    /// The charged limits count permits in flight and nothing else.
    CountsInFlight,
    /// The request is invalid, such as permits in flight without a lease, or another set's
    /// receipt.
    ///
    /// The text names the error, and what would be accepted.
    InvalidRequest(String),
    /// The id is of another request: of other permits, of another kind, or of a reservation.
    OtherRequest,
    /// The store was closed by its owner.
    Closed,
}

/// The reason why a store is unavailable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unavailable {
    /// No reply within the budget.
    Late,
    /// No connection.
    Unreachable(String),
    /// The store cannot serve the request: it is starting, is out of memory, is a replica, lacks a
    /// part.
    Unable(String),
    /// No capacity for one more key. Known keys go on, so requests continue as before.
    Full(String),
    /// A state of this key is not in the store's format. Other keys go on, so requests continue as
    /// before.
    Key(String),
    /// An error that only an operator can fix.
    ///
    /// The client is not authorized, or keys hold the data of another program.
    Broken(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(unavailable) => write!(f, "the store is unavailable: {unavailable}"),
            Self::Exceeds(error) => error.fmt(f),
            Self::CountsInFlight => CountsInFlight.fmt(f),
            Self::InvalidRequest(why) => write!(f, "invalid request: {why}"),
            Self::OtherRequest => f.write_str(
                "the id is of another request of this key; send the same request again, or use a \
                 new id",
            ),
            Self::Closed => f.write_str("the store is closed"),
        }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => f.write_str("no reply in time"),
            Self::Unreachable(why) => write!(f, "no connection: {why}"),
            Self::Unable(why) | Self::Full(why) | Self::Key(why) | Self::Broken(why) => {
                f.write_str(why)
            }
        }
    }
}

impl Error for StoreError {}
impl Error for Unavailable {}
