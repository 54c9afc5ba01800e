//! One turn at a limit: everything that a caller does to the limit and its queue under the lock, and
//! whom to wake when the lock is free.

use std::mem::replace;
use std::num::NonZeroU64;
use std::process;
use std::sync::Arc;
use std::task::Waker;

use rategate_core::error::{DebtError, ExceedsCapacity};
use rategate_core::fair::{ClassId, TooManyClasses};
use rategate_core::provisional::Provisional;
use rategate_core::queue::{
    Bounds, Joined, Left, Outcome, Place, Queue, Request, Rousing, Turned, Wakes,
};
use rategate_core::verdict::{Grant, Settled, Verdict};

use crate::lead::{Lead, MAX_LEAD_NS};
use crate::panics::quietly;
use crate::wait::{Alarm, EARLY_NS, margin_ns};

/// What somebody who waits is woken by.
#[derive(Clone, Debug)]
pub(crate) enum Ear {
    Task(Waker),
    /// Raised to end one wait, and lowered by its thread before it looks again.
    Thread(Arc<Alarm>),
}

/// Whom to wake, and what to drop, once the lock is free: either may run anything. Dropped, it does
/// so.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    ears: Vec<Ear>,
    gone: Vec<Ear>,
    /// How many tasks have ended their waits.
    tasks: u32,
}

impl Woken {
    fn leaves(&mut self, ear: Ear) {
        self.tasks = self.tasks.saturating_add(u32::from(matches!(ear, Ear::Task(_))));
        self.gone.push(ear);
    }
}

impl Wakes<Ear> for Woken {
    fn settled(&mut self, ear: Ear) {
        self.tasks = self.tasks.saturating_add(u32::from(matches!(ear, Ear::Task(_))));
        self.ears.push(ear);
    }

    fn turned_away(&mut self, ear: Ear) {
        self.leaves(ear);
    }

    /// A task has been told nothing, and a timer watches for it.
    fn moved(&mut self, ear: &Ear) {
        if let Ear::Thread(alarm) = ear {
            self.ears.push(Ear::Thread(Arc::clone(alarm)));
        }
    }

    /// A thread wakes before its start by itself.
    fn roused(&mut self, ear: &Ear) {
        if let Ear::Task(waker) = ear {
            self.ears.push(Ear::Task(waker.clone()));
        }
    }
}

impl Drop for Woken {
    fn drop(&mut self) {
        for ear in self.ears.drain(..) {
            match ear {
                Ear::Task(waker) => quietly(|| waker.wake()),
                Ear::Thread(alarm) => alarm.raise(),
            }
        }
        for ear in self.gone.drain(..) {
            quietly(|| drop(ear));
        }
    }
}

/// How a wait has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Collected {
    /// The waiter starts at the instant that this says.
    Taken(Grant),
    Ended(Outcome),
}

/// What is behind a limiter's lock.
#[derive(Debug)]
pub(crate) struct State<L> {
    pub(crate) limit: L,
    queue: Queue<Ear, L>,
    /// How many of those who wait are tasks. Threads look after themselves.
    tasks: u32,
    /// When the timer of the tasks will serve the queue, and in which process it is set.
    armed_ns: u64,
    armed_in: u32,
    /// Absent where no wake comes before its start: on a clock that does not run by itself.
    lead: Option<Lead>,
    /// What waiters leave their callers to read a clock.
    margin_ns: u64,
}

/// The limit and its queue, in the hands of whoever has the lock.
pub(crate) struct Turn<'a, L> {
    state: &'a mut State<L>,
    woken: &'a mut Woken,
    pub(crate) now_ns: u64,
}

impl<L: Provisional> State<L> {
    /// The state of a limit whose clock runs by itself, or not.
    pub(crate) fn new(limit: L, is_real_time: bool) -> Self {
        let queue = Queue::new(Bounds::default());
        let lead = is_real_time.then(Lead::default);
        Self { limit, queue, tasks: 0, armed_ns: u64::MAX, armed_in: 0, lead, margin_ns: 0 }
    }

    /// When the head of the queue is roused, where tasks are woken before their starts.
    fn rousing(&self) -> Option<Rousing> {
        let loses = self.queue.takes(&self.limit) && self.limit.slack_ns() < EARLY_NS;
        self.lead.as_ref().filter(|_| loses).map(Lead::rousing)
    }

    /// When the timer of the tasks has to serve the queue.
    fn next_ns(&self) -> Option<u64> {
        self.queue.next_ns_with(self.rousing())
    }

    /// Whether somebody waits, or has been granted what has not reached it.
    pub(crate) fn is_queued(&self, now_ns: u64) -> bool {
        !self.queue.is_idle(now_ns)
    }

    /// What has come of a wait, once.
    pub(crate) fn collect(&mut self, place: &Place) -> Option<Outcome> {
        self.queue.collect(place)
    }

    /// Gives up a place in line that needs no turn for it. Its ear is to be dropped when the lock is
    /// free.
    pub(crate) fn leave_from_behind(&mut self, place: &Place) -> Option<Ear> {
        let ear = self.queue.leave_from_behind(place)?;
        self.tasks = self.tasks.saturating_sub(u32::from(matches!(ear, Ear::Task(_))));
        Some(ear)
    }

    /// Notes that a task of this process waits. In a forked child the timer that the parent has set is not.
    fn waits_here(&mut self) {
        let here = process::id();
        if replace(&mut self.armed_in, here) != here {
            self.armed_ns = u64::MAX;
        }
    }

    /// At the end of a turn: whether the timer of the tasks has to be set anew.
    pub(crate) fn must_arm(&mut self, woken: &Woken) -> bool {
        self.tasks = self.tasks.saturating_sub(woken.tasks);
        let next_ns = self.next_ns().filter(|_| self.tasks > 0);
        let Some(next_ns) = next_ns.filter(|&next_ns| next_ns < self.armed_ns) else {
            return false;
        };
        self.armed_ns = next_ns;
        true
    }
}

impl<'a, L: Provisional> Turn<'a, L> {
    pub(crate) fn new(state: &'a mut State<L>, woken: &'a mut Woken, now_ns: u64) -> Self {
        let now_ns = state.limit.clamp(now_ns);
        Self { state, woken, now_ns }
    }

    /// Grants all whose starts have come.
    pub(crate) fn serve(&mut self) {
        let State { limit, queue, .. } = &mut *self.state;
        queue.serve(limit, self.now_ns, self.woken);
    }

    /// Rouses the task at the head of the queue if its start is near. Where the timer for `woke_ns` has woken
    /// a task now, how late its poll will be is noted.
    pub(crate) fn rouse(&mut self, woke_ns: Option<u64>) {
        let Some(rousing) = self.state.rousing() else { return };
        let State { queue, lead, .. } = &mut *self.state;
        queue.rouse(self.now_ns.saturating_add(rousing.lead_ns), self.woken);
        if let (Some(lead), Some(woke_ns)) = (lead, woke_ns)
            && !self.woken.ears.is_empty()
        {
            lead.woke(woke_ns);
        }
    }

    /// Returns the start of a task that has been polled so short a time before it that it is not worth a
    /// timer.
    pub(crate) fn near_start_ns(&mut self, place: &Place) -> Option<u64> {
        self.state.rousing()?;
        let start_ns = self.state.queue.head_start_ns(place)?;
        let is_near = start_ns.saturating_sub(self.now_ns) <= MAX_LEAD_NS;
        is_near.then(|| start_ns.saturating_add(self.state.margin_ns))
    }

    /// Returns how long after its start a waiter should take, so that callers that read a clock right
    /// afterwards see no less than what the limit allows.
    pub(crate) const fn margin_ns(&self) -> u64 {
        self.state.margin_ns
    }

    /// Grants at most `most` of them. Returns whether there may be more.
    pub(crate) fn serve_some(&mut self, most: usize) -> bool {
        let State { limit, queue, .. } = &mut *self.state;
        queue.serve_some(limit, self.now_ns, most, self.woken)
    }

    /// Decides something that gives nothing back and changes no number. Whoever waits has been
    /// booked before, as far as that can be, and so it stands behind them.
    ///
    /// `None` if somebody waits for what no clock foretells: nothing can pass before that.
    pub(crate) fn behind_all<T>(&mut self, decide: impl FnOnce(&mut L, u64) -> T) -> Option<T> {
        let State { limit, queue, .. } = &mut *self.state;
        queue.behind_all(limit, self.now_ns, self.woken, decide)
    }

    /// Promises permits the first start behind all who wait. `None` as for
    /// [`behind_all`](Self::behind_all).
    pub(crate) fn reserve(
        &mut self,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Option<Result<Verdict, ExceedsCapacity>> {
        let State { limit, queue, .. } = &mut *self.state;
        queue.reserve(limit, self.now_ns, permits, max_wait_ns, self.woken)
    }

    /// The same for a question about `permits`, of which more than could ever pass will not pass later
    /// either.
    pub(crate) fn ask_behind_all<T, E: From<ExceedsCapacity>>(
        &mut self,
        permits: u64,
        decide: impl FnOnce(&mut L, u64) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        if let Some(decided) = self.behind_all(decide) {
            return decided.map(Some);
        }
        self.state.limit.peek(self.now_ns, permits)?;
        Ok(None)
    }

    /// Changes the limit, or gives it something back. Whoever waits is booked anew afterwards.
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut L, u64) -> T) -> T {
        let State { limit, queue, .. } = &mut *self.state;
        queue.unbook(limit, self.now_ns);
        let changed = change(limit, self.now_ns);
        queue.serve(limit, self.now_ns, self.woken);
        changed
    }

    /// Takes permits of a grant back, for the good of whoever waits and of the class that had them.
    pub(crate) fn refund(&mut self, class: ClassId, grant: &Grant, permits: u64) -> u64 {
        let State { limit, queue, .. } = &mut *self.state;
        queue.unbook(limit, self.now_ns);
        let back = limit.refund(self.now_ns, grant, permits);
        queue.settle(class, back, 0);
        queue.serve(limit, self.now_ns, self.woken);
        back
    }

    /// Makes good for an estimate of somebody of this class.
    pub(crate) fn settle(
        &mut self,
        class: ClassId,
        grant: &Grant,
        actual: u64,
    ) -> Result<Settled, DebtError> {
        let State { limit, queue, .. } = &mut *self.state;
        queue.unbook(limit, self.now_ns);
        let settled = limit.settle(self.now_ns, grant, actual);
        if settled.is_ok() {
            queue.settle(class, grant.permits, actual);
        }
        queue.serve(limit, self.now_ns, self.woken);
        settled
    }

    /// Stands in line, unless the permits are there. Of those before, nobody is granted here if that
    /// can be left to whoever waits for it: wakes from one place come in order.
    pub(crate) fn join(
        &mut self,
        request: Request,
        ear: impl FnOnce() -> Ear,
    ) -> Result<Joined, Turned> {
        if !self.state.queue.has_line_for(request) {
            self.serve();
        }
        let State { limit, queue, tasks, .. } = &mut *self.state;
        let mut is_task = false;
        let ear = || {
            let ear = ear();
            is_task = matches!(ear, Ear::Task(_));
            *tasks = tasks.saturating_add(u32::from(is_task));
            ear
        };
        let joined = queue.join(limit, self.now_ns, request, ear, self.woken);
        if is_task {
            self.state.waits_here();
        }
        joined
    }

    /// Ends a wait whose start has come, by taking its permits now; or tells how it has ended. A
    /// waiter that came too late waits on, and is woken by `ear`.
    pub(crate) fn collect(
        &mut self,
        place: &Place,
        ear: impl FnOnce() -> Ear,
    ) -> Option<Collected> {
        if let Some(outcome) = self.state.collect(place) {
            return Some(Collected::Ended(outcome));
        }
        let State { limit, queue, tasks, lead, .. } = &mut *self.state;
        if let Some(lead) = lead
            && (queue.is_due(place) || queue.head_start_ns(place).is_some())
        {
            lead.polled(self.now_ns);
        }
        let ear = || {
            let ear = ear();
            *tasks = tasks.saturating_add(u32::from(matches!(ear, Ear::Task(_))));
            ear
        };
        let outcome = queue.take(limit, self.now_ns, place, ear, self.woken);
        let span_ns = limit.counts_for_ns();
        // What has been taken may have been held for longer than it needs to be now.
        queue.serve(limit, self.now_ns, self.woken);
        // The next may start so soon that the timer would be late.
        self.rouse(None);
        match outcome? {
            Outcome::Granted(grant) => {
                self.state.margin_ns = margin_ns(span_ns);
                Some(Collected::Taken(grant))
            }
            ended => Some(Collected::Ended(ended)),
        }
    }

    /// Has a promise that has not started waited for in line: its permits are taken by the waiter.
    pub(crate) fn wait_for_promise(&mut self, grant: &Grant) -> Option<Place> {
        let State { limit, queue, .. } = &mut *self.state;
        queue.wait_for_promise(limit, self.now_ns, grant.scheduled_ns, grant)
    }

    /// Sets whether waiters start at the instants that they were promised.
    pub(crate) fn set_promises_instants(&mut self, promises_instants: bool) {
        let State { limit, queue, .. } = &mut *self.state;
        queue.unbook(limit, self.now_ns);
        queue.set_promises_instants(promises_instants);
        queue.serve(limit, self.now_ns, self.woken);
    }

    pub(crate) const fn set_grace(&mut self, grace_ns: Option<u64>) {
        self.state.queue.set_grace(grace_ns);
    }

    /// Whether waiters take, so that a late wake costs some of the rate.
    pub(crate) fn takes(&self) -> bool {
        self.state.queue.takes(&self.state.limit)
    }

    /// Wakes whoever waits there by another waker from now on.
    pub(crate) fn listen(&mut self, place: &Place, waker: &Waker) {
        self.state.waits_here();
        if let Some(ear) = self.state.queue.waiter_mut(place)
            && !matches!(ear, Ear::Task(known) if known.will_wake(waker))
        {
            self.woken.gone.push(replace(ear, Ear::Task(waker.clone())));
        }
    }

    /// Until when a thread has to wait, as far as a clock can tell.
    pub(crate) fn due_ns(&mut self, place: &Place) -> Option<u64> {
        let State { limit, queue, .. } = &mut *self.state;
        queue.due_ns(limit, place, self.woken)
    }

    /// Gives up a place in line. Returns how the wait had ended, if it had.
    pub(crate) fn leave(&mut self, place: &Place) -> Option<Outcome> {
        let State { limit, queue, .. } = &mut *self.state;
        match queue.leave(limit, self.now_ns, place, self.woken)? {
            Left::InTime(ear) => {
                self.woken.leaves(ear);
                None
            }
            Left::Untaken => None,
            Left::Settled(outcome) => Some(outcome),
        }
    }

    pub(crate) fn add_class(&mut self, weight: NonZeroU64) -> Result<ClassId, TooManyClasses> {
        let State { limit, queue, .. } = &mut *self.state;
        queue.unbook(limit, self.now_ns);
        let class = queue.add_class(weight);
        queue.serve(limit, self.now_ns, self.woken);
        class
    }

    pub(crate) fn set_bounds(&mut self, bounds: Bounds) {
        self.state.queue.set_bounds(bounds);
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.state.queue.waiting()
    }

    /// Whether nobody waits for a start to come.
    pub(crate) const fn is_line_empty(&self) -> bool {
        self.state.queue.is_empty()
    }

    /// Ends all waits.
    pub(crate) fn close(&mut self) {
        let State { limit, queue, .. } = &mut *self.state;
        queue.close(limit, self.now_ns, self.woken);
    }

    /// When the next wait is due, for the timer of the tasks, which serves the queue then.
    pub(crate) fn arm(&mut self) -> Option<u64> {
        let next_ns = self.state.next_ns().filter(|_| self.state.tasks > self.woken.tasks);
        self.state.armed_ns = next_ns.unwrap_or(u64::MAX);
        next_ns
    }

    /// How late the queue may be served without a loss to the rate, as far as the limit knows.
    pub(crate) fn slack_ns(&self) -> u64 {
        self.state.limit.slack_ns()
    }
}
