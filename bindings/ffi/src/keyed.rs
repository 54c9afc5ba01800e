//! A table with a limit for each key.

use std::time::Duration;

use rategate::error::KeyedError;
use rategate::keyed::{Capacity, HashedId, Hashing, Key, Seeds};
use rategate::{AnyPolicy, Decision, Gcra, SlidingLog, Status};

pub use rategate::keyed::Overflow;

use crate::clock::Clock;

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
    kind: Kind,
}

/// The policies that a table packs into a slot, each with that form; and all others.
#[derive(Clone, Debug)]
enum Kind {
    Bucket(rategate::Keyed<Hashed, Gcra, Clock>),
    Log(rategate::Keyed<Hashed, SlidingLog, Clock>),
    Any(rategate::Keyed<Hashed, AnyPolicy, Clock>),
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

macro_rules! each {
    ($self:ident, $table:ident => $body:expr) => {
        match &$self.kind {
            Kind::Bucket($table) => $body,
            Kind::Log($table) => $body,
            Kind::Any($table) => $body,
        }
    };
}

impl Keyed {
    /// Creates a table of at most `max_keys` keys whose limit has not recovered; `overflow` decides
    /// on a new key beyond them.
    #[must_use]
    pub fn new(policy: AnyPolicy, max_keys: usize, overflow: Overflow, clock: Clock) -> Self {
        let capacity = Capacity::for_keys(max_keys).or_else(overflow);
        let hashing = Hashing::FloodSafe;
        let kind = match policy {
            AnyPolicy::Gcra(policy) => {
                Kind::Bucket(rategate::Keyed::with_hashing(policy, capacity, hashing, clock))
            }
            AnyPolicy::SlidingLog(policy) => {
                Kind::Log(rategate::Keyed::with_hashing(policy, capacity, hashing, clock))
            }
            policy => Kind::Any(rategate::Keyed::with_hashing(policy, capacity, hashing, clock)),
        };
        Self { kind }
    }

    /// Takes `permits` for a key at once, or not at all.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::try_acquire`].
    #[inline]
    pub fn try_acquire(&self, key: KeyRef<'_>, permits: u64) -> Result<Decision, KeyedError> {
        each!(self, table => table.try_acquire(&Hashed(table.seeds().hashed(&key)), permits))
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
        each!(self, table => {
            table.try_acquire_with_status(&Hashed(table.seeds().hashed(&key)), permits)
        })
    }

    /// Returns how long `permits` would have to wait for a key now: `None` if no time helps.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::peek`].
    pub fn peek(&self, key: KeyRef<'_>, permits: u64) -> Result<Option<Duration>, KeyedError> {
        each!(self, table => table.peek(&Hashed(table.seeds().hashed(&key)), permits))
    }

    /// Forgets what a key was granted. Returns `true` if that changes anything.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::reset`].
    pub fn reset(&self, key: KeyRef<'_>) -> Result<bool, KeyedError> {
        each!(self, table => table.reset(&Hashed(table.seeds().hashed(&key))))
    }

    /// Puts other numbers of the same policy into force, for all keys.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::reconfigure`]; `None` if it is another policy.
    #[must_use]
    pub fn reconfigure(&self, policy: AnyPolicy) -> Option<Result<(), KeyedError>> {
        match (&self.kind, policy) {
            (Kind::Bucket(table), AnyPolicy::Gcra(policy)) => Some(table.reconfigure(policy)),
            (Kind::Log(table), AnyPolicy::SlidingLog(policy)) => Some(table.reconfigure(policy)),
            (Kind::Any(table), policy) => {
                let old = table.policy(0).ok()?;
                policy.can_follow(&old).ok()?;
                Some(table.reconfigure(policy))
            }
            _ => None,
        }
    }

    /// Returns the number of keys in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        each!(self, table => table.len())
    }

    /// Returns `true` if the table has no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of calls with a new key that found the table full.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        each!(self, table => table.overflows())
    }
}
