//! The sequence of keys that a load uses.

use fastrand::Rng;

/// The number of digits of a key.
pub(crate) const DIGITS: usize = 8;

/// The number of parts of a shuffled sequence.
const PARTS: u64 = 16;
/// A step through the keys in a shuffled sequence. Powers of ten have no factor of it, so that it
/// meets all of them.
const STEP: u64 = 61_803_399;

/// A sequence of keys by number.
#[derive(Debug)]
pub(crate) struct KeySequence {
    order: Order,
    keys: u64,
    left: u64,
}

#[derive(Debug)]
enum Order {
    /// Uniformly random.
    Random(Rng),
    /// One after the other, and again from the first.
    RoundRobin(u64),
    /// Each once, in an order that looks random.
    Shuffled(u64),
    Same(u64),
}

impl KeySequence {
    /// Returns a sequence over `keys` keys, until it is ended.
    pub(crate) fn uniform(keys: u64, seed: u64) -> Self {
        Self { order: Order::Random(Rng::with_seed(seed)), keys, left: u64::MAX }
    }

    /// Returns the part `number` of sixteen of these keys, until it is ended. No key comes twice, in
    /// all parts together.
    pub(crate) fn shuffled(keys: u64, number: u64) -> Self {
        let part = keys / PARTS;
        Self { order: Order::Shuffled(number * part), keys, left: part }
    }

    /// Returns a sequence of all these keys, each `times` times.
    pub(crate) fn each(keys: u64, times: u64) -> Self {
        Self { order: Order::RoundRobin(0), keys, left: keys * times }
    }

    /// Returns a sequence of this key alone, `times` times.
    pub(crate) fn one(key: u64, times: u64) -> Self {
        Self { order: Order::Same(key), keys: 1, left: times }
    }

    pub(crate) fn end(&mut self) {
        self.left = 0;
    }

    /// Returns the number of the next key, in digits.
    #[inline]
    pub(crate) fn key(&mut self) -> Option<[u8; DIGITS]> {
        self.left = self.left.checked_sub(1)?;
        let key = match &mut self.order {
            Order::Random(random) => random.u64(..self.keys),
            Order::Same(key) => *key,
            Order::Shuffled(next) => {
                let key = *next * STEP % self.keys;
                *next += 1;
                key
            }
            Order::RoundRobin(next) => {
                let key = *next;
                *next = if key + 1 == self.keys { 0 } else { key + 1 };
                key
            }
        };
        Some(digits(key))
    }
}

#[inline]
fn digits(mut number: u64) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    digits
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{KeySequence, PARTS};

    #[test]
    fn each_key_comes_so_often_and_drawn_ones_stay_within_bounds() {
        let mut key_sequence = KeySequence::each(3, 2);
        let keys: Vec<_> = std::iter::from_fn(|| key_sequence.key()).map(|key| key[7]).collect();
        assert_eq!(keys, b"012012");
        let mut key_sequence = KeySequence::uniform(1_000, 5);
        assert!((0..10_000).all(|_| key_sequence.key().is_some_and(|key| key < *b"00001000")));
        key_sequence.end();
        assert_eq!(key_sequence.key(), None);
        let parts = (0..PARTS).map(|number| KeySequence::shuffled(1_600, number));
        let keys = parts.flat_map(|mut part| std::iter::from_fn(move || part.key()));
        let all: BTreeSet<_> = keys.collect();
        assert_eq!(all.len(), 1_600);
    }
}
