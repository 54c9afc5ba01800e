//! Keyed limits: a separate limit for each of millions of keys, in bounded memory.

mod capacity;
mod entries;
mod eviction_cursor;
mod holds;
pub(crate) mod joint;
mod joint_hold;
mod joint_key;
mod key;
mod policies;
mod policy_versions;
mod projection;
mod replay;
mod returns;
mod slots;
#[cfg(feature = "serde")]
mod snapshot;
mod table;
mod waiting;
mod whole;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rategate_core::any_policy::AnyPolicy;

pub use self::capacity::{Capacity, DEFAULT_BYTES, DEFAULT_KEYS, MAX_KEYS, Overflow};
pub use self::joint::{Acquisition, JointDecision, try_all};
pub use self::joint_hold::{Estimate, try_hold_all, try_hold_all_with_status};
use self::joint_key::JointKey;
pub use self::key::{HashedId, Hashing, Id, Key, NumberId, Seeds};
pub use self::policy_versions::MAX_TIERS;
pub use self::replay::{Replay, ReplayOutcome};
use self::table::Table;
use self::table::section::KeyLocation;
use crate::clock::{Clock, MonotonicClock};
use crate::decision::{Decision, Grant};
use crate::error::KeyedError;
use crate::limiter::Limiter;
use crate::stats::{Detail, KeyStats, Outcome};
use crate::status::Status;

/// A table of limits, one per key, under a single policy or one policy per tier of keys.
///
/// Clones share the table.
///
/// # Policies
///
/// Every policy can be used. A key takes a slot and is decided without a lock under three of
/// them: a [`Gcra`](crate::Gcra), a [`FixedWindow`](crate::FixedWindow) on the clock's grid,
/// and a [`SlidingLog`](crate::SlidingLog) on a grid while all its grants are at one point of it.
/// The slot is 16 bytes for a key that is a number, and 24 for any other. All other policies
/// are decided under the lock of one shard of the table.
///
/// # Eviction
///
/// The table's [capacity](Capacity) bounds the number of keys. A key whose limit has fully
/// recovered behaves like a new one, and is evicted when its slot is needed (docs/theory.md,
/// section 6.8). A live key **stays**, however many others come: flooding the table with keys
/// resets no limit. When the table has no capacity for a new key, [`Overflow`] decides, and
/// [`overflows`](Self::overflows) counts it.
///
/// The bucket, the window of a fixed grid and the logs recover fully with time, and a limit on
/// operations in flight once these have ended. A schedule that catches up without a bound never
/// does, nor does a grid that begins with the first call: such keys stay.
///
/// # Operations
///
/// Tries, waits, status reads, charges and holds are methods of the table, by key. All others go through
/// the key's own [`limiter`](Self::limiter), which has every operation. The table keeps that limiter
/// while a handle to it or a waiter exists; its tries and the table's take from one limit.
///
/// # Cost
///
/// A try in a slot costs a hash, a clock reading, and one swap in one or two cache lines of the
/// key's own. A key that is in no cache costs a fetch from memory, which
/// [`try_each`](Self::try_each) makes for many keys at once. A new key, a hold and all other
/// policies take the lock of a shard of at most some 1600 keys. Each call under a lock examines
/// one to four other keys for eviction; a new key in a full table examines 64 slots. There is
/// no background sweep, and no single call pays for the whole table. No user code except the
/// clock is called under a lock.
///
/// In a table larger than the caches, a good part of each fetch goes into finding the page. On
/// Linux, `GLIBC_TUNABLES=glibc.malloc.hugetlb=1` in the program's environment at start puts
/// such tables on huge pages, where the system allows it.
///
/// # Example
///
/// ```
/// use rategate::{Gcra, Keyed};
///
/// let per_caller: Keyed<str> = Keyed::new(Gcra::per_second(10).burst(2));
/// assert!(per_caller.try_acquire("10.0.0.7", 2)?.is_granted());
/// assert!(!per_caller.try_acquire("10.0.0.7", 1)?.is_granted());
/// assert!(per_caller.try_acquire("10.0.0.8", 1)?.is_granted());
///
/// per_caller.acquire("10.0.0.7", 1)?; // waits
/// # Ok::<(), rategate::Error>(())
/// ```
pub struct Keyed<K: Key + ?Sized, C: Clock = MonotonicClock> {
    table: Arc<Table<K::Id, C>>,
    tier: Option<Arc<TierOf<K>>>,
    name: Option<Arc<NameOf<K>>>,
}

/// A function that returns the tier of a key.
type TierOf<K> = dyn Fn(&K) -> usize + Send + Sync;

/// A function that returns the name of a key for statistics.
type NameOf<K> = dyn Fn(&K) -> String + Send + Sync;

/// The number of keys of a batch that are fetched from memory at once.
const BATCH: usize = 16;

impl<K: Key + ?Sized> Keyed<K> {
    /// Creates a table for 65 536 keys in real time. New keys share a limit when it is full.
    #[must_use]
    pub fn new(policy: impl Into<AnyPolicy>) -> Self {
        Self::with_capacity(policy, Capacity::default())
    }

    /// Creates a table of the given capacity in real time.
    #[must_use]
    pub fn with_capacity(policy: impl Into<AnyPolicy>, capacity: Capacity) -> Self {
        Self::with_clock(policy, capacity, MonotonicClock::new())
    }
}

impl<K: Key + ?Sized, C: Clock + Clone> Keyed<K, C> {
    /// Creates a table that reads its time from `clock`.
    #[must_use]
    pub fn with_clock(policy: impl Into<AnyPolicy>, capacity: Capacity, clock: C) -> Self {
        Self::with_hashing(policy, capacity, Hashing::default(), clock)
    }

    /// Creates a table with a chosen hash function for its keys.
    #[must_use]
    pub fn with_hashing(
        policy: impl Into<AnyPolicy>,
        capacity: Capacity,
        hashing: Hashing,
        clock: C,
    ) -> Self {
        let table = Table::new(vec![policy.into()], capacity, Seeds::random(hashing), clock);
        Self { table: Arc::new(table), tier: None, name: None }
    }

    /// Creates a table with a policy for each tier of keys.
    ///
    /// `tier_of` returns the tier of a key, counted from 0 in the order of `policies`. It runs at
    /// each call, so a key may change its tier: its use is carried over as by
    /// [`Limiter::reconfigure`]. It is called while no lock is held, and should be fast.
    ///
    /// ```
    /// use rategate::keyed::{Capacity, Hashing};
    /// use rategate::{Gcra, Keyed, MonotonicClock};
    ///
    /// let [free, paid] = [Gcra::per_second(1), Gcra::per_second(100).burst(10)];
    /// let is_paid = |tenant: &u64| usize::from(*tenant >= 1000);
    /// let (capacity, clock) = (Capacity::default(), MonotonicClock::new());
    /// let tenants: Keyed<u64> =
    ///     Keyed::with_tiers([free, paid], is_paid, capacity, Hashing::FloodSafe, clock)?;
    /// assert!(tenants.try_acquire(&1007, 10)?.is_granted());
    /// assert!(tenants.try_acquire(&7, 10).is_err(), "never, for this tier");
    ///
    /// // A live change, for every key of that tier.
    /// tenants.reconfigure_tier(0, Gcra::per_second(1).burst(10))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyedError::NoSuchTier`] for no policy, or more than [`MAX_TIERS`].
    pub fn with_tiers(
        policies: impl IntoIterator<Item = impl Into<AnyPolicy>>,
        tier_of: impl Fn(&K) -> usize + Send + Sync + 'static,
        capacity: Capacity,
        hashing: Hashing,
        clock: C,
    ) -> Result<Self, KeyedError> {
        let policies = policies.into_iter().take(MAX_TIERS.saturating_add(1));
        let policies: Vec<AnyPolicy> = policies.map(Into::into).collect();
        if policies.is_empty() || policies.len() > MAX_TIERS {
            let tier = policies.len().saturating_sub(1);
            return Err(KeyedError::NoSuchTier { tier, tiers: policies.len().min(MAX_TIERS) });
        }
        let table = Table::new(policies, capacity, Seeds::random(hashing), clock);
        Ok(Self { table: Arc::new(table), tier: Some(Arc::new(tier_of)), name: None })
    }

    /// Turns on statistics for the table and all its handles, and returns the table.
    ///
    /// From now on tries granted and denied are counted, and the keys that stand out are ranked.
    /// `name_of` returns the name of such a key for [reports](KeyStats::report). It is called once
    /// for each of them, while no lock is held. Counting evicts no key, and no key becomes a
    /// label. If the table has statistics already, those stay.
    ///
    /// Grants by a key's own [`limiter`](Self::limiter) are not counted.
    ///
    /// ```
    /// use rategate::stats::Detail;
    /// use rategate::{Gcra, Keyed};
    ///
    /// let per_caller: Keyed<str> = Keyed::new(Gcra::per_second(10).burst(2));
    /// let name_of = |caller: &str| caller.to_owned();
    /// let per_caller = per_caller.with_stats("search", Detail::exact(), name_of);
    /// for caller in ["ann", "bob", "bob", "bob", "bob"] {
    ///     let _ = per_caller.try_acquire(caller, 1)?;
    /// }
    /// let report = per_caller.stats().unwrap().report();
    /// assert_eq!((report.counts.granted_calls, report.counts.denied_calls), (3, 2));
    /// assert_eq!(report.denied.ranked[0].name.as_deref(), Some("bob"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_stats(
        self,
        name: &str,
        detail: Detail,
        name_of: impl Fn(&K) -> String + Send + Sync + 'static,
    ) -> Self {
        self.table.set_stats(KeyStats::new(name, detail));
        Self { name: Some(Arc::new(name_of)), ..self }
    }

    /// Takes `permits` for a key at once, or reports the wait until it could. Never blocks.
    ///
    /// # Errors
    ///
    /// [`KeyedError::ExceedsCapacity`] for more permits than could ever pass together;
    /// [`KeyedError::TableFull`], with [`Overflow::Refuse`]; [`KeyedError::NoSuchTier`] and
    /// [`KeyedError::Closed`].
    #[inline]
    pub fn try_acquire(&self, key: &K, permits: u64) -> Result<Decision, KeyedError> {
        let location = self.location(key);
        if self.table.stats().is_some() {
            return self.try_counted(key, &location, permits);
        }
        self.try_uncounted(&location, permits)
    }

    #[inline]
    fn try_uncounted(
        &self,
        location: &KeyLocation<K::Id>,
        permits: u64,
    ) -> Result<Decision, KeyedError> {
        let read_ns = || self.table.clock.now_ns();
        self.table.try_acquire::<()>(location, permits, read_ns)
    }

    /// Decides a try and counts it. Not inlined, so that without statistics a decision is written
    /// once, straight to where the caller wants it.
    #[inline(never)]
    fn try_counted(
        &self,
        key: &K,
        location: &KeyLocation<K::Id>,
        permits: u64,
    ) -> Result<Decision, KeyedError> {
        self.try_observed(key, location, permits, || self.table.clock.now_ns())
    }

    /// Decides a try, and counts it with what it leaves.
    fn try_observed(
        &self,
        key: &K,
        location: &KeyLocation<K::Id>,
        permits: u64,
        read_ns: impl Fn() -> u64,
    ) -> Result<Decision, KeyedError> {
        let decided = if permits == 0 {
            self.take_none(location)
        } else {
            self.table.try_acquire::<Status>(location, permits, read_ns)
        };
        if let Ok((decision, status)) = &decided {
            self.observe(key, location, permits, decision, || status.remaining);
        }
        decided.map(|(decision, _)| decision)
    }

    /// Takes `permits` for a key at once, and returns the limit's status with the decision.
    ///
    /// The status is of the very state that was decided on, at the same reading of the clock: what
    /// a server reports to its clients at each call. It costs a division or two more than the try
    /// alone. A denial has a status too. A try for 0 permits is a [`status`](Self::status).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::keyed::Capacity;
    /// use rategate::{Gcra, Keyed, ManualClock, Status};
    ///
    /// let bucket = Gcra::per_second(1).burst(3);
    /// let (capacity, clock) = (Capacity::default(), ManualClock::new());
    /// let per_caller: Keyed<str, _> = Keyed::with_clock(bucket, capacity, clock);
    /// let (decision, status) = per_caller.try_acquire_with_status("10.0.0.7", 2)?;
    /// assert!(decision.is_granted());
    /// assert_eq!(status, Status::new(1, Some(Duration::from_secs(2)), 3));
    /// let (decision, status) = per_caller.try_acquire_with_status("10.0.0.7", 2)?;
    /// assert!(!decision.is_granted());
    /// assert_eq!(status.remaining, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire); for 0 permits those of
    /// [`status`](Self::status).
    #[inline]
    pub fn try_acquire_with_status(
        &self,
        key: &K,
        permits: u64,
    ) -> Result<(Decision, Status), KeyedError> {
        let location = self.location(key);
        let read_ns = || self.table.clock.now_ns();
        let decided = if permits == 0 {
            self.take_none(&location)
        } else {
            self.table.try_acquire::<Status>(&location, permits, read_ns)
        };
        if let Ok((decision, status)) = &decided {
            self.observe(key, &location, permits, decision, || status.remaining);
        }
        decided
    }

    /// Returns the status of a key with a grant of no permits.
    fn take_none(&self, location: &KeyLocation<K::Id>) -> Result<(Decision, Status), KeyedError> {
        let now_ns = self.table.clock.now_ns();
        let status = self.table.status(location, now_ns)?;
        Ok((Decision::Granted(Grant::at(now_ns, now_ns, 0)), status))
    }

    /// Takes permits for many keys, each on its own, in their order.
    ///
    /// Keys are fetched from memory sixteen at a time, so that the fetches overlap, and the clock
    /// is read once for each sixteen. `report` receives the decisions, while no lock is held.
    ///
    /// ```
    /// use rategate::{Gcra, Keyed};
    ///
    /// let per_caller: Keyed<u64> = Keyed::new(Gcra::per_second(10));
    /// let mut passed = 0;
    /// per_caller.try_each([7, 8, 7].iter().map(|key| (key, 1)), |decision| {
    ///     passed += u32::from(decision.is_ok_and(|decision| decision.is_granted()));
    /// });
    /// assert_eq!(passed, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_each<'k>(
        &self,
        attempts: impl IntoIterator<Item = (&'k K, u64)>,
        mut report: impl FnMut(Result<Decision, KeyedError>),
    ) where
        K: 'k,
    {
        let mut attempts =
            attempts.into_iter().map(|(key, permits)| (self.location(key), key, permits)).fuse();
        let mut batch = [None; BATCH];
        loop {
            for attempt in &mut batch {
                *attempt = attempts.next();
            }
            if batch[0].is_none() {
                return;
            }
            // With no hashing between them, all sixteen fetches are under way before the first
            // completes.
            for (location, ..) in batch.iter().flatten() {
                self.table.touch(location);
            }
            let now_ns = self.table.clock.now_ns();
            for (location, key, permits) in batch.iter().flatten() {
                report(match self.table.stats_of(location.tier) {
                    None => self.table.try_acquire::<()>(location, *permits, || now_ns),
                    Some(_) => self.try_observed(key, location, *permits, || now_ns),
                });
            }
        }
    }

    /// Returns the wait until a try for `permits` would pass, if no other call comes first.
    ///
    /// It is zero if the try would pass now, otherwise what a denial says. Takes nothing, and leaves
    /// no trace of an unknown key.
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire).
    pub fn peek(&self, key: &K, permits: u64) -> Result<Option<Duration>, KeyedError> {
        let (wait_ns, ()) = self.table.peek(&self.location(key), permits)?;
        Ok(wait_ns.map(Duration::from_nanos))
    }

    /// Peeks at a key as [`peek`](Self::peek) does, and returns its status at the same instant.
    ///
    /// While the policy is being replaced, both are of the old one or both of the new.
    ///
    /// ```
    /// use rategate::{Gcra, Keyed};
    /// use std::time::Duration;
    ///
    /// let per_caller: Keyed<str> = Keyed::new(Gcra::per_second(1).burst(3));
    /// let (wait, status) = per_caller.peek_with_status("10.0.0.7", 2)?;
    /// assert_eq!((wait, status.remaining), (Some(Duration::ZERO), 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`peek`](Self::peek).
    pub fn peek_with_status(
        &self,
        key: &K,
        permits: u64,
    ) -> Result<(Option<Duration>, Status), KeyedError> {
        let (wait_ns, status) = self.table.peek(&self.location(key), permits)?;
        Ok((wait_ns.map(Duration::from_nanos), status))
    }

    /// Returns the most permits that a try for a key could take now.
    ///
    /// # Errors
    ///
    /// [`KeyedError::TableFull`] for an unknown key, with [`Overflow::Refuse`];
    /// [`KeyedError::NoSuchTier`] and [`KeyedError::Closed`].
    pub fn remaining(&self, key: &K) -> Result<u64, KeyedError> {
        self.table.remaining(&self.location(key))
    }

    /// Returns the status of a key: the permits a try could take now, and the time to full
    /// recovery.
    ///
    /// See [`Status`]. Takes nothing, and leaves no trace of an unknown key.
    ///
    /// # Errors
    ///
    /// Those of [`remaining`](Self::remaining).
    pub fn status(&self, key: &K) -> Result<Status, KeyedError> {
        self.table.status(&self.location(key), self.table.clock.now_ns())
    }

    /// Returns the limiter of a key, for callers that wait, reserve or hold permits.
    ///
    /// It serves threads and [tasks](crate::AsyncLimiter), reservations, and
    /// [`Permit`](crate::Permit)s.
    ///
    /// A limiter takes some two kilobytes while a handle to it, or anything that came from it, is
    /// in use; afterwards the key is as small as before. If the table has no capacity for the key,
    /// the shared limiter is returned, or with [`Overflow::Admit`] a new one each time.
    ///
    /// # Errors
    ///
    /// [`KeyedError::TableFull`] if there is no capacity for a limiter, and
    /// [`KeyedError::NoSuchTier`].
    pub fn limiter(&self, key: &K) -> Result<Limiter<C>, KeyedError> {
        self.table.limiter(&self.location(key))
    }

    /// Requests permits of a key as one part of a joint acquisition of several limits.
    ///
    /// See [`try_all`]. A part of 0 permits reads the status only: it delays no
    /// other caller, takes nothing, and its grant reports what remains.
    #[must_use]
    pub fn attempt(&self, key: &K, permits: u64) -> Acquisition<'_> {
        let (table, location) = (&*self.table, self.location(key));
        Acquisition::of(JointKey { table, location, permits, spared: 0 })
    }

    /// Returns the tier of a key by the table's function, or 0 without one.
    #[must_use]
    pub fn tier_of(&self, key: &K) -> usize {
        self.tier.as_ref().map_or(0, |tier_of| tier_of(key))
    }

    #[inline]
    fn observe(
        &self,
        key: &K,
        location: &KeyLocation<K::Id>,
        permits: u64,
        decision: &Decision,
        remaining: impl FnOnce() -> u64,
    ) {
        let Some((stats, limit)) = self.table.stats_of(location.tier) else { return };
        let outcome = Outcome::of(decision, remaining, limit);
        match &self.name {
            Some(name_of) => stats.observe_named(location.id, permits, outcome, || name_of(key)),
            None => stats.observe(location.id, permits, outcome),
        }
    }

    #[inline]
    fn location(&self, key: &K) -> KeyLocation<K::Id> {
        let tier = self.tier_of(key);
        self.table.location(key.id(&self.table.seeds), tier)
    }
}

impl<K: Key + ?Sized, C: Clock> Keyed<K, C> {
    /// Returns the number of keys in the table, including recovered keys that are not evicted yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.keys()
    }

    /// Returns `true` if the table holds no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of calls that found no capacity in the table.
    ///
    /// If it grows, the table is too small, or the keys are made up.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.table.overflows()
    }

    /// Returns the bytes that the table takes: slots, used or not, and all states.
    ///
    /// It locks each shard, one after the other.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.table.bytes()
    }

    /// Returns the table's statistics, if it [counts](Self::with_stats).
    #[must_use]
    pub fn stats(&self) -> Option<&KeyStats<K::Id>> {
        self.table.stats()
    }

    /// Returns the capacity of the table.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.table.capacity()
    }

    /// Returns the seeds of the table's hashes.
    #[must_use]
    pub fn seeds(&self) -> &Seeds {
        &self.table.seeds
    }
}

impl<K: Key + ?Sized, C: Clock> Clone for Keyed<K, C> {
    fn clone(&self) -> Self {
        let (tier, name) = (self.tier.clone(), self.name.clone());
        Self { table: Arc::clone(&self.table), tier, name }
    }
}

/// Formats the policies and the fill of the table.
impl<K: Key + ?Sized, C: Clock> fmt::Debug for Keyed<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Keyed");
        match self.table.policies_if_free().as_deref() {
            Some([only]) => shown.field("policy", only),
            Some(tiers) => shown.field("policies", &tiers),
            None => &mut shown,
        };
        shown.field("keys", &self.len()).field("room", &self.capacity());
        shown.field("overflows", &self.overflows()).finish_non_exhaustive()
    }
}
