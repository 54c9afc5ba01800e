//! Statuses of the engine's errors, and the reasons for which calls count as refused.

use tonic::{Code, Status};

use crate::engine::EngineError;
use crate::net::RefusalReason;
use crate::protocol::rls::RlsError;

/// Returns the reason for which a call with this status counts as refused, if it does.
pub(super) const fn reason(code: Code) -> Option<RefusalReason> {
    Some(match code {
        Code::Ok | Code::NotFound => return None,
        Code::DeadlineExceeded => RefusalReason::Late,
        Code::Unauthenticated => RefusalReason::NoToken,
        Code::OutOfRange => RefusalReason::TooLong,
        Code::ResourceExhausted | Code::FailedPrecondition | Code::Unavailable => {
            RefusalReason::EngineError
        }
        _ => RefusalReason::Malformed,
    })
}

impl From<RlsError> for Status {
    fn from(error: RlsError) -> Self {
        let code = match &error {
            RlsError::MalformedRequest(_) | RlsError::OfRules(_) => Code::InvalidArgument,
            RlsError::EngineError(EngineError::NotLoaded) => {
                return Self::unavailable("no rate limit configuration loaded");
            }
            RlsError::EngineError(fault) => code_of(fault),
            RlsError::NoToken => Code::Unauthenticated,
            RlsError::Unavailable => Code::Unavailable,
            RlsError::UnknownId => Code::NotFound,
            RlsError::PartlySettled { .. } | RlsError::Ended(_) => Code::FailedPrecondition,
        };
        Self::new(code, error.to_string())
    }
}

const fn code_of(fault: &EngineError) -> Code {
    match fault {
        EngineError::NoCapacity
        | EngineError::TooManyLimits { .. }
        | EngineError::TooManyReservations { .. } => Code::ResourceExhausted,
        // An unavailable store is not the caller's error.
        EngineError::Store(_) => Code::Unavailable,
        EngineError::NotFor(_) | EngineError::NotForItem { .. } | EngineError::NoPermits { .. } => {
            Code::FailedPrecondition
        }
        EngineError::Table(_) => Code::Internal,
        _ => Code::InvalidArgument,
    }
}
