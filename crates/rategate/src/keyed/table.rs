//! The table that all clones of a [`Keyed`](super::Keyed) share, and the paths of a request
//! through it.
//!
//! A request is answered without a lock if a slot suffices, else under the lock of the key's
//! shard. If that finds a limiter, the limiter answers once the lock is free.

use std::hint::black_box;
use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use rategate_core::any_policy::{AnyPolicy, Member};
use rategate_core::debt::Debt;
use rategate_core::ledger::Ledger;
use rategate_core::packed::Packed;

use self::section::{KeyLocation, KeySection, SectionResult};
use super::capacity::{Capacity, MAX_KEYS, Overflow};
use super::entries::Entries;
use super::joint::{GuardedBy, Guarding};
use super::key::{Id, Seeds};
use super::policy_versions::{PolicyVersion, PolicyVersions};
use super::projection::{Peeked, Projection};
use super::slots::{SlotDecision, SlotVersion, Slots, WINDOW, scaled};
use crate::clock::{Clock, NeverBack};
use crate::decision::{Decision, Grant};
use crate::error::KeyedError;
use crate::hold::KeyName;
use crate::limiter::Limiter;
use crate::stats::KeyStats;
use crate::status::Status;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

mod changes;
mod holds;
mod returns;
pub(super) mod section;
mod tally;

/// The most keys of a shard, so that work under one lock takes some microseconds.
const KEYS_PER_SHARD: usize = 1_638;
/// The number of shards of a small table, if it has enough keys.
const FEW_SHARDS: usize = 16;
/// The minimum number of keys per shard of a small table that has several shards.
const FEW_KEYS: usize = 64;
/// The serial numbers of a ledger.
const SERIALS: u64 = 1 << 32;

/// A table that all handles share.
pub(super) struct Table<I: Id, C: Clock> {
    pub(super) clock: NeverBack<C>,
    pub(super) seeds: Seeds,
    capacity: Capacity,
    /// Absent if no policy packs its states into a part of a word.
    pub(super) slots: Option<Slots>,
    shards: Box<[Mutex<Entries<I, C>>]>,
    tally: Tally,
    /// The limits, one per tier, that new keys share when the table is full.
    spill: Box<[Spill<C>]>,
    /// Held for as long as a change takes, so that changes exclude each other.
    policy_versions: Mutex<PolicyVersions>,
    /// The number of completed changes.
    changes: AtomicU64,
    /// One bit for each tier: whether its operations have to be ended.
    needs_ends: AtomicU64,
    /// The bits of how debts end.
    pub(super) debt: AtomicU64,
    /// The serial number from which the next ledger counts, so that no hold of a key names one of
    /// a later ledger of the same key.
    first_serial: AtomicU64,
    stats: OnceLock<Stats<I>>,
}

/// The statistics of a table that counts.
struct Stats<I> {
    keys: KeyStats<I>,
    /// The permits that a fresh limit of each tier grants at once.
    limits: Box<[AtomicU64]>,
}

/// A limit that new keys share, created at its first use.
type Spill<C> = OnceLock<Limiter<C>>;

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
impl<I: Id, C: Clock + Clone> Table<I, C> {
    pub(super) fn new(
        policies: Vec<AnyPolicy>,
        capacity: Capacity,
        seeds: Seeds,
        clock: C,
    ) -> Self {
        let policy_versions = PolicyVersions::new(policies);
        let max_keys = capacity.max_keys.clamp(1, MAX_KEYS);
        let capacity = Capacity { max_keys, ..capacity };
        let shards =
            max_keys.div_ceil(KEYS_PER_SHARD).max((max_keys / FEW_KEYS).min(FEW_SHARDS)).max(1);
        let fits = policy_versions.in_force().any(|(_, version)| version.packed.is_some());
        let slots = fits.then(|| {
            // A fifth of the slots stays free.
            let slots = max_keys.div_ceil(shards).saturating_mul(5).div_ceil(4);
            Slots::new(shards, slots.max(WINDOW).next_power_of_two(), I::WORDS)
        });
        // Without memory for all slots at once, keys are kept behind the locks as they come.
        let slots = slots.flatten();
        if let Some(slots) = &slots {
            policy_versions.in_force().for_each(|(id, version)| write_version(slots, id, version));
        }
        let shared = Arc::new(policy_versions.clone());
        let needs_ends = AtomicU64::new(policy_versions.needing_ends());
        Self {
            shards: (0..shards).map(|_| Mutex::new(Entries::new(Arc::clone(&shared)))).collect(),
            spill: (0..policy_versions.tiers()).map(|_| OnceLock::new()).collect(),
            policy_versions: Mutex::new(policy_versions),
            changes: AtomicU64::new(0),
            needs_ends,
            debt: AtomicU64::new(Debt::FORGOTTEN.bits()),
            first_serial: AtomicU64::new(0),
            stats: OnceLock::new(),
            tally: Tally::default(),
            clock: NeverBack::new(clock, 0),
            seeds,
            capacity,
            slots,
        }
    }

    #[inline]
    pub(super) fn location(&self, id: I, tier: usize) -> KeyLocation<I> {
        let hash = id.home(&self.seeds);
        KeyLocation { id, hash, shard: scaled(hash >> 32, self.shards.len()), tier }
    }

    /// Returns the location of a key by its name.
    pub(super) fn named(&self, name: KeyName) -> KeyLocation<I> {
        self.location(I::of(name.id), name.tier)
    }

    /// Loads the memory of a key that is needed soon into the cache.
    #[inline]
    pub(super) fn touch(&self, location: &KeyLocation<I>) {
        if let Some(slots) = &self.slots {
            black_box(slots.touch(slots.home(location.shard, location.hash)));
        }
    }

    #[inline]
    pub(super) fn try_acquire<B: Projection>(
        &self,
        location: &KeyLocation<I>,
        permits: u64,
        read_ns: impl Fn() -> u64,
    ) -> Result<B::Decided, KeyedError> {
        if let Some(slots) = &self.slots {
            let home = slots.home(location.shard, location.hash);
            let tier = tier_word(location.tier);
            match slots.try_acquire(home, location.id, tier, read_ns, permits, B::of_value) {
                SlotDecision::Granted(now_ns, projection) => {
                    let grant = Grant::at(now_ns, now_ns, permits);
                    return Ok(projection.with(Decision::Granted(grant)));
                }
                SlotDecision::Denied(retry_after_ns, projection) => {
                    return Ok(projection.with(Decision::denied(Some(retry_after_ns))));
                }
                // A request for 0 permits needs no capacity.
                SlotDecision::KeyAbsent
                    if permits > 0
                        && location.tier < self.spill.len()
                        && self.is_full_of_keys() =>
                {
                    return self.try_spilled::<B>(location.tier, permits);
                }
                SlotDecision::KeyAbsent | SlotDecision::Unknown => {}
            }
        }
        self.try_locked::<B>(location, permits)
    }

    #[cold]
    fn try_locked<B: Projection>(
        &self,
        location: &KeyLocation<I>,
        permits: u64,
    ) -> Result<B::Decided, KeyedError> {
        match self.section(location, |section| section.try_acquire(permits))?? {
            SectionResult::Here((verdict, projection)) => {
                Ok(B::with(projection, Decision::of(&verdict)))
            }
            SectionResult::Delegate(limiter) => Ok(B::of_try(&limiter, permits)?),
            SectionResult::NoBytes => Err(self.table_full()),
            SectionResult::TableFull => self.try_spilled::<B>(location.tier, permits),
        }
    }

    /// Decides for a new key for which the table has no capacity.
    fn try_spilled<B: Projection>(
        &self,
        tier: usize,
        permits: u64,
    ) -> Result<B::Decided, KeyedError> {
        if let Some(shared) = self.spilled(tier)? {
            return Ok(B::of_try(shared, permits)?);
        }
        // Unlimited: the reply is that of the first call on a fresh limit.
        let now_ns = self.clock.now_ns();
        let fresh = Member::fresh(self.policy(tier)?, now_ns);
        let mut fresh = Ledger::with_state(fresh, now_ns);
        let verdict = fresh.try_acquire(now_ns, permits)?;
        Ok(B::of(&fresh, now_ns).with(Decision::of(&verdict)))
    }

    pub(super) fn peek<B: Projection>(
        &self,
        location: &KeyLocation<I>,
        permits: u64,
    ) -> Result<Peeked<B>, KeyedError> {
        if let Some(slots) = &self.slots {
            let (home, tier) =
                (slots.home(location.shard, location.hash), tier_word(location.tier));
            let peeked = slots.status(
                home,
                location.id,
                tier,
                self.clock.now_ns(),
                |numbers, value, now_ns| {
                    let decided = numbers.decide(value, now_ns, permits)?;
                    let wait_ns = decided.map_or_else(NonZeroU64::get, |_| 0);
                    Some((Some(wait_ns), B::of_value(numbers, value, now_ns)))
                },
            );
            if let Some(Some(peeked)) = peeked {
                return Ok(peeked);
            }
        }
        match self.section(location, |section| section.peek(permits))?? {
            SectionResult::Here(peeked) => Ok(peeked),
            SectionResult::Delegate(limiter) => Ok(B::of_peek(&limiter, permits)?),
            SectionResult::NoBytes => Err(KeyedError::TableFull),
            SectionResult::TableFull => {
                let shared = self.shared(location.tier)?.ok_or(KeyedError::TableFull)?;
                Ok(B::of_peek(shared, permits)?)
            }
        }
    }

    pub(super) fn remaining(&self, location: &KeyLocation<I>) -> Result<u64, KeyedError> {
        if let Some(slots) = &self.slots {
            let (home, tier) =
                (slots.home(location.shard, location.hash), tier_word(location.tier));
            let count = |numbers: Packed, value, now_ns| numbers.remaining(value, now_ns);
            if let Some(permits) = slots.status(home, location.id, tier, self.clock.now_ns(), count)
            {
                return Ok(permits);
            }
        }
        match self.section(location, |section| section.remaining())? {
            SectionResult::Here(permits) => Ok(permits),
            SectionResult::Delegate(limiter) => Ok(limiter.remaining()?),
            SectionResult::NoBytes => Err(KeyedError::TableFull),
            SectionResult::TableFull => {
                let shared = self.shared(location.tier)?.ok_or(KeyedError::TableFull)?;
                Ok(shared.remaining()?)
            }
        }
    }

    /// Returns the status of a key's limit at `now_ns`, or later if that takes the lock.
    pub(super) fn status(
        &self,
        location: &KeyLocation<I>,
        now_ns: u64,
    ) -> Result<Status, KeyedError> {
        if let Some(slots) = &self.slots {
            let (home, tier) =
                (slots.home(location.shard, location.hash), tier_word(location.tier));
            if let Some(status) = slots.status(home, location.id, tier, now_ns, Status::of_value) {
                return Ok(status);
            }
        }
        match self.section(location, |section| section.view(Status::of_ledger))? {
            SectionResult::Here(status) => Ok(status),
            SectionResult::Delegate(limiter) => Ok(limiter.status()?),
            SectionResult::NoBytes => Err(KeyedError::TableFull),
            SectionResult::TableFull => {
                let shared = self.shared(location.tier)?.ok_or(KeyedError::TableFull)?;
                Ok(shared.status()?)
            }
        }
    }

    pub(super) fn limiter(&self, location: &KeyLocation<I>) -> Result<Limiter<C>, KeyedError> {
        match self.section(location, |section| section.limiter())? {
            SectionResult::Here(limiter) | SectionResult::Delegate(limiter) => Ok(limiter),
            SectionResult::NoBytes => Err(self.table_full()),
            SectionResult::TableFull => self.spill(location.tier),
        }
    }

    /// Returns the limiter for a key that found no capacity.
    pub(super) fn spill(&self, tier: usize) -> Result<Limiter<C>, KeyedError> {
        match self.spilled(tier)? {
            Some(shared) => Ok(shared.clone()),
            None => Ok(self.spilling(self.policy(tier)?)),
        }
    }

    /// Returns the limiter that guards a key's limit, unless the key's shard does, and the error
    /// for two parts of a call that share it.
    pub(super) fn guarding_limiter(
        &self,
        location: &KeyLocation<I>,
        guarded_by: GuardedBy,
    ) -> Result<Option<Guarding<C>>, KeyedError> {
        Ok(match guarded_by {
            GuardedBy::Shard => None,
            GuardedBy::Limiter => {
                let in_use = self.section(location, |section| section.limiter_in_use())?;
                in_use.map(|limiter| (limiter, KeyedError::Duplicate))
            }
            // Two parts of one table that find no capacity could share one limit, but not both be
            // parts of it.
            GuardedBy::Spill => Some((self.spill(location.tier)?, KeyedError::TableFull)),
        })
    }

    /// Runs `act` under the lock of the key's shard, at one reading of the clock.
    pub(super) fn section<T>(
        &self,
        location: &KeyLocation<I>,
        act: impl FnOnce(&mut KeySection<'_, I, C>) -> T,
    ) -> Result<T, KeyedError> {
        self.section_at(location, NeverBack::now_ns, act)
    }

    /// Runs `act` under the shard's lock, at a clock reading ordered after all earlier decisions.
    fn section_in_order<T>(
        &self,
        location: &KeyLocation<I>,
        act: impl FnOnce(&mut KeySection<'_, I, C>) -> T,
    ) -> Result<T, KeyedError> {
        self.section_at(location, NeverBack::now_in_order_ns, act)
    }

    fn section_at<T>(
        &self,
        location: &KeyLocation<I>,
        read_ns: impl Fn(&NeverBack<C>) -> u64,
        act: impl FnOnce(&mut KeySection<'_, I, C>) -> T,
    ) -> Result<T, KeyedError> {
        let tiers = self.spill.len();
        if location.tier >= tiers {
            return Err(KeyedError::NoSuchTier { tier: location.tier, tiers });
        }
        let mut entries = self.lock(location.shard);
        // Inside the lock: a reading from outside could be overtaken by another thread's.
        let now_ns = read_ns(&self.clock);
        let mut late = Vec::new();
        let mut section = KeySection::at(self, &mut entries, *location, &mut late);
        section.begin(now_ns);
        let result = act(&mut section);
        drop(entries);
        self.update_limiters(late);
        Ok(result)
    }

    /// Counts an overflow, and returns the limit that the new key shares.
    fn spilled(&self, tier: usize) -> Result<Option<&Limiter<C>>, KeyedError> {
        let _ = self.table_full();
        self.shared(tier)
    }

    /// Returns the limit that new keys in a full table share, or `None` if they pass unlimited.
    fn shared(&self, tier: usize) -> Result<Option<&Limiter<C>>, KeyedError> {
        match self.capacity.overflow {
            Overflow::Refuse => Err(KeyedError::TableFull),
            Overflow::Admit => Ok(None),
            Overflow::Share => {
                let tiers = self.spill.len();
                let spill = self.spill.get(tier).ok_or(KeyedError::NoSuchTier { tier, tiers })?;
                if let Some(shared) = spill.get() {
                    return Ok(Some(shared));
                }
                // Under the lock of the policies, so that no change is missed.
                let policy_versions =
                    self.policy_versions.lock().unwrap_or_else(PoisonError::into_inner);
                let version =
                    policy_versions.of_tier(tier).ok_or(KeyedError::NoSuchTier { tier, tiers })?;
                Ok(Some(spill.get_or_init(|| self.spilling(version.1.policy))))
            }
        }
    }

    /// Returns the ledger of a key that continues from its state.
    pub(super) fn ledger(&self, limit: Member, now_ns: u64) -> Ledger {
        self.with_own_serials(Ledger::with_state(limit, now_ns))
    }

    /// Returns a ledger with serial numbers that no other ledger of a key has.
    pub(super) fn with_own_serials(&self, mut ledger: Ledger) -> Ledger {
        ledger.skip_serials_to(self.first_serial.fetch_add(SERIALS, Ordering::Relaxed));
        ledger
    }

    /// Returns the limiter over a key's ledger, whose debts end as the table's do.
    pub(super) fn limiter_over(&self, ledger: Ledger) -> Limiter<C> {
        let limiter = Limiter::over(ledger, self.clock.inner().clone());
        match self.debt_terms() {
            // As they end without the memory that others need.
            Debt::FORGOTTEN => limiter,
            debt => limiter.with_debt(debt),
        }
    }

    /// Creates a limit for new keys to share.
    fn spilling(&self, policy: AnyPolicy) -> Limiter<C> {
        let now_ns = self.clock.now_ns();
        let fresh = Member::fresh(policy, now_ns);
        self.limiter_over(Ledger::with_state(fresh, now_ns))
    }

    fn table_full(&self) -> KeyedError {
        self.tally.overflows.0.fetch_add(1, Ordering::Relaxed);
        if let Some(stats) = self.stats() {
            stats.overflowed(Duration::from_nanos(self.clock.now_ns()));
        }
        KeyedError::TableFull
    }

    /// Locks the policies in force against changes.
    #[cfg(feature = "serde")]
    pub(super) fn policy_versions(&self) -> MutexGuard<'_, PolicyVersions> {
        self.policy_versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Returns the address of a shard's lock in memory.
    pub(super) fn address(&self, shard: usize) -> usize {
        self.shards.get(shard).map_or(0, |shard| std::ptr::from_ref(shard).addr())
    }

    pub(super) fn lock(&self, shard: usize) -> MutexGuard<'_, Entries<I, C>> {
        // Every hash has a shard.
        let shard = self.shards.get(shard).or(self.shards.first());
        #[expect(clippy::expect_used, reason = "a table has one shard at least")]
        let shard = shard.expect("a shard");
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counters and sizes.
impl<I: Id, C: Clock> Table<I, C> {
    /// Returns the policies in force, in the order of their tiers, unless another thread changes
    /// them.
    pub(super) fn policies_if_free(&self) -> Option<Vec<AnyPolicy>> {
        let policy_versions = match self.policy_versions.try_lock() {
            Ok(policy_versions) => policy_versions,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(policy_versions.in_force().map(|(_, version)| version.policy).collect())
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
}

fn write_version(slots: &Slots, id: u8, version: &PolicyVersion) {
    if let Some(numbers) = version.packed {
        slots.write_version(id, SlotVersion { numbers, tier: tier_word(version.tier) });
    }
}

fn tier_word(tier: usize) -> u64 {
    u64::try_from(tier).unwrap_or(u64::MAX)
}
