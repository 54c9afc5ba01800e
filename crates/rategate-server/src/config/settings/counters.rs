//! Settings of the counters: the store that several processes share, and the file that survives a
//! restart.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use rategate_redis::client::Address as StoreUrl;
use rategate_redis::client::{
    AddressError, Config as StoreConfig, DEFAULT_BUDGET, DEFAULT_QUEUE, Server as StoreServer,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::Secret;
use crate::config::rules::Reader;
use crate::config::text::{Grammar, OneOrMore, Text, one_or_more, plain, text};

/// The store of counters that several processes share.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// The way to find the primary among the servers of `url`. Default: "server".
    #[serde(default)]
    pub kind: StoreKind,
    /// The address of one or several servers: `redis://host:port`, `rediss://` for TLS,
    /// `unix:/path`.
    #[serde(deserialize_with = "one_or_more")]
    #[schemars(with = "OneOrMore<Text<StoreUrl>>")]
    pub(crate) url: Vec<StoreUrl>,
    /// The name of the primary in the sentinels' configuration.
    pub name: Option<String>,
    /// The user name, where the store has users.
    pub user: Option<String>,
    /// The password.
    #[schemars(with = "Option<Text<Secret>>")]
    pub password: Option<Secret>,
    /// The number of the database. Default: 0.
    pub database: Option<u16>,
    /// The prefix of all keys. Default: "rategate".
    #[serde(default = "usual_prefix", deserialize_with = "prefix")]
    #[schemars(with = "Text<Prefix>")]
    pub prefix: String,
    /// The maximum time of a request to the store. Default: 20ms.
    #[serde(default = "usual_budget", deserialize_with = "text")]
    #[schemars(with = "Text<Duration>")]
    pub budget: Duration,
    /// The maximum number of requests without a reply. Default: 65 536.
    pub queue: Option<NonZeroUsize>,
    /// The maximum number of servers that share the limits. Default: 1.
    /// While the store is unavailable, each server enforces that fraction of a limit by itself.
    #[serde(default = "usual_nodes")]
    pub nodes: NonZeroU32,
}

/// The way to find the primary of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StoreKind {
    /// The given server.
    #[default]
    Server,
    /// The server that reports itself as the primary.
    PrimaryOf,
    /// The server that sentinels name.
    Sentinel,
    /// The nodes of a cluster; the others are discovered.
    Cluster,
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
}

const fn every_minute() -> Duration {
    Duration::from_secs(60)
}

fn usual_prefix() -> String {
    "rategate".to_owned()
}

const fn usual_budget() -> Duration {
    DEFAULT_BUDGET
}

const fn usual_nodes() -> NonZeroU32 {
    NonZeroU32::MIN
}

impl Store {
    /// Returns the servers in the configuration.
    pub fn servers(&self) -> impl Iterator<Item = &StoreServer> {
        self.url.iter().map(|url| &url.server)
    }

    /// Returns the configuration of the store's client.
    ///
    /// # Errors
    ///
    /// Returns the reason why its settings are no way to a primary. A store that was loaded has
    /// one.
    pub fn config(&self) -> Result<StoreConfig, &'static str> {
        let servers = || self.servers().cloned();
        let config = match (self.kind, &self.name, self.url.as_slice()) {
            (_, _, []) => return Err("no server; write \"redis://127.0.0.1:6379\""),
            (StoreKind::Server, _, [one]) => StoreConfig::server(one.server.clone()),
            (StoreKind::Server, ..) => {
                return Err("several servers need a kind, which sets how the primary is found: \
                            write kind = \"primary-of\", \"sentinel\" or \"cluster\"");
            }
            (StoreKind::PrimaryOf, ..) => StoreConfig::primary_of(servers()),
            (StoreKind::Cluster, ..) => StoreConfig::cluster(servers()),
            (StoreKind::Sentinel, Some(name), _) => StoreConfig::sentinel(name, servers()),
            (StoreKind::Sentinel, None, _) => {
                return Err("sentinels need the name of the primary; write name = \"...\"");
            }
        };
        let queue = self.queue.map_or(DEFAULT_QUEUE, Into::into);
        let config = config.prefix(&self.prefix).budget(self.budget).queue(queue);
        let mut config = config.database(self.database.unwrap_or(0));
        if let Some(user) = &self.user {
            config = config.user(user);
        }
        if let Some(password) = &self.password {
            config = config.password(password.expose());
        }
        Ok(config)
    }

    /// Takes the login and the database of its address where no setting has them, and reports
    /// settings that do not go together.
    pub(super) fn settle(&mut self, reader: &mut Reader<'_>) {
        if let Some(first) = self.url.first().cloned() {
            if !self.url.iter().all(|url| login(url) == login(&first)) {
                let message = "all servers have the same user, password and database";
                reader.complain("store.url", message);
            }
            self.user = self.user.take().or(first.user);
            self.password = self.password.take().or(first.password.map(Secret::new));
            self.database = self.database.or(first.database);
        }
        if self.name.is_some() && self.kind != StoreKind::Sentinel {
            let message = "a name belongs to kind = \"sentinel\"; leave out one of the two";
            reader.complain("store.name", message);
        }
        if self.database > Some(0) && self.kind == StoreKind::Cluster {
            reader.complain("store.url", "a cluster has only database 0");
        }
        if let Err(message) = self.config() {
            reader.complain("store.url", message);
        }
    }
}

/// The prefix of a store's keys.
#[derive(Debug)]
struct Prefix(String);

impl Grammar for Prefix {
    const WHAT: &'static str = "1 to 32 letters, digits, `-`, `_` and `.`";
    const EXAMPLES: &'static [&'static str] = &["rategate"];

    fn read(text: &str) -> Result<Self, String> {
        let prefix = plain(text, 32).map(Self);
        prefix.ok_or_else(|| format!("{text:?} is not a valid prefix; expected {}", Self::WHAT))
    }
}

fn prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    text(deserializer).map(|Prefix(prefix)| prefix)
}

fn login(url: &StoreUrl) -> (Option<&str>, Option<&str>, Option<u16>) {
    (url.user.as_deref(), url.password.as_deref(), url.database)
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
        text.parse().map_err(|error: AddressError| error.to_string())
    }
}
