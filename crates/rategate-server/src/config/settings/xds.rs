//! Settings of the control plane, which sends the rules over xDS.

use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::ServerName;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::rules::Reader;
use crate::config::text::{Grammar, Size, Text, size, text};

/// The control plane that sends the rules, in place of files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Xds {
    /// The address of the control plane: a host and a port.
    #[serde(deserialize_with = "text")]
    #[schemars(with = "Text<ControlPlane>")]
    pub server: ControlPlane,
    /// The name by which the control plane knows this service. Default: "default".
    #[serde(default = "usual_node")]
    pub node: String,
    /// Be ready before the first configuration has arrived. Default: false.
    #[serde(default)]
    pub force_start: bool,
    /// The wait after an attempt to connect that failed, give or take a half. Default: 3s.
    #[serde(default = "usual_retry", deserialize_with = "text")]
    #[schemars(with = "Text<Duration>")]
    pub connect_retry: Duration,
    /// The wait after a stream that ended, which doubles until a configuration is accepted.
    /// Default: 10s.
    #[serde(default = "usual_backoff", deserialize_with = "text")]
    #[schemars(with = "Text<Duration>")]
    pub backoff: Duration,
    /// The maximum of that wait. Default: 1min.
    #[serde(default = "usual_max_backoff", deserialize_with = "text")]
    #[schemars(with = "Text<Duration>")]
    pub max_backoff: Duration,
    /// The maximum length of a configuration, all domains together. Default: 4MiB.
    #[serde(rename = "max_message", default = "usual_max", deserialize_with = "size")]
    #[schemars(with = "Text<Size>")]
    pub max_message_bytes: usize,
    /// TLS to the control plane. Without it, nothing is encrypted.
    pub tls: Option<XdsTls>,
}

/// TLS to the control plane, by files in PEM. They are read at each connection, so they may change.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["ca"]))]
pub struct XdsTls {
    /// The CA that signs the control plane's certificate.
    #[serde(default)]
    pub ca: PathBuf,
    /// The chain of certificates that this service shows, its own first.
    pub cert: Option<PathBuf>,
    /// The private key of that certificate.
    pub key: Option<PathBuf>,
    /// The name in the control plane's certificate. Default: the host of `server`.
    pub name: Option<String>,
}

/// The address of a control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane {
    /// The name or the address of its machine.
    pub host: String,
    /// Its port.
    pub port: u16,
}

fn usual_node() -> String {
    "default".to_owned()
}

const fn usual_retry() -> Duration {
    Duration::from_secs(3)
}

const fn usual_backoff() -> Duration {
    Duration::from_secs(10)
}

const fn usual_max_backoff() -> Duration {
    Duration::from_secs(60)
}

const fn usual_max() -> usize {
    4 << 20
}

impl Xds {
    /// Reports settings that do not go together.
    pub(super) fn check(&self, reader: &mut Reader<'_>) {
        if self.node.is_empty() || self.node.len() > MAX_NODE_BYTES {
            let message = format!("a node has a name of 1 to {MAX_NODE_BYTES} bytes");
            reader.complain("xds.node", message);
        }
        if self.max_backoff < self.backoff {
            reader.complain("xds.max_backoff", "the longest wait is shorter than the first");
        }
        let Some(XdsTls { ca, cert, key, name }) = &self.tls else { return };
        if ca.as_os_str().is_empty() {
            let message = "TLS needs the authority of the control plane's certificate";
            reader.suggest("xds.tls", message, "give xds.tls.ca");
        }
        if cert.is_some() != key.is_some() {
            let missing = if cert.is_some() { "xds.tls.key" } else { "xds.tls.cert" };
            let message = format!("a certificate needs its key, but {missing} is missing");
            reader.complain("xds.tls", message);
        }
        let is_name = |name: &String| ServerName::try_from(name.as_str()).is_ok();
        if let Some(name) = name.as_ref().filter(|name| !is_name(name)) {
            reader.complain("xds.tls.name", format!("{name:?} is neither a host nor an address"));
        }
    }
}

/// The maximum length of a node's name, in bytes.
const MAX_NODE_BYTES: usize = 256;

/// The grammar of the address of a control plane.
impl Grammar for ControlPlane {
    const WHAT: &'static str = "a host and a port";
    const EXAMPLES: &'static [&'static str] = &["envoy-gateway:18001", "[::1]:18000"];

    fn read(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is no host and port like \"envoy-gateway:18001\"");
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
        let host = match host.strip_prefix('[') {
            Some(address) => address.strip_suffix(']').ok_or_else(invalid)?,
            None if host.contains(':') => return Err(invalid()),
            None => host,
        };
        // What cannot be in a certificate is no name of a host, with TLS or without.
        let port = port.parse().ok().filter(|port| *port > 0 && ServerName::try_from(host).is_ok());
        port.map(|port| Self { host: host.to_owned(), port }).ok_or_else(invalid)
    }
}

impl std::fmt::Display for ControlPlane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}
