//! What a request is answered that cannot be: a problem (RFC 9457).

use std::borrow::Cow;

use http::header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use rategate_tower::problem::{BLANK, CONTENT_TYPE as PROBLEM, Problem, Wrong};

use super::invalid::Invalid;
use crate::engine::Fault;
use crate::protocol::body::{Body, Unread};

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
    /// The response.
    pub(super) fn response(&self) -> Response<Body> {
        let (status, code, detail) = self.told();
        let wrong = self.wrong(&detail);
        let problem = Problem {
            kind: BLANK,
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            detail: &detail,
            code: Some(code),
            numbers: &[],
            violated: &[],
            errors: wrong.as_slice(),
        };
        let mut response = Response::new(Body::from(problem.to_json()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
        match self {
            Self::Method(methods) => {
                headers.insert(ALLOW, HeaderValue::from_static(methods));
            }
            Self::Token => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
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
                let (status, code) = of_fault(fault);
                return (status, code, fault.to_string().into());
            }
        };
        (status, code, detail.into())
    }
}

const fn of_fault(fault: &Fault) -> (StatusCode, &'static str) {
    match fault {
        Fault::NotLoaded => (StatusCode::SERVICE_UNAVAILABLE, "not_loaded"),
        Fault::NoSuchRule(_) => (StatusCode::NOT_FOUND, "no_such_rule"),
        Fault::Values { .. } => (StatusCode::BAD_REQUEST, "wrong_values"),
        Fault::OtherValue { .. } => (StatusCode::BAD_REQUEST, "other_value"),
        Fault::Limit(_) | Fault::Rate(_) => (StatusCode::BAD_REQUEST, "invalid_limit"),
        Fault::TooManyItems { .. } => (StatusCode::BAD_REQUEST, "too_many_items"),
        Fault::AskedTwice { .. } => (StatusCode::BAD_REQUEST, "asked_twice"),
        Fault::NotFor(_) => (StatusCode::BAD_REQUEST, "not_for_this_limit"),
        Fault::TooManyLimits { .. } => (StatusCode::SERVICE_UNAVAILABLE, "too_many_limits"),
        Fault::NoRoom => (StatusCode::SERVICE_UNAVAILABLE, "no_room"),
        Fault::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_failed"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_gone_is_no_mistake_of_the_services() {
        let fault = of_fault(&Fault::Store("it is gone".into()));
        assert_eq!(fault, (StatusCode::SERVICE_UNAVAILABLE, "store_failed"));
    }
}
