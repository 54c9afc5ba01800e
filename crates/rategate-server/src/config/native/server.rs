//! The tables of the native format that are no rules.

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
use crate::config::settings::{Address, Dialect, LogFormat, LogKeys, Receiver, Sample, WhenTorn};

/// Where the service listens, and how.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerTable {
    /// Where Redis' protocol is spoken: 127.0.0.1:6380 if not said otherwise. An empty list turns it off.
    pub(crate) resp: Option<At<Listeners>>,
    /// Where HTTP is spoken: 127.0.0.1:8080 if not said otherwise.
    pub(crate) http: Option<At<Listeners>>,
    /// Where gRPC is spoken: 127.0.0.1:8081 if not said otherwise.
    pub(crate) grpc: Option<At<Listeners>>,
    /// Whether all calls need the token, at listeners that do not say. If not said, those that other machines can reach need it once there is one.
    pub(crate) auth: Option<At<bool>>,
    /// What calls show that change something.
    pub(crate) token: Option<At<SecretText>>,
    /// The certificate of all listeners but sockets in the file system.
    pub(crate) tls: Option<At<TlsTable>>,
    /// How many threads work: one for each core if not said otherwise.
    pub(crate) threads: Option<At<NonZeroUsize>>,
    /// How much of everything there may be.
    pub(crate) limits: Option<LimitsTable>,
    /// How long open calls may take to end when the service is told to stop: 10s.
    pub(crate) drain: Option<Text<Duration>>,
    /// Listen where other machines can reach it, though nothing says who they are.
    pub(crate) insecure: Option<bool>,
}

/// A certificate, by files in PEM.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsTable {
    /// The chain of certificates, the service's own first.
    pub(crate) cert: PathBuf,
    /// Its private key.
    pub(crate) key: PathBuf,
    /// Who signs the certificates of clients. Given, each client needs one.
    pub(crate) client_ca: Option<PathBuf>,
}

/// How much of everything there may be.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitsTable {
    /// The longest command of Redis' protocol: 64KiB.
    pub(crate) frame: Option<Size>,
    /// The longest head of an HTTP request: 16KiB.
    pub(crate) header: Option<Size>,
    /// The longest body of an HTTP request, and message of gRPC: 1MiB.
    pub(crate) body: Option<Size>,
    /// Calls under way on one connection of HTTP/2: 256.
    pub(crate) streams: Option<std::num::NonZeroU32>,
    /// Connections open at a time: 10 000.
    pub(crate) connections: Option<NonZeroUsize>,
    /// Connections open at a time from one address: 1 000.
    pub(crate) connections_per_address: Option<NonZeroUsize>,
    /// How long a connection may be silent: 5min.
    pub(crate) idle: Option<Text<Duration>>,
    /// How long the head of a request, or a handshake, may take to arrive: 10s.
    pub(crate) header_time: Option<Text<Duration>>,
}

/// What HTTP answers carry, and by which names it is asked.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpTable {
    /// The header fields that tell where a caller stands: "ietf", "ratelimit", "x-ratelimit", "x-ratelimit-epoch"; the first if not said otherwise.
    pub(crate) headers: Option<Vec<Dialect>>,
    /// Names by which browsers reach the service, such as a proxy's; or hosts whose pages may ask it. None if not said otherwise: localhost and addresses need not be listed.
    pub(crate) hosts: Option<Vec<Text<HostName>>>,
    /// Proxies that are believed when they say in `X-Forwarded-For` who the client is, as networks: none if not said otherwise.
    pub(crate) trusted_proxies: Option<Vec<Text<Network>>>,
}

/// What Envoy's protocol does.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrpcTable {
    /// Count a call that is denied in those limits that it fits: false. Counted windows count it in any case.
    pub(crate) count_denied: Option<bool>,
    /// Count a call that is over counted windows in these alone, and not in those that it fits: false.
    pub(crate) count_over_only: Option<bool>,
    /// Let every call pass, and say in the descriptors' statuses alone which are over: false.
    pub(crate) shadow: Option<bool>,
    /// Let several files in Envoy's format have one domain, whose descriptors are those of all of them: false.
    pub(crate) merge_domains: Option<bool>,
    /// Say in `response_headers_to_add` how a caller stands with the limit that is nearest to its end: false.
    pub(crate) headers: Option<bool>,
}

/// Where the counters are that several processes share.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreTable {
    /// How the server that decides is found among those of `url`: "server" if not said otherwise.
    pub(crate) kind: Option<At<StoreKind>>,
    /// A server, or several: `redis://host:port`, `rediss://` with TLS, `unix:/path`.
    pub(crate) url: At<Urls>,
    /// By which name sentinels know the primary.
    pub(crate) name: Option<At<String>>,
    /// Who asks, where the store has users.
    pub(crate) user: Option<String>,
    /// By which password.
    pub(crate) password: Option<At<SecretText>>,
    /// Which database: 0.
    pub(crate) database: Option<u16>,
    /// How all keys begin: "rategate".
    pub(crate) prefix: Option<At<String>>,
    /// How long a question may take: 20ms.
    pub(crate) budget: Option<Text<Duration>>,
    /// How many questions may be without an answer at a time: 65 536.
    pub(crate) queue: Option<NonZeroUsize>,
    /// How many servers share the limits, at most: 1. While the store is gone, each keeps that part of a limit by itself.
    pub(crate) nodes: Option<std::num::NonZeroU32>,
}

/// How the server that decides is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StoreKind {
    /// It is the one that is given.
    #[default]
    Server,
    /// It is the one that says that it is the primary.
    PrimaryOf,
    /// Sentinels know it.
    Sentinel,
    /// It is a cluster.
    Cluster,
}

/// Where counters are kept over a restart.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotTable {
    /// The file.
    pub(crate) path: PathBuf,
    /// How often it is written: 1min.
    pub(crate) every: Option<Text<Duration>>,
    /// What to do about one that cannot be read whole: "full" starts with each limit used up, "fresh" forgets, "refuse" does not start. "full" if not said otherwise.
    pub(crate) when_torn: Option<WhenTorn>,
}

/// Limits that come with calls.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InlineTable {
    /// How many keys each of them may have: 100 000.
    pub(crate) keys: Option<NonZeroUsize>,
    /// How many different ones are kept apart: 1 000.
    pub(crate) limits: Option<NonZeroUsize>,
}

/// What is logged.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogTable {
    /// "text" for people, "json" for machines; "text" if not said otherwise.
    pub(crate) format: Option<LogFormat>,
    /// From which level on, for all or by target: "info", "warn,rategate_server=debug". "info" if not said otherwise.
    pub(crate) filter: Option<String>,
    /// How the keys of denied calls are named: "hashed" by a hash that is new with each start, "plain", "off". "hashed" if not said otherwise.
    pub(crate) keys: Option<LogKeys>,
}

/// Which decisions have a span, and who receives those.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TracingTable {
    /// Who receives them, by OTLP over HTTP: "http://127.0.0.1:4318", or "off". "off" if not said otherwise, here or by OTEL_EXPORTER_OTLP_ENDPOINT.
    pub(crate) otlp: Option<At<Text<Option<Receiver>>>>,
    /// How many of the decisions have one whose callers say nothing of it: "1%" if not said otherwise.
    pub(crate) sample: Option<Text<Sample>>,
    /// What the service is called there: "rategate" if not said otherwise, here or by OTEL_SERVICE_NAME.
    pub(crate) service: Option<At<String>>,
}

/// How many keys there may be.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeysTable {
    /// Of all rules together: 1 000 000.
    pub(crate) total: Option<NonZeroUsize>,
}

/// A listener: an address, or an address and more.
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

/// A secret: here, in a file, or in the environment.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a text, or { env = \"NAME\" }, or { file = \"PATH\" }")]
pub(crate) enum SecretText {
    /// Here.
    Value(String),
    /// In a file or a variable of the environment.
    Elsewhere(Elsewhere),
}

/// Where a secret is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Elsewhere {
    /// In this file, without the line's end.
    pub(crate) file: Option<PathBuf>,
    /// In this variable of the environment.
    pub(crate) env: Option<String>,
    /// Here.
    pub(crate) value: Option<String>,
}

impl SecretText {
    /// Whether it is in a file or a variable.
    pub(crate) const fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Elsewhere(place) if place.file.is_some() || place.env.is_some())
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
    const WRONG: &str = "a size is from 1 byte to 1 GiB, as in 65536, \"64KiB\" or \"1MiB\"";

    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let digits =
            text.len().saturating_sub(text.trim_start_matches(|c: char| c.is_ascii_digit()).len());
        let (number, unit) = text.split_at_checked(digits).ok_or(Self::WRONG)?;
        let unit: u64 = match unit {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(Self::WRONG.to_owned()),
        };
        let number: u64 = number.parse().map_err(|_| Self::WRONG)?;
        Self::of(number.saturating_mul(unit))
    }

    fn of(bytes: u64) -> Result<Self, String> {
        match usize::try_from(bytes) {
            Ok(bytes) if (1..=1 << 30).contains(&bytes) => Ok(Self(bytes)),
            _ => Err(Self::WRONG.to_owned()),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(Size::WRONG)
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
    /// Where.
    address: Text<Address>,
    /// Whether all calls need the token.
    auth: Option<bool>,
    /// Whether it speaks TLS.
    tls: Option<bool>,
    /// Who may connect to a socket in the file system: "0600" if not said otherwise.
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

/// Reads a listener, or a list of them.
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
