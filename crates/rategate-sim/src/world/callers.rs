//! Closed loops: what the threads of a world's callers do.

use rategate_core::verdict::{Grant, Verdict};

use super::{Event, Subject, World};
use crate::line::Asker;
use crate::report::{Operation, Outcome, Sleep};
use crate::scenario::{Asks, Caller, Gate};

pub(super) struct Thread<'s> {
    pub(super) caller: &'s Caller,
    /// Operations begun or given up.
    begun: u64,
    /// Whether an operation's work is being done.
    working: bool,
    /// What it sleeps for.
    grant: Option<Grant>,
    /// When it asked for what it waits for.
    asked_ns: u64,
}

impl<'s> Thread<'s> {
    pub(super) const fn new(caller: &'s Caller) -> Self {
        Self { caller, begun: 0, working: false, grant: None, asked_ns: 0 }
    }
}

impl<L: Subject> World<'_, L> {
    /// A thread begins, or has done its work.
    pub(super) fn ready(&mut self, index: usize) {
        let Some(thread) = self.threads.get_mut(index) else { return };
        let caller = thread.caller;
        let worked = std::mem::take(&mut thread.working);
        let (begun, more) = (thread.begun, thread.begun < caller.operations);
        if worked {
            self.release(caller.permits);
        }
        match caller.gate {
            Gate::Before if more => self.ask(index),
            // The first operation of a thread that asks afterwards has nothing before it.
            Gate::After if worked || begun > 0 => self.ask(index),
            Gate::After if more => {
                let now_ns = self.now_ns;
                self.begin(index, now_ns, now_ns);
            }
            Gate::Before | Gate::After => {}
        }
    }

    fn ask(&mut self, index: usize) {
        let Some(thread) = self.threads.get_mut(index) else { return };
        thread.asked_ns = self.now_ns;
        if thread.caller.asks == Asks::Wait {
            let Caller { permits, class, .. } = *thread.caller;
            return self.stand_in_line(Asker::Thread(index), permits, class);
        }
        if !self.waiting.is_empty() || !self.try_thread(index) {
            self.waiting.push_back(Asker::Thread(index));
        }
    }

    /// Whether the thread need not stand in line.
    pub(super) fn try_thread(&mut self, index: usize) -> bool {
        let Some(thread) = self.threads.get_mut(index) else { return true };
        match self.limits.reserve(self.now_ns, thread.caller.permits, None) {
            Ok(Verdict::Granted(grant)) => {
                thread.grant = Some(grant);
                if grant.start_ns <= self.now_ns { self.pass(index) } else { self.sleep(index) }
            }
            Ok(Verdict::Denied(denial)) if denial.retry_after_ns.is_none() => return false,
            Ok(Verdict::Denied(_)) => self.refused(index, Outcome::Denied),
            Err(_) => self.refused(index, Outcome::Never),
        }
        true
    }

    fn sleep(&mut self, index: usize) {
        let Some(grant) = self.threads.get(index).and_then(|thread| thread.grant) else { return };
        let asked_ns = grant.start_ns.saturating_sub(self.now_ns);
        let errors = &self.scenario.sleep_error_ns;
        let error_ns = self.sleeps.checked_rem(errors.len()).and_then(|which| errors.get(which));
        self.sleeps = self.sleeps.saturating_add(1);
        let slept_ns = i128::from(asked_ns).saturating_add(error_ns.copied().unwrap_or(0)).max(0);
        let slept_ns = u64::try_from(slept_ns).unwrap_or(u64::MAX);
        self.happened.sleeps.push(Sleep {
            caller: u64::try_from(index).unwrap_or(u64::MAX),
            at_ns: self.now_ns,
            asked_ns,
            slept_ns,
        });
        self.happened.tape.sleep(slept_ns);
        // A sleep that takes no time at all would be repeated for ever; such a caller spins.
        let spins = slept_ns == 0 && !self.carries_early_wakes;
        let wake = Event::Wake { thread: index };
        let until_ns = if spins { grant.start_ns } else { self.now_ns.saturating_add(slept_ns) };
        self.cause_at_reading(until_ns, wake);
    }

    pub(super) fn wake(&mut self, index: usize) {
        let Some(grant) = self.threads.get(index).and_then(|thread| thread.grant) else { return };
        if self.now_ns >= grant.start_ns {
            self.pass(index);
        } else if self.carries_early_wakes {
            self.limits.start_early(self.now_ns, grant.ticket);
            self.pass(index);
        } else {
            self.sleep(index);
        }
    }

    /// A thread has come to the front of the line.
    pub(super) fn pass_with(&mut self, index: usize, grant: Grant) {
        if let Some(thread) = self.threads.get_mut(index) {
            thread.grant = Some(grant);
        }
        self.pass(index);
    }

    /// A thread has got through the gate.
    fn pass(&mut self, index: usize) {
        let Some(thread) = self.threads.get_mut(index) else { return };
        let Some(grant) = thread.grant.take() else { return };
        let (asked_ns, caller) = (thread.asked_ns, thread.caller);
        let more = thread.begun < caller.operations;
        // Granted for that instant; a pacer's early riser starts at once.
        let granted_ns = grant.start_ns.min(self.now_ns);
        self.happened.grants.push((granted_ns, caller.permits));
        // Behind its last operation a caller asks too, and has nothing more to do.
        if more {
            self.begin(index, asked_ns, grant.scheduled_ns);
        }
    }

    fn begin(&mut self, index: usize, arrival_ns: u64, scheduled_ns: u64) {
        let Some(thread) = self.threads.get_mut(index) else { return };
        let latencies = &thread.caller.latency_ns;
        let cycle = u64::try_from(latencies.len()).unwrap_or(1);
        let which = usize::try_from(thread.begun.checked_rem(cycle).unwrap_or(0)).unwrap_or(0);
        let latency_ns = latencies.get(which).copied().unwrap_or(0);
        let end_ns = self.now_ns.saturating_add(latency_ns);
        thread.begun = thread.begun.saturating_add(1);
        thread.working = true;
        let permits = thread.caller.permits;
        self.happened.tape.operation();
        self.happened.operations.push(Operation {
            caller: u64::try_from(index).unwrap_or(u64::MAX),
            arrival_ns,
            scheduled_ns: Some(scheduled_ns),
            start_ns: Some(self.now_ns),
            end_ns: Some(end_ns),
            permits,
            outcome: Outcome::Granted,
        });
        self.cause(self.true_ns.saturating_add(latency_ns), Event::Ready { thread: index });
    }

    pub(super) fn refused(&mut self, index: usize, outcome: Outcome) {
        self.give_up(index, outcome);
        // The next operation may ask at once; it is one fewer.
        let more =
            self.threads.get(index).is_some_and(|thread| thread.begun < thread.caller.operations);
        if more {
            self.cause(self.true_ns, Event::Ready { thread: index });
        }
    }

    pub(super) fn give_up(&mut self, index: usize, outcome: Outcome) {
        let Some(thread) = self.threads.get_mut(index) else { return };
        if thread.begun >= thread.caller.operations {
            return;
        }
        thread.begun = thread.begun.saturating_add(1);
        let operation = Operation {
            caller: u64::try_from(index).unwrap_or(u64::MAX),
            arrival_ns: thread.asked_ns,
            scheduled_ns: None,
            start_ns: None,
            end_ns: None,
            permits: thread.caller.permits,
            outcome,
        };
        self.happened.operations.push(operation);
    }
}
