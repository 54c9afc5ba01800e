//! Settings of the log, and of spans of decisions.

use std::fmt;

/// The settings of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The format of lines.
    pub format: LogFormat,
    /// The minimum level, for all or by target: `info`, `warn,rategate_server=debug`.
    pub filter: String,
    /// The form of the keys of denied calls.
    pub keys: LogKeys,
}

/// The form of keys in the log. Keys are addresses, users and tokens of callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Lines for people. `"text"`.
    #[default]
    Text,
    /// A JSON object on each line. `"json"`.
    Json,
}

/// The settings of spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracing {
    /// The receiver of spans. `None` turns them off.
    pub otlp: Option<Receiver>,
    /// The share of decisions with a span, among those without a `traceparent`. Callers that send
    /// one decide themselves.
    pub sample: Sample,
    /// The name of the service in spans.
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
