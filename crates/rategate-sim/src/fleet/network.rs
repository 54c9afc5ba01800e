//! The way between nodes and store: letters take their time, overtake each other, and get lost.

use crate::random::Random;

const MILLION: u64 = 1_000_000;

/// How long letters take, and how many never come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// No letter is faster, one way.
    pub least_ns: u64,
    /// What it takes longer on average, exponentially distributed; so letters overtake each other.
    pub extra_ns: u64,
    /// How many of a million letters get lost.
    pub lost_ppm: u32,
}

impl Network {
    /// Half a millisecond there and half a millisecond back, always.
    pub const STEADY: Self = Self { least_ns: 500_000, extra_ns: 0, lost_ppm: 0 };

    /// How long the next letter is on its way. `None` if it gets lost.
    pub(super) fn letter(&self, random: &mut Random) -> Option<u64> {
        if below(random, MILLION) < self.lost_ppm.into() {
            return None;
        }
        if self.extra_ns == 0 {
            return Some(self.least_ns);
        }
        let extra = u128::from(self.extra_ns).saturating_mul(random.exponential().into());
        let extra_ns = u64::try_from(extra >> 32).unwrap_or(u64::MAX);
        Some(self.least_ns.saturating_add(extra_ns))
    }
}

/// A number below `most`, or 0 if that is 0. As even as 64 bits can be.
pub(super) fn below(random: &mut Random, most: u64) -> u64 {
    let product = u128::from(random.bits()).saturating_mul(most.into());
    u64::try_from(product >> 64).unwrap_or(0)
}
