//! A counter of amounts that may be large, such as permits.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of words.
const WORDS: usize = 4;
/// The bits of an amount that one word counts.
const BITS: u32 = u64::BITS / 4;

/// A sum of amounts of up to 2^64 - 1 each.
///
/// Each word sums up its own 16 bits of the amounts, so no carry ever moves from one to another. A
/// reader meanwhile sees each word only grow, and with them the sum. It is exact up to 2^48
/// amounts, whatever they are. An amount below 65 536 takes one addition.
#[derive(Debug, Default)]
pub(super) struct WideCounter([AtomicU64; WORDS]);

impl WideCounter {
    /// Adds an amount. A reader that loads it with `Acquire` sees what came before an addition
    /// with `Release`.
    #[inline]
    pub(super) fn add(&self, amount: u64, ordering: Ordering) {
        let mut rest = amount;
        for word in &self.0 {
            if rest == 0 {
                break;
            }
            let part = rest & (u64::MAX >> (u64::BITS - BITS));
            if part > 0 {
                word.fetch_add(part, ordering);
            }
            rest >>= BITS;
        }
    }

    /// Returns the sum, which is below 2^113.
    pub(super) fn read(&self, ordering: Ordering) -> u128 {
        self.0.iter().rev().fold(0, |sum, word| {
            let part = u128::from(word.load(ordering));
            (sum << BITS).saturating_add(part)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    #[test]
    fn amounts_of_every_size_are_summed_up_exactly() {
        let counter = WideCounter::default();
        let ends = (0..u64::BITS).map(|bits| u64::MAX >> bits);
        let amounts = ends.flat_map(|end| [end, end - 1, end / 3, 0]);
        let mut sum = 0;
        for amount in amounts {
            counter.add(amount, Ordering::Relaxed);
            sum += u128::from(amount);
            assert_eq!(counter.read(Ordering::Relaxed), sum, "{amount}");
        }
        assert!(sum > u128::from(u64::MAX));
    }

    /// A counter that went back for a moment would be a reset to a reader of metrics.
    #[test]
    fn a_reader_sees_it_only_grow() {
        let (counter, done) = (WideCounter::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                for amount in [0xFFFF, 1, 0xFFFF_FFFF, u64::MAX].repeat(20_000) {
                    counter.add(amount, Ordering::Relaxed);
                }
                done.store(true, Ordering::Release);
            });
            let mut last = 0;
            while !done.load(Ordering::Acquire) {
                let now = counter.read(Ordering::Relaxed);
                assert!(now >= last, "{last} and then {now}");
                last = now;
            }
        });
    }
}
