//! What the service tells of what it does: its log, and spans of decisions.

use std::fmt;

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// How.
    pub format: LogFormat,
    /// From which level on, for all or by target: `info`, `warn,rategate_server=debug`.
    pub filter: String,
    /// How it names the keys of denied calls.
    pub keys: LogKeys,
}

/// The names of keys in the log. Keys are addresses, users and tokens of callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogKeys {
    /// A hash of the key, which tells lines of one key from those of others until the service ends. `"hashed"`.
    #[default]
    Hashed,
    /// The key itself, percent-encoded. `"plain"`.
    Plain,
    /// Nothing. `"off"`.
    Off,
}

/// How a log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people. `"text"`.
    #[default]
    Text,
    /// A JSON object a line. `"json"`.
    Json,
}

/// Which decisions have a span, and who receives those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracing {
    /// Who receives them. `None`: there are none.
    pub otlp: Option<Receiver>,
    /// How many of the decisions whose callers say nothing of it have one. Those who send a `traceparent` have decided themselves.
    pub sample: Sample,
    /// What the service is called there.
    pub service: String,
}

/// Who receives spans, by OTLP over HTTP: `http://127.0.0.1:4318`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
}

/// So many of a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample(u32);

impl Receiver {
    /// The name or the address of its machine.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Sample {
    /// All.
    pub const ALL: Self = Self(1_000_000);

    /// So many of a million. `None` if that is more than all.
    #[must_use]
    pub const fn new(of_a_million: u32) -> Option<Self> {
        if of_a_million > Self::ALL.0 { None } else { Some(Self(of_a_million)) }
    }

    /// How many of a million.
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
    /// Where spans go.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, path } = self;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "http://{open}{host}{close}:{port}{path}/v1/traces")
    }
}
