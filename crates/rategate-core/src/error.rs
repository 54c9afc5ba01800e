//! Errors of limits and requests. Being over a limit is not an error but a
//! [`Verdict`](crate::verdict::Verdict).

use core::error::Error;
use core::fmt;

/// The reason why a [`Rate`](crate::rate::Rate) cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateError {
    /// The rate has zero permits per period. To deny everything, write `never`.
    Zero,
    /// The period is zero. For no limit at all, write `unlimited`.
    ZeroPeriod,
    /// The rate is negative.
    Negative,
    /// The number is infinite, or not a number.
    NotFinite,
    /// The text is not `N/PERIOD`, `N per PERIOD`, `unlimited` or `never`.
    Malformed,
    /// The text after the slash, or after `per`, is neither a unit nor a duration.
    Period(SpanError),
    /// One side of the reduced fraction of permits and nanoseconds exceeds `u64::MAX`.
    NotRepresentable,
}

/// The reason why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpanError {
    /// The number has no unit: `"10"` where `"10s"` or `"10ms"` was meant.
    NoUnit,
    /// The unit is not one of `ns us ms s min h d`.
    UnknownUnit,
    /// The part before the unit is no plain decimal.
    Malformed,
    /// The duration is not a whole number of nanoseconds.
    BelowNanosecond,
    /// The duration exceeds `u64::MAX` nanoseconds, which is 584 years.
    TooLong,
}

/// The reason why a [`Ratio`](crate::ratio::Ratio) cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RatioError {
    /// The text is not a plain decimal number.
    Malformed,
    /// The ratio is under one; it compares a burst with the normal rate.
    BelowOne,
    /// The ratio is over a million, or has more digits than 64 bits hold.
    OutOfRange,
}

/// The reason why a limit's numbers are rejected, found at construction or reconfiguration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// `permits`, `burst` or `pool` is zero, so that nothing could ever pass.
    ZeroPermits,
    /// There are more permits than the policy can count exactly.
    TooManyPermits {
        /// The maximum that it can count.
        max: u64,
    },
    /// `period` is zero.
    ZeroPeriod,
    /// The period, with the guard if there is one, is over 584 years.
    PeriodTooLong,
    /// `resolution` is zero or longer than the period.
    Resolution,
    /// The damping is not between 0 and 1, both excluded.
    Damping,
    /// The ramp takes no time, goes from zero to zero, or lacks a finite rate at an end.
    Ramp,
    /// The ramp's length times its rates exceeds 128 bits.
    RampTooLong,
    /// The period of the warm-up times the numbers of its rate exceeds 128 bits.
    WarmUpTooLong,
    /// The bounds of a limit that follows measurements are not `1 <= floor <= first <= ceiling`.
    Bounds,
    /// The bounds of a rate that follows refusals are not `0 < floor <= ceiling`, and finite.
    RateBounds,
    /// A share of a limit is not from 1 to 100 percent.
    Share,
    /// A slow start is set on a policy whose permits do not come with time.
    NotTimed,
    /// A slow start is set on a fixed window on the clock's grid, whose borders it would move.
    WindowOnClock,
    /// A reconfiguration names another number of policies, or one that counts operations in flight
    /// in place of one that does not, or the other way round.
    OtherPolicy,
}

/// The error of requesting more permits than could ever pass at one instant, however long the
/// caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExceedsCapacity {
    /// The number of permits requested.
    pub permits: u64,
    /// The maximum that can be granted at one instant.
    pub max: u64,
}

impl ExceedsCapacity {
    /// Creates the error for `permits` where at most `max` can ever pass at once.
    #[must_use]
    pub const fn new(permits: u64, max: u64) -> Self {
        Self { permits, max }
    }
}

/// The error of charging a limit that counts operations in flight and nothing else: a charge adds
/// no operation, and only the end of one gives its permits back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountsInFlight;

/// The reason why a text is not a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyTextError {
    /// The rate is invalid.
    Rate(RateError),
    /// The text after `burst` is not a whole number of permits.
    Burst,
    /// A rate of never has a burst, which it would never grant.
    BurstOfNever,
    /// The text before `per any` is not a whole number of permits.
    Permits,
    /// The text after `per any` is not a duration.
    Window(SpanError),
    /// A number is out of the policy's range.
    Limit(LimitError),
}

/// Returns the value of a constructor for constants.
///
/// # Panics
///
/// Panics for every error. In a constant that is an error of the compiler.
#[track_caller]
pub(crate) const fn or_panic<P: Copy>(checked: Result<P, LimitError>) -> P {
    match checked {
        Ok(policy) => policy,
        Err(error) => panic!("{}", error.text()),
    }
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zero => "a rate of zero permits; write \"never\" to deny everything",
            Self::ZeroPeriod => "a rate with a period of zero; write \"unlimited\" for no limit",
            Self::Negative => "a rate is never negative; write \"never\" to deny everything",
            Self::NotFinite => {
                "a rate is a finite number; for no limit at all there is \"unlimited\""
            }
            Self::Malformed => {
                "not a rate; write N/PERIOD as in \"5/s\" or \"1000/10s\", or \"unlimited\", \
                 or \"never\""
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
            Self::BelowOne => "a burst ratio or cold factor is at least 1",
            Self::OutOfRange => "a ratio is at most 1000000, with at most 12 decimals",
        })
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyPermits { max } => write!(f, "{}: at most {max}", self.text()),
            _ => f.write_str(self.text()),
        }
    }
}

impl LimitError {
    /// Returns what is wrong, also for the compiler, which writes no numbers.
    const fn text(&self) -> &'static str {
        match self {
            Self::ZeroPermits => "at least 1 permit is needed, or nothing could ever pass",
            Self::TooManyPermits { .. } => "too many permits",
            Self::ZeroPeriod => "the period must be at least 1ns",
            Self::PeriodTooLong => {
                "the period, with a guard if there is one, is longer than 584 years"
            }
            Self::Resolution => "the resolution must be at least 1ns and at most the period",
            Self::Damping => {
                "a damping lies between 0 and 1; write \"average\" for 0, \"strict\" for 1"
            }
            Self::Ramp => "a ramp needs a length and two finite rates, one of them above zero",
            Self::Bounds => "the bounds of the limit are not 1 <= floor <= first <= ceiling",
            Self::RateBounds => "the bounds of the rate are not 0 < floor <= ceiling, and finite",
            Self::Share => "a share of a limit is from 1 to 100 percent",
            Self::NotTimed => {
                "a slow start is for limits whose permits come with time, counted from any \
                 instant: a bucket, a log, a window, a schedule or a pool"
            }
            Self::WindowOnClock => {
                "a slow start would move the borders of a window on the clock's grid; anchor it at \
                 the first call, or use a sliding log"
            }
            Self::RampTooLong => {
                "a ramp this long at these rates exceeds 128 bits; split it into several"
            }
            Self::WarmUpTooLong => {
                "a warm-up this long, at this rate and cold factor, exceeds 128 bits; shorten the \
                 period, or give the factor with fewer decimals"
            }
            Self::OtherPolicy => {
                "a live limit keeps the number of its policies, and whether they count operations \
                 in flight"
            }
        }
    }
}

impl fmt::Display for PolicyTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(error) => error.fmt(f),
            Self::Burst => {
                f.write_str("the burst must be a whole number below 2^64, as in \"10/s burst 20\"")
            }
            Self::BurstOfNever => {
                f.write_str("\"never\" grants nothing, so it has no burst; write \"never\" alone")
            }
            Self::Permits => {
                f.write_str("the permits must be a whole number, as in \"100 per any 1min\"")
            }
            Self::Window(error) => write!(f, "the window after \"per any\": {error}"),
            Self::Limit(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for ExceedsCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { permits, max } = self;
        write!(f, "{permits} permits requested at once, but at most {max} can ever pass together")
    }
}

impl fmt::Display for CountsInFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the limit counts operations in flight; what was used cannot be charged to it")
    }
}

impl Error for CountsInFlight {}
impl Error for PolicyTextError {}
impl Error for RateError {}
impl Error for SpanError {}
impl Error for RatioError {}
impl Error for LimitError {}
impl Error for ExceedsCapacity {}

impl From<RateError> for PolicyTextError {
    fn from(error: RateError) -> Self {
        Self::Rate(error)
    }
}

impl From<LimitError> for PolicyTextError {
    fn from(error: LimitError) -> Self {
        Self::Limit(error)
    }
}
