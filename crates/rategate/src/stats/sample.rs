//! Which calls are looked at more closely.

/// One call in so many, a power of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Its logarithm.
    bits: u32,
}

/// The most calls for one that is looked at.
const MOST: u32 = 1 << 16;

impl Sample {
    /// One in `every`, rounded up to a power of two, from 1 to 65 536.
    pub(super) fn one_in(every: u32) -> Self {
        Self { bits: every.clamp(1, MOST).next_power_of_two().trailing_zeros() }
    }

    /// For how many calls one stands.
    #[inline]
    pub(super) const fn every(self) -> u64 {
        1 << self.bits
    }

    /// Whether the call with this number is one of them. A pattern in the calls, such as clients that
    /// come in turns, must not meet the same one again and again, so the number is mixed up first; of the
    /// numbers below any `2^n` the share is right to within what chance would do.
    #[inline]
    pub(super) const fn holds(self, number: u64) -> bool {
        // Two rounds of multiply and fold: each bit of the number reaches those that are looked at.
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
        assert!((0..1000).all(|number| Sample::one_in(1).holds(number)));
        assert_eq!(Sample::one_in(0).every(), 1);
        assert_eq!(Sample::one_in(9).every(), 16);
        assert_eq!(Sample::one_in(u32::MAX).every(), 65_536);
    }

    /// Whatever the period at which a client comes, its share is what it should be.
    #[test]
    #[allow(clippy::arithmetic_side_effects, reason = "a test computes in plain numbers")]
    fn no_pattern_escapes() {
        for every in [2_u32, 8, 16, 64] {
            let sample = Sample::one_in(every);
            for period in (1..70).chain([89, 128, 144, 256, 1024, 1597]) {
                for phase in [0, 1, period / 2] {
                    let calls = 1024 * u64::from(every);
                    let numbers = (0..calls).map(|call| call * period + phase);
                    let held = numbers.filter(|&number| sample.holds(number)).count();
                    // Six standard deviations of a fair draw.
                    assert!((832..=1_216).contains(&held), "{every} {period} {phase}: {held}");
                }
            }
        }
    }
}
