//! Requests that cannot be answered, and the problem (RFC 9457) that each is told.

use std::borrow::Cow;

use http::header::{ALLOW, CONNECTION, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use rategate_tower::problem::{Problem, Wrong};

use super::invalid::Invalid;
use crate::engine::Fault;
use crate::net::RefusalReason;
use crate::protocol::body::{Body, Unread};
use crate::protocol::problem;

/// A request that has no answer of its own.
#[derive(Debug)]
pub(super) enum Refused {
    /// No such path.
    NotFound,
    /// The path has other methods: these.
    Method(&'static str),
    /// The token is missing, or another one.
    Token,
    /// A page of another site makes a browser ask it.
    OtherSite,
    /// It is for a name that is not this service's.
    OtherHost,
    /// It has not the one field `Host` that a request has.
    Host,
    /// Something in it is wrong.
    Invalid(Invalid),
    /// Its body did not come.
    Unread(Unread),
    /// The engine has no answer; about which part, as a JSON pointer.
    Fault(Fault, String),
}

impl From<Invalid> for Refused {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl Refused {
    /// The reason for which it counts as a refused call, if it does.
    const fn reason(&self) -> Option<RefusalReason> {
        Some(match self {
            // Browsers have a count of their own, and paths that there are not ask for no decision.
            Self::NotFound | Self::Method(_) | Self::OtherSite | Self::OtherHost => return None,
            Self::Token => RefusalReason::NoToken,
            Self::Unread(Unread::TooLong) => RefusalReason::TooLong,
            Self::Host | Self::Unread(_) | Self::Invalid(_) => RefusalReason::Malformed,
            Self::Fault(..) => RefusalReason::Fault,
        })
    }

    /// The response.
    pub(super) fn response(&self) -> Response<Body> {
        let (status, code, detail) = self.told();
        let wrong = self.wrong(&detail);
        let plain = problem::plain(status, &detail);
        let mut response =
            problem::response(&Problem { code: Some(code), errors: wrong.as_slice(), ..plain });
        let field = match self {
            Self::Method(methods) => Some((ALLOW, *methods)),
            Self::Token => Some((WWW_AUTHENTICATE, "Bearer")),
            // What comes behind it may be meant for another.
            Self::Host => Some((CONNECTION, "close")),
            _ => None,
        };
        if let Some((name, value)) = field {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        if let Some(reason) = self.reason() {
            response.extensions_mut().insert(reason);
        }
        response
    }

    fn wrong<'a>(&'a self, detail: &'a str) -> Option<Wrong<'a>> {
        match self {
            Self::Invalid(invalid) => Some(Wrong { pointer: &invalid.pointer, detail }),
            Self::Fault(_, pointer) if !pointer.is_empty() => Some(Wrong { pointer, detail }),
            _ => None,
        }
    }

    fn told(&self) -> (StatusCode, &'static str, Cow<'_, str>) {
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
                let detail = "A page of another site asks. If it is one of yours, list its host in [http] hosts.";
                (StatusCode::FORBIDDEN, "other_site", detail)
            }
            Self::OtherHost => {
                let detail =
                    "The service does not go by this name. If it should, list it in [http] hosts.";
                (StatusCode::MISDIRECTED_REQUEST, "other_host", detail)
            }
            Self::Host => {
                let detail =
                    "A request of HTTP/1.1 has one field Host: a name or an address, and a port.";
                (StatusCode::BAD_REQUEST, "no_host", detail)
            }
            Self::Unread(Unread::TooLong) => {
                (StatusCode::PAYLOAD_TOO_LARGE, "body_too_long", "The body is too long.")
            }
            Self::Unread(Unread::TooSlow) => {
                (StatusCode::REQUEST_TIMEOUT, "body_too_slow", "The body did not come in time.")
            }
            Self::Unread(Unread::BrokenOff) => {
                (StatusCode::BAD_REQUEST, "body_broken_off", "The body broke off.")
            }
            Self::Invalid(invalid) => {
                let detail = Cow::Borrowed(invalid.detail.as_ref());
                return (StatusCode::BAD_REQUEST, "invalid_request", detail);
            }
            Self::Fault(fault, _) => {
                let (status, code) = problem::of_fault(fault);
                return (status, code, fault.to_string().into());
            }
        };
        (status, code, detail.into())
    }
}
