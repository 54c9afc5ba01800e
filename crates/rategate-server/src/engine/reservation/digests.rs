//! Digests of ids, and of the counters of an operation.
//!
//! They are part of a file of counters, with their key: so they are SipHash of bytes that a test
//! keeps as they are, and not what the standard library hashes by.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use siphasher::sip::SipHasher13;

use crate::engine::request::{Target, Verb};
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
        let mut hasher = self.hasher();
        verb.hash(&mut hasher);
        for target in targets {
            match target {
                Target::Rule { name, values } => (0_u8, name, values).hash(&mut hasher),
                Target::Descriptor { domain, entries, limit } => {
                    (1_u8, domain, entries, limit).hash(&mut hasher);
                }
                Target::Inline { limit, key } => (2_u8, limit, key).hash(&mut hasher),
            }
        }
        // As much as is kept of it.
        hasher.finish() & u64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use rategate_protocol::rls::{Override, Unit};

    use super::*;
    use crate::engine::request::Inline;

    /// Digests of files that were written earlier.
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
        assert_eq!(digests.of_id(UniqueId([7; 16])), 1_409_153_328_268_603_580);
        let of = |verb| digests.of_operation(verb, all.iter());
        assert_eq!((of(None), of(Some(Verb::Charge))), (1_335_686_356, 2_874_640_202));
    }
}
