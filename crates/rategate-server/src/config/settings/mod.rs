//! What the service is told besides its rules: where it listens, who may do what, and how much of everything there may be.

mod counters;
mod limits;
mod observe;
mod protocols;
mod secret;
mod server;

pub use self::counters::{Snapshot, Store, StorePlace, WhenTorn};
pub use self::limits::{Inline, Keys, Limits};
pub use self::observe::{Log, LogFormat, LogKeys, Receiver, Sample, Tracing};
pub use self::protocols::{Dialect, Grpc, Http};
pub use self::secret::Secret;
pub(crate) use self::server::SOCKET_MODE;
pub use self::server::{Address, Listener, Server, Tls};

/// Everything the service is told besides its rules. [`Settings::default`] is what it does without a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Where it listens, and how.
    pub server: Server,
    /// What HTTP answers carry, and by which names it is asked.
    pub http: Http,
    /// What Envoy's protocol does.
    pub grpc: Grpc,
    /// Where the counters are that several processes share.
    pub store: Option<Store>,
    /// Where counters are kept over a restart.
    pub snapshot: Option<Snapshot>,
    /// Limits that come with calls.
    pub inline: Inline,
    /// What is logged.
    pub log: Log,
    /// Which decisions have a span, and who receives those.
    pub tracing: Tracing,
    /// How many keys all rules together may have.
    pub keys: Keys,
}
