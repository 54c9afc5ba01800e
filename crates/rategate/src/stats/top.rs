//! The heaviest keys of a stream, in bounded memory.
//!
//! The sketch is our own: it says how far each count may be off, after a merge too, and that is
//! what its reports promise.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;

use super::limit::cut;

/// The most keys that a sketch keeps.
pub const MAX_RANKED: usize = 4096;

/// The heaviest keys of a stream, by a space-saving sketch (Metwally, Agrawal and El Abbadi,
/// 2005).
///
/// It keeps a fixed number of keys with a count each, however many the stream has. A new key
/// replaces the lightest one and inherits its count, because it may have been in the stream
/// before: its count may be wrong by that much, and the sketch reports so. With `k` keys and
/// weights of `W` in all:
///
/// * `count - error <= true weight <= count` for each key in the sketch;
/// * no other key has more than [`floor`](Self::floor), which is at most `W / k`;
/// * so every key with more than `W / k` is in the sketch.
///
/// It is a pure function of its input, without a clock or chance. Numbers saturate at
/// `2^64 - 1`.
///
/// ```
/// use rategate::stats::Top;
///
/// let mut top = Top::new(2);
/// for key in ["a", "b", "a", "c", "a"] {
///     top.add(key, 1);
/// }
/// let ranked = top.ranked();
/// assert_eq!((ranked[0].key, ranked[0].count, ranked[0].error), ("a", 3, 0));
/// assert_eq!((ranked[1].key, ranked[1].count, ranked[1].error), ("c", 2, 1));
/// ```
///
/// # Cost
///
/// `O(log k)` for each call of [`add`](Self::add), and about 100 bytes for each key besides its
/// name.
#[derive(Clone, Debug)]
pub struct Top<K> {
    max_keys: usize,
    total: u64,
    /// The most weight that a key absent here may have had in sketches that were merged.
    missed: u64,
    slots: Vec<Slot<K>>,
    /// Indices into `slots`, as a heap: no count is above those of its two children.
    heap: Vec<usize>,
    slot_indexes: HashMap<K, usize>,
}

/// A key of a sketch, with the bounds of its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ranked<K> {
    /// The key.
    pub key: K,
    /// The name of the key, if it was set.
    pub name: Option<Box<str>>,
    /// The upper bound of its weight.
    pub count: u64,
    /// The part of the count that may not be its own.
    pub error: u64,
}

#[derive(Clone, Debug)]
struct Slot<K> {
    ranked: Ranked<K>,
    /// The position in the heap.
    at: usize,
}

impl<K: Copy + Eq + Hash> Top<K> {
    /// Creates an empty sketch of at most `max_keys` keys, from 1 to [`MAX_RANKED`].
    #[must_use]
    pub fn new(max_keys: usize) -> Self {
        let max_keys = max_keys.clamp(1, MAX_RANKED);
        let (slots, heap, slot_indexes) = (Vec::new(), Vec::new(), HashMap::new());
        Self { max_keys, total: 0, missed: 0, slots, heap, slot_indexes }
    }

    /// Adds to the weight of a key. A weight of zero adds nothing.
    pub fn add(&mut self, key: K, weight: u64) {
        self.count(key, weight);
    }

    /// Returns the weight of all keys together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the most weight that a key absent from the sketch can have.
    #[must_use]
    pub fn floor(&self) -> u64 {
        let lightest = self.heap.first().filter(|_| self.slots.len() >= self.max_keys);
        lightest.map_or(0, |&slot_index| self.count_in(slot_index)).max(self.missed)
    }

    /// Returns the keys, the heaviest first.
    #[must_use]
    pub fn ranked(&self) -> Vec<Ranked<K>> {
        let mut ranked: Vec<Ranked<K>> =
            self.slots.iter().map(|slot| slot.ranked.clone()).collect();
        // Of two keys with one count, the more certain comes first.
        ranked.sort_by_key(|ranked| (Reverse(ranked.count), ranked.error));
        ranked
    }

    /// Adds the data of another sketch, and keeps the heaviest keys of both.
    ///
    /// The method is that of Agarwal and others ("Mergeable summaries", 2012). The bounds of each
    /// sketch then hold for the sum; if `other` keeps fewer keys, its own `W / k` applies to its
    /// data.
    pub fn merge(&mut self, other: &Self) {
        let (own_floor, others_floor) = (self.floor(), other.floor());
        let mut all: Vec<Ranked<K>> = Vec::new();
        for slot in &self.slots {
            let mut ranked = slot.ranked.clone();
            match other.get(&ranked.key) {
                Some(same) => {
                    ranked.count = ranked.count.saturating_add(same.count);
                    ranked.error = ranked.error.saturating_add(same.error);
                    ranked.name = ranked.name.or_else(|| same.name.clone());
                }
                None => ranked.lift(others_floor),
            }
            all.push(ranked);
        }
        for slot in other.slots.iter().filter(|slot| self.get(&slot.ranked.key).is_none()) {
            let mut ranked = slot.ranked.clone();
            ranked.lift(own_floor);
            all.push(ranked);
        }
        all.sort_by_key(|ranked| (Reverse(ranked.count), ranked.error));
        // No key cut off is heavier than one that stays.
        all.truncate(self.max_keys);
        self.missed = own_floor.saturating_add(others_floor);
        self.total = self.total.saturating_add(other.total);
        self.refill(all);
    }

    /// Adds to the weight of a key. Returns `true` if it was here before and has no name.
    pub(super) fn count(&mut self, key: K, weight: u64) -> bool {
        if weight == 0 {
            return false;
        }
        self.total = self.total.saturating_add(weight);
        if let Some(slot) =
            self.slot_indexes.get(&key).and_then(|&slot_index| self.slots.get_mut(slot_index))
        {
            slot.ranked.count = slot.ranked.count.saturating_add(weight);
            let (at, is_nameless) = (slot.at, slot.ranked.name.is_none());
            self.sink(at);
            return is_nameless;
        }
        let error = self.floor();
        let ranked = Ranked { key, name: None, count: error.saturating_add(weight), error };
        if self.slots.len() < self.max_keys {
            self.append(ranked);
        } else {
            self.replace_lightest(ranked);
        }
        false
    }

    /// Sets the name of a key, if it is in the sketch and has none.
    pub(super) fn set_name(&mut self, key: &K, name: &str) {
        if let Some(slot) =
            self.slot_indexes.get(key).and_then(|&slot_index| self.slots.get_mut(slot_index))
        {
            slot.ranked.name.get_or_insert_with(|| cut(name).into());
        }
    }

    fn get(&self, key: &K) -> Option<&Ranked<K>> {
        Some(&self.slots.get(*self.slot_indexes.get(key)?)?.ranked)
    }

    fn append(&mut self, ranked: Ranked<K>) {
        let slot_index = self.slots.len();
        self.slot_indexes.insert(ranked.key, slot_index);
        self.slots.push(Slot { ranked, at: slot_index });
        self.heap.push(slot_index);
        self.rise(slot_index);
    }

    fn replace_lightest(&mut self, ranked: Ranked<K>) {
        let Some(&slot_index) = self.heap.first() else { return };
        let Some(slot) = self.slots.get_mut(slot_index) else { return };
        self.slot_indexes.remove(&slot.ranked.key);
        self.slot_indexes.insert(ranked.key, slot_index);
        slot.ranked = ranked;
        self.sink(0);
    }

    /// Replaces all keys by these, the heaviest first.
    fn refill(&mut self, all: Vec<Ranked<K>>) {
        self.slots.clear();
        self.heap.clear();
        self.slot_indexes.clear();
        // In rising order, they form a heap as they are.
        for ranked in all.into_iter().rev() {
            self.append(ranked);
        }
    }

    /// Moves a key that has become heavier away from the top of the heap.
    fn sink(&mut self, mut at: usize) {
        loop {
            let left = at.saturating_mul(2).saturating_add(1);
            let right = left.saturating_add(1);
            let lighter = if self.count_at(right) < self.count_at(left) { right } else { left };
            if self.count_at(lighter) >= self.count_at(at) {
                return;
            }
            self.swap(at, lighter);
            at = lighter;
        }
    }

    /// Moves a new key towards the top of the heap.
    fn rise(&mut self, mut at: usize) {
        while let Some(above) = at.checked_sub(1).map(|at| at >> 1) {
            if self.count_at(above) <= self.count_at(at) {
                return;
            }
            self.swap(at, above);
            at = above;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for at in [one, other] {
            if let Some(slot) =
                self.heap.get(at).and_then(|&slot_index| self.slots.get_mut(slot_index))
            {
                slot.at = at;
            }
        }
    }

    /// Returns the count at a heap position; past the end it is the maximum.
    fn count_at(&self, at: usize) -> u64 {
        self.heap.get(at).map_or(u64::MAX, |&slot_index| self.count_in(slot_index))
    }

    fn count_in(&self, slot_index: usize) -> u64 {
        self.slots.get(slot_index).map_or(u64::MAX, |slot| slot.ranked.count)
    }
}

impl<K> Ranked<K> {
    /// Adds the weight that the key may have had where it was not kept.
    const fn lift(&mut self, floor: u64) {
        self.count = self.count.saturating_add(floor);
        self.error = self.error.saturating_add(floor);
    }
}
