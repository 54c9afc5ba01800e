//! What can be wrong with a limit or a request. Being over a limit is not among it: that is an
//! answer, see [`Verdict`](crate::verdict::Verdict).

use core::error::Error;
use core::fmt;

/// Why a [`Rate`](crate::rate::Rate) cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateError {
    /// No permits per period: to deny everything on purpose, say `never`.
    Zero,
    /// A period of no length: for no limit at all, say `unlimited`.
    ZeroPeriod,
    /// Less than nothing.
    Negative,
    /// The text is not `N/PERIOD`, `unlimited` or `never`.
    Malformed,
    /// The text after the slash is neither a unit nor a duration.
    Period(SpanError),
    /// As a reduced fraction of permits and nanoseconds, one side is over `u64::MAX`.
    NotRepresentable,
}

/// Why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpanError {
    /// A bare number: `"10"` where `"10s"` was meant, or `"10ms"`.
    NoUnit,
    /// A unit that is not one of `ns us ms s min h d`.
    UnknownUnit,
    /// The part before the unit is no plain decimal.
    Malformed,
    /// Not a whole number of nanoseconds.
    BelowNanosecond,
    /// Over `u64::MAX` nanoseconds, which is 584 years.
    TooLong,
}

/// Why a [`Ratio`](crate::ratio::Ratio) cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RatioError {
    /// Not a plain decimal number.
    Malformed,
    /// Under one, where the ratio is of a burst to the normal rate.
    BelowOne,
    /// Over a million, or with more digits than 64 bits hold.
    OutOfRange,
}

/// Which number of a limit cannot be honoured, and why. Found at construction and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// `permits`, `burst` or `pool` is zero, so that nothing could ever pass.
    ZeroPermits,
    /// More permits than the policy can count exactly.
    TooManyPermits {
        /// The most it can.
        most: u64,
    },
    /// `period` is zero.
    ZeroPeriod,
    /// `period` and `guard` together are over 584 years.
    PeriodTooLong,
    /// `resolution` is zero or longer than the period.
    Resolution,
    /// A damping that is not between 0 and 1, both excluded.
    Damping,
    /// A ramp over no time, or from nothing to nothing, or without a finite rate at its ends.
    Ramp,
    /// A ramp whose length times its rates leaves 128 bits.
    RampTooLong,
    /// Reconfiguring turns one policy into another, which no state survives.
    OtherPolicy,
}

/// A request for more permits than could ever pass at one instant, however long the caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExceedsCapacity {
    /// How many permits were asked for.
    pub permits: u64,
    /// The most that can be granted at one instant.
    pub most: u64,
}

impl ExceedsCapacity {
    /// The error for `permits` where at most `most` can ever pass at once.
    #[must_use]
    pub const fn new(permits: u64, most: u64) -> Self {
        Self { permits, most }
    }
}

/// Why a debt was not taken, or not all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DebtError {
    /// More than one call may owe. Nothing was taken.
    TooLarge {
        /// How many permits were to be debited.
        permits: u64,
        /// The most that can be in one call.
        most: u64,
    },
    /// The rest will never pass, or only beyond the end of the clock.
    Unpayable {
        /// How many permits were not debited.
        left: u64,
    },
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zero => "a rate of zero permits; write \"never\" to deny everything",
            Self::ZeroPeriod => "a rate per no time; write \"unlimited\" for no limit",
            Self::Negative => "a rate is never negative; write \"never\" to deny everything",
            Self::Malformed => {
                "not a rate; write N/PERIOD as in \"5/s\" or \"1000/10s\", or \"unlimited\", or \"never\""
            }
            Self::Period(error) => return write!(f, "the period after the slash: {error}"),
            Self::NotRepresentable => {
                "a rate that 64 bits of permits and of nanoseconds cannot hold exactly"
            }
        })
    }
}

impl fmt::Display for SpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoUnit => "a duration needs a unit: one of ns us ms s min h d, as in \"10ms\"",
            Self::UnknownUnit => "unknown unit; a duration's unit is one of ns us ms s min h d",
            Self::Malformed => "not a duration; write a decimal and a unit, as in \"0.1ms\"",
            Self::BelowNanosecond => "not a whole number of nanoseconds",
            Self::TooLong => "longer than 584 years, the most that 64 bits of nanoseconds hold",
        })
    }
}

impl fmt::Display for RatioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "not a plain decimal number, as in 1.5",
            Self::BelowOne => "a burst ratio is at least 1",
            Self::OutOfRange => "a ratio is at most 1000000, with at most 12 decimals",
        })
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroPermits => "at least 1 permit is needed, or nothing could ever pass",
            Self::TooManyPermits { most } => return write!(f, "at most {most} permits"),
            Self::ZeroPeriod => "the period must be at least 1ns",
            Self::PeriodTooLong => "period and guard together are longer than 584 years",
            Self::Resolution => "the resolution must be at least 1ns and at most the period",
            Self::Damping => {
                "a damping lies between 0 and 1; write \"average\" for 0, \"strict\" for 1"
            }
            Self::Ramp => "a ramp needs a length and two finite rates, one of them above zero",
            Self::RampTooLong => {
                "a ramp this long at these rates leaves 128 bits; cut it in pieces"
            }
            Self::OtherPolicy => "a live limit keeps its policy; only its numbers change",
        })
    }
}

impl fmt::Display for ExceedsCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { permits, most } = self;
        write!(f, "asked for {permits} permits at once, but at most {most} can ever pass together")
    }
}

impl fmt::Display for DebtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { permits, most } => {
                write!(f, "a debt of {permits} permits, but one call may owe at most {most}")
            }
            Self::Unpayable { left } => {
                write!(f, "{left} permits of a debt would never pass, however long it waits")
            }
        }
    }
}

impl Error for DebtError {}
impl Error for RateError {}
impl Error for SpanError {}
impl Error for RatioError {}
impl Error for LimitError {}
impl Error for ExceedsCapacity {}
