//! Seeded random numbers, in whole numbers only, so that they are equal on every machine.

/// A SplitMix64 generator (Steele, Lea and Flood, 2014).
///
/// A file's seed gives the same run in every version of this crate, which no foreign generator
/// promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// Returns the generator of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns an exponentially distributed number with mean one, in units of `1 / 2^32`.
    ///
    /// It uses von Neumann's comparisons alone, so that no mathematics library's logarithm
    /// decides what a scenario does.
    pub fn exponential(&mut self) -> u64 {
        for whole in 0..64_u64 {
            let first = self.bits();
            let (mut last, mut falling) = (first, true);
            // Accept if the run of falling numbers that starts here has odd length.
            let mut length = 0_u32;
            while falling {
                let next = self.bits();
                falling = next < last;
                last = next;
                length = length.wrapping_add(1);
            }
            if length % 2 == 1 {
                return (whole << 32) | (first >> 32);
            }
        }
        64 << 32
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::Random;

    #[test]
    fn exponential_numbers_have_mean_one_and_the_right_share_beyond_it() {
        let mut random = Random::new(7);
        let numbers: Vec<u64> = (0..100_000).map(|_| random.exponential()).collect();
        let mean = numbers.iter().map(|&n| u128::from(n)).sum::<u128>() / 100_000;
        assert!(mean.abs_diff(1 << 32) < (1 << 32) / 100, "{mean}");
        // e^-1 of them are above the mean: 36 788 of 100 000.
        let above = numbers.iter().filter(|&&n| n > 1 << 32).count();
        assert!(above.abs_diff(36_788) < 600, "{above}");
    }
}
