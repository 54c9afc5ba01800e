//! A limit with its lock-free form before it, used by one thread.
//!
//! All laws of the limit alone have to hold for the two together.

use std::cell::RefCell;
use std::num::NonZeroU64;

use rategate_core::adaptive::Outcome;
use rategate_core::all_of::AllOfLedger;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::concurrent::{Concurrent, HasLockFree, LockFree, LockFreeVerdict};
use rategate_core::debt::{Charged, Debt};
use rategate_core::error::{CountsInFlight, ExceedsCapacity, LimitError};
use rategate_core::holds::{Hold, HoldVerdict, Holding};
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;
use rategate_core::provisional::Provisional;
use rategate_core::verdict::{Denial, Grant, Opening, Refusal, Ticket, Verdict};
use rategate_testkit::world::Subject;

#[derive(Debug)]
pub(crate) struct WithLockFree<L: Concurrent> {
    /// The limit. In a cell, because a read-only call may also have to take the state out of the
    /// lock-free form.
    limit: RefCell<L>,
    lock_free: L::LockFree,
    latest_ns: u64,
    /// The number of tries that the lock-free form has decided.
    pub(crate) lock_free_count: u64,
}

impl<P: HasLockFree> WithLockFree<Ledger<P>> {
    pub(crate) fn new(policy: P, now_ns: u64) -> Self {
        Self::over(Ledger::new(policy, now_ns), now_ns)
    }

    pub(crate) fn set(&mut self, now_ns: u64, policy: P) {
        self.latest_ns = self.latest_ns.max(now_ns);
        let latest_ns = self.latest_ns;
        self.limit.get_mut().change(&self.lock_free, || latest_ns, policy);
    }

    pub(crate) fn state(&self, now_ns: u64) -> P::State {
        self.with_sealed(now_ns, |ledger| ledger.state().clone())
    }
}

impl WithLockFree<AllOfLedger> {
    pub(crate) fn all_of(policies: impl IntoIterator<Item = AnyPolicy>, now_ns: u64) -> Self {
        Self::over(AllOfLedger::new(policies, now_ns), now_ns)
    }
}

impl<L: Concurrent> WithLockFree<L> {
    pub(crate) fn over(mut limit: L, now_ns: u64) -> Self {
        let lock_free = limit.lock_free(now_ns);
        Self { limit: RefCell::new(limit), lock_free, latest_ns: now_ns, lock_free_count: 0 }
    }

    pub(crate) fn is_open(&self, now_ns: u64) -> bool {
        self.lock_free.remaining(now_ns).is_some()
    }

    fn owned<T>(&mut self, now_ns: u64, act: impl FnOnce(&mut L, u64) -> T) -> T {
        self.latest_ns = self.latest_ns.max(now_ns);
        self.with_sealed(self.latest_ns, |limit| act(limit, self.latest_ns))
    }

    fn with_sealed<T>(&self, now_ns: u64, act: impl FnOnce(&mut L) -> T) -> T {
        let mut limit = self.limit.borrow_mut();
        limit.seal(&self.lock_free);
        let done = act(&mut limit);
        limit.open(&self.lock_free, now_ns);
        done
    }

    fn by_lock_free(&mut self, now_ns: u64, permits: u64) -> Option<Verdict> {
        self.latest_ns = self.latest_ns.max(now_ns);
        let verdict = match self.lock_free.try_acquire(|| self.latest_ns, permits) {
            LockFreeVerdict::Granted { start_ns, scheduled_ns, leftover } => {
                Verdict::Granted(Grant {
                    start_ns,
                    promised_ns: start_ns,
                    scheduled_ns,
                    permits,
                    remaining: leftover.permits(),
                    ticket: leftover.ticket(start_ns),
                })
            }
            LockFreeVerdict::Denied { retry_after_ns } => {
                Verdict::Denied(Denial { retry_after_ns: Some(retry_after_ns) })
            }
            LockFreeVerdict::Sealed => return None,
        };
        self.lock_free_count += 1;
        Some(verdict)
    }
}

impl<L: Concurrent> Limit for WithLockFree<L> {
    fn clamp(&self, now_ns: u64) -> u64 {
        self.limit.borrow().clamp(self.latest_ns.max(now_ns))
    }

    fn opening(&self, now_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        let now_ns = self.clamp(now_ns);
        self.with_sealed(now_ns, |ledger| ledger.opening(now_ns, permits))
    }

    fn book(&mut self, now_ns: u64, start_ns: u64, permits: NonZeroU64) -> Ticket {
        self.owned(now_ns, |ledger, now_ns| ledger.book(now_ns, start_ns, permits))
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

    fn peek(&self, now_ns: u64, permits: u64) -> Result<Option<u64>, ExceedsCapacity> {
        let now_ns = self.clamp(now_ns);
        match self.lock_free.peek(now_ns, permits) {
            Some(wait_ns) => Ok(Some(wait_ns)),
            None => self.with_sealed(now_ns, |limit| limit.peek(now_ns, permits)),
        }
    }

    fn cancel(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.owned(now_ns, |limit, now_ns| limit.cancel(now_ns, ticket))
    }

    fn start_early(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.owned(now_ns, |limit, now_ns| limit.start_early(now_ns, ticket))
    }

    fn end_holds(&mut self, now_ns: u64) {
        self.owned(now_ns, Limit::end_holds);
    }

    fn pass_to(&mut self, now_ns: u64) {
        self.owned(now_ns, Limit::pass_to);
    }

    fn refund(&mut self, now_ns: u64, grant: &Grant, permits: u64) -> u64 {
        self.owned(now_ns, |limit, now_ns| limit.refund(now_ns, grant, permits))
    }

    fn charge(&mut self, now_ns: u64, permits: u64, debt: Debt) -> Result<Charged, CountsInFlight> {
        let now_ns = self.clamp(now_ns);
        if let Some(charged) = self.lock_free.charge(|| now_ns, permits, debt) {
            self.latest_ns = now_ns;
            return Ok(charged);
        }
        self.owned(now_ns, |limit, now_ns| limit.charge(now_ns, permits, debt))
    }

    fn debt_ends_in_ns(&self, now_ns: u64) -> Option<u64> {
        self.with_sealed(now_ns, |limit| limit.debt_ends_in_ns(now_ns))
    }

    fn debt(&self, now_ns: u64) -> u64 {
        self.with_sealed(now_ns, |limit| limit.debt(now_ns))
    }

    fn remaining(&self, now_ns: u64) -> u64 {
        let now_ns = self.clamp(now_ns);
        let remaining = self.lock_free.remaining(now_ns);
        remaining.unwrap_or_else(|| self.with_sealed(now_ns, |limit| limit.remaining(now_ns)))
    }

    fn slack_ns(&self) -> u64 {
        self.limit.borrow().slack_ns()
    }

    fn refill(&mut self, now_ns: u64, permits: u64) -> bool {
        self.owned(now_ns, |limit, now_ns| limit.refill(now_ns, permits))
    }

    fn release(&mut self, now_ns: u64, permits: u64) -> bool {
        self.owned(now_ns, |limit, now_ns| limit.release(now_ns, permits))
    }

    fn release_with_outcome(
        &mut self,
        now_ns: u64,
        grant: &Grant,
        permits: u64,
        outcome: Outcome,
    ) -> bool {
        self.owned(now_ns, |limit, now_ns| {
            limit.release_with_outcome(now_ns, grant, permits, outcome)
        })
    }

    fn abort(&mut self, now_ns: u64, permits: u64) -> bool {
        self.owned(now_ns, |limit, now_ns| limit.abort(now_ns, permits))
    }
}

impl<L: Concurrent> Clone for WithLockFree<L> {
    fn clone(&self) -> Self {
        Self::over(self.with_sealed(self.latest_ns, |limit| limit.clone()), self.latest_ns)
    }
}

impl<L: Concurrent> Provisional for WithLockFree<L> {
    fn keeps_schedule(&self) -> bool {
        self.limit.borrow().keeps_schedule()
    }

    fn has_changed_since(&self, ticket: Ticket) -> bool {
        self.limit.borrow().has_changed_since(ticket)
    }

    fn counts_in_flight(&self) -> bool {
        self.limit.borrow().counts_in_flight()
    }

    fn counts_for_ns(&self) -> u64 {
        self.limit.borrow().counts_for_ns()
    }

    fn hold(&mut self, permits: NonZeroU64) {
        self.owned(0, |limit, _| limit.hold(permits));
    }

    fn release_hold(&mut self, permits: NonZeroU64) {
        self.owned(0, |limit, _| limit.release_hold(permits));
    }

    fn hold_promise(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.owned(now_ns, |limit, now_ns| limit.hold_promise(now_ns, ticket))
    }

    fn not_before(&mut self, start_ns: u64) {
        self.owned(0, |limit, _| limit.not_before(start_ns));
    }

    fn book_before_promises(&mut self, now_ns: u64, start_ns: u64, permits: NonZeroU64) -> Ticket {
        self.owned(now_ns, |limit, now_ns| limit.book_before_promises(now_ns, start_ns, permits))
    }

    fn forecast(&self, now_ns: u64) -> Self {
        let now_ns = self.clamp(now_ns);
        Self::over(self.with_sealed(now_ns, |limit| limit.forecast(now_ns)), now_ns)
    }

    fn opening_before_promises(
        &self,
        now_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        // An instant in the future does not advance the clock.
        self.with_sealed(self.latest_ns, |limit| {
            limit.opening_before_promises(now_ns, from_ns, permits)
        })
    }
}

impl<L: Concurrent> Holding for WithLockFree<L> {
    fn hold_grant(&mut self, now_ns: u64, grant: &Grant, end_ns: u64) -> Hold {
        self.owned(now_ns, |limit, now_ns| limit.hold_grant(now_ns, grant, end_ns))
    }

    fn end_hold(&mut self, now_ns: u64, hold: Hold, actual: u64) -> Option<u64> {
        self.owned(now_ns, |limit, now_ns| limit.end_hold(now_ns, hold, actual))
    }

    fn next_end_ns(&self) -> Option<u64> {
        self.limit.borrow().next_end_ns()
    }

    /// Holds under the lock, as limiters do: only a grant of the limit itself comes back exactly.
    fn try_hold(
        &mut self,
        now_ns: u64,
        permits: u64,
        ttl_ns: u64,
    ) -> Result<HoldVerdict, ExceedsCapacity> {
        self.owned(now_ns, |limit, now_ns| limit.try_hold(now_ns, permits, ttl_ns))
    }
}

/// The policy of a scenario, if it is of this kind.
pub(crate) trait FromScenario: HasLockFree {
    fn of(policy: &AnyPolicy) -> Option<Self>;
}

impl<P: FromScenario> Subject for WithLockFree<Ledger<P>> {
    fn reconfigure(&mut self, now_ns: u64, policies: &[AnyPolicy]) -> Result<(), LimitError> {
        let [policy] = policies else { return Err(LimitError::OtherPolicy) };
        self.set(now_ns, P::of(policy).ok_or(LimitError::OtherPolicy)?);
        Ok(())
    }
}

impl Subject for WithLockFree<AllOfLedger> {
    fn reconfigure(&mut self, now_ns: u64, policies: &[AnyPolicy]) -> Result<(), LimitError> {
        self.latest_ns = self.latest_ns.max(now_ns);
        let latest_ns = self.latest_ns;
        self.limit.get_mut().change(&self.lock_free, || latest_ns, policies)
    }
}
