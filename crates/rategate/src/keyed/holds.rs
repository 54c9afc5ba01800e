//! Estimates of keys that are held until the true cost is known.

use std::time::Duration;

use rategate_core::span::whole_ns;

use super::Keyed;
use super::joint_hold::Estimate;
use super::key::Key;
use crate::clock::Clock;
use crate::decision::Denial;
use crate::error::KeyedError;
use crate::hold::Hold;
use crate::status::Status;

impl<K: Key + ?Sized, C> Keyed<K, C>
where
    C: Clock + Clone + 'static,
{
    /// Holds an estimate of `permits` for a key until the true cost is known, or reports a denial.
    ///
    /// See [`Limiter::try_hold`](crate::Limiter::try_hold). While anything is held, the key is
    /// decided under the lock of its shard. [Statistics](Self::with_stats) do not count holds.
    ///
    /// To wait for a hold, use [`Limiter::hold`](crate::Limiter::hold) of the key's
    /// [limiter](Self::limiter), in tasks through [`AsyncLimiter::from`](crate::AsyncLimiter).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::{Gcra, Keyed};
    ///
    /// let tokens: Keyed<str> = Keyed::new(Gcra::per_hour(1000).burst(1000));
    /// let hold = tokens.try_hold("ann", 800, Duration::from_secs(60))?.unwrap();
    /// assert!(tokens.try_hold("ann", 800, Duration::from_secs(60))?.is_err());
    /// hold.commit(150)?;
    /// assert_eq!(tokens.remaining("ann")?, 850);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire) and of [`limiter`](Self::limiter).
    pub fn try_hold(
        &self,
        key: &K,
        permits: u64,
        ttl: Duration,
    ) -> Result<Result<Hold<C>, Denial>, KeyedError> {
        self.table.try_hold(&self.location(key), permits, whole_ns(ttl))
    }

    /// Holds an estimate as [`try_hold`](Self::try_hold) does, and returns the limit's status with
    /// the decision.
    ///
    /// # Errors
    ///
    /// Those of [`try_hold`](Self::try_hold).
    pub fn try_hold_with_status(
        &self,
        key: &K,
        permits: u64,
        ttl: Duration,
    ) -> Result<(Result<Hold<C>, Denial>, Status), KeyedError> {
        self.table.try_hold_with_status(&self.location(key), permits, whole_ns(ttl))
    }

    /// Returns an estimate of a key, as one part of a call to
    /// [`try_hold_all`](super::try_hold_all).
    pub fn estimate(&self, key: &K, permits: u64) -> Estimate<'_, C> {
        Estimate::of_key(&self.table, self.location(key), permits)
    }
}
