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

impl From<RlsError> for Status {
    fn from(error: RlsError) -> Self {
        match error {
            RlsError::MalformedRequest(malformed) => malformed.into(),
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
