//! Settings of the listeners.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer};

use super::{Limits, Secret};
use crate::config::rules::Reader;
use crate::config::text::{Grammar, OneOrMore, SocketMode, Text, mode, one_or_more, text};
use crate::net::Address;

/// The listeners of the service and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// The addresses for Redis' protocol. Default: 127.0.0.1:6380. An empty list turns it off.
    #[serde(deserialize_with = "one_or_more")]
    #[schemars(with = "OneOrMore<Text<Listener>>")]
    pub resp: Vec<Listener>,
    /// The addresses for HTTP. Default: 127.0.0.1:8080.
    #[serde(deserialize_with = "one_or_more")]
    #[schemars(with = "OneOrMore<Text<Listener>>")]
    pub http: Vec<Listener>,
    /// The addresses for gRPC. Default: 127.0.0.1:8081.
    #[serde(deserialize_with = "one_or_more")]
    #[schemars(with = "OneOrMore<Text<Listener>>")]
    pub grpc: Vec<Listener>,
    /// Require the token for all calls, at listeners without a setting of their own.
    /// Default: at listeners that other machines can reach, once there is a token.
    pub auth: Option<bool>,
    /// The token that calls present if they change something.
    #[schemars(with = "Option<Text<Secret>>")]
    pub token: Option<Secret>,
    /// The certificate of all listeners but sockets in the file system.
    pub tls: Option<Tls>,
    /// The number of worker threads. Default: one for each core.
    pub threads: Option<NonZeroUsize>,
    /// The bounds on memory, connections and times.
    pub limits: Limits,
    /// The maximum time for open calls to end when the service stops. Default: 10s.
    #[serde(deserialize_with = "text")]
    #[schemars(with = "Text<Duration>")]
    pub drain: Duration,
    /// Listen where other machines can connect, although clients are not authenticated.
    pub insecure: bool,
}

/// A listener with more than its address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// The address.
    #[serde(deserialize_with = "text")]
    #[schemars(with = "Text<Address>")]
    pub address: Address,
    /// Require the token for all calls.
    pub auth: Option<bool>,
    /// Use TLS.
    pub tls: Option<bool>,
    /// The access mode of a socket in the file system. Default: "0600", the service's user only.
    #[serde(default, deserialize_with = "mode")]
    #[schemars(with = "Option<Text<SocketMode>>")]
    pub mode: Option<u32>,
}

/// The default mode of a socket in the file system: the service's user only.
pub(crate) const SOCKET_MODE: u32 = 0o600;

/// A certificate, by files in PEM. The listener reads them, and they may change.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["cert", "key"]))]
pub struct Tls {
    /// The chain of certificates, the service's own first.
    #[serde(default)]
    pub cert: PathBuf,
    /// The private key of the certificate.
    #[serde(default)]
    pub key: PathBuf,
    /// The CA that signs certificates of clients. If given, each client needs a certificate.
    pub client_ca: Option<PathBuf>,
}

impl Grammar for Listener {
    const WHAT: &'static str =
        "an address like \"127.0.0.1:6380\", { address, auth, tls, mode }, or a list of these";

    fn read(text: &str) -> Result<Self, String> {
        Address::read(text).map(Self::plain)
    }

    fn of_table<'de, D: Deserializer<'de>>(table: D) -> Result<Self, D::Error> {
        let listener = Self::deserialize(table)?;
        if listener.mode.is_some() && matches!(listener.address, Address::Tcp(_)) {
            return Err(de::Error::custom("only a socket in the file system has a mode"));
        }
        Ok(listener)
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        let address = generator.subschema_for::<Text<Address>>();
        json_schema!({ "anyOf": [address, generator.subschema_for::<Self>()] })
    }
}

/// The grammar of an address to listen at.
impl Grammar for Address {
    const WHAT: &'static str = "an address and a port, or a socket in the file system";
    const EXAMPLES: &'static [&'static str] =
        &["127.0.0.1:6380", "[::1]:8080", "unix:/run/rategate.sock"];

    fn read(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("unix: needs a path, as in \"unix:/run/rategate.sock\"".to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| {
                format!(
                    "{text:?} is {}: host names are not supported",
                    "no address and port like \"127.0.0.1:6380\""
                )
            }),
        }
    }
}

impl Server {
    /// Reports settings that do not go together, such as listeners that cannot be, or are open to
    /// others by accident.
    pub(super) fn check(&self, reader: &mut Reader<'_>) {
        if self.threads.is_some_and(|threads| threads.get() > 1024) {
            reader.complain("server.threads", "at most 1024 threads");
        }
        if let Some(Tls { cert, key, .. }) = &self.tls {
            let files = [("server.tls.cert", cert), ("server.tls.key", key)];
            let missing = files.into_iter().find(|(_, path)| path.as_os_str().is_empty());
            if let Some((missing, _)) = missing {
                let message =
                    format!("TLS needs a certificate and its key, but {missing} is missing");
                reader.complain("server.tls", message);
            }
        }
        let mut seen = HashMap::new();
        for (protocol, listener) in self.listeners() {
            let (key, address) = (&*format!("server.{protocol}"), &listener.address);
            let uses_tls = self.uses_tls(listener);
            if uses_tls && self.tls.is_none() {
                let message = format!("{address} uses TLS, but there is no certificate");
                reader.suggest(key, message, "give [server.tls] cert and key");
            }
            if uses_tls && matches!(address, Address::Unix(_)) {
                reader.complain(key, format!("{address} is a file; TLS needs a network address"));
            }
            if self.requires_token(listener) && self.token.is_none() {
                let key = if reader.node.get(key).is_some() { key } else { "server.auth" };
                let message = format!("calls to {address} need a token, and there is none");
                reader.suggest(key, message, "give [server] token, or RATEGATE_SERVER_TOKEN");
            }
            if self.is_open(listener) && !self.insecure {
                let message = format!(
                    "{address} can be reached by other machines, and clients are not authenticated"
                );
                let help = "give a token or tls.client_ca under [server], \
                    or set insecure = true to accept any client";
                reader.suggest(key, message, help);
            }
            let is_any_port = matches!(address, Address::Tcp(address) if address.port() == 0);
            if !is_any_port && let Some(other) = seen.insert(address, protocol) {
                reader.complain(key, format!("{address} is also an address of server.{other}"));
            }
        }
    }

    /// Returns all listeners with the name of their protocol in the configuration.
    pub fn listeners(&self) -> impl Iterator<Item = (&'static str, &Listener)> {
        let of = |name: &'static str, all| std::iter::repeat(name).zip(all);
        of("resp", &self.resp).chain(of("http", &self.http)).chain(of("grpc", &self.grpc))
    }

    /// Returns `true` if the listener requires the token for all calls. Otherwise only calls that
    /// change something need it.
    #[must_use]
    pub fn requires_token(&self, listener: &Listener) -> bool {
        let by_default = listener.address.is_public() && self.token.is_some();
        listener.auth.or(self.auth).unwrap_or(by_default)
    }

    /// Returns `true` if the listener uses TLS.
    #[must_use]
    pub fn uses_tls(&self, listener: &Listener) -> bool {
        let may_speak = matches!(listener.address, Address::Tcp(_)) && self.tls.is_some();
        listener.tls.unwrap_or(may_speak)
    }

    /// Returns `true` if any machine can use this listener without authentication.
    #[must_use]
    pub fn is_open(&self, listener: &Listener) -> bool {
        let requires_certificate =
            self.uses_tls(listener) && self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        listener.address.is_public() && self.token.is_none() && !requires_certificate
    }
}

impl Listener {
    /// Creates a listener without settings of its own.
    #[must_use]
    pub const fn plain(address: Address) -> Self {
        Self { address, auth: None, tls: None, mode: None }
    }
}

impl Default for Server {
    fn default() -> Self {
        let at = |port| vec![Listener::plain(Address::loopback(port))];
        Self {
            resp: at(6380),
            http: at(8080),
            grpc: at(8081),
            auth: None,
            token: None,
            tls: None,
            threads: None,
            limits: Limits::default(),
            drain: Duration::from_secs(10),
            insecure: false,
        }
    }
}
