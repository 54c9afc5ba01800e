//! Operations on all keys of a table: visit them, evict the recovered ones, reset them.

use super::Keyed;
use super::key::{Id, Key, NumberId};
use super::table::Table;
use super::table::section::KeySection;
use crate::clock::Clock;
use crate::error::KeyedError;
use crate::status::Status;

impl<K: Key + ?Sized, C: Clock + Clone> Keyed<K, C> {
    /// Evicts every key whose limit has fully recovered, and not only at this instant.
    ///
    /// The table does so by itself where it needs the slots: see [eviction](Keyed#eviction). This
    /// is for a program that wants the memory of the states back at once, or that counts with
    /// [`len`](Self::len). It locks each shard, one after the other.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::keyed::Capacity;
    /// use rategate::{Gcra, Keyed, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let per_caller: Keyed<u64, _> =
    ///     Keyed::with_clock(Gcra::per_second(1), Capacity::default(), clock.clone());
    /// assert!(per_caller.try_acquire(&7, 1)?.is_granted());
    /// clock.advance(Duration::from_millis(600));
    /// assert!(per_caller.try_acquire(&8, 1)?.is_granted());
    /// clock.advance(Duration::from_millis(600));
    /// per_caller.retain_recent();
    /// assert_eq!(per_caller.len(), 1);
    /// # Ok::<(), rategate::Error>(())
    /// ```
    pub fn retain_recent(&self) {
        (0..self.table.shards()).for_each(|shard| self.table.evict_recovered(shard));
    }

    /// Resets every key: see [`reset`](Self::reset). Returns the number of keys that were used.
    ///
    /// Calls go on meanwhile: a key that is used while this runs may be used afterwards. The limit
    /// that new keys share in a full table stays as it is.
    ///
    /// ```
    /// use rategate::{Gcra, Keyed};
    ///
    /// let per_caller: Keyed<str> = Keyed::new(Gcra::per_hour(2).burst(2));
    /// assert!(per_caller.try_acquire("10.0.0.7", 2)?.is_granted());
    /// assert_eq!(per_caller.clear()?, 1);
    /// assert!(per_caller.try_acquire("10.0.0.7", 2)?.is_granted());
    /// # Ok::<(), rategate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyedError::Closed`] if the limiter of a key has been closed. Keys before it are reset.
    pub fn clear(&self) -> Result<usize, KeyedError> {
        let mut used = 0_usize;
        for shard in 0..self.table.shards() {
            for (id, tier) in self.table.ids(shard) {
                used =
                    used.saturating_add(self.table.reset(&self.table.location(id, tier))?.into());
            }
        }
        Ok(used)
    }
}

impl<K: Key<Id = NumberId> + ?Sized, C: Clock + Clone> Keyed<K, C> {
    /// Iterates over the keys in the table with their status, where keys are numbers.
    ///
    /// Other keys are kept as hashes, and cannot be told. Calls go on meanwhile; each key is read
    /// at some instant between the beginning and the end, and those that come or are evicted in
    /// that time may be missing. A shard's keys are copied at a time, in no order.
    ///
    /// ```
    /// use rategate::{Gcra, Keyed};
    ///
    /// let per_caller: Keyed<u64> = Keyed::new(Gcra::per_hour(10).burst(10));
    /// assert!(per_caller.try_acquire(&7, 4)?.is_granted());
    /// let all: Vec<_> =
    ///     per_caller.iter().map(|(id, status)| (id.number(), status.remaining)).collect();
    /// assert_eq!(all, [(7, 6)]);
    /// # Ok::<(), rategate::Error>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (NumberId, Status)> {
        let ids = (0..self.table.shards()).flat_map(|shard| self.table.ids(shard));
        ids.filter_map(|(id, tier)| {
            let location = self.table.location(id, tier);
            Some((id, self.table.status(&location, self.table.clock.now_ns()).ok()?))
        })
    }
}

impl<I: Id, C: Clock + Clone> Table<I, C> {
    /// Returns the ids of a shard's keys, each with its tier.
    fn ids(&self, shard: usize) -> Vec<(I, usize)> {
        let entries = self.lock(shard);
        let tier_of = |version| entries.policy_versions.get(version).map(|version| version.tier);
        let with_entry = entries.all().iter();
        let mut ids: Vec<_> =
            with_entry.filter_map(|entry| Some((entry.id, tier_of(entry.version)?))).collect();
        if let Some(slots) = &self.slots {
            slots.each(shard, |id, version, _| ids.extend(tier_of(version).map(|tier| (id, tier))));
        }
        ids
    }

    /// Evicts the keys of a shard whose limits have recovered.
    fn evict_recovered(&self, shard: usize) {
        let mut entries = self.lock(shard);
        let now_ns = self.fresh_slots(shard, entries.latest_ns.max(self.clock.now_ns()));
        let mut late = Vec::new();
        if let Some(id) = entries.all().first().map(|entry| entry.id) {
            let location = self.location(id, 0);
            let mut section = KeySection::at(self, &mut entries, location, &mut late);
            section.begin(now_ns);
            section.sweep_all();
        }
        if let Some(slots) = &self.slots {
            self.uncount_keys(slots.sweep(shard, now_ns));
        }
        drop(entries);
        self.update_limiters(late);
    }
}
