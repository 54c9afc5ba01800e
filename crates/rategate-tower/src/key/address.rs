//! The peer's address, and which addresses count as one client.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::Extensions;
use http::request::Parts;
use rategate::deny::AddressGroups;

use super::{Key, KeySource};

/// How an address is looked up in a request.
type Lookup = Arc<dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync>;

/// The address of the peer, as the server has put it into the request's extensions. See [`peer`].
#[derive(Clone)]
pub struct Peer {
    lookup: Lookup,
    /// Whether the extension is there.
    is_there: fn(&Extensions) -> bool,
    /// Its type.
    extension: &'static str,
    groups: AddressGroups,
}

/// The address of the peer, found in the extension `T`.
///
/// The peer is whoever holds the other end of the connection. Behind a proxy that is the proxy, for
/// every client: [`client`](super::client) is for that.
///
/// IPv6 addresses count as one client for each /64, which is the least that a subscriber gets; an
/// IPv4 address that is mapped into IPv6 is the IPv4 address.
///
/// With axum, `T` is `ConnectInfo<SocketAddr>`, which is there if the router was made a service by
/// `into_make_service_with_connect_info::<SocketAddr>()`. Without the extension all requests are answered with a 500,
/// unless [`missing`](crate::RateLimitLayer::missing) says otherwise:
///
/// ```
/// use std::net::SocketAddr;
///
/// use axum::extract::ConnectInfo;
/// use rategate_tower::key;
///
/// let source = key::peer(|info: &ConnectInfo<SocketAddr>| info.0.ip());
/// ```
///
/// With tonic it is `TcpConnectInfo`, whose address is optional, as the closure's may be:
///
/// ```
/// use rategate_tower::key;
/// use tonic::transport::server::TcpConnectInfo;
///
/// let source = key::peer(|info: &TcpConnectInfo| info.remote_addr().map(|address| address.ip()));
/// ```
pub fn peer<T, R>(address: impl Fn(&T) -> R + Send + Sync + 'static) -> Peer
where
    T: Send + Sync + 'static,
    R: Into<Option<IpAddr>>,
{
    let lookup = move |extensions: &Extensions| address(extensions.get::<T>()?).into();
    Peer {
        lookup: Arc::new(lookup),
        is_there: |extensions| extensions.get::<T>().is_some(),
        extension: std::any::type_name::<T>(),
        groups: AddressGroups::default(),
    }
}

impl Peer {
    /// Counts all IPv4 addresses with the same first `bits` as one client. 32 if not given.
    #[must_use]
    pub fn group_v4(mut self, bits: u8) -> Self {
        self.groups = self.groups.with_v4(bits);
        self
    }

    /// Counts all IPv6 addresses with the same first `bits` as one client. 64 if not given; many
    /// providers give a household 56.
    #[must_use]
    pub fn group_v6(mut self, bits: u8) -> Self {
        self.groups = self.groups.with_v6(bits);
        self
    }

    /// The address, not grouped.
    pub(super) fn address(&self, head: &Parts) -> Option<IpAddr> {
        Some((self.lookup)(&head.extensions)?.to_canonical())
    }

    pub(super) const fn groups(&self) -> AddressGroups {
        self.groups
    }
}

impl KeySource for Peer {
    fn key(&self, head: &Parts) -> Option<Key> {
        Some(Key::of(&self.groups.first(self.address(head)?)))
    }

    fn lacks(&self, head: &Parts) -> Option<&'static str> {
        (!(self.is_there)(&head.extensions)).then_some(self.extension)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("groups", &self.groups).finish_non_exhaustive()
    }
}
