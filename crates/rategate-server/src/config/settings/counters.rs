//! Settings of the counters: the store that several processes share, and the file that survives a
//! restart.

use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use rategate_redis::client::{
    Config as StoreConfig, DEFAULT_BUDGET, DEFAULT_QUEUE, Server as StoreServer,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Reader, Secret, SecretText};
use crate::config::text::{Grammar, OneOrMore, Text, text};
use crate::engine::OnCorruptSnapshot;

/// The store of counters that several processes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// The servers, and the way to find the primary.
    pub location: StoreLocation,
    /// The user name, where the store has users.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// The number of the database.
    pub database: u16,
    /// The prefix of all keys.
    pub prefix: String,
    /// The maximum time of a request to the store.
    pub budget: Duration,
    /// The maximum number of requests without a reply.
    pub queue: usize,
    /// The maximum number of servers that share the limits. While the store is unavailable, each
    /// enforces that fraction of a limit by itself.
    pub nodes: NonZeroU32,
}

/// The servers of a store, and the way to find the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreLocation {
    /// The given server.
    Server(StoreServer),
    /// The server among these that reports itself as the primary.
    PrimaryOf(Vec<StoreServer>),
    /// The server that sentinels name.
    Sentinel {
        /// The name of the primary.
        name: String,
        /// The addresses of the sentinels.
        sentinels: Vec<StoreServer>,
    },
    /// The nodes of a cluster; the others are discovered.
    Cluster(Vec<StoreServer>),
}

/// The file in which counters survive a restart.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// The path of the file.
    pub path: PathBuf,
    /// The interval at which it is written. Default: 1min.
    #[serde(default = "every_minute", deserialize_with = "text")]
    #[schemars(with = "Text<Duration>")]
    pub every: Duration,
    /// The behaviour if it cannot be read completely. Default: "full".
    /// "full" starts with each limit exhausted, "fresh" starts with each limit unused,
    /// "refuse" does not start.
    #[serde(default)]
    pub when_torn: OnCorruptSnapshot,
}

const fn every_minute() -> Duration {
    Duration::from_secs(60)
}

impl Store {
    /// Returns the configuration of the store's client.
    #[must_use]
    pub fn config(&self) -> StoreConfig {
        let config = match &self.location {
            StoreLocation::Server(server) => StoreConfig::server(server.clone()),
            StoreLocation::PrimaryOf(servers) => StoreConfig::primary_of(servers.iter().cloned()),
            StoreLocation::Sentinel { name, sentinels } => {
                StoreConfig::sentinel(name, sentinels.iter().cloned())
            }
            StoreLocation::Cluster(servers) => StoreConfig::cluster(servers.iter().cloned()),
        };
        let config = config.database(self.database).prefix(&self.prefix);
        let config = config.budget(self.budget).queue(self.queue);
        let config = match &self.user {
            Some(user) => config.user(user),
            None => config,
        };
        match &self.password {
            Some(password) => config.password(password.expose()),
            None => config,
        }
    }
}

/// The store of counters that several processes share.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreTable {
    /// The way to find the primary among the servers of `url`. Default: "server".
    #[serde(default)]
    kind: StoreKind,
    /// The address of one or several servers: `redis://host:port`, `rediss://` for TLS,
    /// `unix:/path`.
    url: OneOrMore<Text<StoreUrl>>,
    /// The name of the primary in the sentinels' configuration.
    name: Option<String>,
    /// The user name, where the store has users.
    user: Option<String>,
    /// The password.
    password: Option<SecretText>,
    /// The number of the database. Default: 0.
    database: Option<u16>,
    /// The prefix of all keys. Default: "rategate".
    prefix: Option<Text<Prefix>>,
    /// The maximum time of a request to the store. Default: 20ms.
    budget: Option<Text<Duration>>,
    /// The maximum number of requests without a reply. Default: 65 536.
    queue: Option<NonZeroUsize>,
    /// The maximum number of servers that share the limits. Default: 1.
    /// While the store is unavailable, each server enforces that fraction of a limit by itself.
    nodes: Option<NonZeroU32>,
}

/// The way to find the primary of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum StoreKind {
    /// The given server.
    #[default]
    Server,
    /// The server that reports itself as the primary.
    PrimaryOf,
    /// The server that sentinels name.
    Sentinel,
    /// The nodes of a cluster.
    Cluster,
}

impl StoreTable {
    /// Returns the store, or `None` if there is no way to find its primary, which is reported.
    pub(super) fn read(self, reader: &mut Reader<'_>) -> Option<Store> {
        let OneOrMore(urls) = self.url;
        let Some(Text(first)) = urls.first().cloned() else {
            reader.complain("store.url", "no server; write \"redis://127.0.0.1:6379\"");
            return None;
        };
        if !urls.iter().all(|Text(url)| url.login() == first.login()) {
            reader.complain("store.url", "all servers have the same user, password and database");
        }
        if self.name.is_some() && self.kind != StoreKind::Sentinel {
            let message = "a name belongs to kind = \"sentinel\"; leave out one of the two";
            reader.complain("store.name", message);
        }
        let database = self.database.or(first.database).unwrap_or(0);
        if database > 0 && self.kind == StoreKind::Cluster {
            reader.complain("store.url", "a cluster has only database 0");
        }
        let servers: Vec<_> = urls.into_iter().map(|Text(url)| url.server).collect();
        let location = match (self.kind, self.name) {
            (StoreKind::Server, _) if servers.len() > 1 => {
                let message = "several servers need a kind, which sets how the primary is found";
                let help = "kind = \"primary-of\", \"sentinel\" or \"cluster\"";
                reader.problem("store.url", message, help);
                return None;
            }
            (StoreKind::Server, _) => StoreLocation::Server(first.server),
            (StoreKind::PrimaryOf, _) => StoreLocation::PrimaryOf(servers),
            (StoreKind::Cluster, _) => StoreLocation::Cluster(servers),
            (StoreKind::Sentinel, Some(name)) => {
                StoreLocation::Sentinel { name, sentinels: servers }
            }
            (StoreKind::Sentinel, None) => {
                let message = "sentinels need the name of the primary; write name = \"...\"";
                reader.complain("store.url", message);
                return None;
            }
        };
        let password = self.password.and_then(|password| reader.secret("store.password", password));
        Some(Store {
            location,
            user: self.user.or(first.user),
            password: password.or_else(|| first.password.map(Secret::new)),
            database,
            prefix: self.prefix.map_or_else(|| "rategate".to_owned(), |Text(prefix)| prefix.0),
            budget: self.budget.map_or(DEFAULT_BUDGET, |Text(budget)| budget),
            queue: self.queue.map_or(DEFAULT_QUEUE, Into::into),
            nodes: self.nodes.unwrap_or(NonZeroU32::MIN),
        })
    }
}

/// The prefix of a store's keys.
#[derive(Debug)]
struct Prefix(String);

impl Grammar for Prefix {
    const WHAT: &'static str = "1 to 32 letters, digits, `-`, `_` and `.`";
    const EXAMPLES: &'static [&'static str] = &["rategate"];

    fn read(text: &str) -> Result<Self, String> {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if (1..=32).contains(&text.len()) && text.bytes().all(is_plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("{text:?} is no prefix, which is {}", Self::WHAT))
    }
}

/// A server of a store, with the login and database of its address.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoreUrl {
    pub(crate) server: StoreServer,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: Option<u16>,
}

impl StoreUrl {
    fn login(&self) -> (Option<&str>, Option<&str>, Option<u16>) {
        (self.user.as_deref(), self.password.as_deref(), self.database)
    }
}

/// Omits the password.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}

impl Grammar for StoreUrl {
    const WHAT: &'static str = "a server of a store";
    const EXAMPLES: &'static [&'static str] = &[
        "redis://127.0.0.1:6379",
        "rediss://user:password@store.example:6380/0",
        "unix:/run/redis.sock",
    ];

    /// Parses the address. Errors omit the text, since it may hold a password.
    fn read(text: &str) -> Result<Self, String> {
        const INVALID: &str = "not \"redis://host:port\", \"rediss://host:port\" or \"unix:/path\"";
        let plain = |server| Self { server, user: None, password: None, database: None };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path {
                "" => Err(INVALID.to_owned()),
                path => Ok(plain(StoreServer::Unix(path.into()))),
            };
        }
        let (scheme, rest) = text.split_once("://").ok_or(INVALID)?;
        let (login, rest) = rest.rsplit_once('@').map_or((None, rest), |(l, r)| (Some(l), r));
        let (address, database) = match rest.split_once('/') {
            None | Some((_, "")) => (rest.trim_end_matches('/'), None),
            Some((address, number)) => {
                let number = number
                    .parse()
                    .map_err(|_| "the slash must be followed by a database number")?;
                (address, Some(number))
            }
        };
        let (host, port) = host_and_port(address)?;
        let server = match scheme {
            "redis" => StoreServer::Tcp(host, port),
            "rediss" => StoreServer::Tls(host, port),
            _ => return Err(INVALID.to_owned()),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, "")))
        {
            None => (None, None),
            Some((user, password)) => (unescaped(user)?, unescaped(password)?),
        };
        Ok(Self { server, user, password, database })
    }
}

fn host_and_port(address: &str) -> Result<(String, u16), String> {
    const INVALID: &str =
        "the scheme must be followed by a host and a port, as in \"redis://127.0.0.1:6379\"";
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or(INVALID)?;
            (host, rest.strip_prefix(':'))
        }
        None => address.split_once(':').map_or((address, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(6379), |port| port.parse().map_err(|_| INVALID))?;
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || "?#".contains(c)) {
        return Err(INVALID.to_owned());
    }
    Ok((host.to_owned(), port))
}

/// Decodes `%40`s in a text of an address; `None` if it is empty.
fn unescaped(text: &str) -> Result<Option<String>, String> {
    const INVALID: &str = "a % in a name or password must be followed by two hexadecimal digits";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit().ok_or(INVALID)?, digit().ok_or(INVALID)?);
        let byte = u8::try_from(high.saturating_mul(16).saturating_add(low));
        bytes.push(byte.map_err(|_| INVALID)?);
    }
    let text = String::from_utf8(bytes).map_err(|_| INVALID)?;
    Ok((!text.is_empty()).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_a_store() {
        let url = StoreUrl::read("rediss://us%40er:p%3Aw@h.example:1/3").unwrap();
        assert_eq!(url.server, StoreServer::Tls("h.example".into(), 1));
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("us@er"), Some("p:w")));
        assert_eq!(url.database, Some(3));
        let plain = StoreUrl::read("redis://[::1]").unwrap();
        assert_eq!((plain.server, plain.user), (StoreServer::tcp("::1", 6379), None));
        let password_only = StoreUrl::read("redis://:secret@h:1/").unwrap();
        assert_eq!((password_only.user, password_only.password.as_deref()), (None, Some("secret")));
        assert_eq!(StoreUrl::read("unix:/s").unwrap().server, StoreServer::Unix("/s".into()));
        for invalid in [
            "h:1",
            "http://h:1",
            "redis://",
            "redis://h:x",
            "redis://h/x",
            "redis://%zz@h",
            "unix:",
        ] {
            assert!(StoreUrl::read(invalid).is_err(), "{invalid}");
        }
        let error = StoreUrl::read("redis://u:sesame@h:port").unwrap_err();
        assert!(!error.contains("sesame") && !format!("{url:?}").contains("p:w"));
    }
}
