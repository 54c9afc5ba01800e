//! The state behind a limiter's lock: the limit, and those that wait for it once there are any.

use std::mem::replace;
use std::process;

use rategate_core::all_of::AllOf;
use rategate_core::ledger::Ledger;
use rategate_core::line::{Line, Outcome, QueueBounds, Rousing, WaiterId};

use super::woken::{Notifier, Woken};
use crate::clock::wait::EARLY_NS;
use crate::lead::Lead;

/// The state behind a limiter's lock.
#[derive(Debug)]
pub(crate) enum State {
    /// Until a caller waits, or configures the line.
    Alone(Box<Ledger>),
    InLine(Box<Waits>),
}

/// A limit's line, and what the timer of its tasks needs to know.
#[derive(Debug)]
pub(crate) struct Waits {
    pub(super) line: Line<Notifier>,
    /// The number of waiters that are tasks. Threads wake themselves.
    pub(super) tasks: u32,
    /// The instant at which the tasks' timer will serve the line, and the process that set it.
    pub(super) armed_ns: u64,
    pub(super) armed_in: u32,
    pub(super) lead: Lead,
    /// The time that waiters leave their callers to read a clock.
    pub(super) margin_ns: u64,
}

impl State {
    pub(crate) fn new(limit: Ledger) -> Self {
        Self::Alone(Box::new(limit))
    }

    /// Returns the limit as it is.
    pub(crate) fn limit(&self) -> &Ledger {
        match self {
            Self::Alone(limit) => limit,
            Self::InLine(waits) => waits.line.limit(),
        }
    }

    /// Returns the limit, for what moves no start.
    pub(crate) fn limit_mut(&mut self) -> &mut Ledger {
        match self {
            Self::Alone(limit) => limit,
            Self::InLine(waits) => waits.line.limit_mut(),
        }
    }

    pub(crate) fn into_limit(self) -> Ledger {
        match self {
            Self::Alone(limit) => *limit,
            Self::InLine(waits) => waits.line.into_limit(),
        }
    }

    pub(super) fn waits(&self) -> Option<&Waits> {
        match self {
            Self::Alone(_) => None,
            Self::InLine(waits) => Some(waits),
        }
    }

    pub(super) fn waits_mut(&mut self) -> Option<&mut Waits> {
        match self {
            Self::Alone(_) => None,
            Self::InLine(waits) => Some(waits),
        }
    }

    /// Returns the limit's line, which is made if there is none.
    pub(super) fn in_line(&mut self) -> &mut Waits {
        loop {
            match self {
                Self::InLine(waits) => return waits,
                Self::Alone(limit) => {
                    let limit = replace(&mut **limit, Ledger::new(AllOf::default(), 0));
                    *self = Self::InLine(Box::new(Waits::new(limit)));
                }
            }
        }
    }

    /// Returns when the head of the queue is roused, where tasks are woken before their starts.
    ///
    /// They are not on a clock that does not advance by itself.
    pub(super) fn rousing(&self, is_real_time: bool) -> Option<Rousing> {
        let waits = self.waits().filter(|_| is_real_time)?;
        let loses = waits.line.takes() && waits.line.limit().slack_ns() < EARLY_NS;
        loses.then(|| waits.lead.rousing())
    }

    /// Returns when the timer of the tasks has to serve the queue.
    pub(super) fn next_ns(&self, is_real_time: bool) -> Option<u64> {
        self.waits()?.line.next_ns(self.rousing(is_real_time))
    }

    /// Returns `true` if there are waiters, or grants that have not reached theirs.
    pub(crate) fn is_queued(&self, now_ns: u64) -> bool {
        self.waits().is_some_and(|waits| !waits.line.is_idle(now_ns))
    }

    /// Returns the outcome of a wait, once.
    pub(crate) fn collect(&mut self, waiter_slot: &WaiterId) -> Option<Outcome> {
        self.waits_mut()?.line.collect(waiter_slot)
    }

    /// Returns `true` if a wait has ended without permits.
    pub(crate) fn has_failed(&self, waiter_slot: &WaiterId) -> bool {
        let outcome = self.waits().and_then(|waits| waits.line.outcome(waiter_slot));
        outcome.is_some_and(|outcome| !matches!(outcome, Outcome::Granted(_)))
    }

    /// Leaves a waiter slot where that needs no service of the queue.
    ///
    /// Drop the returned waker when the lock is free.
    pub(crate) fn leave_from_behind(&mut self, waiter_slot: &WaiterId) -> Option<Notifier> {
        let waits = self.waits_mut()?;
        let notifier = waits.line.leave_from_behind(waiter_slot)?;
        waits.tasks = waits.tasks.saturating_sub(u32::from(matches!(notifier, Notifier::Task(_))));
        Some(notifier)
    }

    /// Records that a task of this process waits.
    ///
    /// A timer that the parent has set does not run in a forked child.
    pub(super) fn note_task_waiting(&mut self) {
        let (here, waits) = (process::id(), self.in_line());
        if replace(&mut waits.armed_in, here) != here {
            waits.armed_ns = u64::MAX;
        }
    }

    /// Returns `true` if the tasks' timer has to be set anew, at the end of a critical section. A
    /// thread that waits first learns there which hold ends next.
    pub(crate) fn must_arm(&mut self, woken: &mut Woken, is_real_time: bool) -> bool {
        if let Some(waits) = self.waits_mut() {
            waits.line.announce_end(woken);
        }
        let next_ns = self.next_ns(is_real_time);
        let Some(waits) = self.waits_mut() else { return false };
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
        match self {
            Self::Alone(limit) => !limit.keeps_schedule(),
            Self::InLine(waits) => waits.line.takes(),
        }
    }

    /// Returns the number of waiters.
    pub(crate) fn waiting(&self) -> u32 {
        self.waits().map_or(0, |waits| waits.line.waiting())
    }

    /// Returns `true` if no waiter waits for its start.
    pub(crate) fn is_queue_empty(&self) -> bool {
        self.waits().is_none_or(|waits| waits.line.is_empty())
    }
}

impl Waits {
    fn new(limit: Ledger) -> Self {
        Self {
            line: Line::new(limit, QueueBounds::default()),
            tasks: 0,
            armed_ns: u64::MAX,
            armed_in: 0,
            lead: Lead::default(),
            margin_ns: 0,
        }
    }
}
