//! Permits of a key that come back, and corrections by the owner.

use rategate_core::adaptive::Outcome;
use rategate_core::debt::{Charged, Debt};
use rategate_core::policy::Ending;

use super::Keyed;
use super::key::Key;
use crate::clock::Clock;
use crate::decision::Grant;
use crate::error::KeyedError;
#[cfg(doc)]
use crate::limiter::Limiter;
use crate::status::Status;
use crate::sync::Ordering;

impl<K: Key + ?Sized, C: Clock + Clone> Keyed<K, C> {
    /// Credits permits to a key without a grant, and returns the number that came back.
    ///
    /// The caller vouches that these permits had no effect: see [`Limiter::credit`]. A key that
    /// has fully recovered or is unknown takes nothing back, and no trace is left of it. Nothing
    /// is credited to the limit that new keys share in a full table.
    ///
    /// In any window, the key's permits that start are then at most what its limit allows plus
    /// what was credited in that window.
    ///
    /// ```
    /// use rategate::{Gcra, Keyed};
    ///
    /// let per_caller: Keyed<str> = Keyed::new(Gcra::per_hour(10).burst(10));
    /// assert!(per_caller.try_acquire("10.0.0.7", 4)?.is_granted());
    /// assert_eq!(per_caller.credit("10.0.0.7", 6)?, 4, "up to full");
    /// assert_eq!(per_caller.credit("10.0.0.8", 6)?, 0, "nothing was taken");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyedError::NoSuchTier`] and [`KeyedError::Closed`].
    pub fn credit(&self, key: &K, permits: u64) -> Result<u64, KeyedError> {
        self.table.credit(&self.location(key), permits)
    }

    /// Clears a key's use and promises, as if it were new. Returns whether that made a difference.
    ///
    /// Later ends of earlier holds have no effect; waiters of its limiter stay in the wait queue. Under a policy that time never recovers fully, a known key always counts as used.
    /// Permits that a key took of the limit shared in a full table stay taken.
    ///
    /// ```
    /// use rategate::{Gcra, Keyed};
    ///
    /// let per_caller: Keyed<str> = Keyed::new(Gcra::per_hour(10).burst(10));
    /// assert!(per_caller.try_acquire("10.0.0.7", 4)?.is_granted());
    /// assert!(per_caller.reset("10.0.0.7")?);
    /// assert_eq!(per_caller.remaining("10.0.0.7")?, 10);
    /// assert!(!per_caller.reset("10.0.0.7")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyedError::NoSuchTier`] and [`KeyedError::Closed`].
    pub fn reset(&self, key: &K) -> Result<bool, KeyedError> {
        self.table.reset(&self.location(key))
    }

    /// Charges `permits` that a key has used already, whether they fit or not.
    ///
    /// See [`Limiter::charge`]. It takes no lock where a try takes none. In a full table, permits
    /// of a new key are charged to the limit that new keys share; with
    /// [`Overflow::Admit`](super::Overflow::Admit) they are not counted.
    ///
    /// ```
    /// use rategate::{Gcra, Keyed};
    ///
    /// let tokens: Keyed<str> = Keyed::new(Gcra::per_hour(1000).burst(1000));
    /// assert_eq!(tokens.charge("ann", 1700)?.debt, 700);
    /// assert!(!tokens.try_acquire("ann", 1)?.is_granted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyedError::CountsInFlight`], for a limit that counts operations in flight;
    /// [`KeyedError::TableFull`], with [`Overflow::Refuse`](super::Overflow::Refuse);
    /// [`KeyedError::NoSuchTier`] and [`KeyedError::Closed`].
    #[inline]
    pub fn charge(&self, key: &K, permits: u64) -> Result<Charged, KeyedError> {
        self.table.charge::<()>(&self.location(key), permits)
    }

    /// Charges a key as [`charge`](Self::charge) does, and returns the limit's status after that.
    ///
    /// # Errors
    ///
    /// Those of [`charge`](Self::charge).
    pub fn charge_with_status(
        &self,
        key: &K,
        permits: u64,
    ) -> Result<(Charged, Status), KeyedError> {
        self.table.charge::<Status>(&self.location(key), permits)
    }

    /// Sets how debts of this table's keys end, and how large they may become.
    ///
    /// See [`Limiter::with_debt`].
    #[must_use]
    pub fn with_debt(self, debt: Debt) -> Self {
        self.set_debt(debt);
        self
    }

    /// Sets how debts end from now on. A debt of a window that is carried already stays so.
    pub fn set_debt(&self, debt: Debt) {
        self.table.debt.store(debt.bits(), Ordering::Relaxed);
    }

    /// Records that operations of a key have ended: see [`Limiter::release`].
    ///
    /// # Errors
    ///
    /// [`KeyedError::NoSuchTier`] and [`KeyedError::Closed`].
    pub fn release(&self, key: &K, permits: u64) -> Result<bool, KeyedError> {
        self.table.end(&self.location(key), permits, Ending::Released)
    }

    /// Ends the operations of a key's grant in some way: see [`Limiter::release_with_outcome`].
    ///
    /// # Errors
    ///
    /// [`KeyedError::NoSuchTier`] and [`KeyedError::Closed`].
    pub fn release_with_outcome(
        &self,
        key: &K,
        grant: &Grant,
        outcome: Outcome,
    ) -> Result<bool, KeyedError> {
        self.table.end(&self.location(key), grant.permits(), grant.ending(outcome))
    }

    /// Aborts operations of a key that had no effect: see [`Limiter::abort`].
    ///
    /// # Errors
    ///
    /// [`KeyedError::NoSuchTier`] and [`KeyedError::Closed`].
    pub fn abort(&self, key: &K, permits: u64) -> Result<bool, KeyedError> {
        self.table.end(&self.location(key), permits, Ending::Aborted)
    }
}
