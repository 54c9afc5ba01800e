//! Whose the tiers of the tables are.
//!
//! Whoever decides has found his numbers in a map that he holds on to (a guard of [`ArcSwap`](arc_swap::ArcSwap)), without a lock, and may be anywhere in it
//! while others learn of new numbers. So a tier changes hands in two steps, both by whoever holds `learning`:
//!
//! 1. **Retired**: a map without the numbers is published. Whoever comes now does not find them, and asks for the lock; he
//!    has them back, the very same, as long as their tier is theirs.
//! 2. **Another's**: when nobody has the numbers any more, in whichever map ([`Arc::get_mut`] sees what those had done who had them), and they
//!    have not been named meanwhile: who was on his way notes that *before* he counts. Else they are put back.
//!
//! So each call is decided under its own numbers, however long a thread is stopped in between, and what it counts stays.

use std::collections::HashSet;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use rategate::portable::Since;
use rategate::snapshot::{SavedAt, SnapshotError};
use rategate::{Clock, Hashing, Keyed, Overflow, Room};

use super::{Inlines, Known, NOTED_NS, Numbers, Own, PER_TABLE, Place, Table, Tiers};
use crate::engine::fault::Fault;
use crate::engine::snapshot::NotRestored;

/// A tier that can be somebody's.
type Tier<N, C> = (Table<N, C>, Place);

impl<N: Own, C: Clock + Clone> Inlines<N, C> {
    /// The tables in use, and whose each tier is.
    pub(in crate::engine) fn in_use(&self) -> Vec<(Table<N, C>, Tiers)> {
        let retired = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known.load_full();
        let of_table = |table: usize| {
            let numbers = known.by_limit.values().chain(&*retired);
            let numbers = numbers.filter(move |numbers| numbers.at.table == table);
            numbers.map(|numbers| (numbers.at.tier, numbers.limit.words())).collect()
        };
        known.tables.iter().cloned().zip(0..).map(|(it, table)| (it, of_table(table))).collect()
    }

    /// Goes on from a table that was saved, as one more of these.
    pub(in crate::engine) fn restore(
        &self,
        limits: &[(u8, [u64; 3])],
        input: impl Read,
        since: impl FnOnce(&SavedAt) -> Since,
    ) -> Result<(), NotRestored> {
        let retired = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known.load_full();
        let limits = limits.iter().filter_map(|&(tier, words)| {
            let limit = N::of_words(words)?;
            Some((tier, limit, limit.policy().ok()?))
        });
        let limits: Vec<(u8, N, N::Policy)> = limits.collect();
        let is_kept = |limit| retired.iter().any(|numbers| numbers.limit == limit);
        let is_in_use = |limit| known.by_limit.contains_key(&limit) || is_kept(limit);
        let in_use = limits.iter().any(|(_, limit, _)| is_in_use(*limit));
        if in_use {
            return Err(NotRestored::InUse);
        }
        // Tiers that nobody has named can have any numbers.
        let Some(&(.., any)) = limits.first() else { return Err(NotRestored::CountsNothing) };
        let policy_of = |tier: usize| {
            let named = limits.iter().find(|(of, ..)| usize::from(*of) == tier);
            named.map_or(any, |&(.., policy)| policy)
        };
        let policies = (0..PER_TABLE).map(policy_of);
        let (room, clock) = (self.room(), self.clock.clone());
        let restored = if known.tables.len() < self.most_tables {
            Keyed::restore_since(policies, Some(tier_of), room, clock, input, since)
        } else {
            Err(SnapshotError::NoRoom { keys: self.keys_per_table })
        };
        let table: Table<N, C> = restored.inspect_err(|_| {
            // Not by the verb: that takes the lock.
            self.spent.spend(self.clock.now_ns());
            known.tables.iter().for_each(|table| self.spent.tell(table));
        })?;
        self.spent.tell(&table);
        let mut next = known.copy();
        let (place, named_ns) = (next.tables.len(), self.clock.now_ns());
        next.tables.push(table.clone());
        for &(tier, limit, _) in &limits {
            let (table, named_ns) = (table.clone(), AtomicU64::new(named_ns));
            let numbers = Numbers { limit, table, at: Place { table: place, tier }, named_ns };
            next.by_limit.insert(limit, Arc::new(numbers));
        }
        self.known.store(Arc::new(next));
        Ok(())
    }

    /// The numbers of a limit that nobody finds: those of before, or a tier for it.
    #[cold]
    pub(super) fn learn(&self, limit: N) -> Result<Arc<Numbers<N, C>>, Fault> {
        let policy = limit.policy()?;
        let mut retired = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(numbers) = self.known.load().by_limit.get(&limit) {
            return Ok(Arc::clone(numbers));
        }
        if let Some(at) = retired.iter().position(|numbers| numbers.limit == limit) {
            return Ok(self.publish(retired.swap_remove(at)));
        }
        let now_ns = self.clock.now_ns();
        let (table, at) = match self.unused_place(&retired, policy)? {
            Some(place) => place,
            None => self.place_of_others(&mut retired, now_ns)?,
        };
        table.reconfigure_tier(at.tier.into(), policy).map_err(Fault::of)?;
        let named_ns = AtomicU64::new(now_ns);
        Ok(self.publish(Arc::new(Numbers { limit, table, at, named_ns })))
    }

    /// Everybody finds these numbers from now on.
    fn publish(&self, numbers: Arc<Numbers<N, C>>) -> Arc<Numbers<N, C>> {
        let mut next = self.known.load().copy();
        if numbers.at.table == next.tables.len() {
            next.tables.push(numbers.table.clone());
        }
        next.by_limit.insert(numbers.limit, Arc::clone(&numbers));
        self.known.store(Arc::new(next));
        numbers
    }

    /// A tier that never was anybody's, of a new table if there is none.
    fn unused_place(
        &self,
        retired: &[Arc<Numbers<N, C>>],
        policy: N::Policy,
    ) -> Result<Option<Tier<N, C>>, Fault> {
        let known = self.known.load();
        let all = known.by_limit.values().chain(retired);
        let in_use: HashSet<Place> = all.map(|numbers| numbers.at).collect();
        let mut places = known.tables.iter().enumerate().flat_map(|(place, table)| {
            (0..PER_TABLE).map(move |tier| {
                let tier = u8::try_from(tier).unwrap_or(0);
                (table.clone(), Place { table: place, tier })
            })
        });
        if let Some(free) = places.find(|(_, at)| !in_use.contains(at)) {
            return Ok(Some(free));
        }
        let tables = known.tables.len();
        if tables >= self.most_tables {
            return Ok(None);
        }
        Ok(Some((self.new_table(policy)?, Place { table: tables, tier: 0 })))
    }

    /// A tier whose keys have all forgotten, and that nobody can be asking for.
    fn place_of_others(
        &self,
        retired: &mut Vec<Arc<Numbers<N, C>>>,
        now_ns: u64,
    ) -> Result<Tier<N, C>, Fault> {
        if let Some(place) = self.left(retired, now_ns) {
            return Ok(place);
        }
        let mut next = self.known.load().copy();
        let idle = next.by_limit.extract_if(|_, numbers| numbers.are_forgotten(now_ns));
        retired.extend(idle.map(|(_, numbers)| numbers));
        self.known.store(Arc::new(next));
        self.left(retired, now_ns).ok_or(Fault::TooManyLimits { most: self.most_limits() })
    }

    /// The tier of one of these that nobody has any more.
    fn left(&self, retired: &mut Vec<Arc<Numbers<N, C>>>, now_ns: u64) -> Option<Tier<N, C>> {
        let mut at = 0_usize;
        while let Some(numbers) = retired.get_mut(at) {
            // This also makes seen whatever was done by those who had it.
            if Arc::get_mut(numbers).is_none() {
                at = at.saturating_add(1);
                continue;
            }
            let numbers = retired.swap_remove(at);
            if numbers.are_forgotten(now_ns) {
                return Some((numbers.table.clone(), numbers.at));
            }
            // Somebody had found it before it was retired, and has counted since.
            self.publish(numbers);
        }
        None
    }

    fn new_table(&self, policy: N::Policy) -> Result<Table<N, C>, Fault> {
        let (tiers, clock) = ([policy; PER_TABLE], self.clock.clone());
        let table = Keyed::with_tiers(tiers, tier_of, self.room(), Hashing::FloodSafe, clock)
            .map_err(Fault::of)?;
        self.spent.tell(&table);
        Ok(table)
    }

    fn room(&self) -> Room {
        Room::for_keys(self.keys_per_table).or_else(Overflow::Share)
    }
}

impl<N: Own, C: Clock> Known<N, C> {
    fn copy(&self) -> Self {
        Self { by_limit: self.by_limit.clone(), tables: self.tables.clone() }
    }
}

impl<N: Own, C: Clock> Numbers<N, C> {
    /// Whether nobody has named them for longer than any key under them remembers.
    fn are_forgotten(&self, now_ns: u64) -> bool {
        let idle_ns = now_ns.saturating_sub(self.named_ns.load(Ordering::Relaxed));
        idle_ns > self.limit.memory_ns().saturating_add(NOTED_NS.saturating_mul(2))
    }
}

/// A key begins with its tier.
fn tier_of(key: &[u8]) -> usize {
    key.first().copied().unwrap_or(0).into()
}

#[cfg(test)]
mod tests {
    use rategate::ManualClock;

    use super::*;
    use crate::engine::answer::{Part, Verdict};
    use crate::engine::request::{Inline, Verb};

    const SECOND: u64 = 1_000_000_000;

    type Buckets = Inlines<Inline, ManualClock>;

    /// Room for as many limits as a table has tiers.
    fn buckets() -> (Buckets, ManualClock) {
        let clock = ManualClock::new();
        clock.set(SECOND);
        (Inlines::new(clock.clone(), 1_000, PER_TABLE), clock)
    }

    /// So many at once, one back in a second.
    const fn limit(capacity: u64) -> Inline {
        Inline { capacity, count: 1, period_ns: SECOND }
    }

    fn take(buckets: &Buckets, capacity: u64, permits: u64) -> Result<Part, Fault> {
        buckets.decide(limit(capacity), b"k", Verb::Take, permits, buckets.clock.now_ns())
    }

    /// Uses every tier: the first limit is of 1 permit.
    fn fill(buckets: &Buckets) {
        for capacity in 1..=PER_TABLE as u64 {
            take(buckets, capacity, 1).unwrap();
        }
    }

    /// Somebody has found a limit that nobody has named for long, and is stopped there; others need its tier.
    #[test]
    fn a_call_on_its_way_keeps_its_limit_and_its_count() {
        for looks_first in [true, false] {
            let (buckets, clock) = buckets();
            fill(&buckets);
            clock.advance(4 * SECOND);
            // All that remember longer go on.
            for capacity in 2..=PER_TABLE as u64 {
                take(&buckets, capacity, 1).unwrap();
            }
            let known = buckets.known.load();
            let numbers = known.by_limit.get(&limit(1)).unwrap();
            let wide = take(&buckets, 1_000, 1);
            assert!(matches!(wide, Err(Fault::TooManyLimits { .. })), "{wide:?}");
            // He goes on: by his own limit, not by any that came meanwhile.
            numbers.note(clock.now_ns());
            let part = numbers.decide(&numbers.key(b"k"), Verb::Take, 1).unwrap();
            assert_eq!((part.verdict, part.remaining), (Verdict::Granted, Some(0)));
            drop(known);
            // What he has counted is known to whoever looks, and stands in the way of whoever needs the tier.
            let now_ns = clock.now_ns();
            let look = || buckets.decide(limit(1), b"k", Verb::Peek, 1, now_ns).unwrap().remaining;
            if looks_first {
                assert_eq!(look(), Some(0));
            }
            assert!(take(&buckets, 1_000, 1).is_err(), "it is in use again");
            assert_eq!(look(), Some(0));
            assert!(take(&buckets, 1, 1).unwrap().verdict.is_over());
            // Until it has been forgotten.
            clock.advance(4 * SECOND);
            assert_eq!(take(&buckets, 1_000, 1).unwrap().remaining, Some(999));
        }
    }

    /// The same, and nobody goes on: its tier is free once he has left.
    #[test]
    fn a_tier_is_free_when_nobody_can_be_asking_for_it() {
        let (buckets, clock) = buckets();
        fill(&buckets);
        clock.advance(3_600 * SECOND);
        let known = buckets.known.load();
        // Neither in this map nor in a later one.
        for capacity in 2..=PER_TABLE as u64 {
            take(&buckets, capacity, 1).unwrap();
        }
        assert!(take(&buckets, 1_000, 1).is_err());
        drop(known);
        assert_eq!(take(&buckets, 1_000, 1).unwrap().remaining, Some(999));
        assert!(matches!(take(&buckets, 1, 1), Err(Fault::TooManyLimits { .. })), "it has gone");
        assert!(buckets.learning.lock().unwrap().is_empty());
    }

    /// A limit that is asked for again before its tier is another's has it, and what was counted there.
    #[test]
    fn a_retired_limit_comes_back_as_it_was() {
        let (buckets, clock) = buckets();
        fill(&buckets);
        clock.advance(3_600 * SECOND);
        let before = buckets.numbers(limit(7)).unwrap();
        clock.advance(3_600 * SECOND);
        let _ = take(&buckets, 1_000, 1);
        assert!(!buckets.known.load().by_limit.contains_key(&limit(7)));
        before.decide(&before.key(b"k"), Verb::Take, 5).unwrap();
        let again = buckets.numbers(limit(7)).unwrap();
        assert!(Arc::ptr_eq(&before, &again));
        assert_eq!(take(&buckets, 7, 1).unwrap().remaining, Some(1));
    }

    /// Threads whose limits are idle for long and short on a clock that runs fast: each is decided by its own.
    #[test]
    fn no_thread_is_decided_by_anothers_limit() {
        let (buckets, clock) = buckets();
        // Far more limits than tiers, of capacities far apart, and no key but one of each thread's own.
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (buckets, clock) = (&buckets, &clock);
                scope.spawn(move || {
                    let key = thread.to_le_bytes();
                    for step in 0..3_000_u64 {
                        let capacity = if step.is_multiple_of(2) { 1 } else { 1_000 };
                        let of = step.wrapping_mul(7).wrapping_add(thread) % 40;
                        // As many permits in the same time, in as many ways: numbers of their own.
                        let limit = Inline { capacity, count: 1 + of, period_ns: SECOND };
                        clock.advance(SECOND / 7);
                        match buckets.decide(limit, &key, Verb::Take, capacity, clock.now_ns()) {
                            Ok(Part { verdict: Verdict::Granted, remaining, .. }) => {
                                // More than was left over would be another's.
                                assert!(remaining.unwrap() < capacity.max(2), "{limit:?}");
                            }
                            Ok(part) => assert!(part.verdict.is_over(), "{part:?}"),
                            Err(Fault::TooManyLimits { .. }) => {}
                            Err(fault) => panic!("{fault}"),
                        }
                    }
                });
            }
        });
    }
}
