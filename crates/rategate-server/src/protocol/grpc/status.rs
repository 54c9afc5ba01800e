//! Statuses of the engine's errors, and the reasons for which calls count as refused.

use rategate_protocol::grpc::{Code, Status};

use crate::engine::EngineError;
use crate::net::RefusalReason;
use crate::protocol::rls::RlsError;

/// Returns the reason for which a call with this status counts as refused, if it does.
pub(super) const fn reason(status: &Status) -> Option<RefusalReason> {
    Some(match status.code {
        Code::Ok | Code::NotFound => return None,
        Code::DeadlineExceeded => RefusalReason::Late,
        Code::InvalidArgument | Code::Internal | Code::Unimplemented => RefusalReason::Malformed,
        Code::ResourceExhausted | Code::FailedPrecondition | Code::Unavailable => {
            RefusalReason::EngineError
        }
        Code::Unauthenticated => RefusalReason::NoToken,
    })
}

/// The end of a call without a reply, with the reason for which it counts as refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: Status,
    pub(super) refusal: Option<RefusalReason>,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self { refusal: reason(&status), status }
    }
}

impl From<RlsError> for Failure {
    /// The reason is that of the error: several errors have one status.
    fn from(error: RlsError) -> Self {
        let refusal = error.refusal();
        let status = Status::from(error);
        Self { refusal: reason(&status).map(|_| refusal), status }
    }
}

impl From<RlsError> for Status {
    fn from(error: RlsError) -> Self {
        match error {
            RlsError::MalformedRequest(malformed) | RlsError::OfRules(malformed) => {
                malformed.into()
            }
            RlsError::EngineError(fault) => fault.into(),
            RlsError::NoToken => Self::no_token(),
            RlsError::Unavailable => Self::new(Code::Unavailable, error.to_string()),
            RlsError::UnknownId => Self::new(Code::NotFound, error.to_string()),
            RlsError::PartlySettled { .. } | RlsError::Ended(_) => {
                Self::new(Code::FailedPrecondition, error.to_string())
            }
        }
    }
}

impl From<EngineError> for Status {
    fn from(fault: EngineError) -> Self {
        let code = match &fault {
            EngineError::NotLoaded => {
                return Self::new(Code::Unavailable, "no rate limit configuration loaded");
            }
            EngineError::NoCapacity
            | EngineError::TooManyLimits { .. }
            | EngineError::TooManyReservations { .. } => Code::ResourceExhausted,
            EngineError::Store(_) => Code::Unavailable,
            EngineError::NotFor(_)
            | EngineError::NotForItem { .. }
            | EngineError::NoPermits { .. }
            | EngineError::NotAssigned { .. } => Code::FailedPrecondition,
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
    fn an_unavailable_store_is_not_the_callers_error() {
        assert_eq!(
            Status::from(EngineError::Store("it is unavailable".into())).code,
            Code::Unavailable
        );
    }
}
