//! The policies of a table: read, and changed for all keys of a tier.

use rategate_core::concurrent::HasLockFree;

use super::Keyed;
use super::key::Key;
use crate::clock::Clock;
use crate::error::KeyedError;
#[cfg(doc)]
use crate::limiter::Limiter;

impl<K: Key + ?Sized, P: HasLockFree, C: Clock + Clone> Keyed<K, P, C> {
    /// Replaces the policy of a table without tiers, or that of the first tier.
    ///
    /// # Errors
    ///
    /// None, as there is always a first tier.
    pub fn reconfigure(&self, policy: P) -> Result<(), KeyedError> {
        self.reconfigure_tier(0, policy)
    }

    /// Replaces the policy of a tier for all its keys.
    ///
    /// A key's use is carried over as by [`Limiter::reconfigure`]. Each call sees the old limit or
    /// the new one, and once this returns, all see the new.
    ///
    /// The change goes from shard to shard, some tens of microseconds for each. Only its caller
    /// waits for the whole.
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

    /// Returns a number that differs after each change of a policy. Takes no lock.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.table.changes()
    }
}
