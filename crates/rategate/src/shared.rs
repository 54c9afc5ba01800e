//! The state that the clones of a limiter share.
//!
//! It is a limit and its wait queue behind one short lock, the limit's lock-free state in front
//! of that, and a clock. Whatever the lock-free state can decide, it decides without the lock.
//! For all else the thread that has the lock takes the state out of the lock-free form, decides,
//! and puts it back if it fits. While callers wait the state stays out, so that no try overtakes
//! them.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::process;
use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::time::Duration;

use rategate_core::concurrent::{
    BatchVerdict, Concurrent, Leftover, LimiterPolicy, LockFree, LockFreeVerdict, PermitBatch,
};
use rategate_core::error::ExceedsCapacity;
use rategate_core::error::LimitError;
use rategate_core::limit::Limit;
use rategate_core::queue::{Joined, Outcome, Request, WaiterId};
use rategate_core::verdict::{self, Verdict};

use self::locked::Locked;
use crate::clock::Clock;
use crate::decision::{Decision, Grant};
use crate::error::{AcquireError, Closed, TooLong, TryAcquireError, WaitBound};
use crate::growing_lock_free::GrowingLockFree;
use crate::on_demand::{Batches, OnDemand};
use crate::panics::quietly;
use crate::section::{Collected, CriticalSection, Notifier, Woken};
use crate::stats::LimitStats;
use crate::sync::{Mutex, MutexGuard, OnceLock};
use crate::wait::{CancelToken, Precision, Waiter, Wake, spin_until};

mod locked;
mod shown;

/// The longest time that a thread of a forked child sleeps before it checks the wait queue.
const MAX_SILENCE: Duration = Duration::from_millis(100);

/// The part of a limiter that its clones share.
///
/// Only this type knows where the state is: in the lock-free form or behind the mutex.
pub(crate) struct Shared<L: Concurrent, C> {
    growing_lock_free: GrowingLockFree<L::LockFree>,
    state: Mutex<Locked<L>>,
    clock: C,
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

impl<L: Concurrent, C> Shared<L, C> {
    /// Returns the limit, once no other thread can use it.
    pub(crate) fn into_limit(self) -> L {
        let mut limit = match self.state.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Locked::Seed(seed) => L::grown(&seed),
            Locked::Grown(state) => state.limit,
        };
        limit.seal(self.growing_lock_free.current());
        limit
    }
}

impl<L: Concurrent, C: Clock> Shared<L, C> {
    pub(crate) fn new(mut limit: L, clock: C) -> Self {
        let growing_lock_free = GrowingLockFree::new(limit.lock_free(clock.now_ns()));
        let state = Mutex::new(Locked::new(limit, growing_lock_free.current()));
        let (on_demand, times_tasks) = (OnceLock::new(), OnceLock::new());
        Self { growing_lock_free, state, clock, on_demand, times_tasks }
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

    pub(crate) const fn clock(&self) -> &C {
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

    /// Records how a wait for `permits` ended.
    #[inline]
    pub(crate) fn saw_wait(&self, permits: u64, ended: &Result<Grant, AcquireError>) {
        if let Some(stats) = self.stats() {
            stats.saw_wait(permits, ended);
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
            section.close();
            self.new_epoch();
        });
        self.on_demand().listeners.call();
        if let Some(stats) = self.stats() {
            stats.saw_close();
        }
    }

    /// Replaces the limit. While the queue is empty, the lock-free state changes too: it may be
    /// open.
    pub(crate) fn change_numbers<P: LimiterPolicy<Limit = L>>(
        &self,
        policy: P,
    ) -> Result<Result<(), LimitError>, Closed> {
        let mut woken = Woken::default();
        let mut locked = self.lock_open()?;
        let state = locked.state();
        let read_ns = || self.clock.now_in_order_ns();
        let now_ns = read_ns();
        if state.is_queued(now_ns) {
            let mut section = CriticalSection::new(state, &mut woken, now_ns).on(&self.clock);
            section.serve();
            let changed = section.change(|limit, now_ns| policy.put_into(limit, None, || now_ns));
            self.new_epoch();
            self.end_section(locked, woken, now_ns);
            return Ok(changed);
        }
        let lock_free = Some(self.growing_lock_free.current());
        let changed = policy.put_into(&mut state.limit, lock_free, read_ns);
        self.growing_lock_free.grow_for(&mut state.limit, now_ns);
        self.new_epoch();
        Ok(changed)
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
    fn saw_ns(&self, now_ns: u64) {
        if let Some(batches) = self.batches() {
            batches.saw_ns(now_ns);
        }
    }

    /// Returns the number of permits that a handle takes at a time, and the epoch of that number.
    pub(crate) fn batch(&self) -> Result<(u64, u64), Closed> {
        let batches = self.on_demand().batches_or_new();
        let mut locked = self.lock_open()?;
        // The limit's numbers suffice for this, so the lock-free state stays open.
        Ok((batches.epoch(), locked.state().limit.batch()))
    }

    #[inline]
    pub(crate) fn take_batch(&self, min_permits: u64, max_permits: u64) -> BatchVerdict {
        let take_batch = self.growing_lock_free.current().take_batch(
            || self.clock.now_ns(),
            min_permits,
            max_permits,
        );
        if let BatchVerdict::Taken(permit_batch) = take_batch {
            self.saw_ns(permit_batch.start_ns);
        }
        take_batch
    }

    /// Credits what is left of a batch. A closed limiter needs nothing back.
    pub(crate) fn return_batch(&self, permit_batch: PermitBatch, left: u64) {
        let lock_free = self.growing_lock_free.current();
        let _ =
            self.change(|limit, now_ns| limit.return_batch(lock_free, now_ns, permit_batch, left));
    }

    #[inline]
    pub(crate) fn try_acquire(&self, permits: u64) -> Result<Decision, TryAcquireError> {
        match self.stats() {
            None => self.try_uncounted(permits),
            Some(stats) => self.try_counted(permits, stats),
        }
    }

    /// Decides a try and counts it. Not inlined, so that without statistics a try pays only the
    /// check.
    #[inline(never)]
    fn try_counted(&self, permits: u64, stats: &LimitStats) -> Result<Decision, TryAcquireError> {
        let decided = self.try_uncounted(permits);
        stats.saw_try(permits, &decided);
        decided
    }

    /// Decides a try that is only one step of a call.
    #[inline]
    pub(crate) fn try_uncounted(&self, permits: u64) -> Result<Decision, TryAcquireError> {
        match self.try_lock_free(permits) {
            LockFreeVerdict::Granted { start_ns, scheduled_ns, leftover } => {
                Ok(Decision::Granted(Grant::at(start_ns, scheduled_ns, permits, leftover)))
            }
            LockFreeVerdict::Denied { retry_after_ns } => Ok(Decision::denied(retry_after_ns)),
            LockFreeVerdict::Sealed => Ok(Decision::of(&self.try_locked(permits)?)),
        }
    }

    /// Decides a try under the lock, as a verdict of the core that the caller translates.
    ///
    /// If this returned a [`Decision`], those of the lock-free state would go through memory too,
    /// and take longer to wait for than to make.
    #[cold]
    fn try_locked(&self, permits: u64) -> Result<Verdict, TryAcquireError> {
        if permits == 0 {
            // Nothing is taken, so no other call needs to be kept from the lock-free state.
            let (leftover, now_ns) = (Leftover::of(self.remaining()?), self.clock.now_ns());
            return Ok(Verdict::Granted(Grant::at(now_ns, now_ns, 0, leftover).as_granted()));
        }
        let decided = self.decide_behind_all(permits, |limit, now_ns| {
            limit.try_acquire(now_ns, permits).map_err(TryAcquireError::from)
        })?;
        // No try overtakes callers that wait for what no clock foretells.
        Ok(decided.unwrap_or(Verdict::Denied(verdict::Denial { retry_after_ns: None })))
    }

    #[inline]
    fn try_lock_free(&self, permits: u64) -> LockFreeVerdict {
        self.growing_lock_free.current().try_acquire(|| self.clock.now_ns(), permits)
    }

    pub(crate) fn peek(&self, permits: u64) -> Result<Option<u64>, TryAcquireError> {
        if let Some(wait_ns) = self.growing_lock_free.current().peek(self.clock.now_ns(), permits) {
            return Ok(Some(wait_ns));
        }
        let peeked = self.decide_behind_all(permits, |limit, now_ns| {
            limit.peek(now_ns, permits).map_err(TryAcquireError::from)
        })?;
        Ok(peeked.flatten())
    }

    pub(crate) fn remaining(&self) -> Result<u64, Closed> {
        match self.growing_lock_free.current().remaining(self.clock.now_ns()) {
            Some(permits) => Ok(permits),
            None => self.section(|section| {
                if !section.is_queue_empty() {
                    return 0;
                }
                section.behind_all(|limit, now_ns| limit.remaining(now_ns)).unwrap_or(0)
            }),
        }
    }

    /// Takes permits that are available without any wait.
    pub(crate) fn take_at_once(&self, permits: u64) -> Option<Grant> {
        let was_read = Cell::new(false);
        let read_ns = || {
            was_read.set(true);
            self.clock.now_ns()
        };
        let answer = self.growing_lock_free.current().try_acquire(read_ns, permits);
        let LockFreeVerdict::Granted { start_ns, scheduled_ns, leftover } = answer else {
            return None;
        };
        // A caller that would wait needs its lateness, which an earlier reading would misstate.
        let grant = Grant::at(start_ns, scheduled_ns, permits, leftover);
        Some(if was_read.get() { grant } else { grant.starting(self.clock.now_ns()) })
    }

    /// Takes permits, and waits in the queue for them.
    ///
    /// `abort` ends the wait and refunds what it held. If the start has come by then, the permits
    /// are charged and cannot go back, so the grant is the caller's.
    pub(crate) fn acquire(
        &self,
        request: Request,
        precision: Precision,
        abort: Option<&CancelToken>,
    ) -> Result<Grant, AcquireError> {
        let Some(stats) = self.stats() else {
            return self.wait_uncounted(request, precision, abort);
        };
        let ended = self.wait_uncounted(request, precision, abort);
        stats.saw_wait(request.permits, &ended);
        ended
    }

    fn wait_uncounted(
        &self,
        request: Request,
        precision: Precision,
        abort: Option<&CancelToken>,
    ) -> Result<Grant, AcquireError> {
        if abort.is_some_and(CancelToken::is_cancelled) {
            return Err(AcquireError::Interrupted);
        }
        if let Some(grant) = self.take_at_once(request.permits) {
            return Ok(grant);
        }
        let cancel = CancelToken::of_one_wait(abort);
        let notifier = || Notifier::Thread(Arc::clone(&cancel));
        let joined = self.section_to_join(|section| {
            let waiter_slot = match section.join(request, notifier) {
                Ok(Joined::Waits(waiter_slot)) => waiter_slot,
                Ok(Joined::Granted(grant)) => return Ok(Ok(Grant::as_promised(&grant))),
                Err(turned) => {
                    return Err(AcquireError::from_rejection(turned, request.max_wait_ns));
                }
            };
            self.saw_ns(section.now_ns);
            let due_ns = section.due_ns(&waiter_slot);
            let waiter = self.waiter().as_to(precision, section.slack_ns());
            Ok(Err((waiter_slot, due_ns, waiter.taking(section.takes(), section.margin_ns()))))
        })??;
        match joined {
            Ok(grant) => Ok(grant),
            Err((waiter_slot, due_ns, waiter)) => {
                self.wait_in_queue(&waiter_slot, due_ns, &waiter, &cancel, abort)
            }
        }
    }

    fn wait_in_queue(
        &self,
        waiter_slot: &WaiterId,
        mut due_ns: Option<u64>,
        waiter: &Waiter,
        cancel: &Arc<CancelToken>,
        abort: Option<&CancelToken>,
    ) -> Result<Grant, AcquireError> {
        loop {
            let _ = match due_ns {
                Some(due_ns) => waiter.wait(&self.clock, due_ns, cancel),
                None => self.wait_for_notice(cancel),
            };
            // Before the check: whatever is settled after it raises the token again.
            cancel.lower();
            let aborted = abort.is_some_and(CancelToken::is_cancelled);
            let notifier = || Notifier::Thread(Arc::clone(cancel));
            let (ended, later_ns) = self.section_even_if_closed(|section| {
                match section.collect(waiter_slot, notifier) {
                    Some(collected) => (Some(collected), None),
                    None if aborted => (section.leave(waiter_slot).map(Collected::Ended), None),
                    None => (None, section.due_ns(waiter_slot)),
                }
            });
            match ended {
                Some(collected) => return self.ended(collected),
                None if aborted => return Err(AcquireError::Interrupted),
                None => due_ns = later_ns,
            }
        }
    }

    /// Waits until the token is raised. In a forked child it also ends after a while.
    ///
    /// Threads that waited at the fork remain in the child's wait queue, and wake no waiter
    /// behind them.
    fn wait_for_notice(&self, cancel: &CancelToken) -> Wake {
        let is_copy = process::id() != self.on_demand().made_in;
        let max_silence = if is_copy { MAX_SILENCE } else { Duration::MAX };
        let is_first = Cell::new(true);
        cancel.wait_on(|| (!is_copy || is_first.replace(false)).then_some(max_silence))
    }

    /// Returns the outcome of a task's wait, if it has ended or may end now.
    pub(crate) fn collect(&self, waiter_slot: &WaiterId, waker: &Waker) -> Option<Collected> {
        // A wait that has ended needs no reading of the clock.
        if let Some(outcome) = self.lock().state().collect(waiter_slot) {
            return Some(Collected::Ended(outcome));
        }
        let check_wait = |section: &mut CriticalSection<'_, L>| {
            section.collect(waiter_slot, || Notifier::Task(waker.clone())).ok_or_else(|| {
                section.listen(waiter_slot, waker);
                section.near_start_ns(waiter_slot)
            })
        };
        match self.section_even_if_closed(check_wait) {
            Ok(collected) => Some(collected),
            Err(None) => None,
            Err(Some(start_ns)) => {
                let _ = spin_until(start_ns, self.cancel_token(), || self.clock.now_ns());
                self.section_even_if_closed(check_wait).ok()
            }
        }
    }

    /// Queues a waiter for a promise that has not started.
    ///
    /// Returns `None` where it has started, or the limit promises instants.
    pub(crate) fn wait_for_promise(&self, promise: &Promise) -> Option<WaiterId> {
        self.section_even_if_closed(|section| section.wait_for_promise(&promise.grant))
    }

    /// Sets whether waiters start at the instants that they were promised.
    pub(crate) fn set_promises_instants(&self, promises_instants: bool) {
        self.section_even_if_closed(|section| section.set_promises_instants(promises_instants));
    }

    pub(crate) fn set_grace(&self, grace_ns: Option<u64>) {
        self.section_even_if_closed(|section| section.set_grace(grace_ns));
    }

    /// Leaves a waiter slot. A grant that has reached it is refunded as far as possible.
    pub(crate) fn leave(&self, waiter_slot: &WaiterId) {
        let mut locked = self.lock();
        if let Some(notifier) = locked.state().leave_from_behind(waiter_slot) {
            drop(locked);
            return quietly(|| drop(notifier));
        }
        self.run_section_at(locked, C::now_in_order_ns, |section| {
            section.serve();
            if let Some(Outcome::Granted(grant)) = section.leave(waiter_slot) {
                section.change(|limit, now_ns| limit.refund(now_ns, &grant, grant.permits));
            }
        });
    }

    /// Converts the end of a wait to the result of the call.
    pub(crate) fn ended(&self, collected: Collected) -> Result<Grant, AcquireError> {
        let outcome = match collected {
            Collected::Taken(grant) => return Ok(Grant::as_promised(&grant)),
            Collected::Ended(outcome) => outcome,
        };
        match outcome {
            Outcome::Granted(grant) => Ok(Grant::as_promised(&grant).starting(self.clock.now_ns())),
            Outcome::DeadlinePassed => Err(AcquireError::DeadlinePassed),
            Outcome::Evicted => Err(AcquireError::Evicted),
            Outcome::Refused(refusal) => Err(AcquireError::refused(refusal, None)),
            Outcome::Closed => Err(AcquireError::Closed),
        }
    }

    /// Books the first start behind all waiters, unless it is too far away. Does not wait.
    pub(crate) fn promise(
        &self,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Result<Promise, AcquireError> {
        let promised = self.promise_uncounted(permits, max_wait_ns);
        if let Some(stats) = self.stats() {
            let granted = promised.as_ref().map(|promise| Grant::as_promised(&promise.grant));
            stats.saw_wait(permits, &granted.map_err(|&error| error));
        }
        promised
    }

    fn promise_uncounted(
        &self,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Result<Promise, AcquireError> {
        self.section(|section| match section.reserve(permits, max_wait_ns) {
            Some(Ok(Verdict::Granted(grant))) => {
                self.saw_ns(section.now_ns);
                Ok(Promise { grant, slack_ns: section.slack_ns() })
            }
            Some(Ok(Verdict::Denied(denial))) => {
                let refused = section.behind_all(|limit, requested_ns| {
                    refused(limit, requested_ns, permits, max_wait_ns, denial)
                });
                Err(refused.unwrap_or(AcquireError::TimeCannotHelp))
            }
            Some(Err(error)) => Err(error.into()),
            None => {
                // More than could ever pass will not pass later either.
                section.decide_behind_all(permits, |_, _| Ok::<_, AcquireError>(()))?;
                Err(AcquireError::TimeCannotHelp)
            }
        })?
    }

    /// Waits until the promised start. Closing the limiter ends the wait and refunds the promise,
    /// unless the start has come by then.
    pub(crate) fn keep(
        &self,
        promise: &Promise,
        precision: Precision,
    ) -> Result<Grant, AcquireError> {
        let waiter = self.waiter().as_to(precision, promise.slack_ns);
        if let Some(waiter_slot) = self.wait_for_promise(promise) {
            let (due_ns, abort) = (Some(promise.grant.start_ns), Some(self.cancel_token()));
            let (cancel, waiter) = (CancelToken::of_one_wait(abort), waiter.taking(true, 0));
            let taken = self.wait_in_queue(&waiter_slot, due_ns, &waiter, &cancel, abort);
            return taken.map_err(|error| match error {
                AcquireError::Interrupted => AcquireError::Closed,
                error => error,
            });
        }
        match waiter.wait(&self.clock, promise.grant.start_ns, self.cancel_token()) {
            Wake::Cancelled if self.cancel(promise) => Err(AcquireError::Closed),
            Wake::Cancelled | Wake::Due => {
                Ok(Grant::as_promised(&promise.grant).starting(self.clock.now_ns()))
            }
        }
    }

    /// Cancels a promise, even on a closed limiter. Returns `true` if that came before the start.
    pub(crate) fn cancel(&self, promise: &Promise) -> bool {
        self.section_even_if_closed(|section| {
            section.change(|limit, now_ns| limit.cancel(now_ns, promise.grant.ticket))
        })
    }

    /// Makes a decision about `permits` behind all waiters. It credits nothing and changes no
    /// limit.
    ///
    /// Returns `None` if the decision has to wait for a refill, a release or the like.
    fn decide_behind_all<T, E: From<Closed> + From<ExceedsCapacity>>(
        &self,
        permits: u64,
        decide: impl FnOnce(&mut L, u64) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        self.section(|section| section.decide_behind_all(permits, decide))?
    }

    /// Ends operations in flight. Returns `true` if the limit counts any.
    pub(crate) fn release(&self, permits: u64) -> Result<bool, Closed> {
        self.section_in_flight(|section| {
            section.change(|limit, now_ns| limit.release(now_ns, permits))
        })
    }

    /// Aborts operations in flight that had no effect. Returns `true` if the limit counts any.
    pub(crate) fn abort(&self, permits: u64) -> Result<bool, Closed> {
        self.section_in_flight(|section| {
            section.change(|limit, now_ns| limit.abort(now_ns, permits))
        })
    }

    /// Runs `act` under the lock of a limit that counts operations in flight, and not for other
    /// limits.
    fn section_in_flight(
        &self,
        act: impl FnOnce(&mut CriticalSection<'_, L>) -> bool,
    ) -> Result<bool, Closed> {
        let mut locked = self.lock_open()?;
        if !locked.state().limit.counts_in_flight() {
            return Ok(false);
        }
        Ok(self.run_section(locked, |section| {
            section.serve();
            act(section)
        }))
    }

    /// Changes the limit in a way that may help waiters.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut L, u64) -> T) -> Result<T, Closed> {
        self.section_in_order(|section| section.change(change))
    }

    /// Runs `act` under the lock, at a reading that is not before those of any decision so far.
    ///
    /// This is for actions that depend on when those decisions were made.
    pub(crate) fn section_in_order<T>(
        &self,
        act: impl FnOnce(&mut CriticalSection<'_, L>) -> T,
    ) -> Result<T, Closed> {
        Ok(self.run_section_at(self.lock_open()?, C::now_in_order_ns, |section| {
            section.serve();
            act(section)
        }))
    }

    /// Runs `act` under the lock, at one reading of the clock, with the queue served up to then.
    pub(crate) fn section<T>(
        &self,
        act: impl FnOnce(&mut CriticalSection<'_, L>) -> T,
    ) -> Result<T, Closed> {
        Ok(self.run_section(self.lock_open()?, |section| {
            section.serve();
            act(section)
        }))
    }

    /// Runs `act` under the lock of a limiter that may be closed: the queue is then empty, and
    /// the state stays behind the mutex.
    pub(crate) fn section_even_if_closed<T>(
        &self,
        act: impl FnOnce(&mut CriticalSection<'_, L>) -> T,
    ) -> T {
        self.run_section(self.lock(), |section| {
            section.serve();
            act(section)
        })
    }

    /// Runs `act` to join the queue, under the lock. Joining itself decides whether to serve
    /// the queue.
    pub(crate) fn section_to_join<T>(
        &self,
        act: impl FnOnce(&mut CriticalSection<'_, L>) -> T,
    ) -> Result<T, Closed> {
        Ok(self.run_section(self.lock_open()?, act))
    }

    /// Runs `act` under the lock, and serves only as many waiters as `act` does.
    pub(crate) fn section_to_serve<T>(
        &self,
        act: impl FnOnce(&mut CriticalSection<'_, L>) -> T,
    ) -> T {
        self.run_section(self.lock(), act)
    }

    fn run_section<T>(
        &self,
        locked: MutexGuard<'_, Locked<L>>,
        act: impl FnOnce(&mut CriticalSection<'_, L>) -> T,
    ) -> T {
        self.run_section_at(locked, C::now_ns, act)
    }

    fn run_section_at<T>(
        &self,
        locked: MutexGuard<'_, Locked<L>>,
        read_ns: impl Fn(&C) -> u64,
        act: impl FnOnce(&mut CriticalSection<'_, L>) -> T,
    ) -> T {
        // It wakes when it is dropped, which is after the lock even where something panics.
        let mut woken = Woken::default();
        let mut locked = locked;
        let state = locked.state();
        state.limit.seal(self.growing_lock_free.current());
        // Inside the lock: another thread's reading could overtake one from outside.
        let now_ns = read_ns(&self.clock);
        let mut section = CriticalSection::new(state, &mut woken, now_ns).on(&self.clock);
        let result = act(&mut section);
        self.end_section(locked, woken, now_ns);
        result
    }

    /// Ends a critical section, and then wakes the waiters that it has made due.
    fn end_section(&self, locked: MutexGuard<'_, Locked<L>>, woken: Woken, now_ns: u64) {
        let must_arm = self.close_section(locked, &woken, now_ns);
        self.wake(woken, must_arm);
    }

    /// Puts the state into its lock-free form if no caller waits, and releases the lock.
    ///
    /// Returns `true` if the timer of the tasks has to be set anew.
    fn close_section(
        &self,
        mut locked: MutexGuard<'_, Locked<L>>,
        woken: &Woken,
        now_ns: u64,
    ) -> bool {
        let state = locked.state();
        if !state.is_queued(now_ns) && !self.is_closed() {
            state.limit.open(self.growing_lock_free.current(), now_ns);
        }
        state.must_arm(woken, self.clock.is_real_time())
    }

    fn wake(&self, woken: Woken, must_arm: bool) {
        drop(woken);
        if must_arm && let Some(timekeeper) = self.on_demand().timekeeper.get() {
            timekeeper.wake_by_ref();
        }
    }

    /// Starts a critical section that lasts until it is [released](LimiterGuard::release).
    pub(crate) fn guard(&self) -> Result<LimiterGuard<'_, L, C>, Closed> {
        let mut locked = self.lock_open()?;
        locked.state().limit.seal(self.growing_lock_free.current());
        let now_ns = self.clock.now_ns();
        let mut guard = LimiterGuard { shared: self, locked, woken: Woken::default(), now_ns };
        guard.section().serve();
        Ok(guard)
    }

    /// Locks the state of a limiter that is not closed.
    fn lock_open(&self) -> Result<MutexGuard<'_, Locked<L>>, Closed> {
        let locked = self.lock();
        if self.is_closed() { Err(Closed) } else { Ok(locked) }
    }

    /// Locks the state. A panic in a decision leaves it as the core left it, which is never half
    /// a decision that would grant too much.
    fn lock(&self) -> MutexGuard<'_, Locked<L>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock guard of a thread that holds other limiters' locks as well.
pub(crate) struct LimiterGuard<'a, L: Concurrent, C> {
    shared: &'a Shared<L, C>,
    locked: MutexGuard<'a, Locked<L>>,
    woken: Woken,
    now_ns: u64,
}

impl<'a, L: Concurrent, C: Clock> LimiterGuard<'a, L, C> {
    fn section(&mut self) -> CriticalSection<'_, L> {
        CriticalSection::new(self.locked.state(), &mut self.woken, self.now_ns)
            .on(&self.shared.clock)
    }

    /// Makes a decision behind all waiters; see [`CriticalSection::behind_all`].
    pub(crate) fn behind_all<T>(&mut self, decide: impl FnOnce(&mut L, u64) -> T) -> Option<T> {
        self.section().behind_all(decide)
    }

    /// Releases the lock. Call the returned closure, which wakes waiters, once no lock is held.
    pub(crate) fn release(self) -> impl FnOnce() + use<'a, L, C> {
        let Self { shared, locked, woken, now_ns } = self;
        let must_arm = shared.close_section(locked, &woken, now_ns);
        move || shared.wake(woken, must_arm)
    }
}

/// Returns why a reservation made at `requested_ns` was denied, and how long its wait would have
/// been.
fn refused<L: Limit>(
    limit: &L,
    requested_ns: u64,
    permits: u64,
    max_wait_ns: Option<u64>,
    denial: verdict::Denial,
) -> AcquireError {
    let Some(retry_after_ns) = denial.retry_after_ns else { return AcquireError::TimeCannotHelp };
    let opening = NonZeroU64::new(permits).map(|permits| limit.opening(requested_ns, permits));
    let wait_ns = match opening {
        Some(Ok(opening)) => opening.start_ns.saturating_sub(requested_ns),
        Some(Err(refusal)) => return AcquireError::refused(refusal, max_wait_ns),
        None => retry_after_ns.get(),
    };
    let retry_after_ns = retry_after_ns.get();
    AcquireError::TooLong(TooLong { wait_ns, retry_after_ns, bound: WaitBound::of(max_wait_ns) })
}
