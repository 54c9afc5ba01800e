//! The status that ends a call.

use std::borrow::Cow;
use std::fmt::Write;

use crate::engine::EngineError;
use crate::net::RefusalReason;
use crate::protocol::rls::{MalformedRequest, RlsError};

/// A gRPC status: a code and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) code: Code,
    pub(crate) message: Cow<'static, str>,
}

/// The codes in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Ok,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Internal,
    Unavailable,
    Unauthenticated,
}

/// The maximum length of a message, in bytes.
const MAX_MESSAGE_BYTES: usize = 512;

impl Status {
    pub(crate) const OK: Self = Self { code: Code::Ok, message: Cow::Borrowed("") };

    pub(crate) fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) const fn late() -> Self {
        let message = Cow::Borrowed("the deadline has passed");
        Self { code: Code::DeadlineExceeded, message }
    }

    /// Returns the status of a call that needs the token and does not show it.
    pub(crate) const fn no_token() -> Self {
        let message = Cow::Borrowed("a token is needed: authorization: Bearer ...");
        Self { code: Code::Unauthenticated, message }
    }

    /// Returns the reason for which the call counts as refused, if it does.
    pub(crate) const fn reason(&self) -> Option<RefusalReason> {
        Some(match self.code {
            Code::Ok | Code::NotFound => return None,
            Code::DeadlineExceeded => RefusalReason::Late,
            Code::InvalidArgument | Code::Internal | Code::Unimplemented => {
                RefusalReason::Malformed
            }
            Code::ResourceExhausted | Code::FailedPrecondition | Code::Unavailable => {
                RefusalReason::EngineError
            }
            Code::Unauthenticated => RefusalReason::NoToken,
        })
    }

    /// Returns the message as a header field: visible ASCII, all other bytes as `%XX`.
    pub(crate) fn field(&self) -> String {
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
    pub(crate) const fn number(self) -> &'static str {
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

impl From<RlsError> for Status {
    fn from(error: RlsError) -> Self {
        match error {
            RlsError::MalformedRequest(malformed) => malformed.into(),
            RlsError::EngineError(fault) => fault.into(),
        }
    }
}

impl From<MalformedRequest> for Status {
    fn from(malformed: MalformedRequest) -> Self {
        Self::new(Code::InvalidArgument, malformed.to_string())
    }
}

impl From<EngineError> for Status {
    fn from(fault: EngineError) -> Self {
        let code = match &fault {
            EngineError::NotLoaded => {
                return Self::new(Code::Unavailable, "no rate limit configuration loaded");
            }
            EngineError::NoCapacity | EngineError::TooManyLimits { .. } => Code::ResourceExhausted,
            EngineError::Store(_) => Code::Unavailable,
            EngineError::NotFor(_) => Code::FailedPrecondition,
            EngineError::Table(_) => Code::Internal,
            _ => Code::InvalidArgument,
        };
        Self::new(code, fault.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_gone_is_no_mistake_of_the_callers() {
        assert_eq!(
            Status::from(EngineError::Store("it is unavailable".into())).code,
            Code::Unavailable
        );
    }

    #[test]
    fn a_message_becomes_a_field() {
        let status = Status::new(Code::Internal, "100 % of é\n");
        assert_eq!(status.field(), "100 %25 of %C3%A9%0A");
    }
}
