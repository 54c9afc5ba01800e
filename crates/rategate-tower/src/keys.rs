//! A limiter for each key, in a table that cannot be flooded.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rategate::{Clock, Concurrent, Ledger, Limiter, MonotonicClock, Twinned};

use crate::gate::{Ask, Gate, Pass, refused};
use crate::key::Key;
use crate::refusal::Reason;

/// How many keys a table has room for if not said otherwise.
pub const DEFAULT_KEYS: usize = 65_536;

/// The most parts of a table, each under its own lock.
const MOST_SHARDS: usize = 64;

/// Tables smaller than this for each part have fewer parts: a part is full by itself.
const KEYS_PER_SHARD: usize = 1024;

/// How many slots a known key looks at for one that is at rest, and how many a newcomer does.
const SWEEP_KNOWN: usize = 1;
const SWEEP_NEW: usize = 8;

/// A limiter for each key, all of one policy. Clones share the table.
///
/// # Memory
///
/// The table has room for so many keys and no more. A key that is at rest, whose limiter would grant
/// what a fresh one would, can be forgotten without anybody noticing, and is. A key that is not at
/// rest **stays**, whoever else comes: nobody gets a fresh limit by flooding the table with keys.
/// When all are live, [`Overflow`] says what happens to a newcomer.
///
/// A key takes about two kilobytes, so a full table of 65 536 takes some 130 MB; a sliding log of `N`
/// permits takes `8 N` bytes more for each, with `N` rounded up to a power of two. Policies that come
/// to rest are the bucket, the window and the log; a schedule that catches up without a bound never
/// does.
///
/// # Cost
///
/// Two keyed hashes, and a lock for a look into a hash map; the decision is made outside the lock. Each
/// call looks at one or up to eight other keys to forget, and nothing sweeps in the background. No
/// lock is held while user code runs.
///
/// # Example
///
/// ```
/// use rategate::Gcra;
/// use rategate_tower::{Keyed, Overflow, Room};
///
/// let policy = Gcra::new("10/s".parse()?, 20)?;
/// let keyed = Keyed::new(policy);
/// assert!(keyed.is_empty());
///
/// let small = Keyed::with_room(policy, Room { most_keys: 1000, overflow: Overflow::Refuse });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Keyed<P: Twinned, C: Clock = MonotonicClock> {
    table: Arc<Table<P, C>>,
}

/// How many keys a table holds, and what becomes of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The most keys; at least one. A table of more than 1024 is in up to 64 parts, and a key belongs
    /// to one of them: the first part is full when the table is, by chance, some per cent short of it.
    pub most_keys: usize,
    /// What becomes of a newcomer when there is no room.
    pub overflow: Overflow,
}

impl Default for Room {
    fn default() -> Self {
        Self { most_keys: DEFAULT_KEYS, overflow: Overflow::default() }
    }
}

/// What becomes of a newcomer when no key in the table is at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// All newcomers together share one limiter of the same policy. A newcomer who is given a place
    /// later may have used some of that before.
    #[default]
    Share,
    /// Newcomers are refused, with a 503.
    Refuse,
}

/// A key's limiter.
type Live<P, C> = Limiter<Ledger<P>, C>;

struct Table<P: Twinned, C: Clock> {
    policy: P,
    clock: C,
    /// What a fresh limiter could grant at once.
    fresh: u64,
    shards: Box<[Mutex<Shard<P, C>>]>,
    most_per_shard: usize,
    overflow: Option<Live<P, C>>,
    overflows: AtomicU64,
}

/// A part of the table. The slots are in one row, so that a sweep can go on where the last one ended.
struct Shard<P: Twinned, C: Clock> {
    slots: Vec<(Key, Arc<Live<P, C>>)>,
    places: HashMap<Key, usize>,
    cursor: usize,
}

impl<P: Twinned + Clone> Keyed<P> {
    /// A table for 65 536 keys in real time. Newcomers to a full table share a limiter.
    #[must_use]
    pub fn new(policy: P) -> Self {
        Self::with_room(policy, Room::default())
    }

    /// A table in real time.
    #[must_use]
    pub fn with_room(policy: P, room: Room) -> Self {
        Self::with_clock(policy, room, MonotonicClock::new())
    }
}

impl<P: Twinned + Clone, C: Clock + Clone> Keyed<P, C> {
    /// A table on `clock`.
    #[must_use]
    pub fn with_clock(policy: P, room: Room, clock: C) -> Self {
        let fresh = || Limiter::with_clock(policy.clone(), clock.clone());
        let most_keys = room.most_keys.max(1);
        let shards = (most_keys / KEYS_PER_SHARD).clamp(1, MOST_SHARDS);
        let table = Table {
            fresh: fresh().remaining().unwrap_or(0),
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            most_per_shard: most_keys.checked_div(shards).unwrap_or(1),
            overflow: (room.overflow == Overflow::Share).then(fresh),
            overflows: AtomicU64::new(0),
            policy,
            clock,
        };
        Self { table: Arc::new(table) }
    }
}

impl<P: Twinned, C: Clock> Keyed<P, C> {
    /// How many keys are in the table, those included that are at rest and not yet forgotten.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.shards.iter().map(|shard| lock(shard).slots.len()).sum()
    }

    /// Whether there is no key in the table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How often a newcomer has found no room. If this grows, so should the table, or the keys are
    /// made up.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.table.overflows.load(Ordering::Relaxed)
    }
}

impl<P: Twinned + Clone, C: Clock + Clone> Table<P, C> {
    /// The limiter of `key`, if there is room for it.
    fn limiter(&self, key: Key) -> Option<Arc<Live<P, C>>> {
        let mut shard = lock(self.shard(key)?);
        if let Some(live) = shard.find(key) {
            shard.sweep(SWEEP_KNOWN, self.fresh);
            return Some(live);
        }
        shard.sweep(SWEEP_NEW, self.fresh);
        if shard.slots.len() >= self.most_per_shard {
            return None;
        }
        let live = Limiter::with_clock(self.policy.clone(), self.clock.clone());
        Some(shard.insert(key, live))
    }

    fn shard(&self, key: Key) -> Option<&Mutex<Shard<P, C>>> {
        let shards = u128::try_from(self.shards.len()).unwrap_or(1);
        let at = key.bits().checked_rem(shards)?;
        self.shards.get(usize::try_from(at).ok()?)
    }
}

impl<P, C> Gate for Keyed<P, C>
where
    P: Twinned + Clone + Send + Sync + 'static,
    P::State: Send,
    Ledger<P>: Concurrent + Send,
    C: Clock + Clone + 'static,
{
    fn pass(&self, ask: Ask) -> Pass {
        if let Some(limiter) = self.table.limiter(ask.key) {
            return match limiter.pass(ask) {
                // Whoever waits keeps the limiter in the table, from before its first poll on.
                Pass::Later(turn) => Pass::Later(Box::pin(async move {
                    let outcome = turn.await;
                    drop(limiter);
                    outcome
                })),
                now @ Pass::Now(_) => now,
            };
        }
        self.table.overflows.fetch_add(1, Ordering::Relaxed);
        match &self.table.overflow {
            Some(shared) => shared.pass(ask),
            None => Pass::Now(refused(Reason::TooManyKeys)),
        }
    }
}

impl<P: Twinned, C: Clock> Shard<P, C> {
    fn find(&self, key: Key) -> Option<Arc<Live<P, C>>> {
        let (_, live) = self.slots.get(*self.places.get(&key)?)?;
        Some(Arc::clone(live))
    }

    fn insert(&mut self, key: Key, live: Live<P, C>) -> Arc<Live<P, C>> {
        let live = Arc::new(live);
        self.places.insert(key, self.slots.len());
        self.slots.push((key, Arc::clone(&live)));
        live
    }

    /// Looks at the next `most` slots, and forgets the keys that are at rest.
    fn sweep(&mut self, most: usize, fresh: u64) {
        for _ in 0..most {
            let Some((key, live)) = self.slots.get(self.cursor) else {
                self.cursor = 0;
                continue;
            };
            if !is_at_rest(live, fresh) {
                self.cursor = self.cursor.saturating_add(1);
                continue;
            }
            self.places.remove(key);
            self.slots.swap_remove(self.cursor);
            if let Some((moved, _)) = self.slots.get(self.cursor) {
                self.places.insert(*moved, self.cursor);
            }
        }
    }
}

/// Whether nobody would notice if this limiter were a fresh one. A request that holds it may be about
/// to take from it; and as handles are given out under the shard's lock alone, none can appear
/// meanwhile.
fn is_at_rest<P: Twinned, C: Clock>(live: &Arc<Live<P, C>>, fresh: u64) -> bool {
    Arc::strong_count(live) == 1 && live.remaining() == Ok(fresh)
}

/// Nothing that panics leaves a slot half made, so a poisoned lock is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P: Twinned, C: Clock> Default for Shard<P, C> {
    fn default() -> Self {
        Self { slots: Vec::new(), places: HashMap::new(), cursor: 0 }
    }
}

impl<P: Twinned, C: Clock> Clone for Keyed<P, C> {
    fn clone(&self) -> Self {
        Self { table: Arc::clone(&self.table) }
    }
}

impl<P: Twinned + fmt::Debug, C: Clock> fmt::Debug for Keyed<P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed")
            .field("policy", &self.table.policy)
            .field("keys", &self.len())
            .field("overflows", &self.overflows())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rategate::{FixedWindow, Gcra, ManualClock, SlidingLog, Twinned};

    use super::{Keyed, Overflow, Room, SWEEP_NEW};
    use crate::gate::{Ask, Gate, Outcome, Pass};
    use crate::key::Key;
    use crate::refusal::Reason;

    const SECOND_NS: u64 = 1_000_000_000;

    fn room(most_keys: usize, overflow: Overflow) -> Room {
        Room { most_keys, overflow }
    }

    fn bucket() -> Gcra {
        Gcra::new("1/s".parse().unwrap(), 2).unwrap()
    }

    fn ask<P>(keyed: &Keyed<P, ManualClock>, key: u64) -> Result<(), Reason>
    where
        Keyed<P, ManualClock>: Gate,
        P: Twinned,
    {
        let key = Key::of(&key);
        let ask = Ask { key, cost: 1, longest_wait: None, tells: false, may_return: false };
        match keyed.pass(ask) {
            Pass::Now(Outcome::Passed(..)) => Ok(()),
            Pass::Now(Outcome::Refused(refusal, _)) => Err(refusal.reason()),
            Pass::Later(_) => panic!("nobody may wait"),
        }
    }

    #[test]
    fn each_key_has_its_own_limit() {
        let keyed = Keyed::with_clock(bucket(), Room::default(), ManualClock::new());
        for key in 0..100 {
            assert_eq!(
                [(); 3].map(|()| ask(&keyed, key)),
                [Ok(()), Ok(()), Err(Reason::OverLimit)]
            );
        }
        assert_eq!(keyed.len(), 100);
    }

    #[test]
    fn a_live_key_outlives_any_flood() {
        let clock = ManualClock::new();
        let keyed = Keyed::with_clock(bucket(), room(4, Overflow::Refuse), clock.clone());
        for _ in 0..2 {
            assert_eq!(ask(&keyed, 0), Ok(()));
        }
        let passed = (1..10_000).filter(|&key| ask(&keyed, key).is_ok()).count();
        assert_eq!((passed, keyed.len()), (3, 4));
        assert_eq!(ask(&keyed, 0), Err(Reason::OverLimit), "its limit is what it was");
        assert_eq!(ask(&keyed, 10_000), Err(Reason::TooManyKeys));
        assert_eq!(keyed.overflows(), 10_000 - 4 + 1);

        // At rest one nanosecond later than live.
        clock.advance(2 * SECOND_NS - 1);
        let keys = keyed.clone();
        assert_eq!(ask(&keys, 0), Ok(()), "one has come back, and is taken");
        clock.advance(1);
        assert_eq!(ask(&keys, 10_001), Ok(()), "those that were asked once are at rest");
    }

    #[test]
    fn newcomers_to_a_full_table_share_one_limit() {
        let keyed = Keyed::with_clock(bucket(), room(4, Overflow::Share), ManualClock::new());
        let passed = (0..1000).filter(|&key| ask(&keyed, key).is_ok()).count();
        assert_eq!(passed, 4 + 2, "one each, and a burst for all the others");
        assert_eq!(keyed.len(), 4);
    }

    /// What is at rest goes, in a number of steps that is bounded for each call.
    #[test]
    fn resting_keys_are_forgotten_bit_by_bit() {
        let clock = ManualClock::new();
        let keyed = Keyed::with_clock(bucket(), room(1000, Overflow::Refuse), clock.clone());
        for key in 0..1000 {
            assert_eq!(ask(&keyed, key), Ok(()));
        }
        assert_eq!(keyed.len(), 1000);
        clock.advance(10 * SECOND_NS);
        for call in 1..=100 {
            let before = keyed.len();
            assert_eq!(ask(&keyed, 2000), Ok(()), "call {call}");
            assert!(before - keyed.len() < SWEEP_NEW);
            clock.advance(SECOND_NS);
        }
        assert!(keyed.len() < 900);
        for _ in 0..2000 {
            let _ = ask(&keyed, 2000);
        }
        assert_eq!(keyed.len(), 1, "the one that asks");
    }

    #[test]
    fn other_policies_come_to_rest_too() {
        fn rests<P>(policy: P) -> bool
        where
            P: Twinned + Clone,
            Keyed<P, ManualClock>: Gate,
        {
            let clock = ManualClock::new();
            let keyed = Keyed::with_clock(policy, room(1, Overflow::Refuse), clock.clone());
            assert_eq!(ask(&keyed, 1), Ok(()));
            clock.advance(SECOND_NS - 1);
            assert_eq!(ask(&keyed, 2), Err(Reason::TooManyKeys));
            clock.advance(1);
            ask(&keyed, 2).is_ok()
        }
        assert!(rests(SlidingLog::new(5, SECOND_NS).unwrap()));
        assert!(rests(FixedWindow::new(5, SECOND_NS, rategate::Anchor::FirstCall).unwrap()));
        assert!(rests(Gcra::new("1/s".parse().unwrap(), 5).unwrap()));
    }

    /// Threads on few keys and a table that forgets all the time: no key ever gets a second limiter
    /// beside its first.
    #[test]
    fn a_key_that_comes_and_goes_has_one_limit_at_a_time() {
        const MOST: usize = 3;
        let clock = ManualClock::new();
        let policy = SlidingLog::new(3, SECOND_NS).unwrap();
        let keyed = Keyed::with_clock(policy, room(8, Overflow::Refuse), clock.clone());
        for _ in 0..200 {
            let passed: usize = std::thread::scope(|scope| {
                let threads = [(); 4]
                    .map(|()| scope.spawn(|| (0..8).filter(|_| ask(&keyed, 7).is_ok()).count()));
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(passed, MOST);
            // At rest again: the next round finds it, or a fresh one.
            clock.advance(SECOND_NS);
            let _ = ask(&keyed, 8);
            clock.advance(SECOND_NS);
        }
    }
}
