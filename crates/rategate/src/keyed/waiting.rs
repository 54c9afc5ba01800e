//! Waits for permits of a key.

use std::time::Duration;

use super::Keyed;
use super::key::Key;
use super::table::section::KeyLocation;
use crate::clock::Clock;
use crate::decision::{Decision, Grant};
use crate::error::{AcquireError, Error};
use crate::future::AsyncLimiter;
use crate::limiter::Limiter;

impl<K: Key + ?Sized, C: Clock + Clone> Keyed<K, C> {
    /// Takes `permits` for a key, and waits until they may start.
    ///
    /// The key's waiters, threads and tasks, are served in arrival order. A permit that is
    /// available costs what a [try](Self::try_acquire) costs; a wait makes the key's own
    /// [`limiter`](Self::limiter), which takes some two kilobytes while callers wait.
    ///
    /// Blocks the thread: in a task, use [`acquire_async`](Self::acquire_async). In a debug build
    /// with the feature `tokio` it panics on a thread that drives tasks.
    ///
    /// # Errors
    ///
    /// [`Error::Keyed`], as for [`try_acquire`](Self::try_acquire), and [`Error::Acquire`], as for
    /// [`Limiter::acquire`].
    pub fn acquire(&self, key: &K, permits: u64) -> Result<Grant, Error> {
        self.waited(key, permits, |limiter| limiter.acquire(permits))
    }

    /// Takes `permits` for a key if they may start within `max_wait`, and waits until then.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::error::ErrorKind;
    /// use rategate::{Gcra, Keyed};
    ///
    /// let per_caller: Keyed<str> = Keyed::new(Gcra::per_hour(1));
    /// per_caller.acquire_within("10.0.0.7", 1, Duration::from_millis(50))?;
    /// let again = per_caller.acquire_within("10.0.0.7", 1, Duration::from_millis(50));
    /// assert_eq!(again.unwrap_err().kind(), ErrorKind::NotYet, "at once, without a wait");
    /// # Ok::<(), rategate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`AcquireError::TooLong`] at once, with nothing taken, if the start would come later than
    /// that; otherwise as [`acquire`](Self::acquire).
    pub fn acquire_within(
        &self,
        key: &K,
        permits: u64,
        max_wait: Duration,
    ) -> Result<Grant, Error> {
        self.waited(key, permits, |limiter| limiter.acquire_within(permits, max_wait))
    }

    fn waited(
        &self,
        key: &K,
        permits: u64,
        wait: impl FnOnce(Limiter<C>) -> Result<Grant, AcquireError>,
    ) -> Result<Grant, Error> {
        let location = self.location(key);
        match self.try_or_limiter(key, &location, permits)? {
            Ok(grant) => Ok(grant),
            Err(limiter) => self.observe_wait(key, &location, permits, wait(limiter)),
        }
    }

    /// Takes permits that are available, or returns the limiter to wait for.
    fn try_or_limiter(
        &self,
        key: &K,
        location: &KeyLocation<K::Id>,
        permits: u64,
    ) -> Result<Result<Grant, Limiter<C>>, Error> {
        let read_ns = || self.table.clock.now_ns();
        let decided = self.table.try_acquire::<()>(location, permits, read_ns);
        match decided? {
            Decision::Granted(grant) => {
                self.observe_end(key, location, permits, &Decision::Granted(grant));
                Ok(Ok(grant))
            }
            Decision::Denied(_) => Ok(Err(self.table.limiter(location)?)),
        }
    }

    fn observe_end(
        &self,
        key: &K,
        location: &KeyLocation<K::Id>,
        permits: u64,
        decision: &Decision,
    ) {
        let remaining = || self.table.remaining(location).unwrap_or(0);
        self.observe(key, location, permits, decision, remaining);
    }

    fn observe_wait(
        &self,
        key: &K,
        location: &KeyLocation<K::Id>,
        permits: u64,
        ended: Result<Grant, AcquireError>,
    ) -> Result<Grant, Error> {
        match &ended {
            Ok(grant) => self.observe_end(key, location, permits, &Decision::Granted(*grant)),
            Err(AcquireError::TooLong(error)) => {
                let denied = Decision::denied_for(error.retry_after());
                self.observe_end(key, location, permits, &denied);
            }
            Err(AcquireError::DeadlinePassed | AcquireError::QueueFull) => {
                let denied = Decision::denied_for(Duration::ZERO);
                self.observe_end(key, location, permits, &denied);
            }
            Err(_) => {}
        }
        Ok(ended?)
    }
}

impl<K, C> Keyed<K, C>
where
    K: Key + ?Sized,
    C: Clock + Clone + 'static,
{
    /// Takes `permits` for a key, and waits in the queue until they may start.
    ///
    /// The key is tried at the first poll, and a drop of the future leaves the queue: see
    /// [`Acquire`](crate::wait::Acquire).
    ///
    /// ```
    /// use rategate::{Error, Gcra, Keyed};
    ///
    /// async fn fetch(per_host: &Keyed<str>, host: &str) -> Result<(), Error> {
    ///     per_host.acquire_async(host, 1).await?;
    ///     // ... the call
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire).
    pub async fn acquire_async(&self, key: &K, permits: u64) -> Result<Grant, Error> {
        let location = self.location(key);
        let limiter = match self.try_or_limiter(key, &location, permits)? {
            Ok(grant) => return Ok(grant),
            Err(limiter) => AsyncLimiter::from(limiter),
        };
        let ended = limiter.acquire(permits).await;
        self.observe_wait(key, &location, permits, ended)
    }

    /// Takes `permits` for a key if they may start within `max_wait` of the first poll.
    ///
    /// # Errors
    ///
    /// Those of [`acquire_within`](Self::acquire_within).
    pub async fn acquire_async_within(
        &self,
        key: &K,
        permits: u64,
        max_wait: Duration,
    ) -> Result<Grant, Error> {
        let location = self.location(key);
        let limiter = match self.try_or_limiter(key, &location, permits)? {
            Ok(grant) => return Ok(grant),
            Err(limiter) => AsyncLimiter::from(limiter),
        };
        let ended = limiter.acquire_within(permits, max_wait).await;
        self.observe_wait(key, &location, permits, ended)
    }
}
