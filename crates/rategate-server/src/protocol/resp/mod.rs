//! The Redis protocol, versions 2 and 3, which any Redis client can use.
//!
//! `CL.THROTTLE` is the command of redis-cell, `THROTTLE` that of throttlecrab. Commands of
//! rategate begin with `RATEGATE.` (`own` has their replies). Commands are decided in the order in
//! which they arrive, all commands of one read before the next. Their replies are written
//! together.

mod codec;
mod commands;
mod connection;
mod forms;
mod lease;
mod number;
mod own;
mod reserve;
mod session;
mod throttle;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use rategate::Clock;
use tokio::io::{AsyncRead, AsyncWrite};

pub use self::codec::{
    Bounds, Broken, CommandWords, RespWriter, Step, Version, WordSpans, parse, words,
};
use self::session::Session;
use crate::engine::Engine;
use crate::net::{Access, Drain, Limits, Peer, Protocol};

/// The state that all connections of this protocol share. Clones share it.
#[derive(Debug)]
pub struct Resp<C: Clock>(Arc<Shared<C>>);

#[derive(Debug)]
struct Shared<C: Clock> {
    engine: Engine<C>,
    access: Access,
    bounds: Bounds,
    limits: Limits,
    started: Instant,
    next_id: AtomicI64,
    open: AtomicU64,
}

impl<C: Clock> Clone for Resp<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Clock + Clone + 'static> Resp<C> {
    /// Creates the protocol over `engine`.
    #[must_use]
    pub fn new(engine: Engine<C>, access: Access, bounds: Bounds, limits: Limits) -> Self {
        let (next_id, open) = (AtomicI64::new(1), AtomicU64::new(0));
        Self(Arc::new(Shared {
            engine,
            access,
            bounds,
            limits,
            started: Instant::now(),
            next_id,
            open,
        }))
    }

    fn engine(&self) -> &Engine<C> {
        &self.0.engine
    }

    fn access(&self) -> &Access {
        &self.0.access
    }

    fn limits(&self) -> &Limits {
        &self.0.limits
    }

    fn bounds(&self, is_unauthenticated: bool) -> Bounds {
        Bounds { unauthenticated: is_unauthenticated, ..self.0.bounds }
    }

    fn started(&self) -> Instant {
        self.0.started
    }

    fn open(&self) -> u64 {
        self.0.open.load(Ordering::Relaxed)
    }
}

impl<C: Clock + Clone + 'static> Protocol for Resp<C> {
    fn serve<S>(self, stream: S, peer: Peer, drain: Drain) -> impl Future<Output = ()> + Send
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        self.0.open.fetch_add(1, Ordering::Relaxed);
        // Counted down also when the task is dropped.
        let open = Open(Arc::clone(&self.0));
        let session = Session::new(id, peer.token_required, peer.attempts);
        connection::serve(self, stream, session, drain, open)
    }

    fn capacity_rejection(&self) -> &'static [u8] {
        b"-ERR max number of clients reached\r\n"
    }
}

/// A connection that counts as open until this is dropped.
struct Open<C: Clock>(Arc<Shared<C>>);

impl<C: Clock> Drop for Open<C> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
