//! The numbers of errors.

use rategate::Error;
use rategate::error::{AcquireError, ErrorKind};

/// The kind of an error, as a number that is the same in every language.
///
/// The numbers stay as they are from version to version; new ones come at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[non_exhaustive]
pub enum Code {
    /// The start lies past the timeout. Nothing was taken; later calls may pass.
    TooLong = -1,
    /// The wait queue, or the table of keys, is full.
    Full = -2,
    /// The limiter has been closed.
    Closed = -3,
    /// No time and no retry makes this call pass.
    Never = -4,
    /// The caller ended the wait.
    Cancelled = -5,
    /// A store did not reply.
    Unavailable = -6,
    /// An argument or a text that has no meaning.
    Invalid = -7,
    /// The system refused what a call needs, or the library has a defect.
    Failed = -8,
}

impl Code {
    /// Returns the number of an error.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error {
            Error::Acquire(AcquireError::QueueFull | AcquireError::Evicted) => Self::Full,
            Error::Keyed(_) | Error::TryAll(_) if error.kind() == ErrorKind::NotYet => Self::Full,
            _ => match error.kind() {
                ErrorKind::NotYet => Self::TooLong,
                ErrorKind::Never => Self::Never,
                ErrorKind::Closed => Self::Closed,
                ErrorKind::Cancelled => Self::Cancelled,
                ErrorKind::Unavailable => Self::Unavailable,
                // What a later version adds is a mistake of the program until it has a number.
                _ => Self::Invalid,
            },
        }
    }
}
