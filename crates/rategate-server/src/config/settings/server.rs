//! Settings of the listeners.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use super::{Limits, Secret};

/// The listeners of the service and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The listeners for Redis' protocol. Defaults to 127.0.0.1:6380; an empty list turns it off.
    pub resp: Vec<Listener>,
    /// The listeners for HTTP. Defaults to 127.0.0.1:8080.
    pub http: Vec<Listener>,
    /// The listeners for gRPC. Defaults to 127.0.0.1:8081.
    pub grpc: Vec<Listener>,
    /// The token that calls present if they change something, and all calls to listeners with
    /// [`Listener::auth`].
    pub token: Option<Secret>,
    /// The certificate of the listeners with [`Listener::tls`].
    pub tls: Option<Tls>,
    /// The number of worker threads. `None` means one for each core.
    pub threads: Option<NonZeroUsize>,
    /// The bounds on memory, connections and times.
    pub limits: Limits,
    /// The maximum time for open calls to end when the service stops.
    pub drain: Duration,
    /// Permits listeners that other machines can reach although clients are not authenticated.
    pub insecure: bool,
}

/// An address to listen at, with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address.
    pub address: Address,
    /// Requires the token for all calls. Otherwise only calls that change something need it.
    pub auth: bool,
    /// Uses TLS, which requires a [`Server::tls`].
    pub tls: bool,
    /// The access mode of a socket in the file system. Defaults to 0o600, the service's user
    /// only.
    pub mode: u32,
}

/// The default mode of a socket in the file system: the service's user only.
pub(crate) const SOCKET_MODE: u32 = 0o600;

/// An address to listen at: `127.0.0.1:6380`, `[::1]:6380`, `unix:/run/rategate.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An address and port for TCP.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// A certificate, by files in PEM. The listener reads them, and they may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The chain of certificates, the service's own first.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The CA that signs certificates of clients. If given, each client needs a certificate.
    pub client_ca: Option<PathBuf>,
}

impl Server {
    /// Returns all listeners with the name of their protocol in the configuration.
    pub fn listeners(&self) -> impl Iterator<Item = (&'static str, &Listener)> {
        let of = |name: &'static str, all| std::iter::repeat(name).zip(all);
        of("resp", &self.resp).chain(of("http", &self.http)).chain(of("grpc", &self.grpc))
    }

    /// Returns `true` if any machine can use this listener without authentication.
    #[must_use]
    pub fn is_open(&self, listener: &Listener) -> bool {
        let requires_certificate =
            listener.tls && self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        listener.address.is_public() && self.token.is_none() && !requires_certificate
    }
}

impl Listener {
    /// Creates a listener with neither token nor TLS.
    #[must_use]
    pub const fn plain(address: Address) -> Self {
        Self { address, auth: false, tls: false, mode: SOCKET_MODE }
    }
}

impl Address {
    /// Returns an address of this machine that no other machine can reach.
    #[must_use]
    pub const fn loopback(port: u16) -> Self {
        Self::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }

    /// Returns `true` if other machines can reach the address.
    #[must_use]
    pub fn is_public(&self) -> bool {
        match self {
            Self::Tcp(address) => !address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => false,
        }
    }
}

impl Default for Server {
    fn default() -> Self {
        let at = |port| vec![Listener::plain(Address::loopback(port))];
        Self {
            resp: at(6380),
            http: at(8080),
            grpc: at(8081),
            token: None,
            tls: None,
            threads: None,
            limits: Limits::default(),
            drain: Duration::from_secs(10),
            insecure: false,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_others_can_reach_is_public() {
        let public = |text: &str| Address::Tcp(text.parse().unwrap()).is_public();
        assert!(!public("127.0.0.1:1") && !public("[::1]:1") && !public("[::ffff:127.0.0.1]:1"));
        assert!(public("0.0.0.0:1") && public("[::]:1") && public("10.0.0.1:1"));
        assert!(!Address::Unix("/run/s".into()).is_public());
    }

    #[test]
    fn a_token_or_certificates_of_clients_close_a_listener() {
        let listener =
            |tls| Listener { tls, ..Listener::plain(Address::Tcp(([0, 0, 0, 0], 1).into())) };
        let mut server = Server::default();
        assert!(server.is_open(&listener(false)));
        assert!(!server.is_open(&Listener::plain(Address::loopback(1))));
        server.tls = Some(Tls { cert: "c".into(), key: "k".into(), client_ca: None });
        assert!(server.is_open(&listener(true)));
        server.tls = Some(Tls { cert: "c".into(), key: "k".into(), client_ca: Some("a".into()) });
        assert!(!server.is_open(&listener(true)) && server.is_open(&listener(false)));
        server.token = Some(Secret::new("t".to_owned()));
        assert!(!server.is_open(&listener(false)));
    }
}
