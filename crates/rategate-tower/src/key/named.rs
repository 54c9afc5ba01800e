//! Keys by the names that a list of callers has for them.

use std::str;

use super::{Key, Network};

/// The key of an address as a text has it: that of [`peer`](super::peer) and [`client`](super::client), grouped as the
/// name is.
///
/// It is how `rategate analyze --key addr` names callers: `10.0.0.7`, `10.0.0.0/24`, `2001:db8:1:2::/64`. A name
/// with a length is the key of those who group by as many bits. `None` if it is no address.
///
/// ```
/// use http::Request;
/// use rategate_tower::key::{self, KeySource};
///
/// let source = key::peer(|address: &std::net::IpAddr| *address);
/// let address: std::net::IpAddr = "2001:db8:1:2::7".parse()?;
/// let (head, ()) = Request::get("/").extension(address).body(())?.into_parts();
/// assert_eq!(key::named_address(b"2001:db8:1:2::/64"), source.key(&head));
/// assert_eq!(key::named_address(b"somebody"), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn named_address(name: &[u8]) -> Option<Key> {
    let network: Network = str::from_utf8(name).ok()?.parse().ok()?;
    Some(Key::of(&network.first().to_canonical()))
}
