//! Configuration of a store client: its servers, the bounds of its queue, and timeouts.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::batch::MAX_DECISIONS;
use crate::library::Library;

/// The default time a request may take.
pub const DEFAULT_BUDGET: Duration = Duration::from_millis(20);
/// The default maximum number of requests without a reply.
pub const DEFAULT_QUEUE: usize = 65_536;
/// The default maximum number of decisions in one call. The store does nothing else meanwhile.
pub const DEFAULT_BATCH: usize = 128;
/// The default number of rounds under way on one connection. The store works on one while others
/// travel and while replies are delivered.
pub const DEFAULT_ROUNDS: usize = 4;

/// The address a server listens at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Server {
    /// TCP, by host and port.
    Tcp(String, u16),
    /// TCP with TLS, by host, against which the certificate is checked, and port. Needs the
    /// feature `tls`.
    Tls(String, u16),
    /// A Unix domain socket, by its path.
    Unix(PathBuf),
}

impl Server {
    /// Returns the address of a TCP server.
    #[must_use]
    pub fn tcp(host: &str, port: u16) -> Self {
        Self::Tcp(host.to_owned(), port)
    }

    /// Returns another server of the same kind, as reported by a cluster or a sentinel. An empty
    /// host means this server's.
    pub(crate) fn sibling(&self, host: &str, port: u16) -> Self {
        let own = match self {
            Self::Tcp(own, _) | Self::Tls(own, _) => own.as_str(),
            Self::Unix(_) => "127.0.0.1",
        };
        let host = if host.is_empty() || host == "?" { own } else { host }.to_owned();
        if matches!(self, Self::Tls(..)) { Self::Tls(host, port) } else { Self::Tcp(host, port) }
    }

    /// Returns another server of the same kind, from `host:port`.
    pub(crate) fn at(&self, address: &str) -> Option<Self> {
        let (host, port) = address.rsplit_once(':')?;
        Some(self.sibling(host, port.parse().ok()?))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) | Self::Tls(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// The way to find the server that makes the decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    One(Server),
    /// The first of these servers that reports to be a primary.
    PrimaryOf(Vec<Server>),
    Sentinel {
        name: String,
        sentinels: Vec<Server>,
    },
    Cluster(Vec<Server>),
}

/// A password, which `Debug` does not show.
#[derive(Clone, Default)]
pub(crate) struct Secret(pub(crate) Option<String>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "***" } else { "none" })
    }
}

/// The callback for warnings to the operator.
#[derive(Clone)]
pub(crate) struct Warn(pub(crate) Arc<dyn Fn(&str) + Send + Sync>);

impl fmt::Debug for Warn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Warn")
    }
}

/// The configuration of a [`RedisStore`](super::RedisStore).
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) topology: Topology,
    pub(crate) user: Option<String>,
    pub(crate) password: Secret,
    pub(crate) database: i64,
    pub(crate) prefix: String,
    pub(crate) budget: Duration,
    pub(crate) queue: usize,
    pub(crate) batch: usize,
    pub(crate) rounds: usize,
    pub(crate) is_within_memory: bool,
    pub(crate) warn: Option<Warn>,
    #[cfg(feature = "tls")]
    pub(crate) tls: super::tls::Pem,
    pub(crate) clock: Option<Arc<AtomicU64>>,
    pub(crate) library: Library,
}

impl Config {
    /// Uses one server, which must be a primary.
    #[must_use]
    pub fn server(server: Server) -> Self {
        Self::of(Topology::One(server))
    }

    /// Uses the primary of several servers: the first that reports to be one.
    ///
    /// All are queried again after a failure, so a manual failover is found. If two report to be
    /// primary, the operator has to resolve it.
    #[must_use]
    pub fn primary_of(servers: impl IntoIterator<Item = Server>) -> Self {
        Self::of(Topology::PrimaryOf(servers.into_iter().collect()))
    }

    /// Uses the primary that sentinels know by `name`.
    #[must_use]
    pub fn sentinel(name: &str, sentinels: impl IntoIterator<Item = Server>) -> Self {
        let sentinels = sentinels.into_iter().collect();
        Self::of(Topology::Sentinel { name: name.to_owned(), sentinels })
    }

    /// Uses a cluster, whose other servers are learned from these.
    #[must_use]
    pub fn cluster(servers: impl IntoIterator<Item = Server>) -> Self {
        Self::of(Topology::Cluster(servers.into_iter().collect()))
    }

    fn of(topology: Topology) -> Self {
        Self {
            topology,
            user: None,
            password: Secret::default(),
            database: 0,
            prefix: "rategate".to_owned(),
            budget: DEFAULT_BUDGET,
            queue: DEFAULT_QUEUE,
            batch: DEFAULT_BATCH,
            rounds: DEFAULT_ROUNDS,
            is_within_memory: false,
            warn: None,
            #[cfg(feature = "tls")]
            tls: super::tls::Pem::default(),
            clock: None,
            library: Library::LIVE,
        }
    }

    /// Sets the user name, for a store with users.
    #[must_use]
    pub fn user(self, user: &str) -> Self {
        Self { user: Some(user.to_owned()), ..self }
    }

    /// Sets the password.
    #[must_use]
    pub fn password(self, password: &str) -> Self {
        Self { password: Secret(Some(password.to_owned())), ..self }
    }

    /// Trusts the authorities of these PEM certificates, and no others, for servers reached by
    /// [TLS](Server::Tls). The default is the machine's authorities.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_roots(mut self, pem: &[u8]) -> Self {
        self.tls.roots = Some(pem.to_vec());
        self
    }

    /// Sets the client certificates and their key, in PEM, for servers that request one. The
    /// client's own certificate comes first.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_identity(mut self, certificates: &[u8], key: &[u8]) -> Self {
        self.tls.identity = Some((certificates.to_vec(), key.to_vec()));
        self
    }

    /// Sets the number of the database. A cluster has only database 0.
    #[must_use]
    pub fn database(self, database: u16) -> Self {
        Self { database: database.into(), ..self }
    }

    /// Sets the prefix of all keys: 1 to 32 letters, digits, `-`, `_` and `.`. The default is
    /// `rategate`.
    #[must_use]
    pub fn prefix(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }

    /// Sets the time a request may take, at least 1 ms. The default is [`DEFAULT_BUDGET`].
    #[must_use]
    pub fn budget(self, budget: Duration) -> Self {
        Self { budget: budget.max(Duration::from_millis(1)), ..self }
    }

    /// Sets the maximum number of requests without a reply, at least 1. The default is
    /// [`DEFAULT_QUEUE`].
    #[must_use]
    pub fn queue(self, requests: usize) -> Self {
        Self { queue: requests.max(1), ..self }
    }

    /// Sets the maximum number of decisions in one call, from 1 to 1024. The default is
    /// [`DEFAULT_BATCH`].
    #[must_use]
    pub fn batch(self, decisions: usize) -> Self {
        Self { batch: decisions.clamp(1, MAX_DECISIONS), ..self }
    }

    /// Sets the number of rounds under way on one connection, from 1 to 16. The default is
    /// [`DEFAULT_ROUNDS`].
    #[must_use]
    pub fn rounds(self, rounds: usize) -> Self {
        Self { rounds: rounds.clamp(1, 16), ..self }
    }

    /// Refuses decisions while the store has reached its `maxmemory`.
    ///
    /// By default it goes on deciding: states are small, and each expires.
    #[must_use]
    pub fn within_memory(self) -> Self {
        Self { is_within_memory: true, ..self }
    }

    /// Sets the callback for warnings to the operator.
    ///
    /// One warning is that a store which drops keys when its memory is full resets limits. The
    /// callback runs on the driver's thread, once for each cause.
    #[must_use]
    pub fn on_warning(self, warn: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { warn: Some(Warn(Arc::new(warn))), ..self }
    }

    /// Sets a clock for tests, in microseconds, which
    /// [`Library::DEBUG`](crate::library::Library::DEBUG) goes by.
    #[must_use]
    pub fn debug_clock(self, now_us: Arc<AtomicU64>) -> Self {
        Self { clock: Some(now_us), library: Library::DEBUG, ..self }
    }

    /// Returns the time a connection may owe a reply before another connection is tried.
    pub(crate) fn patience(&self) -> Duration {
        self.budget.saturating_mul(10).max(Duration::from_millis(500))
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.topology, Topology::Cluster(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        let config = Config::server(Server::tcp("h", 1)).password("sesame");
        assert!(!format!("{config:?}").contains("sesame"));
    }

    #[test]
    fn a_server_resolves_its_siblings() {
        let server = Server::tcp("a", 1);
        assert_eq!(server.at("b:2"), Some(Server::tcp("b", 2)));
        assert_eq!(server.at(":2"), Some(Server::tcp("a", 2)));
        assert_eq!(server.at("::1:2"), Some(Server::tcp("::1", 2)));
        assert_eq!(server.at("b"), None);
        assert_eq!(Server::Tls("a".into(), 1).sibling("b", 2), Server::Tls("b".into(), 2));
    }
}
