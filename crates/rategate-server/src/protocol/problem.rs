//! Problem details (RFC 9457) for requests without a reply of their own, in every protocol over
//! HTTP.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use rategate_tower::problem::{BLANK, CONTENT_TYPE as PROBLEM, Problem};

use crate::engine::Fault;

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
pub(crate) fn response<B: From<Bytes>>(problem: &Problem<'_>) -> Response<B> {
    let mut response = Response::new(B::from(problem.to_json().into()));
    let status = StatusCode::from_u16(problem.status);
    *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
    response
}

/// Returns the status and the machine-readable code of a request that the engine cannot decide.
pub(crate) const fn of_fault(fault: &Fault) -> (StatusCode, &'static str) {
    match fault {
        Fault::NotLoaded => (StatusCode::SERVICE_UNAVAILABLE, "not_loaded"),
        Fault::NoSuchRule { .. } => (StatusCode::NOT_FOUND, "no_such_rule"),
        Fault::Values { .. } => (StatusCode::BAD_REQUEST, "wrong_values"),
        Fault::OtherValue { .. } => (StatusCode::BAD_REQUEST, "other_value"),
        Fault::Limit(_) | Fault::Rate(_) => (StatusCode::BAD_REQUEST, "invalid_limit"),
        Fault::TooManyItems { .. } => (StatusCode::BAD_REQUEST, "too_many_items"),
        Fault::AskedTwice { .. } => (StatusCode::BAD_REQUEST, "asked_twice"),
        Fault::NotFor(_) => (StatusCode::BAD_REQUEST, "not_for_this_limit"),
        Fault::TooManyLimits { .. } => (StatusCode::SERVICE_UNAVAILABLE, "too_many_limits"),
        Fault::NoRoom => (StatusCode::SERVICE_UNAVAILABLE, "no_room"),
        Fault::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_failed"),
        Fault::Table(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_gone_is_no_mistake_of_the_services() {
        let fault = of_fault(&Fault::Store("it is unavailable".into()));
        assert_eq!(fault, (StatusCode::SERVICE_UNAVAILABLE, "store_failed"));
    }
}
