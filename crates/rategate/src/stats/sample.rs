//! Selection of the calls that statistics sample.

/// A sampling rate: one call in a power of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// The logarithm of the interval.
    bits: u32,
}

/// The longest sampling interval, in calls.
const MAX_PERIOD: u32 = 1 << 16;

impl Sample {
    /// Creates a rate of one in `every`, rounded up to a power of two, from 1 to 65 536.
    pub(super) fn one_in(every: u32) -> Self {
        Self { bits: every.clamp(1, MAX_PERIOD).next_power_of_two().trailing_zeros() }
    }

    /// Returns the number of calls that one sampled call stands for.
    #[inline]
    pub(super) const fn every(self) -> u64 {
        1 << self.bits
    }

    /// Returns `true` if the call with this number is sampled.
    ///
    /// A pattern in the calls, such as clients in rotation, must not always meet the same
    /// decision, so the number is mixed first. Of the numbers below any `2^n`, the sampled
    /// fraction is right to within chance.
    #[inline]
    pub(super) const fn includes(self, number: u64) -> bool {
        // Two rounds of multiply and fold: each bit of the number reaches the bits that decide.
        let mixed = (number ^ (number >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed >> 32) & self.every().wrapping_sub(1) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_one_is_all() {
        assert!((0..1000).all(|number| Sample::one_in(1).includes(number)));
        assert_eq!(Sample::one_in(0).every(), 1);
        assert_eq!(Sample::one_in(9).every(), 16);
        assert_eq!(Sample::one_in(u32::MAX).every(), 65_536);
    }

    /// A client that calls at a fixed period is sampled at the right rate, whatever the period.
    #[test]
    #[allow(clippy::arithmetic_side_effects, reason = "a test computes in plain numbers")]
    fn no_pattern_escapes() {
        for every in [2_u32, 8, 16, 64] {
            let sample = Sample::one_in(every);
            for period in (1..70).chain([89, 128, 144, 256, 1024, 1597]) {
                for phase in [0, 1, period / 2] {
                    let calls = 1024 * u64::from(every);
                    let numbers = (0..calls).map(|call| call * period + phase);
                    let included = numbers.filter(|&number| sample.includes(number)).count();
                    // Six standard deviations of a fair draw.
                    assert!(
                        (832..=1_216).contains(&included),
                        "{every} {period} {phase}: {included}"
                    );
                }
            }
        }
    }
}
