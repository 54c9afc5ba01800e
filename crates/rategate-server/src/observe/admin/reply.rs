//! Responses, and fields of queries.

use http::header::{ALLOW, CACHE_CONTROL, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use serde::Serialize;

use crate::engine::EngineError;
use crate::net::RefusalReason;
use crate::protocol::body::{Body, Unread, counted, typed};
use crate::protocol::http::query;
use crate::protocol::problem;

/// An error response.
#[derive(Debug)]
pub(in crate::observe) struct Problem {
    status: StatusCode,
    detail: String,
    header: Option<(HeaderName, &'static str)>,
}

impl Problem {
    fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), header: None }
    }

    pub(in crate::observe) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is nothing here")
    }

    pub(in crate::observe) fn no_rule(name: &str) -> Self {
        let name: String = name.chars().take(128).collect();
        Self::new(StatusCode::NOT_FOUND, format!("there is no rule `{}`", name.escape_debug()))
    }

    pub(super) fn unauthorized() -> Self {
        let detail = "this needs the token: `Authorization: Bearer ...`";
        let header = Some((WWW_AUTHENTICATE, "Bearer realm=\"rategate\""));
        Self { header, ..Self::new(StatusCode::UNAUTHORIZED, detail) }
    }

    pub(super) fn method(allowed: &'static str) -> Self {
        let detail = format!("only {allowed} here");
        Self { header: Some((ALLOW, allowed)), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, detail) }
    }

    pub(super) fn unread(why: Unread) -> Self {
        let (status, detail) = match why {
            Unread::TooLong => {
                (StatusCode::PAYLOAD_TOO_LARGE, "the body is longer than this path accepts")
            }
            Unread::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
            Unread::BrokenOff => (StatusCode::BAD_REQUEST, "the body ended early"),
        };
        Self::new(status, detail)
    }

    pub(in crate::observe) fn busy() -> Self {
        let detail = "too many requests of this kind are under way";
        Self {
            header: Some((RETRY_AFTER, "2")),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        }
    }

    pub(super) fn of_engine_error(fault: &EngineError) -> Self {
        let (status, _) = problem::of_engine_error(fault);
        Self::new(status, fault.to_string())
    }

    pub(super) fn response(&self) -> Response<Body> {
        let mut response = uncached(problem::response(&problem::plain(self.status, &self.detail)));
        if let Some((name, value)) = &self.header {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        counted(response, self.reason())
    }

    /// Returns the reason under which the request counts as a refused call, if it does.
    const fn reason(&self) -> Option<RefusalReason> {
        match self.status {
            StatusCode::UNAUTHORIZED => Some(RefusalReason::NoToken),
            StatusCode::BAD_REQUEST => Some(RefusalReason::Malformed),
            StatusCode::PAYLOAD_TOO_LARGE => Some(RefusalReason::TooLong),
            StatusCode::METHOD_NOT_ALLOWED => Some(RefusalReason::NotServed),
            _ => None,
        }
    }
}

pub(in crate::observe) fn json(answer: &impl Serialize) -> Result<Response<Body>, Problem> {
    let body = serde_json::to_vec(answer)
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(full("application/json", body))
}

pub(super) fn events(body: Body) -> Response<Body> {
    let mut response = full("text/event-stream", body);
    // Prevents proxies from holding events back.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Returns a response with this content type.
pub(in crate::observe) fn full(kind: &'static str, body: impl Into<Body>) -> Response<Body> {
    uncached(typed(kind, body))
}

/// Adds header fields against caching and content sniffing.
fn uncached(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// Returns the first field of a query with this name, decoded.
pub(super) fn field(query: &str, called: &str) -> Option<String> {
    let mut fields = query::pairs(query);
    let (_, value) = fields.find(|(name, _)| **name == *called.as_bytes())?;
    String::from_utf8(value.into_owned()).ok()
}
