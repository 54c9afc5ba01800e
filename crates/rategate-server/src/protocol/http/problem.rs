//! Refused requests, and the problem (RFC 9457) that each receives.

use std::borrow::Cow;

use http::header::{ALLOW, CONNECTION, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use rategate_tower::problem::{FieldError, Problem};

use super::invalid::Invalid;
use crate::engine::EngineError;
use crate::net::RefusalReason;
use crate::protocol::body::{Body, Unread, counted};
use crate::protocol::problem;

/// A request without a reply of its own.
#[derive(Debug)]
pub(super) enum Refused {
    /// There is no such path.
    NotFound,
    /// The path supports other methods, listed here.
    Method(&'static str),
    /// The token is missing or wrong.
    Token,
    /// A page of another site makes a browser send the request.
    OtherSite,
    /// The request's host is not a name of this service.
    OtherHost,
    /// The request does not have exactly one valid `Host` field.
    Host,
    /// A part of the request is invalid.
    Invalid(Invalid),
    /// The body was not received. The second field is the maximum number of its bytes.
    Unread(Unread, usize),
    /// The engine cannot decide the request. The second field is the JSON pointer of the part
    /// concerned.
    EngineError(EngineError, String),
}

impl From<Invalid> for Refused {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl Refused {
    /// Returns the reason for which the request counts as a refused call, if it does.
    const fn reason(&self) -> Option<RefusalReason> {
        Some(match self {
            // Browsers are counted separately.
            Self::OtherSite | Self::OtherHost => return None,
            Self::NotFound | Self::Method(_) => RefusalReason::NotServed,
            Self::Token => RefusalReason::NoToken,
            Self::Unread(Unread::TooLong, _) => RefusalReason::TooLong,
            Self::Host | Self::Unread(..) | Self::Invalid(_) => RefusalReason::Malformed,
            Self::EngineError(fault, _) => fault.refusal(),
        })
    }

    /// Builds the response.
    pub(super) fn response(&self) -> Response<Body> {
        let (status, code, detail) = self.description();
        let field_error = self.field_error(&detail);
        let plain = problem::plain(status, &detail);
        let mut response = problem::response(&Problem {
            code: Some(code),
            errors: field_error.as_slice(),
            ..plain
        });
        let field = match self {
            Self::Method(methods) => Some((ALLOW, *methods)),
            Self::Token => Some((WWW_AUTHENTICATE, "Bearer")),
            // The bytes that follow may belong to another request.
            Self::Host => Some((CONNECTION, "close")),
            _ => None,
        };
        if let Some((name, value)) = field {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        counted(response, self.reason())
    }

    fn field_error<'a>(&'a self, detail: &'a str) -> Option<FieldError<'a>> {
        match self {
            Self::Invalid(invalid) => Some(FieldError { pointer: &invalid.pointer, detail }),
            Self::EngineError(_, pointer) if !pointer.is_empty() => {
                Some(FieldError { pointer, detail })
            }
            Self::Unread(..) => Some(FieldError { pointer: "", detail }),
            _ => None,
        }
    }

    fn description(&self) -> (StatusCode, &'static str, Cow<'_, str>) {
        let (status, code, detail) = match self {
            Self::NotFound => (StatusCode::NOT_FOUND, "no_such_path", "There is no such path."),
            Self::Method(_) => {
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
            Self::Unread(Unread::TooLong, max) => {
                let detail = format!("The body is longer than {max} bytes, as many as are read.");
                return (StatusCode::PAYLOAD_TOO_LARGE, "body_too_long", detail.into());
            }
            Self::Unread(Unread::TooSlow, _) => {
                (StatusCode::REQUEST_TIMEOUT, "body_too_slow", "The body did not arrive in time.")
            }
            Self::Unread(Unread::BrokenOff, _) => {
                (StatusCode::BAD_REQUEST, "body_broken_off", "The body ended early.")
            }
            Self::Invalid(invalid) => {
                let detail = Cow::Borrowed(invalid.detail.as_ref());
                return (StatusCode::BAD_REQUEST, "invalid_request", detail);
            }
            Self::EngineError(fault, _) => {
                let (status, code) = problem::of_engine_error(fault);
                return (status, code, fault.to_string().into());
            }
        };
        (status, code, detail.into())
    }
}
