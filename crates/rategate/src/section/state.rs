//! The state behind a limiter's lock: the limit, and its wait queue once there is one.

use std::mem::replace;
use std::process;

use rategate_core::ledger::Ledger;
use rategate_core::queue::{Outcome, Queue, QueueBounds, Rousing, WaiterId};

use super::woken::{Notifier, Woken};
use crate::clock::wait::EARLY_NS;
use crate::lead::Lead;

/// The state behind a limiter's lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) limit: Ledger,
    /// Absent until a caller waits, or configures the queue.
    pub(super) waits: Option<Box<WaitQueue>>,
}

impl State {
    pub(crate) const fn new(limit: Ledger) -> Self {
        Self { limit, waits: None }
    }

    /// Returns when the head of the queue is roused, where tasks are woken before their starts.
    ///
    /// They are not on a clock that does not advance by itself.
    pub(super) fn rousing(&self, is_real_time: bool) -> Option<Rousing> {
        let waits = self.waits.as_ref().filter(|_| is_real_time)?;
        let loses = waits.queue.takes(&self.limit) && self.limit.slack_ns() < EARLY_NS;
        loses.then(|| waits.lead.rousing())
    }

    /// Returns when the timer of the tasks has to serve the queue.
    pub(super) fn next_ns(&self, is_real_time: bool) -> Option<u64> {
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

    /// Returns `true` if a wait has ended without permits.
    pub(crate) fn has_failed(&self, waiter_slot: &WaiterId) -> bool {
        let outcome = self.waits.as_ref().and_then(|waits| waits.queue.outcome(waiter_slot));
        outcome.is_some_and(|outcome| !matches!(outcome, Outcome::Granted(_)))
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
    pub(super) fn note_task_waiting(&mut self) {
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

    /// Returns `true` if waiters take their own permits.
    pub(crate) fn takes(&self) -> bool {
        let Self { limit, waits } = self;
        waits.as_ref().map_or_else(|| !limit.keeps_schedule(), |waits| waits.queue.takes(limit))
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
    pub(super) fn with_queue(&mut self) -> (&mut Ledger, &mut WaitQueue) {
        (&mut self.limit, self.waits.get_or_insert_default())
    }
}

/// A limit's wait queue, and what the timer of its tasks needs to know.
#[derive(Debug)]
pub(super) struct WaitQueue {
    pub(super) queue: Queue<Notifier>,
    /// The number of waiters that are tasks. Threads wake themselves.
    pub(super) tasks: u32,
    /// The instant at which the tasks' timer will serve the queue, and the process that set it.
    pub(super) armed_ns: u64,
    pub(super) armed_in: u32,
    pub(super) lead: Lead,
    /// The time that waiters leave their callers to read a clock.
    pub(super) margin_ns: u64,
    /// The first waiter, and the next end of a hold that it knows.
    pub(super) known_end: Option<(u32, u64)>,
}

impl Default for WaitQueue {
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
