//! The tables of the native format other than rules.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use rategate_tower::key::Network;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};

use super::text::{At, Grammar as _, HostName, SocketMode, StoreUrl, Text};
use crate::config::settings::{
    Address, Dialect, LogFormat, LogKeys, OnCorruptSnapshot, Receiver, Sample,
};

/// The listeners of the service and its limits.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerTable {
    /// The addresses for Redis' protocol. Default: 127.0.0.1:6380. An empty list turns it off.
    pub(crate) resp: Option<At<Listeners>>,
    /// The addresses for HTTP. Default: 127.0.0.1:8080.
    pub(crate) http: Option<At<Listeners>>,
    /// The addresses for gRPC. Default: 127.0.0.1:8081.
    pub(crate) grpc: Option<At<Listeners>>,
    /// Require the token for all calls, at listeners without a setting of their own.
    /// Default: at listeners that other machines can reach, once there is a token.
    pub(crate) auth: Option<At<bool>>,
    /// The token that calls present if they change something.
    pub(crate) token: Option<At<SecretText>>,
    /// The certificate of all listeners but sockets in the file system.
    pub(crate) tls: Option<At<TlsTable>>,
    /// The number of worker threads. Default: one for each core.
    pub(crate) threads: Option<At<NonZeroUsize>>,
    /// The bounds on memory, connections and times.
    pub(crate) limits: Option<LimitsTable>,
    /// The maximum time for open calls to end when the service stops. Default: 10s.
    pub(crate) drain: Option<Text<Duration>>,
    /// Listen where other machines can connect, although clients are not authenticated.
    pub(crate) insecure: Option<bool>,
}

/// A certificate, by files in PEM.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsTable {
    /// The chain of certificates, the service's own first.
    pub(crate) cert: PathBuf,
    /// The private key of the certificate.
    pub(crate) key: PathBuf,
    /// The CA that signs certificates of clients. If given, each client needs a certificate.
    pub(crate) client_ca: Option<PathBuf>,
}

/// The bounds on memory, connections and times.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitsTable {
    /// The maximum length of a command of Redis' protocol. Default: 64KiB.
    pub(crate) frame: Option<Size>,
    /// The maximum length of an HTTP request's head. Default: 16KiB.
    pub(crate) header: Option<Size>,
    /// The maximum length of an HTTP request's body, and of a gRPC message. Default: 1MiB.
    pub(crate) body: Option<Size>,
    /// The maximum number of concurrent calls on one HTTP/2 connection. Default: 256.
    pub(crate) streams: Option<std::num::NonZeroU32>,
    /// The maximum number of open connections. Default: 10 000.
    pub(crate) connections: Option<NonZeroUsize>,
    /// The maximum number of open connections from one address. Default: 1 000.
    pub(crate) connections_per_address: Option<NonZeroUsize>,
    /// The maximum time that a connection may be idle. Default: 5min.
    pub(crate) idle: Option<Text<Duration>>,
    /// The maximum time for a request's head, or a handshake, to arrive. Default: 10s.
    pub(crate) header_time: Option<Text<Duration>>,
}

/// The header fields of HTTP answers, and the accepted host names.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpTable {
    /// The header fields with the caller's status:
    /// "ietf", "ratelimit", "x-ratelimit", "x-ratelimit-epoch". Default: the first.
    pub(crate) headers: Option<Vec<Dialect>>,
    /// Host names by which browsers reach the service, such as a proxy's, or of pages that call it.
    /// Localhost and addresses need not be listed. Default: none.
    pub(crate) hosts: Option<Vec<Text<HostName>>>,
    /// Networks of the proxies whose `X-Forwarded-For` is trusted. Default: none.
    pub(crate) trusted_proxies: Option<Vec<Text<Network>>>,
}

/// The behaviour of Envoy's protocol.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrpcTable {
    /// Count a denied call in those limits that it fits. Counted windows count it in any case.
    /// Default: false.
    pub(crate) count_denied: Option<bool>,
    /// Count a call that is over counted windows in these alone, and not in those that it fits.
    /// Default: false.
    pub(crate) count_over_only: Option<bool>,
    /// Let every call pass, and report limits that are over only in the descriptors' statuses.
    /// Default: false.
    pub(crate) shadow: Option<bool>,
    /// Let several files in Envoy's format share a domain, with the descriptors of all of them.
    /// Default: false.
    pub(crate) merge_domains: Option<bool>,
    /// Put the caller's status under the nearest limit in `response_headers_to_add`.
    /// Default: false.
    pub(crate) headers: Option<bool>,
}

/// The store of counters that several processes share.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreTable {
    /// The way to find the primary among the servers of `url`. Default: "server".
    pub(crate) kind: Option<At<StoreKind>>,
    /// The address of one or several servers: `redis://host:port`, `rediss://` for TLS,
    /// `unix:/path`.
    pub(crate) url: At<Urls>,
    /// The name of the primary in the sentinels' configuration.
    pub(crate) name: Option<At<String>>,
    /// The user name, where the store has users.
    pub(crate) user: Option<String>,
    /// The password.
    pub(crate) password: Option<At<SecretText>>,
    /// The number of the database. Default: 0.
    pub(crate) database: Option<u16>,
    /// The prefix of all keys. Default: "rategate".
    pub(crate) prefix: Option<At<String>>,
    /// The maximum time of a request to the store. Default: 20ms.
    pub(crate) budget: Option<Text<Duration>>,
    /// The maximum number of requests without a reply. Default: 65 536.
    pub(crate) queue: Option<NonZeroUsize>,
    /// The maximum number of servers that share the limits. Default: 1.
    /// While the store is unavailable, each server enforces that fraction of a limit by itself.
    pub(crate) nodes: Option<std::num::NonZeroU32>,
}

/// The way to find the primary of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StoreKind {
    /// The given server.
    #[default]
    Server,
    /// The server that reports itself as the primary.
    PrimaryOf,
    /// The server that sentinels name.
    Sentinel,
    /// The nodes of a cluster.
    Cluster,
}

/// The file in which counters survive a restart.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotTable {
    /// The path of the file.
    pub(crate) path: PathBuf,
    /// The interval at which it is written. Default: 1min.
    pub(crate) every: Option<Text<Duration>>,
    /// The behaviour if it cannot be read completely. Default: "full".
    /// "full" starts with each limit exhausted, "fresh" starts with each limit unused,
    /// "refuse" does not start.
    pub(crate) when_torn: Option<OnCorruptSnapshot>,
}

/// Inline limits, which come with calls.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InlineTable {
    /// The maximum number of keys of each table. Up to 31 limits share one. Default: 100 000.
    pub(crate) keys: Option<NonZeroUsize>,
    /// The maximum number of distinct limits. Default: 1 000.
    pub(crate) limits: Option<NonZeroUsize>,
}

/// The log.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogTable {
    /// "text" for people, "json" for machines. Default: "text".
    pub(crate) format: Option<LogFormat>,
    /// The minimum level, for all or by target: "info", "warn,rategate_server=debug".
    /// Default: "info".
    pub(crate) filter: Option<String>,
    /// The form of the keys of denied calls: "hashed" with a hash that changes with each start,
    /// "plain", "off". Default: "hashed".
    pub(crate) keys: Option<LogKeys>,
}

/// Spans of decisions.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TracingTable {
    /// The receiver, by OTLP over HTTP: "http://127.0.0.1:4318", or "off".
    /// Default: OTEL_EXPORTER_OTLP_ENDPOINT, or "off".
    pub(crate) otlp: Option<At<Text<Option<Receiver>>>>,
    /// The share of decisions with a span, among those whose callers send no trace context.
    /// Default: "1%".
    pub(crate) sample: Option<Text<Sample>>,
    /// The name of the service in spans. Default: OTEL_SERVICE_NAME, or "rategate".
    pub(crate) service: Option<At<String>>,
}

/// The capacity for keys.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeysTable {
    /// The maximum number of keys of all rules together. Default: 1 000 000.
    pub(crate) total: Option<NonZeroUsize>,
}

/// A listener: an address with optional settings.
#[derive(Debug)]
pub(crate) struct ListenerTable {
    pub(crate) address: Address,
    pub(crate) auth: Option<bool>,
    pub(crate) tls: Option<bool>,
    pub(crate) mode: Option<u32>,
}

/// A listener, or a list of them.
#[derive(Debug)]
pub(crate) struct Listeners(pub(crate) Vec<ListenerTable>);

/// A server of a store, or a list of them.
#[derive(Debug)]
pub(crate) struct Urls(pub(crate) Vec<StoreUrl>);

/// A secret: its text, or the file or variable that has it.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a text, or { env = \"NAME\" }, or { file = \"PATH\" }")]
pub(crate) enum SecretText {
    /// The text of the secret.
    Value(String),
    /// A table with the location of the secret.
    Elsewhere(Elsewhere),
}

/// The location of a secret.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Elsewhere {
    /// The path of a file that contains it. A final line break is ignored.
    pub(crate) file: Option<PathBuf>,
    /// The name of a variable of the environment.
    pub(crate) env: Option<String>,
    /// The text of the secret.
    pub(crate) value: Option<String>,
}

impl SecretText {
    /// Returns `true` if the secret is in a file or a variable.
    pub(crate) const fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Elsewhere(at) if at.file.is_some() || at.env.is_some())
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A number of bytes: `65536` or `"64KiB"`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size(pub(crate) usize);

impl Size {
    const INVALID: &str = "a size is from 1 byte to 1 GiB, as in 65536, \"64KiB\" or \"1MiB\"";

    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let digits =
            text.len().saturating_sub(text.trim_start_matches(|c: char| c.is_ascii_digit()).len());
        let (number, unit) = text.split_at_checked(digits).ok_or(Self::INVALID)?;
        let unit: u64 = match unit {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(Self::INVALID.to_owned()),
        };
        let number: u64 = number.parse().map_err(|_| Self::INVALID)?;
        Self::of(number.saturating_mul(unit))
    }

    fn of(bytes: u64) -> Result<Self, String> {
        match usize::try_from(bytes) {
            Ok(bytes) if (1..=1 << 30).contains(&bytes) => Ok(Self(bytes)),
            _ => Err(Self::INVALID.to_owned()),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(Size::INVALID)
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                Size::of(u64::try_from(bytes).unwrap_or(0)).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                Size::read(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Bytes)
    }
}

impl JsonSchema for Size {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"], "examples": [65536, "64KiB", "1MiB"] })
    }
}

/// A listener with more than its address.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FullListener {
    /// The address.
    address: Text<Address>,
    /// Require the token for all calls.
    auth: Option<bool>,
    /// Use TLS.
    tls: Option<bool>,
    /// The access mode of a socket in the file system. Default: "0600", the service's user only.
    mode: Option<Text<SocketMode>>,
}

impl<'de> Deserialize<'de> for ListenerTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMore::new(false)).and_then(|mut all: Listeners| {
            all.0.pop().ok_or_else(|| de::Error::custom("a list within a list"))
        })
    }
}

impl<'de> Deserialize<'de> for Listeners {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMore::new(true))
    }
}

/// A visitor that reads a listener, or a list of them.
struct OneOrMore {
    may_be_list: bool,
}

impl OneOrMore {
    const fn new(may_be_list: bool) -> Self {
        Self { may_be_list }
    }
}

impl<'de> Visitor<'de> for OneOrMore {
    type Value = Listeners;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an address like \"127.0.0.1:6380\", { address, auth, tls, mode }, or a list of these",
        )
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Listeners, E> {
        let address = Address::read(text).map_err(E::custom)?;
        Ok(Listeners(vec![ListenerTable { address, auth: None, tls: None, mode: None }]))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Listeners, A::Error> {
        let FullListener { address, auth, tls, mode } =
            FullListener::deserialize(MapAccessDeserializer::new(map))?;
        let mode = mode.map(|mode| mode.0.0);
        if mode.is_some() && matches!(address.0, Address::Tcp(_)) {
            return Err(de::Error::custom("only a socket in the file system has a mode"));
        }
        Ok(Listeners(vec![ListenerTable { address: address.0, auth, tls, mode }]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Listeners, A::Error> {
        let mut all = Vec::new();
        if !self.may_be_list {
            return Ok(Listeners(all));
        }
        while let Some(one) = seq.next_element()? {
            all.push(one);
        }
        Ok(Listeners(all))
    }
}

impl JsonSchema for Listeners {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Listeners".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let address = generator.subschema_for::<Text<Address>>();
        let full = generator.subschema_for::<FullListener>();
        let one = json_schema!({ "anyOf": [address, full] });
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}

impl<'de> Deserialize<'de> for Urls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Urls;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"redis://host:port\", or a list of such")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Urls, E> {
                Ok(Urls(vec![StoreUrl::read(text).map_err(E::custom)?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Urls, A::Error> {
                let mut all = Vec::new();
                while let Some(Text(url)) = seq.next_element::<Text<StoreUrl>>()? {
                    all.push(url);
                }
                Ok(Urls(all))
            }
        }
        deserializer.deserialize_any(All)
    }
}

impl JsonSchema for Urls {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Urls".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Text<StoreUrl>>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}
