//! The heaviest keys of a stream, in a room that does not grow.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;

use super::limit::cut;

/// The most keys that a sketch keeps.
pub const MOST_RANKED: usize = 4096;

/// The heaviest keys of a stream, by a space-saving sketch (Metwally, Agrawal and El Abbadi, 2005): so
/// many keys with a count each, whatever the stream holds.
///
/// A key that is not there takes the place of the lightest one, and its count too, because it may have
/// been there before: that much may be wrong with it, and the sketch says so. So with `k` keys and weights
/// of `W` in all:
///
/// * `count - error <= true weight <= count` for each key that is there;
/// * no other key has more than [`floor`](Self::floor), which is at most `W / k`;
/// * so every key with more than `W / k` is there.
///
/// It is a pure function of what it was given: no clock, no chance. Numbers stop at `2^64 - 1`.
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
/// `O(log k)` for each call of [`add`](Self::add), and about 100 bytes for each key besides its name.
#[derive(Clone, Debug)]
pub struct Top<K> {
    most: usize,
    total: u64,
    /// The most that a key may have had in sketches that were merged, which is not here.
    missed: u64,
    slots: Vec<Slot<K>>,
    /// Places in `slots`: the count of none is above that of its two children.
    heap: Vec<usize>,
    places: HashMap<K, usize>,
}

/// A key in the order of its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranked<K> {
    /// The key.
    pub key: K,
    /// What it is called, where somebody has said so.
    pub name: Option<Box<str>>,
    /// Its weight at most.
    pub count: u64,
    /// How much of that it may not have had.
    pub error: u64,
}

#[derive(Clone, Debug)]
struct Slot<K> {
    ranked: Ranked<K>,
    /// Where in the heap it is.
    at: usize,
}

impl<K: Copy + Eq + Hash> Top<K> {
    /// An empty sketch of at most `most` keys, from 1 to [`MOST_RANKED`].
    #[must_use]
    pub fn new(most: usize) -> Self {
        let most = most.clamp(1, MOST_RANKED);
        let (slots, heap, places) = (Vec::new(), Vec::new(), HashMap::new());
        Self { most, total: 0, missed: 0, slots, heap, places }
    }

    /// Adds to the weight of a key. A weight of zero adds nothing.
    pub fn add(&mut self, key: K, weight: u64) {
        self.count(key, weight);
    }

    /// The weight of all keys together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The most weight that a key can have which is not here.
    #[must_use]
    pub fn floor(&self) -> u64 {
        let lightest = self.heap.first().filter(|_| self.slots.len() >= self.most);
        lightest.map_or(0, |&place| self.count_in(place)).max(self.missed)
    }

    /// The keys, the heaviest first.
    #[must_use]
    pub fn ranked(&self) -> Vec<Ranked<K>> {
        let mut ranked: Vec<Ranked<K>> =
            self.slots.iter().map(|slot| slot.ranked.clone()).collect();
        // Of two that may be as heavy, the one that is so for sure.
        ranked.sort_by_key(|ranked| (Reverse(ranked.count), ranked.error));
        ranked
    }

    /// Adds what another sketch has seen, and keeps the heaviest keys of both (Agarwal and others, 2012,
    /// "Mergeable summaries"). What holds for each alone holds for the sum; if `other` has room for fewer
    /// keys, its own `W / k` counts for what it has seen.
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
        // What is cut off is lighter than what stays.
        all.truncate(self.most);
        self.missed = own_floor.saturating_add(others_floor);
        self.total = self.total.saturating_add(other.total);
        self.refill(all);
    }

    /// Adds to the weight of a key, and returns whether it was here before and has no name.
    pub(super) fn count(&mut self, key: K, weight: u64) -> bool {
        if weight == 0 {
            return false;
        }
        self.total = self.total.saturating_add(weight);
        if let Some(slot) = self.places.get(&key).and_then(|&place| self.slots.get_mut(place)) {
            slot.ranked.count = slot.ranked.count.saturating_add(weight);
            let (at, is_nameless) = (slot.at, slot.ranked.name.is_none());
            self.sink(at);
            return is_nameless;
        }
        let error = self.floor();
        let ranked = Ranked { key, name: None, count: error.saturating_add(weight), error };
        if self.slots.len() < self.most {
            self.append(ranked);
        } else {
            self.replace_lightest(ranked);
        }
        false
    }

    /// Says what a key is called, if it is here and nobody has said so before.
    pub(super) fn set_name(&mut self, key: &K, name: &str) {
        if let Some(slot) = self.places.get(key).and_then(|&place| self.slots.get_mut(place)) {
            slot.ranked.name.get_or_insert_with(|| cut(name).into());
        }
    }

    fn get(&self, key: &K) -> Option<&Ranked<K>> {
        Some(&self.slots.get(*self.places.get(key)?)?.ranked)
    }

    fn append(&mut self, ranked: Ranked<K>) {
        let place = self.slots.len();
        self.places.insert(ranked.key, place);
        self.slots.push(Slot { ranked, at: place });
        self.heap.push(place);
        self.rise(place);
    }

    fn replace_lightest(&mut self, ranked: Ranked<K>) {
        let Some(&place) = self.heap.first() else { return };
        let Some(slot) = self.slots.get_mut(place) else { return };
        self.places.remove(&slot.ranked.key);
        self.places.insert(ranked.key, place);
        slot.ranked = ranked;
        self.sink(0);
    }

    /// Begins anew with these, the heaviest first.
    fn refill(&mut self, all: Vec<Ranked<K>>) {
        self.slots.clear();
        self.heap.clear();
        self.places.clear();
        // The lightest first are a heap as they come.
        for ranked in all.into_iter().rev() {
            self.append(ranked);
        }
    }

    /// Moves what has become heavier away from the top of the heap.
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

    /// Moves a newcomer towards the top of the heap.
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
            if let Some(slot) = self.heap.get(at).and_then(|&place| self.slots.get_mut(place)) {
                slot.at = at;
            }
        }
    }

    /// The count at a place of the heap; past its end nothing is lighter than anything.
    fn count_at(&self, at: usize) -> u64 {
        self.heap.get(at).map_or(u64::MAX, |&place| self.count_in(place))
    }

    fn count_in(&self, place: usize) -> u64 {
        self.slots.get(place).map_or(u64::MAX, |slot| slot.ranked.count)
    }
}

impl<K> Ranked<K> {
    /// Counts what it may have had where it was not kept.
    const fn lift(&mut self, floor: u64) {
        self.count = self.count.saturating_add(floor);
        self.error = self.error.saturating_add(floor);
    }
}
