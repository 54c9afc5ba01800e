//! Errors: what each verb can fail with, and [`Error`], which every one of them converts into.
//!
//! A function that tries, waits and reads configuration returns [`Error`], and `?` does the rest.
//! Its [kind](Error::kind) tells apart what its caller treats differently.

mod any;
#[cfg(feature = "keyed")]
mod keyed;
#[cfg(feature = "distributed")]
mod setup;

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use rategate_core::line::QueueRejection;
use rategate_core::verdict::Refusal;

pub use self::any::{Error, ErrorKind};
#[cfg(feature = "keyed")]
pub use self::keyed::{KeyedError, TryAllError};
#[cfg(feature = "distributed")]
pub use self::setup::SetupError;
pub use rategate_core::error::{
    CountsInFlight, ExceedsCapacity, LimitError, PolicyTextError, RateError, RatioError, SpanError,
};
pub use rategate_core::fair::TooManyClasses;

/// The error of a limiter that has been closed, and grants nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// The error of an operation that may not start any more: its time since the grant has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    pub(crate) late_ns: u64,
}

impl Expired {
    /// Returns how long after the end of its time the start would have come; never zero.
    #[must_use]
    pub const fn late(&self) -> Duration {
        Duration::from_nanos(self.late_ns)
    }
}

impl fmt::Display for Expired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the permit expired {:?} ago", self.late())
    }
}

impl StdError for Expired {}

/// The error of a call that a limiter could not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TryAcquireError {
    /// The limiter has been closed.
    Closed,
    /// More permits than could ever pass together.
    ExceedsCapacity(ExceedsCapacity),
}

/// The error of a wait that did not end in a grant. Nothing was taken, or it has been refunded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// The limiter was closed, before the call or while it waited.
    Closed,
    /// More permits than could ever pass together.
    ExceedsCapacity(ExceedsCapacity),
    /// Waiting would never end, because the rate is never.
    TimeCannotHelp,
    /// A start cannot be [reserved](crate::Limiter::reserve) now, because permits come back only by
    /// a caller's act, and no time is known at which that happens. A later call may pass.
    Held,
    /// The cancellation token of this wait was raised, before the wait or during it: see
    /// [`acquire_unless`](crate::Limiter::acquire_unless).
    Interrupted,
    /// The start lies past the deadline; without a deadline, past the end of the clock.
    ///
    /// Reported at once, not at the deadline.
    TooLong(TooLong),
    /// The deadline has come, or a change of the limit has put it out of reach.
    ///
    /// Reported during the wait, where it could not be foreseen: for permits that come back by a
    /// caller's act, or because callers of another [class](crate::Limiter::class) came and were
    /// served first.
    DeadlinePassed,
    /// The wait queue was full.
    QueueFull,
    /// The wait queue was full, and a later caller took this waiter's slot.
    Evicted,
}

impl AcquireError {
    /// Converts the refusal of the wait queue to a caller that would wait for `max_wait_ns`.
    pub(crate) fn from_rejection(from_rejection: QueueRejection, max_wait_ns: Option<u64>) -> Self {
        match from_rejection {
            QueueRejection::Full => Self::QueueFull,
            QueueRejection::Refused(refusal) => Self::refused(refusal, max_wait_ns),
            QueueRejection::TooLong { wait_ns, retry_after_ns } => {
                Self::TooLong(TooLong { wait_ns, retry_after_ns, bound: WaitBound::Deadline })
            }
        }
    }

    /// Converts the refusal of the limit to a caller that would wait for `max_wait_ns`.
    pub(crate) fn refused(refusal: Refusal, max_wait_ns: Option<u64>) -> Self {
        match refusal {
            Refusal::Exceeds(error) => Self::ExceedsCapacity(error),
            Refusal::TimeCannotHelp => Self::TimeCannotHelp,
            Refusal::Held => Self::Held,
            Refusal::BeyondClock { wait_ns } => Self::TooLong(TooLong {
                wait_ns,
                retry_after_ns: wait_ns.saturating_sub(max_wait_ns.unwrap_or(0)),
                bound: WaitBound::of(max_wait_ns),
            }),
        }
    }
}

/// A start that lies past the caller's deadline; without one, past the end of the 64-bit clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    pub(crate) wait_ns: u64,
    pub(crate) retry_after_ns: u64,
    pub(crate) bound: WaitBound,
}

/// The bound that the start lies past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitBound {
    Deadline,
    ClockEnd,
}

impl WaitBound {
    /// Returns the bound that a start lies past, for a caller that would wait for `max_wait_ns`.
    pub(crate) const fn of(max_wait_ns: Option<u64>) -> Self {
        match max_wait_ns {
            Some(_) => Self::Deadline,
            None => Self::ClockEnd,
        }
    }
}

impl TooLong {
    /// Returns how long the wait would have been.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        Duration::from_nanos(self.wait_ns)
    }

    /// Returns how long until the same call, with the same deadline, would be accepted.
    ///
    /// That holds if no other call comes first. Where callers of several classes wait, it is long
    /// enough but not always the shortest. A call without a deadline will not be accepted: the
    /// clock ends before that.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        Duration::from_nanos(self.retry_after_ns)
    }
}

/// The error of a change of the limit that was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReconfigureError {
    /// The limiter has been closed.
    Closed,
    /// This limit cannot take these numbers.
    Limit(LimitError),
}

/// The error of a class that was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClassError {
    /// The limiter has been closed.
    Closed,
    /// A class with a weight of zero would wait for ever; the weight must be at least 1.
    ZeroWeight,
    /// The limiter has the maximum number of classes.
    TooMany(TooManyClasses),
}

/// The error of a charge, or of an estimate that was too low, of which nothing was booked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChargeError {
    /// The limiter has been closed.
    Closed,
    /// The limit counts operations in flight and nothing else.
    CountsInFlight,
}

/// The error of a try within a share of a limit that could not be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShareError {
    /// The limiter has been closed.
    Closed,
    /// More permits than could ever pass together in the whole limit.
    ExceedsCapacity(ExceedsCapacity),
    /// The limit does not limit operations in flight, so it has no shares.
    NothingInFlight,
}

const CLOSED: &str = "the limiter is closed";

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CLOSED)
    }
}

impl fmt::Display for TryAcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str(CLOSED),
            Self::ExceedsCapacity(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str(CLOSED),
            Self::ExceedsCapacity(error) => error.fmt(f),
            Self::TimeCannotHelp => f.write_str("waiting would never end: the rate is never"),
            Self::Held => f.write_str("permits come back only when callers return them: not yet"),
            Self::Interrupted => f.write_str("the wait was interrupted"),
            Self::TooLong(error) => error.fmt(f),
            Self::DeadlinePassed => f.write_str("the deadline has passed"),
            Self::QueueFull => f.write_str("the limiter's wait queue is full"),
            Self::Evicted => f.write_str("a later caller took the slot in the full wait queue"),
        }
    }
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wait, retry) = (self.wait(), self.retry_after());
        match self.bound {
            WaitBound::Deadline => {
                write!(f, "the wait would be {wait:?}, past the deadline; retry in {retry:?}")
            }
            WaitBound::ClockEnd => {
                write!(f, "the wait would be {wait:?}, past the end of the clock")
            }
        }
    }
}

impl fmt::Display for ReconfigureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str(CLOSED),
            Self::Limit(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for ClassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str(CLOSED),
            Self::ZeroWeight => f.write_str("class weight is 0; must be at least 1"),
            Self::TooMany(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for ChargeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str(CLOSED),
            Self::CountsInFlight => CountsInFlight.fmt(f),
        }
    }
}

impl fmt::Display for ShareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str(CLOSED),
            Self::ExceedsCapacity(error) => error.fmt(f),
            Self::NothingInFlight => f.write_str(
                "the limit does not limit operations in flight; only such a limit has shares",
            ),
        }
    }
}

impl From<Closed> for ShareError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<ExceedsCapacity> for ShareError {
    fn from(error: ExceedsCapacity) -> Self {
        Self::ExceedsCapacity(error)
    }
}

impl From<Closed> for ChargeError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<CountsInFlight> for ChargeError {
    fn from(_: CountsInFlight) -> Self {
        Self::CountsInFlight
    }
}

impl From<Closed> for ClassError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<TooManyClasses> for ClassError {
    fn from(error: TooManyClasses) -> Self {
        Self::TooMany(error)
    }
}

impl StdError for ClassError {}
impl StdError for ChargeError {}
impl StdError for ShareError {}
impl StdError for Closed {}
impl StdError for TryAcquireError {}
impl StdError for AcquireError {}
impl StdError for TooLong {}
impl StdError for ReconfigureError {}

impl From<Closed> for TryAcquireError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<Closed> for AcquireError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<TryAcquireError> for AcquireError {
    fn from(error: TryAcquireError) -> Self {
        match error {
            TryAcquireError::Closed => Self::Closed,
            TryAcquireError::ExceedsCapacity(error) => Self::ExceedsCapacity(error),
        }
    }
}

impl From<Closed> for ReconfigureError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<ExceedsCapacity> for TryAcquireError {
    fn from(error: ExceedsCapacity) -> Self {
        Self::ExceedsCapacity(error)
    }
}

impl From<ExceedsCapacity> for AcquireError {
    fn from(error: ExceedsCapacity) -> Self {
        Self::ExceedsCapacity(error)
    }
}

impl From<LimitError> for ReconfigureError {
    fn from(error: LimitError) -> Self {
        Self::Limit(error)
    }
}
