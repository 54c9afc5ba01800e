//! Digests of ids, and of the counters of an operation.
//!
//! They are part of a file of counters, with their key: so they are SipHash of bytes that are
//! written out here. What the standard library hashes by, and which bytes it takes of a value, may
//! change with its version and differs between machines.

use std::hash::Hasher;
use std::sync::{Arc, OnceLock};

use siphasher::sip::SipHasher13;

use crate::engine::request::{Inline, Target, Verb};
use crate::engine::unique_id::UniqueId;

/// A hash function with a random key, which is drawn or restored before the first digest.
#[derive(Clone, Debug, Default)]
pub(super) struct Digests(Arc<OnceLock<[u64; 2]>>);

impl Digests {
    /// Returns the key.
    pub(super) fn key(&self) -> [u64; 2] {
        let drawn = || {
            let number = u128::from_be_bytes(UniqueId::random().0);
            [number >> u64::BITS, number & u128::from(u64::MAX)]
                .map(|half| u64::try_from(half).unwrap_or(0))
        };
        *self.0.get_or_init(drawn)
    }

    /// Sets the key of an earlier process. Returns `false` if another is in use.
    pub(super) fn restore(&self, key: [u64; 2]) -> bool {
        *self.0.get_or_init(|| key) == key
    }

    fn hasher(&self) -> SipHasher13 {
        let [first, second] = self.key();
        SipHasher13::new_with_keys(first, second)
    }

    /// Returns the digest of an id.
    pub(super) fn of_id(&self, id: UniqueId) -> u64 {
        let mut hasher = self.hasher();
        hasher.write(&id.0);
        hasher.finish()
    }

    /// Returns the digest, of 32 bits, of an operation: its verb, unless it is on a reservation,
    /// and its counters in their order.
    pub(super) fn of_operation<'a>(
        &self,
        verb: Option<Verb>,
        targets: impl Iterator<Item = &'a Target<'a>>,
    ) -> u64 {
        let mut fed = Fed(self.hasher());
        fed.number(verb.map_or(0, number_of));
        for target in targets {
            fed.target(target);
        }
        // As much as is kept of it.
        fed.0.finish() & u64::from(u32::MAX)
    }
}

/// A hash function that is fed numbers, as 8 bytes in little-endian order, and texts, as their
/// length and their bytes. So no two lists of them are the same bytes.
struct Fed(SipHasher13);

impl Fed {
    fn number(&mut self, number: u64) {
        self.0.write(&number.to_le_bytes());
    }

    fn length(&mut self, length: usize) {
        self.number(u64::try_from(length).unwrap_or(u64::MAX));
    }

    fn text(&mut self, text: &[u8]) {
        self.length(text.len());
        self.0.write(text);
    }

    fn target(&mut self, target: &Target<'_>) {
        match target {
            Target::Rule { name, values } => {
                self.number(0);
                self.text(name.as_bytes());
                self.length(values.len());
                values.iter().for_each(|value| self.text(value));
            }
            Target::Descriptor { domain, entries, limit } => {
                self.number(1);
                self.text(domain.as_bytes());
                self.length(entries.len());
                for (key, value) in *entries {
                    self.text(key);
                    self.text(value);
                }
                // No unit has the number 0.
                let (unit, permits) =
                    limit.map_or((0, 0), |limit| (limit.unit.number(), limit.permits));
                self.number(unit.into());
                self.number(permits);
            }
            Target::Inline { limit: Inline { capacity, count, period_ns }, key } => {
                self.number(2);
                for number in [capacity, count, period_ns] {
                    self.number(*number);
                }
                self.text(key);
            }
        }
    }
}

/// Returns the number of a verb in the digests. None is 0.
const fn number_of(verb: Verb) -> u64 {
    match verb {
        Verb::Take => 1,
        Verb::Peek => 2,
        Verb::Charge => 3,
        Verb::Refund => 4,
        Verb::Reset => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Override;
    use crate::rule::Unit;

    /// Digests of files that were written earlier, as another implementation of SipHash has them of
    /// the same bytes.
    #[test]
    fn digests_stay_as_they_are() {
        let digests = Digests::default();
        assert!(digests.restore([1, 2]) && digests.restore([1, 2]) && !digests.restore([1, 3]));
        assert_eq!(digests.key(), [1, 2]);
        let rule = Target::Rule { name: "tokens", values: &[b"42"] };
        let limit = Some(Override { permits: 10, unit: Unit::Hour });
        let entries = [(&b"user"[..], &b"42"[..])];
        let descriptor = Target::Descriptor { domain: "edge", entries: &entries, limit };
        let inline = Inline { capacity: 1, count: 2, period_ns: 3 };
        let inline = Target::Inline { limit: inline, key: b"x" };
        let all = [rule, descriptor, inline];
        let of_one = |target| digests.of_operation(None, [target].iter());
        assert_eq!(digests.of_id(UniqueId([7; 16])), 1_409_153_328_268_603_580);
        let of = |verb| digests.of_operation(verb, all.iter());
        assert_eq!((of(None), of(Some(Verb::Charge))), (485_140_459, 1_823_208_188));
        assert_eq!(all.map(of_one), [4_125_925_535, 174_878_373, 2_803_079_545]);
    }

    #[test]
    fn operations_whose_texts_are_split_otherwise_differ() {
        let digests = Digests::default();
        let of = |name, values| digests.of_operation(None, [Target::Rule { name, values }].iter());
        let all = [
            of("ab", &[b"c"]),
            of("a", &[b"bc"]),
            of("a", &[b"b", b"c"]),
            of("a", &[b"bc", b""]),
            of("a", &[]),
        ];
        let different: std::collections::HashSet<_> = all.into_iter().collect();
        assert_eq!(different.len(), all.len());
    }
}
