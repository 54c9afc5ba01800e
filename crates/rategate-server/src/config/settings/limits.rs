//! How much of everything there may be.

use std::time::Duration;

/// How much of everything there may be, so that nobody can ask for more memory than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest command of Redis' protocol, all arguments together.
    pub frame_bytes: usize,
    /// The longest head of an HTTP request.
    pub header_bytes: usize,
    /// The longest body of an HTTP request, and message of gRPC.
    pub body_bytes: usize,
    /// Calls under way on one connection of HTTP/2.
    pub streams: u32,
    /// Connections open at a time.
    pub connections: usize,
    /// Connections open at a time from one address. Sockets in the file system have none.
    pub connections_per_address: usize,
    /// How long a connection may be silent.
    pub idle: Duration,
    /// How long the head of a request, or a handshake, may take to arrive.
    pub header_time: Duration,
}

/// Limits that come with calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inline {
    /// How many keys each of them may have.
    pub keys: usize,
    /// How many different ones are kept apart.
    pub limits: usize,
}

/// How many keys all rules together may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// So many.
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
