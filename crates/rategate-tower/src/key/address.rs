//! Keys by the peer's address, grouped by network.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::Extensions;
use http::request::Parts;
use rategate::deny::AddressGroups;

use super::{Key, KeySource};

/// A lookup of an address in a request's extensions.
type Lookup = Arc<dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync>;

/// A source of keys by the peer's address, which the server puts into the request's extensions.
/// See [`peer`].
#[derive(Clone)]
pub struct Peer {
    lookup: Lookup,
    /// Returns `true` if the extension is present.
    is_there: fn(&Extensions) -> bool,
    /// The type name of the extension.
    extension: &'static str,
    groups: AddressGroups,
}

/// Returns a source of keys by the peer's address, found in the extension `T`.
///
/// The peer is the other end of the connection. Behind a proxy, that is the proxy for every
/// client; use [`client`](super::client) there.
///
/// IPv6 addresses count as one client per /64, which is the smallest network of a subscriber. An
/// IPv4 address that is mapped into IPv6 counts as the IPv4 address.
///
/// With axum, `T` is `ConnectInfo<SocketAddr>`. It is present if the router was made a service by
/// `into_make_service_with_connect_info::<SocketAddr>()`. Without the extension all requests
/// receive a 500, unless [`missing`](crate::RateLimitLayer::missing) is configured otherwise:
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
/// With tonic, `T` is `TcpConnectInfo`. Its address is optional, as the closure's result may be:
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
    /// Counts all IPv4 addresses with the same first `bits` as one client. The default is 32.
    #[must_use]
    pub fn group_v4(mut self, bits: u8) -> Self {
        self.groups = self.groups.with_v4(bits);
        self
    }

    /// Counts all IPv6 addresses with the same first `bits` as one client. The default is 64; many
    /// providers assign 56 to a household.
    #[must_use]
    pub fn group_v6(mut self, bits: u8) -> Self {
        self.groups = self.groups.with_v6(bits);
        self
    }

    /// Returns the address, not grouped.
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
