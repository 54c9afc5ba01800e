//! The states behind a shard's lock.
//!
//! They are in one vector, so that a sweep continues where the last one ended, and are found by
//! an index of their hashes.

use std::fmt;
use std::sync::Arc;

use hashbrown::HashTable;
use rategate_core::any_policy::Member;
use rategate_core::ledger::Ledger;

use super::eviction_cursor::EvictionCursor;
use super::key::private::Words;
use super::policy_versions::{PolicyVersion, PolicyVersions};
use super::slots::mark;
use crate::limiter::Limiter;

/// The approximate bytes of a key's limiter: itself, its clock, its cancellation token.
pub(super) const LIMITER_BYTES: usize = 2_048;

/// The number of entries above which half of all unknown keys would share a mark with one.
const FEW: usize = 32;

/// The part of a shard that its lock guards.
#[derive(Debug)]
pub(super) struct Entries<I, C> {
    /// The policies in force in this shard. A change reaches the shards one after another.
    pub(super) policy_versions: Arc<PolicyVersions>,
    rows: Vec<Entry<I, C>>,
    row_index: HashTable<u32>,
    cursor: usize,
    /// The search for slots to free.
    pub(super) eviction_cursor: EvictionCursor,
    /// The latest reading of the clock.
    pub(super) latest_ns: u64,
}

/// A key behind the lock.
#[derive(Debug)]
pub(super) struct Entry<I, C> {
    pub(super) id: I,
    pub(super) hash: u64,
    pub(super) version: u8,
    /// `true` if a sealed slot is reserved for the key.
    pub(super) has_slot: bool,
    pub(super) form: EntryForm<C>,
}

/// A key's limit, in the smallest form that it needs.
pub(super) enum EntryForm<C> {
    /// Nothing is promised or held.
    State(Member),
    /// There are promises, debts kept as such, or holds.
    Ledger(Box<Ledger>),
    /// The limiter was requested.
    Limiter(Limiter<C>),
    /// A placeholder while the value is replaced.
    Taken,
}

impl<C> fmt::Debug for EntryForm<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(limit) => f.debug_tuple("State").field(limit).finish(),
            Self::Ledger(ledger) => f.debug_tuple("Ledger").field(ledger).finish(),
            // Its clock may be one that cannot be read here.
            Self::Limiter(_) => f.write_str("Limiter"),
            Self::Taken => f.write_str("Taken"),
        }
    }
}

impl<I: Words, C> Entries<I, C> {
    pub(super) fn new(policy_versions: Arc<PolicyVersions>) -> Self {
        Self {
            policy_versions,
            rows: Vec::new(),
            row_index: HashTable::new(),
            cursor: 0,
            eviction_cursor: EvictionCursor::default(),
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
            let EntryForm::State(limit) = &entry.form else { return None };
            fresh_ns = fresh_ns.min(limit.fresh_at_ns().unwrap_or(u64::MAX));
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
        let is_it = |&row: &u32| self.at(index(row)).is_some_and(|entry| entry.id == id);
        self.row_index.find(hash, is_it).map(|&row| index(row))
    }

    pub(super) fn at(&self, index: usize) -> Option<&Entry<I, C>> {
        self.rows.get(index)
    }

    pub(super) fn at_mut(&mut self, index: usize) -> Option<&mut Entry<I, C>> {
        self.rows.get_mut(index)
    }

    pub(super) fn all(&self) -> &[Entry<I, C>] {
        &self.rows
    }

    /// Ends the holds whose time is over. Returns the bytes that the limits take before and after.
    #[cfg(feature = "serde")]
    pub(super) fn end_holds(&mut self, now_ns: u64) -> (usize, usize) {
        let (mut before, mut after) = (0_usize, 0_usize);
        for entry in &mut self.rows {
            if let EntryForm::Ledger(ledger) = &mut entry.form {
                before = before.saturating_add(ledger.held_bytes());
                ledger.end_holds(now_ns);
                after = after.saturating_add(ledger.held_bytes());
            }
        }
        (before, after)
    }

    /// Returns an entry's limit, and the policy that governs it.
    pub(super) fn version_and_form(
        &mut self,
        index: usize,
    ) -> Option<(&PolicyVersion, &mut EntryForm<C>)> {
        let entry = self.rows.get_mut(index)?;
        Some((self.policy_versions.get(entry.version)?, &mut entry.form))
    }

    /// Inserts a key that is not there. Returns its index, valid until the next removal.
    pub(super) fn insert(
        &mut self,
        id: I,
        hash: u64,
        form: (u8, EntryForm<C>),
        has_slot: bool,
    ) -> usize {
        let (version, form) = form;
        let at = self.rows.len();
        self.rows.push(Entry { id, hash, version, has_slot, form });
        let rows = &self.rows;
        let hash_of = |&row: &u32| rows.get(index(row)).map_or(0, |entry| entry.hash);
        // A shard has some thousands of keys at most.
        let row = u32::try_from(at).unwrap_or(u32::MAX);
        self.row_index.insert_unique(hash, row, hash_of);
        at
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<Entry<I, C>> {
        let (hash, last) = (self.rows.get(at)?.hash, self.rows.len().checked_sub(1)?);
        if let Ok(row) = self.row_index.find_entry(hash, |&row| index(row) == at) {
            row.remove();
        }
        let removed = self.rows.swap_remove(at);
        if let Some(moved) = self.rows.get(at)
            && let Some(row) = self.row_index.find_mut(moved.hash, |&row| index(row) == last)
        {
            *row = u32::try_from(at).unwrap_or(u32::MAX);
        }
        self.shrink();
        Some(removed)
    }

    /// Frees memory after many removals. Now and then it moves some thousand entries.
    fn shrink(&mut self) {
        let (len, capacity) = (self.rows.len(), self.rows.capacity());
        if capacity > 64 && len < capacity / 4 {
            self.rows.shrink_to(capacity / 2);
            let rows = &self.rows;
            let hash_of = |&row: &u32| rows.get(index(row)).map_or(0, |entry| entry.hash);
            self.row_index.shrink_to(capacity / 2, hash_of);
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
        let rows = self.rows.capacity().saturating_mul(size_of::<Entry<I, C>>());
        rows.saturating_add(self.row_index.allocation_size())
    }
}

fn index(row: u32) -> usize {
    usize::try_from(row).unwrap_or(usize::MAX)
}

impl<C> EntryForm<C> {
    /// Returns the bytes that the limit takes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::State(limit) => limit.heap_bytes(),
            Self::Ledger(ledger) => {
                let own = size_of::<Ledger>().saturating_add(ledger.limits().heap_bytes());
                own.saturating_add(ledger.held_bytes())
            }
            Self::Limiter(_) => LIMITER_BYTES,
            Self::Taken => 0,
        }
    }
}
