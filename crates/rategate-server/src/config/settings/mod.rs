//! The settings of the service, apart from its rules.

mod counters;
mod limits;
mod observe;
mod protocols;
mod secret;
mod server;

use serde::de::DeserializeOwned;

use super::de::{self, Style};
use super::error::Problem;
use super::gather::Gathered;
use super::node::{Kind, Map, Node};

pub use self::counters::{Snapshot, Store, StoreLocation};
pub(crate) use self::counters::{StoreTable, StoreUrl};
pub use self::limits::{Inline, Keys, Limits};
pub use self::observe::{Log, LogFormat, LogKeys, Receiver, Sample, Tracing};
pub use self::protocols::{Dialect, Grpc, Http};
pub use self::secret::Secret;
use self::secret::SecretText;
pub(crate) use self::server::ServerTable;
pub use self::server::{Listener, Server, Tls};

/// The names of the tables.
pub(crate) const TABLES: [&str; 9] =
    ["server", "http", "grpc", "store", "snapshot", "inline", "log", "tracing", "keys"];

/// The settings of the service, apart from its rules. [`Settings::default`] applies without a
/// configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The listeners of the service and its limits.
    pub server: Server,
    /// The header fields of HTTP answers, and the accepted host names.
    pub http: Http,
    /// The behaviour of Envoy's protocol.
    pub grpc: Grpc,
    /// The store of counters that several processes share.
    pub store: Option<Store>,
    /// The file in which counters survive a restart.
    pub snapshot: Option<Snapshot>,
    /// The settings of inline limits, which come with calls.
    pub inline: Inline,
    /// The settings of the log.
    pub log: Log,
    /// The settings of spans of decisions.
    pub tracing: Tracing,
    /// The capacity for keys.
    pub keys: Keys,
}

/// The tables of the files, with what the environment and flags set in them.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) root: Node,
    /// `true` if an untrusted client wrote them: then no file or variable that they name is read.
    pub(crate) is_foreign: bool,
    /// `true` if TLS is for gRPC listeners only, where a listener has no setting of its own.
    pub(crate) is_tls_of_grpc: bool,
}

impl Tables {
    pub(crate) const fn new(is_foreign: bool) -> Self {
        let root = Node::new(Kind::Map(Map::new()), 0..0);
        Self { root, is_foreign, is_tls_of_grpc: false }
    }

    /// Reads the settings, and reports all problems with them. A table with a problem counts as
    /// not given.
    pub(crate) fn read(&self, all: &mut Gathered) -> Settings {
        let reader = &mut Reader { all, root: &self.root, is_foreign: self.is_foreign };
        let server = reader.table::<ServerTable>("server");
        let store = reader.table::<StoreTable>("store");
        Settings {
            server: server.map(|table| table.read(self.is_tls_of_grpc, reader)).unwrap_or_default(),
            store: store.and_then(|table| table.read(reader)),
            snapshot: reader.table("snapshot"),
            http: reader.table("http").unwrap_or_default(),
            grpc: reader.table("grpc").unwrap_or_default(),
            inline: reader.table("inline").unwrap_or_default(),
            log: reader.table("log").unwrap_or_default(),
            tracing: reader.table("tracing").unwrap_or_default(),
            keys: reader.table("keys").unwrap_or_default(),
        }
    }
}

struct Reader<'a> {
    all: &'a mut Gathered,
    root: &'a Node,
    is_foreign: bool,
}

impl Reader<'_> {
    fn table<T: DeserializeOwned>(&mut self, key: &str) -> Option<T> {
        let node = self.root.get(key)?;
        let Gathered { sources, problems, .. } = &mut *self.all;
        let before = problems.len();
        let table = de::read(sources, Style::Toml(key), node, problems);
        // Conditions over several settings are checked only if each of them is right.
        table.filter(|_| problems.len() == before)
    }

    /// Reports a problem with a key, at the nearest table if it is not given.
    fn complain(&mut self, key: &str, message: impl Into<String>) {
        let location = self.all.sources.location(self.root.spot(key));
        self.all.problems.push(Problem::at(location, message));
    }

    fn problem(&mut self, key: &str, message: impl Into<String>, help: &str) {
        let location = self.all.sources.location(self.root.spot(key));
        self.all.problems.push(Problem::at(location, message).help(help));
    }

    fn secret(&mut self, key: &str, text: SecretText) -> Option<Secret> {
        let read = text.read(self.is_foreign);
        read.map_err(|complaint| self.complain(key, complaint)).ok()
    }
}
