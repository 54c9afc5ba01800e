//! The peer's address, and which addresses count as one client.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use http::Extensions;
use http::request::Parts;

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
    grouping: Grouping,
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
        grouping: Grouping::default(),
    }
}

impl Peer {
    /// Counts all IPv4 addresses with the same first `bits` as one client. 32 if not given.
    #[must_use]
    pub fn group_v4(mut self, bits: u8) -> Self {
        self.grouping.v4_bits = bits;
        self
    }

    /// Counts all IPv6 addresses with the same first `bits` as one client. 64 if not given; many
    /// providers give a household 56.
    #[must_use]
    pub fn group_v6(mut self, bits: u8) -> Self {
        self.grouping.v6_bits = bits;
        self
    }

    /// The address, not grouped.
    pub(super) fn address(&self, head: &Parts) -> Option<IpAddr> {
        Some((self.lookup)(&head.extensions)?.to_canonical())
    }

    pub(super) const fn grouping(&self) -> Grouping {
        self.grouping
    }
}

impl KeySource for Peer {
    fn key(&self, head: &Parts) -> Option<Key> {
        Some(Key::of(&self.grouping.group(self.address(head)?)))
    }

    fn lacks(&self, head: &Parts) -> Option<&'static str> {
        (!(self.is_there)(&head.extensions)).then_some(self.extension)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("grouping", &self.grouping).finish_non_exhaustive()
    }
}

/// How many leading bits of an address tell clients apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grouping {
    v4_bits: u8,
    v6_bits: u8,
}

impl Default for Grouping {
    fn default() -> Self {
        Self { v4_bits: 32, v6_bits: 64 }
    }
}

impl Grouping {
    /// The group as text: an address, or a network if it has more than one.
    pub(super) fn name(self, address: IpAddr) -> String {
        let first = self.group(address);
        let (bits, most) = match first {
            IpAddr::V4(_) => (self.v4_bits, 32),
            IpAddr::V6(_) => (self.v6_bits, 128),
        };
        if bits >= most { first.to_string() } else { format!("{first}/{bits}") }
    }

    /// The first address of the group. More bits than there are count as all.
    pub(super) fn group(self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                Ipv4Addr::from_bits(address.to_bits() & v4_mask(self.v4_bits)).into()
            }
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(address.to_bits() & v6_mask(self.v6_bits)).into()
            }
        }
    }
}

/// The first `bits` of 32 set.
pub(super) fn v4_mask(bits: u8) -> u32 {
    let rest = 32_u32.saturating_sub(bits.into());
    u32::MAX.checked_shl(rest).unwrap_or(0)
}

/// The first `bits` of 128 set.
pub(super) fn v6_mask(bits: u8) -> u128 {
    let rest = 128_u32.saturating_sub(bits.into());
    u128::MAX.checked_shl(rest).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{Grouping, v4_mask, v6_mask};

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_grouped_by_their_first_bits() {
        let table = [
            ("192.0.2.1", 32, 64, "192.0.2.1"),
            ("192.0.2.1", 24, 64, "192.0.2.0"),
            ("192.0.2.1", 0, 64, "0.0.0.0"),
            ("192.0.2.1", 200, 64, "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", 32, 64, "2001:db8:1:2::"),
            ("2001:db8:1:2:3:4:5:6", 32, 56, "2001:db8:1::"),
            ("2001:db8:1:2:3:4:5:6", 32, 128, "2001:db8:1:2:3:4:5:6"),
            ("2001:db8:1:2:3:4:5:6", 32, 0, "::"),
            ("2001:db8:1:2:3:4:5:6", 32, 255, "2001:db8:1:2:3:4:5:6"),
            // Mapped into IPv6, it would share a group with all of IPv4.
            ("::ffff:192.0.2.1", 32, 64, "192.0.2.1"),
            ("::ffff:192.0.2.1", 24, 64, "192.0.2.0"),
        ];
        for (given, v4_bits, v6_bits, group) in table {
            let grouping = Grouping { v4_bits, v6_bits };
            assert_eq!(grouping.group(address(given)), address(group), "{given} {grouping:?}");
        }
    }

    #[test]
    fn masks_at_their_edges() {
        assert_eq!((v4_mask(0), v4_mask(1), v4_mask(32)), (0, 1 << 31, u32::MAX));
        assert_eq!((v6_mask(0), v6_mask(1), v6_mask(128)), (0, 1 << 127, u128::MAX));
    }
}
