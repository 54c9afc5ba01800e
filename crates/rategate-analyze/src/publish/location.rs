//! The address of a deny list in a store: `redis://HOST:PORT/PREFIX/LIST`, `unix:/run/redis.sock`.

use std::fmt;
use std::path::Path;

use rategate_redis::client::Server;
use rategate_redis::key::KeySpace;

/// The default port of Redis.
const PORT: u16 = 6_379;
/// The default prefix of keys.
const PREFIX: &str = "rategate";
/// The default name of the list.
const LIST: &str = "denied";

// The reasons why a text is not an address, and what is accepted.
const TLS: &str =
    "this command speaks no TLS; use redis://, or unix: and the path of a tunnel's socket";
const NO_HOST: &str = "no host; the form is redis://HOST[:PORT][/PREFIX[/LIST]]";
const INVALID_PORT: &str = "the port must be a whole number from 1 to 65535; an address with \
                            colons stands in brackets";
const DATABASE: &str = "databases are not supported; PREFIX, the prefix of all keys, follows the \
                        host: redis://HOST/shop";
const INVALID_PREFIX: &str = "PREFIX must be 1 to 32 letters, digits, `-`, `_` and `.`";
const INVALID_LIST: &str = "LIST must have printable characters only";
const TOO_LONG: &str = "nothing may follow LIST; the form is redis://HOST[:PORT][/PREFIX[/LIST]]";
const OPTIONS: &str = "there are no options; `?` and `#` in a password must be %3F and %23";
const ESCAPE: &str = "`%` must be followed by two hexadecimal digits, as in %40 for `@`";
const NO_PATH: &str = "no path; the form is unix:PATH, as in unix:/run/redis.sock";

/// The address of a list in a store.
#[derive(PartialEq, Eq)]
pub(super) struct Address {
    pub(super) server: Server,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) prefix: String,
    pub(super) list: String,
}

impl Address {
    /// Parses an address. A text that does not start like one is a file, and returns `None`. An
    /// error says what is accepted.
    pub(super) fn of(location: &Path) -> Result<Option<Self>, &'static str> {
        let Some(url) = location.to_str() else { return Ok(None) };
        if url.starts_with("rediss://") {
            return Err(TLS);
        }
        if let Some(rest) = url.strip_prefix("redis://") {
            return Self::parse(rest).map(Some);
        }
        let Some(path) = url.strip_prefix("unix:") else { return Ok(None) };
        if path.is_empty() {
            return Err(NO_PATH);
        }
        let (prefix, list) = (PREFIX.to_owned(), LIST.to_owned());
        let server = Server::Unix(path.into());
        Ok(Some(Self { server, user: None, password: None, prefix, list }))
    }

    /// Parses `[[USER]:PASSWORD@]HOST[:PORT][/PREFIX[/LIST]]`.
    fn parse(text: &str) -> Result<Self, &'static str> {
        if text.contains(['?', '#']) {
            return Err(OPTIONS);
        }
        let (authority, path) = text.split_once('/').unwrap_or((text, ""));
        let (login, server) = match authority.rsplit_once('@') {
            Some((login, server)) => (Some(login), server),
            None => (None, authority),
        };
        let (user, password) = match login.map(|login| login.split_once(':').ok_or(login)) {
            None => (None, None),
            Some(Ok((user, password))) => (some(user)?, some(password)?),
            Some(Err(user)) => (some(user)?, None),
        };
        let (host, port) = host_and_port(server)?;
        let (prefix, list) = path.split_once('/').unwrap_or((path, ""));
        if !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(DATABASE);
        }
        let prefix = if prefix.is_empty() { PREFIX } else { prefix };
        KeySpace::new(prefix).map_err(|_| INVALID_PREFIX)?;
        if list.contains('/') {
            return Err(TOO_LONG);
        }
        let list = some(list)?.unwrap_or_else(|| LIST.to_owned());
        if list.chars().any(char::is_control) {
            return Err(INVALID_LIST);
        }
        let (server, prefix) = (Server::tcp(host, port), prefix.to_owned());
        Ok(Self { server, user, password, prefix, list })
    }
}

fn host_and_port(text: &str) -> Result<(&str, u16), &'static str> {
    // An IPv6 address has colons of its own, and brackets around it.
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or(INVALID_PORT)?)),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(NO_HOST);
    }
    let is_number = |port: &&str| port.bytes().all(|byte| byte.is_ascii_digit());
    let port = match port {
        None => PORT,
        Some(port) => {
            let port = Some(port).filter(is_number).and_then(|port| port.parse().ok());
            port.filter(|port| *port > 0).ok_or(INVALID_PORT)?
        }
    };
    Ok((host, port))
}

/// Decodes an optional part, with `%HH` as the byte it stands for.
fn some(component: &str) -> Result<Option<String>, &'static str> {
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !component.split('%').skip(1).all(is_escape) {
        return Err(ESCAPE);
    }
    let decoded = percent_encoding::percent_decode_str(component).decode_utf8();
    let decoded = decoded.map_err(|_| ESCAPE)?.into_owned();
    Ok(Some(decoded).filter(|decoded| !decoded.is_empty()))
}

/// The address for display, without the credentials.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Server::Unix(path) => write!(f, "unix:{}", path.display()),
            server => write!(f, "redis://{server}/{}/{}", self.prefix, self.list.escape_debug()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<Address>, &'static str> {
        Address::of(Path::new(text))
    }

    fn address(text: &str) -> Address {
        match parse(text) {
            Ok(Some(address)) => address,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn addresses_are_read() {
        let plain = address("redis://localhost");
        assert_eq!(plain.to_string(), "redis://localhost:6379/rategate/denied");
        assert_eq!((&plain.user, &plain.password), (&None, &None));
        let full = address("redis://me:p%40ss@db.example:7000/shop/too%20noisy");
        assert_eq!(full.server, Server::tcp("db.example", 7_000));
        assert_eq!((full.prefix.as_str(), full.list.as_str()), ("shop", "too noisy"));
        assert_eq!((full.user.as_deref(), full.password.as_deref()), (Some("me"), Some("p@ss")));
        assert!(!format!("{full:?} {full}").contains("p@ss"));
        let secret = address("redis://:a:b@h");
        assert_eq!((secret.user, secret.password.as_deref()), (None, Some("a:b")));
        assert_eq!(address("redis://[::1]:7/p").server, Server::tcp("::1", 7));
        assert_eq!(address("redis://[::1]").server, Server::tcp("::1", 6_379));
        assert_eq!(address("unix:/run/r.sock").server, Server::Unix("/run/r.sock".into()));
        for file in ["deny.list", "./unix:x", "redis:x"] {
            assert_eq!(parse(file), Ok(None));
        }
    }

    #[test]
    fn invalid_addresses_are_reported() {
        for (text, expected) in [
            ("rediss://h", TLS),
            ("redis://", NO_HOST),
            ("redis://:7", NO_HOST),
            ("redis://h:", INVALID_PORT),
            ("redis://h:0", INVALID_PORT),
            ("redis://h:+7", INVALID_PORT),
            ("redis://h:65536", INVALID_PORT),
            ("redis://::1", NO_HOST),
            ("redis://[::1]7", INVALID_PORT),
            ("redis://h/0", DATABASE),
            ("redis://h/a b", INVALID_PREFIX),
            ("redis://h/a/b/c", TOO_LONG),
            ("redis://h/a/%0a", INVALID_LIST),
            ("redis://h/a?db=1", OPTIONS),
            ("redis://:%4@h", ESCAPE),
            ("redis://:%+4@h", ESCAPE),
            ("redis://:%ff@h", ESCAPE),
            ("unix:", NO_PATH),
        ] {
            assert_eq!(parse(text), Err(expected), "{text}");
        }
    }
}
