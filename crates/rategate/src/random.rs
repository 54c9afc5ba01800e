//! Random ids that are unique across processes. No other module reads the system's randomness.

/// Returns 128 bits that no other call returns, in this process or another.
///
/// A forked child counts as another process.
///
/// The seeds of the standard library's hashers do not suffice: a thread takes them once and then
/// counts, so a forked child counts on from the same number.
pub(crate) fn random_id() -> [u8; 16] {
    let mut id = [0; 16];
    fill(&mut id);
    id
}

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
fn fill(id: &mut [u8; 16]) {
    if getrandom::fill(id).is_err() {
        // On a system without a source of randomness the process id tells a child from its
        // parent.
        *id = by_hashers(std::process::id());
    }
}

/// Fills `id` on a target that has no source of randomness, and no fork.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
fn fill(id: &mut [u8; 16]) {
    *id = by_hashers(0);
}

fn by_hashers(process: u32) -> [u8; 16] {
    use std::hash::{BuildHasher, RandomState};
    let word = |half: u32| u128::from(RandomState::new().hash_one((process, half)));
    (word(0) << 64 | word(1)).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{by_hashers, random_id};

    #[test]
    fn names_differ() {
        let names: HashSet<_> = (0..1_000).flat_map(|_| [random_id(), by_hashers(1)]).collect();
        assert_eq!(names.len(), 2_000);
    }
}
