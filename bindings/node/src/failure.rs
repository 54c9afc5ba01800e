//! Errors, as codes that JavaScript makes its own errors of.

use std::fmt::Display;

use napi_derive::napi;
use rategate::Error;
use rategate::error::AcquireError;
use rategate_ffi::Code;

/// The result of a function that JavaScript calls.
///
/// The status becomes the `code` of the error that is thrown: see [`Failure::thrown`].
pub(crate) type Result<T> = std::result::Result<T, napi::Error<String>>;

/// An error that a wait ends with.
#[napi(object)]
#[derive(Debug)]
pub struct Failure {
    /// The number of its [`Code`], and of a start that is too late the wait and the time until a
    /// retry, in nanoseconds.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

impl Failure {
    pub(crate) fn of(error: impl Into<Error>) -> Self {
        let error = error.into();
        let code = code_of(Code::of(&error));
        let code = match &error {
            Error::Acquire(AcquireError::TooLong(late)) => {
                format!("{code}:{}:{}", late.wait().as_nanos(), late.retry_after().as_nanos())
            }
            Error::Acquire(AcquireError::ExceedsCapacity(_))
            | Error::Keyed(rategate::error::KeyedError::ExceedsCapacity(_)) => {
                format!("{code}:capacity")
            }
            _ => code,
        };
        Self { code, message: error.to_string() }
    }

    /// Returns the error that Node-API throws; its `code` tells JavaScript which class to make.
    pub(crate) fn thrown(self) -> napi::Error<String> {
        napi::Error::new(self.code, self.message)
    }
}

/// Converts an error of the library.
pub(crate) fn failed(error: impl Into<Error>) -> napi::Error<String> {
    Failure::of(error).thrown()
}

/// Returns the error of an argument that has no meaning.
pub(crate) fn invalid(message: impl Display) -> napi::Error<String> {
    napi::Error::new(code_of(Code::Invalid), message.to_string())
}

/// Converts an error of Node-API itself.
pub(crate) fn of_node(error: &napi::Error) -> napi::Error<String> {
    invalid(error)
}

/// The mark tells our codes from those of Node.
pub(crate) fn code_of(code: Code) -> String {
    #[expect(clippy::as_conversions, reason = "the numbers are the point of the enum")]
    let number = code as i32;
    format!("rategate:{number}")
}
