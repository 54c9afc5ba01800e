//! Keys of addresses by the names that a deny list has for them.

use std::str;

use super::{Key, Network};

/// Returns the key of an address given as text, equal to that of [`peer`](super::peer) and
/// [`client`](super::client) with the grouping of the name.
///
/// `rategate analyze --key addr` names callers like this: `10.0.0.7`, `10.0.0.0/24`,
/// `2001:db8:1:2::/64`. A name with a prefix length matches sources that group by as many bits.
/// Returns `None` if the text is not an address.
///
/// ```
/// use http::Request;
/// use rategate_tower::key::{self, KeySource};
///
/// let source = key::peer(|address: &std::net::IpAddr| *address);
/// let address: std::net::IpAddr = "2001:db8:1:2::7".parse()?;
/// let (head, ()) = Request::get("/").extension(address).body(())?.into_parts();
/// assert_eq!(key::named_address(b"2001:db8:1:2::/64"), source.key(&head));
/// assert_eq!(key::named_address(b"host.example"), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn named_address(name: &[u8]) -> Option<Key> {
    let network: Network = str::from_utf8(name).ok()?.parse().ok()?;
    Some(Key::of(&network.first().to_canonical()))
}
