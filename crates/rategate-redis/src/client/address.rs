//! Addresses of servers, as a text that people write.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

use super::config::{Config, Server};

/// A server, with the login and the database of its address.
///
/// ```
/// use rategate_redis::client::{Address, Server};
///
/// let address: Address = "redis://user:p%40ss@store.example/2".parse()?;
/// assert_eq!(address.server, Server::tcp("store.example", 6379));
/// assert_eq!(address.password.as_deref(), Some("p@ss"));
/// # Ok::<(), rategate_redis::client::AddressError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// The server. Its port is 6379 by default.
    pub server: Server,
    /// The user, for a store with users.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The number of the database.
    pub database: Option<u16>,
}

/// An error of a text that is no address. It omits the text, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressError(&'static str);

impl Address {
    /// Returns the configuration of a client of this one server.
    #[must_use]
    pub fn config(self) -> Config {
        let mut config = Config::server(self.server).database(self.database.unwrap_or(0));
        if let Some(user) = &self.user {
            config = config.user(user);
        }
        match &self.password {
            Some(password) => config.password(password),
            None => config,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    /// Reads `redis://user:password@host:port/database`, `rediss://` for TLS, or `unix:/path`.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        const INVALID: AddressError =
            AddressError("not \"redis://host:port\", \"rediss://host:port\" or \"unix:/path\"");
        let plain = |server| Self { server, user: None, password: None, database: None };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path {
                "" => Err(AddressError(
                    "a path must follow \"unix:\", as in \"unix:/run/redis.sock\"",
                )),
                path => Ok(plain(Server::Unix(path.into()))),
            };
        }
        let (scheme, rest) = text.split_once("://").ok_or(INVALID)?;
        let (login, rest) = rest.rsplit_once('@').map_or((None, rest), |(l, r)| (Some(l), r));
        let (address, database) = match rest.split_once('/') {
            None | Some((_, "")) => (rest.trim_end_matches('/'), None),
            Some((address, number)) => {
                let number = number
                    .parse()
                    .map_err(|_| AddressError("the slash must be followed by a database number"))?;
                (address, Some(number))
            }
        };
        let (host, port) = host_and_port(address)?;
        let server = match scheme {
            "redis" => Server::Tcp(host, port),
            "rediss" => Server::Tls(host, port),
            _ => return Err(INVALID),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, "")))
        {
            None => (None, None),
            Some((user, password)) => (unescaped(user)?, unescaped(password)?),
        };
        Ok(Self { server, user, password, database })
    }
}

/// Omits the password.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for AddressError {}

fn host_and_port(address: &str) -> Result<(String, u16), AddressError> {
    const INVALID: AddressError = AddressError(
        "the scheme must be followed by a host and a port, as in \"redis://127.0.0.1:6379\"",
    );
    // It may be a password whose name and `@` are missing, so that the message omits it.
    const PORT: AddressError =
        AddressError("the port must be a number from 0 to 65535, as in \"redis://127.0.0.1:6379\"");
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or(INVALID)?;
            (host, rest.strip_prefix(':'))
        }
        None => address.split_once(':').map_or((address, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(6379), |port| port.parse().map_err(|_| PORT))?;
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || "?#".contains(c)) {
        return Err(INVALID);
    }
    Ok((host.to_owned(), port))
}

/// Decodes `%40`s in a text of an address; `None` if it is empty.
fn unescaped(text: &str) -> Result<Option<String>, AddressError> {
    const INVALID: AddressError =
        AddressError("a % in a name or password must be followed by two hexadecimal digits");
    // The library passes over those that are none.
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().first_chunk::<2>();
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_escape) {
        return Err(INVALID);
    }
    let text = percent_decode_str(text).decode_utf8().map_err(|_| INVALID)?;
    Ok((!text.is_empty()).then(|| text.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_wrong_part_and_never_the_text() {
        for (text, part) in [
            ("redis://:secret@h:65536", "the port must be a number from 0 to 65535"),
            ("redis://secret:-1", "the port"),
            ("redis://[secret:1", "a host and a port"),
            ("redis://:secret@", "a host and a port"),
            ("redis://secret/x", "a database number"),
            ("unix:", "a path must follow"),
            ("secret:6379", "not \"redis://host:port\""),
        ] {
            let message = text.parse::<Address>().unwrap_err().to_string();
            assert!(message.contains(part) && !message.contains("secret"), "{text}: {message}");
        }
        assert!("redis://h:65535".parse::<Address>().is_ok());
    }
}
