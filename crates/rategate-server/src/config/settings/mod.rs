//! The settings of the service, apart from its rules.

mod counters;
mod limits;
mod observe;
mod protocols;
mod secret;
mod server;
mod xds;

use schemars::JsonSchema;
use serde::Deserialize;

use super::de;
use super::error::Problem;
use super::gather::Gathered;
use super::node::Node;
use super::rules::Reader;
use super::tables::RuleTable;

pub(crate) use self::counters::StoreUrl;
pub use self::counters::{Snapshot, Store, StoreKind};
pub use self::limits::{Inline, Keys, Limits};
pub use self::observe::{Log, LogFormat, LogKeys, Receiver, Sample, Tracing};
pub use self::protocols::{Dialect, Grpc, Http};
pub(crate) use self::secret::Elsewhere;
pub use self::secret::Secret;
pub(crate) use self::server::SOCKET_MODE;
pub use self::server::{Listener, Server, Tls};
pub use self::xds::{ControlPlane, Xds, XdsTls};

/// A configuration of rategate: the settings of the service, and its rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "rategate")]
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
    /// Inline limits, which come with calls.
    pub inline: Inline,
    /// The log.
    pub log: Log,
    /// Spans of decisions.
    pub tracing: Tracing,
    /// The capacity for keys.
    pub keys: Keys,
    /// The control plane that sends the rules, in place of files.
    pub xds: Option<Xds>,
    /// The rules.
    // They are read one by one. The field is there for the schema, and for the list of keys.
    #[doc(hidden)]
    #[schemars(with = "Vec<RuleTable>")]
    pub rule: (),
}

/// Reads the settings of all files, of the environment and of flags, and reports all problems
/// with them.
pub(crate) fn read(all: &mut Gathered) -> Settings {
    let root = std::mem::take(&mut all.root);
    let mut settings: Settings = de::read(all, None, &root).unwrap_or_default();
    let is_right = |key: &str| root.child(key).is_none_or(Node::is_right);
    let reader = &mut Reader { node: &root, path: None, all };
    if reader.all.is_tls_of_grpc {
        let Server { resp, http, .. } = &mut settings.server;
        resp.iter_mut().chain(http).for_each(|listener| {
            listener.tls.get_or_insert(false);
        });
    }
    // Conditions over several settings are checked only if each of them is right.
    if is_right("server") {
        settings.server.check(reader);
    }
    if is_right("http") {
        settings.http.check(reader);
    }
    if let Some(store) = settings.store.as_mut().filter(|_| is_right("store")) {
        store.settle(reader);
    }
    if let Some(xds) = settings.xds.as_ref().filter(|_| is_right("xds")) {
        xds.check(reader);
    }
    if let (Some(location), None) = (&all.needs_store, root.child("store")) {
        let problem = Problem::at(location.clone(), "counters in the store, and there is none");
        all.problems.push(problem.help("write [store] and url = \"redis://host:port\""));
    }
    settings
}
