//! The error that all others convert into, and its kinds.

use std::fmt;
use std::time::Duration;

#[cfg(feature = "distributed")]
use super::SetupError;
use super::{
    AcquireError, ChargeError, ClassError, Closed, CountsInFlight, ExceedsCapacity, LimitError,
    PolicyTextError, RateError, RatioError, ReconfigureError, ShareError, SpanError,
    TryAcquireError,
};
#[cfg(feature = "keyed")]
use super::{KeyedError, TryAllError};
#[cfg(feature = "distributed")]
use crate::store::StoreError;

/// Any error of this crate, for functions that call several of its verbs.
///
/// A denial is no error: a try that comes too soon returns
/// [`Decision::Denied`](crate::Decision::Denied).
///
/// ```
/// use std::time::Duration;
///
/// use rategate::error::ErrorKind;
/// use rategate::{AnyPolicy, Decision, Error, Limiter};
///
/// fn call(numbers: &str) -> Result<(), Error> {
///     let limiter = Limiter::new(numbers.parse::<AnyPolicy>()?);
///     if let Decision::Denied(denial) = limiter.try_acquire(1)? {
///         eprintln!("retry in {:?}", denial.retry_after());
///         limiter.acquire_within(1, Duration::from_millis(200))?;
///     }
///     Ok(())
/// }
///
/// assert!(call("10/s burst 5").is_ok());
/// assert_eq!(call("10 apples").unwrap_err().kind(), ErrorKind::Invalid);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A try that could not be decided, or a wait that did not end in a grant.
    Acquire(AcquireError),
    /// A call to a table of keys.
    #[cfg(feature = "keyed")]
    Keyed(KeyedError),
    /// A call that has to pass several limits.
    #[cfg(feature = "keyed")]
    TryAll(TryAllError),
    /// A charge, or an estimate that was too low, of which nothing was booked.
    Charge(ChargeError),
    /// A try within a share of a limit that could not be decided.
    Share(ShareError),
    /// A change of the limit that was not made.
    Reconfigure(ReconfigureError),
    /// A class that was not made.
    Class(ClassError),
    /// Numbers that make no limit.
    Limit(LimitError),
    /// A text that is no policy, or no rate.
    Text(PolicyTextError),
    /// A text that is no duration.
    Span(SpanError),
    /// A text that is no ratio.
    Ratio(RatioError),
    /// A store's error in place of a decision.
    #[cfg(feature = "distributed")]
    Store(StoreError),
    /// A distributed limit that cannot be set up so.
    #[cfg(feature = "distributed")]
    Setup(SetupError),
}

/// The kind of an [`Error`]: its callers treat each differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Not in time, but a later call may pass: the deadline, a full wait queue, a full table.
    NotYet,
    /// Never: no time and no retry makes this call pass.
    Never,
    /// The limiter, or the store, has been closed.
    Closed,
    /// The caller's own token ended the wait.
    Cancelled,
    /// The store did not reply. The caller does not know whether permits were taken or charged.
    Unavailable,
    /// An argument, or a text, that has no meaning: a mistake of the program or its configuration.
    Invalid,
}

impl Error {
    /// Returns the kind of the error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Acquire(error) => acquire_kind(error),
            #[cfg(feature = "keyed")]
            Self::Keyed(error) | Self::TryAll(TryAllError { error, .. }) => keyed_kind(error),
            Self::Charge(ChargeError::Closed)
            | Self::Share(ShareError::Closed)
            | Self::Reconfigure(ReconfigureError::Closed)
            | Self::Class(ClassError::Closed) => ErrorKind::Closed,
            Self::Charge(ChargeError::CountsInFlight)
            | Self::Share(ShareError::ExceedsCapacity(_)) => ErrorKind::Never,
            Self::Reconfigure(_)
            | Self::Class(_)
            | Self::Share(ShareError::NothingInFlight)
            | Self::Limit(_)
            | Self::Text(_)
            | Self::Span(_)
            | Self::Ratio(_) => ErrorKind::Invalid,
            #[cfg(feature = "distributed")]
            Self::Store(error) => match error {
                StoreError::Unavailable(_) => ErrorKind::Unavailable,
                StoreError::InvalidRequest(_) | StoreError::OtherRequest => ErrorKind::Invalid,
                StoreError::Exceeds(_) | StoreError::CountsInFlight => ErrorKind::Never,
                StoreError::Closed => ErrorKind::Closed,
            },
            #[cfg(feature = "distributed")]
            Self::Setup(_) => ErrorKind::Invalid,
        }
    }

    /// Returns how long until the same call would be accepted, if no other call comes first.
    ///
    /// `None` where no time is known, or no time would help. A denial reports its own:
    /// [`Denial::retry_after`](crate::Denial::retry_after).
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Acquire(AcquireError::TooLong(error)) => Some(error.retry_after()),
            _ => None,
        }
    }
}

const fn acquire_kind(error: &AcquireError) -> ErrorKind {
    match error {
        AcquireError::Closed => ErrorKind::Closed,
        AcquireError::ExceedsCapacity(_) | AcquireError::TimeCannotHelp => ErrorKind::Never,
        AcquireError::Interrupted => ErrorKind::Cancelled,
        AcquireError::TooLong(_)
        | AcquireError::Held
        | AcquireError::DeadlinePassed
        | AcquireError::QueueFull
        | AcquireError::Evicted => ErrorKind::NotYet,
    }
}

#[cfg(feature = "keyed")]
const fn keyed_kind(error: &KeyedError) -> ErrorKind {
    match error {
        KeyedError::ExceedsCapacity(_) | KeyedError::CountsInFlight => ErrorKind::Never,
        KeyedError::TableFull => ErrorKind::NotYet,
        KeyedError::NoSuchTier { .. } | KeyedError::Duplicate => ErrorKind::Invalid,
        KeyedError::Closed => ErrorKind::Closed,
    }
}

/// Writes the error that it was made of.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.made_of(), f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.made_of().source()
    }
}

impl Error {
    fn made_of(&self) -> &(dyn std::error::Error + 'static) {
        match self {
            Self::Acquire(error) => error,
            #[cfg(feature = "keyed")]
            Self::Keyed(error) => error,
            #[cfg(feature = "keyed")]
            Self::TryAll(error) => error,
            Self::Charge(error) => error,
            Self::Share(error) => error,
            Self::Reconfigure(error) => error,
            Self::Class(error) => error,
            Self::Limit(error) => error,
            Self::Text(error) => error,
            Self::Span(error) => error,
            Self::Ratio(error) => error,
            #[cfg(feature = "distributed")]
            Self::Store(error) => error,
            #[cfg(feature = "distributed")]
            Self::Setup(error) => error,
        }
    }
}

/// Converts each of these errors by the variant named, after a conversion of its own if it needs
/// one.
macro_rules! converts {
    ($($(#[$feature:meta])* $from:ty => $variant:ident),* $(,)?) => {$(
        $(#[$feature])*
        impl From<$from> for Error {
            fn from(error: $from) -> Self {
                Self::$variant(error.into())
            }
        }
    )*};
}

converts! {
    AcquireError => Acquire,
    TryAcquireError => Acquire,
    Closed => Acquire,
    ExceedsCapacity => Acquire,
    #[cfg(feature = "keyed")]
    KeyedError => Keyed,
    #[cfg(feature = "keyed")]
    TryAllError => TryAll,
    ChargeError => Charge,
    ShareError => Share,
    CountsInFlight => Charge,
    ReconfigureError => Reconfigure,
    ClassError => Class,
    LimitError => Limit,
    RateError => Text,
    SpanError => Span,
    RatioError => Ratio,
    PolicyTextError => Text,
    #[cfg(feature = "distributed")]
    StoreError => Store,
    #[cfg(feature = "distributed")]
    SetupError => Setup,
}
