//! The settings of the service, apart from its rules.

mod counters;
mod limits;
mod observe;
mod protocols;
mod secret;
mod server;

pub use self::counters::{OnCorruptSnapshot, Snapshot, Store, StoreLocation};
pub use self::limits::{Inline, Keys, Limits};
pub use self::observe::{Log, LogFormat, LogKeys, Receiver, Sample, Tracing};
pub use self::protocols::{Dialect, Grpc, Http};
pub use self::secret::Secret;
pub(crate) use self::server::SOCKET_MODE;
pub use self::server::{Address, Listener, Server, Tls};

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
