//! What cannot be: a limit whose numbers the store cannot hold exactly, a request that makes no sense, an
//! answer that nobody can read. What a store itself refuses is a [`Fault`](crate::fault::Fault).

use std::error::Error;
use std::fmt;

use rategate_core::error::ExceedsCapacity;

/// Why a limit cannot be kept in a store without rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// A rate of `never` or `unlimited`: no store is needed for that.
    NoRate,
    /// One permit takes so many parts of a microsecond that 52 bits do not hold them.
    RateTooFine,
    /// The burst takes longer to earn than 71 years, 2^51 us.
    BurstTooLong,
    /// A period, a resolution or a lease that is not of whole microseconds, where it has to be.
    NotMicroseconds,
    /// Longer than 71 years.
    TooLong,
    /// A grid of windows that begins with the first call: the store's begins with its clock.
    Anchor,
    /// More permits than the store counts.
    TooManyPermits {
        /// The most it does.
        most: u64,
    },
    /// A log of more entries than a state may have. A coarser resolution needs fewer.
    TooManyEntries {
        /// How many it could have.
        entries: u64,
        /// The most there may be.
        most: u64,
    },
    /// A label that is not 1 to 32 letters, digits, `-`, `_` and `.` of ASCII.
    Label,
    /// Two limits of one plan with the same label.
    SameLabel,
    /// No limit in a plan, or more than there may be.
    HowMany,
}

/// Why a request cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// More permits than could ever pass together.
    Exceeds(ExceedsCapacity),
    /// Zero permits: they pass without a question.
    NoPermits,
    /// A limit of operations in flight is asked without the name of a lease.
    NoLease,
    /// Permits in flight come and go by the name of their lease, all together: no refund, no debit.
    HeldByLease,
    /// A receipt of another plan.
    OtherPlan,
    /// As many in one call as there may be.
    Full,
    /// A name on a deny list of no bytes, or of more than 256.
    Name,
}

/// Why an answer was not understood. Nobody knows then what the store has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyError {
    /// No list of whole numbers.
    Shape,
    /// Another version of answers.
    Version,
    /// More or fewer numbers than were asked for.
    Length,
    /// A number that cannot be.
    Number,
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRate => "a rate of never or unlimited needs no store",
            Self::RateTooFine => "one permit of this rate is no multiple of 2^-52 us",
            Self::BurstTooLong => "the burst takes longer to earn than 2^51 us, 71 years",
            Self::NotMicroseconds => "the store's clock shows whole microseconds, and this is none",
            Self::TooLong => "longer than 2^51 us, 71 years",
            Self::Anchor => "in a store the grid of windows starts at the clock's zero",
            Self::TooManyPermits { most } => return write!(f, "at most {most} permits"),
            Self::TooManyEntries { entries, most } => {
                return write!(f, "a log of {entries} entries, but a state has at most {most}; a coarser resolution needs fewer");
            }
            Self::Label => "a label is 1 to 32 letters, digits, `-`, `_` and `.`",
            Self::SameLabel => "two limits of one plan need two labels",
            Self::HowMany => "a plan has from 1 to 16 limits",
        })
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exceeds(error) => return error.fmt(f),
            Self::NoPermits => "zero permits pass without a question",
            Self::NoLease => "a limit of operations in flight needs the name of a lease",
            Self::HeldByLease => "permits in flight come and go with their lease, all together",
            Self::OtherPlan => "the receipt is not of this plan",
            Self::Full => "the call is full",
            Self::Name => "a name on a deny list has from 1 to 256 bytes",
        })
    }
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shape => "the answer is no list of whole numbers",
            Self::Version => "the answer is of another version",
            Self::Length => "the answer has more or fewer numbers than were asked for",
            Self::Number => "a number in the answer cannot be",
        })
    }
}

impl Error for LimitError {}
impl Error for RequestError {}
impl Error for ReplyError {}
