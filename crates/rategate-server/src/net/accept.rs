//! Connections come in, find a place or not, and go to a thread.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use super::listen::Kind;
use super::workers::Spread;
use super::{Bound, Caps, Drain, Limits, Peer, Protocol, Seat, Tls, Workers};

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
    tls: Option<Tls>,
    token_required: bool,
    protocol: P,
    caps: Caps,
    limits: Limits,
    workers: &Workers,
    drain: Drain,
) -> io::Result<impl Future<Output = ()> + Send + use<P>> {
    let name = bound.address().to_string();
    let door = match bound.socket {
        Kind::Tcp(listener) => Door::Tcp(TcpListener::from_std(listener)?),
        Kind::Unix(listener, file) => Door::Unix(UnixListener::from_std(listener)?, file),
    };
    let host = Host { tls, token_required, protocol, caps, limits, spread: workers.spread(), drain };
    Ok(host.run(door, name))
}

enum Door {
    Tcp(TcpListener),
    Unix(UnixListener, #[expect(dead_code, reason = "the file goes with the door")] super::listen::OwnFile),
}

enum Caller {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(std::os::unix::net::UnixStream),
}

#[derive(Clone)]
struct Host<P> {
    tls: Option<Tls>,
    token_required: bool,
    protocol: P,
    caps: Caps,
    limits: Limits,
    spread: Spread,
    drain: Drain,
}

impl<P: Protocol> Host<P> {
    async fn run(self, door: Door, name: String) {
        let mut rest = FIRST_REST;
        let mut is_short = false;
        loop {
            let caller = tokio::select! {
                biased;
                () = self.drain.begun() => return,
                caller = door.next() => caller,
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
                        () = self.drain.begun() => return,
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
                let seat = self.caps.sit(Some(address.ip()));
                self.spread.spawn(move || async move {
                    if let Ok(stream) = TcpStream::from_std(stream) {
                        host.serve(stream, Some(address), seat).await;
                    }
                });
            }
            Caller::Unix(stream) => {
                let seat = self.caps.sit(None);
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
            tracing::debug!(peer = ?address, "no room for the connection");
            if self.tls.is_none() {
                // It may not even be there to hear it.
                let _ = timeout(self.limits.arrival, stream.write_all(self.protocol.no_room())).await;
            }
            return;
        };
        let peer = Peer { address, identity: None, token_required: self.token_required };
        match &self.tls {
            None => self.protocol.serve(stream, peer, self.drain).await,
            // Apart, so that connections without TLS do not carry the room for it.
            Some(_) => Box::pin(self.secure(stream, peer)).await,
        }
    }

    async fn secure<S>(self, stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(tls) = &self.tls else { return };
        match timeout(self.limits.arrival, tls.acceptor().accept(stream)).await {
            Ok(Ok(stream)) => {
                let (_, session) = stream.get_ref();
                let certificates = session.peer_certificates().unwrap_or_default();
                let identity = certificates.first().and_then(super::tls::identity);
                self.protocol.serve(stream, Peer { identity, ..peer }, self.drain).await;
            }
            Ok(Err(error)) => tracing::debug!(peer = ?peer.address, %error, "no TLS"),
            Err(_) => tracing::debug!(peer = ?peer.address, "the TLS handshake took too long"),
        }
    }
}

impl Door {
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
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, PermissionDenied, TimedOut};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | PermissionDenied | TimedOut)
}
