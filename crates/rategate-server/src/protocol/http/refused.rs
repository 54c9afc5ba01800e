//! Refused requests, and the problem (RFC 9457) that each receives.

use std::borrow::Cow;

use axum::Extension;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use rategate_tower::problem::{BLANK, CONTENT_TYPE as PROBLEM, FieldError, Problem};

use super::invalid::Invalid;
use crate::engine::EngineError;
use crate::net::RefusalReason;
use crate::protocol::json::JsonError;

/// A request without a reply of its own.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There is no such path.
    NotFound,
    /// The path supports other methods, which the router adds.
    Method,
    /// The token is missing or wrong.
    Token,
    /// A page of another site makes a browser send the request.
    OtherSite,
    /// The request's host is not a name of this service.
    OtherHost,
    /// The request does not have exactly one valid `Host` field.
    Host,
    /// As many requests of this kind are under way as may be.
    Busy,
    /// The body is longer than this many bytes.
    TooLong(usize),
    /// The body did not arrive in time.
    TooSlow,
    /// The connection or the peer ended the body early.
    BrokenOff,
    /// A part of the request is invalid.
    Invalid(Invalid),
    /// The engine cannot decide the request. The second field is the JSON pointer of the part
    /// concerned.
    EngineError(EngineError, String),
}

impl From<Invalid> for Refused {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<JsonError> for Refused {
    fn from(fault: JsonError) -> Self {
        Self::Invalid(fault.into())
    }
}

impl From<EngineError> for Refused {
    fn from(fault: EngineError) -> Self {
        Self::EngineError(fault, String::new())
    }
}

impl Refused {
    /// Creates the refusal of an invalid part, at a pointer.
    pub(crate) fn invalid(
        pointer: impl Into<String>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::Invalid(Invalid::at(pointer, detail))
    }

    /// Returns the reason for which the request counts as a refused call, if it does.
    const fn reason(&self) -> Option<RefusalReason> {
        Some(match self {
            // Browsers are counted separately.
            Self::OtherSite | Self::OtherHost | Self::Busy => return None,
            Self::NotFound | Self::Method => RefusalReason::NotServed,
            Self::Token => RefusalReason::NoToken,
            Self::TooLong(_) => RefusalReason::TooLong,
            Self::Host | Self::TooSlow | Self::BrokenOff | Self::Invalid(_) => {
                RefusalReason::Malformed
            }
            Self::EngineError(fault, _) => fault.refusal(),
        })
    }

    /// Returns the JSON pointer of the part at fault, if it is a part.
    fn pointer(&self) -> Option<&str> {
        match self {
            Self::Invalid(invalid) => Some(&invalid.pointer),
            Self::EngineError(_, pointer) => Some(&**pointer).filter(|pointer| !pointer.is_empty()),
            Self::TooLong(_) | Self::TooSlow | Self::BrokenOff => Some(""),
            _ => None,
        }
    }

    fn description(&self) -> (StatusCode, &'static str, Cow<'_, str>) {
        let (status, code, detail) = match self {
            Self::NotFound => (StatusCode::NOT_FOUND, "no_such_path", "There is no such path."),
            Self::Method => {
                let detail = "The path has other methods: see the Allow field.";
                (StatusCode::METHOD_NOT_ALLOWED, "other_method", detail)
            }
            Self::Token => {
                let detail = "The field Authorization must be Bearer, and the server's token.";
                (StatusCode::UNAUTHORIZED, "token_needed", detail)
            }
            Self::OtherSite => {
                let detail = "A page of another site sent this request. If the site is trusted, \
                              list its host in [http] hosts.";
                (StatusCode::FORBIDDEN, "other_site", detail)
            }
            Self::OtherHost => {
                let detail =
                    "The service is not known by this name. To accept it, list it in [http] hosts.";
                (StatusCode::MISDIRECTED_REQUEST, "other_host", detail)
            }
            Self::Host => {
                let detail =
                    "A request of HTTP/1.1 has one field Host: a name or an address, and a port.";
                (StatusCode::BAD_REQUEST, "no_host", detail)
            }
            Self::Busy => {
                let detail = "Too many requests of this kind are under way.";
                (StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
            }
            Self::TooLong(max) => {
                let detail = format!("The body is longer than {max} bytes, as many as are read.");
                return (StatusCode::PAYLOAD_TOO_LARGE, "body_too_long", detail.into());
            }
            Self::TooSlow => {
                (StatusCode::REQUEST_TIMEOUT, "body_too_slow", "The body did not arrive in time.")
            }
            Self::BrokenOff => {
                (StatusCode::BAD_REQUEST, "body_broken_off", "The body ended early.")
            }
            Self::Invalid(invalid) => {
                (StatusCode::BAD_REQUEST, "invalid_request", &*invalid.detail)
            }
            Self::EngineError(fault, _) => {
                let (status, code) = of_engine_error(fault);
                return (status, code, fault.to_string().into());
            }
        };
        (status, code, detail.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, code, detail) = self.description();
        let error = self.pointer().map(|pointer| FieldError { pointer, detail: &detail });
        let problem =
            Problem { code: Some(code), errors: error.as_slice(), ..plain(status, &detail) };
        let field = match self {
            Self::Token => Some([(WWW_AUTHENTICATE, "Bearer")]),
            // The bytes that follow may belong to another request.
            Self::Host => Some([(CONNECTION, "close")]),
            Self::Busy => Some([(RETRY_AFTER, "2")]),
            _ => None,
        };
        (field, self.reason().map(Extension), response(&problem)).into_response()
    }
}

/// Creates a problem with only a status and a sentence about it.
pub(super) fn plain(status: StatusCode, detail: &str) -> Problem<'_> {
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
pub(super) fn response(problem: &Problem<'_>) -> Response {
    let status = StatusCode::from_u16(problem.status);
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(CONTENT_TYPE, PROBLEM)], problem.to_json()).into_response()
}

/// Returns the status and the machine-readable code of a request that the engine cannot decide.
const fn of_engine_error(fault: &EngineError) -> (StatusCode, &'static str) {
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
        EngineError::Cost { .. } => (StatusCode::BAD_REQUEST, "invalid_usage"),
        EngineError::NotFor(_) | EngineError::NotForItem { .. } | EngineError::NoPermits { .. } => {
            (StatusCode::BAD_REQUEST, "not_for_this_limit")
        }
        EngineError::TooManyLimits { .. } => (StatusCode::SERVICE_UNAVAILABLE, "too_many_limits"),
        EngineError::TooManyReservations { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, "too_many_reservations")
        }
        EngineError::NoCapacity => (StatusCode::SERVICE_UNAVAILABLE, "table_full"),
        // An unavailable store is not an internal error.
        EngineError::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_failed"),
        EngineError::Table(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    }
}
