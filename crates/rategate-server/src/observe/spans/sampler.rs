//! The choice of decisions with a span, where callers send no trace context.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use crate::config::settings::Sample;

/// A sampler that draws a share of decisions, each independently.
#[derive(Debug)]
pub(super) struct Sampler {
    /// The bound below which a random number is drawn. `None` draws all.
    threshold: Option<u64>,
}

thread_local! {
    /// The state of this thread's random numbers; 0 before the first.
    static STATE: Cell<u64> = const { Cell::new(0) };
}

impl Sampler {
    pub(super) fn new(sample: Sample) -> Self {
        let threshold = u128::from(sample.of_a_million())
            .checked_shl(64)
            .and_then(|share| share.checked_div(Sample::ALL.of_a_million().into()));
        // The bound for all decisions exceeds 64 bits.
        Self { threshold: threshold.and_then(|threshold| u64::try_from(threshold).ok()) }
    }

    /// Returns `true` if the next decision is drawn.
    #[inline]
    pub(super) fn sample(&self) -> bool {
        self.threshold.is_none_or(|threshold| random() < threshold)
    }
}

/// Returns a number that callers cannot predict without trying: a mixed counter (splitmix64).
#[inline]
fn random() -> u64 {
    let state = match STATE.get() {
        0 => seed(),
        state => state,
    };
    let state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cold]
fn seed() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(sample: u32, of: u32) -> u32 {
        let sampler = Sampler::new(Sample::new(sample).unwrap());
        (0..of).map(|_| u32::from(sampler.sample())).sum()
    }

    #[test]
    fn as_many_are_sampled_as_configured() {
        assert_eq!(sampled(0, 100_000), 0);
        assert_eq!(sampled(1_000_000, 100_000), 100_000);
        // Six standard deviations of 10 000 are 570.
        let tenth = sampled(100_000, 100_000);
        assert!((9_400..10_600).contains(&tenth), "{tenth}");
        let few = sampled(1_000, 1_000_000);
        assert!((800..1_200).contains(&few), "{few}");
    }

    #[test]
    fn threads_sample_independently() {
        let sequence = || -> Vec<u64> { (0..8).map(|_| random()).collect() };
        let here = sequence();
        let there = std::thread::spawn(sequence).join().unwrap();
        assert_ne!(here, there);
        assert_ne!(here, sequence());
    }
}
