//! Networks of addresses, written as `10.0.0.0/8`.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use rategate::deny::AddressGroups;

/// A range of addresses, given by an address and the number of its significant leading bits.
///
/// ```
/// use rategate_tower::key::Network;
///
/// let inside: Network = "10.0.0.0/8".parse()?;
/// assert!(inside.contains("10.200.3.4".parse()?) && !inside.contains("11.0.0.1".parse()?));
///
/// // Without a length it is one address.
/// let one: Network = "2001:db8::1".parse()?;
/// assert!(!one.contains("2001:db8::2".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    bits: u8,
}

/// The reason why a text is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkError {
    /// The text has no address, or no number after the slash. An IPv4 network is written as such,
    /// not mapped into IPv6.
    Malformed,
    /// The number of bits exceeds that of an address.
    TooManyBits,
    /// Insignificant bits are set, as in `10.0.0.1/8`. The writer may have meant one address, and
    /// this would be sixteen million.
    BitsBeyond,
}

impl Network {
    /// Returns `true` if the address lies in the network. An IPv4 address mapped into IPv6 counts
    /// as the IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        first_of(address.to_canonical(), self.bits) == self.first
    }

    /// Returns the first address.
    pub(super) const fn first(&self) -> IpAddr {
        self.first
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_| NetworkError::Malformed)?;
        // An IPv4 address mapped into IPv6 only lies in IPv4 networks.
        if first != first.to_canonical() {
            return Err(NetworkError::Malformed);
        }
        let max_bits = if first.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => max_bits,
            // `parse` would accept a sign.
            Some(bits) if bits.starts_with('+') => return Err(NetworkError::Malformed),
            Some(bits) => bits.parse().map_err(|_| NetworkError::Malformed)?,
        };
        if bits > max_bits {
            return Err(NetworkError::TooManyBits);
        }
        if first_of(first, bits) != first {
            return Err(NetworkError::BitsBeyond);
        }
        Ok(Self { first, bits })
    }
}

/// Returns the first of the addresses with equal first `bits`.
fn first_of(address: IpAddr, bits: u8) -> IpAddr {
    AddressGroups::default().with_v4(bits).with_v6(bits).first(address)
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "not a network: write 10.0.0.0/8, 2001:db8::/32 or one address",
            Self::TooManyBits => "more bits than an address of this kind has",
            Self::BitsBeyond => {
                "bits are set beyond the length of the network: write its first address, or one \
                 address without a length"
            }
        })
    }
}

impl Error for NetworkError {}

#[cfg(test)]
mod tests {
    use super::{Network, NetworkError};

    #[test]
    fn reads_networks_and_complains() {
        let table = [
            ("10.0.0.0/8", Ok(())),
            ("0.0.0.0/0", Ok(())),
            ("::/0", Ok(())),
            ("192.0.2.7", Ok(())),
            ("192.0.2.7/32", Ok(())),
            ("fd00::/8", Ok(())),
            ("10.0.0.1/8", Err(NetworkError::BitsBeyond)),
            ("fd00::1/8", Err(NetworkError::BitsBeyond)),
            ("10.0.0.0/33", Err(NetworkError::TooManyBits)),
            ("::/129", Err(NetworkError::TooManyBits)),
            ("10.0.0.0/", Err(NetworkError::Malformed)),
            ("10.0.0.0/+8", Err(NetworkError::Malformed)),
            ("10.0.0.0/-1", Err(NetworkError::Malformed)),
            ("10.0.0.0/256", Err(NetworkError::Malformed)),
            ("10.0.0/8", Err(NetworkError::Malformed)),
            ("::ffff:10.0.0.0/104", Err(NetworkError::Malformed)),
            ("::ffff:10.0.0.1", Err(NetworkError::Malformed)),
            ("::/96", Ok(())),
            ("", Err(NetworkError::Malformed)),
            ("example.com/8", Err(NetworkError::Malformed)),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<Network>().map(|_| ()), expected, "{text}");
        }
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        let network: Network = "10.0.0.0/8".parse().unwrap();
        assert!(network.contains("::ffff:10.1.2.3".parse().unwrap()));
        let all_of_v6: Network = "::/0".parse().unwrap();
        assert!(!all_of_v6.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(!all_of_v6.contains("10.1.2.3".parse().unwrap()));
    }
}
