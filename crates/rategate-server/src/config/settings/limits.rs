//! Bounds on memory, connections and times.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::text::{Size, Text, size, text};

/// The bounds on memory, connections and times, which no client can exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The maximum length of a command of Redis' protocol, all arguments together.
    /// Default: 64KiB.
    #[serde(rename = "frame", deserialize_with = "size")]
    #[schemars(with = "Text<Size>")]
    pub frame_bytes: usize,
    /// The maximum length of an HTTP request's head. Default: 16KiB.
    #[serde(rename = "header", deserialize_with = "size")]
    #[schemars(with = "Text<Size>")]
    pub header_bytes: usize,
    /// The maximum length of an HTTP request's body, and of a gRPC message. Default: 1MiB.
    #[serde(rename = "body", deserialize_with = "size")]
    #[schemars(with = "Text<Size>")]
    pub body_bytes: usize,
    /// The maximum number of concurrent calls on one HTTP/2 connection. Default: 256.
    pub streams: NonZeroU32,
    /// The maximum number of open connections. Default: 10 000.
    pub connections: NonZeroUsize,
    /// The maximum number of open connections from one address. Sockets in the file system have
    /// no such maximum. Default: 1 000.
    pub connections_per_address: NonZeroUsize,
    /// The maximum time that a connection may be idle. Default: 5min.
    #[serde(deserialize_with = "text")]
    #[schemars(with = "Text<Duration>")]
    pub idle: Duration,
    /// The maximum time for a request's head, or a handshake, to arrive. Default: 10s.
    #[serde(deserialize_with = "text")]
    #[schemars(with = "Text<Duration>")]
    pub header_time: Duration,
}

/// The settings of inline limits, which come with calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Inline {
    /// The maximum number of keys of each table. Up to 31 limits share one. Default: 100 000.
    pub keys: NonZeroUsize,
    /// The maximum number of distinct limits. Default: 1 000.
    pub limits: NonZeroUsize,
}

/// The capacity for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Keys {
    /// The maximum number of keys of all rules together. Default: 1 000 000.
    pub total: NonZeroUsize,
    /// The maximum number of reservations that are known by their id: open, or ended in the last
    /// ten minutes. Default: 1 000 000.
    pub reservations: NonZeroUsize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 64 << 10,
            header_bytes: 16 << 10,
            body_bytes: 1 << 20,
            streams: NonZeroU32::MIN.saturating_add(255),
            connections: number(10_000),
            connections_per_address: number(1_000),
            idle: Duration::from_secs(300),
            header_time: Duration::from_secs(10),
        }
    }
}

impl Default for Inline {
    fn default() -> Self {
        Self { keys: number(100_000), limits: number(1_000) }
    }
}

impl Default for Keys {
    fn default() -> Self {
        Self { total: number(1_000_000), reservations: number(1_000_000) }
    }
}

/// Returns a default, none of which is 0.
const fn number(number: usize) -> NonZeroUsize {
    match NonZeroUsize::new(number) {
        Some(number) => number,
        None => NonZeroUsize::MIN,
    }
}
