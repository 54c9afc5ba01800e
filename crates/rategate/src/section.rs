//! The critical section of a limiter: all that a caller does to the limit and its line.
//!
//! It also collects the waiters to wake once the lock is free.

mod returns;
mod state;
mod woken;

use std::mem::replace;
use std::task::Waker;

use rategate_core::concurrent::Fast;
use rategate_core::error::ExceedsCapacity;
use rategate_core::ledger::Ledger;
use rategate_core::line::{Joined, LeaveOutcome, Line, Outcome, QueueRejection, Request, WaiterId};
use rategate_core::verdict::{Denial, Grant, Verdict};

pub(crate) use self::returns::Estimate;
pub(crate) use self::state::State;
use self::state::Waits;
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

/// The limit and its line, as the thread sees them that has the lock.
pub(crate) struct CriticalSection<'a> {
    state: &'a mut State,
    woken: &'a mut Woken,
    pub(crate) now_ns: u64,
    /// `true` if the clock advances by itself.
    is_real_time: bool,
}

impl<'a> CriticalSection<'a> {
    pub(crate) fn new(state: &'a mut State, woken: &'a mut Woken, now_ns: u64) -> Self {
        let now_ns = state.limit().clamp(now_ns);
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
        self.state.limit()
    }

    pub(crate) const fn state(&self) -> &State {
        self.state
    }

    /// Returns the limit's line, which is made if there is none, with the time and the waiters to
    /// wake.
    pub(crate) fn line(&mut self) -> (&mut Line<Notifier>, u64, &mut Woken) {
        (&mut self.state.in_line().line, self.now_ns, self.woken)
    }

    /// Acts on the limit alone as long as it has no line, and in the line otherwise.
    fn with<T>(
        &mut self,
        alone: impl FnOnce(&mut Ledger, u64) -> T,
        in_line: impl FnOnce(&mut Line<Notifier>, u64, &mut Woken) -> T,
    ) -> T {
        match self.state {
            State::Alone(limit) => alone(limit, self.now_ns),
            State::InLine(waits) => in_line(&mut waits.line, self.now_ns, self.woken),
        }
    }

    /// Ends the holds whose time is over, and grants the permits of all waiters whose starts have
    /// come.
    pub(crate) fn serve(&mut self) {
        self.with(Ledger::end_holds, Line::serve);
    }

    /// Rouses the task at the head of the queue if its start is near.
    ///
    /// If the timer for `woke_ns` has woken a task now, the lateness of its poll will be
    /// recorded.
    pub(crate) fn rouse(&mut self, woke_ns: Option<u64>) {
        let Some(rousing) = self.state.rousing(self.is_real_time) else { return };
        let Waits { line, lead, .. } = self.state.in_line();
        line.rouse(self.now_ns.saturating_add(rousing.lead_ns), self.woken);
        if let Some(woke_ns) = woke_ns
            && !self.woken.notifiers.is_empty()
        {
            lead.woke(woke_ns);
        }
    }

    /// Returns the start of a task that was polled too short a time before it for a timer.
    pub(crate) fn near_start_ns(&mut self, waiter_slot: &WaiterId) -> Option<u64> {
        self.state.rousing(self.is_real_time)?;
        let waits = self.state.waits()?;
        let start_ns = waits.line.head_start_ns(waiter_slot)?;
        let is_near = start_ns.saturating_sub(self.now_ns) <= MAX_LEAD_NS;
        is_near.then(|| start_ns.saturating_add(waits.margin_ns))
    }

    /// Returns how long after its start a waiter should take its permits.
    ///
    /// With this margin, callers that read a clock right afterwards see no less than what the
    /// limit allows.
    pub(crate) fn margin_ns(&self) -> u64 {
        self.state.waits().map_or(0, |waits| waits.margin_ns)
    }

    /// Grants at most `max_grants` waiters. Returns `true` if more may be due.
    pub(crate) fn serve_some(&mut self, max_grants: usize) -> bool {
        self.with(
            |limit, now_ns| {
                limit.end_holds(now_ns);
                false
            },
            |line, now_ns, woken| line.serve_some(now_ns, max_grants, woken),
        )
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
        match self.state {
            State::Alone(limit) => Some(decide(limit, self.now_ns)),
            State::InLine(waits) => waits.line.behind_all(self.now_ns, self.woken, decide),
        }
    }

    /// Promises `permits` at the first start behind all waiters.
    ///
    /// Returns `None` as [`behind_all`](Self::behind_all) does.
    pub(crate) fn reserve(
        &mut self,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Result<Option<Verdict>, ExceedsCapacity> {
        self.with(
            |limit, now_ns| limit.reserve(now_ns, permits, max_wait_ns).map(Some),
            |line, now_ns, woken| line.reserve(now_ns, permits, max_wait_ns, woken),
        )
    }

    /// Makes a decision about `permits` as [`behind_all`](Self::behind_all) does.
    ///
    /// A request for more permits than could ever pass is an error even behind waiters.
    pub(crate) fn decide_behind_all<T, E: From<ExceedsCapacity>>(
        &mut self,
        permits: u64,
        decide: impl FnOnce(&mut Ledger, u64) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        match self.state {
            State::Alone(limit) => decide(limit, self.now_ns).map(Some),
            State::InLine(waits) => waits.line.decide(self.now_ns, permits, self.woken, decide),
        }
    }

    /// Changes the limit, or credits it. Waiters are booked anew afterwards.
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut Ledger, u64) -> T) -> T {
        match self.state {
            State::Alone(limit) => change(limit, self.now_ns),
            State::InLine(waits) => waits.line.change(self.now_ns, self.woken, change),
        }
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
        let Waits { line, tasks, .. } = self.state.in_line();
        let mut is_task = false;
        let notifier = || {
            let notifier = notifier();
            is_task = matches!(notifier, Notifier::Task(_));
            notifier
        };
        let joined = line.join(self.now_ns, request, counted(notifier, tasks), self.woken);
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
        let Waits { line, tasks, lead, .. } = self.state.in_line();
        if line.is_due(waiter_slot) || line.head_start_ns(waiter_slot).is_some() {
            lead.polled(self.now_ns);
        }
        let outcome = line.take(self.now_ns, waiter_slot, counted(notifier, tasks), self.woken);
        let span_ns = line.limit().counts_for_ns();
        // The next waiter may start so soon that the timer would be late.
        self.rouse(None);
        match outcome? {
            Outcome::Granted(grant) => {
                self.state.in_line().margin_ns = margin_ns(span_ns);
                Some(Collected::Taken(grant))
            }
            ended => Some(Collected::Ended(ended)),
        }
    }

    /// Replaces the waker of a waiter slot.
    pub(crate) fn listen(&mut self, waiter_slot: &WaiterId, waker: &Waker) {
        self.state.note_task_waiting();
        if let Some(notifier) = self.state.in_line().line.waiter_mut(waiter_slot)
            && !matches!(notifier, Notifier::Task(known) if known.will_wake(waker))
        {
            self.woken.dropped.push(replace(notifier, Notifier::Task(waker.clone())));
        }
    }

    /// Returns the instant until which a thread has to wait, as far as a clock can tell.
    pub(crate) fn due_ns(&mut self, waiter_slot: &WaiterId) -> Option<u64> {
        let line = &mut self.state.waits_mut()?.line;
        let due_ns = line.due_ns(waiter_slot, self.woken);
        // The first waiter serves the line when a hold ends.
        [due_ns, line.limit().next_end_ns()].into_iter().flatten().min()
    }

    /// Leaves a waiter slot. Returns how the wait had ended, if it had.
    pub(crate) fn leave(&mut self, waiter_slot: &WaiterId) -> Option<Outcome> {
        let line = &mut self.state.waits_mut()?.line;
        match line.leave(self.now_ns, waiter_slot, self.woken)? {
            LeaveOutcome::InTime(notifier) => {
                self.woken.drop_later(notifier);
                None
            }
            LeaveOutcome::Untaken => None,
            LeaveOutcome::Settled(outcome) => Some(outcome),
        }
    }

    /// Returns when the next wait is due, for the tasks' timer, which serves the queue then.
    ///
    /// The timer also serves waiters behind a task that it has just woken, which may never come.
    pub(crate) fn arm(&mut self) -> Option<u64> {
        let next_ns = self.state.next_ns(self.is_real_time);
        let waits = self.state.waits_mut()?;
        let next_ns = next_ns.filter(|_| waits.tasks > 0);
        waits.armed_ns = next_ns.unwrap_or(u64::MAX);
        next_ns
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
