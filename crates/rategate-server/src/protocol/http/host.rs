//! The check of the `Host` field, which an HTTP/1.1 request has exactly once (RFC 9112, section
//! 3.2). Of two fields, different readers would believe different ones.

use http::header::HOST;
use http::{HeaderValue, Request, Response, Version};

use super::problem::Refused;
use crate::protocol::body::Body;

/// Refuses an HTTP/1 request without exactly one valid `Host` field. An HTTP/1.0 request may have
/// none.
pub(crate) fn refuse<B>(request: &Request<B>) -> Option<Response<Body>> {
    let mut fields = request.headers().get_all(HOST).into_iter();
    let is_right = match (fields.next(), fields.next()) {
        (Some(host), None) => is_host(host),
        (None, _) => request.version() != Version::HTTP_11,
        (Some(_), Some(_)) => request.version() >= Version::HTTP_2,
    };
    (!is_right).then(|| Refused::Host.response())
}

/// Returns `true` if a value has only bytes of a host and a port. It may be empty.
fn is_host(value: &HeaderValue) -> bool {
    let is_of_host =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(byte);
    value.as_bytes().iter().all(is_of_host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(version: Version, hosts: &[&str]) -> bool {
        let mut request = Request::builder().version(version);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        refuse(&request.body(()).unwrap()).is_some_and(|response| response.status() == 400)
    }

    #[test]
    fn a_request_has_one_host() {
        for host in ["localhost", "127.0.0.1:80", "[::1]:80", "a_b.example", "", "%41.example"] {
            assert!(!is_refused(Version::HTTP_11, &[host]), "{host}");
        }
        for host in ["a b", "a/b", "user@host", "a?b", "a#b", "a\\b", "ä"] {
            assert!(is_refused(Version::HTTP_11, &[host]), "{host}");
        }
        assert!(is_refused(Version::HTTP_11, &[]));
        assert!(is_refused(Version::HTTP_11, &["a", "a"]));
        assert!(is_refused(Version::HTTP_10, &["a", "b"]));
        assert!(!is_refused(Version::HTTP_10, &[]));
        assert!(!is_refused(Version::HTTP_2, &[]));
    }
}
