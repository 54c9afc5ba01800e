//! Problem details (RFC 9457) for requests without a reply of their own, in every protocol over
//! HTTP.

use http::{Response, StatusCode};
use rategate_tower::problem::{BLANK, CONTENT_TYPE as PROBLEM, Problem};

use super::body::{Body, typed};
use crate::engine::EngineError;

/// Creates a problem with only a status and a sentence about it.
pub(crate) fn plain(status: StatusCode, detail: &str) -> Problem<'_> {
    Problem {
        kind: BLANK,
        title: status.canonical_reason().unwrap_or_default(),
        status: status.as_u16(),
        detail,
        code: None,
        numbers: &[],
        violated: &[],
        errors: &[],
    }
}

/// Builds the response of a problem.
pub(crate) fn response(problem: &Problem<'_>) -> Response<Body> {
    let mut response = typed(PROBLEM, problem.to_json());
    let status = StatusCode::from_u16(problem.status);
    *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// Returns the status and the machine-readable code of a request that the engine cannot decide.
pub(crate) const fn of_engine_error(fault: &EngineError) -> (StatusCode, &'static str) {
    match fault {
        EngineError::NotLoaded => (StatusCode::SERVICE_UNAVAILABLE, "not_loaded"),
        EngineError::NoSuchRule { .. } => (StatusCode::NOT_FOUND, "no_such_rule"),
        EngineError::Values { .. } => (StatusCode::BAD_REQUEST, "invalid_values"),
        EngineError::OtherValue { .. } => (StatusCode::BAD_REQUEST, "other_value"),
        EngineError::Limit(_) | EngineError::Rate(_) => (StatusCode::BAD_REQUEST, "invalid_limit"),
        EngineError::TooManyItems { .. } => (StatusCode::BAD_REQUEST, "too_many_items"),
        EngineError::DuplicateItem { .. } => (StatusCode::BAD_REQUEST, "duplicate"),
        EngineError::OtherItems | EngineError::OtherNumber { .. } => {
            (StatusCode::CONFLICT, "other_items")
        }
        EngineError::Ttl { .. } => (StatusCode::BAD_REQUEST, "invalid_ttl"),
        EngineError::AtMost { .. } => (StatusCode::BAD_REQUEST, "invalid_at_most"),
        EngineError::Cost { .. } => (StatusCode::BAD_REQUEST, "invalid_usage"),
        EngineError::NotFor(_) | EngineError::NotForItem { .. } | EngineError::NoPermits { .. } => {
            (StatusCode::BAD_REQUEST, "not_for_this_limit")
        }
        EngineError::TooManyLimits { .. } => (StatusCode::SERVICE_UNAVAILABLE, "too_many_limits"),
        EngineError::TooManyReservations { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, "too_many_reservations")
        }
        EngineError::NoCapacity => (StatusCode::SERVICE_UNAVAILABLE, "table_full"),
        EngineError::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_failed"),
        EngineError::Table(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unavailable_store_is_not_an_internal_error() {
        let fault = of_engine_error(&EngineError::Store("it is unavailable".into()));
        assert_eq!(fault, (StatusCode::SERVICE_UNAVAILABLE, "store_failed"));
    }
}
