//! The table that all clones of a [`Keyed`](super::Keyed) share, and the paths of a request
//! through it.
//!
//! A request is answered without a lock if a slot suffices, else under the lock of the key's
//! shard. If that finds a limiter, the limiter answers once the lock is free.

use std::hint::black_box;
use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock, PoisonError, TryLockError};

use rategate_core::bare::Bare;
use rategate_core::concurrent::Twinned;
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;
use rategate_core::narrow::Narrow;
use rategate_core::refund::Past;
use rategate_core::verdict::Settled;

use super::beside::{Beside, View};
use super::entries::Entries;
use super::error::KeyedError;
use super::key::{Id, Seeds};
use super::plans::{Plan, Plans};
use super::room::{MAX_KEYS, Overflow, Room};
use super::slots::{SlotPlan, Slots, Told, WINDOW, scaled};
use super::strangers::Strangers;
use super::turn::{Late, Place, Ruled, Turn};
use crate::clock::Clock;
use crate::decision::{Decision, Grant};
use crate::error::Closed;
use crate::limiter::{Limiter, most_at_once};
use crate::standing::Look;
use crate::stats::KeyStats;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// The most keys of a shard, so that work under one lock takes some microseconds.
const KEYS_PER_SHARD: usize = 1_638;
/// The number of shards of a small table, if it has enough keys.
const FEW_SHARDS: usize = 16;
/// The number of keys per shard from which a small table is split.
const FEW_KEYS: usize = 64;
/// The refund epoch of the shared limits: beyond any policy's, which tells their grants from
/// others.
const SPILLED: Past = Past::after_changes(1 << 31);

/// A table that all handles share.
pub(super) struct Table<I: Id, P: Twinned, C: Clock> {
    pub(super) clock: C,
    pub(super) seeds: Seeds,
    room: Room,
    pub(super) strangers: Strangers,
    /// Absent if no policy packs its states into a part of a word.
    pub(super) slots: Option<Slots>,
    shards: Box<[Mutex<Entries<I, P, C>>]>,
    tally: Tally,
    /// The limits, one per tier, that new keys share when the table is full.
    spill: Box<[Spill<P, C>]>,
    /// Held for as long as a change takes, so that changes exclude each other.
    plans: Mutex<Plans<P>>,
    /// The number of completed changes.
    changes: AtomicU64,
    stats: OnceLock<Stats<I>>,
}

/// The statistics of a table that counts.
struct Stats<I> {
    keys: KeyStats<I>,
    /// The permits that a fresh limit of each tier grants at once.
    limits: Box<[AtomicU64]>,
}

/// A limit that new keys share, created at its first use.
type Spill<P, C> = OnceLock<Limiter<Ledger<P>, C>>;

/// The counters written when keys come, go or grow, apart from the fields that every call
/// reads.
#[derive(Debug, Default)]
struct Tally {
    keys: Padded,
    heap_bytes: Padded,
    overflows: Padded,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(AtomicU64);

#[expect(clippy::redundant_closure_for_method_calls, reason = "a method of any lifetime")]
impl<I: Id, P: Twinned, C: Clock + Clone> Table<I, P, C> {
    pub(super) fn new(policies: Vec<P>, room: Room, seeds: Seeds, clock: C) -> Self {
        let plans = Plans::new(policies);
        let most_keys = room.most_keys.clamp(1, MAX_KEYS);
        let room = Room { most_keys, ..room };
        let shards =
            most_keys.div_ceil(KEYS_PER_SHARD).max((most_keys / FEW_KEYS).min(FEW_SHARDS)).max(1);
        let fits = plans.in_force().any(|(_, plan)| plan.narrow.is_some());
        let slots = fits.then(|| {
            // A fifth of the slots stays free.
            let slots = most_keys.div_ceil(shards).saturating_mul(5).div_ceil(4);
            Slots::new(shards, slots.max(WINDOW).next_power_of_two(), I::WORDS)
        });
        // Without memory for all slots at once, keys are kept behind the locks as they come.
        let slots = slots.flatten();
        if let Some(slots) = &slots {
            plans.in_force().for_each(|(id, plan)| write_plan(slots, id, plan));
        }
        let shared = Arc::new(plans.clone());
        Self {
            shards: (0..shards).map(|_| Mutex::new(Entries::new(Arc::clone(&shared)))).collect(),
            spill: (0..plans.tiers()).map(|_| OnceLock::new()).collect(),
            plans: Mutex::new(plans),
            changes: AtomicU64::new(0),
            stats: OnceLock::new(),
            strangers: Strangers::default(),
            tally: Tally::default(),
            clock,
            seeds,
            room,
            slots,
        }
    }

    #[inline]
    pub(super) fn place(&self, id: I, tier: usize) -> Place<I> {
        let hash = id.home(&self.seeds);
        Place { id, hash, shard: scaled(hash >> 32, self.shards.len()), tier }
    }

    /// Loads the memory of a key that is needed soon into the cache.
    #[inline]
    pub(super) fn touch(&self, place: &Place<I>) {
        if let Some(slots) = &self.slots {
            black_box(slots.touch(slots.home(place.shard, place.hash)));
        }
    }

    #[inline]
    pub(super) fn try_acquire<B: Beside>(
        &self,
        place: &Place<I>,
        permits: u64,
        read_ns: impl Fn() -> u64,
    ) -> Result<(Decision, B), KeyedError> {
        if let Some(slots) = &self.slots {
            let home = slots.home(place.shard, place.hash);
            let tier = tier_word(place.tier);
            match slots.try_acquire(home, place.id, tier, read_ns, permits, B::of_value) {
                Told::Granted(now_ns, spare, beside) => {
                    let grant = Grant::at(now_ns, now_ns, permits, spare);
                    return Ok((Decision::Granted(grant), beside));
                }
                Told::Denied(retry_after_ns, beside) => {
                    return Ok((Decision::denied(retry_after_ns), beside));
                }
                // A request for 0 permits needs no capacity.
                Told::Nowhere
                    if permits > 0 && place.tier < self.spill.len() && self.is_full_of_keys() =>
                {
                    return self.try_spilled(place.tier, permits);
                }
                Told::Nowhere | Told::Unknown => {}
            }
        }
        self.try_locked(place, permits)
    }

    #[cold]
    fn try_locked<B: Beside>(
        &self,
        place: &Place<I>,
        permits: u64,
    ) -> Result<(Decision, B), KeyedError> {
        match self.turn(place, |turn| turn.try_acquire(permits))?? {
            Ruled::Here((verdict, beside)) => Ok((Decision::of(&verdict), beside)),
            Ruled::Ask(limiter) => Ok(B::of_try(&limiter, permits)?),
            Ruled::NoBytes => Err(self.no_room()),
            Ruled::NoRoom => self.try_spilled(place.tier, permits),
        }
    }

    /// Decides for a new key for which the table has no capacity.
    fn try_spilled<B: Beside>(
        &self,
        tier: usize,
        permits: u64,
    ) -> Result<(Decision, B), KeyedError> {
        if let Some(shared) = self.spilled(tier)? {
            return Ok(B::of_try(shared, permits)?);
        }
        // Unlimited: the reply is that of the first call on a fresh limit.
        let (policy, now_ns) = (self.policy(tier)?, self.clock.now_ns());
        let mut fresh = self.strangers.state(&policy, now_ns);
        let verdict = Bare::new(&policy, &mut fresh, Past::UNKNOWN).try_acquire(now_ns, permits)?;
        Ok((Decision::of(&verdict), B::of(&View::State(&policy, &mut fresh), now_ns)))
    }

    pub(super) fn peek(&self, place: &Place<I>, permits: u64) -> Result<Option<u64>, KeyedError> {
        if let Some(slots) = &self.slots {
            let (home, tier) = (slots.home(place.shard, place.hash), tier_word(place.tier));
            let peeked =
                slots.look(home, place.id, tier, self.clock.now_ns(), |numbers, value, now_ns| {
                    let decided = numbers.decide(value, now_ns, permits)?;
                    Some(decided.map_or_else(NonZeroU64::get, |_| 0))
                });
            if let Some(Some(wait_ns)) = peeked {
                return Ok(Some(wait_ns));
            }
        }
        match self.turn(place, |turn| turn.peek(permits))?? {
            Ruled::Here(wait_ns) => Ok(wait_ns),
            Ruled::Ask(limiter) => Ok(limiter.peek_ns(permits)?),
            Ruled::NoBytes => Err(KeyedError::TableFull),
            Ruled::NoRoom => {
                let shared = self.shared(place.tier)?.ok_or(KeyedError::TableFull)?;
                Ok(shared.peek_ns(permits)?)
            }
        }
    }

    pub(super) fn remaining(&self, place: &Place<I>) -> Result<u64, KeyedError> {
        if let Some(slots) = &self.slots {
            let (home, tier) = (slots.home(place.shard, place.hash), tier_word(place.tier));
            let count = |numbers: Narrow, value, now_ns| numbers.remaining(value, now_ns);
            if let Some(permits) = slots.look(home, place.id, tier, self.clock.now_ns(), count) {
                return Ok(permits);
            }
        }
        match self.turn(place, |turn| turn.remaining())? {
            Ruled::Here(permits) => Ok(permits),
            Ruled::Ask(limiter) => Ok(limiter.remaining()?),
            Ruled::NoBytes => Err(KeyedError::TableFull),
            Ruled::NoRoom => {
                let shared = self.shared(place.tier)?.ok_or(KeyedError::TableFull)?;
                Ok(shared.remaining()?)
            }
        }
    }

    /// Returns the status of a key's limit at `now_ns`, or later if that takes the lock.
    pub(super) fn look(&self, place: &Place<I>, now_ns: u64) -> Result<Look, KeyedError> {
        if let Some(slots) = &self.slots {
            let (home, tier) = (slots.home(place.shard, place.hash), tier_word(place.tier));
            if let Some(look) = slots.look(home, place.id, tier, now_ns, Look::of_value) {
                return Ok(look);
            }
        }
        match self.turn(place, |turn| turn.view(|limit, now_ns| Look::of(&limit, now_ns)))? {
            Ruled::Here(look) => Ok(look),
            Ruled::Ask(limiter) => Ok(limiter.look()?),
            Ruled::NoBytes => Err(KeyedError::TableFull),
            Ruled::NoRoom => {
                let shared = self.shared(place.tier)?.ok_or(KeyedError::TableFull)?;
                Ok(shared.look()?)
            }
        }
    }

    pub(super) fn give_back(&self, place: &Place<I>, permits: u64) -> Result<u64, KeyedError> {
        match self.turn_in_order(place, |turn| turn.give_back(permits))? {
            Ruled::Here(back) => Ok(back),
            Ruled::Ask(limiter) => Ok(limiter.give_back(permits)?),
            Ruled::NoRoom | Ruled::NoBytes => Err(self.no_room()),
        }
    }

    pub(super) fn reset(&self, place: &Place<I>) -> Result<bool, KeyedError> {
        match self.turn(place, |turn| turn.reset())? {
            Ruled::Here(was_used) => Ok(was_used),
            Ruled::Ask(limiter) => Ok(limiter.reset()?),
            Ruled::NoRoom | Ruled::NoBytes => Err(self.no_room()),
        }
    }

    pub(super) fn refund(
        &self,
        place: &Place<I>,
        grant: &Grant,
        permits: u64,
    ) -> Result<u64, KeyedError> {
        if let Some(shared) = self.spill_of(place.tier, grant) {
            return Ok(shared.refund(grant, permits)?);
        }
        match self.turn_in_order(place, |turn| turn.refund(&grant.as_granted(), permits))? {
            Ruled::Here(back) => Ok(back),
            Ruled::Ask(limiter) => Ok(limiter.refund(grant, permits)?),
            Ruled::NoRoom | Ruled::NoBytes => Err(self.no_room()),
        }
    }

    pub(super) fn settle(
        &self,
        place: &Place<I>,
        grant: &Grant,
        actual: u64,
    ) -> Result<Settled, KeyedError> {
        if let Some(shared) = self.spill_of(place.tier, grant) {
            return Ok(shared.settle(grant, actual)?);
        }
        match self.turn_in_order(place, |turn| turn.settle(&grant.as_granted(), actual))?? {
            Ruled::Here(settled) => Ok(settled),
            Ruled::Ask(limiter) => Ok(limiter.settle(grant, actual)?),
            Ruled::NoRoom | Ruled::NoBytes => Err(self.no_room()),
        }
    }

    pub(super) fn on_flight(
        &self,
        place: &Place<I>,
        act: impl FnOnce(&mut dyn Limit, u64) -> bool,
        ask: impl FnOnce(&Limiter<Ledger<P>, C>) -> Result<bool, Closed>,
    ) -> Result<bool, KeyedError> {
        let (counts, is_known) = match self.turn(place, |turn| turn.on_flight(act))? {
            Ruled::Here(counted) => counted,
            Ruled::Ask(limiter) => return Ok(ask(&limiter)?),
            Ruled::NoRoom | Ruled::NoBytes => return Err(KeyedError::TableFull),
        };
        // An unknown key has nothing in flight here, so it took its permits from the shared limit.
        let shared = self.spill.get(place.tier).and_then(OnceLock::get);
        match shared.filter(|_| counts && !is_known) {
            Some(shared) => Ok(ask(shared)?),
            None => Ok(counts),
        }
    }

    pub(super) fn limiter(&self, place: &Place<I>) -> Result<Limiter<Ledger<P>, C>, KeyedError> {
        match self.turn(place, |turn| turn.limiter())? {
            Ruled::Here(limiter) | Ruled::Ask(limiter) => Ok(limiter),
            Ruled::NoBytes => Err(self.no_room()),
            Ruled::NoRoom => self.spill(place.tier),
        }
    }

    /// Returns the limiter for a key that found no capacity.
    pub(super) fn spill(&self, tier: usize) -> Result<Limiter<Ledger<P>, C>, KeyedError> {
        match self.spilled(tier)? {
            Some(shared) => Ok(shared.clone()),
            None => Ok(self.spilling(self.policy(tier)?)),
        }
    }

    /// Returns the limiter of a key, if a handle to it exists.
    pub(super) fn limiter_in_use(
        &self,
        place: &Place<I>,
    ) -> Result<Option<Limiter<Ledger<P>, C>>, KeyedError> {
        self.turn(place, |turn| turn.limiter_in_use())
    }

    /// Runs `act` under the lock of the key's shard, at one reading of the clock.
    fn turn<T>(
        &self,
        place: &Place<I>,
        act: impl FnOnce(&mut Turn<'_, I, P, C>) -> T,
    ) -> Result<T, KeyedError> {
        self.turn_at(place, C::now_ns, act)
    }

    /// Runs `act` under the shard's lock, at a clock reading ordered after all earlier decisions.
    fn turn_in_order<T>(
        &self,
        place: &Place<I>,
        act: impl FnOnce(&mut Turn<'_, I, P, C>) -> T,
    ) -> Result<T, KeyedError> {
        self.turn_at(place, C::now_in_order_ns, act)
    }

    fn turn_at<T>(
        &self,
        place: &Place<I>,
        read_ns: impl Fn(&C) -> u64,
        act: impl FnOnce(&mut Turn<'_, I, P, C>) -> T,
    ) -> Result<T, KeyedError> {
        let tiers = self.spill.len();
        if place.tier >= tiers {
            return Err(KeyedError::NoSuchTier { tier: place.tier, tiers });
        }
        let mut entries = self.lock(place.shard);
        // Inside the lock: a reading from outside could be overtaken by another thread's.
        let now_ns = read_ns(&self.clock);
        let mut late = Vec::new();
        let mut turn = Turn::at(self, &mut entries, *place, &mut late);
        turn.begin(now_ns);
        let result = act(&mut turn);
        drop(entries);
        self.give_numbers(late);
        Ok(result)
    }

    /// Puts a policy into force for a tier, shard by shard.
    pub(super) fn reconfigure(&self, tier: usize, policy: P) -> Result<(), KeyedError> {
        let tiers = self.spill.len();
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((old_id, new_id)) = plans.change(tier, policy.clone()) else {
            return Err(KeyedError::NoSuchTier { tier, tiers });
        };
        if let (Some(slots), Some(plan)) = (&self.slots, plans.get(new_id)) {
            write_plan(slots, new_id, plan);
        }
        let changed = Arc::new(Plans::clone(&plans));
        let mut late = Vec::new();
        for shard in 0..self.shards.len() {
            let mut entries = self.lock(shard);
            let now_ns = self.clock.now_in_order_ns();
            // The id is unused: the whole shard is meant.
            let place = Place { id: I::of([0; 2]), hash: 0, shard, tier };
            let mut turn = Turn::at(self, &mut entries, place, &mut late);
            turn.begin(now_ns);
            turn.change(&changed, old_id, new_id);
        }
        self.set_limit(tier, &policy);
        drop(plans);
        self.give_numbers(late);
        self.give_spill_numbers(tier, new_id, policy);
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    pub(super) fn set_stats(&self, keys: KeyStats<I>) {
        let plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = (0..plans.tiers()).map(|_| AtomicU64::new(0)).collect();
        if self.stats.set(Stats { keys, limits }).is_ok() {
            for (_, plan) in plans.in_force() {
                self.set_limit(plan.tier, &plan.policy);
            }
        }
    }

    /// Reconfigures limiters while no lock is held. One closed meanwhile needs no change.
    pub(super) fn give_numbers(&self, late: Vec<Late<I, P, C>>) {
        for mut one in late {
            loop {
                let _ = one.limiter.reconfigure(one.policy.clone());
                // Another thread may have brought a newer policy, and been faster. The last thread
                // to reconfigure a limiter checks which one is in force. The key keeps its
                // limiter, as this handle exists.
                let entries = self.lock(one.place.shard);
                let at = entries.find(one.place.id, one.place.hash);
                let Some(entry) = at.and_then(|at| entries.at(at)) else { break };
                let Some(newer) = entries.plans.get(entry.plan).filter(|_| entry.plan != one.plan)
                else {
                    break;
                };
                (one.plan, one.policy) = (entry.plan, newer.policy.clone());
            }
        }
    }

    fn set_limit(&self, tier: usize, policy: &P) {
        let limit = most_at_once(policy);
        if let Some(word) = self.stats.get().and_then(|stats| stats.limits.get(tier)) {
            word.store(limit, Ordering::Relaxed);
        }
    }

    /// Reconfigures the limit that new keys share.
    fn give_spill_numbers(&self, tier: usize, mut plan_id: u8, mut policy: P) {
        let Some(shared) = self.spill.get(tier).and_then(OnceLock::get) else { return };
        loop {
            let _ = shared.reconfigure(policy);
            let plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
            match plans.of_tier(tier) {
                Some((newer_id, newer)) if newer_id != plan_id => {
                    (plan_id, policy) = (newer_id, newer.policy.clone());
                }
                _ => return,
            }
        }
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(super) fn policy(&self, tier: usize) -> Result<P, KeyedError> {
        let plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let tiers = plans.tiers();
        let plan = plans.of_tier(tier).ok_or(KeyedError::NoSuchTier { tier, tiers })?;
        Ok(plan.1.policy.clone())
    }

    /// Counts an overflow, and returns the limit that the new key shares.
    fn spilled(&self, tier: usize) -> Result<Option<&Limiter<Ledger<P>, C>>, KeyedError> {
        let _ = self.no_room();
        self.shared(tier)
    }

    /// Returns the limit that new keys in a full table share, or `None` if they pass unlimited.
    fn shared(&self, tier: usize) -> Result<Option<&Limiter<Ledger<P>, C>>, KeyedError> {
        match self.room.overflow {
            Overflow::Refuse => Err(KeyedError::TableFull),
            Overflow::Admit => Ok(None),
            Overflow::Share => {
                let tiers = self.spill.len();
                let spill = self.spill.get(tier).ok_or(KeyedError::NoSuchTier { tier, tiers })?;
                if let Some(shared) = spill.get() {
                    return Ok(Some(shared));
                }
                // Under the lock of the policies, so that no change is missed.
                let plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
                let plan = plans.of_tier(tier).ok_or(KeyedError::NoSuchTier { tier, tiers })?;
                Ok(Some(spill.get_or_init(|| self.spilling(plan.1.policy.clone()))))
            }
        }
    }

    /// Creates a limit for new keys to share, whose grants are marked as such.
    fn spilling(&self, policy: P) -> Limiter<Ledger<P>, C> {
        let now_ns = self.clock.now_ns();
        let fresh = self.strangers.state(&policy, now_ns);
        Limiter::over(Ledger::resumed(policy, fresh, SPILLED, now_ns), self.clock.clone())
    }

    /// Returns the shared limit, if the grant is one of it.
    fn spill_of(&self, tier: usize, grant: &Grant) -> Option<&Limiter<Ledger<P>, C>> {
        let is_spilled = grant.as_granted().ticket.past() >= SPILLED;
        self.spill.get(tier)?.get().filter(|_| is_spilled)
    }

    fn no_room(&self) -> KeyedError {
        self.tally.overflows.0.fetch_add(1, Ordering::Relaxed);
        if let Some(stats) = self.stats() {
            stats.overflowed(self.clock.now_ns());
        }
        KeyedError::TableFull
    }

    /// Locks the policies in force against changes.
    #[cfg(feature = "serde")]
    pub(super) fn plans(&self) -> MutexGuard<'_, Plans<P>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(feature = "serde")]
    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Returns the address of a shard's lock in memory.
    pub(super) fn address(&self, shard: usize) -> usize {
        self.shards.get(shard).map_or(0, |shard| std::ptr::from_ref(shard).addr())
    }

    pub(super) fn lock(&self, shard: usize) -> MutexGuard<'_, Entries<I, P, C>> {
        // Every hash has a shard.
        let shard = self.shards.get(shard).or(self.shards.first());
        #[expect(clippy::expect_used, reason = "a table has one shard at least")]
        let shard = shard.expect("a shard");
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counters and sizes.
impl<I: Id, P: Twinned, C: Clock> Table<I, P, C> {
    /// Returns the policies in force, in the order of their tiers, unless another thread changes
    /// them.
    pub(super) fn policies_if_free(&self) -> Option<Vec<P>> {
        let plans = match self.plans.try_lock() {
            Ok(plans) => plans,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(plans.in_force().map(|(_, plan)| plan.policy.clone()).collect())
    }

    pub(super) fn keys(&self) -> usize {
        usize::try_from(self.tally.keys.0.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    pub(super) fn stats(&self) -> Option<&KeyStats<I>> {
        self.stats.get().map(|stats| &stats.keys)
    }

    /// Returns the statistics, if any, and the permits that a fresh limit of this tier grants at
    /// once.
    #[inline]
    pub(super) fn stats_of(&self, tier: usize) -> Option<(&KeyStats<I>, u64)> {
        let stats = self.stats.get()?;
        Some((&stats.keys, stats.limits.get(tier)?.load(Ordering::Relaxed)))
    }

    pub(super) fn overflows(&self) -> u64 {
        self.tally.overflows.0.load(Ordering::Relaxed)
    }

    pub(super) const fn room(&self) -> Room {
        self.room
    }

    pub(super) fn heap_bytes(&self) -> usize {
        usize::try_from(self.tally.heap_bytes.0.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Returns the bytes that the whole table takes.
    pub(super) fn bytes(&self) -> usize {
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
    pub(super) fn count_key(&self) -> bool {
        let most = u64::try_from(self.room.most_keys).unwrap_or(u64::MAX);
        let one_more = |keys: u64| (keys < most).then(|| keys.saturating_add(1));
        self.tally.keys.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Sweeps a shard's slots if their values are about to become ambiguous.
    ///
    /// Called with the shard's lock held. Returns the shard's time.
    pub(super) fn fresh_slots(&self, shard: usize, now_ns: u64) -> u64 {
        let Some(slots) = &self.slots else { return now_ns };
        let now_ns = slots.not_before_sweep(shard, now_ns);
        if slots.has_faded(shard, now_ns) {
            self.forget_keys(slots.sweep(shard, now_ns));
        }
        now_ns
    }

    pub(super) fn forget_keys(&self, keys: usize) {
        if keys > 0 {
            let keys = u64::try_from(keys).unwrap_or(u64::MAX);
            self.tally.keys.0.fetch_sub(keys, Ordering::Relaxed);
        }
    }

    pub(super) fn is_full_of_keys(&self) -> bool {
        self.keys() >= self.room.most_keys
    }

    pub(super) fn is_full_of_bytes(&self) -> bool {
        self.heap_bytes() >= self.room.most_bytes
    }

    pub(super) fn is_full_of_bytes_with(&self, more: usize) -> bool {
        more > 0 && self.heap_bytes().saturating_add(more) > self.room.most_bytes
    }

    pub(super) fn account(&self, before: usize, after: usize) {
        let word = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        if after > before {
            self.tally.heap_bytes.0.fetch_add(word(after.wrapping_sub(before)), Ordering::Relaxed);
        } else if before > after {
            self.tally.heap_bytes.0.fetch_sub(word(before.wrapping_sub(after)), Ordering::Relaxed);
        }
    }
}

fn write_plan<P: Twinned>(slots: &Slots, id: u8, plan: &Plan<P>) {
    if let Some(numbers) = plan.narrow {
        slots.write_plan(id, SlotPlan { numbers, tier: tier_word(plan.tier), past: plan.past });
    }
}

fn tier_word(tier: usize) -> u64 {
    u64::try_from(tier).unwrap_or(u64::MAX)
}
