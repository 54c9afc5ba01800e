//! Where counters are: in a store that several processes share, and in a file over a restart.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use rategate_redis::client::{Config as StoreConfig, Server as StoreServer};

use super::Secret;

/// Where the counters are that several processes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Which servers, and how the one that decides is found.
    pub place: StorePlace,
    /// Who asks, where the store has users.
    pub user: Option<String>,
    /// By which password.
    pub password: Option<Secret>,
    /// Which database.
    pub database: u16,
    /// How all keys begin.
    pub prefix: String,
    /// How long a question may take.
    pub budget: Duration,
    /// How many questions may be without an answer at a time.
    pub queue: usize,
    /// How many servers share the limits, at most: while the store is gone, each keeps that part of a limit by itself.
    pub nodes: NonZeroU32,
}

/// How the server that decides is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// It is this one.
    Server(StoreServer),
    /// It is the one of these that says that it is the primary.
    PrimaryOf(Vec<StoreServer>),
    /// Sentinels know it.
    Sentinel {
        /// By this name.
        name: String,
        /// These.
        sentinels: Vec<StoreServer>,
    },
    /// It is a cluster, of which these tell the rest.
    Cluster(Vec<StoreServer>),
}

/// Where counters are kept over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The file.
    pub path: PathBuf,
    /// How often it is written.
    pub every: Duration,
    /// What to do about a file that cannot be read whole.
    pub when_torn: WhenTorn,
}

/// What to do about a snapshot that cannot be read whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WhenTorn {
    /// Start as if nothing had been counted. `"fresh"`.
    Fresh,
    /// Start as if each limit were used up. `"full"`.
    #[default]
    Full,
    /// Do not start. `"refuse"`.
    Refuse,
}

impl Store {
    /// The same for the store's client.
    #[must_use]
    pub fn config(&self) -> StoreConfig {
        let config = match &self.place {
            StorePlace::Server(server) => StoreConfig::server(server.clone()),
            StorePlace::PrimaryOf(servers) => StoreConfig::primary_of(servers.iter().cloned()),
            StorePlace::Sentinel { name, sentinels } => {
                StoreConfig::sentinel(name, sentinels.iter().cloned())
            }
            StorePlace::Cluster(servers) => StoreConfig::cluster(servers.iter().cloned()),
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
