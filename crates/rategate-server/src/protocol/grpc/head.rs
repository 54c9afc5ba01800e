//! The head of a call: its method, deadline and encoding, and the check that it is gRPC.

use std::time::Duration;

use super::status::{Code, Status};
use crate::net::{Access, RefusalReason, Right, TokenShown};

/// The relevant content of a request's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) is_post: bool,
    pub(crate) is_grpc: bool,
    /// The token that the call shows.
    pub(crate) token: TokenShown,
    pub(crate) method: Option<Method>,
    pub(crate) is_compressed: bool,
    pub(crate) timeout: Timeout,
    /// The span of the caller, unless the reader of the head enters it itself.
    #[cfg(feature = "otlp")]
    pub(crate) span: Option<crate::engine::CallerSpan>,
}

/// The timeout that a caller states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Timeout {
    #[default]
    Absent,
    Of(Duration),
    Nonsense,
}

/// A callable method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    ShouldRateLimit,
    Check,
    Watch,
    Reflect,
}

/// The reason why a call does not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The request is not gRPC. It receives this HTTP status.
    Http(u16),
    /// The gRPC call is refused with this status.
    Grpc(Status),
}

impl Refusal {
    /// Returns the reason for which the call counts as refused, if it does.
    pub(crate) const fn reason(&self) -> Option<RefusalReason> {
        match self {
            Self::Http(_) => Some(RefusalReason::Malformed),
            Self::Grpc(status) => status.reason(),
        }
    }
}

/// The full name of the rate limit service.
pub(crate) const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// The full name of the health service.
pub(crate) const HEALTH: &str = "grpc.health.v1.Health";

/// The accepted message encoding.
pub(crate) const ENCODING: &str = "identity";

impl Head {
    /// The head of a request without any field.
    pub(crate) const EMPTY: Self = Self {
        is_post: false,
        is_grpc: false,
        token: TokenShown::Nothing,
        method: None,
        is_compressed: false,
        timeout: Timeout::Absent,
        #[cfg(feature = "otlp")]
        span: None,
    };

    /// Reads the head of an HTTP request.
    pub(crate) fn of(request: &http::request::Parts, access: &Access) -> Self {
        let field = |name| request.headers.get(name).map(http::HeaderValue::as_bytes);
        Self {
            is_post: request.method == http::Method::POST,
            is_grpc: field("content-type").is_some_and(is_grpc),
            token: field("authorization")
                .map_or(TokenShown::Nothing, |field| access.shown_by(field)),
            method: Method::of(request.uri.path().as_bytes()),
            is_compressed: field("grpc-encoding").is_some_and(is_compressed),
            timeout: field("grpc-timeout").map_or(Timeout::Absent, Timeout::of),
            // The code that holds all fields has entered the span already.
            #[cfg(feature = "otlp")]
            span: None,
        }
    }

    /// Returns the method, and the caller's timeout if stated. `required` is `true` if every call
    /// has to show the token.
    pub(crate) fn call(
        &self,
        access: &Access,
        required: bool,
    ) -> Result<(Method, Option<Duration>), Refusal> {
        if !self.is_post {
            return Err(Refusal::Http(405));
        }
        if !self.is_grpc {
            return Err(Refusal::Http(415));
        }
        let refused = |code, message| Err(Refusal::Grpc(Status::new(code, message)));
        let Some(method) = self.method else {
            return refused(Code::Unimplemented, "there is no such method");
        };
        // Orchestrators check the health of servers without a token.
        if access.permits(Right::Ask, self.token, required).is_err()
            && !matches!(method, Method::Check | Method::Watch)
        {
            return Err(Refusal::Grpc(Status::no_token()));
        }
        if self.is_compressed {
            let message = "messages are not compressed here: grpc-encoding has to be identity";
            return refused(Code::Unimplemented, message);
        }
        match self.timeout {
            Timeout::Nonsense => refused(Code::InvalidArgument, "grpc-timeout is no time"),
            Timeout::Of(timeout) => Ok((method, Some(timeout))),
            Timeout::Absent => Ok((method, None)),
        }
    }
}

impl Method {
    /// Returns the method of a path.
    pub(crate) fn of(path: &[u8]) -> Option<Self> {
        match path {
            b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => {
                Some(Self::ShouldRateLimit)
            }
            b"/grpc.health.v1.Health/Check" => Some(Self::Check),
            b"/grpc.health.v1.Health/Watch" => Some(Self::Watch),
            b"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            | b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => {
                Some(Self::Reflect)
            }
            _ => None,
        }
    }
}

impl Timeout {
    /// Reads a `grpc-timeout` field.
    pub(crate) fn of(field: &[u8]) -> Self {
        time_of(field).map_or(Self::Nonsense, Self::Of)
    }
}

/// Returns `true` if a `grpc-encoding` field means that messages are compressed.
pub(crate) fn is_compressed(field: &[u8]) -> bool {
    field != ENCODING.as_bytes()
}

/// Returns `true` if a content type is that of gRPC with messages in protocol buffers.
#[must_use]
pub fn is_grpc(content_type: &[u8]) -> bool {
    let Some(rest) = content_type.strip_prefix(b"application/grpc") else { return false };
    let rest = rest.strip_prefix(b"+proto").unwrap_or(rest);
    matches!(rest.first(), None | Some(b';' | b' '))
}

/// Parses a duration in gRPC's format: at most eight digits and a unit.
fn time_of(field: &[u8]) -> Option<Duration> {
    let (unit, digits) = field.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = std::str::from_utf8(digits).ok()?.parse::<u64>().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(count.saturating_mul(3600)),
        b'M' => Duration::from_secs(count.saturating_mul(60)),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(time_of(b"20m"), Some(Duration::from_millis(20)));
        assert_eq!(time_of(b"99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        for invalid in [&b""[..], b"m", b"20", b"-1m", b"123456789n", b"1x", b"+1m"] {
            assert_eq!(time_of(invalid), None, "{invalid:?}");
        }
    }

    #[test]
    fn content_types() {
        for right in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
            assert!(is_grpc(right.as_bytes()), "{right}");
        }
        for invalid in ["", "application/grpc-web", "application/grpc+json", "application/json"] {
            assert!(!is_grpc(invalid.as_bytes()), "{invalid}");
        }
    }
}
