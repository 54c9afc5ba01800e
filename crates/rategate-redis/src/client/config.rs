//! Which store, and how long to wait for it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::batch::MAX_DECISIONS;
use crate::command::Settings;
use crate::library::Library;

/// How long a question may take, if not said otherwise.
pub const DEFAULT_BUDGET: Duration = Duration::from_millis(20);
/// How many questions may be without an answer at a time, if not said otherwise.
pub const DEFAULT_QUEUE: usize = 65_536;
/// Decisions in one call, if not said otherwise: a store does nothing else meanwhile.
pub const DEFAULT_BATCH: usize = 128;
/// Rounds of calls under way on one connection, if not said otherwise: one is worked on while others travel, and while
/// their answers are told.
pub const DEFAULT_ROUNDS: usize = 4;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Server {
    /// TCP: host and port.
    Tcp(String, u16),
    /// TCP with TLS: host, by which its certificate is checked, and port. Needs the feature `tls`.
    Tls(String, u16),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl Server {
    /// TCP.
    #[must_use]
    pub fn tcp(host: &str, port: u16) -> Self {
        Self::Tcp(host.to_owned(), port)
    }

    /// Another server of the same kind, by what a cluster or a sentinel says. No host means this one.
    pub(crate) fn beside(&self, host: &str, port: u16) -> Self {
        let own = match self {
            Self::Tcp(own, _) | Self::Tls(own, _) => own.as_str(),
            Self::Unix(_) => "127.0.0.1",
        };
        let host = if host.is_empty() || host == "?" { own } else { host }.to_owned();
        if matches!(self, Self::Tls(..)) { Self::Tls(host, port) } else { Self::Tcp(host, port) }
    }

    /// The same, of `host:port`.
    pub(crate) fn at(&self, address: &str) -> Option<Self> {
        let (host, port) = address.rsplit_once(':')?;
        Some(self.beside(host, port.parse().ok()?))
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

/// How the server that decides is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    One(Server),
    /// Whichever says first that it is a primary.
    PrimaryOf(Vec<Server>),
    Sentinel {
        name: String,
        sentinels: Vec<Server>,
    },
    Cluster(Vec<Server>),
}

/// What a user is let in by. It is not shown.
#[derive(Clone, Default)]
pub(crate) struct Secret(pub(crate) Option<String>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "***" } else { "none" })
    }
}

/// Who hears what a human should know.
#[derive(Clone)]
pub(crate) struct Warn(pub(crate) Arc<dyn Fn(&str) + Send + Sync>);

impl fmt::Debug for Warn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Warn")
    }
}

/// Which store, and how long to wait for it.
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
    pub(crate) settings: Settings,
    pub(crate) warn: Option<Warn>,
    #[cfg(feature = "tls")]
    pub(crate) tls: super::tls::Pem,
    pub(crate) clock: Option<Arc<AtomicU64>>,
    pub(crate) library: Library,
}

impl Config {
    /// One server, which is a primary.
    #[must_use]
    pub fn server(server: Server) -> Self {
        Self::of(Topology::One(server))
    }

    /// Servers of which one is the primary: the first to say that it is. Each is asked again after a failure, so
    /// a failover by hand is found. Two that both say so are a human's to mend.
    #[must_use]
    pub fn primary_of(servers: impl IntoIterator<Item = Server>) -> Self {
        Self::of(Topology::PrimaryOf(servers.into_iter().collect()))
    }

    /// The primary that sentinels know by this name.
    #[must_use]
    pub fn sentinel(name: &str, sentinels: impl IntoIterator<Item = Server>) -> Self {
        let sentinels = sentinels.into_iter().collect();
        Self::of(Topology::Sentinel { name: name.to_owned(), sentinels })
    }

    /// A cluster, of which these servers tell the rest.
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
            settings: Settings::default(),
            warn: None,
            #[cfg(feature = "tls")]
            tls: super::tls::Pem::default(),
            clock: None,
            library: Library::LIVE,
        }
    }

    /// Who asks, where the store has users.
    #[must_use]
    pub fn user(self, user: &str) -> Self {
        Self { user: Some(user.to_owned()), ..self }
    }

    /// By which password.
    #[must_use]
    pub fn password(self, password: &str) -> Self {
        Self { password: Secret(Some(password.to_owned())), ..self }
    }

    /// Trusts the authorities of these PEM certificates, and no others, where a server is reached by
    /// [TLS](Server::Tls). If not said, those of the machine.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_roots(mut self, pem: &[u8]) -> Self {
        self.tls.roots = Some(pem.to_vec());
        self
    }

    /// Shows these PEM certificates, the client's own first, to servers that ask for one, and proves by the key
    /// that they are its own.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_identity(mut self, certificates: &[u8], key: &[u8]) -> Self {
        self.tls.identity = Some((certificates.to_vec(), key.to_vec()));
        self
    }

    /// Which database; a cluster has only the one that is 0.
    #[must_use]
    pub fn database(self, database: u16) -> Self {
        Self { database: database.into(), ..self }
    }

    /// How all keys begin, `rategate` if not said otherwise: 1 to 32 letters, digits, `-`, `_` and `.`.
    #[must_use]
    pub fn prefix(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }

    /// How long a question may take, from 1 ms on: [`DEFAULT_BUDGET`] if not said otherwise.
    #[must_use]
    pub fn budget(self, budget: Duration) -> Self {
        Self { budget: budget.max(Duration::from_millis(1)), ..self }
    }

    /// How many questions may be without an answer at a time, from 1 on: [`DEFAULT_QUEUE`] if not said otherwise.
    #[must_use]
    pub fn queue(self, questions: usize) -> Self {
        Self { queue: questions.max(1), ..self }
    }

    /// Decisions in one call at most, from 1 to 1024: [`DEFAULT_BATCH`] if not said otherwise.
    #[must_use]
    pub fn batch(self, decisions: usize) -> Self {
        Self { batch: decisions.clamp(1, MAX_DECISIONS), ..self }
    }

    /// Rounds of calls under way on one connection, from 1 to 16: [`DEFAULT_ROUNDS`] if not said otherwise.
    #[must_use]
    pub fn rounds(self, rounds: usize) -> Self {
        Self { rounds: rounds.clamp(1, 16), ..self }
    }

    /// A store that has reached its `maxmemory` decides nothing. If not said otherwise it goes on: states are
    /// small, and each ends.
    #[must_use]
    pub fn within_memory(self) -> Self {
        Self { is_within_memory: true, ..self }
    }

    /// How calls are made.
    #[must_use]
    pub fn settings(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// Who hears what a human should know: a store that drops keys when its memory is full resets limits. It is
    /// called on the driver's thread, once for each cause.
    #[must_use]
    pub fn on_warning(self, warn: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { warn: Some(Warn(Arc::new(warn))), ..self }
    }

    /// For tests: this is what time it is, in microseconds, by [`Library::DEBUG`](crate::library::Library::DEBUG).
    #[must_use]
    pub fn debug_clock(self, now_us: Arc<AtomicU64>) -> Self {
        Self { clock: Some(now_us), library: Library::DEBUG, ..self }
    }

    /// For tests of an upgrade: asks by the functions of [another release](Library::of_release).
    #[must_use]
    pub fn library(self, library: Library) -> Self {
        Self { library, ..self }
    }

    /// For how long a connection may owe an answer before another is tried.
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
    fn a_server_tells_of_others() {
        let server = Server::tcp("a", 1);
        assert_eq!(server.at("b:2"), Some(Server::tcp("b", 2)));
        assert_eq!(server.at(":2"), Some(Server::tcp("a", 2)));
        assert_eq!(server.at("::1:2"), Some(Server::tcp("::1", 2)));
        assert_eq!(server.at("b"), None);
        assert_eq!(Server::Tls("a".into(), 1).beside("b", 2), Server::Tls("b".into(), 2));
    }
}
