//! Errors of invalid limits, invalid requests, and unreadable replies. A refusal by the store
//! itself is a [`ServerRefusal`](crate::refusal::ServerRefusal).

use std::error::Error;
use std::fmt;

use rategate::store::StoreError;
use rategate_core::error::{CountsInFlight, ExceedsCapacity};

/// The reason why a limit cannot be kept in a store without rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// A rate of `never` or `unlimited`, which needs no store.
    NoRate,
    /// A rate at which one permit takes a fraction of a microsecond that 52 bits do not hold.
    RateTooFine,
    /// A burst that takes longer to earn than 71 years, 2^51 us.
    BurstTooLong,
    /// A period, a resolution or a lease that is not of whole microseconds, where it has to be.
    NotMicroseconds,
    /// A length of more than 71 years.
    TooLong,
    /// A grid of windows that begins with the first call. In a store the grid begins at the
    /// clock's zero.
    Anchor,
    /// A calendar quota that was read from words, which do not say where its borders are.
    NoZone,
    /// More permits than the store counts.
    TooManyPermits {
        /// The maximum number of permits.
        maximum: u64,
    },
    /// A log of more entries than a state may have. A coarser resolution needs fewer.
    TooManyEntries {
        /// The number of entries the log could have.
        entries: u64,
        /// The maximum number of entries.
        maximum: u64,
    },
    /// A label that is not 1 to 32 letters, digits, `-`, `_` and `.` of ASCII.
    Label,
    /// Two limits of one set with the same label.
    SameLabel,
    /// A set without limits, or with more than the maximum.
    LimitCount,
}

/// The reason why a request cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// More permits than could ever pass together.
    Exceeds(ExceedsCapacity),
    /// Zero permits, which are granted without a request.
    NoPermits,
    /// A limit of operations in flight without the name of a lease, or a lease without one.
    NoLease,
    /// A refund or debit of permits in flight, which are taken and released together,
    /// under the name of their lease.
    HeldByLease,
    /// A charge of limits that all count operations in flight.
    CountsInFlight,
    /// A charge of a sliding log whose debt later windows pay. In a store a log forgets its debts.
    CarriedByLog,
    /// A reservation for more than 35 years, 2^50 us.
    TooLong,
    /// A receipt of another set of limits.
    OtherPlan,
    /// A call that already holds the maximum number of requests.
    Full,
}

/// The reason why a reply was not understood. The effect on the store is unknown then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyError {
    /// A value that is no list of whole numbers.
    Shape,
    /// A reply of another version.
    Version,
    /// A reply with more or fewer numbers than expected.
    Length,
    /// A number out of range.
    Number,
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRate => "a rate of never or unlimited needs no store",
            Self::RateTooFine => "one permit of this rate is not a multiple of 2^-52 us",
            Self::BurstTooLong => "the burst takes longer to earn than 2^51 us, 71 years",
            Self::NotMicroseconds => "not a whole number of microseconds, the unit of the store",
            Self::TooLong => "longer than 2^51 us, 71 years",
            Self::Anchor => "in a store the grid of windows starts at the clock's zero",
            Self::NoZone => "a calendar without its zone; make it from its text",
            Self::TooManyPermits { maximum } => return write!(f, "at most {maximum} permits"),
            Self::TooManyEntries { entries, maximum } => {
                return write!(
                    f,
                    "a log of {entries} entries, but a state has at most {maximum}; \
                     a coarser resolution needs fewer"
                );
            }
            Self::Label => "a label is 1 to 32 letters, digits, `-`, `_` and `.`",
            Self::SameLabel => "two limits of one set have the same label; each needs its own",
            Self::LimitCount => "a set of limits has from 1 to 16 limits",
        })
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exceeds(error) => return error.fmt(f),
            Self::NoPermits => "zero permits requested; at least one is needed",
            Self::NoLease => "limits of operations in flight need a lease, and no other limits do",
            Self::HeldByLease => "permits in flight come and go with their lease, all together",
            Self::CountsInFlight => return CountsInFlight.fmt(f),
            Self::CarriedByLog => "a sliding log in a store forgets its debts; it carries none",
            Self::TooLong => "a reservation lasts for 2^50 us, 35 years, at most",
            Self::OtherPlan => "the receipt belongs to another set of limits",
            Self::Full => "the call already holds the maximum number of requests",
        })
    }
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shape => "the reply is not a list of whole numbers",
            Self::Version => "the reply is of another version",
            Self::Length => "the reply has more or fewer numbers than expected",
            Self::Number => "a number in the reply is out of range",
        })
    }
}

impl From<RequestError> for StoreError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Exceeds(error) => Self::Exceeds(error),
            RequestError::CountsInFlight => Self::CountsInFlight,
            error => Self::InvalidRequest(error.to_string()),
        }
    }
}

impl Error for LimitError {}
impl Error for RequestError {}
impl Error for ReplyError {}
