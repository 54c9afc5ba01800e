//! The critical section of a limiter: all that a caller does to the limit and its wait queue.
//!
//! It also collects the waiters to wake once the lock is free.

use std::mem::replace;
use std::num::NonZeroU64;
use std::process;
use std::sync::Arc;
use std::task::Waker;

use rategate_core::concurrent::Concurrent;
use rategate_core::debt::Debt;
use rategate_core::error::{CountsInFlight, ExceedsCapacity};
use rategate_core::fair::{ClassId, TooManyClasses};
use rategate_core::holds::{Committed, Hold};
use rategate_core::limit::Limit;
use rategate_core::provisional::Provisional;
use rategate_core::queue::{
    Joined, LeaveOutcome, Outcome, Queue, QueueBounds, QueueRejection, Request, Rousing, WaiterId,
    Wakes,
};
use rategate_core::verdict::{Grant, Settled, Verdict};

use crate::clock::Clock;
use crate::hold::Estimate;
use crate::lead::{Lead, MAX_LEAD_NS};
use crate::panics::quietly;
use crate::wait::{CancelToken, EARLY_NS, margin_ns};

/// A handle that wakes a waiter.
#[derive(Clone, Debug)]
pub(crate) enum Notifier {
    Task(Waker),
    /// Raised to end one wait, and lowered by its thread before it checks the state again.
    Thread(Arc<CancelToken>),
}

/// The waiters to wake, and the wakers to drop, once the lock is free: either may run any code.
///
/// Its own drop does both.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    notifiers: Vec<Notifier>,
    dropped: Vec<Notifier>,
    /// The number of tasks that have ended their waits.
    tasks: u32,
}

impl Woken {
    fn drop_later(&mut self, notifier: Notifier) {
        self.tasks = self.tasks.saturating_add(u32::from(matches!(notifier, Notifier::Task(_))));
        self.dropped.push(notifier);
    }
}

impl Wakes<Notifier> for Woken {
    fn settled(&mut self, notifier: Notifier) {
        self.tasks = self.tasks.saturating_add(u32::from(matches!(notifier, Notifier::Task(_))));
        self.notifiers.push(notifier);
    }

    fn rejected(&mut self, notifier: Notifier) {
        self.drop_later(notifier);
    }

    /// Wakes threads only: the wait of a task has not ended, and a timer watches for it.
    fn moved(&mut self, notifier: &Notifier) {
        if let Notifier::Thread(cancel) = notifier {
            self.notifiers.push(Notifier::Thread(Arc::clone(cancel)));
        }
    }

    /// Wakes tasks only: a thread wakes before its start by itself.
    fn roused(&mut self, notifier: &Notifier) {
        if let Notifier::Task(waker) = notifier {
            self.notifiers.push(Notifier::Task(waker.clone()));
        }
    }
}

impl Drop for Woken {
    fn drop(&mut self) {
        for notifier in self.notifiers.drain(..) {
            match notifier {
                Notifier::Task(waker) => quietly(|| waker.wake()),
                Notifier::Thread(cancel) => cancel.cancel(),
            }
        }
        for notifier in self.dropped.drain(..) {
            quietly(|| drop(notifier));
        }
    }
}

/// The end of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Collected {
    /// The waiter starts at the instant that the grant states.
    Taken(Grant),
    Ended(Outcome),
}

/// The state behind a limiter's lock.
#[derive(Debug)]
pub(crate) struct State<L> {
    pub(crate) limit: L,
    /// Absent until a caller waits, or configures the queue.
    waits: Option<Box<WaitQueue<L>>>,
}

/// A limit's wait queue, and what the timer of its tasks needs to know.
#[derive(Debug)]
struct WaitQueue<L> {
    queue: Queue<Notifier, L>,
    /// The number of waiters that are tasks. Threads wake themselves.
    tasks: u32,
    /// The instant at which the tasks' timer will serve the queue, and the process that set it.
    armed_ns: u64,
    armed_in: u32,
    lead: Lead,
    /// The time that waiters leave their callers to read a clock.
    margin_ns: u64,
    /// The first waiter, and the next end of a hold that it knows.
    known_end: Option<(u32, u64)>,
}

impl<L: Provisional> Default for WaitQueue<L> {
    fn default() -> Self {
        Self {
            queue: Queue::new(QueueBounds::default()),
            tasks: 0,
            armed_ns: u64::MAX,
            armed_in: 0,
            lead: Lead::default(),
            margin_ns: 0,
            known_end: None,
        }
    }
}

/// The limit and its wait queue, as the thread sees them that has the lock.
pub(crate) struct CriticalSection<'a, L> {
    state: &'a mut State<L>,
    woken: &'a mut Woken,
    pub(crate) now_ns: u64,
    /// `true` if the clock advances by itself.
    is_real_time: bool,
}

impl<L: Concurrent> State<L> {
    pub(crate) const fn new(limit: L) -> Self {
        Self { limit, waits: None }
    }

    /// Returns when the head of the queue is roused, where tasks are woken before their starts.
    ///
    /// They are not on a clock that does not advance by itself.
    fn rousing(&self, is_real_time: bool) -> Option<Rousing> {
        let waits = self.waits.as_ref().filter(|_| is_real_time)?;
        let loses = waits.queue.takes(&self.limit) && self.limit.slack_ns() < EARLY_NS;
        loses.then(|| waits.lead.rousing())
    }

    /// Returns when the timer of the tasks has to serve the queue.
    fn next_ns(&self, is_real_time: bool) -> Option<u64> {
        let queue = &self.waits.as_ref()?.queue;
        let end_ns = self.limit.next_end_ns().filter(|_| !queue.is_empty());
        let next_ns = queue.next_ns_with(self.rousing(is_real_time));
        [next_ns, end_ns].into_iter().flatten().min()
    }

    /// Wakes the thread that waits first, if it does not know which hold ends next: it has to
    /// serve the queue then.
    pub(crate) fn notify_first(&mut self, woken: &mut Woken) {
        let Some(waits) = &mut self.waits else { return };
        let end_ns = self.limit.next_end_ns();
        let next = end_ns.and_then(|end_ns| Some((waits.queue.first_slot()?, end_ns)));
        if replace(&mut waits.known_end, next) != next && next.is_some() {
            waits.queue.move_first(woken);
        }
    }

    /// Returns `true` if there are waiters, or grants that have not reached theirs.
    pub(crate) fn is_queued(&self, now_ns: u64) -> bool {
        self.waits.as_ref().is_some_and(|waits| !waits.queue.is_idle(now_ns))
    }

    /// Returns the outcome of a wait, once.
    pub(crate) fn collect(&mut self, waiter_slot: &WaiterId) -> Option<Outcome> {
        self.waits.as_mut()?.queue.collect(waiter_slot)
    }

    /// Leaves a waiter slot where that needs no service of the queue.
    ///
    /// Drop the returned waker when the lock is free.
    pub(crate) fn leave_from_behind(&mut self, waiter_slot: &WaiterId) -> Option<Notifier> {
        let waits = self.waits.as_mut()?;
        let notifier = waits.queue.leave_from_behind(waiter_slot)?;
        waits.tasks = waits.tasks.saturating_sub(u32::from(matches!(notifier, Notifier::Task(_))));
        Some(notifier)
    }

    /// Records that a task of this process waits.
    ///
    /// A timer that the parent has set does not run in a forked child.
    fn note_task_waiting(&mut self) {
        let (here, waits) = (process::id(), self.waits.get_or_insert_default());
        if replace(&mut waits.armed_in, here) != here {
            waits.armed_ns = u64::MAX;
        }
    }

    /// Returns `true` if the tasks' timer has to be set anew, at the end of a critical section.
    pub(crate) fn must_arm(&mut self, woken: &Woken, is_real_time: bool) -> bool {
        let next_ns = self.next_ns(is_real_time);
        let Some(waits) = &mut self.waits else { return false };
        waits.tasks = waits.tasks.saturating_sub(woken.tasks);
        // A task that was woken just now may never come: threads behind it wake when its grace
        // period ends.
        let next_ns = next_ns.filter(|_| waits.tasks > 0 || woken.tasks > 0);
        let Some(next_ns) = next_ns.filter(|&next_ns| next_ns < waits.armed_ns) else {
            return false;
        };
        waits.armed_ns = next_ns;
        true
    }

    /// Returns the number of waiters.
    pub(crate) fn waiting(&self) -> u32 {
        self.waits.as_ref().map_or(0, |waits| waits.queue.waiting())
    }

    /// Returns `true` if no waiter waits for its start.
    pub(crate) fn is_queue_empty(&self) -> bool {
        self.waits.as_ref().is_none_or(|waits| waits.queue.is_empty())
    }

    /// Returns the limit and its wait queue, which is made if there is none.
    fn with_queue(&mut self) -> (&mut L, &mut WaitQueue<L>) {
        (&mut self.limit, self.waits.get_or_insert_default())
    }
}

impl<'a, L: Concurrent> CriticalSection<'a, L> {
    pub(crate) fn new(state: &'a mut State<L>, woken: &'a mut Woken, now_ns: u64) -> Self {
        let now_ns = state.limit.clamp(now_ns);
        Self { state, woken, now_ns, is_real_time: false }
    }

    /// Returns this critical section on `clock`, which may advance by itself.
    pub(crate) fn on(self, clock: &impl Clock) -> Self {
        Self { is_real_time: clock.is_real_time(), ..self }
    }

    /// Returns the limit as it is.
    pub(crate) fn limit(&self) -> &L {
        &self.state.limit
    }

    /// Grants the permits of all waiters whose starts have come.
    pub(crate) fn serve(&mut self) {
        self.end_holds();
        if let State { limit, waits: Some(waits) } = &mut *self.state {
            waits.queue.serve(limit, self.now_ns, self.woken);
        }
    }

    /// Ends the holds whose time is over, to the benefit of all waiters.
    fn end_holds(&mut self) {
        let now_ns = self.now_ns;
        if self.state.limit.next_end_ns().is_some_and(|end_ns| end_ns <= now_ns) {
            self.change(Limit::end_holds);
        }
    }

    /// Ends a hold of a caller of this class, which turned out to cost `actual` permits.
    pub(crate) fn commit(
        &mut self,
        class: ClassId,
        hold: Hold,
        actual: u64,
        debt: Debt,
    ) -> Committed {
        if actual > hold.permits {
            // The queue records what the class owes, even where other classes come later.
            self.state.with_queue();
        }
        self.change_with(|limit, queue, now_ns| {
            let committed = limit.commit(now_ns, hold, actual, debt);
            if let Some(queue) = queue {
                queue.settle(class, hold.permits, actual);
            }
            committed
        })
    }

    /// Holds the permits of a grant of this critical section, if its caller wants that.
    pub(crate) fn hold_granted(&mut self, grant: &Grant, estimate: Option<&Estimate>) {
        if let Some(Estimate { ttl_ns, held }) = estimate {
            let end_ns = grant.start_ns.saturating_add(*ttl_ns);
            held.set(Some(self.state.limit.hold_grant(self.now_ns, grant, end_ns)));
        }
    }

    /// Holds the permits of a wait that has ended in a grant, if its caller wants that.
    pub(crate) fn hold_collected(&mut self, collected: &Collected, estimate: Option<&Estimate>) {
        if let Collected::Taken(grant) | Collected::Ended(Outcome::Granted(grant)) = collected {
            self.hold_granted(grant, estimate);
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
    pub(crate) fn behind_all<T>(&mut self, decide: impl FnOnce(&mut L, u64) -> T) -> Option<T> {
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
        decide: impl FnOnce(&mut L, u64) -> Result<T, E>,
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
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut L, u64) -> T) -> T {
        self.change_with(|limit, _, now_ns| change(limit, now_ns))
    }

    /// Changes the limit together with its wait queue, if there is one.
    fn change_with<T>(
        &mut self,
        change: impl FnOnce(&mut L, Option<&mut Queue<Notifier, L>>, u64) -> T,
    ) -> T {
        let State { limit, waits } = &mut *self.state;
        let Some(waits) = waits else { return change(limit, None, self.now_ns) };
        waits.queue.unbook(limit, self.now_ns);
        let changed = change(limit, Some(&mut waits.queue), self.now_ns);
        waits.queue.serve(limit, self.now_ns, self.woken);
        changed
    }

    /// Refunds permits of a grant, to the benefit of all waiters and of the class that had them.
    pub(crate) fn refund(&mut self, class: ClassId, grant: &Grant, permits: u64) -> u64 {
        self.change_with(|limit, queue, now_ns| {
            let back = limit.refund(now_ns, grant, permits);
            // A class without waiters can only be charged more.
            if let Some(queue) = queue {
                queue.settle(class, back, 0);
            }
            back
        })
    }

    /// Corrects an estimate of a caller of this class.
    pub(crate) fn settle(
        &mut self,
        class: ClassId,
        grant: &Grant,
        actual: u64,
        debt: Debt,
    ) -> Result<Settled, CountsInFlight> {
        if actual > grant.permits {
            // The queue records what the class owes, even where other classes come later.
            self.state.with_queue();
        }
        self.change_with(|limit, queue, now_ns| {
            let settled = limit.settle(now_ns, grant, actual, debt);
            if let Some(queue) = queue.filter(|_| settled.is_ok()) {
                queue.settle(class, grant.permits, actual);
            }
            settled
        })
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
        let State { limit, waits } = &*self.state;
        waits.as_ref().map_or_else(|| !limit.keeps_schedule(), |waits| waits.queue.takes(limit))
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
