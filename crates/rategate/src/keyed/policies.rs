//! The policies of a table: read, and changed for all keys of a tier.

use rategate_core::any_policy::AnyPolicy;

use super::Keyed;
use super::key::Key;
use crate::clock::Clock;
use crate::error::KeyedError;
#[cfg(doc)]
use crate::limiter::Limiter;

impl<K: Key + ?Sized, C: Clock + Clone> Keyed<K, C> {
    /// Replaces the policy of a table without tiers, or that of the first tier.
    ///
    /// # Errors
    ///
    /// None, as there is always a first tier.
    pub fn reconfigure(&self, policy: impl Into<AnyPolicy>) -> Result<(), KeyedError> {
        self.reconfigure_tier(0, policy)
    }

    /// Replaces the policy of a tier for all its keys.
    ///
    /// A key's use is carried over as by [`Limiter::reconfigure`]; only a change to or from a limit
    /// on operations in flight begins anew. Each call sees the old limit or
    /// the new one, and once this returns, all see the new.
    ///
    /// The change goes from shard to shard, some tens of microseconds for each. Only its caller
    /// waits for the whole.
    ///
    /// # Errors
    ///
    /// [`KeyedError::NoSuchTier`].
    pub fn reconfigure_tier(
        &self,
        tier: usize,
        policy: impl Into<AnyPolicy>,
    ) -> Result<(), KeyedError> {
        self.table.reconfigure(tier, policy.into())
    }

    /// Returns the policy in force for a tier. It waits for a change that is under way.
    ///
    /// # Errors
    ///
    /// [`KeyedError::NoSuchTier`].
    pub fn policy(&self, tier: usize) -> Result<AnyPolicy, KeyedError> {
        self.table.policy(tier)
    }

    /// Returns `true` if operations of a tier have to be ended: its policy counts them while they
    /// are in flight, or follows their outcomes. Takes no lock.
    ///
    /// ```
    /// use rategate::{Concurrency, Gcra, Keyed};
    ///
    /// let per_caller: Keyed<str> = Keyed::new(Concurrency::new(3));
    /// assert!(per_caller.needs_ends(0));
    /// per_caller.reconfigure(Gcra::per_second(3))?;
    /// assert!(!per_caller.needs_ends(0));
    /// # Ok::<(), rategate::error::KeyedError>(())
    /// ```
    #[must_use]
    pub fn needs_ends(&self, tier: usize) -> bool {
        self.table.needs_ends(tier)
    }

    /// Returns a number that differs after each change of a policy. Takes no lock.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.table.changes()
    }
}
