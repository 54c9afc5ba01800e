//! Some of the keys, and how they come and go.
//!
//! Every new key makes the store look at a few of the old ones, in turn, and forget those that nobody would
//! miss. So the cost of a call does not grow with the keys, and what is over goes as others come.

use std::collections::{HashMap, VecDeque};

use super::entry::Entry;
use crate::store::{Fault, Gone, Key};

/// How many keys are looked at for each new one.
const LOOKS: usize = 2;
/// And where there is no room for it.
const LOOKS_WHEN_FULL: usize = 64;

/// Some of the keys.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    entries: HashMap<Key, Entry>,
    /// All of them, those first that are looked at next.
    lap: VecDeque<Key>,
    /// The newest reading of the clock.
    latest_ns: u64,
    most_keys: usize,
    /// How many resets and losses there were.
    era: u64,
}

impl Shard {
    pub(super) fn new(most_keys: usize) -> Self {
        Self { entries: HashMap::new(), lap: VecDeque::new(), latest_ns: 0, most_keys, era: 0 }
    }

    /// Goes back to what it was, or to nothing. Its clock goes on, and no grant that it may not know of gives
    /// anything back.
    pub(super) fn rewind(&mut self, past: Option<&Self>) {
        let era = self.next_era();
        let (latest_ns, most_keys) = (self.latest_ns, self.most_keys);
        let past = past.cloned().unwrap_or_else(|| Self::new(most_keys));
        *self = Self { latest_ns, most_keys, era, ..past };
        self.entries.values_mut().for_each(|entry| entry.begin(era));
    }

    pub(super) fn keys(&self) -> usize {
        self.entries.len()
    }

    /// The newest reading, this one among them: going back earns nothing.
    pub(super) fn pass_to(&mut self, now_ns: u64) -> u64 {
        self.latest_ns = self.latest_ns.max(now_ns);
        self.latest_ns
    }

    /// What is remembered of a key.
    pub(super) fn entry(&mut self, key: &Key) -> Option<&mut Entry> {
        self.entries.get_mut(key)
    }

    /// Remembers a key that has been used for the first time.
    ///
    /// # Errors
    ///
    /// [`Gone::Full`] if there is no room: nothing is remembered.
    pub(super) fn remember(&mut self, key: Key, entry: Entry) -> Result<(), Fault> {
        let is_full = self.entries.len() >= self.most_keys;
        self.forget_some(if is_full { LOOKS_WHEN_FULL } else { LOOKS });
        if self.entries.len() >= self.most_keys {
            let why = format!("the store is full: {} keys are in use in a part of it", self.keys());
            return Err(Fault::Gone(Gone::Full(why)));
        }
        self.lap.push_back(Key::clone(&key));
        self.entries.insert(key, entry);
        Ok(())
    }

    /// A key that was never used.
    pub(super) const fn unused(&self) -> Entry {
        Entry::unused(self.era)
    }

    /// A number that no reset and no loss before has had.
    pub(super) fn next_era(&mut self) -> u64 {
        self.era = self.era.saturating_add(1);
        self.era
    }

    fn forget_some(&mut self, looks: usize) {
        for _ in 0..looks.min(self.lap.len()) {
            let Some(key) = self.lap.pop_front() else { return };
            let is_over = |entry: &mut Entry| entry.may_be_forgotten(self.latest_ns);
            if self.entries.get_mut(&key).is_none_or(is_over) {
                self.entries.remove(&key);
            } else {
                self.lap.push_back(key);
            }
        }
    }
}
