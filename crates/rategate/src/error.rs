//! What a live limiter can answer besides "granted" and "not yet".

use std::error::Error;
use std::fmt;
use std::time::Duration;

use rategate_core::error::{DebtError, ExceedsCapacity, LimitError};
use rategate_core::fair::TooManyClasses;
use rategate_core::queue::Turned;
use rategate_core::verdict::Refusal;

/// The limiter has been closed, and grants nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// Why a limiter gave no answer to a question about now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimiterError {
    /// The limiter has been closed.
    Closed,
    /// More permits than could ever pass together.
    ExceedsCapacity(ExceedsCapacity),
}

/// Why waiting did not end in a grant. Nothing is taken, or it has been given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// The limiter was closed, before the call or while it waited.
    Closed,
    /// More permits than could ever pass together.
    ExceedsCapacity(ExceedsCapacity),
    /// Time alone cannot help. Waiting would never end, because the rate is never; or a start cannot
    /// be [reserved](crate::Limiter::reserve), because permits come back only by somebody's act.
    TimeCannotHelp,
    /// The alarm of this wait was raised, before it or while it lasted: see
    /// [`acquire_unless`](crate::Limiter::acquire_unless).
    Interrupted,
    /// The start lies past the deadline; without a deadline, past the end of the clock. Told at
    /// once, not at the deadline.
    TooLong(TooLong),
    /// The deadline has come, or a change of the limit has put it out of reach. Told while waiting,
    /// where it could not be told before: for permits that come back by somebody's act, or because
    /// others of another [class](crate::Limiter::class) came and had their turns first.
    DeadlinePassed,
    /// As many wait as may.
    QueueFull,
    /// The queue was full, and the place in it has gone to somebody who came later.
    Evicted,
}

impl AcquireError {
    /// Why a caller who would wait for `max_wait_ns` may not stand in line.
    pub(crate) fn turned(turned: Turned, max_wait_ns: Option<u64>) -> Self {
        match turned {
            Turned::Full => Self::QueueFull,
            Turned::Refused(refusal) => Self::refused(refusal, max_wait_ns),
            Turned::TooLong { wait_ns, retry_after_ns } => {
                Self::TooLong(TooLong { wait_ns, retry_after_ns, past: Past::Deadline })
            }
        }
    }

    /// Why a caller who would wait for `max_wait_ns` does not.
    pub(crate) fn refused(refusal: Refusal, max_wait_ns: Option<u64>) -> Self {
        match refusal {
            Refusal::Exceeds(error) => Self::ExceedsCapacity(error),
            Refusal::TimeCannotHelp | Refusal::Held => Self::TimeCannotHelp,
            Refusal::BeyondClock { wait_ns } => Self::TooLong(TooLong {
                wait_ns,
                retry_after_ns: wait_ns.saturating_sub(max_wait_ns.unwrap_or(0)),
                past: Past::of(max_wait_ns),
            }),
        }
    }
}

/// A start that lies past the caller's deadline; without a deadline, past the end of the 64-bit
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    pub(crate) wait_ns: u64,
    pub(crate) retry_after_ns: u64,
    pub(crate) past: Past,
}

/// What the start lies past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    Deadline,
    ClockEnd,
}

impl Past {
    /// What a start lies past that comes too late for a caller who would wait for `max_wait_ns`.
    pub(crate) const fn of(max_wait_ns: Option<u64>) -> Self {
        match max_wait_ns {
            Some(_) => Self::Deadline,
            None => Self::ClockEnd,
        }
    }
}

impl TooLong {
    /// How long the wait would have been.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        Duration::from_nanos(self.wait_ns)
    }

    /// How long until the same call, with the same deadline, would be accepted if nobody else
    /// comes first; where callers of several classes wait, enough but not always the least. A call
    /// without a deadline will not be: the clock ends before that.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        Duration::from_nanos(self.retry_after_ns)
    }
}

/// Why new numbers did not come into force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReconfigureError {
    /// The limiter has been closed.
    Closed,
    /// The numbers are not such that this limit could take them.
    Limit(LimitError),
}

/// Why there is no such class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClassError {
    /// The limiter has been closed.
    Closed,
    /// With a weight of zero it would wait for ever: at least 1.
    ZeroWeight,
    /// There are as many as there may be.
    TooMany(TooManyClasses),
}

/// Why an estimate was not settled, or not all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettleError {
    /// The limiter has been closed.
    Closed,
    /// What is owed is too much, or could never be paid.
    Debt(DebtError),
}

const CLOSED: &str = "the limiter is closed";

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CLOSED)
    }
}

impl fmt::Display for LimiterError {
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
            Self::TimeCannotHelp => f.write_str("waiting would never end: time alone cannot help"),
            Self::Interrupted => f.write_str("the wait was interrupted"),
            Self::TooLong(error) => error.fmt(f),
            Self::DeadlinePassed => f.write_str("the deadline has passed"),
            Self::QueueFull => f.write_str("as many wait for the limiter as may"),
            Self::Evicted => f.write_str("the queue was full, and somebody newer has the place"),
        }
    }
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wait, retry) = (self.wait(), self.retry_after());
        match self.past {
            Past::Deadline => write!(
                f,
                "the wait would be {wait:?}, past the deadline; in {retry:?} it would be met"
            ),
            Past::ClockEnd => write!(f, "the wait would be {wait:?}, past the end of the clock"),
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
            Self::ZeroWeight => f.write_str("a class of weight 0 would wait for ever: at least 1"),
            Self::TooMany(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for SettleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str(CLOSED),
            Self::Debt(error) => error.fmt(f),
        }
    }
}

impl From<Closed> for SettleError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<DebtError> for SettleError {
    fn from(error: DebtError) -> Self {
        Self::Debt(error)
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

impl Error for ClassError {}
impl Error for SettleError {}
impl Error for Closed {}
impl Error for LimiterError {}
impl Error for AcquireError {}
impl Error for TooLong {}
impl Error for ReconfigureError {}

impl From<Closed> for LimiterError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<Closed> for AcquireError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<Closed> for ReconfigureError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<ExceedsCapacity> for LimiterError {
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
