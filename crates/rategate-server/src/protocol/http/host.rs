//! The check of the `Host` field, which an HTTP/1.1 request has exactly once (RFC 9112, section
//! 3.2). Of two fields, different readers would believe different ones.

use http::header::HOST;
use http::{HeaderValue, Request, Version};

use super::refused::Refused;

/// Refuses an HTTP/1 request without exactly one valid `Host` field. An HTTP/1.0 request may have
/// none.
pub(crate) fn check_host<B>(request: &Request<B>) -> Result<(), Refused> {
    let mut fields = request.headers().get_all(HOST).into_iter();
    let is_right = match (fields.next(), fields.next()) {
        (Some(host), None) => is_host(host),
        (None, _) => request.version() != Version::HTTP_11,
        (Some(_), Some(_)) => request.version() >= Version::HTTP_2,
    };
    if is_right { Ok(()) } else { Err(Refused::Host) }
}

/// Returns `true` if a value has only bytes of a host and a port. It may be empty.
fn is_host(value: &HeaderValue) -> bool {
    let is_of_host =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(byte);
    value.as_bytes().iter().all(is_of_host)
}
