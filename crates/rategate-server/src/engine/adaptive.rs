//! Permits in flight of this process under a limit that follows measurements.
//!
//! # Contract
//!
//! * **Holders** are those of a [`MemoryStore`], which knows leases and reservations, repeats them
//!   and ends them. What is added here is the limit: a start finds no more than that in flight with
//!   it, or than its share of it, and the check and the start are one step.
//! * **A sample** is the time from the start of a holder to its end, as this process sees them. It
//!   is ignored unless the holder said otherwise. One whose time is over counts as dropped, unless
//!   it has no name by which a caller could have ended it.
//! * **Bounds.** A counter is known for ten minutes after its last holder, or until a full table
//!   needs its memory: then it begins anew. No holder is dropped for that.
//! * **A reset** drops what was learned too.

mod answer;
mod tally;
mod tracked;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rategate::adaptive::Outcome;
use rategate::policy::portable::RestoreContext;
use rategate::store::{Key, LeaseId, MemoryStore, ReservationId};
use rategate::{AdaptiveConcurrency, Clock, Concurrency, Share};

pub(super) use self::answer::InShare;
pub(crate) use self::tally::OUTCOMES;
pub use self::tally::{AdaptiveStatus, AdaptiveTally};
use self::tracked::{Ending, Tracked};
use super::Engine;
use super::key;
use super::request::{MAX_ITEMS, Target};
use super::unique_id::UniqueId;

/// The counters that each new one examines for eviction, and that in a full table.
const CHECKS: usize = 2;
const CHECKS_WHEN_FULL: usize = 64;

/// A store of this process that holds permits in flight under a limit that follows measurements.
pub(super) struct AdaptiveStore<C> {
    store: MemoryStore<C>,
    seed: u32,
    inner: Mutex<Inner>,
}

/// A holder of permits in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Holder {
    /// A lease, with its number of permits: with another it is another lease.
    Lease([u8; 16], u64),
    Reservation([u8; 16]),
}

#[derive(Debug)]
struct Inner {
    policy: AdaptiveConcurrency,
    held_ns: u64,
    /// The newest reading of the clock.
    now_ns: u64,
    max_keys: usize,
    keys: HashMap<Key, Tracked>,
    /// All keys, in the order in which they are examined for eviction.
    sweep: VecDeque<Key>,
    /// The ends of all holders.
    due: BTreeSet<(u64, Key, Holder)>,
    tally: AdaptiveTally,
    /// `true` while holders of an earlier process are held again: they fit whatever the limit is.
    is_restoring: bool,
}

impl Holder {
    pub(super) const fn lease(id: LeaseId, permits: NonZeroU64) -> Self {
        Self::Lease(id.0, permits.get())
    }

    pub(super) const fn reservation(id: ReservationId) -> Self {
        Self::Reservation(id.0)
    }
}

impl<C: Clock> AdaptiveStore<C> {
    pub(super) fn new(
        clock: C,
        (max_keys, max_ids): (usize, usize),
        (policy, held_ns): (AdaptiveConcurrency, u64),
    ) -> Self {
        let inner = Inner {
            policy,
            held_ns,
            now_ns: 0,
            max_keys,
            keys: HashMap::new(),
            sweep: VecDeque::new(),
            due: BTreeSet::new(),
            tally: AdaptiveTally::default(),
            is_restoring: false,
        };
        let store = MemoryStore::with_capacity(clock, max_keys).with_max_ids(max_ids);
        let this = Self { store, seed: fastrand::u32(..), inner: Mutex::new(inner) };
        this.set_policy(policy, held_ns);
        this
    }

    /// Puts other numbers into force. What has been found stays, within them.
    pub(super) fn set_policy(&self, policy: AdaptiveConcurrency, held_ns: u64) {
        let mut inner = self.lock();
        // Processes with one configuration must not probe their server at once.
        let adaptation = policy.adaptation().with_seed(self.seed);
        (inner.policy, inner.held_ns) = (AdaptiveConcurrency::following(adaptation), held_ns);
    }

    /// Returns the store of the holders.
    pub(super) const fn holders(&self) -> &MemoryStore<C> {
        &self.store
    }

    /// Returns the number of keys that are known.
    pub(super) fn keys(&self) -> usize {
        self.lock().keys.len()
    }

    /// Ends the holders whose time is over.
    pub(super) fn expire(&self) {
        let _inner = self.lock();
    }

    /// States the outcome of a holder that ends next, or by itself.
    pub(super) fn expect(&self, key: &[u8], holder: Holder, outcome: Outcome) {
        if let Some(tracked) = self.lock().keys.get_mut(key) {
            tracked.expect(holder, outcome);
        }
    }

    /// Returns the keys whose limit is not the first one, each with its state as words.
    pub(super) fn found(&self) -> Vec<(Key, Vec<u64>)> {
        let inner = self.lock();
        let (policy, now_ns) = (inner.policy, inner.now_ns);
        let all = inner.keys.iter();
        all.filter_map(|(key, it)| Some((Key::clone(key), it.found(policy, now_ns)?))).collect()
    }

    /// Continues with what an earlier process has found for a key. Returns `false` if the words are
    /// none, or the key is in use.
    pub(super) fn restore(&self, key: &Key, words: &[u64], since: RestoreContext) -> bool {
        let mut inner = self.lock();
        let found = Tracked::restored(inner.policy, words, since);
        let Some(found) = found.filter(|_| !inner.keys.contains_key(key)) else { return false };
        inner.evict_some();
        inner.keys.insert(Key::clone(key), found);
        inner.sweep.push_back(Key::clone(key));
        true
    }

    /// Calls `hold`, which holds again what an earlier process held: it fits whatever the limit is,
    /// and is no sample, since its start is unknown.
    pub(super) fn restoring<T>(&self, hold: impl FnOnce() -> T) -> T {
        self.lock().is_restoring = true;
        let outcome = hold();
        self.lock().is_restoring = false;
        outcome
    }

    /// Returns the numbers of samples and changes.
    pub(super) fn tally(&self) -> AdaptiveTally {
        self.lock().tally
    }

    /// Returns the limit of a key now.
    pub(super) fn status(&self, key: &[u8]) -> AdaptiveStatus {
        let mut inner = self.lock();
        let (policy, now_ns) = (inner.policy, inner.now_ns);
        match inner.known(key) {
            Some(tracked) => tracked.status(now_ns),
            None => Tracked::new(policy, now_ns).status(now_ns),
        }
    }

    /// Locks the state at a reading of the clock, at which what is over has ended.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.now_ns = inner.now_ns.max(self.store.clock().now_ns());
        inner.expire();
        inner
    }
}

impl Inner {
    /// Ends what is over at the instants at which it was, as dropped.
    fn expire(&mut self) {
        while let Some((until_ns, key, holder)) = self.due.first().cloned() {
            if until_ns > self.now_ns {
                return;
            }
            self.due.pop_first();
            self.end(&key, holder, Ending::Expired(until_ns));
        }
    }

    /// Returns a known key under the numbers in force.
    fn known(&mut self, key: &[u8]) -> Option<&mut Tracked> {
        let (policy, now_ns) = (self.policy, self.now_ns);
        let tracked = self.keys.get_mut(key)?;
        if let Some(reason) = tracked.follow(policy, now_ns) {
            self.tally.note_change(reason);
        }
        Some(tracked)
    }

    /// Returns the number of permits that would fit into a share of a key's limit.
    fn room(&mut self, key: &[u8], share: Share) -> u64 {
        if self.is_restoring {
            return u64::MAX;
        }
        let (policy, now_ns) = (self.policy, self.now_ns);
        let fresh = || share.of(policy.adaptation().bounds().first().into());
        self.known(key).map_or_else(fresh, |tracked| tracked.room(now_ns, share))
    }

    /// Returns `None` if so many permits do not fit into a share of a key's limit; else `true` if the
    /// share is smaller than the limit, and they fill it.
    fn fit(&mut self, key: &[u8], permits: NonZeroU64, share: Share) -> Option<bool> {
        let room = self.room(key, share);
        (permits.get() <= room).then_some(permits.get() == room && !share.is_whole())
    }

    /// Returns the wait until so many permits fit by time alone, unless the limit changes.
    fn wait_ns(&mut self, key: &[u8], permits: u64, share: Share) -> Option<NonZeroU64> {
        let now_ns = self.now_ns;
        self.known(key).and_then(|tracked| tracked.wait_ns(now_ns, permits, share))
    }

    /// Starts a holder.
    fn begin(
        &mut self,
        key: &Key,
        holder: Holder,
        (permits, until_ns): (NonZeroU64, u64),
        fills_share: bool,
    ) {
        if self.known(key).is_none() {
            self.evict_some();
            self.keys.insert(Key::clone(key), Tracked::new(self.policy, self.now_ns));
            self.sweep.push_back(Key::clone(key));
        }
        let now_ns = self.now_ns;
        let Some(tracked) = self.keys.get_mut(key) else { return };
        if let Some(reason) = tracked.begin(holder, (permits, until_ns), fills_share, now_ns) {
            self.tally.note_change(reason);
        }
        if self.is_restoring {
            tracked.leave_unmeasured(holder);
        }
        self.due.insert((until_ns, Key::clone(key), holder));
    }

    /// Ends a holder, if it is known.
    fn end(&mut self, key: &Key, holder: Holder, ending: Ending) {
        let now_ns = self.now_ns;
        let Some(ended) = self.known(key).and_then(|it| it.end(holder, ending, now_ns)) else {
            return;
        };
        self.due.remove(&(ended.until_ns, Key::clone(key), holder));
        self.tally.note_sample(ended.outcome, ended.latency_ns);
        if let Some(reason) = ended.reason {
            self.tally.note_change(reason);
        }
    }

    /// Extends the time of a holder. One that only the store knows starts now.
    fn renew(&mut self, key: &Key, holder: Holder, permits: NonZeroU64) {
        let until_ns = self.now_ns.saturating_add(self.held_ns);
        match self.known(key).and_then(|tracked| tracked.renew(holder, until_ns)) {
            Some(before_ns) => {
                self.due.remove(&(before_ns, Key::clone(key), holder));
                self.due.insert((until_ns, Key::clone(key), holder));
            }
            None => self.begin(key, holder, (permits, until_ns), false),
        }
    }

    /// Drops all that is known of a key, which is evicted in its turn.
    fn forget(&mut self, key: &Key) {
        let fresh = Tracked::new(self.policy, self.now_ns);
        let Some(tracked) = self.keys.get_mut(key) else { return };
        for (until_ns, holder) in std::mem::replace(tracked, fresh).ends() {
            self.due.remove(&(until_ns, Key::clone(key), holder));
        }
    }

    fn evict_some(&mut self) {
        let is_full = self.keys.len() >= self.max_keys;
        let checks = if is_full { CHECKS_WHEN_FULL } else { CHECKS };
        for _ in 0..checks.min(self.sweep.len()) {
            let Some(key) = self.sweep.pop_front() else { return };
            let is_over = |it: &Tracked| it.is_idle() && (is_full || it.is_fresh(self.now_ns));
            if self.keys.get(&key).is_none_or(is_over) {
                self.keys.remove(&key);
            } else {
                self.sweep.push_back(key);
            }
        }
    }
}

impl<C: Clock + Clone + 'static> Engine<C> {
    /// States how the permits in flight of a reservation end, for a commit or a cancellation that
    /// follows. Only limits that follow measurements heed it; by default the end is ignored.
    pub fn expect_outcome(&self, id: UniqueId, targets: &[Target<'_>], outcome: Outcome) {
        if outcome == Outcome::Ignored || targets.len() > MAX_ITEMS {
            return;
        }
        // The end itself reports what is wrong with the items.
        self.of_stored(targets, |ruled, key| {
            if let Some(adaptive) = ruled.adaptive() {
                adaptive.expect(key, Holder::Reservation(id.0), outcome);
            }
        });
    }

    /// Returns the whole limit of a rule for these values now, if it follows measurements.
    #[must_use]
    pub fn adaptive(&self, rule: &str, values: &[&[u8]]) -> Option<AdaptiveStatus> {
        let live = self.inner.live.load();
        let (ruled, key) = live.as_ref()?.of_name(rule, values).ok()?;
        Some(ruled.adaptive()?.status(&key::in_store(&ruled.rule.name, &key)))
    }

    /// Returns the numbers of samples and changes of a rule, if its limit follows measurements.
    #[must_use]
    pub fn adaptive_tally(&self, rule: &str) -> Option<AdaptiveTally> {
        let live = self.inner.live.load();
        Some(live.as_ref()?.ruled_by(rule)?.adaptive()?.tally())
    }
}

/// Returns the fixed limit that the store of the holders has: the ceiling.
pub(super) fn ceiling(policy: &AdaptiveConcurrency) -> Concurrency {
    Concurrency::new(policy.adaptation().bounds().ceiling().into())
}

#[cfg(test)]
mod tests {
    use rategate::ManualClock;

    use super::*;

    #[test]
    fn idle_counters_give_way() {
        let policy = AdaptiveConcurrency::new(1, 9);
        let store = AdaptiveStore::new(ManualClock::new(), (4, 100), (policy, 60_000_000_000));
        let key = |nth: u8| Key::from([nth]);
        let one = (NonZeroU64::MIN, 60_000_000_000);
        let holder = Holder::Lease([0; 16], 1);
        for nth in 0..100 {
            store.lock().begin(&key(nth), holder, one, false);
            // One of ten is still held.
            if nth % 10 > 0 {
                store.lock().end(&key(nth), holder, Ending::Ended);
            }
        }
        let mut inner = store.lock();
        assert!(inner.keys.len() <= 13, "{}", inner.keys.len());
        assert!((0..100).step_by(10).all(|nth| inner.known(&key(nth)).is_some()), "what is held");
        assert_eq!((inner.due.len(), inner.sweep.len()), (10, inner.keys.len()));
        inner.forget(&key(0));
        assert_eq!(inner.due.len(), 9);
    }

    #[test]
    fn a_counter_that_is_as_new_is_forgotten() {
        let clock = ManualClock::new();
        let policy = AdaptiveConcurrency::new(1, 9);
        let store = AdaptiveStore::new(clock.clone(), (100, 100), (policy, 1_000));
        let holder = Holder::Reservation([0; 16]);
        for nth in 0..50_u8 {
            store.lock().begin(&Key::from([nth]), holder, (NonZeroU64::MIN, 1_000), false);
            store.lock().end(&Key::from([nth]), holder, Ending::Ended);
        }
        assert_eq!(store.keys(), 50, "what was learned is kept");
        clock.advance(std::time::Duration::from_secs(600));
        for nth in 50..100_u8 {
            store.lock().begin(&Key::from([nth]), holder, (NonZeroU64::MIN, u64::MAX), false);
        }
        assert_eq!(store.keys(), 50, "those of before are gone");
    }
}
