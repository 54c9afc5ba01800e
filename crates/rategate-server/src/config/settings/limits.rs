//! Bounds on memory, connections and times.

use std::time::Duration;

/// The bounds on memory, connections and times, which no client can exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum length of a command of Redis' protocol, all arguments together.
    pub frame_bytes: usize,
    /// The maximum length of an HTTP request's head.
    pub header_bytes: usize,
    /// The maximum length of an HTTP request's body, and of a gRPC message.
    pub body_bytes: usize,
    /// The maximum number of concurrent calls on one HTTP/2 connection.
    pub streams: u32,
    /// The maximum number of open connections.
    pub connections: usize,
    /// The maximum number of open connections from one address. Sockets in the file system have
    /// no such maximum.
    pub connections_per_address: usize,
    /// The maximum time that a connection may be idle.
    pub idle: Duration,
    /// The maximum time for a request's head, or a handshake, to arrive.
    pub header_time: Duration,
}

/// The settings of inline limits, which come with calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inline {
    /// The maximum number of keys of each table. Up to 31 limits share one.
    pub keys: usize,
    /// The maximum number of distinct limits.
    pub limits: usize,
}

/// The capacity for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The maximum number of keys of all rules together.
    pub total: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 64 << 10,
            header_bytes: 16 << 10,
            body_bytes: 1 << 20,
            streams: 256,
            connections: 10_000,
            connections_per_address: 1_000,
            idle: Duration::from_secs(300),
            header_time: Duration::from_secs(10),
        }
    }
}

impl Default for Inline {
    fn default() -> Self {
        Self { keys: 100_000, limits: 1_000 }
    }
}

impl Default for Keys {
    fn default() -> Self {
        Self { total: 1_000_000 }
    }
}
