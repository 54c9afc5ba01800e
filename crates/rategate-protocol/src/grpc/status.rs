//! The status that ends a call.

use std::borrow::Cow;
use std::fmt::Write;

use crate::rlqs::MalformedReport;
use crate::rls::MalformedRequest;

/// A gRPC status: a code and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The code.
    pub code: Code,
    /// The message, empty for `Ok`.
    pub message: Cow<'static, str>,
}

/// The codes in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The call succeeds.
    Ok,
    /// The request is invalid.
    InvalidArgument,
    /// The deadline has passed.
    DeadlineExceeded,
    /// The named thing does not exist.
    NotFound,
    /// A bound is reached.
    ResourceExhausted,
    /// The request does not fit the configuration.
    FailedPrecondition,
    /// There is no such method.
    Unimplemented,
    /// The bytes are not those of a call.
    Internal,
    /// The server cannot decide now.
    Unavailable,
    /// A token is missing or wrong.
    Unauthenticated,
}

/// The maximum length of a message, in bytes.
const MAX_MESSAGE_BYTES: usize = 512;

impl Status {
    /// The status of a call that succeeds.
    pub const OK: Self = Self { code: Code::Ok, message: Cow::Borrowed("") };

    /// Creates a status.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    /// Returns the status of a call that is late.
    #[must_use]
    pub const fn late() -> Self {
        let message = Cow::Borrowed("the deadline has passed");
        Self { code: Code::DeadlineExceeded, message }
    }

    /// Returns the status of a call that needs the token and does not show it.
    #[must_use]
    pub const fn no_token() -> Self {
        let message = Cow::Borrowed("a token is needed: authorization: Bearer ...");
        Self { code: Code::Unauthenticated, message }
    }

    /// Returns the message as a header field: visible ASCII, all other bytes as `%XX`.
    #[must_use]
    pub fn field(&self) -> String {
        let mut field = String::with_capacity(self.message.len());
        for byte in self.message.bytes().take(MAX_MESSAGE_BYTES) {
            if matches!(byte, b' '..=b'~') && byte != b'%' {
                field.push(char::from(byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(field, "%{byte:02X}");
            }
        }
        field
    }
}

impl Code {
    /// Returns the number of the code, as text.
    #[must_use]
    pub const fn number(self) -> &'static str {
        match self {
            Self::Ok => "0",
            Self::InvalidArgument => "3",
            Self::DeadlineExceeded => "4",
            Self::NotFound => "5",
            Self::ResourceExhausted => "8",
            Self::FailedPrecondition => "9",
            Self::Unimplemented => "12",
            Self::Internal => "13",
            Self::Unavailable => "14",
            Self::Unauthenticated => "16",
        }
    }
}

impl From<MalformedRequest> for Status {
    fn from(malformed: MalformedRequest) -> Self {
        Self::new(Code::InvalidArgument, malformed.to_string())
    }
}

impl From<MalformedReport> for Status {
    fn from(malformed: MalformedReport) -> Self {
        let code = match malformed {
            MalformedReport::TooMany { .. } => Code::ResourceExhausted,
            MalformedReport::Malformed(_) | MalformedReport::NoBucket { .. } => {
                Code::InvalidArgument
            }
        };
        Self::new(code, malformed.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_becomes_a_field() {
        let status = Status::new(Code::Internal, "100 % of é\n");
        assert_eq!(status.field(), "100 %25 of %C3%A9%0A");
    }
}
