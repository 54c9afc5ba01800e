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

use crate::clock::Clock;
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
    /// Absent until a caller waits, or says how to.
    waits: Option<Box<WaitQueue<L>>>,
}

/// A limit's wait queue, and what the timer of its tasks needs to know.
#[derive(Debug)]
struct WaitQueue<L> {
    queue: Queue<Ear, L>,
    /// How many of those who wait are tasks. Threads look after themselves.
    tasks: u32,
    /// When the timer of the tasks will serve the queue, and in which process it is set.
    armed_ns: u64,
    armed_in: u32,
    lead: Lead,
    /// What waiters leave their callers to read a clock.
    margin_ns: u64,
}

impl<L: Provisional> Default for WaitQueue<L> {
    fn default() -> Self {
        Self {
            queue: Queue::new(Bounds::default()),
            tasks: 0,
            armed_ns: u64::MAX,
            armed_in: 0,
            lead: Lead::default(),
            margin_ns: 0,
        }
    }
}

/// The limit and its queue, in the hands of whoever has the lock.
pub(crate) struct Turn<'a, L> {
    state: &'a mut State<L>,
    woken: &'a mut Woken,
    pub(crate) now_ns: u64,
    /// Whether the clock runs by itself.
    is_real_time: bool,
}

impl<L: Provisional> State<L> {
    pub(crate) const fn new(limit: L) -> Self {
        Self { limit, waits: None }
    }

    /// When the head of the queue is roused, where tasks are woken before their starts: not on a clock that does not
    /// run by itself.
    fn rousing(&self, is_real_time: bool) -> Option<Rousing> {
        let waits = self.waits.as_ref().filter(|_| is_real_time)?;
        let loses = waits.queue.takes(&self.limit) && self.limit.slack_ns() < EARLY_NS;
        loses.then(|| waits.lead.rousing())
    }

    /// When the timer of the tasks has to serve the queue.
    fn next_ns(&self, is_real_time: bool) -> Option<u64> {
        self.waits.as_ref()?.queue.next_ns_with(self.rousing(is_real_time))
    }

    /// Whether somebody waits, or has been granted what has not reached it.
    pub(crate) fn is_queued(&self, now_ns: u64) -> bool {
        self.waits.as_ref().is_some_and(|waits| !waits.queue.is_idle(now_ns))
    }

    /// What has come of a wait, once.
    pub(crate) fn collect(&mut self, place: &Place) -> Option<Outcome> {
        self.waits.as_mut()?.queue.collect(place)
    }

    /// Gives up a place in line that needs no turn for it. Its ear is to be dropped when the lock is
    /// free.
    pub(crate) fn leave_from_behind(&mut self, place: &Place) -> Option<Ear> {
        let waits = self.waits.as_mut()?;
        let ear = waits.queue.leave_from_behind(place)?;
        waits.tasks = waits.tasks.saturating_sub(u32::from(matches!(ear, Ear::Task(_))));
        Some(ear)
    }

    /// Notes that a task of this process waits. In a forked child the timer that the parent has set is not.
    fn waits_here(&mut self) {
        let (here, waits) = (process::id(), self.waits.get_or_insert_default());
        if replace(&mut waits.armed_in, here) != here {
            waits.armed_ns = u64::MAX;
        }
    }

    /// At the end of a turn: whether the timer of the tasks has to be set anew.
    pub(crate) fn must_arm(&mut self, woken: &Woken, is_real_time: bool) -> bool {
        let next_ns = self.next_ns(is_real_time);
        let Some(waits) = &mut self.waits else { return false };
        waits.tasks = waits.tasks.saturating_sub(woken.tasks);
        // A task that has been woken just now may never come: threads behind it are told when its hold ends.
        let next_ns = next_ns.filter(|_| waits.tasks > 0 || woken.tasks > 0);
        let Some(next_ns) = next_ns.filter(|&next_ns| next_ns < waits.armed_ns) else {
            return false;
        };
        waits.armed_ns = next_ns;
        true
    }

    /// Returns how many wait.
    pub(crate) fn waiting(&self) -> u32 {
        self.waits.as_ref().map_or(0, |waits| waits.queue.waiting())
    }

    /// Whether nobody waits for a start to come.
    pub(crate) fn is_line_empty(&self) -> bool {
        self.waits.as_ref().is_none_or(|waits| waits.queue.is_empty())
    }

    /// Returns the limit and its wait queue, which is made if there is none.
    fn with_queue(&mut self) -> (&mut L, &mut WaitQueue<L>) {
        (&mut self.limit, self.waits.get_or_insert_default())
    }
}

impl<'a, L: Provisional> Turn<'a, L> {
    pub(crate) fn new(state: &'a mut State<L>, woken: &'a mut Woken, now_ns: u64) -> Self {
        let now_ns = state.limit.clamp(now_ns);
        Self { state, woken, now_ns, is_real_time: false }
    }

    /// The same on a clock that may run by itself.
    pub(crate) fn on(self, clock: &impl Clock) -> Self {
        Self { is_real_time: clock.is_real_time(), ..self }
    }

    /// Returns the limit as it is.
    pub(crate) fn limit(&self) -> &L {
        &self.state.limit
    }

    /// Grants all whose starts have come.
    pub(crate) fn serve(&mut self) {
        if let State { limit, waits: Some(waits) } = &mut *self.state {
            waits.queue.serve(limit, self.now_ns, self.woken);
        }
    }

    /// Rouses the task at the head of the queue if its start is near. Where the timer for `woke_ns` has woken
    /// a task now, how late its poll will be is noted.
    pub(crate) fn rouse(&mut self, woke_ns: Option<u64>) {
        let Some(rousing) = self.state.rousing(self.is_real_time) else { return };
        let (_, WaitQueue { queue, lead, .. }) = self.state.with_queue();
        queue.rouse(self.now_ns.saturating_add(rousing.lead_ns), self.woken);
        if let Some(woke_ns) = woke_ns
            && !self.woken.ears.is_empty()
        {
            lead.woke(woke_ns);
        }
    }

    /// Returns the start of a task that has been polled so short a time before it that it is not worth a
    /// timer.
    pub(crate) fn near_start_ns(&mut self, place: &Place) -> Option<u64> {
        self.state.rousing(self.is_real_time)?;
        let waits = self.state.waits.as_ref()?;
        let start_ns = waits.queue.head_start_ns(place)?;
        let is_near = start_ns.saturating_sub(self.now_ns) <= MAX_LEAD_NS;
        is_near.then(|| start_ns.saturating_add(waits.margin_ns))
    }

    /// Returns how long after its start a waiter should take, so that callers that read a clock right
    /// afterwards see no less than what the limit allows.
    pub(crate) fn margin_ns(&self) -> u64 {
        self.state.waits.as_ref().map_or(0, |waits| waits.margin_ns)
    }

    /// Grants at most `most` of them. Returns whether there may be more.
    pub(crate) fn serve_some(&mut self, most: usize) -> bool {
        match &mut *self.state {
            State { limit, waits: Some(waits) } => {
                waits.queue.serve_some(limit, self.now_ns, most, self.woken)
            }
            State { waits: None, .. } => false,
        }
    }

    /// Decides something that gives nothing back and changes no number. Whoever waits has been
    /// booked before, as far as that can be, and so it stands behind them.
    ///
    /// `None` if somebody waits for what no clock foretells: nothing can pass before that.
    pub(crate) fn behind_all<T>(&mut self, decide: impl FnOnce(&mut L, u64) -> T) -> Option<T> {
        match &mut *self.state {
            State { limit, waits: Some(waits) } => {
                waits.queue.behind_all(limit, self.now_ns, self.woken, decide)
            }
            State { limit, waits: None } => Some(decide(limit, self.now_ns)),
        }
    }

    /// Promises permits the first start behind all who wait. `None` as for
    /// [`behind_all`](Self::behind_all).
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
        self.change_with(|limit, _, now_ns| change(limit, now_ns))
    }

    /// Changes the limit together with its wait queue, if there is one.
    fn change_with<T>(
        &mut self,
        change: impl FnOnce(&mut L, Option<&mut Queue<Ear, L>>, u64) -> T,
    ) -> T {
        let State { limit, waits } = &mut *self.state;
        let Some(waits) = waits else { return change(limit, None, self.now_ns) };
        waits.queue.unbook(limit, self.now_ns);
        let changed = change(limit, Some(&mut waits.queue), self.now_ns);
        waits.queue.serve(limit, self.now_ns, self.woken);
        changed
    }

    /// Takes permits of a grant back, for the good of whoever waits and of the class that had them.
    pub(crate) fn refund(&mut self, class: ClassId, grant: &Grant, permits: u64) -> u64 {
        self.change_with(|limit, queue, now_ns| {
            let back = limit.refund(now_ns, grant, permits);
            // A class in which nobody waits can only be charged more.
            if let Some(queue) = queue {
                queue.settle(class, back, 0);
            }
            back
        })
    }

    /// Makes good for an estimate of somebody of this class.
    pub(crate) fn settle(
        &mut self,
        class: ClassId,
        grant: &Grant,
        actual: u64,
    ) -> Result<Settled, DebtError> {
        if actual > grant.permits {
            // What the class owes is to be remembered, also where other classes come later.
            self.state.with_queue();
        }
        self.change_with(|limit, queue, now_ns| {
            let settled = limit.settle(now_ns, grant, actual);
            if let Some(queue) = queue.filter(|_| settled.is_ok()) {
                queue.settle(class, grant.permits, actual);
            }
            settled
        })
    }

    /// Stands in line, unless the permits are there. Of those before, nobody is granted here if that
    /// can be left to whoever waits for it: wakes from one place come in order.
    pub(crate) fn join(
        &mut self,
        request: Request,
        mut ear: impl FnMut() -> Ear,
    ) -> Result<Joined, Turned> {
        let (limit, WaitQueue { queue, tasks, .. }) = self.state.with_queue();
        if !queue.has_line_for(request) {
            queue.serve(limit, self.now_ns, self.woken);
        }
        let mut is_task = false;
        let ear = || {
            let ear = ear();
            is_task = matches!(ear, Ear::Task(_));
            ear
        };
        let joined = queue.join(limit, self.now_ns, request, counted(ear, tasks), self.woken);
        if is_task {
            self.state.waits_here();
        }
        joined
    }

    /// Ends a wait whose start has come, by taking its permits now; or tells how it has ended. A
    /// waiter that came too late waits on, and is woken by `ear`.
    pub(crate) fn collect(&mut self, place: &Place, ear: impl FnMut() -> Ear) -> Option<Collected> {
        if let Some(outcome) = self.state.collect(place) {
            return Some(Collected::Ended(outcome));
        }
        let (limit, WaitQueue { queue, tasks, lead, .. }) = self.state.with_queue();
        if queue.is_due(place) || queue.head_start_ns(place).is_some() {
            lead.polled(self.now_ns);
        }
        let outcome = queue.take(limit, self.now_ns, place, counted(ear, tasks), self.woken);
        let span_ns = limit.counts_for_ns();
        // What has been taken may have been held for longer than it needs to be now.
        queue.serve(limit, self.now_ns, self.woken);
        // The next may start so soon that the timer would be late.
        self.rouse(None);
        match outcome? {
            Outcome::Granted(grant) => {
                self.state.with_queue().1.margin_ns = margin_ns(span_ns);
                Some(Collected::Taken(grant))
            }
            ended => Some(Collected::Ended(ended)),
        }
    }

    /// Has a promise that has not started waited for in line: its permits are taken by the waiter.
    pub(crate) fn wait_for_promise(&mut self, grant: &Grant) -> Option<Place> {
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

    /// Whether waiters take, so that a late wake costs some of the rate.
    pub(crate) fn takes(&self) -> bool {
        let State { limit, waits } = &*self.state;
        waits.as_ref().map_or_else(|| !limit.keeps_schedule(), |waits| waits.queue.takes(limit))
    }

    /// Wakes whoever waits there by another waker from now on.
    pub(crate) fn listen(&mut self, place: &Place, waker: &Waker) {
        self.state.waits_here();
        if let Some(waits) = &mut self.state.waits
            && let Some(ear) = waits.queue.waiter_mut(place)
            && !matches!(ear, Ear::Task(known) if known.will_wake(waker))
        {
            self.woken.gone.push(replace(ear, Ear::Task(waker.clone())));
        }
    }

    /// Until when a thread has to wait, as far as a clock can tell.
    pub(crate) fn due_ns(&mut self, place: &Place) -> Option<u64> {
        let State { limit, waits } = &mut *self.state;
        waits.as_mut()?.queue.due_ns(limit, place, self.woken)
    }

    /// Gives up a place in line. Returns how the wait had ended, if it had.
    pub(crate) fn leave(&mut self, place: &Place) -> Option<Outcome> {
        let State { limit, waits } = &mut *self.state;
        match waits.as_mut()?.queue.leave(limit, self.now_ns, place, self.woken)? {
            Left::InTime(ear) => {
                self.woken.leaves(ear);
                None
            }
            Left::Untaken => None,
            Left::Settled(outcome) => Some(outcome),
        }
    }

    pub(crate) fn add_class(&mut self, weight: NonZeroU64) -> Result<ClassId, TooManyClasses> {
        let (limit, WaitQueue { queue, .. }) = self.state.with_queue();
        queue.unbook(limit, self.now_ns);
        let class = queue.add_class(weight);
        queue.serve(limit, self.now_ns, self.woken);
        class
    }

    pub(crate) fn set_bounds(&mut self, bounds: Bounds) {
        self.state.with_queue().1.queue.set_bounds(bounds);
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.state.waiting()
    }

    /// Whether nobody waits for a start to come.
    pub(crate) fn is_line_empty(&self) -> bool {
        self.state.is_line_empty()
    }

    /// Ends all waits.
    pub(crate) fn close(&mut self) {
        let (limit, waits) = self.state.with_queue();
        waits.queue.close(limit, self.now_ns, self.woken);
    }

    /// Returns when the next wait is due, for the timer of the tasks, which serves the queue then: also for the sake of
    /// those behind a task that it has just woken, which may never come.
    pub(crate) fn arm(&mut self) -> Option<u64> {
        let next_ns = self.state.next_ns(self.is_real_time);
        let waits = self.state.waits.as_mut()?;
        let next_ns = next_ns.filter(|_| waits.tasks > 0);
        waits.armed_ns = next_ns.unwrap_or(u64::MAX);
        next_ns
    }

    /// How late the queue may be served without a loss to the rate, as far as the limit knows.
    pub(crate) fn slack_ns(&self) -> u64 {
        self.state.limit.slack_ns()
    }
}

/// Counts a waiter among the tasks, if it is one.
fn counted(mut ear: impl FnMut() -> Ear, tasks: &mut u32) -> impl FnMut() -> Ear {
    move || {
        let ear = ear();
        *tasks = tasks.saturating_add(u32::from(matches!(ear, Ear::Task(_))));
        ear
    }
}
