//! The location of a deny list: `deny.list`, `redis://HOST:PORT/PREFIX/LIST`,
//! `unix:/run/redis.sock`.

use std::fmt;
use std::path::{Path, PathBuf};

use rategate_redis::client::Server;
use rategate_redis::key::KeySpace;

/// The default port of Redis.
const PORT: u16 = 6_379;
/// The default prefix of keys.
const PREFIX: &str = "rategate";
/// The default name of the list.
const LIST: &str = "denied";

/// The location of a deny list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ListLocation {
    File(PathBuf),
    Store(Address),
}

/// The address of a list in a store.
#[derive(PartialEq, Eq)]
pub(super) struct Address {
    pub(super) server: Server,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) prefix: String,
    pub(super) list: String,
}

/// The reason why a text is not an address, and what is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressError {
    Tls,
    NoHost,
    Port,
    Database,
    Prefix,
    List,
    TooLong,
    Options,
    Escape,
    NoPath,
}

impl ListLocation {
    /// Parses an address; any text that does not start like one is a file.
    pub(super) fn parse(text: &Path) -> Result<Self, AddressError> {
        let Some(url) = text.to_str() else { return Ok(Self::File(text.to_owned())) };
        if url.starts_with("rediss://") {
            return Err(AddressError::Tls);
        }
        if let Some(rest) = url.strip_prefix("redis://") {
            return Address::parse(rest).map(Self::Store);
        }
        let Some(path) = url.strip_prefix("unix:") else { return Ok(Self::File(text.to_owned())) };
        if path.is_empty() {
            return Err(AddressError::NoPath);
        }
        let (prefix, list) = (PREFIX.to_owned(), LIST.to_owned());
        let server = Server::Unix(path.into());
        Ok(Self::Store(Address { server, user: None, password: None, prefix, list }))
    }
}

impl Address {
    /// Parses `[[USER]:PASSWORD@]HOST[:PORT][/PREFIX[/LIST]]`.
    fn parse(text: &str) -> Result<Self, AddressError> {
        if text.contains(['?', '#']) {
            return Err(AddressError::Options);
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
            return Err(AddressError::Database);
        }
        let prefix = if prefix.is_empty() { PREFIX } else { prefix };
        KeySpace::new(prefix).map_err(|_| AddressError::Prefix)?;
        if list.contains('/') {
            return Err(AddressError::TooLong);
        }
        let list = some(list)?.unwrap_or_else(|| LIST.to_owned());
        if list.chars().any(char::is_control) {
            return Err(AddressError::List);
        }
        let (server, prefix) = (Server::tcp(host, port), prefix.to_owned());
        Ok(Self { server, user, password, prefix, list })
    }
}

fn host_and_port(text: &str) -> Result<(&str, u16), AddressError> {
    // An IPv6 address has colons of its own, and brackets around it.
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or(AddressError::Port)?)),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(AddressError::NoHost);
    }
    let is_number = |port: &&str| port.bytes().all(|byte| byte.is_ascii_digit());
    let port = match port {
        None => PORT,
        Some(port) => {
            let port = Some(port).filter(is_number).and_then(|port| port.parse().ok());
            port.filter(|port| *port > 0).ok_or(AddressError::Port)?
        }
    };
    Ok((host, port))
}

/// Decodes an optional part, with `%HH` as the byte it stands for.
fn some(component: &str) -> Result<Option<String>, AddressError> {
    if component.is_empty() {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(component.len());
    let mut left = component.as_bytes();
    while let Some((first, rest)) = left.split_first() {
        left = rest;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, rest) = rest.split_at_checked(2).ok_or(AddressError::Escape)?;
        // `from_str_radix` would accept a sign.
        let digits = std::str::from_utf8(digits).ok();
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or(AddressError::Escape)?);
        left = rest;
    }
    String::from_utf8(bytes).map(Some).map_err(|_| AddressError::Escape)
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

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls => {
                "this command speaks no TLS; use redis://, or unix: and the path of a \
                 tunnel's socket"
            }
            Self::NoHost => "no host; the form is redis://HOST[:PORT][/PREFIX[/LIST]]",
            Self::Port => {
                "the port must be a whole number from 1 to 65535; an address with \
                 colons stands in brackets"
            }
            Self::Database => {
                "databases are not supported; PREFIX, the prefix of all keys, follows the host: \
                 redis://HOST/shop"
            }
            Self::Prefix => "PREFIX must be 1 to 32 letters, digits, `-`, `_` and `.`",
            Self::List => "LIST must have printable characters only",
            Self::TooLong => {
                "nothing may follow LIST; the form is \
                 redis://HOST[:PORT][/PREFIX[/LIST]]"
            }
            Self::Options => "there are no options; `?` and `#` in a password must be %3F and %23",
            Self::Escape => "`%` must be followed by two hexadecimal digits, as in %40 for `@`",
            Self::NoPath => "no path; the form is unix:PATH, as in unix:/run/redis.sock",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ListLocation, AddressError> {
        ListLocation::parse(Path::new(text))
    }

    fn address(text: &str) -> Address {
        match parse(text) {
            Ok(ListLocation::Store(address)) => address,
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
            assert_eq!(parse(file), Ok(ListLocation::File(file.into())));
        }
    }

    #[test]
    fn invalid_addresses_are_reported() {
        for (text, expected) in [
            ("rediss://h", AddressError::Tls),
            ("redis://", AddressError::NoHost),
            ("redis://:7", AddressError::NoHost),
            ("redis://h:", AddressError::Port),
            ("redis://h:0", AddressError::Port),
            ("redis://h:+7", AddressError::Port),
            ("redis://h:65536", AddressError::Port),
            ("redis://::1", AddressError::NoHost),
            ("redis://[::1]7", AddressError::Port),
            ("redis://h/0", AddressError::Database),
            ("redis://h/a b", AddressError::Prefix),
            ("redis://h/a/b/c", AddressError::TooLong),
            ("redis://h/a/%0a", AddressError::List),
            ("redis://h/a?db=1", AddressError::Options),
            ("redis://:%4@h", AddressError::Escape),
            ("redis://:%+4@h", AddressError::Escape),
            ("redis://:%ff@h", AddressError::Escape),
            ("unix:", AddressError::NoPath),
        ] {
            assert_eq!(parse(text), Err(expected), "{text}");
        }
    }
}
