//! Settings of the log, and of spans of decisions.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{self, Deserializer};

use crate::config::text::{Grammar, Text, percent, text};

/// The maximum length of the service's name in spans, in bytes.
const MAX_SERVICE_BYTES: usize = 256;

/// The settings of the log.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// "text" for people, "json" for machines. Default: "text".
    pub format: LogFormat,
    /// The minimum level, for all or by target: "info", "warn,rategate_server=debug".
    /// Default: "info".
    pub filter: String,
    /// The form of the keys of denied calls: "hashed" with a hash that changes with each start,
    /// "plain", "off". Default: "hashed".
    pub keys: LogKeys,
}

/// The form of keys in the log. Keys are addresses, users and tokens of callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogKeys {
    /// A hash of the key, which distinguishes keys until the service stops. `"hashed"`.
    #[default]
    Hashed,
    /// The key itself, percent-encoded. `"plain"`.
    Plain,
    /// No key. `"off"`.
    Off,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Lines for people. `"text"`.
    #[default]
    Text,
    /// A JSON object on each line. `"json"`.
    Json,
}

/// The settings of spans of decisions.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tracing {
    /// The receiver, by OTLP over HTTP: "http://127.0.0.1:4318", or "off".
    /// Default: OTEL_EXPORTER_OTLP_ENDPOINT, or "off".
    #[serde(deserialize_with = "receiver")]
    #[schemars(with = "Text<Option<Receiver>>")]
    pub otlp: Option<Receiver>,
    /// The share of decisions with a span, among those whose callers send no trace context.
    /// Default: "1%".
    #[serde(deserialize_with = "text")]
    #[schemars(with = "Text<Sample>")]
    pub sample: Sample,
    /// The name of the service in spans. Default: OTEL_SERVICE_NAME, or "rategate".
    #[serde(deserialize_with = "service")]
    pub service: String,
}

/// A receiver of spans by OTLP over HTTP: `http://127.0.0.1:4318`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
}

/// A share, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample(u32);

impl Receiver {
    /// Returns the name or the address of the receiver's machine.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the receiver's port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Sample {
    /// The share of all decisions.
    pub const ALL: Self = Self(1_000_000);

    /// Creates a share in millionths. Returns `None` if it exceeds a million.
    #[must_use]
    pub const fn new(of_a_million: u32) -> Option<Self> {
        if of_a_million > Self::ALL.0 { None } else { Some(Self(of_a_million)) }
    }

    /// Returns the share in millionths.
    #[must_use]
    pub const fn of_a_million(self) -> u32 {
        self.0
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "info".to_owned(), keys: LogKeys::Hashed }
    }
}

impl Default for Tracing {
    fn default() -> Self {
        Self { otlp: None, sample: Sample(10_000), service: "rategate".to_owned() }
    }
}

impl fmt::Display for Receiver {
    /// Writes the URL to which spans are sent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, path } = self;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "http://{open}{host}{close}:{port}{path}/v1/traces")
    }
}

/// Reads a receiver, which this build must support.
fn receiver<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Receiver>, D::Error> {
    supported(text(deserializer)?, cfg!(feature = "otlp")).map_err(de::Error::custom)
}

fn supported(receiver: Option<Receiver>, is_built_in: bool) -> Result<Option<Receiver>, String> {
    if is_built_in || receiver.is_none() {
        return Ok(receiver);
    }
    Err("spans cannot be sent: this rategate is built without OTLP; build it with \
         --features otlp, or leave this out"
        .to_owned())
}

fn service<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    if (1..=MAX_SERVICE_BYTES).contains(&name.len()) {
        return Ok(name);
    }
    let message = format!("a service has a name of 1 to {MAX_SERVICE_BYTES} bytes");
    Err(de::Error::custom(message))
}

/// The grammar of a receiver of spans, or "off".
impl Grammar for Option<Receiver> {
    const WHAT: &'static str = "the receiver of spans by OTLP over HTTP, or \"off\"";
    const EXAMPLES: &'static [&'static str] = &["http://127.0.0.1:4318", "off"];

    fn read(text: &str) -> Result<Self, String> {
        if text == "off" { Ok(None) } else { address(text).map(Some) }
    }
}

/// The grammar of a percentage.
impl Grammar for Sample {
    const WHAT: &'static str = "a part of the decisions";
    const EXAMPLES: &'static [&'static str] = &["1%", "0.01%", "100%"];

    fn read(text: &str) -> Result<Self, String> {
        percent(text, 4).and_then(Self::new).ok_or_else(|| {
            "it must be from \"0%\" to \"100%\" with at most four decimals".to_owned()
        })
    }
}

/// Parses the address of a receiver. Errors omit the text, since it may hold a password.
fn address(text: &str) -> Result<Receiver, String> {
    const INVALID: &str =
        "it must be \"off\", or a host and a port, as in \"http://127.0.0.1:4318\"";
    if text.starts_with("https://") {
        return Err(
            "spans are sent without TLS; write http:// and a collector nearby that forwards them"
                .to_owned(),
        );
    }
    let rest = text.strip_prefix("http://").ok_or(INVALID)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = authority.rsplit_once(':').ok_or(INVALID)?;
    let host = match host.strip_prefix('[') {
        Some(address) => address.strip_suffix(']').ok_or(INVALID)?,
        None if host.contains(':') => return Err(INVALID.to_owned()),
        None => host,
    };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    let is_path = |byte: u8| byte.is_ascii_graphic() && !b"?#\"<>\\^`{|}".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_host) || !path.bytes().all(is_path) {
        return Err(INVALID.to_owned());
    }
    let path = match path.trim_end_matches('/') {
        "" => String::new(),
        path => format!("/{path}"),
    };
    match port.parse() {
        Ok(port) if port > 0 => Ok(Receiver { host: host.to_owned(), port, path }),
        _ => Err(INVALID.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_receiver_is_refused_without_otlp_support() {
        let receiver = Receiver { host: "h".into(), port: 4318, path: String::new() };
        assert!(supported(None, false).is_ok() && supported(Some(receiver.clone()), true).is_ok());
        assert!(supported(Some(receiver), false).unwrap_err().contains("without OTLP"));
    }
}
