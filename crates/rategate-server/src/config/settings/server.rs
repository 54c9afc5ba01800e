//! Where the service listens, and who may connect.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use super::{Limits, Secret};

/// Where the service listens, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where Redis' protocol is spoken: 127.0.0.1:6380 if not said otherwise. None: it is not.
    pub resp: Vec<Listener>,
    /// Where HTTP is spoken: 127.0.0.1:8080.
    pub http: Vec<Listener>,
    /// Where gRPC is spoken: 127.0.0.1:8081.
    pub grpc: Vec<Listener>,
    /// What calls show that change something, and all calls to listeners with [`Listener::auth`].
    pub token: Option<Secret>,
    /// The certificate of the listeners with [`Listener::tls`].
    pub tls: Option<Tls>,
    /// How many threads work. `None`: one for each core.
    pub threads: Option<NonZeroUsize>,
    /// How much of everything there may be.
    pub limits: Limits,
    /// How long open calls may take to end when the service is told to stop.
    pub drain: Duration,
    /// Listen where others can reach it, though nothing says who they are.
    pub insecure: bool,
}

/// A place to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The place.
    pub address: Address,
    /// Whether all calls need the token; if not, only those do that change something.
    pub auth: bool,
    /// Whether it speaks TLS: then there is a [`Server::tls`].
    pub tls: bool,
    /// Who may connect to a socket in the file system, as the bits of a file's mode: this user alone, 0o600, if not said otherwise.
    pub mode: u32,
}

/// This user alone may use a socket in the file system.
pub(crate) const SOCKET_MODE: u32 = 0o600;

/// A place to listen at: `127.0.0.1:6380`, `[::1]:6380`, `unix:/run/rategate.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// A certificate, by files in PEM. They are read by whoever listens, and may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The chain of certificates, the service's own first.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who signs the certificates of clients. Given, each client needs one.
    pub client_ca: Option<PathBuf>,
}

impl Server {
    /// All listeners with the name of their protocol in the configuration.
    pub fn listeners(&self) -> impl Iterator<Item = (&'static str, &Listener)> {
        let of = |name: &'static str, all| std::iter::repeat(name).zip(all);
        of("resp", &self.resp).chain(of("http", &self.http)).chain(of("grpc", &self.grpc))
    }

    /// Whether nothing stands in the way of strangers at this listener.
    #[must_use]
    pub fn is_open(&self, listener: &Listener) -> bool {
        let asks_certificate =
            listener.tls && self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        listener.address.is_public() && self.token.is_none() && !asks_certificate
    }
}

impl Listener {
    /// A place to listen at, with neither token nor TLS.
    #[must_use]
    pub const fn plain(address: Address) -> Self {
        Self { address, auth: false, tls: false, mode: SOCKET_MODE }
    }
}

impl Address {
    /// A port of this machine that no other can reach.
    #[must_use]
    pub const fn loopback(port: u16) -> Self {
        Self::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }

    /// Whether other machines can reach it.
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
