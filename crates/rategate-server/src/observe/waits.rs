//! A histogram of the waits of denied items.

use std::num::NonZeroU64;

/// The upper ends of the buckets, in milliseconds. Two more buckets hold longer waits, and items
/// that never fit. From a thousandth of a second to a day, about three for each power of ten.
pub(super) const ENDS_MS: [u64; 16] = [
    1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000,
    21_600_000, 86_400_000,
];

/// The number of buckets: those with an end, longer waits, and never.
pub(super) const BUCKETS: usize = ENDS_MS.len() + 2;

/// Counts by bucket.
pub(super) type Buckets = [u64; BUCKETS];

/// Returns the bucket of a wait.
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
