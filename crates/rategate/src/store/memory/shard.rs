//! A share of the store's keys, and their admission and eviction.
//!
//! Every new key examines a few of the old ones, in rotation, and evicts those that have fully
//! recovered. So the cost of a call does not grow with the number of keys.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::entry::Entry;
use super::entry::reservations::{InFlight, Moved};
use super::reserve::IdCapacity;
use crate::store::{Key, ReservationId, StoreError, Unavailable};

/// The number of keys that each new one examines for eviction.
const CHECKS: usize = 2;
/// The number of keys that a new one examines in a full shard.
const CHECKS_WHEN_FULL: usize = 64;
/// The maximum number of ids that one call forgets.
const FORGOTTEN_AT_ONCE: usize = 64;

/// A share of the store's keys.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    entries: HashMap<Key, Entry>,
    /// All keys, in the order in which they are examined for eviction.
    sweep_queue: VecDeque<Key>,
    /// The newest reading of the clock.
    latest_ns: u64,
    max_keys: usize,
    /// The number of resets and losses of data.
    era: u64,
    /// All ids of reservations, with their keys, by the instants from which they are forgotten.
    ids: BTreeSet<(u64, ReservationId, Key)>,
}

impl Shard {
    pub(super) fn new(max_keys: usize) -> Self {
        Self {
            entries: HashMap::new(),
            sweep_queue: VecDeque::new(),
            latest_ns: 0,
            max_keys,
            era: 0,
            ids: BTreeSet::new(),
        }
    }

    /// Returns to an earlier state, or to an empty one.
    ///
    /// The clock keeps its reading, and earlier grants can no longer be refunded.
    pub(super) fn rewind(&mut self, epoch: Option<&Self>, capacity: &IdCapacity) {
        let (era, forgotten) = (self.next_era(), self.ids.len());
        let (latest_ns, max_keys) = (self.latest_ns, self.max_keys);
        let epoch = epoch.cloned().unwrap_or_else(|| Self::new(max_keys));
        *self = Self { latest_ns, max_keys, era, ..epoch };
        self.entries.values_mut().for_each(|entry| entry.begin(era));
        capacity.replace(forgotten, self.ids.len());
    }

    pub(super) fn keys(&self) -> usize {
        self.entries.len()
    }

    /// Adds the reservations of permits in flight that last.
    pub(super) fn add_in_flight(&self, to: &mut Vec<InFlight>) {
        for (key, entry) in &self.entries {
            entry.add_in_flight(key, self.latest_ns, to);
        }
    }

    /// Advances to a reading of the clock, and returns the newest: going back earns nothing.
    pub(super) fn pass_to(&mut self, now_ns: u64) -> u64 {
        self.latest_ns = self.latest_ns.max(now_ns);
        self.latest_ns
    }

    /// Returns the entry of a key.
    pub(super) fn entry(&mut self, key: &Key) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(key)?;
        entry.end_holds(self.latest_ns);
        Some(entry)
    }

    /// Adds a key that has been used for the first time.
    ///
    /// # Errors
    ///
    /// [`Unavailable::Full`] if there is no capacity: nothing is added.
    pub(super) fn remember(&mut self, key: Key, entry: Entry) -> Result<(), StoreError> {
        let is_full = self.entries.len() >= self.max_keys;
        self.evict_some(if is_full { CHECKS_WHEN_FULL } else { CHECKS });
        if self.entries.len() >= self.max_keys {
            let why = format!("the store is full: one shard has {} keys in use", self.keys());
            return Err(StoreError::Unavailable(Unavailable::Full(why)));
        }
        self.sweep_queue.push_back(Key::clone(&key));
        self.entries.insert(key, entry);
        Ok(())
    }

    /// Records the instant from which a new id of a key is forgotten.
    pub(super) fn note_id(&mut self, key: &Key, id: ReservationId, due_ns: u64) {
        self.ids.insert((due_ns, id, Key::clone(key)));
    }

    /// Records a change of that instant.
    pub(super) fn move_id(
        &mut self,
        key: &Key,
        id: ReservationId,
        moved: Moved,
        capacity: &IdCapacity,
    ) {
        self.ids.remove(&(moved.from_ns, id, Key::clone(key)));
        match moved.to_ns {
            Some(to_ns) => self.note_id(key, id, to_ns),
            None => capacity.replace(1, 0),
        }
    }

    /// Forgets an id of a key, if the time of its memory is over.
    pub(super) fn forget_over(&mut self, key: &Key, id: ReservationId, capacity: &IdCapacity) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if let Some(due_ns) = entry.due_ns(id).filter(|&due_ns| due_ns <= self.latest_ns) {
            entry.forget(id);
            self.ids.remove(&(due_ns, id, Key::clone(key)));
            capacity.replace(1, 0);
        }
    }

    /// Forgets ids the time of whose memory is over, a bounded number of them.
    pub(super) fn forget_ids(&mut self, capacity: &IdCapacity) {
        let known = self.ids.len();
        for _ in 0..FORGOTTEN_AT_ONCE {
            let is_over = |(due_ns, ..): &(u64, ReservationId, Key)| *due_ns <= self.latest_ns;
            if !self.ids.first().is_some_and(is_over) {
                break;
            }
            let Some((_, id, key)) = self.ids.pop_first() else { break };
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.forget(id);
            }
        }
        capacity.replace(known, self.ids.len());
    }

    /// Returns the entry of a key that was never used.
    pub(super) const fn unused(&self) -> Entry {
        Entry::unused(self.era)
    }

    /// Returns a new era number.
    pub(super) fn next_era(&mut self) -> u64 {
        self.era = self.era.saturating_add(1);
        self.era
    }

    fn evict_some(&mut self, checks: usize) {
        for _ in 0..checks.min(self.sweep_queue.len()) {
            let Some(key) = self.sweep_queue.pop_front() else { return };
            let is_over = |entry: &mut Entry| entry.may_be_evicted(self.latest_ns);
            if self.entries.get_mut(&key).is_none_or(is_over) {
                self.entries.remove(&key);
            } else {
                self.sweep_queue.push_back(key);
            }
        }
    }
}
