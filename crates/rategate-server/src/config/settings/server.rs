//! Settings of the listeners.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess};

use super::{Limits, Reader, Secret, SecretText};
use crate::config::text::{Grammar, OneOrMore, SocketMode, Text};
use crate::net::Address;

/// The listeners of the service and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The listeners for Redis' protocol. Defaults to 127.0.0.1:6380; an empty list turns it off.
    pub resp: Vec<Listener>,
    /// The listeners for HTTP. Defaults to 127.0.0.1:8080.
    pub http: Vec<Listener>,
    /// The listeners for gRPC. Defaults to 127.0.0.1:8081.
    pub grpc: Vec<Listener>,
    /// The token that calls present if they change something, and all calls to listeners with
    /// [`Listener::auth`].
    pub token: Option<Secret>,
    /// The certificate of the listeners with [`Listener::tls`].
    pub tls: Option<Tls>,
    /// The number of worker threads. `None` means one for each core.
    pub threads: Option<NonZeroUsize>,
    /// The bounds on memory, connections and times.
    pub limits: Limits,
    /// The maximum time for open calls to end when the service stops.
    pub drain: Duration,
    /// Permits listeners that other machines can reach although clients are not authenticated.
    pub insecure: bool,
}

/// An address to listen at, with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address.
    pub address: Address,
    /// Requires the token for all calls. Otherwise only calls that change something need it.
    pub auth: bool,
    /// Uses TLS, which requires a [`Server::tls`].
    pub tls: bool,
    /// The access mode of a socket in the file system. Defaults to 0o600, the service's user
    /// only.
    pub mode: u32,
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

/// The listeners of the service and its limits.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerTable {
    /// The addresses for Redis' protocol. Default: 127.0.0.1:6380. An empty list turns it off.
    resp: Option<Listeners>,
    /// The addresses for HTTP. Default: 127.0.0.1:8080.
    http: Option<Listeners>,
    /// The addresses for gRPC. Default: 127.0.0.1:8081.
    grpc: Option<Listeners>,
    /// Require the token for all calls, at listeners without a setting of their own.
    /// Default: at listeners that other machines can reach, once there is a token.
    auth: Option<bool>,
    /// The token that calls present if they change something.
    token: Option<SecretText>,
    /// The certificate of all listeners but sockets in the file system.
    tls: Option<Tls>,
    /// The number of worker threads. Default: one for each core.
    threads: Option<NonZeroUsize>,
    /// The bounds on memory, connections and times.
    #[serde(default)]
    limits: Limits,
    /// The maximum time for open calls to end when the service stops. Default: 10s.
    drain: Option<Text<Duration>>,
    /// Listen where other machines can connect, although clients are not authenticated.
    #[serde(default)]
    insecure: bool,
}

type Listeners = OneOrMore<Text<ListenerTable>>;

/// A listener with more than its address.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListenerTable {
    /// The address.
    address: Text<Address>,
    /// Require the token for all calls.
    auth: Option<bool>,
    /// Use TLS.
    tls: Option<bool>,
    /// The access mode of a socket in the file system. Default: "0600", the service's user only.
    mode: Option<Text<SocketMode>>,
}

impl ListenerTable {
    const fn plain(address: Address) -> Self {
        Self { address: Text(address), auth: None, tls: None, mode: None }
    }
}

impl Grammar for ListenerTable {
    const WHAT: &'static str =
        "an address like \"127.0.0.1:6380\", { address, auth, tls, mode }, or a list of these";

    fn read(text: &str) -> Result<Self, String> {
        Address::read(text).map(Self::plain)
    }

    fn of_table<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        let table = Self::deserialize(MapAccessDeserializer::new(map))?;
        if table.mode.is_some() && matches!(table.address.0, Address::Tcp(_)) {
            return Err(de::Error::custom("only a socket in the file system has a mode"));
        }
        Ok(table)
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

impl ServerTable {
    /// Returns the settings, and reports those that do not go together. With `is_tls_of_grpc`,
    /// TLS is for gRPC listeners only, where a listener has no setting of its own.
    pub(super) fn read(self, is_tls_of_grpc: bool, reader: &mut Reader<'_>) -> Server {
        let default = Server::default();
        let token = self.token.and_then(|token| reader.secret("server.token", token));
        let listen = |protocol, given: Option<Listeners>, default: Vec<Listener>| {
            let default = default.into_iter().map(|one| Text(ListenerTable::plain(one.address)));
            let all = given.map_or_else(|| default.collect(), |given| given.0);
            let resolve = |Text(ListenerTable { address: Text(address), auth, tls, mode })| {
                let by_default = address.is_public() && token.is_some();
                let may_speak = matches!(address, Address::Tcp(_)) && self.tls.is_some();
                Listener {
                    auth: auth.or(self.auth).unwrap_or(by_default),
                    tls: tls.unwrap_or(may_speak && (!is_tls_of_grpc || protocol == "grpc")),
                    mode: mode.map_or(SOCKET_MODE, |mode| mode.0.0),
                    address,
                }
            };
            all.into_iter().map(resolve).collect::<Vec<_>>()
        };
        let server = Server {
            resp: listen("resp", self.resp, default.resp),
            http: listen("http", self.http, default.http),
            grpc: listen("grpc", self.grpc, default.grpc),
            threads: self.threads,
            limits: self.limits,
            drain: self.drain.map_or(default.drain, |drain| drain.0),
            insecure: self.insecure,
            tls: self.tls,
            token,
        };
        if server.threads.is_some_and(|threads| threads.get() > 1024) {
            reader.complain("server.threads", "at most 1024 threads");
        }
        if let Some(Tls { cert, key, .. }) = &server.tls {
            let files = [("server.tls.cert", cert), ("server.tls.key", key)];
            let missing = files.into_iter().find(|(_, path)| path.as_os_str().is_empty());
            if let Some((missing, _)) = missing {
                let message =
                    format!("TLS needs a certificate and its key, but {missing} is missing");
                reader.complain("server.tls", message);
            }
        }
        server.check(reader);
        server
    }
}

impl Server {
    /// Reports listeners that cannot be, or are open to others by accident.
    fn check(&self, reader: &mut Reader<'_>) {
        let mut seen = HashMap::new();
        for (protocol, listener) in self.listeners() {
            let (key, address) = (&*format!("server.{protocol}"), &listener.address);
            if listener.tls && self.tls.is_none() {
                let message = format!("{address} uses TLS, but there is no certificate");
                reader.problem(key, message, "give [server.tls] cert and key");
            }
            if listener.tls && matches!(address, Address::Unix(_)) {
                reader.complain(key, format!("{address} is a file, and TLS is for networks"));
            }
            if listener.auth && self.token.is_none() {
                let key = if reader.root.get(key).is_some() { key } else { "server.auth" };
                let message = format!("calls to {address} need a token, and there is none");
                reader.problem(key, message, "give [server] token, or RATEGATE_SERVER_TOKEN");
            }
            if self.is_open(listener) && !self.insecure {
                let message = format!(
                    "{address} can be reached by other machines, and clients are not authenticated"
                );
                let help = "give a token or tls.client_ca under [server], \
                    or set insecure = true to accept any client";
                reader.problem(key, message, help);
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

    /// Returns `true` if any machine can use this listener without authentication.
    #[must_use]
    pub fn is_open(&self, listener: &Listener) -> bool {
        let requires_certificate =
            listener.tls && self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        listener.address.is_public() && self.token.is_none() && !requires_certificate
    }
}

impl Listener {
    /// Creates a listener with neither token nor TLS.
    #[must_use]
    pub const fn plain(address: Address) -> Self {
        Self { address, auth: false, tls: false, mode: SOCKET_MODE }
    }
}

impl Default for Server {
    fn default() -> Self {
        let at = |port| vec![Listener::plain(Address::loopback(port))];
        Self {
            resp: at(6380),
            http: at(8080),
            grpc: at(8081),
            token: None,
            tls: None,
            threads: None,
            limits: Limits::default(),
            drain: Duration::from_secs(10),
            insecure: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(Address::read("127.0.0.1:1"), Ok(Address::loopback(1)));
        assert_eq!(Address::read("unix:/run/a"), Ok(Address::Unix("/run/a".into())));
        for invalid in ["", "localhost:1", "127.0.0.1", ":1", "unix:", "127.0.0.1:99999"] {
            assert!(Address::read(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn a_token_or_certificates_of_clients_close_a_listener() {
        let listener =
            |tls| Listener { tls, ..Listener::plain(Address::Tcp(([0, 0, 0, 0], 1).into())) };
        let mut server = Server::default();
        assert!(server.is_open(&listener(false)));
        assert!(!server.is_open(&Listener::plain(Address::loopback(1))));
        server.tls = Some(Tls { cert: "c".into(), key: "k".into(), client_ca: None });
        assert!(server.is_open(&listener(true)));
        server.tls = Some(Tls { cert: "c".into(), key: "k".into(), client_ca: Some("a".into()) });
        assert!(!server.is_open(&listener(true)) && server.is_open(&listener(false)));
        server.token = Some(Secret::new("t".to_owned()));
        assert!(!server.is_open(&listener(false)));
    }
}
