//! The address of a service: `http://HOST[:PORT]` or `unix:PATH`.

use std::path::PathBuf;
use std::str::FromStr;

/// The default HTTP address of the service.
pub(crate) const DEFAULT: &str = "http://127.0.0.1:8080";

/// The default port of an address.
const PORT: u16 = 8080;

/// The address of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// A host name or an IP address, and a port.
    Tcp(String, u16),
    /// A Unix domain socket.
    Unix(PathBuf),
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err("a path follows \"unix:\"".to_owned());
            }
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        if text.starts_with("https://") {
            let hint = "this command speaks no TLS; connect from the service's machine, \
                       by a socket or a tunnel";
            return Err(hint.to_owned());
        }
        // A name without a scheme is common input.
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let malformed = || "write http://HOST:PORT or unix:PATH".to_owned();
        // A path, which would have to be cut off, or a password, which would be shown, is
        // refused.
        if rest.is_empty() || rest.contains(['/', '@', '?', '#', ' ']) {
            return Err(malformed());
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, _)) if host.starts_with('[') && !host.ends_with(']') => (rest, None),
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        };
        let is_address = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
        if host.is_empty() || (host.contains([':', '[', ']']) && !is_address) {
            return Err(malformed());
        }
        let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| malformed()))?;
        if port == 0 {
            return Err(malformed());
        }
        Ok(Self::Tcp(host.trim_matches(['[', ']']).to_owned(), port))
    }
}

impl Endpoint {
    /// Returns the value of the HTTP `Host` header.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Tcp(host, port) if host.contains(':') => format!("[{host}]:{port}"),
            Self::Tcp(host, port) => format!("{host}:{port}"),
            Self::Unix(_) => "localhost".to_owned(),
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(..) => write!(f, "http://{}", self.host()),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Endpoint;

    fn read(text: &str) -> Result<String, String> {
        text.parse::<Endpoint>().map(|endpoint| endpoint.to_string())
    }

    #[test]
    fn endpoints_are_read_as_people_write_them() {
        for (text, endpoint) in [
            ("http://10.0.0.1:9000", "http://10.0.0.1:9000"),
            ("http://limits.example/", "http://limits.example:8080"),
            ("localhost:81", "http://localhost:81"),
            ("[::1]", "http://[::1]:8080"),
            ("http://[::1]:9000", "http://[::1]:9000"),
            ("unix:/run/rategate.sock", "unix:/run/rategate.sock"),
            ("unix:///run/rategate.sock", "unix:/run/rategate.sock"),
            ("unix:here.sock", "unix:here.sock"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(endpoint), "{text}");
        }
    }

    #[test]
    fn invalid_endpoints_are_refused() {
        for text in [
            "",
            "http://",
            "unix:",
            "http://a/b",
            "http://me:secret@a",
            "a:b",
            "a:0",
            "::1",
            "[::1",
            "a:99999",
            "a b",
        ] {
            assert!(read(text).is_err(), "{text}: {:?}", read(text));
        }
        assert!(read("https://a").is_err_and(|why| why.contains("TLS")));
    }
}
