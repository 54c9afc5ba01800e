//! Settings of the counters: the store that several processes share, and the file that survives a
//! restart.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use rategate_redis::client::{Config as StoreConfig, Server as StoreServer};

use super::Secret;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The path of the file.
    pub path: PathBuf,
    /// The interval at which it is written.
    pub every: Duration,
    /// The behaviour if it cannot be read completely.
    pub when_torn: OnCorruptSnapshot,
}

/// The behaviour if a snapshot cannot be read completely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnCorruptSnapshot {
    /// Start with each limit unused. `"fresh"`.
    Fresh,
    /// Start with each limit exhausted. `"full"`.
    #[default]
    Full,
    /// Do not start. `"refuse"`.
    Refuse,
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
