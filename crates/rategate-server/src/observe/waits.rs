//! How long whoever is denied has to wait, in so many buckets.

use std::num::NonZeroU64;

/// Upper ends of the buckets, in ms; whoever has to wait longer is in the one after them, and those whom time
/// cannot help in the last. From a thousandth of a second to a day, about three to each power of ten.
pub(super) const ENDS_MS: [u64; 16] = [
    1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000,
    21_600_000, 86_400_000,
];

/// How many buckets there are: those with an end, the longer ones, and never.
pub(super) const BUCKETS: usize = ENDS_MS.len() + 2;

/// Counts by bucket.
pub(super) type Buckets = [u64; BUCKETS];

/// Which bucket a wait is in.
#[inline]
pub(super) fn bucket_of(retry_after_ns: Option<NonZeroU64>) -> usize {
    match retry_after_ns {
        None => BUCKETS - 1,
        Some(wait) => {
            let wait_ms = wait.get().div_ceil(1_000_000);
            ENDS_MS.partition_point(|&end| end < wait_ms)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_in_the_first_bucket_that_does_not_end_before_it() {
        let bucket = |ns| bucket_of(NonZeroU64::new(ns));
        assert_eq!((bucket(1), bucket(1_000_000), bucket(1_000_001)), (0, 0, 1));
        assert_eq!((bucket(86_400_000_000_000), bucket(86_400_000_000_001)), (15, 16));
        assert_eq!((bucket(u64::MAX), bucket(0)), (16, 17), "no wait at all: time cannot help");
    }
}
