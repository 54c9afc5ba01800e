//! A table with a limit for each key.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rategate::charge::Charged;
use rategate::error::KeyedError;
use rategate::keyed::{HashedId, Hashing, Key, Seeds};
use rategate::{AnyPolicy, Decision, Denial, Error, Grant, Status};

pub use rategate::keyed::{Capacity, Overflow};

use crate::clock::Clock;
use crate::limiter::{Hold, Limiter};
use crate::receipt::{id_of_key, next_id};

/// A key as other languages have it. The same characters as a text and as bytes are two keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyRef<'k> {
    /// A text.
    Text(&'k str),
    /// Bytes.
    Bytes(&'k [u8]),
    /// A number.
    Number(i64),
}

/// A table with a limit of one policy for each of many keys, in bounded memory.
///
/// Clones are handles of the same table.
#[derive(Clone, Debug)]
pub struct Keyed {
    table: rategate::Keyed<Hashed, Clock>,
    id: u64,
    /// Shared by all handles.
    in_use: Arc<Mutex<InUse>>,
}

/// The limiters in use of a table's keys, by their [address](rategate::Limiter::address), and
/// their counts of untaken waits.
///
/// All handles of a limiter have one count, so that no call by one of them goes on before an
/// earlier wait by another. Those of two keys may be of one limiter, which the new keys of a full
/// table share.
#[derive(Debug, Default)]
struct InUse {
    untaken: HashMap<usize, Weak<AtomicUsize>>,
    /// The number of limiters at which those that are not in use any more are removed.
    sweep_at: usize,
}

/// A key whose hash has been computed with the table's seeds.
#[derive(Debug)]
struct Hashed(HashedId);

impl Key for Hashed {
    type Id = HashedId;

    fn id(&self, _seeds: &Seeds) -> HashedId {
        self.0
    }
}

impl Keyed {
    /// Creates a table.
    #[must_use]
    pub fn new(policy: AnyPolicy, capacity: Capacity, clock: Clock) -> Self {
        let table = rategate::Keyed::with_hashing(policy, capacity, Hashing::FloodSafe, clock);
        Self { table, id: next_id(), in_use: Arc::default() }
    }

    /// Takes `permits` for a key at once, or not at all.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::try_acquire`].
    #[inline]
    pub fn try_acquire(&self, key: KeyRef<'_>, permits: u64) -> Result<Decision, KeyedError> {
        self.table.try_acquire(&self.hashed(key), permits)
    }

    /// Takes `permits` for a key at once, or not at all. Also returns what remains and, with a
    /// grant, how long one more than that would have to wait: `None` if no time helps.
    ///
    /// The key is hashed once, for callers that report both with each grant.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::try_acquire`].
    #[inline]
    pub fn try_acquire_then_peek(
        &self,
        key: KeyRef<'_>,
        permits: u64,
    ) -> Result<(Decision, u64, Option<Duration>), KeyedError> {
        let key = self.hashed(key);
        let (decision, Status { remaining, .. }) =
            self.table.try_acquire_with_status(&key, permits)?;
        if !decision.is_granted() {
            return Ok((decision, remaining, None));
        }
        // More than there ever is never comes, which is an error of a peek.
        let more = self.table.peek(&key, remaining.saturating_add(1));
        Ok((decision, remaining, more.ok().flatten()))
    }

    /// Takes `permits` for a key at once, or not at all, and returns the limit's numbers then.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::try_acquire`].
    pub fn try_acquire_with_status(
        &self,
        key: KeyRef<'_>,
        permits: u64,
    ) -> Result<(Decision, Status), KeyedError> {
        self.table.try_acquire_with_status(&self.hashed(key), permits)
    }

    /// Returns how long `permits` would have to wait for a key now: `None` if no time helps.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::peek`].
    pub fn peek(&self, key: KeyRef<'_>, permits: u64) -> Result<Option<Duration>, KeyedError> {
        self.table.peek(&self.hashed(key), permits)
    }

    /// Takes `permits` for a key and blocks the thread until they may start, or refuses at once if
    /// that is after `timeout`.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::acquire_within`].
    pub fn acquire(
        &self,
        key: KeyRef<'_>,
        permits: u64,
        timeout: Option<Duration>,
    ) -> Result<Grant, Error> {
        match timeout {
            Some(timeout) => self.table.acquire_within(&self.hashed(key), permits, timeout),
            None => self.table.acquire(&self.hashed(key), permits),
        }
    }

    /// Returns the numbers of a key's limit now.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::status`].
    pub fn status(&self, key: KeyRef<'_>) -> Result<Status, KeyedError> {
        self.table.status(&self.hashed(key))
    }

    /// Returns the limiter of a key, which has all other verbs. The table keeps it while there is
    /// a handle.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::limiter`].
    pub fn limiter(&self, key: KeyRef<'_>) -> Result<Limiter, KeyedError> {
        let limiter = self.table.limiter(&self.hashed(key))?;
        let address = limiter.address();
        let untaken = self.in_use.lock().unwrap_or_else(PoisonError::into_inner).untaken(address);
        Ok(Limiter::from(limiter).of_key(self.id_of(key), untaken))
    }

    fn hashed(&self, key: KeyRef<'_>) -> Hashed {
        Hashed(self.table.seeds().hashed(&key))
    }

    /// Returns the number of the table in this process, which no limiter has.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Returns the number of a key's limiter in this process: see [`Limiter::id`].
    #[must_use]
    pub fn id_of(&self, key: KeyRef<'_>) -> u64 {
        id_of_key(self.id, self.hashed(key).0)
    }

    /// Holds an estimate of `permits` for a key until its true cost is known, or for `ttl` at most.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::try_hold`].
    pub fn try_hold(
        &self,
        key: KeyRef<'_>,
        permits: u64,
        ttl: Duration,
    ) -> Result<Result<Hold, Denial>, KeyedError> {
        self.table.try_hold(&self.hashed(key), permits, ttl)
    }

    /// Counts what a key has used already, whether it fits or not.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::charge`].
    pub fn charge(&self, key: KeyRef<'_>, permits: u64) -> Result<Charged, KeyedError> {
        self.table.charge(&self.hashed(key), permits)
    }

    /// Ends operations in flight of a key. Returns `false` if the limit counts none.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::release`].
    pub fn release(&self, key: KeyRef<'_>, permits: u64) -> Result<bool, KeyedError> {
        self.table.release(&self.hashed(key), permits)
    }

    /// Forgets what a key was granted. Returns `true` if that changes anything.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::reset`].
    pub fn reset(&self, key: KeyRef<'_>) -> Result<bool, KeyedError> {
        self.table.reset(&self.hashed(key))
    }

    /// Puts another limit into force, for all keys.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::reconfigure`].
    pub fn reconfigure(&self, policy: AnyPolicy) -> Result<(), KeyedError> {
        self.table.reconfigure(policy)
    }

    /// Returns `true` if operations have to be ended: see [`rategate::Keyed::needs_ends`].
    #[must_use]
    pub fn needs_ends(&self) -> bool {
        self.table.needs_ends(0)
    }

    /// Returns the number of keys in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns `true` if the table has no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of calls with a new key that found the table full.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.table.overflows()
    }
}

impl InUse {
    /// The number of limiters up to which none is removed.
    const FEW: usize = 64;

    /// Returns the count of a limiter that exists, for a handle of it to keep.
    fn untaken(&mut self, address: usize) -> Arc<AtomicUsize> {
        if let Some(untaken) = self.untaken.get(&address).and_then(Weak::upgrade) {
            return untaken;
        }
        if self.untaken.len() >= self.sweep_at {
            self.untaken.retain(|_, untaken| untaken.strong_count() > 0);
            // So rarely that each limiter pays for a look at two others.
            self.sweep_at = self.untaken.len().saturating_mul(2).max(Self::FEW);
        }
        let untaken = Arc::default();
        self.untaken.insert(address, Arc::downgrade(&untaken));
        untaken
    }
}

#[cfg(test)]
mod tests {
    use super::InUse;

    /// A hundred stay in use at first, and thousands come and go.
    #[test]
    fn as_many_counts_are_kept_as_a_few_and_twice_those_in_use() {
        let mut counts = InUse::default();
        let kept: Vec<_> = (0..100).map(|address| counts.untaken(address)).collect();
        for address in 100..10_000 {
            drop(counts.untaken(address));
            assert!(counts.untaken.len() <= 200);
        }
        drop(kept);
        for address in 10_000..10_300 {
            drop(counts.untaken(address));
        }
        assert!(counts.untaken.len() <= InUse::FEW);
    }
}
