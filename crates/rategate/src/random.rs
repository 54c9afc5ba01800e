//! Randomness: for waits that should not end together, and for ids that are unique across
//! processes. No other module reads the system's randomness.

use std::hash::{BuildHasher, RandomState};

/// Returns a number from 0 to `max`, all about equally likely.
pub(crate) fn up_to(max: u64) -> u64 {
    let random = RandomState::new().hash_one(max);
    max.checked_add(1).and_then(|numbers| random.checked_rem(numbers)).unwrap_or(random)
}

/// Returns 128 bits that no other call returns, in this process or another.
///
/// A forked child counts as another process.
///
/// The seeds of the standard library's hashers do not suffice: a thread takes them once and then
/// counts, so a forked child counts on from the same number.
#[cfg(feature = "distributed")]
pub(crate) fn random_id() -> [u8; 16] {
    let mut id = [0; 16];
    fill(&mut id);
    id
}

#[cfg(all(feature = "distributed", not(all(target_family = "wasm", target_os = "unknown"))))]
fn fill(id: &mut [u8; 16]) {
    if getrandom::fill(id).is_err() {
        // On a system without a source of randomness the process id tells a child from its
        // parent.
        *id = by_hashers(std::process::id());
    }
}

/// Fills `id` on a target that has no source of randomness, and no fork.
#[cfg(all(feature = "distributed", target_family = "wasm", target_os = "unknown"))]
fn fill(id: &mut [u8; 16]) {
    *id = by_hashers(0);
}

#[cfg(feature = "distributed")]
fn by_hashers(process: u32) -> [u8; 16] {
    let word = |half: u32| u128::from(RandomState::new().hash_one((process, half)));
    (word(0) << 64 | word(1)).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Every number comes, and none above.
    #[test]
    fn numbers_are_within_their_bound() {
        let numbers: HashSet<_> = (0..1_000).map(|_| up_to(9)).collect();
        assert_eq!(numbers, (0..=9).collect());
        assert_eq!(up_to(0), 0);
        assert!((0..100).any(|_| up_to(u64::MAX) > u64::MAX / 2));
    }

    #[cfg(feature = "distributed")]
    #[test]
    fn names_differ() {
        let names: HashSet<_> = (0..1_000).flat_map(|_| [random_id(), by_hashers(1)]).collect();
        assert_eq!(names.len(), 2_000);
    }
}
