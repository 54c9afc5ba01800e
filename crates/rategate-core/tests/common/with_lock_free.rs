//! A limit with its lock-free form before it, used by one thread.
//!
//! All laws of the limit alone have to hold for the two together.

use std::cell::RefCell;

use rategate_core::all_of::AllOf;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::concurrent::{Fast, LockFreeVerdict};
use rategate_core::debt::{Charged, Debt};
use rategate_core::error::{CountsInFlight, ExceedsCapacity};
use rategate_core::ledger::Ledger;
use rategate_core::refund::RefundEpoch;
use rategate_core::verdict::{Denial, Grant, Ticket, Verdict};

#[derive(Debug)]
pub(crate) struct WithLockFree {
    /// The limit. In a cell, because a read-only call may also have to take the state out of the
    /// lock-free form.
    limit: RefCell<Ledger>,
    lock_free: Fast,
    latest_ns: u64,
    /// The number of tries that the lock-free form has decided.
    pub(crate) lock_free_count: u64,
}

/// What a law may do to a limit alone, and to one with its lock-free form.
pub(crate) trait Open {
    fn new(limits: AllOf, now_ns: u64) -> Self;
    fn try_acquire(&mut self, now_ns: u64, permits: u64) -> Result<Verdict, ExceedsCapacity>;
    fn reserve(
        &mut self,
        now_ns: u64,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Result<Verdict, ExceedsCapacity>;
    /// Acts on the limit itself, at an instant that is not before the last one.
    fn owned<T>(&mut self, now_ns: u64, act: impl FnOnce(&mut Ledger, u64) -> T) -> T;
    fn set(&mut self, now_ns: u64, policy: AnyPolicy);

    fn cancel(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.owned(now_ns, |limit, now_ns| limit.cancel(now_ns, ticket))
    }
}

impl Open for Ledger {
    fn new(limits: AllOf, now_ns: u64) -> Self {
        Self::new(limits, now_ns)
    }

    fn try_acquire(&mut self, now_ns: u64, permits: u64) -> Result<Verdict, ExceedsCapacity> {
        Self::try_acquire(self, now_ns, permits)
    }

    fn reserve(
        &mut self,
        now_ns: u64,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Result<Verdict, ExceedsCapacity> {
        Self::reserve(self, now_ns, permits, max_wait_ns)
    }

    fn owned<T>(&mut self, now_ns: u64, act: impl FnOnce(&mut Ledger, u64) -> T) -> T {
        act(self, now_ns)
    }

    fn set(&mut self, now_ns: u64, policy: AnyPolicy) {
        self.reconfigure(now_ns, policy).unwrap();
    }
}

impl Open for WithLockFree {
    fn new(limits: AllOf, now_ns: u64) -> Self {
        let mut limit = Ledger::new(limits, now_ns);
        let lock_free = limit.lock_free(now_ns);
        Self { limit: RefCell::new(limit), lock_free, latest_ns: now_ns, lock_free_count: 0 }
    }

    fn try_acquire(&mut self, now_ns: u64, permits: u64) -> Result<Verdict, ExceedsCapacity> {
        match self.by_lock_free(now_ns, permits) {
            Some(verdict) => Ok(verdict),
            None => self.owned(now_ns, |limit, now_ns| limit.try_acquire(now_ns, permits)),
        }
    }

    fn reserve(
        &mut self,
        now_ns: u64,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Result<Verdict, ExceedsCapacity> {
        match self.by_lock_free(now_ns, permits) {
            Some(granted @ Verdict::Granted(_)) => Ok(granted),
            _ => self.owned(now_ns, |limit, now_ns| limit.reserve(now_ns, permits, max_wait_ns)),
        }
    }

    fn owned<T>(&mut self, now_ns: u64, act: impl FnOnce(&mut Ledger, u64) -> T) -> T {
        self.latest_ns = self.latest_ns.max(now_ns);
        self.with_sealed(self.latest_ns, |limit| act(limit, self.latest_ns))
    }

    fn set(&mut self, now_ns: u64, policy: AnyPolicy) {
        self.latest_ns = self.latest_ns.max(now_ns);
        let latest_ns = self.latest_ns;
        self.limit.get_mut().change(&self.lock_free, || latest_ns, policy).unwrap();
    }
}

impl WithLockFree {
    fn clamp(&self, now_ns: u64) -> u64 {
        self.limit.borrow().clamp(self.latest_ns.max(now_ns))
    }

    fn with_sealed<T>(&self, now_ns: u64, act: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut limit = self.limit.borrow_mut();
        limit.seal(&self.lock_free);
        let done = act(&mut limit);
        limit.open(&self.lock_free, now_ns);
        done
    }

    fn by_lock_free(&mut self, now_ns: u64, permits: u64) -> Option<Verdict> {
        self.latest_ns = self.latest_ns.max(now_ns);
        let verdict = match self.lock_free.try_acquire(|| self.latest_ns, permits) {
            LockFreeVerdict::Granted { start_ns, scheduled_ns } => Verdict::Granted(Grant {
                start_ns,
                promised_ns: start_ns,
                scheduled_ns,
                permits,
                ticket: Ticket::booked(start_ns, 0, RefundEpoch::UNKNOWN),
            }),
            LockFreeVerdict::Denied { retry_after_ns } => {
                Verdict::Denied(Denial { retry_after_ns })
            }
            LockFreeVerdict::Sealed => return None,
        };
        self.lock_free_count += 1;
        Some(verdict)
    }

    pub(crate) fn peek(&self, now_ns: u64, permits: u64) -> Result<Option<u64>, ExceedsCapacity> {
        let now_ns = self.clamp(now_ns);
        match self.lock_free.peek(now_ns, permits) {
            Some(wait_ns) => Ok(Some(wait_ns)),
            None => self.with_sealed(now_ns, |limit| limit.peek(now_ns, permits)),
        }
    }

    pub(crate) fn charge(
        &mut self,
        now_ns: u64,
        permits: u64,
        debt: Debt,
    ) -> Result<Charged, CountsInFlight> {
        let now_ns = self.clamp(now_ns);
        if let Some(charged) = self.lock_free.charge(|| now_ns, permits, debt) {
            self.latest_ns = now_ns;
            return Ok(charged);
        }
        self.owned(now_ns, |limit, now_ns| limit.charge(now_ns, permits, debt))
    }

    pub(crate) fn debt(&self, now_ns: u64) -> u64 {
        self.with_sealed(now_ns, |limit| limit.debt(now_ns))
    }

    pub(crate) fn remaining(&self, now_ns: u64) -> u64 {
        let now_ns = self.clamp(now_ns);
        let remaining = self.lock_free.remaining(now_ns);
        remaining.unwrap_or_else(|| self.with_sealed(now_ns, |limit| limit.remaining(now_ns)))
    }
}
