//! The state that the clones of a limiter share.
//!
//! It is a limit and its wait queue behind one short lock, the limit's lock-free state in front
//! of that, and a clock. Whatever the lock-free state can decide, it decides without the lock.
//! For all else the thread that has the lock takes the state out of the lock-free form, decides,
//! and puts it back if it fits. While callers wait the state stays out, so that no try overtakes
//! them. A limit without a lock-free state denies single permits at a gate, once it is used up.

use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::time::Duration;

use rategate_core::all_of::AllOf;
use rategate_core::concurrent::{BatchVerdict, Fast, LockFreeVerdict, PermitBatch};
use rategate_core::debt::{Charged, Debt};
use rategate_core::error::ExceedsCapacity;
use rategate_core::error::LimitError;
use rategate_core::holds::Hold;
use rategate_core::ledger::Ledger;
use rategate_core::policy::Ending;
use rategate_core::share::Share;
use rategate_core::verdict::{self, Verdict};

use self::locked::Locked;
use crate::clock::wait::{CancelToken, Waiter};
use crate::clock::{Clock, NeverBack};
use crate::decision::{Decision, Grant};
use crate::error::{AcquireError, ChargeError, Closed, ShareError, TryAcquireError};
use crate::on_demand::{Batches, OnDemand};
use crate::section::{CriticalSection, Woken};
use crate::stats::LimitStats;
use crate::sync::{Mutex, MutexGuard, OnceLock, Ordering};

mod lock_free;
mod locked;
mod sections;
mod shown;
mod waiting;

/// No try overtakes callers that wait for what no clock foretells.
const BEHIND_OTHERS: Verdict = Verdict::Denied(verdict::Denial { retry_after_ns: None });

/// The longest time that a thread of a forked child sleeps before it checks the wait queue.
const MAX_SILENCE: Duration = Duration::from_millis(100);

/// The part of a limiter that its clones share.
///
/// Only this type knows where the state is: in the lock-free form or behind the mutex.
pub(crate) struct Shared<C> {
    /// The first lock-free state. Once another is in use, it is sealed for good.
    first: Fast,
    state: Mutex<Locked>,
    clock: NeverBack<C>,
    on_demand: OnceLock<Box<OnDemand>>,
    /// Makes the waker that sets the timer of waiting tasks. Absent without handles for tasks.
    times_tasks: OnceLock<fn(&Arc<Self>) -> Waker>,
}

/// A start that the limit has promised.
#[derive(Debug)]
pub(crate) struct Promise {
    pub(crate) grant: verdict::Grant,
    /// The lateness of the start that costs none of the rate.
    slack_ns: u64,
}

impl<C> Shared<C> {
    /// Returns the limit, once no other thread can use it.
    pub(crate) fn into_limit(self) -> Ledger {
        let Self { first, state, on_demand, .. } = self;
        let mut limit = match state.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Locked::Seed(seed) => seed.grown(),
            Locked::Grown(state) => state.into_limit(),
        };
        limit.seal(lock_free::current(&first, &on_demand));
        limit
    }
}

impl<C: Clock> Shared<C> {
    pub(crate) fn new(mut limit: Ledger, clock: C) -> Self {
        let clock = NeverBack::new(clock, limit.clamp(0));
        let first = limit.lock_free(clock.now_ns());
        let state = Mutex::new(Locked::new(limit, &first));
        let (on_demand, times_tasks) = (OnceLock::new(), OnceLock::new());
        Self { first, state, clock, on_demand, times_tasks }
    }

    /// Returns the parts that are made when they are first needed.
    pub(crate) fn on_demand(&self) -> &OnDemand {
        self.on_demand.get_or_init(Box::default)
    }

    pub(crate) fn cancel_token(&self) -> &CancelToken {
        &self.on_demand().cancel
    }

    /// Returns `true` if the limiter has been closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.on_demand.get().is_some_and(|on_demand| on_demand.cancel.is_cancelled())
    }

    pub(crate) const fn clock(&self) -> &NeverBack<C> {
        &self.clock
    }

    pub(crate) fn waiter(&self) -> &Waiter {
        &self.on_demand().waiter
    }

    #[inline]
    pub(crate) fn stats(&self) -> Option<&LimitStats> {
        self.on_demand.get()?.stats.get()
    }

    /// Starts to count, unless the limiter counts already.
    pub(crate) fn count_as(&self, name: &str) {
        let stats = &self.on_demand().stats;
        stats.get_or_init(|| LimitStats::new(name, self.remaining().unwrap_or(0)));
    }

    /// Records the decision on a try.
    #[inline]
    pub(crate) fn record_try(&self, permits: u64, decided: &Result<Decision, TryAcquireError>) {
        if let Some(stats) = self.stats() {
            stats.record_try(permits, decided, || self.remaining().unwrap_or(0));
        }
    }

    /// Records how a wait for `permits` ended.
    #[inline]
    pub(crate) fn record_wait(&self, permits: u64, ended: &Result<Grant, AcquireError>) {
        if let Some(stats) = self.stats() {
            stats.record_wait(permits, ended, || self.remaining().unwrap_or(0));
        }
    }

    /// Sets how the timer of waiting tasks is made, once a task first waits.
    pub(crate) fn time_tasks_by(&self, make: fn(&Arc<Self>) -> Waker) {
        self.times_tasks.get_or_init(|| make);
    }

    /// Makes the timer of waiting tasks, unless there is one. Called before a task waits.
    pub(crate) fn time_tasks(self: &Arc<Self>) {
        if let Some(make) = self.times_tasks.get() {
            self.on_demand().timekeeper.get_or_init(|| make(self));
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    pub(crate) fn close(&self) {
        self.section_even_if_closed(|section| {
            // Sealed for good by now, and under the lock, so that no decision is still under way
            // once this returns.
            self.cancel_token().cancel();
            let (line, now_ns, woken) = section.line();
            line.close(now_ns, woken);
            self.new_epoch();
        });
        self.on_demand().listeners.call();
        if let Some(stats) = self.stats() {
            stats.record_close();
        }
    }

    /// Replaces the limit. While the queue is empty, the lock-free state changes too: it may be
    /// open.
    pub(crate) fn change_numbers(&self, limits: AllOf) -> Result<Result<(), LimitError>, Closed> {
        let mut woken = Woken::default();
        let mut locked = self.lock_open()?;
        let state = locked.state();
        let read_ns = || self.clock.now_in_order_ns();
        let now_ns = read_ns();
        if state.is_queued(now_ns) {
            let mut section = CriticalSection::new(state, &mut woken, now_ns).on(&self.clock);
            section.serve();
            let changed = section.change(|limit, now_ns| limit.reconfigure(now_ns, limits));
            self.grow_for(state.limit());
            self.new_epoch();
            self.end_section(locked, woken, now_ns);
            return Ok(changed);
        }
        let changed = state.limit_mut().change(self.lock_free(), read_ns, limits);
        if self.grow_for(state.limit()) {
            state.limit_mut().open(self.lock_free(), now_ns);
        }
        self.new_epoch();
        Ok(changed)
    }

    /// Begins anew with another limit.
    #[cfg(feature = "keyed")]
    pub(crate) fn restart_as(&self, limits: impl Into<AllOf>) -> Result<(), Closed> {
        let changed = self.section_in_order(|section| {
            section.change(|limit, now_ns| limit.restart_as(now_ns, limits));
            self.grow_for(section.limit());
        });
        self.new_epoch();
        changed
    }

    /// Returns what local handles check before they use a batch, if there are any.
    ///
    /// Under the lock no handle is missed: a handle makes this before it takes its batch.
    fn batches(&self) -> Option<&Batches> {
        self.on_demand.get()?.batches()
    }

    fn new_epoch(&self) {
        if let Some(batches) = self.batches() {
            batches.next_epoch();
        }
    }

    /// Records the time that a caller has seen that took a batch or had to wait.
    fn record_seen_ns(&self, now_ns: u64) {
        if let Some(batches) = self.batches() {
            batches.record_seen_ns(now_ns);
        }
    }

    /// Returns the number of permits that a handle takes at a time, and the epoch of that number.
    pub(crate) fn batch(&self) -> Result<(u64, u64), Closed> {
        let batches = self.on_demand().batches_or_new();
        let mut locked = self.lock_open()?;
        // The limit's numbers suffice for this, so the lock-free state stays open.
        Ok((batches.epoch(), locked.state().limit().batch()))
    }

    #[inline]
    pub(crate) fn take_batch(&self, min_permits: u64, max_permits: u64) -> BatchVerdict {
        let take_batch =
            self.lock_free().take_batch(|| self.clock.now_ns(), min_permits, max_permits);
        if let BatchVerdict::Taken(permit_batch) = take_batch {
            self.record_seen_ns(permit_batch.start_ns);
        }
        take_batch
    }

    /// Credits what is left of a batch. A closed limiter needs nothing back.
    pub(crate) fn return_batch(&self, permit_batch: PermitBatch, left: u64) {
        let lock_free = self.lock_free();
        let _ =
            self.change(|limit, now_ns| limit.return_batch(lock_free, now_ns, permit_batch, left));
    }

    #[inline]
    pub(crate) fn try_acquire(&self, permits: u64) -> Result<Decision, TryAcquireError> {
        match self.stats() {
            None => self.try_uncounted(permits),
            Some(_) => self.try_counted(permits),
        }
    }

    /// Decides a try and counts it. Not inlined, so that without statistics a try pays only the
    /// check.
    #[inline(never)]
    fn try_counted(&self, permits: u64) -> Result<Decision, TryAcquireError> {
        let decided = self.try_uncounted(permits);
        self.record_try(permits, &decided);
        decided
    }

    /// Decides a try that is only one step of a call.
    ///
    /// What the brief way does not decide is left to a call at the very end, which writes the
    /// decision straight to where the caller wants it.
    #[inline]
    pub(crate) fn try_uncounted(&self, permits: u64) -> Result<Decision, TryAcquireError> {
        match self.first.try_briefly(|| self.clock.now_ns(), permits) {
            LockFreeVerdict::Granted { start_ns, scheduled_ns } => {
                Ok(Decision::Granted(Grant::at(start_ns, scheduled_ns, permits)))
            }
            LockFreeVerdict::Denied { retry_after_ns } => Ok(Decision::denied(retry_after_ns)),
            LockFreeVerdict::Sealed => self.try_fully(permits),
        }
    }

    /// Decides a try that may have to repeat its step, because another thread interferes, or has
    /// to take the lock.
    #[inline(never)]
    fn try_fully(&self, permits: u64) -> Result<Decision, TryAcquireError> {
        let lock_free = self.lock_free();
        match lock_free.try_acquire(|| self.clock.now_ns(), permits) {
            LockFreeVerdict::Granted { start_ns, scheduled_ns } => {
                Ok(Decision::Granted(Grant::at(start_ns, scheduled_ns, permits)))
            }
            LockFreeVerdict::Denied { retry_after_ns } => Ok(Decision::denied(retry_after_ns)),
            LockFreeVerdict::Sealed => self.try_locked(permits),
        }
    }

    /// Decides a try under the lock.
    #[cold]
    fn try_locked(&self, permits: u64) -> Result<Decision, TryAcquireError> {
        if permits == 0 {
            // Nothing is taken, so no other call needs to be kept from the lock-free state.
            drop(self.lock_open()?);
            let now_ns = self.clock.now_ns();
            return Ok(Decision::Granted(Grant::at(now_ns, now_ns, 0)));
        }
        let decided = self.section(|section| {
            let decided = section.decide_behind_all(permits, |limit, now_ns| {
                limit.try_acquire(now_ns, permits).map_err(TryAcquireError::from)
            })?;
            if let (1, Some(Verdict::Denied(denial))) = (permits, &decided) {
                section.shut_gate(self.lock_free(), *denial);
            }
            Ok::<_, TryAcquireError>(decided)
        })??;
        Ok(Decision::of(&decided.unwrap_or(BEHIND_OTHERS)))
    }

    /// Decides a try within a share of the limit under the lock, and counts it.
    pub(crate) fn try_in_share(&self, permits: u64, share: Share) -> Result<Decision, ShareError> {
        let decided = self.decide_behind_all(permits, |limit, now_ns| {
            let verdict = limit.try_acquire_in_share(now_ns, permits, share)?;
            verdict.ok_or(ShareError::NothingInFlight)
        })?;
        let decision = Decision::of(&decided.unwrap_or(BEHIND_OTHERS));
        self.record_try(permits, &Ok(decision));
        Ok(decision)
    }

    /// Decides a try under the lock, and holds what it grants for `ttl_ns`.
    pub(crate) fn try_hold(
        &self,
        permits: u64,
        ttl_ns: u64,
    ) -> Result<(Decision, Option<Hold>), TryAcquireError> {
        let decided = self.decide_behind_all(permits, |limit, now_ns| {
            let verdict = limit.try_acquire(now_ns, permits).map_err(TryAcquireError::from)?;
            let held = match &verdict {
                Verdict::Granted(grant) => {
                    let end_ns = grant.start_ns.saturating_add(ttl_ns);
                    Some(limit.hold_grant(now_ns, grant, end_ns))
                }
                Verdict::Denied(_) => None,
            };
            Ok::<_, TryAcquireError>((Decision::of(&verdict), held))
        })?;
        Ok(decided.unwrap_or_else(|| (Decision::of(&BEHIND_OTHERS), None)))
    }

    #[inline]
    pub(crate) fn charge(&self, permits: u64, debt: Debt) -> Result<Charged, ChargeError> {
        let lock_free = self.lock_free();
        match lock_free.charge(|| self.clock.now_ns(), permits, debt) {
            Some(charged) => Ok(charged),
            None => self.charge_locked(permits, debt),
        }
    }

    #[cold]
    fn charge_locked(&self, permits: u64, debt: Debt) -> Result<Charged, ChargeError> {
        Ok(self.change(|limit, now_ns| limit.charge(now_ns, permits, debt))??)
    }

    /// Returns how debts of this limit end.
    #[inline]
    pub(crate) fn debt_terms(&self) -> Debt {
        let terms = self.on_demand.get().map(|on_demand| on_demand.debt.load(Ordering::Relaxed));
        terms.map_or(Debt::FORGOTTEN, Debt::from_bits)
    }

    pub(crate) fn set_debt_terms(&self, debt: Debt) {
        self.on_demand().debt.store(debt.bits(), Ordering::Relaxed);
    }

    pub(crate) fn peek(&self, permits: u64) -> Result<Option<u64>, TryAcquireError> {
        if let Some(wait_ns) = self.lock_free().peek(self.clock.now_ns(), permits) {
            return Ok(Some(wait_ns));
        }
        let peeked = self.decide_behind_all(permits, |limit, now_ns| {
            limit.peek(now_ns, permits).map_err(TryAcquireError::from)
        })?;
        Ok(peeked.flatten())
    }

    pub(crate) fn remaining(&self) -> Result<u64, Closed> {
        match self.lock_free().remaining(self.clock.now_ns()) {
            Some(permits) => Ok(permits),
            None => self.section(|section| {
                if !section.state().is_queue_empty() {
                    return 0;
                }
                section.behind_all(|limit, now_ns| limit.remaining(now_ns)).unwrap_or(0)
            }),
        }
    }

    /// Sets whether waiters start at the instants that they were promised.
    pub(crate) fn set_promises_instants(&self, promises_instants: bool) {
        self.section_even_if_closed(|section| {
            let (line, now_ns, woken) = section.line();
            line.set_promises_instants(now_ns, promises_instants, woken);
        });
    }

    pub(crate) fn set_grace(&self, grace_ns: Option<u64>) {
        self.section_even_if_closed(|section| section.line().0.set_grace(grace_ns));
    }

    /// Makes a decision about `permits` behind all waiters. It credits nothing and changes no
    /// limit.
    ///
    /// Returns `None` if the decision has to wait for a refill, a release or the like.
    fn decide_behind_all<T, E: From<Closed> + From<ExceedsCapacity>>(
        &self,
        permits: u64,
        decide: impl FnOnce(&mut Ledger, u64) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        self.section(|section| section.decide_behind_all(permits, decide))?
    }

    /// Ends operations in some way. Returns `true` if the limit counts those in flight, or follows
    /// this end. Other limits are left alone.
    pub(crate) fn end(&self, permits: u64, how: Ending) -> Result<bool, Closed> {
        let mut locked = self.lock_open()?;
        let limit = locked.state().limit();
        let follows = matches!(how, Ending::Of { .. }) && limit.follows_outcomes();
        if !follows && !limit.counts_in_flight() {
            return Ok(false);
        }
        Ok(self.run_section(locked, |section| {
            section.serve();
            section.change(|limit, now_ns| limit.end(now_ns, permits, how))
        }))
    }

    /// Returns the instant at which the limit counts a grant.
    pub(crate) fn counted_at(&self, grant: &Grant) -> Duration {
        let takes = self.lock().state().takes();
        if takes { grant.released_at() } else { grant.promised_at() }
    }

    /// Returns `true` if the limit moves by the outcomes of operations.
    pub(crate) fn follows_outcomes(&self) -> Result<bool, Closed> {
        Ok(self.lock_open()?.state().limit().follows_outcomes())
    }

    /// Returns the maximum number of permits in flight, if the limit has one.
    pub(crate) fn max_in_flight(&self) -> Result<Option<u64>, Closed> {
        self.section(|section| section.change(|limit, now_ns| limit.max_in_flight(now_ns)))
    }

    /// Starts a critical section that lasts until it is [released](LimiterGuard::release).
    pub(crate) fn guard(&self) -> Result<LimiterGuard<'_, C>, Closed> {
        let mut locked = self.lock_open()?;
        locked.state().limit_mut().seal(self.lock_free());
        let now_ns = self.clock.now_ns();
        let mut guard = LimiterGuard { shared: self, locked, woken: Woken::default(), now_ns };
        guard.section().serve();
        Ok(guard)
    }

    /// Locks the state. A panic in a decision leaves it as the core left it, which is never half
    /// a decision that would grant too much.
    fn lock(&self) -> MutexGuard<'_, Locked> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock guard of a thread that holds other limiters' locks as well.
pub(crate) struct LimiterGuard<'a, C> {
    shared: &'a Shared<C>,
    locked: MutexGuard<'a, Locked>,
    woken: Woken,
    now_ns: u64,
}

impl<'a, C: Clock> LimiterGuard<'a, C> {
    pub(crate) fn section(&mut self) -> CriticalSection<'_> {
        CriticalSection::new(self.locked.state(), &mut self.woken, self.now_ns)
            .on(&self.shared.clock)
    }

    /// Releases the lock. Call the returned closure, which wakes waiters, once no lock is held.
    pub(crate) fn release(self) -> impl FnOnce() + use<'a, C> {
        let Self { shared, locked, mut woken, now_ns } = self;
        let must_arm = shared.close_section(locked, &mut woken, now_ns);
        move || shared.wake(woken, must_arm)
    }
}
