//! Connections come in, find a place or not, and go to a thread.

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
    Attempts, Bound, Caps, Drain, Guesses, Limits, Peer, Protocol, RefusalReason, Seat, Tls,
    Workers,
};

/// How long to wait after the system could not give a connection a descriptor; twice as long each time.
const FIRST_REST: Duration = Duration::from_millis(5);
/// The longest rest.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Accepts connections until the drain begins, and hands each to one of the workers, where `protocol` serves it. Has to be
/// polled in an event loop; costs no thread.
///
/// Returns the future that accepts. Who finds no place is told so by the protocol's words, and the connection ends.
///
/// # Errors
///
/// What the system says when the socket is put into the event loop. Later errors of single connections are logged.
pub fn accept<P: Protocol>(
    bound: Bound,
    door: Door,
    protocol: P,
    workers: &Workers,
) -> io::Result<impl Future<Output = ()> + Send + use<P>> {
    let name = bound.address().to_string();
    let socket = match bound.socket {
        Kind::Tcp(listener) => Socket::Tcp(TcpListener::from_std(listener)?),
        Kind::Unix(listener, file) => Socket::Unix(UnixListener::from_std(listener)?, file),
    };
    let host = Host { door, protocol, spread: workers.spread() };
    Ok(host.run(socket, name))
}

/// Counts what comes in at a listener.
pub trait Tally: Send + Sync {
    /// A connection has found a place, and is served.
    fn opened(&self);
    /// It has ended.
    fn closed(&self);
    /// One has found no place.
    fn refused(&self);
    /// A call was refused on a connection from `peer`.
    fn call_refused(&self, reason: RefusalReason, peer: Option<SocketAddr>);
    /// A call has shown the token.
    fn call_admitted(&self);
}

impl Tally for () {
    fn opened(&self) {}
    fn closed(&self) {}
    fn refused(&self) {}
    fn call_refused(&self, _: RefusalReason, _: Option<SocketAddr>) {}
    fn call_admitted(&self) {}
}

/// Told as closed when it is dropped, however its connection ended.
struct Open(Arc<dyn Tally>);

impl Open {
    fn tell(tally: &Arc<dyn Tally>) -> Self {
        tally.opened();
        Self(Arc::clone(tally))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.closed();
    }
}

/// How connections come in at a listener.
#[derive(Clone)]
pub struct Door {
    /// By TLS, or not.
    pub tls: Option<Tls>,
    /// Whether every call has to show the token.
    pub token_required: bool,
    /// How many there may be.
    pub caps: Caps,
    /// Wrong tokens by address.
    pub guesses: Guesses,
    /// How long things may take.
    pub limits: Limits,
    /// When it is over.
    pub drain: Drain,
    /// Whoever counts them.
    pub tally: Arc<dyn Tally>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tls, token_required, caps, limits, .. } = self;
        let mut shown = f.debug_struct("Door");
        shown.field("tls", tls).field("token_required", token_required);
        shown.field("caps", caps).field("limits", limits).finish_non_exhaustive()
    }
}

enum Socket {
    Tcp(TcpListener),
    Unix(
        UnixListener,
        #[expect(dead_code, reason = "the file goes with the door")] super::listen::OwnFile,
    ),
}

enum Caller {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(std::os::unix::net::UnixStream),
}

#[derive(Clone)]
struct Host<P> {
    door: Door,
    protocol: P,
    spread: Spread,
}

impl<P: Protocol> Host<P> {
    async fn run(self, socket: Socket, name: String) {
        let mut rest = FIRST_REST;
        let mut is_short = false;
        loop {
            let caller = tokio::select! {
                biased;
                () = self.door.drain.begun() => return,
                caller = socket.next() => caller,
            };
            match caller {
                Ok(caller) => {
                    if is_short {
                        tracing::info!(listener = %name, "connections are accepted again");
                    }
                    (rest, is_short) = (FIRST_REST, false);
                    self.welcome(caller);
                }
                Err(error) if is_of_one(&error) => {}
                Err(error) => {
                    if !is_short {
                        tracing::error!(listener = %name, %error, "no connection can be accepted for now");
                    }
                    is_short = true;
                    tokio::select! {
                        () = self.door.drain.begun() => return,
                        () = sleep(rest) => {}
                    }
                    rest = rest.saturating_mul(2).min(LONGEST_REST);
                }
            }
        }
    }

    fn welcome(&self, caller: Caller) {
        let host = self.clone();
        match caller {
            Caller::Tcp(stream, address) => {
                // Answers are written whole: waiting for more to send would only delay them.
                let _ = stream.set_nodelay(true);
                let seat = self.door.caps.sit(Some(address.ip()));
                self.spread.spawn(move || async move {
                    if let Ok(stream) = TcpStream::from_std(stream) {
                        host.serve(stream, Some(address), seat).await;
                    }
                });
            }
            Caller::Unix(stream) => {
                let seat = self.door.caps.sit(None);
                self.spread.spawn(move || async move {
                    if let Ok(stream) = UnixStream::from_std(stream) {
                        host.serve(stream, None, seat).await;
                    }
                });
            }
        }
    }

    async fn serve<S>(self, mut stream: S, address: Option<SocketAddr>, seat: Option<Seat>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(_seat) = seat else {
            tracing::debug!("no room for the connection");
            self.door.tally.refused();
            if self.door.tls.is_none() {
                // It may not even be there to hear it.
                let _ =
                    timeout(self.door.limits.arrival, stream.write_all(self.protocol.no_room()))
                        .await;
            }
            return;
        };
        let _open = Open::tell(&self.door.tally);
        let attempts =
            Attempts::new(Arc::clone(&self.door.tally), address, self.door.guesses.clone());
        let token_required = self.door.token_required;
        let peer = Peer { address, identity: None, token_required, attempts };
        match &self.door.tls {
            None => self.protocol.serve(stream, peer, self.door.drain).await,
            // Apart, so that connections without TLS do not carry the room for it.
            Some(_) => Box::pin(self.secure(stream, peer)).await,
        }
    }

    async fn secure<S>(self, stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(tls) = &self.door.tls else { return };
        match timeout(self.door.limits.arrival, tls.acceptor().accept(stream)).await {
            Ok(Ok(stream)) => {
                let (_, session) = stream.get_ref();
                let certificates = session.peer_certificates().unwrap_or_default();
                let identity = certificates.first().and_then(super::tls::identity);
                self.protocol.serve(stream, Peer { identity, ..peer }, self.door.drain).await;
            }
            // Addresses are told in the lines about refused calls alone.
            Ok(Err(error)) => {
                tracing::debug!(%error, "no TLS");
                // A connection that ends without a word is a probe, and refused nothing.
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

/// Whether an error is one connection's, which was gone before it was accepted, and says nothing of the next.
fn is_of_one(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionReset, Interrupted, PermissionDenied, TimedOut,
    };
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted | PermissionDenied | TimedOut
    )
}
