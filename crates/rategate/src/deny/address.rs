//! Addresses as client names, in one form for logs, lists and requests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The number of leading address bits that identify a client, by default 32 of IPv4 and 64 of
/// IPv6.
///
/// A /64 is the least that a subscriber of IPv6 gets, so a client that is listed by one address
/// of it could return with another. `rategate analyze --key addr` names clients by this scheme.
///
/// ```
/// use rategate::deny::{AddressGroups, DenyList};
///
/// let list: DenyList = DenyList::new(10_000);
/// list.replace([(list.id(b"2001:db8:1:2::/64"), u64::MAX)]);
///
/// let groups = AddressGroups::default();
/// let name = |peer: &str| groups.name(peer.parse().unwrap());
/// let is_listed = |peer: &str| list.denied_for(name(peer).as_bytes()).is_some();
/// assert!(is_listed("2001:db8:1:2::7") && is_listed("2001:db8:1:2:a:b:c:d"));
/// assert!(!is_listed("2001:db8:1:3::7") && !is_listed("192.0.2.1"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressGroups {
    v4_bits: u8,
    v6_bits: u8,
}

impl Default for AddressGroups {
    fn default() -> Self {
        Self { v4_bits: 32, v6_bits: 64 }
    }
}

impl AddressGroups {
    /// Counts all IPv4 addresses with the same first `bits` as one client.
    ///
    /// More than 32 count as 32.
    #[must_use]
    pub const fn with_v4(self, bits: u8) -> Self {
        Self { v4_bits: bits, ..self }
    }

    /// Counts all IPv6 addresses with the same first `bits` as one client.
    ///
    /// More than 128 count as 128. Many providers give a household a /56.
    #[must_use]
    pub const fn with_v6(self, bits: u8) -> Self {
        Self { v6_bits: bits, ..self }
    }

    /// Returns the first address of the group.
    ///
    /// An IPv4 address that is mapped into IPv6 is treated as the IPv4 address.
    #[must_use]
    pub fn first(self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let rest = 32_u32.saturating_sub(self.v4_bits.into());
                let mask = u32::MAX.checked_shl(rest).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & mask).into()
            }
            IpAddr::V6(address) => {
                let rest = 128_u32.saturating_sub(self.v6_bits.into());
                let mask = u128::MAX.checked_shl(rest).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
        }
    }

    /// Returns the name of the group: an address, or a network such as `2001:db8:1:2::/64`.
    ///
    /// It is a network if the group has more than one address.
    #[must_use]
    pub fn name(self, address: IpAddr) -> String {
        let first = self.first(address);
        let (bits, max_bits) = match first {
            IpAddr::V4(_) => (self.v4_bits, 32),
            IpAddr::V6(_) => (self.v6_bits, 128),
        };
        if bits >= max_bits { first.to_string() } else { format!("{first}/{bits}") }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::AddressGroups;

    #[test]
    fn addresses_are_grouped_by_their_first_bits() {
        let table = [
            ("192.0.2.1", 32, 64, "192.0.2.1"),
            ("192.0.2.1", 24, 64, "192.0.2.0/24"),
            ("192.0.2.1", 0, 64, "0.0.0.0/0"),
            ("192.0.2.1", 1, 64, "128.0.0.0/1"),
            ("192.0.2.1", 200, 64, "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", 32, 64, "2001:db8:1:2::/64"),
            ("2001:db8:1:2:3:4:5:6", 32, 56, "2001:db8:1::/56"),
            ("2001:db8:1:2:3:4:5:6", 32, 128, "2001:db8:1:2:3:4:5:6"),
            ("2001:db8:1:2:3:4:5:6", 32, 0, "::/0"),
            ("2001:db8:1:2:3:4:5:6", 32, 255, "2001:db8:1:2:3:4:5:6"),
            // Mapped into IPv6, it would share a group with all of IPv4.
            ("::ffff:192.0.2.1", 32, 64, "192.0.2.1"),
            ("::ffff:192.0.2.1", 24, 64, "192.0.2.0/24"),
        ];
        for (given, v4_bits, v6_bits, name) in table {
            let groups = AddressGroups::default().with_v4(v4_bits).with_v6(v6_bits);
            let address: IpAddr = given.parse().unwrap();
            assert_eq!(groups.name(address), name, "{given} {groups:?}");
            let first: IpAddr = name.split('/').next().unwrap().parse().unwrap();
            assert_eq!(groups.first(address), first, "{given} {groups:?}");
        }
    }
}
