//! The numbers of keys and bytes of a table, and its bounds.

use std::sync::PoisonError;

use crate::clock::Clock;
use crate::keyed::capacity::Capacity;
use crate::keyed::key::Id;
use crate::keyed::slots::Slots;
use crate::sync::Ordering;

use super::Table;

impl<I: Id, C: Clock> Table<I, C> {
    pub(in crate::keyed) fn keys(&self) -> usize {
        usize::try_from(self.tally.keys.0.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    pub(in crate::keyed) fn overflows(&self) -> u64 {
        self.tally.overflows.0.load(Ordering::Relaxed)
    }

    pub(in crate::keyed) const fn capacity(&self) -> Capacity {
        self.capacity
    }

    pub(in crate::keyed) fn heap_bytes(&self) -> usize {
        usize::try_from(self.tally.heap_bytes.0.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Returns the bytes that the whole table takes.
    pub(in crate::keyed) fn bytes(&self) -> usize {
        let entries = self
            .shards
            .iter()
            .map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).bytes());
        let slots = self.slots.as_ref().map_or(0, Slots::bytes);
        let shards = size_of_val(&*self.shards);
        entries
            .fold(slots.saturating_add(shards), usize::saturating_add)
            .saturating_add(self.heap_bytes())
    }

    /// Counts one more key, if there is capacity.
    pub(in crate::keyed) fn count_key(&self) -> bool {
        let max_keys = u64::try_from(self.capacity.max_keys).unwrap_or(u64::MAX);
        let one_more = |keys: u64| (keys < max_keys).then(|| keys.saturating_add(1));
        self.tally.keys.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Sweeps a shard's slots if their values are about to become ambiguous.
    ///
    /// Called with the shard's lock held. Returns the shard's time.
    pub(in crate::keyed) fn fresh_slots(&self, shard: usize, now_ns: u64) -> u64 {
        let Some(slots) = &self.slots else { return now_ns };
        let now_ns = slots.not_before_sweep(shard, now_ns);
        if slots.needs_sweep(shard, now_ns) {
            self.uncount_keys(slots.sweep(shard, now_ns));
        }
        now_ns
    }

    pub(in crate::keyed) fn uncount_keys(&self, keys: usize) {
        if keys > 0 {
            let keys = u64::try_from(keys).unwrap_or(u64::MAX);
            self.tally.keys.0.fetch_sub(keys, Ordering::Relaxed);
        }
    }

    pub(in crate::keyed) fn is_full_of_keys(&self) -> bool {
        self.keys() >= self.capacity.max_keys
    }

    pub(in crate::keyed) fn is_full_of_bytes(&self) -> bool {
        self.heap_bytes() >= self.capacity.max_bytes
    }

    pub(in crate::keyed) fn is_full_of_bytes_with(&self, more: usize) -> bool {
        more > 0 && self.heap_bytes().saturating_add(more) > self.capacity.max_bytes
    }

    pub(in crate::keyed) fn account(&self, before: usize, after: usize) {
        let word = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        if after > before {
            self.tally.heap_bytes.0.fetch_add(word(after.wrapping_sub(before)), Ordering::Relaxed);
        } else if before > after {
            self.tally.heap_bytes.0.fetch_sub(word(before.wrapping_sub(after)), Ordering::Relaxed);
        }
    }
}
