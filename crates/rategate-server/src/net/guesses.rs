//! Wrong tokens counted by client address, so that a new connection does not reset the count.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::attempts::MAX_GUESSES;
use super::caps::network;

/// The maximum number of addresses with a count. One more replaces the address whose last wrong
/// token is oldest.
const MAX_ADDRESSES: usize = 4_096;
/// The time after which one wrong token of an address is forgiven.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);

/// A counter of wrong tokens per address. Clones share one count.
#[derive(Clone, Default)]
pub struct Guesses(Arc<Mutex<HashMap<IpAddr, Guessed>>>);

#[derive(Clone, Copy, Debug)]
struct Guessed {
    failed: u32,
    /// The instant at which the count was last exact.
    at: Instant,
}

impl Guesses {
    /// Counts a wrong token from an address, and returns the address's current count.
    pub(super) fn failed(&self, address: IpAddr, now: Instant) -> u32 {
        let mut all = self.lock();
        let network = network(address);
        if all.len() >= MAX_ADDRESSES && !all.contains_key(&network) {
            let quiet = all.iter().min_by_key(|(_, guessed)| guessed.at).map(|(of, _)| *of);
            quiet.and_then(|of| all.remove(&of));
        }
        let guessed = all.entry(network).or_insert(Guessed { failed: 0, at: now });
        // A higher count would only take longer to be forgiven.
        let failed = guessed.left(now).saturating_add(1).min(MAX_GUESSES);
        *guessed = Guessed { failed, at: now };
        failed
    }

    /// Returns the current count of wrong tokens of an address.
    pub(super) fn count(&self, address: IpAddr, now: Instant) -> u32 {
        let all = self.lock();
        all.get(&network(address)).map_or(0, |guessed| guessed.left(now))
    }

    /// Withdraws one count of a call that needed no token. A full count stays, since it may stand
    /// for more wrong tokens than it holds.
    pub(super) fn take_back(&self, address: IpAddr) {
        if let Some(guessed) = self.lock().get_mut(&network(address))
            && guessed.failed < MAX_GUESSES
        {
            guessed.failed = guessed.failed.saturating_sub(1);
        }
    }

    /// Clears the count of an address that has shown the right token after a wrong one.
    pub(super) fn right(&self, address: IpAddr) {
        self.lock().remove(&network(address));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Guessed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guessed {
    /// Returns the count that remains at `now`, after the forgiven tokens.
    fn left(self, now: Instant) -> u32 {
        let quiet = now.saturating_duration_since(self.at).as_secs();
        let forgiven = quiet.checked_div(FORGIVEN_AFTER.as_secs()).unwrap_or(0);
        self.failed.saturating_sub(u32::try_from(forgiven).unwrap_or(u32::MAX))
    }
}

impl fmt::Debug for Guesses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.lock();
        f.debug_struct("Guesses").field("addresses", &all.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_address_has_a_count_that_time_forgives() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        let (one, same) = (address("10.0.0.1"), address("::ffff:10.0.0.1"));
        assert_eq!([one, same, one].map(|from| guesses.failed(from, start)), [1, 2, 3]);
        assert_eq!(guesses.failed(address("10.0.0.2"), start), 1);
        let of_a_network = ["2001:db8::1", "2001:db8::2"].map(address);
        assert_eq!(of_a_network.map(|from| guesses.failed(from, start)), [1, 2]);
        assert_eq!(guesses.failed(one, start + FORGIVEN_AFTER * 2), 2, "two of three are forgiven");
        assert_eq!(guesses.failed(one, start + FORGIVEN_AFTER * 500), 1);
        assert_eq!(guesses.count(address("10.0.0.2"), start), 1);
        guesses.take_back(address("10.0.0.2"));
        assert_eq!(guesses.count(address("10.0.0.2"), start), 0);
        guesses.right(address("10.0.0.2"));
        assert_eq!(guesses.failed(address("10.0.0.2"), start), 1);
    }

    #[test]
    fn no_more_addresses_are_remembered_than_the_bound() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        let busy = address("192.0.2.1");
        for nth in 0..20_000_u32 {
            let now = start + Duration::from_millis(nth.into());
            guesses.failed(IpAddr::V4(nth.into()), now);
            if nth % 1_000 == 0 {
                guesses.failed(busy, now);
            }
        }
        assert_eq!(guesses.0.lock().unwrap().len(), MAX_ADDRESSES);
        let of_busy = guesses.count(busy, start + Duration::from_secs(20));
        assert_eq!(of_busy, MAX_GUESSES, "it goes on guessing");
        guesses.take_back(busy);
        let of_busy = guesses.count(busy, start + Duration::from_secs(20));
        assert_eq!(of_busy, MAX_GUESSES, "withdrawing from a full count changes nothing");
        let much_later = start + FORGIVEN_AFTER * (MAX_GUESSES + 1);
        assert_eq!(guesses.count(busy, much_later), 0, "however many it were");
    }
}
