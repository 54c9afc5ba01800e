//! Accepts connections, admits them within the caps, and assigns each to a worker thread.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use super::listen::Kind;
use super::workers::Spread;
use super::{
    Attempts, Bound, Caps, ConnectionPermit, Drain, Guesses, Limits, Peer, Protocol, RefusalReason,
    Tls, Workers,
};

/// The first pause after the system could not give a connection a descriptor. Each further pause
/// is twice as long.
const FIRST_BACKOFF: Duration = Duration::from_millis(5);
/// The longest pause between two attempts to accept.
const MAX_BACKOFF: Duration = Duration::from_secs(1);

/// Accepts connections until the drain begins and assigns each to a worker, where `protocol`
/// serves it.
///
/// Returns the future that accepts. It has to be polled in an event loop and costs no thread. A
/// connection over the caps receives the protocol's refusal, and then ends.
///
/// # Errors
///
/// The system's error if the socket cannot be registered with the event loop. Later errors of
/// single connections are logged.
pub fn accept<P: Protocol>(
    bound: Bound,
    config: ListenerConfig,
    protocol: P,
    workers: &Workers,
) -> io::Result<impl Future<Output = ()> + Send + use<P>> {
    let name = bound.address().to_string();
    let socket = match bound.socket {
        Kind::Tcp(listener) => Socket::Tcp(TcpListener::from_std(listener)?),
        Kind::Unix(listener, file) => Socket::Unix(UnixListener::from_std(listener)?, file),
    };
    let acceptor = Acceptor { config, protocol, spread: workers.spread() };
    Ok(acceptor.run(socket, name))
}

/// A counter of the connections and calls of a listener. The defaults count nothing.
pub trait Tally: Send + Sync {
    /// Counts a connection that is admitted and served.
    fn opened(&self) {}
    /// Counts the end of an admitted connection.
    fn closed(&self) {}
    /// Counts a connection that is refused because a cap is reached.
    fn refused(&self) {}
    /// Counts a call refused for `reason` on a connection from `peer`.
    fn call_refused(&self, reason: RefusalReason, peer: Option<SocketAddr>) {
        let _ = (reason, peer);
    }
    /// Counts a call that shows the token.
    fn call_admitted(&self) {}
}

impl Tally for () {}

/// A guard that counts its connection as closed on drop, however the connection ended.
struct Open(Arc<dyn Tally>);

impl Open {
    fn record(tally: &Arc<dyn Tally>) -> Self {
        tally.opened();
        Self(Arc::clone(tally))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.closed();
    }
}

/// The configuration of a listener's connections.
#[derive(Clone)]
pub struct ListenerConfig {
    /// The TLS certificates, or `None` for plain connections.
    pub tls: Option<Tls>,
    /// `true` if every call has to show the token.
    pub token_required: bool,
    /// The caps on the number of connections.
    pub caps: Caps,
    /// The counts of wrong tokens by address.
    pub guesses: Guesses,
    /// The time limits of connections.
    pub limits: Limits,
    /// The signal that ends the listener.
    pub drain: Drain,
    /// The receiver of the listener's counts.
    pub tally: Arc<dyn Tally>,
}

impl fmt::Debug for ListenerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tls, token_required, caps, limits, .. } = self;
        let mut shown = f.debug_struct("ListenerConfig");
        shown.field("tls", tls).field("token_required", token_required);
        shown.field("caps", caps).field("limits", limits).finish_non_exhaustive()
    }
}

enum Socket {
    Tcp(TcpListener),
    Unix(
        UnixListener,
        #[expect(dead_code, reason = "dropping the listener removes the socket file")]
        super::listen::OwnFile,
    ),
}

enum Caller {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(std::os::unix::net::UnixStream),
}

#[derive(Clone)]
struct Acceptor<P> {
    config: ListenerConfig,
    protocol: P,
    spread: Spread,
}

impl<P: Protocol> Acceptor<P> {
    async fn run(self, socket: Socket, name: String) {
        let mut backoff = FIRST_BACKOFF;
        let mut is_short = false;
        loop {
            let caller = tokio::select! {
                biased;
                () = self.config.drain.begun() => return,
                caller = socket.next() => caller,
            };
            match caller {
                Ok(caller) => {
                    if is_short {
                        tracing::info!(listener = %name, "connections are accepted again");
                    }
                    (backoff, is_short) = (FIRST_BACKOFF, false);
                    self.assign_to_worker(caller);
                }
                Err(error) if is_of_one(&error) => {}
                Err(error) => {
                    if !is_short {
                        tracing::error!(
                            listener = %name,
                            %error,
                            "no connection can be accepted for now"
                        );
                    }
                    is_short = true;
                    tokio::select! {
                        () = self.config.drain.begun() => return,
                        () = sleep(backoff) => {}
                    }
                    backoff = backoff.saturating_mul(2).min(MAX_BACKOFF);
                }
            }
        }
    }

    fn assign_to_worker(&self, caller: Caller) {
        let acceptor = self.clone();
        match caller {
            Caller::Tcp(stream, address) => {
                // Replies are written whole, so Nagle's algorithm would only delay them.
                let _ = stream.set_nodelay(true);
                let permit = self.config.caps.try_admit(Some(address.ip()));
                self.spread.spawn(move || async move {
                    if let Ok(stream) = TcpStream::from_std(stream) {
                        acceptor.serve(stream, Some(address), permit).await;
                    }
                });
            }
            Caller::Unix(stream) => {
                let permit = self.config.caps.try_admit(None);
                self.spread.spawn(move || async move {
                    if let Ok(stream) = UnixStream::from_std(stream) {
                        acceptor.serve(stream, None, permit).await;
                    }
                });
            }
        }
    }

    async fn serve<S>(
        self,
        mut stream: S,
        address: Option<SocketAddr>,
        permit: Option<ConnectionPermit>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(_permit) = permit else {
            tracing::debug!("the connection cap is reached: the connection is refused");
            self.config.tally.refused();
            if self.config.tls.is_none() {
                // The client may have left already.
                let _ = timeout(
                    self.config.limits.arrival,
                    stream.write_all(self.protocol.capacity_rejection()),
                )
                .await;
            }
            return;
        };
        let _open = Open::record(&self.config.tally);
        let attempts =
            Attempts::new(Arc::clone(&self.config.tally), address, self.config.guesses.clone());
        let token_required = self.config.token_required;
        let peer = Peer { address, identity: None, token_required, attempts };
        match &self.config.tls {
            None => self.protocol.serve(stream, peer, self.config.drain).await,
            // Boxed, so that connections without TLS do not carry the memory for it.
            Some(_) => Box::pin(self.secure(stream, peer)).await,
        }
    }

    async fn secure<S>(self, stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(tls) = &self.config.tls else { return };
        match timeout(self.config.limits.arrival, tls.acceptor().accept(stream)).await {
            Ok(Ok(stream)) => {
                let (_, session) = stream.get_ref();
                let certificates = session.peer_certificates().unwrap_or_default();
                let identity = certificates.first().and_then(super::tls::identity);
                self.protocol.serve(stream, Peer { identity, ..peer }, self.config.drain).await;
            }
            // Addresses are logged with refused calls only.
            Ok(Err(error)) => {
                tracing::debug!(%error, "the TLS handshake failed");
                // A connection that ends without sending anything is a probe, not a refused call.
                if error.kind() == io::ErrorKind::InvalidData {
                    peer.attempts.refused(RefusalReason::Handshake);
                }
            }
            Err(_) => {
                tracing::debug!("the TLS handshake took too long");
                peer.attempts.refused(RefusalReason::Handshake);
            }
        }
    }
}

impl Socket {
    async fn next(&self) -> io::Result<Caller> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok(Caller::Tcp(stream.into_std()?, address))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok(Caller::Unix(stream.into_std()?))
            }
        }
    }
}

/// Returns `true` if `error` concerns one connection that ended before it was accepted. Such an
/// error says nothing about the next connection.
fn is_of_one(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionReset, Interrupted, PermissionDenied, TimedOut,
    };
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted | PermissionDenied | TimedOut
    )
}
