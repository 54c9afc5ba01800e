//! The policies that a limiter can have: any single one, or several together.

use core::fmt::Debug;

use super::{Concurrent, HasLockFree};
use crate::all_of::{AllOf, AllOfLedger};
use crate::error::LimitError;
use crate::ledger::Ledger;

/// The policy of a limiter: any single policy, or [`AllOf`] for several together.
///
/// It names the live limit that a limiter keeps, so that users name policies only.
pub trait LimiterPolicy: Clone + Debug {
    /// The live limit.
    type Limit: Concurrent;

    /// Creates the live limit with fresh state, on a clock that shows `now_ns`.
    fn start(self, now_ns: u64) -> Self::Limit;

    /// Puts this policy into force at a reading of `read_ns`, in the lock-free form too if that
    /// is given.
    ///
    /// # Errors
    ///
    /// [`LimitError::OtherPolicy`] if the limit cannot follow. Nothing changes in that case.
    fn put_into(
        self,
        limit: &mut Self::Limit,
        lock_free: Option<&<Self::Limit as Concurrent>::LockFree>,
        read_ns: impl Fn() -> u64 + Copy,
    ) -> Result<(), LimitError>;

    /// Drops all state and all promises from `now_ns` on. Returns `true` if that changes anything
    /// observable.
    fn reset(limit: &mut Self::Limit, now_ns: u64) -> bool;

    /// Returns the maximum number of permits that an unused limit grants at one instant.
    fn max_at_once(&self) -> u64;
}

impl<P: HasLockFree> LimiterPolicy for P {
    type Limit = Ledger<P>;

    fn start(self, now_ns: u64) -> Ledger<P> {
        Ledger::new(self, now_ns)
    }

    fn put_into(
        self,
        limit: &mut Ledger<P>,
        lock_free: Option<&P::LockFree>,
        read_ns: impl Fn() -> u64 + Copy,
    ) -> Result<(), LimitError> {
        match lock_free {
            Some(lock_free) => limit.change(lock_free, read_ns, self),
            None => limit.reconfigure(read_ns(), self),
        }
        Ok(())
    }

    fn reset(limit: &mut Ledger<P>, now_ns: u64) -> bool {
        let was_used = !limit.is_as_fresh(now_ns);
        limit.restart(now_ns);
        was_used
    }

    fn max_at_once(&self) -> u64 {
        self.remaining(&self.fresh(0), 0)
    }
}

impl LimiterPolicy for AllOf {
    type Limit = AllOfLedger;

    fn start(self, now_ns: u64) -> AllOfLedger {
        AllOfLedger::new(self, now_ns)
    }

    fn put_into(
        self,
        limit: &mut AllOfLedger,
        lock_free: Option<&<AllOfLedger as Concurrent>::LockFree>,
        read_ns: impl Fn() -> u64 + Copy,
    ) -> Result<(), LimitError> {
        match lock_free {
            Some(lock_free) => limit.change(lock_free, read_ns, self.policies()),
            None => limit.reconfigure(read_ns(), self.policies()),
        }
    }

    fn reset(limit: &mut AllOfLedger, now_ns: u64) -> bool {
        limit.reset(now_ns)
    }

    fn max_at_once(&self) -> u64 {
        self.policies().iter().map(LimiterPolicy::max_at_once).min().unwrap_or(u64::MAX)
    }
}
