//! Connections: listeners, caps, worker threads, TLS and shutdown.
//!
//! This module knows no protocol. A [`Protocol`] receives a stream of bytes, its peer, and the
//! shutdown signal.

mod accept;
mod access;
mod attempts;
mod caps;
mod drain;
mod guesses;
mod listen;
mod refusal;
mod tls;
mod wake_gate;
mod workers;
mod yield_once;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

pub use self::accept::{ListenerConfig, Tally, accept};
pub use self::access::{Access, Right, Rights, TokenShown};
pub(crate) use self::attempts::Attempt;
pub use self::attempts::Attempts;
pub use self::caps::{Caps, ConnectionPermit, raise_descriptors};
pub use self::drain::{Drain, Drainer};
pub use self::guesses::Guesses;
pub use self::listen::{Address, Bound, bind};
pub use self::refusal::RefusalReason;
pub use self::tls::{Tls, TlsError};
pub(crate) use self::wake_gate::WakeGate;
pub use self::workers::Workers;
pub(crate) use self::yield_once::YieldOnce;

/// A protocol that is spoken on connections.
pub trait Protocol: Clone + Send + Sync + 'static {
    /// Serves a connection until the peer or `drain` ends it.
    fn serve<S>(self, stream: S, peer: Peer, drain: Drain) -> impl Future<Output = ()> + Send
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Returns the bytes sent to a connection over the caps. They should be short and intelligible
    /// to the protocol's clients.
    fn capacity_rejection(&self) -> &'static [u8];
}

/// The other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The peer's address; `None` for a Unix socket.
    pub address: Option<SocketAddr>,
    /// The name in the peer's certificate, where clients need one.
    pub identity: Option<Arc<str>>,
    /// `true` if every call needs the token, and not only those that change something.
    pub token_required: bool,
    /// The refused calls of the connection.
    pub attempts: Attempts,
}

/// The limits on the number and duration of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of open connections of all listeners together.
    pub connections: usize,
    /// The maximum number from one address, or from one IPv6 network of 64 bits. Unix sockets have
    /// no such limit.
    pub connections_per_address: usize,
    /// The longest time that a connection may be silent.
    pub idle: Duration,
    /// The longest time that a handshake, or a request that has begun, may take to arrive.
    pub arrival: Duration,
    /// The longest time that a client may leave its replies unread.
    pub unread: Duration,
    /// The longest time that the server, once it has ended a connection, waits for the client to
    /// close too. The wait keeps the last reply from being lost.
    pub linger: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_address: 1_000,
            idle: Duration::from_secs(300),
            arrival: Duration::from_secs(10),
            unread: Duration::from_secs(30),
            linger: Duration::from_secs(2),
        }
    }
}
