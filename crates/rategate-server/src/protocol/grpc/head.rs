//! What a call's head says: which method, until when, and whether it is gRPC at all.

use std::time::Duration;

use super::status::{Code, Status};
use crate::net::{Access, RefusalReason, Right, TokenShown};

/// What of a request's head matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) is_post: bool,
    pub(crate) is_grpc: bool,
    /// The token, as it is shown.
    pub(crate) token: TokenShown,
    pub(crate) method: Option<Method>,
    pub(crate) is_compressed: bool,
    pub(crate) timeout: Timeout,
    /// In which span it asks, where whoever reads the head does not see to that.
    #[cfg(feature = "otlp")]
    pub(crate) span: Option<crate::engine::CallerSpan>,
}

/// How long a caller waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Timeout {
    #[default]
    Unsaid,
    Of(Duration),
    Nonsense,
}

/// What can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    ShouldRateLimit,
    Check,
    Watch,
    Reflect,
}

/// Why a call does not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is not gRPC: a status of HTTP.
    Http(u16),
    /// It is.
    Grpc(Status),
}

impl Refusal {
    /// The reason for which its call counts as refused, if it does.
    pub(crate) const fn reason(&self) -> Option<RefusalReason> {
        match self {
            Self::Http(_) => Some(RefusalReason::Malformed),
            Self::Grpc(status) => status.reason(),
        }
    }
}

/// The service's full name.
pub(crate) const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// The service that tells whether others serve.
pub(crate) const HEALTH: &str = "grpc.health.v1.Health";

/// What may be said about messages' encoding.
pub(crate) const ENCODING: &str = "identity";

impl Head {
    /// Of a request that says nothing.
    pub(crate) const EMPTY: Self = Self {
        is_post: false,
        is_grpc: false,
        token: TokenShown::Nothing,
        method: None,
        is_compressed: false,
        timeout: Timeout::Unsaid,
        #[cfg(feature = "otlp")]
        span: None,
    };

    /// Of a request of HTTP.
    pub(crate) fn of(request: &http::request::Parts, access: &Access) -> Self {
        let field = |name| request.headers.get(name).map(http::HeaderValue::as_bytes);
        Self {
            is_post: request.method == http::Method::POST,
            is_grpc: field("content-type").is_some_and(is_grpc),
            token: field("authorization")
                .map_or(TokenShown::Nothing, |field| access.shown_by(field)),
            method: Method::of(request.uri.path().as_bytes()),
            is_compressed: field("grpc-encoding").is_some_and(is_compressed),
            timeout: field("grpc-timeout").map_or(Timeout::Unsaid, Timeout::of),
            // Whoever has all fields has entered it already.
            #[cfg(feature = "otlp")]
            span: None,
        }
    }

    /// Returns the method, and for how long the caller waits if it says so. `required` is whether every call has to show the token.
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
            return refused(Code::Unimplemented, "there is no such method here");
        };
        // Those that start and stop servers ask for their health, and have no token.
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
            Timeout::Unsaid => Ok((method, None)),
        }
    }
}

impl Method {
    /// Of a path.
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
    /// Of a field `grpc-timeout`.
    pub(crate) fn of(field: &[u8]) -> Self {
        time_of(field).map_or(Self::Nonsense, Self::Of)
    }
}

/// Whether a field `grpc-encoding` means that messages are compressed.
pub(crate) fn is_compressed(field: &[u8]) -> bool {
    field != ENCODING.as_bytes()
}

/// Whether a content type is one of gRPC's whose messages are protocol buffers.
#[must_use]
pub fn is_grpc(content_type: &[u8]) -> bool {
    let Some(rest) = content_type.strip_prefix(b"application/grpc") else { return false };
    let rest = rest.strip_prefix(b"+proto").unwrap_or(rest);
    matches!(rest.first(), None | Some(b';' | b' '))
}

/// A time as gRPC writes it: at most eight digits and a unit.
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
        for wrong in [&b""[..], b"m", b"20", b"-1m", b"123456789n", b"1x", b"+1m"] {
            assert_eq!(time_of(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn content_types() {
        for right in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
            assert!(is_grpc(right.as_bytes()), "{right}");
        }
        for wrong in ["", "application/grpc-web", "application/grpc+json", "application/json"] {
            assert!(!is_grpc(wrong.as_bytes()), "{wrong}");
        }
    }
}
