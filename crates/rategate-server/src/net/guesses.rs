//! Wrong tokens counted by client address, so that a new connection does not reset the count.

use std::net::IpAddr;
use std::sync::Arc;

use rategate::keyed::{Capacity, Overflow};
use rategate::{Clock, Gcra, Keyed, MonotonicClock};

use super::attempts::MAX_GUESSES;
use super::caps::network;

/// The maximum number of networks with a count. Where there are more, those that come new have the
/// counts of their connections alone: they must not wait for the guesses of others.
const MAX_NETWORKS: usize = 16_384;

/// The wrong tokens of each network, as permits of a limit: one is forgiven each minute. Clones
/// share the counts.
#[derive(Debug)]
pub struct Guesses<C: Clock = MonotonicClock>(Arc<Keyed<IpAddr, C>>);

impl Default for Guesses {
    fn default() -> Self {
        Self::with_clock(MonotonicClock::default())
    }
}

impl<C: Clock> Clone for Guesses<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Clock + Clone> Guesses<C> {
    fn with_clock(clock: C) -> Self {
        let forgiven = Gcra::per_minute(1).burst(MAX_GUESSES.into());
        let capacity = Capacity::for_keys(MAX_NETWORKS).or_else(Overflow::Admit);
        Self(Arc::new(Keyed::with_clock(forgiven, capacity, clock)))
    }

    /// Counts a wrong token from an address, and returns the address's current count.
    pub(super) fn failed(&self, address: IpAddr) -> u32 {
        // A denied one is beyond a full count, which would only take longer to be forgiven.
        let _ = self.0.try_acquire(&network(address), 1);
        self.count(address)
    }

    /// Returns the current count of wrong tokens of an address.
    pub(super) fn count(&self, address: IpAddr) -> u32 {
        // A table that is not closed knows of each key how much is left.
        let left = self.0.remaining(&network(address)).unwrap_or(u64::MAX);
        MAX_GUESSES.saturating_sub(u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Withdraws one count of a call that needed no token. A full count stays, since it may stand
    /// for more wrong tokens than it holds.
    pub(super) fn take_back(&self, address: IpAddr) {
        if self.count(address) < MAX_GUESSES {
            let _ = self.0.credit(&network(address), 1);
        }
    }

    /// Clears the count of an address that has shown the right token after a wrong one.
    pub(super) fn right(&self, address: IpAddr) {
        let _ = self.0.reset(&network(address));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rategate::ManualClock;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_address_has_a_count_that_time_forgives() {
        let clock = ManualClock::new();
        let guesses = Guesses::with_clock(clock.clone());
        let (one, same) = (address("10.0.0.1"), address("::ffff:10.0.0.1"));
        assert_eq!([one, same, one].map(|from| guesses.failed(from)), [1, 2, 3]);
        assert_eq!(guesses.failed(address("10.0.0.2")), 1);
        let of_a_network = ["2001:db8::1", "2001:db8::2"].map(address);
        assert_eq!(of_a_network.map(|from| guesses.failed(from)), [1, 2]);
        guesses.take_back(address("10.0.0.2"));
        assert_eq!(guesses.count(address("10.0.0.2")), 0);
        clock.advance(MINUTE * 2);
        assert_eq!(guesses.failed(one), 2, "two of three are forgiven");
        clock.advance(MINUTE * 500);
        assert_eq!(guesses.failed(one), 1);
        guesses.right(one);
        assert_eq!(guesses.failed(one), 1);
    }

    #[test]
    fn a_full_count_is_forgiven_by_time_alone() {
        let clock = ManualClock::new();
        let guesses = Guesses::with_clock(clock.clone());
        let busy = address("192.0.2.1");
        (0..1_000).for_each(|_| _ = guesses.failed(busy));
        guesses.take_back(busy);
        assert_eq!(guesses.count(busy), MAX_GUESSES, "withdrawing changes nothing");
        clock.advance(MINUTE * MAX_GUESSES);
        assert_eq!(guesses.count(busy), 0, "however many it were");
    }

    /// A crowd of guessing networks is bounded, and does not make others wait.
    #[test]
    fn no_more_networks_are_remembered_than_the_bound() {
        let guesses = Guesses::with_clock(ManualClock::new());
        for network in 0..20_000_u32 {
            (0..5).for_each(|_| _ = guesses.failed(IpAddr::V4(network.into())));
        }
        assert_eq!(guesses.0.len(), MAX_NETWORKS);
        assert_eq!(guesses.count(address("0.0.0.7")), 5, "it goes on guessing");
        assert_eq!(guesses.count(address("192.0.2.1")), 0);
    }
}
