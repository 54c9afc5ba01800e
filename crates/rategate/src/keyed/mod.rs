//! A limit for each of millions of keys, in bounded memory.

mod beside;
mod entries;
mod error;
mod key;
mod lap;
mod places;
mod plans;
mod room;
mod several;
mod slots;
#[cfg(feature = "serde")]
mod snapshot;
mod strangers;
mod table;
mod turn;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rategate_core::concurrent::{Spare, Twinned};
use rategate_core::ledger::Ledger;
use rategate_core::verdict::Settled;

pub use self::error::KeyedError;
pub use self::key::{HashedId, Hashing, Id, Key, NumberId, Seeds};
pub use self::plans::MAX_TIERS;
pub use self::room::{DEFAULT_BYTES, DEFAULT_KEYS, MAX_KEYS, Overflow, Room};
use self::several::KeyPart;
use self::table::Table;
use self::turn::Place;
use crate::clock::{Clock, MonotonicClock};
use crate::decision::{Decision, Grant};
use crate::limiter::Limiter;
use crate::several::Ask;
use crate::standing::Look;
use crate::stats::{Detail, KeyStats, Outcome};

/// A limit for each key, all of one policy or of one for each tier of keys. Clones share the table.
///
/// # Which policy
///
/// Any. A [`Gcra`](crate::Gcra), a [`FixedWindow`](crate::FixedWindow) on the clock's grid, and a
/// [`CompactLog`](crate::CompactLog) while all its grants are at one point of its grid take a slot of 16 bytes for a
/// key that is a number, of 24 for any other, and are decided without a lock. Everything else is decided under the lock of a
/// small part of the table, from its state; a compact log that is busier has one of a few bits for each permit.
///
/// # What is forgotten
///
/// The table has [room](Room) for so many keys and no more. A key whose state cannot be told from a fresh one can
/// be forgotten without anybody noticing, and is, when its place is needed (theory 6.8). A key that is live
/// **stays**, whoever else comes: nobody gets a fresh limit by flooding the table with keys. When a newcomer finds
/// no place, [`Overflow`] says what happens, and [`overflows`](Self::overflows) counts it.
///
/// Policies that come to rest are the bucket, the window of a fixed grid, the logs, and concurrency. A schedule that
/// catches up without a bound never does, nor does a grid that begins with the first call: such keys stay.
///
/// # Verbs
///
/// Tries, looks, refunds and settlements are asked of the table, by key. Whatever waits, or holds something, is asked
/// of the key's own [`limiter`](Self::limiter), which has all the verbs there are; the table keeps it for as long as
/// anybody has it or waits, and its tries and the table's are of one limit.
///
/// # Cost
///
/// A try in a slot: a hash, a clock reading, and one swap in a cache line or two of one's own; for a key that is in
/// no cache that is a fetch from memory, which [`try_each`](Self::try_each) makes of many keys at once. A newcomer,
/// a refund and all other policies: the lock of a part with at most some 1600 keys. Each call behind a lock looks at one to four
/// other keys to forget, a newcomer to a full table at 64 slots; nothing sweeps in the background, and no call
/// pays for all. User code is never called under a lock, but for the clock.
///
/// In a table that is larger than the caches a good part of each fetch goes into finding the page. On Linux, a program that is
/// started with `GLIBC_TUNABLES=glibc.malloc.hugetlb=1` has such tables on huge pages, where the system allows for it.
///
/// # Example
///
/// ```
/// use rategate::{Gcra, Keyed};
///
/// let per_caller: Keyed<str, Gcra> = Keyed::new(Gcra::new("10/s".parse()?, 2)?);
/// assert!(per_caller.try_acquire("10.0.0.7", 2)?.is_granted());
/// assert!(!per_caller.try_acquire("10.0.0.7", 1)?.is_granted());
/// assert!(per_caller.try_acquire("10.0.0.8", 1)?.is_granted());
///
/// // Waiting is the limiter's.
/// per_caller.limiter("10.0.0.7")?.acquire(1)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Keyed<K: Key + ?Sized, P: Twinned, C: Clock = MonotonicClock> {
    table: Arc<Table<K::Id, P, C>>,
    tier: Option<Arc<TierOf<K>>>,
    name: Option<Arc<NameOf<K>>>,
}

/// Which tier a key is in.
type TierOf<K> = dyn Fn(&K) -> usize + Send + Sync;

/// What statistics call a key.
type NameOf<K> = dyn Fn(&K) -> String + Send + Sync;

/// How many keys of a batch are fetched from memory at once.
const BATCH: usize = 16;

impl<K: Key + ?Sized, P: Twinned> Keyed<K, P> {
    /// A table for 65 536 keys in real time, whose newcomers share a limit when it is full.
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

impl<K: Key + ?Sized, P: Twinned, C: Clock + Clone> Keyed<K, P, C> {
    /// A table on `clock`.
    #[must_use]
    pub fn with_clock(policy: P, room: Room, clock: C) -> Self {
        Self::with_hashing(policy, room, Hashing::default(), clock)
    }

    /// A table whose keys are hashed in another manner.
    #[must_use]
    pub fn with_hashing(policy: P, room: Room, hashing: Hashing, clock: C) -> Self {
        let table = Table::new(vec![policy], room, Seeds::random(hashing), clock);
        Self { table: Arc::new(table), tier: None, name: None }
    }

    /// A table with a policy for each tier of keys: `tier_of` says a key's, counted from 0 in the order of
    /// `policies`. It is asked at each call, so a key may change its tier: what it has used is carried over as by
    /// [`Limiter::reconfigure`]. It is called while no lock is held, and should be fast.
    ///
    /// ```
    /// use rategate::{Gcra, Hashing, Keyed, MonotonicClock, Room};
    ///
    /// let [free, paid] = [Gcra::new("1/s".parse()?, 1)?, Gcra::new("100/s".parse()?, 10)?];
    /// let is_paid = |tenant: &u64| usize::from(*tenant >= 1000);
    /// let (room, clock) = (Room::default(), MonotonicClock::new());
    /// let tenants: Keyed<u64, Gcra> =
    ///     Keyed::with_tiers([free, paid], is_paid, room, Hashing::FloodSafe, clock)?;
    /// assert!(tenants.try_acquire(&1007, 10)?.is_granted());
    /// assert!(tenants.try_acquire(&7, 10).is_err(), "never, for this tier");
    ///
    /// // A live change, for whoever is in that tier.
    /// tenants.reconfigure_tier(0, Gcra::new("1/s".parse()?, 10)?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyedError::NoSuchTier`] for no policy, or more than [`MAX_TIERS`].
    pub fn with_tiers(
        policies: impl IntoIterator<Item = P>,
        tier_of: impl Fn(&K) -> usize + Send + Sync + 'static,
        room: Room,
        hashing: Hashing,
        clock: C,
    ) -> Result<Self, KeyedError> {
        let policies: Vec<P> = policies.into_iter().take(MAX_TIERS.saturating_add(1)).collect();
        if policies.is_empty() || policies.len() > MAX_TIERS {
            let tier = policies.len().saturating_sub(1);
            return Err(KeyedError::NoSuchTier { tier, tiers: policies.len().min(MAX_TIERS) });
        }
        let table = Table::new(policies, room, Seeds::random(hashing), clock);
        Ok(Self { table: Arc::new(table), tier: Some(Arc::new(tier_of)), name: None })
    }

    /// The same table, which counts from now on, for all its handles: tries granted and denied, and which keys
    /// stand out. `name_of` says what a key of these is called in [reports](KeyStats::report); it is asked once for
    /// each of them, while no lock is held. Nothing is forgotten by it, and no key becomes a label. The first
    /// statistics of a table stay.
    ///
    /// What a key's own [`limiter`](Self::limiter) grants is not among it.
    ///
    /// ```
    /// use rategate::stats::Detail;
    /// use rategate::{Gcra, Keyed};
    ///
    /// let per_caller: Keyed<str, Gcra> = Keyed::new(Gcra::new("10/s".parse()?, 2)?);
    /// let per_caller = per_caller.with_stats("search", Detail::exact(), |caller| caller.to_owned());
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

    /// Takes `permits` for a key at once, or says how long until they could be taken. Never waits.
    ///
    /// # Errors
    ///
    /// [`KeyedError::ExceedsCapacity`] for more permits than could ever pass together;
    /// [`KeyedError::TableFull`], with [`Overflow::Refuse`]; [`KeyedError::NoSuchTier`] and
    /// [`KeyedError::Closed`].
    #[inline]
    pub fn try_acquire(&self, key: &K, permits: u64) -> Result<Decision, KeyedError> {
        let place = self.place(key);
        let read_ns = || self.table.clock.now_ns();
        let decision =
            self.table.try_acquire(&place, permits, read_ns).map(|(decision, ())| decision);
        self.observe(key, &place, permits, &decision);
        decision
    }

    /// The same, and where the key's limit stands behind the decision, from the very state that was decided on and at the same
    /// reading of the clock: what a server tells its clients at each call. It costs a division or two more than the try
    /// alone. A denial tells it too, and so does a try for 0 permits, which is a [`look`](Self::look).
    ///
    /// ```
    /// use rategate::{Gcra, Keyed, Look, ManualClock, Room};
    ///
    /// let bucket = Gcra::new("1/s".parse()?, 3)?;
    /// let per_caller: Keyed<str, Gcra, _> = Keyed::with_clock(bucket, Room::default(), ManualClock::new());
    /// let (decision, look) = per_caller.try_acquire_told("10.0.0.7", 2)?;
    /// assert!(decision.is_granted());
    /// assert_eq!(look, Look { remaining: 1, fresh_in_ns: Some(2_000_000_000), capacity: 3 });
    /// let (decision, look) = per_caller.try_acquire_told("10.0.0.7", 2)?;
    /// assert!(!decision.is_granted());
    /// assert_eq!(look.remaining, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire); for 0 permits those of [`look`](Self::look).
    #[inline]
    pub fn try_acquire_told(&self, key: &K, permits: u64) -> Result<(Decision, Look), KeyedError> {
        let place = self.place(key);
        let told = match permits {
            0 => self.look_at(&place),
            _ => self.table.try_acquire(&place, permits, || self.table.clock.now_ns()),
        };
        if self.table.stats_of(place.tier).is_some() {
            self.observe(key, &place, permits, &told.map(|told| told.0));
        }
        told
    }

    /// A try for nothing.
    fn look_at(&self, place: &Place<K::Id>) -> Result<(Decision, Look), KeyedError> {
        let now_ns = self.table.clock.now_ns();
        let look = self.table.look(place, now_ns)?;
        let spare = Spare::of(look.remaining);
        Ok((Decision::Granted(Grant::at(now_ns, now_ns, 0, spare)), look))
    }

    /// The same for many keys, each on its own, in their order: what has to be fetched from memory is asked for
    /// sixteen keys at a time, so that it comes at once, and the clock is read once for all of these. `tell` is given the
    /// answers, while no lock is held.
    ///
    /// ```
    /// use rategate::{Gcra, Keyed};
    ///
    /// let per_caller: Keyed<u64, Gcra> = Keyed::new(Gcra::new("10/s".parse()?, 1)?);
    /// let mut passed = 0;
    /// per_caller.try_each([7, 8, 7].iter().map(|key| (key, 1)), |decision| {
    ///     passed += u32::from(decision.is_ok_and(|decision| decision.is_granted()));
    /// });
    /// assert_eq!(passed, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_each<'k>(
        &self,
        asks: impl IntoIterator<Item = (&'k K, u64)>,
        mut tell: impl FnMut(Result<Decision, KeyedError>),
    ) where
        K: 'k,
    {
        let mut asks =
            asks.into_iter().map(|(key, permits)| (self.place(key), key, permits)).fuse();
        let mut batch = [None; BATCH];
        loop {
            for ask in &mut batch {
                *ask = asks.next();
            }
            if batch[0].is_none() {
                return;
            }
            // With no hashing between them, all of these are on their way before the first one comes.
            for (place, ..) in batch.iter().flatten() {
                self.table.touch(place);
            }
            let now_ns = self.table.clock.now_ns();
            for (place, key, permits) in batch.iter().flatten() {
                let decision = self.table.try_acquire(place, *permits, || now_ns);
                let decision = decision.map(|(decision, ())| decision);
                self.observe(key, place, *permits, &decision);
                tell(decision);
            }
        }
    }

    /// How long until a try for `permits` would pass, if nobody else comes: zero if it would pass now, `None` where
    /// time alone cannot help. Takes nothing, and leaves no trace of a key that is not known.
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire).
    pub fn peek(&self, key: &K, permits: u64) -> Result<Option<Duration>, KeyedError> {
        Ok(self.table.peek(&self.place(key), permits)?.map(Duration::from_nanos))
    }

    /// The most permits that a try for a key could take now.
    ///
    /// # Errors
    ///
    /// [`KeyedError::NoSuchTier`] and [`KeyedError::Closed`].
    pub fn remaining(&self, key: &K) -> Result<u64, KeyedError> {
        self.table.remaining(&self.place(key))
    }

    /// How many permits a try for a key could take now, and how long until the key cannot be told from one that has used
    /// nothing: see [`Look`]. Takes nothing, and leaves no trace of a key that is not known.
    ///
    /// # Errors
    ///
    /// Those of [`remaining`](Self::remaining).
    pub fn look(&self, key: &K) -> Result<Look, KeyedError> {
        self.table.look(&self.place(key), self.table.clock.now_ns())
    }

    /// The limiter of a key, for all that needs one: to wait, in a thread or a [task](crate::AsyncLimiter), to reserve,
    /// to hold a [`Permit`](crate::Permit).
    ///
    /// It takes some two kilobytes for as long as anybody has it, or something of it; then the key is as small as
    /// before. If there is no room for the key, it is the shared one, or with [`Overflow::Admit`] a new one each
    /// time.
    ///
    /// # Errors
    ///
    /// [`KeyedError::TableFull`] if there is no room for a limiter, and [`KeyedError::NoSuchTier`].
    pub fn limiter(&self, key: &K) -> Result<Limiter<Ledger<P>, C>, KeyedError> {
        self.table.limiter(&self.place(key))
    }

    /// Takes back `permits` of a grant of this key's: see [`Limiter::refund`]. Returns how many went back. A key that
    /// has been forgotten has none out. What newcomers to a full table took of the limit that they share goes back
    /// to that.
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire).
    pub fn refund(&self, key: &K, grant: &Grant, permits: u64) -> Result<u64, KeyedError> {
        self.table.refund(&self.place(key), grant, permits)
    }

    /// Takes permits of a key back without a grant to show, because the caller vouches that they had no effect: see
    /// [`Limiter::give_back`]. Returns how many went back. A key that is as good as fresh or not known has none out, and no
    /// trace is left of it; nor does anything go back to the limit that newcomers to a full table share.
    ///
    /// Then in any window no more of the key's permits start than its limit allows and as many again as have come back in
    /// that window. Behind it the key is decided under the lock, until it is at rest: so each grant still gives back exactly
    /// what is true of it.
    ///
    /// ```
    /// use rategate::{Gcra, Keyed};
    ///
    /// let per_caller: Keyed<str, Gcra> = Keyed::new(Gcra::new("10/h".parse()?, 10)?);
    /// assert!(per_caller.try_acquire("10.0.0.7", 4)?.is_granted());
    /// assert_eq!(per_caller.give_back("10.0.0.7", 6)?, 4, "up to full");
    /// assert_eq!(per_caller.give_back("10.0.0.8", 6)?, 0, "who has taken nothing");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyedError::NoSuchTier`] and [`KeyedError::Closed`].
    pub fn give_back(&self, key: &K, permits: u64) -> Result<u64, KeyedError> {
        self.table.give_back(&self.place(key), permits)
    }

    /// Forgets what a key has used and been promised, as if it came for the first time. Returns whether there was anything
    /// that could be told. What its grants of before would give back goes nowhere; who waits for its limiter stays in line.
    /// A policy that time never brings to rest had something if the key was known. What a key has taken of the limit that
    /// newcomers to a full table share stays taken.
    ///
    /// ```
    /// use rategate::{Gcra, Keyed};
    ///
    /// let per_caller: Keyed<str, Gcra> = Keyed::new(Gcra::new("10/h".parse()?, 10)?);
    /// let grant = per_caller.try_acquire("10.0.0.7", 4)?.granted().unwrap();
    /// assert!(per_caller.reset("10.0.0.7")?);
    /// assert_eq!(per_caller.remaining("10.0.0.7")?, 10);
    /// assert_eq!(per_caller.refund("10.0.0.7", &grant, 4)?, 0);
    /// assert!(!per_caller.reset("10.0.0.7")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyedError::NoSuchTier`] and [`KeyedError::Closed`].
    pub fn reset(&self, key: &K) -> Result<bool, KeyedError> {
        self.table.reset(&self.place(key))
    }

    /// Makes good for an estimate, once it is known that the operation of `grant` took `actual` permits: see
    /// [`Limiter::settle`].
    ///
    /// # Errors
    ///
    /// [`KeyedError::Debt`], and those of [`try_acquire`](Self::try_acquire).
    pub fn settle(&self, key: &K, grant: &Grant, actual: u64) -> Result<Settled, KeyedError> {
        self.table.settle(&self.place(key), grant, actual)
    }

    /// Takes note that operations of a key have ended: see [`Limiter::release`].
    ///
    /// # Errors
    ///
    /// [`KeyedError::NoSuchTier`] and [`KeyedError::Closed`].
    pub fn release(&self, key: &K, permits: u64) -> Result<bool, KeyedError> {
        let release = |limiter: &Limiter<Ledger<P>, C>| limiter.release(permits);
        self.table.on_flight(
            &self.place(key),
            |limit, now_ns| limit.release(now_ns, permits),
            release,
        )
    }

    /// Takes note that operations of a key never were: see [`Limiter::forgo`].
    ///
    /// # Errors
    ///
    /// [`KeyedError::NoSuchTier`] and [`KeyedError::Closed`].
    pub fn forgo(&self, key: &K, permits: u64) -> Result<bool, KeyedError> {
        let forgo = |limiter: &Limiter<Ledger<P>, C>| limiter.forgo(permits);
        self.table.on_flight(&self.place(key), |limit, now_ns| limit.forgo(now_ns, permits), forgo)
    }

    /// From now on a key that is not known counts as one that had used all there was at `at_ns` of the table's clock, or now
    /// if that is sooner: for whoever has lost what was counted, and would rather grant too little than anything
    /// twice. It takes no room. It ends by itself when a limit has forgotten what was used then: a bucket fills up from
    /// there, a window and a log run out. Keys that are known stay as they are. What has no bound is not used up, and what was
    /// in flight has ended.
    ///
    /// Until then a key that is [reset](Self::reset) counts as unknown again, and so does one to which all has
    /// [come back](Self::give_back).
    ///
    /// ```
    /// use rategate::{Gcra, Keyed, ManualClock, Room};
    ///
    /// let clock = ManualClock::new();
    /// let bucket = Gcra::new("1/s".parse()?, 3)?;
    /// let per_caller: Keyed<str, Gcra, _> = Keyed::with_clock(bucket, Room::default(), clock.clone());
    /// per_caller.spend_strangers(0);
    /// assert!(!per_caller.try_acquire("10.0.0.7", 1)?.is_granted());
    /// clock.advance(1_000_000_000);
    /// assert!(per_caller.try_acquire("10.0.0.7", 1)?.is_granted());
    /// assert_eq!(per_caller.remaining("10.0.0.8")?, 1);
    /// clock.advance(2_000_000_000);
    /// assert_eq!(per_caller.remaining("10.0.0.8")?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spend_strangers(&self, at_ns: u64) {
        self.table.strangers.spend(at_ns.min(self.table.clock.now_ns()));
    }

    /// Permits of a key, as a part of a call that has to pass several limits: see [`try_all`](crate::try_all). A part of 0
    /// permits is a look: it stands in nobody's way, takes nothing, and its grant tells what remains.
    #[must_use]
    pub fn ask(&self, key: &K, permits: u64) -> Ask<'_> {
        Ask::of(KeyPart { table: &*self.table, place: self.place(key), permits })
    }

    /// Puts a policy into force for all keys of a table without tiers; else for those of the first tier.
    ///
    /// # Errors
    ///
    /// None, as there is always a first tier.
    pub fn reconfigure(&self, policy: P) -> Result<(), KeyedError> {
        self.reconfigure_tier(0, policy)
    }

    /// Puts a policy into force for all keys of a tier. What a key has used is carried over as by
    /// [`Limiter::reconfigure`]: each key sees the old numbers or the new ones, and when this returns, all see the
    /// new.
    ///
    /// It goes from one part of the table to the next, some tens of microseconds for each, and only its caller waits
    /// for the whole.
    ///
    /// # Errors
    ///
    /// [`KeyedError::NoSuchTier`].
    pub fn reconfigure_tier(&self, tier: usize, policy: P) -> Result<(), KeyedError> {
        self.table.reconfigure(tier, policy)
    }

    /// Returns the policy in force for a tier. It waits for a change that is under way.
    ///
    /// # Errors
    ///
    /// [`KeyedError::NoSuchTier`].
    pub fn policy(&self, tier: usize) -> Result<P, KeyedError> {
        self.table.policy(tier)
    }

    /// Returns a number that is another after each change of a policy. Takes no lock.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.table.changes()
    }

    /// Returns the tier of a key, as the table's function says it: 0 without one.
    #[must_use]
    pub fn tier_of(&self, key: &K) -> usize {
        self.tier.as_ref().map_or(0, |tier_of| tier_of(key))
    }

    #[inline]
    fn observe(
        &self,
        key: &K,
        place: &Place<K::Id>,
        permits: u64,
        decision: &Result<Decision, KeyedError>,
    ) {
        let Some((stats, limit)) = self.table.stats_of(place.tier) else { return };
        let Ok(decision) = decision else { return };
        let outcome = Outcome::of(decision, limit);
        match &self.name {
            Some(name_of) => stats.observe_named(place.id, permits, outcome, || name_of(key)),
            None => stats.observe(place.id, permits, outcome),
        }
    }

    #[inline]
    fn place(&self, key: &K) -> Place<K::Id> {
        let tier = self.tier_of(key);
        self.table.place(key.id(&self.table.seeds), tier)
    }
}

impl<K: Key + ?Sized, P: Twinned, C: Clock> Keyed<K, P, C> {
    /// How many keys are in the table, those included that are as good as fresh and whose place nobody has needed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.keys()
    }

    /// Whether there is no key in the table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How often a call has found no room. If this grows, so should the table, or the keys are made up.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.table.overflows()
    }

    /// How many bytes the table takes: slots, used or not, and all states. It looks at each part in turn.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.table.bytes()
    }

    /// What it has done, and which keys stand out, if it [counts](Self::with_stats).
    #[must_use]
    pub fn stats(&self) -> Option<&KeyStats<K::Id>> {
        self.table.stats()
    }

    /// What it may hold.
    #[must_use]
    pub fn room(&self) -> Room {
        self.table.room()
    }

    /// What its keys are hashed with.
    #[must_use]
    pub fn seeds(&self) -> &Seeds {
        &self.table.seeds
    }
}

impl<K: Key + ?Sized, P: Twinned, C: Clock> Clone for Keyed<K, P, C> {
    fn clone(&self) -> Self {
        let (tier, name) = (self.tier.clone(), self.name.clone());
        Self { table: Arc::clone(&self.table), tier, name }
    }
}

/// One line: the policies, and how full the table is.
impl<K: Key + ?Sized, P: Twinned, C: Clock> fmt::Debug for Keyed<K, P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Keyed");
        match self.table.policies_if_free().as_deref() {
            Some([only]) => shown.field("policy", only),
            Some(tiers) => shown.field("policies", &tiers),
            None => &mut shown,
        };
        shown.field("keys", &self.len()).field("room", &self.room());
        shown.field("overflows", &self.overflows()).finish_non_exhaustive()
    }
}
