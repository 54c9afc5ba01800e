//! What a call's head says: which method, until when, and whether it is gRPC at all.

use std::time::Duration;

use super::status::{Code, Status};

/// The fields of a request's head that matter here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head<'a> {
    pub(crate) method: &'a [u8],
    pub(crate) path: &'a [u8],
    pub(crate) content_type: &'a [u8],
    /// `grpc-encoding`, if it is there.
    pub(crate) encoding: Option<&'a [u8]>,
    /// `grpc-timeout`, if it is there.
    pub(crate) timeout: Option<&'a [u8]>,
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

/// The service's full name.
pub(crate) const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// The service that tells whether others serve.
pub(crate) const HEALTH: &str = "grpc.health.v1.Health";

/// What may be said about messages' encoding.
pub(crate) const ENCODING: &str = "identity";

impl<'a> Head<'a> {
    /// Of a request of HTTP.
    pub(crate) fn of(request: &'a http::request::Parts) -> Self {
        let field = |name| request.headers.get(name).map(http::HeaderValue::as_bytes);
        Self {
            method: request.method.as_str().as_bytes(),
            path: request.uri.path().as_bytes(),
            content_type: field("content-type").unwrap_or_default(),
            encoding: field("grpc-encoding"),
            timeout: field("grpc-timeout"),
        }
    }

    /// What is called, and for how long the caller waits.
    pub(crate) fn call(&self) -> Result<(Method, Option<Duration>), Refusal> {
        if self.method != b"POST" {
            return Err(Refusal::Http(405));
        }
        if !is_grpc(self.content_type) {
            return Err(Refusal::Http(415));
        }
        let method = self.method().map_err(Refusal::Grpc)?;
        if self.encoding.is_some_and(|encoding| encoding != ENCODING.as_bytes()) {
            let message = "messages are not compressed here: grpc-encoding has to be identity";
            return Err(Refusal::Grpc(Status::new(Code::Unimplemented, message)));
        }
        match self.timeout.map(time_of) {
            Some(None) => {
                let message = "grpc-timeout is no time";
                Err(Refusal::Grpc(Status::new(Code::InvalidArgument, message)))
            }
            timeout => Ok((method, timeout.flatten())),
        }
    }

    fn method(&self) -> Result<Method, Status> {
        match self.path {
            b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => {
                Ok(Method::ShouldRateLimit)
            }
            b"/grpc.health.v1.Health/Check" => Ok(Method::Check),
            b"/grpc.health.v1.Health/Watch" => Ok(Method::Watch),
            b"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            | b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => {
                Ok(Method::Reflect)
            }
            _ => Err(Status::new(Code::Unimplemented, "there is no such method here")),
        }
    }
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
