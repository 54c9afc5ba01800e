//! Limits for each of many keys, of any policy, behind one type.

use std::time::Duration;

use rategate::charge::{Charged, Debt, Settled};
use rategate::error::{KeyedError, LimitError, ReconfigureError};
use rategate::keyed::Capacity;
use rategate::{AnyPolicy, Decision, Error, FixedWindow, Gcra, Grant, Status};

use crate::clock::Clock;
use crate::limiter::{Limiter, Policies};

/// A table with a limit for each key, all of one policy. Keys are bytes.
///
/// Clones are handles of the same table.
#[derive(Clone, Debug)]
pub struct Keyed(Kind);

type Table<P> = rategate::Keyed<[u8], P, Clock>;

/// The tables whose keys are decided without a lock, and one of any policy.
#[derive(Clone, Debug)]
enum Kind {
    Bucket(Table<Gcra>),
    Window(Table<FixedWindow>),
    Any(Table<AnyPolicy>),
}

macro_rules! each {
    ($self:ident, $table:ident => $body:expr) => {
        match &$self.0 {
            Kind::Bucket($table) => $body,
            Kind::Window($table) => $body,
            Kind::Any($table) => $body,
        }
    };
}

impl Keyed {
    /// Creates a table. `None` for several policies: a key has one.
    #[must_use]
    pub fn new(policies: &Policies, capacity: Capacity, clock: Clock) -> Option<Self> {
        let [policy] = *policies.policies() else { return None };
        Some(Self(match policy {
            AnyPolicy::Gcra(policy) => Kind::Bucket(Table::with_clock(policy, capacity, clock)),
            AnyPolicy::FixedWindow(policy) => {
                Kind::Window(Table::with_clock(policy, capacity, clock))
            }
            policy => Kind::Any(Table::with_clock(policy, capacity, clock)),
        }))
    }

    /// Sets how debts of charges end, and how large they may become.
    pub fn set_debt(&self, debt: Debt) {
        each!(self, table => table.set_debt(debt));
    }

    /// Takes `permits` for a key at once, or not at all.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::try_acquire`].
    #[inline]
    pub fn try_acquire(&self, key: &[u8], permits: u64) -> Result<Decision, KeyedError> {
        each!(self, table => table.try_acquire(key, permits))
    }

    /// Takes `permits` for a key and blocks the thread until they may start, or refuses at once if
    /// that is after `timeout`.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::acquire_within`].
    pub fn acquire(
        &self,
        key: &[u8],
        permits: u64,
        timeout: Option<Duration>,
    ) -> Result<Grant, Error> {
        each!(self, table => match timeout {
            Some(timeout) => table.acquire_within(key, permits, timeout),
            None => table.acquire(key, permits),
        })
    }

    /// Returns how long `permits` would have to wait now: `None` if no time helps.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::peek`].
    pub fn peek(&self, key: &[u8], permits: u64) -> Result<Option<Duration>, KeyedError> {
        each!(self, table => table.peek(key, permits))
    }

    /// Returns the numbers of a key's limit now.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::status`].
    pub fn status(&self, key: &[u8]) -> Result<Status, KeyedError> {
        each!(self, table => table.status(key))
    }

    /// Returns the limiter of a key, which has all other verbs. The table keeps it while there is
    /// a handle.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::limiter`].
    pub fn limiter(&self, key: &[u8]) -> Result<Limiter, KeyedError> {
        Ok(match &self.0 {
            Kind::Bucket(table) => table.limiter(key)?.into(),
            Kind::Window(table) => table.limiter(key)?.into(),
            Kind::Any(table) => table.limiter(key)?.into(),
        })
    }

    /// Brings permits of a grant to a key back. Returns as many as the limit could prove unused.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::refund`].
    pub fn refund(&self, key: &[u8], grant: &Grant, permits: u64) -> Result<u64, KeyedError> {
        each!(self, table => table.refund(key, grant, permits))
    }

    /// Corrects a grant to a key to what was really used.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::settle`].
    pub fn settle(&self, key: &[u8], grant: &Grant, actual: u64) -> Result<Settled, KeyedError> {
        each!(self, table => table.settle(key, grant, actual))
    }

    /// Counts what a key has used already, whether it fits or not.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::charge`].
    pub fn charge(&self, key: &[u8], permits: u64) -> Result<Charged, KeyedError> {
        each!(self, table => table.charge(key, permits))
    }

    /// Ends operations in flight of a key. Returns `false` if the limit counts none.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::release`].
    pub fn release(&self, key: &[u8], permits: u64) -> Result<bool, KeyedError> {
        each!(self, table => table.release(key, permits))
    }

    /// Forgets all grants to a key. Returns `true` if that changes anything.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::reset`].
    pub fn reset(&self, key: &[u8]) -> Result<bool, KeyedError> {
        each!(self, table => table.reset(key))
    }

    /// Puts other numbers into force for all keys, of the same policy.
    ///
    /// # Errors
    ///
    /// [`ReconfigureError`]; nothing changes then.
    pub fn reconfigure(&self, policies: &Policies) -> Result<(), ReconfigureError> {
        let other = ReconfigureError::Limit(LimitError::OtherPolicy);
        let done = match (&self.0, policies.policies()) {
            (Kind::Bucket(table), [AnyPolicy::Gcra(policy)]) => table.reconfigure(*policy),
            (Kind::Window(table), [AnyPolicy::FixedWindow(policy)]) => table.reconfigure(*policy),
            (Kind::Any(table), [policy]) => table.reconfigure(*policy),
            _ => return Err(other),
        };
        done.map_err(|_| other)
    }

    /// Returns the number of keys, those included that are as if they were new.
    #[must_use]
    pub fn len(&self) -> usize {
        each!(self, table => table.len())
    }

    /// Returns `true` without any key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of calls that found the table full.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        each!(self, table => table.overflows())
    }
}
