//! The network between nodes and store: messages are delayed, overtake each other, and get lost.

use rategate_core::random::Random;

/// The delays and losses of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The minimum delay of a message, one way.
    pub min_ns: u64,
    /// The mean of the extra delay, exponentially distributed, so that messages overtake each
    /// other.
    pub extra_ns: u64,
    /// The number of messages lost in a million.
    pub lost_ppm: u32,
}

impl Network {
    /// Returns the delay of the next message, or `None` if it gets lost.
    pub(super) fn message_delay(&self, random: &mut Random) -> Option<u64> {
        if below(random, 1_000_000) < self.lost_ppm.into() {
            return None;
        }
        if self.extra_ns == 0 {
            return Some(self.min_ns);
        }
        let extra = u128::from(self.extra_ns) * u128::from(random.exponential());
        Some(self.min_ns + u64::try_from(extra >> 32).unwrap())
    }
}

/// Returns a number below `bound`, or 0 if `bound` is 0, as even as 64 bits can be.
pub(super) fn below(random: &mut Random, bound: u64) -> u64 {
    let product = u128::from(random.bits()) * u128::from(bound);
    u64::try_from(product >> 64).unwrap()
}
