//! Caps on the number of connections, in all and per address, and the process's own limit.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use rategate::deny::AddressGroups;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A counter of connections with caps. Clones share one count.
#[derive(Clone, Debug)]
pub struct Caps {
    max_total: usize,
    max_per_address: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: HashMap<IpAddr, usize>,
}

/// A permit for one connection under the caps. Dropping it frees the permit.
#[derive(Debug)]
pub struct ConnectionPermit {
    caps: Caps,
    network: Option<IpAddr>,
}

impl Caps {
    /// Creates caps of `max_total` connections in all and `max_per_address` from one address.
    #[must_use]
    pub fn new(max_total: usize, max_per_address: usize) -> Self {
        Self { max_total, max_per_address, taken: Arc::default() }
    }

    /// Takes a permit for a connection from `address`, if both caps allow it.
    #[must_use]
    pub fn try_admit(&self, address: Option<IpAddr>) -> Option<ConnectionPermit> {
        let network = address.map(network);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.all >= self.max_total {
            return None;
        }
        if let Some(network) = network {
            let of = taken.of.entry(network).or_default();
            if *of >= self.max_per_address {
                if *of == 0 {
                    taken.of.remove(&network);
                }
                return None;
            }
            *of = of.saturating_add(1);
        }
        taken.all = taken.all.saturating_add(1);
        Some(ConnectionPermit { caps: self.clone(), network })
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).all
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut taken = self.caps.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all = taken.all.saturating_sub(1);
        let Some(network) = self.network else { return };
        let Some(of) = taken.of.get_mut(&network) else { return };
        *of = of.saturating_sub(1);
        if *of == 0 {
            taken.of.remove(&network);
        }
    }
}

/// Returns the network that one client has for itself: an IPv4 address, or the first 64 bits of an
/// IPv6 address.
pub(super) fn network(address: IpAddr) -> IpAddr {
    AddressGroups::default().first(address)
}

/// Raises the number of descriptors to the maximum that this process may have, and returns it.
///
/// Many systems start processes with 1024 descriptors and allow more on request. `None` means no
/// bound.
#[must_use]
pub fn raise_descriptors() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_in_all_and_by_address_and_freed() {
        let caps = Caps::new(3, 2);
        let address = |text: &str| Some(text.parse().unwrap());
        let one = caps.try_admit(address("10.0.0.1")).unwrap();
        let _two = caps.try_admit(address("10.0.0.1")).unwrap();
        assert!(caps.try_admit(address("10.0.0.1")).is_none());
        assert!(caps.try_admit(address("::ffff:10.0.0.1")).is_none());
        let three = caps.try_admit(address("10.0.0.2")).unwrap();
        assert!(caps.try_admit(None).is_none());
        drop(three);
        let _local = caps.try_admit(None).unwrap();
        drop(one);
        assert!(caps.try_admit(address("10.0.0.1")).is_some());
        assert_eq!(caps.taken(), 2);
    }

    #[test]
    fn a_network_of_64_bits_is_one_address() {
        let caps = Caps::new(9, 1);
        let permit = caps.try_admit(Some("2001:db8::1".parse().unwrap()));
        assert!(permit.is_some() && caps.try_admit(Some("2001:db8::2".parse().unwrap())).is_none());
        assert!(caps.try_admit(Some("2001:db8:0:1::1".parse().unwrap())).is_some());
    }
}
