//! Keys of counters: bytes, encoded so that different lists of values never collide.

use std::sync::Arc;

use smallvec::SmallVec;

/// The key of a counter; short keys are on the stack.
pub(super) type Key = SmallVec<[u8; 104]>;

/// Returns the key of a rule's counter: a single value as it is, or several with their lengths,
/// so that lists never collide.
pub(super) fn of_values<'a>(values: impl Iterator<Item = &'a [u8]>, count: usize) -> Key {
    let mut key = Key::new();
    for value in values {
        if count > 1 {
            key.extend_from_slice(&length(value));
        }
        key.extend_from_slice(value);
    }
    key
}

/// Returns the key in a store that several rules share: the rule's name is its prefix.
pub(super) fn in_store(rule: &str, key: &[u8]) -> Arc<[u8]> {
    [length(rule.as_bytes()).as_slice(), rule.as_bytes(), key].concat().into()
}

/// Returns the length prefix of `bytes`. Every protocol limits values to far less than 4 GiB.
fn length(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Covers all lists of two or three values of up to two letters, zero bytes among them.
    #[test]
    fn no_two_lists_of_values_meet() {
        let letters: [&[u8]; 3] = [b"\0", b"\x01", b"a"];
        let pairs = letters.iter().flat_map(|one| letters.iter().map(|two| [*one, *two].concat()));
        let mut words: Vec<Vec<u8>> = pairs.collect();
        words.extend(letters.map(<[u8]>::to_vec));
        words.push(Vec::new());
        let key = |values: &[&Vec<u8>]| {
            of_values(values.iter().map(|value| value.as_slice()), values.len())
        };
        let (mut twos, mut threes) = (HashMap::new(), HashMap::new());
        for one in &words {
            assert_eq!(key(&[one]).as_slice(), one.as_slice(), "one value is its own key");
            for two in &words {
                assert_eq!(twos.insert(key(&[one, two]), [one, two]), None);
                for three in &words {
                    assert_eq!(threes.insert(key(&[one, two, three]), [one, two, three]), None);
                }
            }
        }
    }

    #[test]
    fn rules_of_a_store_keep_apart() {
        assert_ne!(in_store("a", b"bc"), in_store("ab", b"c"));
        assert_ne!(in_store("a", b""), in_store("", b"a"));
        assert_eq!(&*in_store("a", b"b"), b"\x01\0\0\0ab", "stored keys have this form");
    }
}
