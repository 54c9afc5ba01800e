//! The critical section of a limiter: all that a caller does to the limit and its wait queue.
//!
//! It also collects the waiters to wake once the lock is free.

mod returns;
mod state;
mod woken;

use std::mem::replace;
use std::num::NonZeroU64;
use std::task::Waker;

use rategate_core::concurrent::Fast;
use rategate_core::error::ExceedsCapacity;
use rategate_core::fair::{ClassId, TooManyClasses};
use rategate_core::ledger::Ledger;
use rategate_core::queue::{
    Joined, LeaveOutcome, Outcome, Queue, QueueBounds, QueueRejection, Request, WaiterId,
};
use rategate_core::verdict::{Denial, Grant, Verdict};

pub(crate) use self::returns::Estimate;
pub(crate) use self::state::State;
use self::state::WaitQueue;
pub(crate) use self::woken::{Notifier, Woken};
use crate::clock::Clock;
use crate::clock::wait::margin_ns;
use crate::lead::MAX_LEAD_NS;

/// The end of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Collected {
    /// The waiter starts at the instant that the grant states.
    Taken(Grant),
    Ended(Outcome),
}

/// The limit and its wait queue, as the thread sees them that has the lock.
pub(crate) struct CriticalSection<'a> {
    state: &'a mut State,
    woken: &'a mut Woken,
    pub(crate) now_ns: u64,
    /// `true` if the clock advances by itself.
    is_real_time: bool,
}

impl<'a> CriticalSection<'a> {
    pub(crate) fn new(state: &'a mut State, woken: &'a mut Woken, now_ns: u64) -> Self {
        let now_ns = state.limit.clamp(now_ns);
        Self { state, woken, now_ns, is_real_time: false }
    }

    /// Returns this critical section on `clock`, which may advance by itself.
    pub(crate) fn on(self, clock: &impl Clock) -> Self {
        Self { is_real_time: clock.is_real_time(), ..self }
    }

    /// Lets `lock_free` deny single permits as long as this denial of one holds, unless callers
    /// wait or a grant is on its way to one: those may come back by time. The section may change
    /// nothing after it.
    pub(crate) fn shut_gate(&self, lock_free: &Fast, denial: Denial) {
        if self.state.is_queued(self.now_ns) {
            return;
        }
        let until_ns = denial.retry_after_ns.map(|wait_ns| self.now_ns.checked_add(wait_ns.get()));
        match until_ns {
            None => lock_free.shut_gate(None),
            Some(Some(until_ns)) if until_ns < u64::MAX => lock_free.shut_gate(Some(until_ns)),
            // The clock does not show that instant, which the denial states nevertheless.
            Some(_) => {}
        }
    }

    /// Returns the limit as it is.
    pub(crate) fn limit(&self) -> &Ledger {
        &self.state.limit
    }

    /// Grants the permits of all waiters whose starts have come.
    pub(crate) fn serve(&mut self) {
        self.end_holds();
        if let State { limit, waits: Some(waits) } = &mut *self.state {
            waits.queue.serve(limit, self.now_ns, self.woken);
        }
    }

    /// Rouses the task at the head of the queue if its start is near.
    ///
    /// If the timer for `woke_ns` has woken a task now, the lateness of its poll will be
    /// recorded.
    pub(crate) fn rouse(&mut self, woke_ns: Option<u64>) {
        let Some(rousing) = self.state.rousing(self.is_real_time) else { return };
        let (_, WaitQueue { queue, lead, .. }) = self.state.with_queue();
        queue.rouse(self.now_ns.saturating_add(rousing.lead_ns), self.woken);
        if let Some(woke_ns) = woke_ns
            && !self.woken.notifiers.is_empty()
        {
            lead.woke(woke_ns);
        }
    }

    /// Returns the start of a task that was polled too short a time before it for a timer.
    pub(crate) fn near_start_ns(&mut self, waiter_slot: &WaiterId) -> Option<u64> {
        self.state.rousing(self.is_real_time)?;
        let waits = self.state.waits.as_ref()?;
        let start_ns = waits.queue.head_start_ns(waiter_slot)?;
        let is_near = start_ns.saturating_sub(self.now_ns) <= MAX_LEAD_NS;
        is_near.then(|| start_ns.saturating_add(waits.margin_ns))
    }

    /// Returns how long after its start a waiter should take its permits.
    ///
    /// With this margin, callers that read a clock right afterwards see no less than what the
    /// limit allows.
    pub(crate) fn margin_ns(&self) -> u64 {
        self.state.waits.as_ref().map_or(0, |waits| waits.margin_ns)
    }

    /// Grants at most `max_grants` waiters. Returns `true` if more may be due.
    pub(crate) fn serve_some(&mut self, max_grants: usize) -> bool {
        self.end_holds();
        match &mut *self.state {
            State { limit, waits: Some(waits) } => {
                waits.queue.serve_some(limit, self.now_ns, max_grants, self.woken)
            }
            State { waits: None, .. } => false,
        }
    }

    /// Makes a decision that credits nothing and changes no numbers.
    ///
    /// Waiters have been booked before, as far as possible, and so the decision queues behind
    /// them. Returns `None` if a waiter waits for what no clock foretells: nothing can pass
    /// before that.
    pub(crate) fn behind_all<T>(
        &mut self,
        decide: impl FnOnce(&mut Ledger, u64) -> T,
    ) -> Option<T> {
        match &mut *self.state {
            State { limit, waits: Some(waits) } => {
                waits.queue.behind_all(limit, self.now_ns, self.woken, decide)
            }
            State { limit, waits: None } => Some(decide(limit, self.now_ns)),
        }
    }

    /// Promises `permits` at the first start behind all waiters.
    ///
    /// Returns `None` as [`behind_all`](Self::behind_all) does.
    pub(crate) fn reserve(
        &mut self,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Option<Result<Verdict, ExceedsCapacity>> {
        match &mut *self.state {
            State { limit, waits: Some(waits) } => {
                waits.queue.reserve(limit, self.now_ns, permits, max_wait_ns, self.woken)
            }
            State { limit, waits: None } => Some(limit.reserve(self.now_ns, permits, max_wait_ns)),
        }
    }

    /// Makes a decision about `permits` as [`behind_all`](Self::behind_all) does.
    ///
    /// A request for more permits than could ever pass is an error even behind waiters.
    pub(crate) fn decide_behind_all<T, E: From<ExceedsCapacity>>(
        &mut self,
        permits: u64,
        decide: impl FnOnce(&mut Ledger, u64) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        if permits == 0 {
            // Nothing is taken, so no waiter is overtaken.
            return decide(&mut self.state.limit, self.now_ns).map(Some);
        }
        if let Some(decided) = self.behind_all(decide) {
            return decided.map(Some);
        }
        self.state.limit.peek(self.now_ns, permits)?;
        Ok(None)
    }

    /// Changes the limit, or credits it. Waiters are booked anew afterwards.
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut Ledger, u64) -> T) -> T {
        self.change_with(|limit, _, now_ns| change(limit, now_ns))
    }

    /// Changes the limit together with its wait queue, if there is one.
    fn change_with<T>(
        &mut self,
        change: impl FnOnce(&mut Ledger, Option<&mut Queue<Notifier>>, u64) -> T,
    ) -> T {
        let State { limit, waits } = &mut *self.state;
        let Some(waits) = waits else { return change(limit, None, self.now_ns) };
        waits.queue.unbook(limit, self.now_ns);
        let changed = change(limit, Some(&mut waits.queue), self.now_ns);
        waits.queue.serve(limit, self.now_ns, self.woken);
        changed
    }

    /// Joins the wait queue, unless the permits are available.
    ///
    /// Earlier waiters are not granted here if their own threads or the timer can do that: the
    /// wakes that one thread makes come one after another.
    pub(crate) fn join(
        &mut self,
        request: Request,
        mut notifier: impl FnMut() -> Notifier,
    ) -> Result<Joined, QueueRejection> {
        self.end_holds();
        let (limit, WaitQueue { queue, tasks, .. }) = self.state.with_queue();
        if !queue.can_only_enqueue(request) {
            queue.serve(limit, self.now_ns, self.woken);
        }
        let mut is_task = false;
        let notifier = || {
            let notifier = notifier();
            is_task = matches!(notifier, Notifier::Task(_));
            notifier
        };
        let joined = queue.join(limit, self.now_ns, request, counted(notifier, tasks), self.woken);
        if is_task {
            self.state.note_task_waiting();
        }
        joined
    }

    /// Ends a wait whose start has come, by taking its permits now; or returns how it has ended.
    ///
    /// A waiter that came too late waits on, and is woken by `notifier`.
    pub(crate) fn collect(
        &mut self,
        waiter_slot: &WaiterId,
        notifier: impl FnMut() -> Notifier,
    ) -> Option<Collected> {
        if let Some(outcome) = self.state.collect(waiter_slot) {
            return Some(Collected::Ended(outcome));
        }
        let (limit, WaitQueue { queue, tasks, lead, .. }) = self.state.with_queue();
        if queue.is_due(waiter_slot) || queue.head_start_ns(waiter_slot).is_some() {
            lead.polled(self.now_ns);
        }
        let outcome =
            queue.take(limit, self.now_ns, waiter_slot, counted(notifier, tasks), self.woken);
        let span_ns = limit.counts_for_ns();
        // The permits taken may have been held for longer than they need to be now.
        queue.serve(limit, self.now_ns, self.woken);
        // The next waiter may start so soon that the timer would be late.
        self.rouse(None);
        match outcome? {
            Outcome::Granted(grant) => {
                self.state.with_queue().1.margin_ns = margin_ns(span_ns);
                Some(Collected::Taken(grant))
            }
            ended => Some(Collected::Ended(ended)),
        }
    }

    /// Queues a waiter for a promise that has not started; the waiter takes the permits.
    pub(crate) fn wait_for_promise(&mut self, grant: &Grant) -> Option<WaiterId> {
        let (limit, waits) = self.state.with_queue();
        waits.queue.wait_for_promise(limit, self.now_ns, grant.scheduled_ns, grant)
    }

    /// Sets whether waiters start at the instants that they were promised.
    pub(crate) fn set_promises_instants(&mut self, promises_instants: bool) {
        self.state.with_queue();
        self.change_with(|_, queue, _| {
            if let Some(queue) = queue {
                queue.set_promises_instants(promises_instants);
            }
        });
    }

    pub(crate) fn set_grace(&mut self, grace_ns: Option<u64>) {
        self.state.with_queue().1.queue.set_grace(grace_ns);
    }

    /// Returns `true` if waiters take their own permits, so that a late wake costs rate.
    pub(crate) fn takes(&self) -> bool {
        self.state.takes()
    }

    /// Replaces the waker of a waiter slot.
    pub(crate) fn listen(&mut self, waiter_slot: &WaiterId, waker: &Waker) {
        self.state.note_task_waiting();
        if let Some(waits) = &mut self.state.waits
            && let Some(notifier) = waits.queue.waiter_mut(waiter_slot)
            && !matches!(notifier, Notifier::Task(known) if known.will_wake(waker))
        {
            self.woken.dropped.push(replace(notifier, Notifier::Task(waker.clone())));
        }
    }

    /// Returns the instant until which a thread has to wait, as far as a clock can tell.
    pub(crate) fn due_ns(&mut self, waiter_slot: &WaiterId) -> Option<u64> {
        let State { limit, waits } = &mut *self.state;
        let due_ns = waits.as_mut()?.queue.due_ns(limit, waiter_slot, self.woken);
        // The first waiter serves the queue when a hold ends.
        [due_ns, limit.next_end_ns()].into_iter().flatten().min()
    }

    /// Leaves a waiter slot. Returns how the wait had ended, if it had.
    pub(crate) fn leave(&mut self, waiter_slot: &WaiterId) -> Option<Outcome> {
        let State { limit, waits } = &mut *self.state;
        match waits.as_mut()?.queue.leave(limit, self.now_ns, waiter_slot, self.woken)? {
            LeaveOutcome::InTime(notifier) => {
                self.woken.drop_later(notifier);
                None
            }
            LeaveOutcome::Untaken => None,
            LeaveOutcome::Settled(outcome) => Some(outcome),
        }
    }

    pub(crate) fn add_class(&mut self, weight: NonZeroU64) -> Result<ClassId, TooManyClasses> {
        let (limit, WaitQueue { queue, .. }) = self.state.with_queue();
        queue.unbook(limit, self.now_ns);
        let class = queue.add_class(weight);
        queue.serve(limit, self.now_ns, self.woken);
        class
    }

    pub(crate) fn set_bounds(&mut self, bounds: QueueBounds) {
        self.state.with_queue().1.queue.set_bounds(bounds);
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.state.waiting()
    }

    /// Returns `true` if no waiter waits for its start.
    pub(crate) fn is_queue_empty(&self) -> bool {
        self.state.is_queue_empty()
    }

    /// Ends all waits.
    pub(crate) fn close(&mut self) {
        let (limit, waits) = self.state.with_queue();
        waits.queue.close(limit, self.now_ns, self.woken);
    }

    /// Returns when the next wait is due, for the tasks' timer, which serves the queue then.
    ///
    /// The timer also serves waiters behind a task that it has just woken, which may never come.
    pub(crate) fn arm(&mut self) -> Option<u64> {
        let next_ns = self.state.next_ns(self.is_real_time);
        let waits = self.state.waits.as_mut()?;
        let next_ns = next_ns.filter(|_| waits.tasks > 0);
        waits.armed_ns = next_ns.unwrap_or(u64::MAX);
        next_ns
    }

    /// Returns how late the queue may be served without loss to the rate, as the limit knows it.
    pub(crate) fn slack_ns(&self) -> u64 {
        self.state.limit.slack_ns()
    }
}

/// Wraps `notifier` so that a waiter that is a task is counted.
fn counted(mut notifier: impl FnMut() -> Notifier, tasks: &mut u32) -> impl FnMut() -> Notifier {
    move || {
        let notifier = notifier();
        *tasks = tasks.saturating_add(u32::from(matches!(notifier, Notifier::Task(_))));
        notifier
    }
}
