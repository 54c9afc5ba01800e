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

use rategate_core::concurrent::Twinned;
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;

use super::entries::{Entries, Kept};
use super::key::Id;
use super::plans::Plan;
use super::room::Overflow;
use super::slots::{Found, Home, Slots};
use super::turn::{Late, Place, Turn};
use crate::clock::Clock;

/// The number of entries that a call under the lock examines for eviction: for a known key, and
/// for a new one.
pub(super) const SWEEP_KNOWN: usize = 1;
pub(super) const SWEEP_NEW: usize = 4;

impl<I: Id, P: Twinned, C: Clock + Clone> Turn<'_, I, P, C> {
    /// Returns the index of the key's entry, if the key is known. A state in a slot moves to an
    /// entry.
    pub(super) fn bring(&mut self) -> Option<usize> {
        let Place { id, hash, .. } = self.place;
        if let Some(at) = self.entries.find(id, hash) {
            self.take_apart(at);
            self.adopt(at);
            return Some(at);
        }
        let (slots, home) = self.slots()?;
        let Found::Open(slot, _) = slots.find(home, id) else { return None };
        let seen = slots.seal(slot)?;
        let plan = self.entries.plans.get(seen.plan())?;
        if let Some(numbers) = plan.narrow {
            self.now_ns = numbers.start_ns(seen.value(), self.now_ns);
            self.entries.latest_ns = self.now_ns;
        }
        let state = plan.policy.widened(seen.value(), self.now_ns)?;
        let bytes = plan.policy.heap_bytes(&state);
        let at = self.entries.insert(id, hash, (seen.plan(), Kept::State(state)), true);
        self.account(0, bytes);
        self.adopt(at);
        Some(at)
    }

    /// Adds a key that is not in the table. Returns `false` if there is no capacity.
    pub(super) fn admit(&mut self, plan_id: u8, state: P::State) -> bool {
        let Place { id, hash, shard, .. } = self.place;
        let now_ns = self.now_ns;
        let Some(plan) = self.entries.plans.get(plan_id) else { return false };
        // A fresh bucket's word may equal one that was there before, of a key evicted at this
        // instant, and a thread may still be about to swap it. So a fresh state stays behind the
        // lock.
        let is_fresh = plan.policy.is_as_fresh(&state, now_ns);
        let (value, bytes) = (plan.policy.narrowed(&state, now_ns), plan.policy.heap_bytes(&state));
        if let (Some(value), Some((slots, home))) = (value, self.slots()) {
            if self.table.is_full_of_keys() && slots.full_until(shard) > now_ns {
                return false;
            }
            let make_room = || slots.make_room(home, now_ns, || self.table.count_key());
            let mut room = make_room();
            if room.is_none() && self.table.is_full_of_keys() {
                self.table.forget_keys(self.entries.lap.go_on(slots, shard, now_ns));
                room = make_room();
            }
            if let Some(slot) = room {
                if is_fresh {
                    slots.give(slot, id, None);
                    self.entries.insert(id, hash, (plan_id, Kept::State(state)), true);
                    self.account(0, bytes);
                    return true;
                }
                slots.give(slot, id, Some((value, plan_id)));
                let fresh_ns = plan.policy.fresh_at_ns(&state).unwrap_or(u64::MAX);
                slots.lower_full_until(shard, fresh_ns);
                self.entries.lap.note(fresh_ns);
                return true;
            }
            if self.table.is_full_of_keys()
                && let Some((fresh_ns, outside)) = self.entries.outside()
            {
                let until_ns = self.entries.lap.nothing_until(slots);
                slots.set_full_until(shard, until_ns.min(fresh_ns), outside);
                return false;
            }
        }
        if self.table.is_full_of_bytes_with(bytes) || !self.table.count_key() {
            return false;
        }
        if let Some((slots, home)) = self.slots() {
            slots.note_outside(home);
            slots.forget_full_until(shard);
        }
        self.entries.insert(id, hash, (plan_id, Kept::State(state)), false);
        self.account(0, bytes);
        true
    }

    /// Returns `true` if the next try of this unknown key would get a fresh limit of its own.
    ///
    /// Evicts some keys to find out, as the try would.
    pub(super) fn has_limit_of_his_own(&mut self) -> bool {
        let table = self.table;
        if table.room().overflow == Overflow::Admit || !table.is_full_of_keys() {
            return true;
        }
        self.sweep(SWEEP_NEW);
        if let Some(slots) = &table.slots {
            let (shard, now_ns) = (self.place.shard, self.now_ns);
            table.forget_keys(self.entries.lap.go_on(slots, shard, now_ns));
        }
        !table.is_full_of_keys()
    }

    pub(super) fn admit_fresh(&mut self) -> bool {
        let Some((plan_id, plan)) = self.entries.plans.of_tier(self.place.tier) else {
            return false;
        };
        let fresh = self.table.strangers.state(&plan.policy, self.now_ns);
        self.admit(plan_id, fresh)
    }

    /// Examines the next entries, and evicts them or returns them to their slots where possible.
    pub(super) fn sweep(&mut self, most: usize) {
        for _ in 0..most.min(self.entries.len()) {
            if let Some(at) = self.entries.next_to_sweep() {
                self.take_apart(at);
                self.tidy(at);
            }
        }
    }

    /// Updates the accounts after a decision, and moves the entry where it belongs.
    pub(super) fn end(&mut self, at: usize, before: usize) {
        self.account(before, self.heap_bytes(at));
        self.tidy(at);
    }

    /// Turns a limiter without handles back into a ledger.
    pub(super) fn take_apart(&mut self, at: usize) {
        let before = self.heap_bytes(at);
        let Some(entry) = self.entries.at_mut(at) else { return };
        if !matches!(&entry.kept, Kept::Limiter(limiter) if limiter.is_alone()) {
            return;
        }
        let mut latest_ns = self.now_ns;
        entry.kept = match std::mem::replace(&mut entry.kept, Kept::Taken) {
            Kept::Limiter(limiter) => match limiter.into_limit() {
                Ok(ledger) => {
                    latest_ns = ledger.clamp(latest_ns);
                    Kept::Ledger(Box::new(ledger))
                }
                Err(limiter) => Kept::Limiter(limiter),
            },
            other => other,
        };
        // Its callers may have read a later time, and no decision on its state may use an earlier
        // one.
        self.now_ns = latest_ns;
        self.entries.latest_ns = latest_ns;
        self.account(before, self.heap_bytes(at));
    }

    /// Turns a state into a ledger.
    pub(super) fn make_ledger(&mut self, at: usize) {
        let now_ns = self.now_ns;
        if let Some(slots) = &self.table.slots
            && self.entries.at(at).is_some_and(|entry| !entry.has_slot)
        {
            // Permits that come back may make it recover sooner.
            slots.forget_full_until(self.place.shard);
        }
        let Some((plan, kept)) = self.parts(at) else { return };
        *kept = match std::mem::replace(kept, Kept::Taken) {
            Kept::State(state) => {
                let ledger = Ledger::resumed(plan.policy.clone(), state, plan.past, now_ns);
                Kept::Ledger(Box::new(ledger))
            }
            other => other,
        };
    }

    /// Moves a key to the policy of the tier that the current call names.
    fn adopt(&mut self, at: usize) {
        let tier = self.place.tier;
        if self.parts(at).is_none_or(|(plan, _)| plan.tier == tier) {
            return;
        }
        let before = self.heap_bytes(at);
        self.make_ledger(at);
        let Entries { plans, .. } = &*self.entries;
        let plans = Arc::clone(plans);
        let Some((plan_id, plan)) = plans.of_tier(tier) else { return };
        let now_ns = self.now_ns;
        let Some(entry) = self.entries.at_mut(at) else { return };
        entry.plan = plan_id;
        match &mut entry.kept {
            Kept::Ledger(ledger) => carry_ledger_over(ledger, &plan.policy, now_ns),
            Kept::Limiter(limiter) => self.late.push(Late {
                place: self.place,
                plan: plan_id,
                limiter: limiter.clone(),
                policy: plan.policy.clone(),
            }),
            Kept::State(_) | Kept::Taken => {}
        }
        self.account(before, self.heap_bytes(at));
    }

    /// Evicts a key that has fully recovered, or returns a state that fits to its slot.
    pub(super) fn tidy(&mut self, at: usize) {
        let now_ns = self.now_ns;
        let before = self.heap_bytes(at);
        let Some((plan, kept)) = self.parts(at) else { return };
        let past = plan.past;
        if let Kept::Ledger(ledger) = kept {
            if ledger.may_be_forgotten(now_ns) {
                return self.forget(at, before);
            }
            if let Some(state) = ledger.state_alone(past, now_ns) {
                *kept = Kept::State(state.clone());
            }
        }
        let Kept::State(state) = kept else { return };
        if plan.policy.is_as_fresh(state, now_ns) {
            return self.forget(at, before);
        }
        let value = plan.policy.narrowed(state, now_ns);
        let fresh_ns = plan.policy.fresh_at_ns(state).unwrap_or(u64::MAX);
        self.account(before, self.heap_bytes(at));
        if let Some(slots) = &self.table.slots {
            slots.lower_full_until(self.place.shard, fresh_ns);
        }
        if let Some(value) = value {
            self.put_back(at, value, fresh_ns);
        }
    }

    fn forget(&mut self, at: usize, bytes: usize) {
        let Some(entry) = self.entries.remove(at) else { return };
        if entry.has_slot
            && let Some(slots) = &self.table.slots
            && let Found::Sealed(slot) = slots.find(self.home_of(slots, entry.id), entry.id)
        {
            slots.vacate(slot);
        }
        self.account(bytes, 0);
        self.table.forget_keys(1);
    }

    /// Moves an entry's state back into its sealed slot.
    fn put_back(&mut self, at: usize, value: u64, fresh_ns: u64) {
        let Some(entry) = self.entries.at(at).filter(|entry| entry.has_slot) else { return };
        let (id, plan, bytes) = (entry.id, entry.plan, self.heap_bytes(at));
        if let Some(slots) = &self.table.slots
            && let Found::Sealed(slot) = slots.find(self.home_of(slots, id), id)
        {
            slots.open(slot, value, plan);
            self.entries.lap.note(fresh_ns);
            self.entries.remove(at);
            self.account(bytes, 0);
        }
    }

    fn home_of(&self, slots: &Slots, id: I) -> Home {
        slots.home(self.place.shard, id.home(&self.table.seeds))
    }

    pub(super) fn parts(&mut self, at: usize) -> Option<(&Plan<P>, &mut Kept<P, C>)> {
        self.entries.parts(at)
    }

    pub(super) fn heap_bytes(&self, at: usize) -> usize {
        let Some(entry) = self.entries.at(at) else { return 0 };
        let plan = self.entries.plans.get(entry.plan);
        plan.map_or(0, |plan| entry.kept.heap_bytes(&plan.policy))
    }

    pub(super) fn account(&self, before: usize, after: usize) {
        self.table.account(before, after);
    }
}

/// Carries a state over from one policy to another.
///
/// A state that has fully recovered stays so: it could have been evicted a moment before. The
/// use of all others is carried over.
pub(super) fn carry_over<P: Twinned>(state: &mut P::State, old: &P, new: &P, now_ns: u64) {
    if old.is_as_fresh(state, now_ns) {
        *state = new.fresh(now_ns);
    } else {
        new.rebase(state, old, now_ns);
    }
}

pub(super) fn carry_ledger_over<P: Twinned>(ledger: &mut Ledger<P>, new: &P, now_ns: u64) {
    // Counted as one change, as the policy index that follows counts one more as well.
    if ledger.is_as_fresh(now_ns) {
        ledger.restart_as(now_ns, new.clone());
    } else {
        ledger.reconfigure(now_ns, new.clone());
    }
}
