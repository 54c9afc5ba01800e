//! A guard against requests that pages of other sites make a browser send.
//!
//! A page of another site can make a browser send requests to this machine. Under a name of its
//! own that resolves here (DNS rebinding), it can even read the replies. Programs and proxies are
//! not affected.
//!
//! - A request by a method other than `GET` and `HEAD`, with a browser's `Origin` or
//!   `Sec-Fetch-Site`, is refused if the page belongs to another site.
//! - A request for `/v1/auth`, by any method, is refused in the same way if it comes from the
//!   browser itself and not from a proxy that passes its fields on.
//! - A request to read a non-public path is refused if its host name is unknown, on a listener
//!   that requires known names.
//!
//! See decision 0039 for the choice of these fields.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{CONNECTION, FORWARDED, HOST, ORIGIN, VIA};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version};

use super::Caller;
use super::refused::Refused;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// A check that keeps pages of other sites out of a listener. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    hosts: Arc<[String]>,
    is_by_name: bool,
}

/// The reason why a browser's request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginRefusal {
    /// The page belongs to another site.
    Page,
    /// The request's host is not a name of this service.
    Name,
}

impl Guard {
    /// Creates the guard of a listener that is also reached under `hosts`, given without ports.
    ///
    /// If it `is_by_name`, requests of browsers and requests for non-public paths need one of
    /// these hosts, `localhost`, or a numeric address.
    #[must_use]
    pub fn new(hosts: &[String], is_by_name: bool) -> Self {
        Self { hosts: hosts.into(), is_by_name }
    }

    /// Admits requests of programs and of pages of this service.
    ///
    /// Costs one scan of the names of a request's fields. Costs nothing where every call needs the
    /// token, which no page of another site has.
    ///
    /// # Errors
    ///
    /// [`OriginRefusal`].
    pub fn admit<B>(&self, request: &Request<B>, caller: &Caller) -> Result<(), OriginRefusal> {
        if caller.token_required {
            return Ok(());
        }
        let path = request.uri().path();
        if path == "/v1/auth" {
            return if is_of_browser(request.headers()) && is_direct(request) {
                self.admit_page(request)
            } else {
                Ok(())
            };
        }
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return if is_public_path(path) { Ok(()) } else { self.admit_name(request) };
        }
        if is_of_browser(request.headers()) { self.admit_page(request) } else { Ok(()) }
    }

    /// Admits a browser's request.
    #[cold]
    fn admit_page<B>(&self, request: &Request<B>) -> Result<(), OriginRefusal> {
        self.admit_name(request)?;
        let headers = request.headers();
        let own = authorities(request).next();
        let is_own_origin = |origin: &HeaderValue| {
            let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
            origin.is_some_and(|(_, at)| {
                own.is_some_and(|own| own.eq_ignore_ascii_case(at.as_bytes()))
                    || self.is_listed(host_of(at))
            })
        };
        let mut origins = headers.get_all(ORIGIN).iter().peekable();
        let is_own = if origins.peek().is_some() {
            origins.all(is_own_origin)
        } else {
            let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
            sites.all(|site| site == "same-origin" || site == "none")
        };
        if is_own { Ok(()) } else { Err(OriginRefusal::Page) }
    }

    /// Admits a request by its host, where that has to be known.
    fn admit_name<B>(&self, request: &Request<B>) -> Result<(), OriginRefusal> {
        let is_ours = |authority: &[u8]| {
            let host = std::str::from_utf8(authority).map(host_of).unwrap_or_default();
            // A numeric address cannot be made to resolve elsewhere.
            host.eq_ignore_ascii_case("localhost")
                || host.parse::<IpAddr>().is_ok()
                || self.is_listed(host)
        };
        if !self.is_by_name || authorities(request).all(is_ours) {
            Ok(())
        } else {
            Err(OriginRefusal::Name)
        }
    }

    fn is_listed(&self, host: &str) -> bool {
        self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
    }
}

impl From<OriginRefusal> for Refused {
    fn from(refusal: OriginRefusal) -> Self {
        match refusal {
            OriginRefusal::Page => Self::OtherSite,
            OriginRefusal::Name => Self::OtherHost,
        }
    }
}

/// Returns `true` for the public paths, which load balancers and client generators read. They
/// reveal nothing about clients.
fn is_public_path(path: &str) -> bool {
    matches!(path, "/healthz" | "/health" | "/healthcheck" | "/readyz" | "/openapi.json")
}

/// Returns `true` if a field is present that browsers set and no page can set.
fn is_of_browser(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| *name == ORIGIN || *name == SEC_FETCH_SITE)
}

/// Returns `true` if a browser itself sends the request, and not a proxy that passes a browser's
/// fields on.
///
/// Proxies add fields about a request's origin, which a page cannot set without a preflight
/// request. They do not forward fields about the connection, which all browsers send in HTTP/1.1.
fn is_direct<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let is_forwarded = headers.keys().any(|name| {
        let text = name.as_str();
        *name == FORWARDED
            || *name == VIA
            || text == "x-real-ip"
            || text.starts_with("x-forwarded-")
            || text.starts_with("x-original-")
    });
    let is_keep_alive = headers.get_all(CONNECTION).iter().any(|value| {
        let mut words = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        words.any(|word| word.eq_ignore_ascii_case(b"keep-alive"))
    });
    !is_forwarded && (is_keep_alive || request.version() >= Version::HTTP_2)
}

/// Returns the authorities of a request: that of its address, and those of its `Host` fields.
fn authorities<B>(request: &Request<B>) -> impl Iterator<Item = &[u8]> {
    let address = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let fields = request.headers().get_all(HOST).iter().map(HeaderValue::as_bytes);
    address.into_iter().chain(fields)
}

/// Returns an authority without its port.
fn host_of(authority: &str) -> &str {
    if let Some(rest) = authority.strip_prefix('[') {
        return match rest.split_once(']') {
            Some((six, port)) if is_port(port) => six,
            _ => "",
        };
    }
    match authority.rfind(':').and_then(|at| authority.split_at_checked(at)) {
        Some((host, port)) if is_port(port) => host,
        Some(_) => "",
        None => authority,
    }
}

fn is_port(text: &str) -> bool {
    let digits = text.strip_prefix(':');
    text.is_empty() || digits.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a request from its request line and fields, like `host: a | origin: http://b`.
    fn request(line: &str, fields: &str) -> Request<()> {
        let (method, uri) = line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(uri);
        for field in fields.split(" | ").filter(|field| !field.is_empty()) {
            let (name, value) = field.split_once(": ").unwrap();
            request = request.header(name, value);
        }
        request.body(()).unwrap()
    }

    fn admit(line: &str, fields: &str) -> Result<(), OriginRefusal> {
        let guard = Guard::new(&["limits.example".to_owned()], true);
        guard.admit(&request(line, fields), &Caller::default())
    }

    const PAGE: Result<(), OriginRefusal> = Err(OriginRefusal::Page);
    const NAME: Result<(), OriginRefusal> = Err(OriginRefusal::Name);

    #[test]
    fn deciding_is_by_the_page() {
        let paths = ["/v1/check", "/json", "/v1/simulate", "/v1/explain"];
        for (fields, expected) in [
            // Programs, by any name.
            ("", Ok(())),
            ("host: 127.0.0.1:8080 | user-agent: curl/8", Ok(())),
            ("host: rategate", Ok(())),
            ("host: shop.example", Ok(())),
            // Pages of other sites.
            ("host: 127.0.0.1:8080 | origin: http://evil.example", PAGE),
            ("host: 127.0.0.1:8080 | origin: null", PAGE),
            ("host: 127.0.0.1:8080 | origin: ", PAGE),
            ("host: 127.0.0.1:8080 | origin: http://127.0.0.1:3000", PAGE),
            ("host: 127.0.0.1:8080 | origin: http://127.0.0.1:80800", PAGE),
            ("host: 127.0.0.1:8080 | origin: http://localhost:8080", PAGE),
            ("host: 127.0.0.1:8080 | origin: http://limits.example.evil.example", PAGE),
            ("host: 127.0.0.1:8080 | sec-fetch-site: cross-site", PAGE),
            ("host: 127.0.0.1:8080 | sec-fetch-site: same-site", PAGE),
            ("host: 127.0.0.1:8080 | sec-fetch-site: whatever", PAGE),
            ("host: a.b | origin: http://127.0.0.1:8080 | origin: http://evil.example", NAME),
            ("host: [::1] | origin: http://[::1] | origin: http://evil.example", PAGE),
            // Our own page, and those that are listed.
            ("host: 127.0.0.1:8080 | origin: http://127.0.0.1:8080", Ok(())),
            ("host: LocalHost:8080 | origin: http://localhost:8080", Ok(())),
            ("host: [::1]:8080 | origin: http://[::1]:8080", Ok(())),
            ("host: limits.example | origin: https://limits.example", Ok(())),
            // A proxy forwards the request under this service's address.
            ("host: 127.0.0.1:8080 | origin: https://Limits.example:444", Ok(())),
            ("host: 127.0.0.1:8080 | sec-fetch-site: same-origin", Ok(())),
            ("host: 127.0.0.1:8080 | sec-fetch-site: none", Ok(())),
            // A name that is made to point here.
            ("host: evil.example:8080 | origin: http://evil.example:8080", NAME),
        ] {
            for path in paths {
                for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
                    let line = format!("{method} {path}");
                    assert_eq!(admit(&line, fields), expected, "{line} {fields}");
                }
            }
        }
        let absolute = request("POST http://localhost:8080/json", "origin: http://localhost:8080");
        assert_eq!(Guard::new(&[], true).admit(&absolute, &Caller::default()), Ok(()));
    }

    #[test]
    fn reading_is_by_the_name() {
        let hosts = ["localhost", "LOCALHOST:8080", "127.9.9.9:1", "[::1]", "[::1]:8080"];
        let ours = hosts.into_iter().chain(["10.1.2.3:8080", "limits.example:99"]);
        let others = ["evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"];
        let none = ["", "localhost:80:80", "[::1", "a@localhost", "127.1", "localhost:x"];
        let others = others.into_iter().chain(none);
        for (host, expected) in
            ours.map(|host| (host, Ok(()))).chain(others.map(|host| (host, NAME)))
        {
            let fields = format!("host: {host}");
            for path in ["/", "/metrics", "/v1/config", "/v1/events", "/v1/keys/a/b", "/nothing"] {
                assert_eq!(admit(&format!("GET {path}"), &fields), expected, "{path} {host}");
                assert_eq!(admit(&format!("HEAD {path}"), &fields), expected, "{path} {host}");
            }
            for path in ["/healthz", "/health", "/healthcheck", "/readyz", "/openapi.json"] {
                assert_eq!(admit(&format!("GET {path}"), &fields), Ok(()), "{path} {host}");
            }
        }
        let here = "host: 127.0.0.1:8080";
        assert_eq!(admit("GET http://evil.example/", here), NAME);
        assert_eq!(admit("GET /", &format!("{here} | host: evil.example")), NAME);
        // A listener that other machines can reach has names that the server does not know.
        let anywhere = Guard::new(&[], false);
        let admit = |line, fields| anywhere.admit(&request(line, fields), &Caller::default());
        assert_eq!(admit("GET /metrics", "host: node-7"), Ok(()));
        assert_eq!(admit("POST /v1/check", "host: node-7 | origin: http://evil.example"), PAGE);
    }

    #[test]
    fn proxies_pass_on_what_browsers_say_and_browsers_themselves_do_not_ask() {
        let browser = "host: 127.0.0.1:8080 | sec-fetch-site: cross-site";
        let proxied = "host: shop.example | origin: https://other.example | sec-fetch-site: \
                       cross-site | connection: keep-alive";
        for (fields, more, expected) in [
            (browser, "connection: keep-alive", PAGE),
            (browser, "connection: a, Keep-Alive", PAGE),
            ("host: evil.example | sec-fetch-site: cross-site", "connection: keep-alive", NAME),
            (browser, "connection: close", Ok(())),
            (proxied, "x-forwarded-for: 1.2.3.4", Ok(())),
            (proxied, "x-forwarded-method: GET", Ok(())),
            (proxied, "x-original-url: https://shop.example/", Ok(())),
            (proxied, "x-real-ip: 1.2.3.4", Ok(())),
            (proxied, "forwarded: for=1.2.3.4", Ok(())),
            (proxied, "via: 1.1 front", Ok(())),
            ("host: rategate", "connection: keep-alive", Ok(())),
        ] {
            let admitted = admit("GET /v1/auth?rule=a&key=b", &format!("{fields} | {more}"));
            assert_eq!(admitted, expected, "{fields} | {more}");
        }
        let mut second = request("GET http://localhost/v1/auth", "sec-fetch-site: cross-site");
        *second.version_mut() = Version::HTTP_2;
        assert_eq!(Guard::new(&[], true).admit(&second, &Caller::default()), PAGE);
    }

    #[test]
    fn who_has_to_show_the_token_is_known_by_it() {
        let caller = Caller { token_required: true, ..Caller::default() };
        let forged = request("POST /v1/check", "host: evil.example | origin: null");
        assert_eq!(Guard::new(&[], true).admit(&forged, &caller), Ok(()));
    }
}
