//! The choice of decisions with a span, where callers send no trace context.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use crate::config::settings::Sample;

/// A sampler that draws a share of decisions, each independently.
#[derive(Debug)]
pub(super) struct Sampler {
    /// The bound below which a random number is drawn. `None` draws all.
    below: Option<u64>,
}

thread_local! {
    /// The state of this thread's random numbers; 0 before the first.
    static STATE: Cell<u64> = const { Cell::new(0) };
}

impl Sampler {
    pub(super) fn new(sample: Sample) -> Self {
        let below = u128::from(sample.of_a_million())
            .checked_shl(64)
            .and_then(|share| share.checked_div(Sample::ALL.of_a_million().into()));
        // The bound for all decisions exceeds 64 bits.
        Self { below: below.and_then(|below| u64::try_from(below).ok()) }
    }

    /// Returns `true` if the next decision is drawn.
    #[inline]
    pub(super) fn draw(&self) -> bool {
        self.below.is_none_or(|below| random() < below)
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

    fn drawn(sample: u32, of: u32) -> u32 {
        let sampler = Sampler::new(Sample::new(sample).unwrap());
        (0..of).map(|_| u32::from(sampler.draw())).sum()
    }

    #[test]
    fn so_many_are_drawn_as_are_said() {
        assert_eq!(drawn(0, 100_000), 0);
        assert_eq!(drawn(1_000_000, 100_000), 100_000);
        // Six standard deviations of 10 000 are 570.
        let tenth = drawn(100_000, 100_000);
        assert!((9_400..10_600).contains(&tenth), "{tenth}");
        let few = drawn(1_000, 1_000_000);
        assert!((800..1_200).contains(&few), "{few}");
    }

    #[test]
    fn threads_draw_on_their_own() {
        let draws = || -> Vec<u64> { (0..8).map(|_| random()).collect() };
        let here = draws();
        let there = std::thread::spawn(draws).join().unwrap();
        assert_ne!(here, there);
        assert_ne!(here, draws());
    }
}
