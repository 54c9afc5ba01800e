//! Moves keys between slots and entries, admits new ones and evicts recovered ones.
//!
//! A key is in one of four states, and in the first that can hold it:
//!
//! ```text
//!   absent       fully recovered, or never seen
//!   a slot       open: one word holds the whole state, and no lock is needed
//!   an entry     a state; or a ledger, once permits have come back; or a limiter, while a
//!                handle exists
//!   the spill    the table had no capacity, and the key shares a limit
//! ```
//!
//! A key with an entry may also have a sealed slot, which stays reserved for it.

use std::sync::Arc;

use rategate_core::any_policy::{AnyPolicy, Member};
use rategate_core::ledger::Ledger;
use rategate_core::members::Members;

use super::{KeyLocation, KeySection, PendingPolicy};
use crate::clock::Clock;
use crate::keyed::capacity::Overflow;
use crate::keyed::entries::{Entries, EntryForm};
use crate::keyed::key::Id;
use crate::keyed::policy_versions::PolicyVersion;
use crate::keyed::slots::{Found, Home, Slots};

/// The number of entries that a call under the lock examines for eviction: for a known key, and
/// for a new one.
pub(in crate::keyed) const SWEEP_KNOWN: usize = 1;
pub(in crate::keyed) const SWEEP_NEW: usize = 4;

impl<I: Id, C: Clock + Clone> KeySection<'_, I, C> {
    /// Returns the index of the key's entry, if the key is known. A state in a slot moves to an
    /// entry.
    pub(in crate::keyed) fn load_entry(&mut self) -> Option<usize> {
        let KeyLocation { id, hash, .. } = self.location;
        if let Some(at) = self.entries.find(id, hash) {
            self.reclaim_limiter(at);
            self.adopt(at);
            return Some(at);
        }
        let (slots, home) = self.slots()?;
        let Found::Open(slot, _) = slots.find(home, id) else { return None };
        let seen = slots.seal(slot)?;
        let version = self.entries.policy_versions.get(seen.version())?;
        if let Some(numbers) = version.packed {
            self.now_ns = numbers.start_ns(seen.value(), self.now_ns);
            self.entries.latest_ns = self.now_ns;
        }
        let limit = Member::unpack(version.policy, seen.value(), self.now_ns)?;
        let bytes = limit.heap_bytes();
        let at = self.entries.insert(id, hash, (seen.version(), EntryForm::State(limit)), true);
        self.account(0, bytes);
        self.adopt(at);
        Some(at)
    }

    /// Adds a key that is not in the table. Returns `false` if there is no capacity.
    pub(in crate::keyed) fn admit(&mut self, version_id: u8, limit: Member) -> bool {
        let KeyLocation { id, hash, shard, .. } = self.location;
        let now_ns = self.now_ns;
        // A fresh bucket's word may equal one that was there before, of a key evicted at this
        // instant, and a thread may still be about to swap it. So a fresh state stays behind the
        // lock.
        let is_fresh = limit.is_as_fresh(now_ns);
        let (value, bytes) = (limit.pack(now_ns), limit.heap_bytes());
        if let (Some(value), Some((slots, home))) = (value, self.slots()) {
            if self.table.is_full_of_keys() && slots.full_until(shard) > now_ns {
                return false;
            }
            let reserve_slot = || slots.reserve_slot(home, now_ns, || self.table.count_key());
            let mut capacity = reserve_slot();
            if capacity.is_none() && self.table.is_full_of_keys() {
                self.table.uncount_keys(self.entries.eviction_cursor.go_on(slots, shard, now_ns));
                capacity = reserve_slot();
            }
            if let Some(slot) = capacity {
                if is_fresh {
                    slots.assign(slot, id, None);
                    self.entries.insert(id, hash, (version_id, EntryForm::State(limit)), true);
                    self.account(0, bytes);
                    return true;
                }
                slots.assign(slot, id, Some((value, version_id)));
                let fresh_ns = limit.fresh_at_ns().unwrap_or(u64::MAX);
                slots.lower_full_until(shard, fresh_ns);
                self.entries.eviction_cursor.note(fresh_ns);
                return true;
            }
            if self.table.is_full_of_keys()
                && let Some((fresh_ns, outside)) = self.entries.outside()
            {
                let until_ns = self.entries.eviction_cursor.nothing_until(slots);
                slots.set_full_until(shard, until_ns.min(fresh_ns), outside);
                return false;
            }
        }
        if self.table.is_full_of_bytes_with(bytes) || !self.table.count_key() {
            return false;
        }
        if let Some((slots, home)) = self.slots() {
            slots.note_outside(home);
            slots.clear_full_until(shard);
        }
        self.entries.insert(id, hash, (version_id, EntryForm::State(limit)), false);
        self.account(0, bytes);
        true
    }

    /// Returns `true` if the next try of this unknown key would get a fresh limit of its own.
    ///
    /// Evicts some keys to find out, as the try would.
    pub(in crate::keyed) fn has_own_limit(&mut self) -> bool {
        let table = self.table;
        if table.capacity().overflow == Overflow::Admit || !table.is_full_of_keys() {
            return true;
        }
        self.sweep(SWEEP_NEW);
        if let Some(slots) = &table.slots {
            let (shard, now_ns) = (self.location.shard, self.now_ns);
            table.uncount_keys(self.entries.eviction_cursor.go_on(slots, shard, now_ns));
        }
        !table.is_full_of_keys()
    }

    pub(in crate::keyed) fn admit_fresh(&mut self) -> bool {
        let Some((version_id, version)) = self.entries.policy_versions.of_tier(self.location.tier)
        else {
            return false;
        };
        let fresh = Member::fresh(version.policy, self.now_ns);
        self.admit(version_id, fresh)
    }

    /// Examines the next entries, and evicts them or returns them to their slots where possible.
    pub(in crate::keyed) fn sweep(&mut self, max_entries: usize) {
        for _ in 0..max_entries.min(self.entries.len()) {
            if let Some(at) = self.entries.next_to_sweep() {
                self.reclaim_limiter(at);
                self.tidy(at);
            }
        }
    }

    /// Examines all entries, as [`sweep`](Self::sweep) does some.
    pub(in crate::keyed) fn sweep_all(&mut self) {
        // From the last one, since a removed entry is replaced by the last.
        for at in (0..self.entries.len()).rev() {
            self.reclaim_limiter(at);
            self.tidy(at);
        }
    }

    /// Updates the accounts after a decision, and moves the entry where it belongs.
    pub(in crate::keyed) fn end(&mut self, at: usize, before: usize) {
        self.account(before, self.heap_bytes(at));
        self.tidy(at);
    }

    /// Turns a limiter without handles back into a ledger.
    pub(in crate::keyed) fn reclaim_limiter(&mut self, at: usize) {
        let before = self.heap_bytes(at);
        let Some(entry) = self.entries.at_mut(at) else { return };
        if !matches!(&entry.form, EntryForm::Limiter(limiter) if limiter.is_unshared()) {
            return;
        }
        let mut latest_ns = self.now_ns;
        entry.form = match std::mem::replace(&mut entry.form, EntryForm::Taken) {
            EntryForm::Limiter(limiter) => {
                let read_ns = limiter.shared().now_ns();
                match limiter.into_limit() {
                    Ok(ledger) => {
                        latest_ns = ledger.clamp(latest_ns).max(read_ns);
                        EntryForm::Ledger(Box::new(ledger))
                    }
                    Err(limiter) => EntryForm::Limiter(limiter),
                }
            }
            other => other,
        };
        // Its callers may have read a later time, and no decision on its state may use an earlier
        // one.
        self.now_ns = latest_ns;
        self.entries.latest_ns = latest_ns;
        self.table.clock.note(latest_ns);
        self.account(before, self.heap_bytes(at));
    }

    /// Turns a state into a ledger.
    pub(in crate::keyed) fn make_ledger(&mut self, at: usize) {
        let now_ns = self.now_ns;
        if let Some(slots) = &self.table.slots
            && self.entries.at(at).is_some_and(|entry| !entry.has_slot)
        {
            // Permits that come back may make it recover sooner.
            slots.clear_full_until(self.location.shard);
        }
        let table = self.table;
        let Some((_, form)) = self.version_and_form(at) else { return };
        *form = match std::mem::replace(form, EntryForm::Taken) {
            EntryForm::State(limit) => EntryForm::Ledger(Box::new(table.ledger(limit, now_ns))),
            other => other,
        };
    }

    /// Moves a key to the policy of the tier that the current call names.
    fn adopt(&mut self, at: usize) {
        let tier = self.location.tier;
        if self.version_and_form(at).is_none_or(|(version, _)| version.tier == tier) {
            return;
        }
        let before = self.heap_bytes(at);
        self.make_ledger(at);
        let Entries { policy_versions, .. } = &*self.entries;
        let policy_versions = Arc::clone(policy_versions);
        let Some((version_id, version)) = policy_versions.of_tier(tier) else { return };
        let now_ns = self.now_ns;
        let Some(entry) = self.entries.at_mut(at) else { return };
        entry.version = version_id;
        match &mut entry.form {
            EntryForm::Ledger(ledger) => carry_ledger_over(ledger, version.policy, now_ns),
            EntryForm::Limiter(limiter) => self.late.push(PendingPolicy {
                location: self.location,
                version: version_id,
                limiter: limiter.clone(),
                policy: version.policy,
            }),
            EntryForm::State(_) | EntryForm::Taken => {}
        }
        self.account(before, self.heap_bytes(at));
    }

    /// Evicts a key that has fully recovered, or returns a state that fits to its slot.
    pub(in crate::keyed) fn tidy(&mut self, at: usize) {
        let now_ns = self.now_ns;
        let before = self.heap_bytes(at);
        let Some((_, form)) = self.version_and_form(at) else { return };
        if let EntryForm::Ledger(ledger) = form {
            if ledger.is_as_fresh(now_ns) {
                return self.evict(at, before);
            }
            if let Some(limit) = ledger.quiescent_state(now_ns).and_then(Members::only) {
                *form = EntryForm::State(limit.clone());
            }
        }
        let EntryForm::State(limit) = form else {
            // Holds may have ended.
            return self.account(before, self.heap_bytes(at));
        };
        if limit.is_as_fresh(now_ns) {
            return self.evict(at, before);
        }
        let value = limit.pack(now_ns);
        let fresh_ns = limit.fresh_at_ns().unwrap_or(u64::MAX);
        self.account(before, self.heap_bytes(at));
        if let Some(slots) = &self.table.slots {
            slots.lower_full_until(self.location.shard, fresh_ns);
        }
        if let Some(value) = value {
            self.return_to_slot(at, value, fresh_ns);
        }
    }

    fn evict(&mut self, at: usize, bytes: usize) {
        let Some(entry) = self.entries.remove(at) else { return };
        if entry.has_slot
            && let Some(slots) = &self.table.slots
            && let Found::Sealed(slot) = slots.find(self.home_of(slots, entry.id), entry.id)
        {
            slots.clear_slot(slot);
        }
        self.account(bytes, 0);
        self.table.uncount_keys(1);
    }

    /// Moves an entry's state back into its sealed slot.
    fn return_to_slot(&mut self, at: usize, value: u64, fresh_ns: u64) {
        let Some(entry) = self.entries.at(at).filter(|entry| entry.has_slot) else { return };
        let (id, version, bytes) = (entry.id, entry.version, self.heap_bytes(at));
        if let Some(slots) = &self.table.slots
            && let Found::Sealed(slot) = slots.find(self.home_of(slots, id), id)
        {
            slots.open(slot, value, version);
            self.entries.eviction_cursor.note(fresh_ns);
            self.entries.remove(at);
            self.account(bytes, 0);
        }
    }

    fn home_of(&self, slots: &Slots, id: I) -> Home {
        slots.home(self.location.shard, id.home(&self.table.seeds))
    }

    pub(in crate::keyed) fn version_and_form(
        &mut self,
        at: usize,
    ) -> Option<(&PolicyVersion, &mut EntryForm<C>)> {
        self.entries.version_and_form(at)
    }

    pub(in crate::keyed) fn heap_bytes(&self, at: usize) -> usize {
        self.entries.at(at).map_or(0, |entry| entry.form.heap_bytes())
    }

    pub(in crate::keyed) fn account(&self, before: usize, after: usize) {
        self.table.account(before, after);
    }
}

/// Carries a limit over from one policy to another.
///
/// One that has fully recovered stays so: it could have been evicted a moment before. The use of
/// all others is carried over, except to and from operations in flight.
pub(in crate::keyed) fn carry_over(limit: &mut Member, new: AnyPolicy, now_ns: u64) {
    if limit.is_as_fresh(now_ns) || new.can_follow(&limit.policy()).is_err() {
        *limit = Member::fresh(new, now_ns);
    } else {
        limit.change(new, now_ns);
    }
}

pub(in crate::keyed) fn carry_ledger_over(ledger: &mut Ledger, new: AnyPolicy, now_ns: u64) {
    // Counted as one change, as the policy index that follows counts one more as well.
    if ledger.is_as_fresh(now_ns) || ledger.reconfigure(now_ns, new).is_err() {
        ledger.restart_as(now_ns, new);
    }
}
