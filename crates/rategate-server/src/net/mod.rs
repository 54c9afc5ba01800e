//! Connections: where they come in, how many there may be, on which thread they live, and how they end.
//!
//! Nothing here knows a protocol. A [`Protocol`] is given a stream of bytes, who is at its other end, and the word when to
//! stop.

mod accept;
mod access;
mod address;
mod attempts;
mod caps;
mod descriptors;
mod drain;
mod guesses;
mod listen;
mod refusal;
mod seldom;
mod tls;
mod turn;
mod workers;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

pub use self::accept::{Door, Tally, accept};
pub use self::access::{Access, Right, TokenShown};
pub use self::address::Address;
pub(crate) use self::attempts::Attempt;
pub use self::attempts::Attempts;
pub use self::caps::{Caps, Seat};
pub use self::descriptors::raise_descriptors;
pub use self::drain::{Drain, Drainer};
pub use self::guesses::Guesses;
pub use self::listen::{Bound, bind};
pub use self::refusal::RefusalReason;
pub(crate) use self::seldom::Seldom;
pub use self::tls::{Tls, TlsError};
pub(crate) use self::turn::Turn;
pub use self::workers::Workers;

/// What is spoken on a connection.
pub trait Protocol: Clone + Send + Sync + 'static {
    /// Speaks it until the peer or `drain` ends it.
    fn serve<S>(self, stream: S, peer: Peer, drain: Drain) -> impl Future<Output = ()> + Send
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// What a connection is told that finds no room; best one that its client understands, and short.
    fn no_room(&self) -> &'static [u8];
}

/// Who is at the other end.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// From where; none for a Unix socket.
    pub address: Option<SocketAddr>,
    /// By what name a certificate knows it, where clients have to have one.
    pub identity: Option<Arc<str>>,
    /// Whether every call needs the token, and not only those that change something.
    pub token_required: bool,
    /// What it is refused.
    pub attempts: Attempts,
}

/// How long connections may take, and how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most open connections of all listeners together.
    pub connections: usize,
    /// The most from one address; of IPv6, from one network of 64 bits. Unix sockets have none.
    pub connections_per_address: usize,
    /// How long one may be silent.
    pub idle: Duration,
    /// How long a handshake, or a request that has begun, may take to arrive.
    pub arrival: Duration,
    /// How long a client may leave its answers unread.
    pub unread: Duration,
    /// How long a connection that the server ends waits for the client's end, so that the last answer is not lost.
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
