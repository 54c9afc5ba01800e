//! The assignment of the tables' tiers to inline limits.
//!
//! A deciding thread finds its limit without a lock, in a published map that it references
//! through a guard of [`ArcSwap`](arc_swap::ArcSwap). It may be stopped anywhere while other
//! threads add limits. So a tier is reassigned in two steps, both under the lock `retired`:
//!
//! 1. **Retired**: a map without the limit is published. A thread that looks it up now does not
//!    find it and takes the lock. It gets the very same object back, as long as the limit still
//!    owns its tier.
//! 2. **Reassigned**: once no thread references the limit, in any map ([`Arc::get_mut`] makes
//!    visible what those threads did). Also, its keys must have fully recovered and it must not
//!    be in use, or it was not used for a day. A thread that has counted has recorded when its
//!    key recovers, and a thread that has yet to count references the limit. Otherwise the limit
//!    is published again.
//!
//! So each request is decided under its own limit, however long a thread is stopped in between,
//! and its count remains. A limit that returns to another tier grants no key more than it would
//! have had in the first. Only after a day without use does it start afresh.

use std::collections::HashSet;
use std::io::Read;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use rategate::keyed::{Capacity, Hashing, Overflow};
use rategate::policy::saved::RestoreContext;
use rategate::snapshot::{SavedAt, SnapshotError};
use rategate::{AnyPolicy, Clock, Keyed};

use super::{
    InlineLimit, InlineLimits, MAX_IDLE_NS, MIN_IDLE_NS, Numbers, PER_TABLE, PublishedLimits,
    Table, TierSlot, Tiers, USE_RESOLUTION_NS,
};
use crate::engine::error::EngineError;
use crate::engine::snapshot::{NotRestored, TableError};

/// A tier that can be assigned.
type Tier<C> = (Table<C>, TierSlot);

impl<N: InlineLimit, C: Clock + Clone> InlineLimits<N, C> {
    /// Returns the tables in use, with the limits of their tiers.
    pub(in crate::engine) fn in_use(&self) -> Vec<(Table<C>, Tiers)> {
        let retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known.load_full();
        let of_table = |table: usize| {
            let numbers = known.by_limit.values().chain(&*retired);
            let numbers = numbers.filter(move |numbers| numbers.at.table == table);
            numbers.map(|numbers| (numbers.at.tier, numbers.limit.words())).collect()
        };
        known.tables.iter().cloned().zip(0..).map(|(it, table)| (it, of_table(table))).collect()
    }

    /// Restores a saved table as an additional one.
    pub(in crate::engine) fn restore(
        &self,
        limits: &[(u8, [u64; 3])],
        input: impl Read,
        since: impl FnOnce(&SavedAt) -> RestoreContext,
    ) -> Result<(), TableError> {
        let retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known.load_full();
        let limits = limits.iter().filter_map(|&(tier, words)| {
            let limit = N::of_words(words)?;
            Some((tier, limit, limit.policy().ok()?))
        });
        let limits: Vec<(u8, N, AnyPolicy)> = limits.collect();
        let is_retained = |limit| retired.iter().any(|numbers| numbers.limit == limit);
        let is_in_use = |limit| known.by_limit.contains_key(&limit) || is_retained(limit);
        let in_use = limits.iter().any(|(_, limit, _)| is_in_use(*limit));
        if in_use {
            return Err(NotRestored::InUse.into());
        }
        // Tiers without a limit can have any numbers.
        let Some(&(.., any)) = limits.first() else {
            return Err(NotRestored::CountsNothing.into());
        };
        let policy_of = |tier: usize| {
            let named = limits.iter().find(|(of, ..)| usize::from(*of) == tier);
            named.map_or(any, |&(.., policy)| policy)
        };
        let policies = (0..PER_TABLE).map(policy_of);
        let (capacity, clock) = (self.capacity(), self.clock.clone());
        let restored = if known.tables.len() < self.max_tables {
            Keyed::restore_since(policies, Some(tier_of), capacity, clock, input, since)
        } else {
            Err(SnapshotError::TableFull { keys: self.keys_per_table })
        };
        let table: Table<C> = restored?;
        let mut next = known.copy();
        let (slot, named_ns) = (next.tables.len(), self.clock.now_ns());
        next.tables.push(table.clone());
        for &(tier, limit, _) in &limits {
            // The recovery of its keys was not determined.
            let fresh_ns = named_ns.saturating_add(limit.memory_ns());
            let tier = (table.clone(), TierSlot { table: slot, tier });
            let numbers = Numbers::new(limit, tier, named_ns, fresh_ns);
            next.by_limit.insert(limit, Arc::new(numbers));
        }
        self.known.store(Arc::new(next));
        Ok(())
    }

    /// Returns a limit that was not found: the retired one, or a new one with a tier.
    #[cold]
    pub(super) fn register(&self, limit: N) -> Result<Arc<Numbers<N, C>>, EngineError> {
        let (policy, now_ns) = (limit.policy()?, self.clock.now_ns());
        // A client that sends one limit after another costs those in use nothing.
        if now_ns < self.full_until_ns.load(Ordering::Acquire) {
            // Another thread may have added the limit just now.
            return self.found(limit).ok_or_else(|| self.too_many());
        }
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(numbers) = self.found(limit) {
            return Ok(numbers);
        }
        if let Some(at) = retired.iter().position(|numbers| numbers.limit == limit) {
            let numbers = retired.swap_remove(at);
            self.publish([Arc::clone(&numbers)]);
            return Ok(numbers);
        }
        let tier = match self.unused_slot(&retired, policy)? {
            Some(tier) => tier,
            None => self.reclaimed_slot(&mut retired, now_ns)?,
        };
        let (table, at) = &tier;
        table.reconfigure_tier(at.tier.into(), policy).map_err(EngineError::of)?;
        let numbers = Arc::new(Numbers::new(limit, tier, now_ns, 0));
        self.publish([Arc::clone(&numbers)]);
        Ok(numbers)
    }

    const fn too_many(&self) -> EngineError {
        EngineError::TooManyLimits { max: self.max_limits() }
    }

    /// Publishes a map with these limits.
    fn publish(&self, these: impl IntoIterator<Item = Arc<Numbers<N, C>>>) {
        let mut next = self.known.load().copy();
        for numbers in these {
            if numbers.at.table == next.tables.len() {
                next.tables.push(numbers.table.clone());
            }
            next.by_limit.insert(numbers.limit, numbers);
        }
        self.known.store(Arc::new(next));
    }

    /// Returns a free tier, of a new table if necessary.
    fn unused_slot(
        &self,
        retired: &[Arc<Numbers<N, C>>],
        policy: AnyPolicy,
    ) -> Result<Option<Tier<C>>, EngineError> {
        let known = self.known.load();
        let tables = known.tables.len();
        // Each limit has a tier of its own, so counting is enough to know that none is free.
        let taken = known.by_limit.len().saturating_add(retired.len());
        if taken >= tables.saturating_mul(PER_TABLE) {
            if tables >= self.max_tables {
                return Ok(None);
            }
            return Ok(Some((self.new_table(policy)?, TierSlot { table: tables, tier: 0 })));
        }
        let all = known.by_limit.values().chain(retired);
        let in_use: HashSet<TierSlot> = all.map(|numbers| numbers.at).collect();
        let mut slots = known.tables.iter().enumerate().flat_map(|(slot, table)| {
            (0..PER_TABLE).map(move |tier| {
                let tier = u8::try_from(tier).unwrap_or(0);
                (table.clone(), TierSlot { table: slot, tier })
            })
        });
        Ok(slots.find(|(_, at)| !in_use.contains(at)))
    }

    /// Returns a tier that its limit needs no more and that no thread can be using.
    fn reclaimed_slot(
        &self,
        retired: &mut Vec<Arc<Numbers<N, C>>>,
        now_ns: u64,
    ) -> Result<Tier<C>, EngineError> {
        if let Some(slot) = self.reclaimable(retired, now_ns) {
            return Ok(slot);
        }
        let known = self.known.load();
        let first_ns = known.by_limit.values().map(|numbers| numbers.in_use_until_ns()).min();
        // A guard of the map would reference all limits in it.
        drop(known);
        match first_ns {
            Some(first_ns) if now_ns > first_ns => {}
            // Until then no lock is needed to refuse. But a retired limit could lose its last
            // reference at any moment.
            Some(first_ns) if retired.is_empty() => {
                self.full_until_ns.store(first_ns.saturating_add(1), Ordering::Release);
                return Err(self.too_many());
            }
            _ => return Err(self.too_many()),
        }
        let mut next = self.known.load().copy();
        let idle = next.by_limit.extract_if(|_, numbers| numbers.may_retire(now_ns));
        retired.extend(idle.map(|(_, numbers)| numbers));
        self.known.store(Arc::new(next));
        self.reclaimable(retired, now_ns).ok_or_else(|| self.too_many())
    }

    /// Returns the tier of a retired limit that no thread references.
    fn reclaimable(&self, retired: &mut Vec<Arc<Numbers<N, C>>>, now_ns: u64) -> Option<Tier<C>> {
        // The absence of references also makes visible what the threads that had them did.
        let reclaimable = retired.extract_if(.., |numbers| Arc::get_mut(numbers).is_some());
        let mut reclaimable: Vec<_> = reclaimable.collect();
        // A thread had found these before they were retired, and has counted since.
        let still_in_use: Vec<_> =
            reclaimable.extract_if(.., |numbers| !numbers.may_retire(now_ns)).collect();
        if !still_in_use.is_empty() {
            self.publish(still_in_use);
        }
        // Limits with recovered keys go before those that are unused for long: that has no effect
        // on clients.
        let fresh_ns = |numbers: &Numbers<N, C>| numbers.fresh_ns.load(Ordering::Relaxed);
        let first = (0..).zip(&reclaimable).min_by_key(|(_, numbers)| fresh_ns(numbers));
        let first = first.map(|(at, _)| at).map(|at| reclaimable.swap_remove(at));
        retired.append(&mut reclaimable);
        first.map(|numbers| (numbers.table.clone(), numbers.at))
    }

    fn new_table(&self, policy: AnyPolicy) -> Result<Table<C>, EngineError> {
        let (tiers, clock) = ([policy; PER_TABLE], self.clock.clone());
        Keyed::with_tiers(tiers, tier_of, self.capacity(), Hashing::FloodSafe, clock)
            .map_err(EngineError::of)
    }

    fn capacity(&self) -> Capacity {
        Capacity::for_keys(self.keys_per_table).or_else(Overflow::Share)
    }
}

impl<N: InlineLimit, C: Clock> PublishedLimits<N, C> {
    fn copy(&self) -> Self {
        Self { by_limit: self.by_limit.clone(), tables: self.tables.clone() }
    }
}

impl<N: InlineLimit, C: Clock> Numbers<N, C> {
    /// Returns the instant until which the limit keeps its tier even if another needs it. Never
    /// decreases.
    fn in_use_until_ns(&self) -> u64 {
        let named_ns = self.named_ns.load(Ordering::Relaxed);
        let unnamed_ns = named_ns.saturating_add(MAX_IDLE_NS).saturating_add(USE_RESOLUTION_NS);
        // A limit in constant use stays, however soon its keys recover.
        let in_use_ns = named_ns.saturating_add(MIN_IDLE_NS).saturating_add(USE_RESOLUTION_NS);
        self.fresh_ns.load(Ordering::Relaxed).max(in_use_ns).min(unnamed_ns)
    }

    /// Returns `true` if the tier may be reassigned.
    fn may_retire(&self, now_ns: u64) -> bool {
        now_ns > self.in_use_until_ns()
    }
}

/// Returns the tier of a key, which is its first byte.
fn tier_of(key: &[u8]) -> usize {
    key.first().copied().unwrap_or(0).into()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use rategate::ManualClock;

    use super::*;
    use crate::engine::answer::{ItemResult, Verdict};
    use crate::engine::request::{Inline, Verb};

    const SECOND: u64 = 1_000_000_000;

    type Buckets = InlineLimits<Inline, ManualClock>;

    /// Creates inline limits for as many as a table has tiers.
    fn buckets() -> (Buckets, ManualClock) {
        let clock = ManualClock::new();
        clock.set(Duration::from_nanos(SECOND));
        (InlineLimits::new(clock.clone(), 1_000, PER_TABLE), clock)
    }

    /// Returns a limit with this capacity that recovers one permit per second.
    const fn limit(capacity: u64) -> Inline {
        Inline { capacity, count: 1, period_ns: SECOND }
    }

    fn take(buckets: &Buckets, capacity: u64, permits: u64) -> Result<ItemResult, EngineError> {
        Ok(buckets.decide(limit(capacity), b"k", Verb::Take, permits)?.0)
    }

    /// Uses every tier: the first limit is of 1 permit.
    fn fill(buckets: &Buckets) {
        for capacity in 1..=PER_TABLE as u64 {
            take(buckets, capacity, 1).unwrap();
        }
    }

    /// A thread has found a limit that was unused for long, and is stopped there; others need its
    /// tier.
    #[test]
    fn a_call_on_its_way_keeps_its_limit_and_its_count() {
        for peeks_first in [true, false] {
            let (buckets, clock) = buckets();
            fill(&buckets);
            clock.advance(Duration::from_nanos(4 * SECOND));
            // All limits that recover later stay in use.
            for capacity in 2..=PER_TABLE as u64 {
                take(&buckets, capacity, 1).unwrap();
            }
            let known = buckets.known.load();
            let numbers = known.by_limit.get(&limit(1)).unwrap();
            let wide = take(&buckets, 1_000, 1);
            assert!(matches!(wide, Err(EngineError::TooManyLimits { .. })), "{wide:?}");
            let found = buckets.known.load().by_limit.len();
            assert_eq!(found, PER_TABLE - 1, "those in use are found as before");
            // The thread continues: by its own limit, not by any that came meanwhile.
            let (result, _) = numbers.decide(&clock, &numbers.key(b"k"), Verb::Take, 1).unwrap();
            assert_eq!((result.verdict, result.remaining), (Verdict::Granted, Some(0)));
            drop(known);
            // Its count is visible to peeks, and prevents the reassignment of the tier.
            let peek = || buckets.decide(limit(1), b"k", Verb::Peek, 1).unwrap().0.remaining;
            if peeks_first {
                assert_eq!(peek(), Some(0));
            }
            assert!(take(&buckets, 1_000, 1).is_err(), "it is in use again");
            assert_eq!(peek(), Some(0));
            assert!(take(&buckets, 1, 1).unwrap().verdict.is_over());
            // Until the key has recovered.
            clock.advance(Duration::from_nanos(4 * SECOND));
            assert_eq!(take(&buckets, 1_000, 1).unwrap().remaining, Some(999));
        }
    }

    /// No thread continues with the limit: its tier is free once the reference is dropped.
    #[test]
    fn a_tier_is_reclaimed_once_no_call_references_it() {
        let (buckets, clock) = buckets();
        fill(&buckets);
        clock.advance(Duration::from_nanos(3_600 * SECOND));
        let known = buckets.known.load();
        // Neither in this map nor in a later one.
        for capacity in 2..=PER_TABLE as u64 {
            take(&buckets, capacity, 1).unwrap();
        }
        assert!(take(&buckets, 1_000, 1).is_err());
        drop(known);
        assert_eq!(take(&buckets, 1_000, 1).unwrap().remaining, Some(999));
        assert!(
            matches!(take(&buckets, 1, 1), Err(EngineError::TooManyLimits { .. })),
            "its tier was reassigned"
        );
        assert!(buckets.retired.lock().unwrap().is_empty());
    }

    /// A limit that is requested again before its tier is reassigned keeps it, with its counts.
    #[test]
    fn a_retired_limit_comes_back_as_it_was() {
        let (buckets, clock) = buckets();
        fill(&buckets);
        clock.advance(Duration::from_nanos(3_600 * SECOND));
        let before = buckets.numbers(limit(7)).unwrap();
        clock.advance(Duration::from_nanos(3_600 * SECOND));
        let _ = take(&buckets, 1_000, 1);
        assert!(!buckets.known.load().by_limit.contains_key(&limit(7)));
        before.decide(&clock, &before.key(b"k"), Verb::Take, 5).unwrap();
        let again = buckets.numbers(limit(7)).unwrap();
        assert!(Arc::ptr_eq(&before, &again));
        assert!(buckets.is_retained(limit(7)), "a thread that has not found it checks again");
        assert_eq!(take(&buckets, 7, 1).unwrap().remaining, Some(1));
    }

    /// The count of a thread that counts late is remembered from then on.
    #[test]
    fn a_stopped_call_is_not_evicted_sooner() {
        let clock = Late::default();
        let buckets: InlineLimits<Inline, Late> =
            InlineLimits::new(clock.clone(), 1_000, PER_TABLE);
        let take = |capacity, permits| {
            buckets
                .decide(limit(capacity), b"k", Verb::Take, permits)
                .map(|(result, _)| result.remaining)
        };
        take(1, 1).unwrap();
        for capacity in 1_001..1_000 + PER_TABLE as u64 {
            take(capacity, 1_000).unwrap();
        }
        clock.clock.advance(Duration::from_nanos(4 * SECOND));
        clock.stop_ns.store(30 * SECOND, Ordering::Relaxed);
        take(1, 1).unwrap();
        assert!(take(1_000, 1).is_err(), "its second has not passed");
        clock.clock.advance(Duration::from_nanos(3 * SECOND));
        assert!(take(1_000, 1).is_ok());
    }

    /// Recovered limits lose their tiers first: one that was unused for a day stays while others
    /// are evicted.
    #[test]
    fn limits_that_still_remember_are_retired_last() {
        let (buckets, clock) = buckets();
        let decades =
            |nth: u64| Inline { capacity: 1, count: 1, period_ns: (1_000_000_000 + nth) * SECOND };
        let take_of = |limit| buckets.decide(limit, b"k", Verb::Take, 1).map(|(result, _)| result);
        for nth in 0..15 {
            take_of(decades(nth)).unwrap();
        }
        clock.advance(Duration::from_nanos(2 * MAX_IDLE_NS));
        for capacity in 1..=16 {
            take(&buckets, capacity, 1).unwrap();
        }
        clock.advance(Duration::from_nanos(4 * SECOND));
        for capacity in 101..=116 {
            take(&buckets, capacity, 1).unwrap();
        }
        for nth in 0..15 {
            assert!(take_of(decades(nth)).unwrap().verdict.is_over(), "{nth}");
        }
        assert!(take(&buckets, 1_000, 1).is_err(), "now all are in use");
    }

    /// A refusal waits for no lock and copies nothing.
    #[test]
    fn a_refusal_takes_no_lock_until_a_slot_can_be_free() {
        let (buckets, clock) = buckets();
        fill(&buckets);
        let before = buckets.known.load_full();
        assert!(take(&buckets, 1_000, 1).is_err());
        assert_eq!(buckets.full_until_ns.load(Ordering::Relaxed), 3 * SECOND + 1);
        clock.advance(Duration::from_nanos(2 * SECOND));
        let buckets = Arc::new(buckets);
        let retired = buckets.retired.lock().unwrap();
        let (notify, receiver) = std::sync::mpsc::channel();
        let refused = Arc::clone(&buckets);
        std::thread::spawn(move || notify.send(take(&refused, 1_000, 1)));
        let answer = receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(answer, Err(EngineError::TooManyLimits { max: PER_TABLE }));
        drop(retired);
        assert!(Arc::ptr_eq(&before, &buckets.known.load_full()));
        drop(before);
        clock.advance(Duration::from_nanos(1));
        assert_eq!(take(&buckets, 1_000, 1).unwrap().remaining, Some(999));
    }

    /// A limit that another thread added in the last free tier just before is found.
    #[test]
    fn a_limit_registered_meanwhile_is_not_refused() {
        let (buckets, _) = buckets();
        fill(&buckets);
        assert!(take(&buckets, 1_000, 1).is_err());
        assert!(buckets.register(limit(31)).is_ok());
        assert!(buckets.register(limit(1_000)).is_err());
    }

    /// While a retired limit is still referenced, each refusal checks again.
    #[test]
    fn a_refusal_ends_when_the_referenced_tier_is_released() {
        let (buckets, clock) = buckets();
        fill(&buckets);
        clock.advance(Duration::from_nanos(4 * SECOND));
        let numbers = buckets.numbers(limit(1)).unwrap();
        for capacity in 2..=PER_TABLE as u64 {
            take(&buckets, capacity, 1).unwrap();
        }
        for _ in 0..2 {
            assert!(take(&buckets, 1_000, 1).is_err());
        }
        // It does not count as published, and a request for it is not refused.
        assert!(!buckets.known.load().by_limit.contains_key(&limit(1)) && buckets.knows(limit(1)));
        drop(numbers);
        assert_eq!(take(&buckets, 1_000, 1).unwrap().remaining, Some(999));
    }

    /// A clock that stops its next reader after the reading, for a set time.
    #[derive(Clone, Debug, Default)]
    struct Late {
        clock: ManualClock,
        stop_ns: Arc<AtomicU64>,
    }

    impl Clock for Late {
        fn now_ns(&self) -> u64 {
            let now_ns = self.clock.now_ns();
            self.clock.advance(Duration::from_nanos(self.stop_ns.swap(0, Ordering::Relaxed)));
            now_ns
        }

        fn wait(
            &self,
            until_ns: u64,
            cancel: &rategate::wait::CancelToken,
        ) -> rategate::wait::Wake {
            self.clock.wait(until_ns, cancel)
        }
    }

    /// Threads whose limits go unused for long and short times on a fast clock: each is decided
    /// by its own.
    #[test]
    fn no_thread_is_decided_by_anothers_limit() {
        let (buckets, clock) = buckets();
        // Far more limits than tiers, with very different capacities, and each thread uses a key
        // of its own.
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (buckets, clock) = (&buckets, &clock);
                scope.spawn(move || {
                    let key = thread.to_le_bytes();
                    for step in 0..3_000_u64 {
                        let capacity = if step.is_multiple_of(2) { 1 } else { 1_000 };
                        let of = step.wrapping_mul(7).wrapping_add(thread) % 40;
                        // Different counts at the same capacity make distinct limits.
                        let limit = Inline { capacity, count: 1 + of, period_ns: SECOND };
                        clock.advance(Duration::from_nanos(SECOND / 7));
                        match buckets.decide(limit, &key, Verb::Take, capacity) {
                            Ok((ItemResult { verdict: Verdict::Granted, remaining, .. }, _)) => {
                                // More than was left would come from another limit.
                                assert!(remaining.unwrap() < capacity.max(2), "{limit:?}");
                            }
                            Ok((result, _)) => assert!(result.verdict.is_over(), "{result:?}"),
                            Err(EngineError::TooManyLimits { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
    }
}
