//! Refusals of requests with their reasons, and the responses to clients, in HTTP and in gRPC.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode};

use crate::headers::retry_seconds;
use crate::problem::{self, BLANK, Problem, QUOTA_EXCEEDED};

/// A refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    reason: Reason,
    retry_after: Option<Duration>,
    policy: Option<Box<str>>,
}

/// The reason for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The limit is reached, or the wait would be too long: 429.
    OverLimit,
    /// The client is on the [deny list](crate::RateLimitLayer::deny): 429.
    OnDenyList,
    /// The request costs more permits than could ever pass together: 400.
    TooCostly,
    /// The request has no key for the limit or for the deny list, with
    /// [`OnMissingKey::Refuse`](crate::OnMissingKey::Refuse): 400.
    NoKey,
    /// The request names its client more than once, such as by a repeated header, and
    /// [`missing`](crate::RateLimitLayer::missing) does not let it share or pass: 400.
    AmbiguousKey,
    /// The key table is full, with [`Overflow::Refuse`](rategate::keyed::Overflow::Refuse), or has
    /// no memory for the state of the request: 503.
    TooManyKeys,
    /// The number of waiters has reached [`Limiter::bound_queue`](rategate::Limiter::bound_queue),
    /// or the number of keys with waiters the bound of
    /// [`Capacity::max_bytes`](rategate::keyed::Capacity::max_bytes): 503.
    TooManyWaiting,
    /// The limiter has been closed: 503.
    Closed,
    /// The store is unavailable and the limiter is configured to
    /// [deny](rategate::distributed::OnUnavailable::Deny) then, or the store rejects the request as
    /// invalid: 503.
    Undecided,
    /// The request has a [share](crate::RateLimitLayer::share) of a limit that has no shares: one
    /// that does not limit requests in flight, or that is in a store: 500.
    NoShares,
    /// The table does not have the tier that its function returned for the key: 500.
    NoSuchTier,
    /// The server has not added the data for the key to the request, such as the peer's address,
    /// and [`missing`](crate::RateLimitLayer::missing) is not configured: 500.
    KeyNotProvided,
}

impl Refusal {
    pub(crate) const fn new(reason: Reason, retry_after: Option<Duration>) -> Self {
        Self { reason, retry_after, policy: None }
    }

    /// Returns the refusal under a policy's name.
    pub(crate) fn under(mut self, policy: &str) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Returns the reason why the request does not pass.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the exact time until the same request passes, if no other request comes first.
    /// Never zero.
    ///
    /// * For a client on the deny list: until its entry has ended and the limit lets the request
    ///   pass. With a limit in a store, until the entry has ended.
    /// * For permits in flight in a store: until the end of the oldest lease. That is the latest
    ///   instant, as a response may end before.
    ///
    /// `None` where waiting alone cannot help, or the time is unknown.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the name of the policy, if the layer [reports](crate::RateLimitLayer::headers) one.
    #[must_use]
    pub fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// Returns the HTTP status of the refusal.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self.reason {
            Reason::OverLimit | Reason::OnDenyList => StatusCode::TOO_MANY_REQUESTS,
            Reason::TooCostly | Reason::NoKey | Reason::AmbiguousKey => StatusCode::BAD_REQUEST,
            Reason::TooManyKeys | Reason::TooManyWaiting | Reason::Closed | Reason::Undecided => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Reason::NoShares | Reason::NoSuchTier | Reason::KeyNotProvided => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// Returns one sentence for people.
    #[must_use]
    pub const fn detail(&self) -> &'static str {
        match self.reason {
            Reason::OverLimit => "The limit is reached.",
            Reason::OnDenyList => {
                "The client exceeded the limit and is on the deny list for a while."
            }
            Reason::TooCostly => "The request costs more than could ever pass at once.",
            Reason::NoKey => "The request does not name its client.",
            Reason::AmbiguousKey => "The request names its client more than once.",
            Reason::TooManyKeys => "The key table is full.",
            Reason::TooManyWaiting => "Too many requests are waiting.",
            Reason::Closed => "The limiter is closed.",
            Reason::Undecided => "The limit cannot be decided now.",
            Reason::NoShares => "The server's limit has no shares.",
            Reason::NoSuchTier => "The server has no limit for this client.",
            Reason::KeyNotProvided => {
                "The server is not set up to tell its clients apart. Its log states the cause."
            }
        }
    }

    /// Returns the wait in milliseconds, rounded up and at least one.
    pub(crate) fn retry_after_ms(&self) -> Option<u64> {
        let wait_ns = self.retry_after?.as_nanos().max(1);
        Some(u64::try_from(wait_ns.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }

    /// Returns the gRPC status code of the refusal.
    const fn grpc_status(&self) -> u8 {
        match self.reason {
            Reason::OverLimit | Reason::OnDenyList => 8, // RESOURCE_EXHAUSTED
            Reason::TooCostly | Reason::NoKey | Reason::AmbiguousKey => 3, // INVALID_ARGUMENT
            // UNAVAILABLE
            Reason::TooManyKeys | Reason::TooManyWaiting | Reason::Closed | Reason::Undecided => 14,
            Reason::NoShares | Reason::NoSuchTier | Reason::KeyNotProvided => 13, // INTERNAL
        }
    }
}

/// The form of the response to a refused client. All forms have `Retry-After` where waiting helps,
/// and the [`Headers`](crate::headers::Headers) of the layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// The refusal's [status](Refusal::status), and a problem (RFC 9457) as the body.
    ///
    /// It is `application/problem+json` with `type`, `title`, `status`, `detail`, `retry_after` in
    /// whole seconds as in `Retry-After`, `retry_after_ms` rounded up to milliseconds, and, if it
    /// has a name, the policy in `violated-policies`.
    #[default]
    Problem,
    /// Status 200 and a `grpc-status`, without a body.
    ///
    /// The codes are 8 (`RESOURCE_EXHAUSTED`) over the limit, 3 (`INVALID_ARGUMENT`) for a 400, 14
    /// (`UNAVAILABLE`) for a 503 and 13 (`INTERNAL`) for a 500. Where waiting helps,
    /// `grpc-retry-pushback-ms` is added.
    Grpc,
    /// gRPC for requests whose content type begins with `application/grpc`, problems for all
    /// others.
    ByContentType,
}

/// A closure that builds the application's own responses.
type Answer = Arc<dyn Fn(&Refusal, &Parts) -> Response<String> + Send + Sync>;

/// The builder of responses to refused clients.
#[derive(Clone)]
pub(crate) enum Answers {
    As(Form),
    By(Answer),
}

impl Answers {
    pub(crate) fn answer(&self, refusal: &Refusal, head: &Parts) -> Response<String> {
        match self {
            Self::As(Form::Grpc) => as_grpc(refusal),
            Self::As(Form::ByContentType) if is_grpc(head) => as_grpc(refusal),
            Self::As(Form::Problem | Form::ByContentType) => as_problem(refusal),
            Self::By(answer) => answer(refusal, head),
        }
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::As(form) => form.fmt(f),
            Self::By(_) => f.write_str("By(_)"),
        }
    }
}

fn as_problem(refusal: &Refusal) -> Response<String> {
    let mut response = Response::new(problem(refusal));
    *response.status_mut() = refusal.status();
    let content_type = HeaderValue::from_static(problem::CONTENT_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Builds a response of headers only, which gRPC calls "trailers only".
fn as_grpc(refusal: &Refusal) -> Response<String> {
    const STATUS: HeaderName = HeaderName::from_static("grpc-status");
    const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
    const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

    let mut response = Response::new(String::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(STATUS, HeaderValue::from(u16::from(refusal.grpc_status())));
    // Plain ASCII without a percent sign, so it needs no encoding.
    headers.insert(MESSAGE, HeaderValue::from_static(refusal.detail()));
    if let Some(wait_ms) = refusal.retry_after_ms() {
        // gRPC reads the value as a signed 32-bit number.
        let wait_ms = i32::try_from(wait_ms).unwrap_or(i32::MAX);
        headers.insert(PUSHBACK, HeaderValue::from(wait_ms));
    }
    response
}

fn is_grpc(head: &Parts) -> bool {
    let content_type = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    content_type.is_some_and(|value| value.starts_with(b"application/grpc"))
}

/// Returns a refusal as a JSON object.
fn problem(refusal: &Refusal) -> String {
    let status = refusal.status();
    let over = matches!(refusal.reason(), Reason::OverLimit);
    let wait = refusal.retry_after().map(|wait| {
        let wait_ms = refusal.retry_after_ms().unwrap_or(1);
        [("retry_after", retry_seconds(wait)), ("retry_after_ms", wait_ms)]
    });
    let policy = refusal.policy().filter(|_| over);
    let problem = Problem {
        kind: if over { QUOTA_EXCEEDED } else { BLANK },
        title: if over { "Quota Exceeded" } else { status.canonical_reason().unwrap_or_default() },
        status: status.as_u16(),
        detail: refusal.detail(),
        code: None,
        numbers: wait.as_ref().map_or(&[], <[_; 2]>::as_slice),
        violated: policy.as_slice(),
        errors: &[],
    };
    problem.to_json()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Request;
    use http::request::Parts;

    use super::{Answers, Form, Reason, Refusal, problem};

    fn head_with_type(content_type: &str) -> Parts {
        let request = Request::post("/").header("content-type", content_type);
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn grpc_status_is_in_headers() {
        let over = Refusal::new(Reason::OverLimit, Some(Duration::from_nanos(1)));
        let response =
            Answers::As(Form::Grpc).answer(&over, &head_with_type("application/grpc+proto"));
        assert_eq!(response.status(), 200);
        assert_eq!(response.body(), "");
        let headers = response.headers();
        assert_eq!(headers["content-type"], "application/grpc");
        assert_eq!(headers["grpc-status"], "8");
        assert_eq!(headers["grpc-message"], "The limit is reached.");
        assert_eq!(headers["grpc-retry-pushback-ms"], "1");

        let never = Refusal::new(Reason::TooCostly, None);
        let response = Answers::As(Form::Grpc).answer(&never, &head_with_type("application/grpc"));
        assert_eq!(response.headers()["grpc-status"], "3");
        assert!(!response.headers().contains_key("grpc-retry-pushback-ms"));
    }

    #[test]
    fn grpc_requests_get_grpc_responses() {
        let over = Refusal::new(Reason::OverLimit, None);
        let status = |content_type| {
            Answers::As(Form::ByContentType).answer(&over, &head_with_type(content_type)).status()
        };
        assert_eq!(status("application/grpc"), 200);
        assert_eq!(status("application/grpc-web+proto"), 200);
        assert_eq!(status("application/json"), 429);
    }

    #[test]
    fn milliseconds_are_rounded_up_and_never_zero() {
        let ms = |wait| Refusal::new(Reason::OverLimit, Some(wait)).retry_after_ms();
        assert_eq!(ms(Duration::ZERO), Some(1));
        assert_eq!(ms(Duration::from_nanos(1)), Some(1));
        assert_eq!(ms(Duration::from_millis(7)), Some(7));
        assert_eq!(ms(Duration::from_nanos(7_000_001)), Some(8));
        assert_eq!(ms(Duration::MAX), Some(u64::MAX));
    }

    #[test]
    fn golden_problems() {
        let over = Refusal::new(Reason::OverLimit, Some(Duration::from_micros(1_500_001)));
        assert_eq!(
            problem(&over.clone().under("a\"b")),
            concat!(
                r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
                r#""title":"Quota Exceeded","status":429,"#,
                r#""detail":"The limit is reached.","#,
                r#""retry_after":2,"retry_after_ms":1501,"violated-policies":["a\"b"]}"#
            )
        );
        assert_eq!(
            problem(&Refusal::new(Reason::Closed, None).under("p")),
            concat!(
                r#"{"type":"about:blank","title":"Service Unavailable","status":503,"#,
                r#""detail":"The limiter is closed."}"#
            )
        );
    }
}
