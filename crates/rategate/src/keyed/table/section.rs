//! Decisions made under a shard's lock.

mod admission;

use std::sync::Arc;

use rategate_core::any_policy::{AnyPolicy, Member};
use rategate_core::debt::Debt;
use rategate_core::error::{CountsInFlight, ExceedsCapacity};
use rategate_core::holds::{Committed, Hold, HoldVerdict};
use rategate_core::ledger::Ledger;
#[cfg(feature = "serde")]
use rategate_core::members::Members;
use rategate_core::policy::Ending;
use rategate_core::verdict::Verdict;

use self::admission::{SWEEP_KNOWN, SWEEP_NEW, carry_ledger_over, carry_over};
use super::Table;
use crate::clock::Clock;
use crate::hold::KeyName;
use crate::keyed::entries::{Entries, EntryForm, LIMITER_BYTES};
use crate::keyed::eviction_cursor::EvictionCursor;
use crate::keyed::key::Id;
use crate::keyed::policy_versions::PolicyVersions;
use crate::keyed::projection::{Peeked, Projection};
use crate::keyed::slots::{Found, Home, Slots};
use crate::limiter::Limiter;

/// The address of a key: its shard, its hash and its tier.
#[derive(Clone, Copy, Debug)]
pub(in crate::keyed) struct KeyLocation<I> {
    pub(in crate::keyed) id: I,
    pub(in crate::keyed) hash: u64,
    pub(in crate::keyed) shard: usize,
    pub(in crate::keyed) tier: usize,
}

impl<I: Id> KeyLocation<I> {
    /// Returns the name by which a table finds the key again.
    pub(in crate::keyed) fn name(&self) -> KeyName {
        let word = |index| self.id.word(index);
        KeyName { id: [word(0), word(1)], tier: self.tier }
    }
}

/// A locked shard, in service of one key.
pub(in crate::keyed) struct KeySection<'a, I: Id, C: Clock> {
    pub(in crate::keyed) table: &'a Table<I, C>,
    pub(in crate::keyed) entries: &'a mut Entries<I, C>,
    pub(in crate::keyed) location: KeyLocation<I>,
    pub(in crate::keyed) now_ns: u64,
    /// Limiters to reconfigure once the lock is free, as that may wake waiters.
    pub(in crate::keyed) late: &'a mut Vec<PendingPolicy<I, C>>,
}

/// A key's limit outside of the table, for a decision that is not made yet.
pub(in crate::keyed) enum Lent {
    Ledger(Box<Ledger>),
    /// The key has a limiter, which decides for it.
    Elsewhere,
    TableFull,
}

/// A key's limiter, and the policy that it is about to receive.
pub(in crate::keyed) struct PendingPolicy<I, C> {
    pub(in crate::keyed) location: KeyLocation<I>,
    pub(in crate::keyed) version: u8,
    pub(in crate::keyed) limiter: Limiter<C>,
    pub(in crate::keyed) policy: AnyPolicy,
}

/// The result of an operation under the lock, or the limiter that has to decide instead.
pub(in crate::keyed) enum SectionResult<T, C> {
    Here(T),
    /// The key has a limiter, which decides once the lock is free.
    Delegate(Limiter<C>),
    /// The table has no capacity for the key.
    TableFull,
    /// The key is known, but the table has no memory for it to grow.
    NoBytes,
}

impl<'a, I: Id, C: Clock + Clone> KeySection<'a, I, C> {
    pub(in crate::keyed) const fn at(
        table: &'a Table<I, C>,
        entries: &'a mut Entries<I, C>,
        location: KeyLocation<I>,
        late: &'a mut Vec<PendingPolicy<I, C>>,
    ) -> Self {
        Self { table, entries, location, now_ns: 0, late }
    }

    /// Advances the shard's clock, and examines some keys for eviction. Returns the shard's time.
    pub(in crate::keyed) fn begin(&mut self, now_ns: u64) -> u64 {
        let now_ns = self.entries.latest_ns.max(now_ns);
        let now_ns = self.table.fresh_slots(self.location.shard, now_ns);
        self.entries.latest_ns = now_ns;
        self.now_ns = now_ns;
        self.sweep(SWEEP_KNOWN);
        self.now_ns
    }

    pub(in crate::keyed) fn slots(&self) -> Option<(&'a Slots, Home)> {
        let slots = self.table.slots.as_ref()?;
        Some((slots, slots.home(self.location.shard, self.location.hash)))
    }

    pub(in crate::keyed) fn try_acquire<B: Projection>(
        &mut self,
        permits: u64,
    ) -> Result<SectionResult<(Verdict, B), C>, ExceedsCapacity> {
        let Some(at) = self.load_entry() else { return self.try_new_key(permits) };
        let act = |ledger: &mut Ledger, now_ns: u64| {
            let verdict = ledger.try_acquire(now_ns, permits);
            (verdict, B::of(ledger, now_ns))
        };
        if self.table.is_full_of_bytes()
            && let Some((_, EntryForm::State(limit))) = self.version_and_form(at)
        {
            let (before, copy) = (limit.heap_bytes(), limit.clone());
            let mut after = Ledger::with_state(copy, self.now_ns);
            let _ = after.try_acquire(self.now_ns, permits);
            if after.limits().heap_bytes() > before {
                return Ok(SectionResult::NoBytes);
            }
        }
        // Also after a request that could never pass: the key returns to its slot.
        flatten(self.briefly(at, act).map(|(verdict, projection)| Ok((verdict?, projection))))
    }

    /// Decides for an unknown key. A denial adds no entry for it.
    fn try_new_key<B: Projection>(
        &mut self,
        permits: u64,
    ) -> Result<SectionResult<(Verdict, B), C>, ExceedsCapacity> {
        self.sweep(SWEEP_NEW);
        let Some((version_id, version)) = self.entries.policy_versions.of_tier(self.location.tier)
        else {
            return Ok(SectionResult::TableFull);
        };
        let fresh = Member::fresh(version.policy, self.now_ns);
        let mut ledger = Ledger::with_state(fresh, self.now_ns);
        let verdict = ledger.try_acquire(self.now_ns, permits)?;
        let projection = B::of(&ledger, self.now_ns);
        let leaves_trace = permits > 0 && matches!(verdict, Verdict::Granted(_));
        if leaves_trace
            && !ledger.into_limits().into_only().is_some_and(|limit| self.admit(version_id, limit))
        {
            return Ok(SectionResult::TableFull);
        }
        Ok(SectionResult::Here((verdict, projection)))
    }

    pub(in crate::keyed) fn peek<B: Projection>(
        &mut self,
        permits: u64,
    ) -> Result<SectionResult<Peeked<B>, C>, ExceedsCapacity> {
        flatten(self.view(|limit, now_ns| {
            let projection = B::of(limit, now_ns);
            Ok((limit.peek(now_ns, permits)?, projection))
        }))
    }

    pub(in crate::keyed) fn remaining(&mut self) -> SectionResult<u64, C> {
        self.view(Ledger::remaining)
    }

    /// Answers a request that changes nothing.
    pub(in crate::keyed) fn view<T>(
        &mut self,
        request: impl FnOnce(&Ledger, u64) -> T,
    ) -> SectionResult<T, C> {
        let Some(at) = self.load_entry() else {
            if !self.has_own_limit() {
                return SectionResult::TableFull;
            }
            return match self.fresh_ledger() {
                Some(fresh) => SectionResult::Here(request(&fresh, self.now_ns)),
                None => SectionResult::TableFull,
            };
        };
        self.briefly(at, |ledger, now_ns| {
            // Once, and not on a copy for each number that is read.
            ledger.end_holds(now_ns);
            request(ledger, now_ns)
        })
    }

    /// Returns the limit of a key that is new.
    fn fresh_ledger(&self) -> Option<Ledger> {
        let (_, version) = self.entries.policy_versions.of_tier(self.location.tier)?;
        let fresh = Member::fresh(version.policy, self.now_ns);
        Some(Ledger::with_state(fresh, self.now_ns))
    }

    /// Applies an operation that holds nothing to the limit of a known key.
    fn briefly<T>(
        &mut self,
        at: usize,
        act: impl FnOnce(&mut Ledger, u64) -> T,
    ) -> SectionResult<T, C> {
        let (now_ns, before, table) = (self.now_ns, self.heap_bytes(at), self.table);
        let Some((_, form)) = self.version_and_form(at) else {
            return SectionResult::TableFull;
        };
        let done = match std::mem::replace(form, EntryForm::Taken) {
            EntryForm::State(limit) => {
                let mut ledger = Ledger::with_state(limit, now_ns);
                let done = act(&mut ledger, now_ns);
                if ledger.quiescent_state(now_ns).is_some() {
                    let limit = ledger.into_limits().into_only();
                    *form = limit.map_or(EntryForm::Taken, EntryForm::State);
                } else {
                    *form = EntryForm::Ledger(Box::new(table.with_own_serials(ledger)));
                }
                done
            }
            EntryForm::Ledger(mut ledger) => {
                let done = act(&mut ledger, now_ns);
                *form = EntryForm::Ledger(ledger);
                done
            }
            EntryForm::Limiter(limiter) => {
                *form = EntryForm::Limiter(limiter.clone());
                return SectionResult::Delegate(limiter);
            }
            EntryForm::Taken => return SectionResult::TableFull,
        };
        self.end(at, before);
        SectionResult::Here(done)
    }

    /// Credits permits that the caller vouches for.
    pub(in crate::keyed) fn credit(&mut self, permits: u64) -> SectionResult<u64, C> {
        self.on_ledger(|ledger, now_ns| ledger.credit(now_ns, permits))
            .unwrap_or(SectionResult::Here(0))
    }

    /// Clears the key's use.
    pub(in crate::keyed) fn reset(&mut self) -> SectionResult<bool, C> {
        self.on_ledger(Ledger::restart).unwrap_or(SectionResult::Here(false))
    }

    /// Charges permits, whether they fit or not. A key that is unknown becomes known.
    pub(in crate::keyed) fn charge<B: Projection>(
        &mut self,
        permits: u64,
        debt: Debt,
    ) -> Result<SectionResult<B::Charged, C>, CountsInFlight> {
        if self.load_entry().is_none() && !self.admit_fresh() {
            return Ok(SectionResult::TableFull);
        }
        let Some(at) = self.load_entry() else { return Ok(SectionResult::TableFull) };
        flatten(self.briefly(at, |ledger, now_ns| {
            let charged = ledger.charge(now_ns, permits, debt)?;
            Ok(B::of(ledger, now_ns).with_charged(charged))
        }))
    }

    /// Holds an estimate, or denies it. A denial adds no entry for an unknown key.
    pub(in crate::keyed) fn try_hold<B: Projection>(
        &mut self,
        permits: u64,
        ttl_ns: u64,
    ) -> Result<SectionResult<(HoldVerdict, B), C>, ExceedsCapacity> {
        if permits > 0 && self.table.is_full_of_bytes() {
            return Ok(SectionResult::NoBytes);
        }
        let hold = |ledger: &mut Ledger, now_ns| {
            let verdict = ledger.try_hold(now_ns, permits, ttl_ns)?;
            Ok((verdict, B::of(ledger, now_ns)))
        };
        if let Some(held) = self.on_ledger(hold) {
            return flatten(held);
        }
        self.sweep(SWEEP_NEW);
        let Some(fresh) = self.fresh_ledger() else { return Ok(SectionResult::TableFull) };
        let mut fresh = self.table.with_own_serials(fresh);
        let decided = hold(&mut fresh, self.now_ns)?;
        let leaves_trace = permits > 0 && matches!(decided.0, HoldVerdict::Held(_));
        if leaves_trace {
            // A state that fits went to a slot, which has to become an entry.
            if !self.admit_fresh() || self.load_entry().is_none() {
                return Ok(SectionResult::TableFull);
            }
            self.give_back(Box::new(fresh));
        }
        Ok(SectionResult::Here(decided))
    }

    /// Ends a hold, under whatever policy the key has by now. Returns `None` if it is unknown.
    pub(in crate::keyed) fn commit<B: Projection>(
        &mut self,
        hold: Hold,
        actual: u64,
        debt: Debt,
    ) -> Option<SectionResult<(Committed, B), C>> {
        self.location.tier = self.tier_in_force()?;
        self.on_ledger(|ledger, now_ns| {
            let committed = ledger.commit(now_ns, hold, actual, debt);
            (committed, B::of(ledger, now_ns))
        })
    }

    /// Ends a hold, all of which was used. Returns `None` if the key is unknown, and with it the
    /// hold.
    pub(in crate::keyed) fn keep(&mut self, hold: Hold) -> Option<SectionResult<(), C>> {
        self.location.tier = self.tier_in_force()?;
        self.on_ledger(|ledger, now_ns| {
            ledger.end_hold(now_ns, hold, hold.permits);
        })
    }

    /// Returns the tier by which the key was decided last.
    fn tier_in_force(&self) -> Option<usize> {
        let KeyLocation { id, hash, .. } = self.location;
        let version = if let Some(at) = self.entries.find(id, hash) {
            self.entries.at(at)?.version
        } else {
            let (slots, home) = self.slots()?;
            let Found::Open(_, seen) = slots.find(home, id) else { return None };
            seen.version()
        };
        Some(self.entries.policy_versions.get(version)?.tier)
    }

    /// Applies an operation to the key's ledger. Returns `None` if the key is unknown.
    pub(in crate::keyed) fn on_ledger<T>(
        &mut self,
        act: impl FnOnce(&mut Ledger, u64) -> T,
    ) -> Option<SectionResult<T, C>> {
        let at = self.load_entry()?;
        let now_ns = self.now_ns;
        let before = self.heap_bytes(at);
        self.make_ledger(at);
        let (_, form) = self.version_and_form(at)?;
        let done = match form {
            EntryForm::Ledger(ledger) => act(ledger, now_ns),
            EntryForm::Limiter(limiter) => return Some(SectionResult::Delegate(limiter.clone())),
            EntryForm::State(_) | EntryForm::Taken => return Some(SectionResult::TableFull),
        };
        self.end(at, before);
        Some(SectionResult::Here(done))
    }

    /// Ends operations of a key.
    ///
    /// Returns whether the policy counts them, and whether the key is known.
    pub(in crate::keyed) fn end_operations(
        &mut self,
        permits: u64,
        how: Ending,
    ) -> SectionResult<(bool, bool), C> {
        let act = |limit: &mut Ledger, now_ns: u64| limit.end(now_ns, permits, how);
        let Some(at) = self.load_entry() else {
            return match self.fresh_ledger() {
                Some(mut fresh) => SectionResult::Here((act(&mut fresh, self.now_ns), false)),
                None => SectionResult::TableFull,
            };
        };
        self.briefly(at, act).map(|counts| (counts, true))
    }

    /// Returns the limiter of a key, which the table keeps while a handle to it exists.
    pub(in crate::keyed) fn limiter(&mut self) -> SectionResult<Limiter<C>, C> {
        // More than one entry, or limiters without handles would pile up.
        self.sweep(SWEEP_NEW);
        if self.load_entry().is_none() && !self.admit_fresh() {
            return SectionResult::TableFull;
        }
        let Some(at) = self.load_entry() else { return SectionResult::TableFull };
        let before = self.heap_bytes(at);
        if self.table.is_full_of_bytes_with(LIMITER_BYTES.saturating_sub(before)) {
            self.tidy(at);
            return SectionResult::NoBytes;
        }
        self.make_ledger(at);
        let table = self.table;
        let Some(entry) = self.entries.at_mut(at) else { return SectionResult::TableFull };
        entry.form = match std::mem::replace(&mut entry.form, EntryForm::Taken) {
            EntryForm::Ledger(ledger) => EntryForm::Limiter(table.limiter_over(*ledger)),
            other => other,
        };
        let EntryForm::Limiter(limiter) = &entry.form else { return SectionResult::TableFull };
        let limiter = limiter.clone();
        self.account(before, self.heap_bytes(at));
        SectionResult::Here(limiter)
    }

    /// Returns the limiter of a key, if a handle to it exists.
    pub(in crate::keyed) fn limiter_in_use(&mut self) -> Option<Limiter<C>> {
        let at = self.entries.find(self.location.id, self.location.hash)?;
        self.reclaim_limiter(at);
        match &self.entries.at(at)?.form {
            EntryForm::Limiter(limiter) => Some(limiter.clone()),
            _ => None,
        }
    }

    /// Takes a key's limit out of the table, to be [returned](Self::give_back) under the same
    /// lock. An unknown key takes an entry.
    pub(in crate::keyed) fn lend(&mut self) -> Lent {
        if self.load_entry().is_none() && !self.admit_fresh() {
            return Lent::TableFull;
        }
        let now_ns = self.now_ns;
        let Some(at) = self.load_entry() else { return Lent::TableFull };
        let before = self.heap_bytes(at);
        self.make_ledger(at);
        let Some((_, form)) = self.version_and_form(at) else { return Lent::TableFull };
        let lent = match std::mem::replace(form, EntryForm::Taken) {
            EntryForm::Ledger(mut ledger) => {
                ledger.end_holds(now_ns);
                Lent::Ledger(ledger)
            }
            EntryForm::Limiter(limiter) => {
                *form = EntryForm::Limiter(limiter);
                Lent::Elsewhere
            }
            EntryForm::State(_) | EntryForm::Taken => Lent::TableFull,
        };
        self.account(before, self.heap_bytes(at));
        lent
    }

    /// Returns a key's limit to the table.
    pub(in crate::keyed) fn give_back(&mut self, ledger: Box<Ledger>) {
        let Some(at) = self.entries.find(self.location.id, self.location.hash) else { return };
        let before = self.heap_bytes(at);
        if let Some((_, form)) = self.version_and_form(at) {
            *form = EntryForm::Ledger(ledger);
        }
        self.end(at, before);
    }

    /// Inserts a key that is not in the table. Returns `false` if there is no capacity.
    #[cfg(feature = "serde")]
    pub(in crate::keyed) fn restore(&mut self, mut ledger: Ledger) -> bool {
        let KeyLocation { id, hash, tier, .. } = self.location;
        let Some((version_id, _)) = self.entries.policy_versions.of_tier(tier) else {
            return false;
        };
        if ledger.is_as_fresh(self.now_ns) {
            return true;
        }
        if let Some(limit) = ledger.quiescent_state(self.now_ns).and_then(Members::only) {
            let limit = limit.clone();
            return self.admit(version_id, limit);
        }
        if !self.table.count_key() {
            return false;
        }
        let at =
            self.entries.insert(id, hash, (version_id, EntryForm::Ledger(Box::new(ledger))), false);
        self.account(0, self.heap_bytes(at));
        true
    }

    /// Carries all keys of a policy over to its successor.
    pub(in crate::keyed) fn change(
        &mut self,
        policy_versions: &Arc<PolicyVersions>,
        old_id: u8,
        new_id: u8,
    ) {
        let before =
            std::mem::replace(&mut self.entries.policy_versions, Arc::clone(policy_versions));
        let (Some(old), Some(new)) = (before.get(old_id), policy_versions.get(new_id)) else {
            return;
        };
        let now_ns = self.now_ns;
        for at in 0..self.entries.len() {
            self.reclaim_limiter(at);
            let bytes = self.heap_bytes(at);
            let Some(entry) = self.entries.at_mut(at).filter(|entry| entry.version == old_id)
            else {
                continue;
            };
            entry.version = new_id;
            match &mut entry.form {
                EntryForm::State(limit) => carry_over(limit, new.policy, now_ns),
                EntryForm::Ledger(ledger) => carry_ledger_over(ledger, new.policy, now_ns),
                EntryForm::Limiter(limiter) => self.late.push(PendingPolicy {
                    location: KeyLocation { id: entry.id, hash: entry.hash, ..self.location },
                    version: new_id,
                    limiter: limiter.clone(),
                    policy: new.policy,
                }),
                EntryForm::Taken => {}
            }
            self.account(bytes, self.heap_bytes(at));
        }
        let (table, entries) = (self.table, &mut *self.entries);
        let Some(slots) = &table.slots else { return };
        // Under another limit, buckets are full at another time.
        slots.clear_full_until(self.location.shard);
        entries.eviction_cursor = EvictionCursor::default();
        slots.change_all(self.location.shard, old_id, |id: I, value| {
            let mut limit = Member::unpack(old.policy, value, now_ns)?;
            carry_over(&mut limit, new.policy, now_ns);
            if let Some(value) = limit.pack(now_ns) {
                return Some((value, new_id));
            }
            let hash = id.home(&table.seeds);
            table.account(0, limit.heap_bytes());
            entries.insert(id, hash, (new_id, EntryForm::State(limit)), true);
            None
        });
    }
}

impl<T, C> SectionResult<T, C> {
    fn map<U>(self, change: impl FnOnce(T) -> U) -> SectionResult<U, C> {
        match self {
            Self::Here(done) => SectionResult::Here(change(done)),
            Self::Delegate(limiter) => SectionResult::Delegate(limiter),
            Self::TableFull => SectionResult::TableFull,
            Self::NoBytes => SectionResult::NoBytes,
        }
    }
}

/// Returns the error of an operation in its result.
fn flatten<T, C, E>(result: SectionResult<Result<T, E>, C>) -> Result<SectionResult<T, C>, E> {
    Ok(match result {
        SectionResult::Here(done) => SectionResult::Here(done?),
        SectionResult::Delegate(limiter) => SectionResult::Delegate(limiter),
        SectionResult::TableFull => SectionResult::TableFull,
        SectionResult::NoBytes => SectionResult::NoBytes,
    })
}
