//! The states behind a shard's lock.
//!
//! They are in one vector, so that a sweep continues where the last one ended, and are found by
//! an index of their hashes.

use std::fmt;
use std::sync::Arc;

use hashbrown::HashTable;
use rategate_core::concurrent::{Concurrent, Twinned};
use rategate_core::ledger::Ledger;

use super::key::private::Words;
use super::lap::Lap;
use super::plans::{Plan, Plans};
use super::slots::mark;
use crate::limiter::Limiter;

/// The approximate bytes of a key's limiter: itself, its clock, its cancellation token.
pub(super) const LIMITER_BYTES: usize = 2_048;

/// The number of entries above which half of all unknown keys would share a mark with one.
const FEW: usize = 32;

/// The part of a shard that its lock guards.
#[derive(Debug)]
pub(super) struct Entries<I, P: Twinned, C>
where
    Ledger<P>: Concurrent,
{
    /// The policies in force in this shard. A change reaches the shards one after another.
    pub(super) plans: Arc<Plans<P>>,
    rows: Vec<Entry<I, P, C>>,
    places: HashTable<u32>,
    cursor: usize,
    /// The search for slots to free.
    pub(super) lap: Lap,
    /// The latest reading of the clock.
    pub(super) latest_ns: u64,
}

/// A key behind the lock.
#[derive(Debug)]
pub(super) struct Entry<I, P: Twinned, C>
where
    Ledger<P>: Concurrent,
{
    pub(super) id: I,
    pub(super) hash: u64,
    pub(super) plan: u8,
    /// `true` if a sealed slot is reserved for the key.
    pub(super) has_slot: bool,
    pub(super) kept: Kept<P, C>,
}

/// A key's limit, in the smallest form that it needs.
pub(super) enum Kept<P: Twinned, C>
where
    Ledger<P>: Concurrent,
{
    /// There is no waiter, and no permits have come back.
    State(P::State),
    /// Permits have come back, or are owed.
    Ledger(Box<Ledger<P>>),
    /// The limiter was requested.
    Limiter(Limiter<Ledger<P>, C>),
    /// A placeholder while the value is replaced.
    Taken,
}

impl<P: Twinned, C> fmt::Debug for Kept<P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(state) => f.debug_tuple("State").field(state).finish(),
            Self::Ledger(ledger) => f.debug_tuple("Ledger").field(ledger).finish(),
            // Its clock may be one that cannot be read here.
            Self::Limiter(_) => f.write_str("Limiter"),
            Self::Taken => f.write_str("Taken"),
        }
    }
}

impl<I: Words, P: Twinned, C> Entries<I, P, C> {
    pub(super) fn new(plans: Arc<Plans<P>>) -> Self {
        Self {
            plans,
            rows: Vec::new(),
            places: HashTable::new(),
            cursor: 0,
            lap: Lap::default(),
            latest_ns: 0,
        }
    }

    /// Returns when the first entry will have recovered, and the marks of those without a slot.
    ///
    /// It is `None` if that cannot be computed, or not quickly: for limits with more than a state,
    /// or too many entries.
    pub(super) fn outside(&self) -> Option<(u64, u64)> {
        if self.rows.len() > FEW {
            return None;
        }
        let (mut fresh_ns, mut marks) = (u64::MAX, 0);
        for entry in &self.rows {
            let Kept::State(state) = &entry.kept else { return None };
            let policy = &self.plans.get(entry.plan)?.policy;
            fresh_ns = fresh_ns.min(policy.fresh_at_ns(state).unwrap_or(u64::MAX));
            if !entry.has_slot {
                marks |= mark(entry.hash);
            }
        }
        Some((fresh_ns, marks))
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn find(&self, id: I, hash: u64) -> Option<usize> {
        if self.rows.is_empty() {
            return None;
        }
        let is_it = |&place: &u32| self.at(index(place)).is_some_and(|entry| entry.id == id);
        self.places.find(hash, is_it).map(|&place| index(place))
    }

    pub(super) fn at(&self, index: usize) -> Option<&Entry<I, P, C>> {
        self.rows.get(index)
    }

    pub(super) fn at_mut(&mut self, index: usize) -> Option<&mut Entry<I, P, C>> {
        self.rows.get_mut(index)
    }

    #[cfg(feature = "serde")]
    pub(super) fn all(&self) -> &[Entry<I, P, C>] {
        &self.rows
    }

    /// Returns an entry's limit, and the policy that governs it.
    pub(super) fn parts(&mut self, index: usize) -> Option<(&Plan<P>, &mut Kept<P, C>)> {
        let entry = self.rows.get_mut(index)?;
        Some((self.plans.get(entry.plan)?, &mut entry.kept))
    }

    /// Inserts a key that is not there. Returns its index, valid until the next removal.
    pub(super) fn insert(
        &mut self,
        id: I,
        hash: u64,
        kept: (u8, Kept<P, C>),
        has_slot: bool,
    ) -> usize {
        let (plan, kept) = kept;
        let at = self.rows.len();
        self.rows.push(Entry { id, hash, plan, has_slot, kept });
        let rows = &self.rows;
        let hash_of = |&place: &u32| rows.get(index(place)).map_or(0, |entry| entry.hash);
        // A shard has some thousands of keys at most.
        let place = u32::try_from(at).unwrap_or(u32::MAX);
        self.places.insert_unique(hash, place, hash_of);
        at
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<Entry<I, P, C>> {
        let (hash, last) = (self.rows.get(at)?.hash, self.rows.len().checked_sub(1)?);
        if let Ok(place) = self.places.find_entry(hash, |&place| index(place) == at) {
            place.remove();
        }
        let removed = self.rows.swap_remove(at);
        if let Some(moved) = self.rows.get(at)
            && let Some(place) = self.places.find_mut(moved.hash, |&place| index(place) == last)
        {
            *place = u32::try_from(at).unwrap_or(u32::MAX);
        }
        self.give_memory_back();
        Some(removed)
    }

    /// Frees memory after many removals. Now and then it moves some thousand entries.
    fn give_memory_back(&mut self) {
        let (len, capacity) = (self.rows.len(), self.rows.capacity());
        if capacity > 64 && len < capacity / 4 {
            self.rows.shrink_to(capacity / 2);
            let rows = &self.rows;
            let hash_of = |&place: &u32| rows.get(index(place)).map_or(0, |entry| entry.hash);
            self.places.shrink_to(capacity / 2, hash_of);
        }
    }

    /// Returns the next entry to examine, round and round.
    pub(super) fn next_to_sweep(&mut self) -> Option<usize> {
        if self.cursor >= self.rows.len() {
            self.cursor = 0;
        }
        let at = self.cursor;
        self.cursor = at.saturating_add(1);
        (at < self.rows.len()).then_some(at)
    }

    /// Returns the bytes that the entries and their index take, used or not.
    pub(super) fn bytes(&self) -> usize {
        let rows = self.rows.capacity().saturating_mul(size_of::<Entry<I, P, C>>());
        rows.saturating_add(self.places.allocation_size())
    }
}

fn index(place: u32) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}

impl<P: Twinned, C> Kept<P, C> {
    /// Returns the bytes that the limit takes on the heap.
    pub(super) fn heap_bytes(&self, policy: &P) -> usize {
        match self {
            Self::State(state) => policy.heap_bytes(state),
            Self::Ledger(ledger) => {
                size_of::<Ledger<P>>().saturating_add(policy.heap_bytes(ledger.state()))
            }
            Self::Limiter(_) => LIMITER_BYTES,
            Self::Taken => 0,
        }
    }
}
