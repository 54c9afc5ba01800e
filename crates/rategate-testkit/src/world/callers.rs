//! Closed loops: the threads of a world's callers.

use std::fmt::Write as _;

use rategate_core::verdict::{Grant, Verdict};

use super::{Event, World, requested};
use crate::report::{Operation, Outcome, Sleep};
use crate::scenario::{CallMode, Caller, Gate, Ns};
use crate::text::milliseconds;
use crate::wait_queue::{Requester, Waiter};

pub(super) struct Thread<'s> {
    pub(super) caller: &'s Caller,
    /// The number of operations begun or given up.
    begun: u64,
    /// `true` while the work of an operation is in progress.
    working: bool,
    /// The grant that it sleeps for.
    grant: Option<Grant>,
    /// The instant of the request that it waits for.
    requested_ns: u64,
    queued: Option<Queued>,
}

/// A thread in the wait queue.
struct Queued {
    /// The number of the event that wakes it, if it sleeps by a clock.
    wake: Option<u64>,
    /// The instant until which it sleeps.
    until_ns: u64,
}

impl<'s> Thread<'s> {
    pub(super) const fn new(caller: &'s Caller) -> Self {
        Self { caller, begun: 0, working: false, grant: None, requested_ns: 0, queued: None }
    }
}

impl World<'_> {
    /// Continues a thread that begins, or that has done its work.
    pub(super) fn ready(&mut self, index: usize) {
        let thread = &mut self.threads[index];
        let caller = thread.caller;
        let worked = std::mem::take(&mut thread.working);
        let (begun, more) = (thread.begun, thread.begun < caller.operations);
        if worked {
            self.release(caller.permits);
        }
        match caller.gate {
            Gate::Before if more => self.request(index),
            // With the gate after the work, a thread's first operation has nothing before it.
            Gate::After if worked || begun > 0 => self.request(index),
            Gate::After if more => {
                let now_ns = self.now_ns;
                self.begin(index, now_ns, now_ns, now_ns);
            }
            Gate::Before | Gate::After => {}
        }
    }

    fn request(&mut self, index: usize) {
        let thread = &mut self.threads[index];
        thread.requested_ns = self.now_ns;
        if thread.caller.call == CallMode::Wait || self.limits.takes() {
            let Caller { permits, class, .. } = *thread.caller;
            return self.join_queue(Requester::Thread(index), permits, class);
        }
        if !self.waiting.is_empty() || !self.try_thread(index) {
            self.waiting.push_back(Requester::Thread(index));
        }
    }

    /// Returns `true` if the thread need not wait.
    pub(super) fn try_thread(&mut self, index: usize) -> bool {
        let thread = &mut self.threads[index];
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
        if let Some(grant) = self.threads[index].grant {
            self.sleep_until(index, grant.start_ns);
        }
    }

    /// Sleeps until a reading of the clock, as exactly as sleeps are. Returns the number of the
    /// waking event.
    fn sleep_until(&mut self, index: usize, until_ns: u64) -> u64 {
        let requested_ns = until_ns.saturating_sub(self.now_ns);
        let error_ns = self.next_sleep_error_ns();
        let slept_ns = i128::from(requested_ns).saturating_add(error_ns).max(0);
        let slept_ns = u64::try_from(slept_ns).unwrap_or(u64::MAX);
        self.happened.sleeps.push(Sleep {
            caller: index as u64,
            at_ns: self.now_ns,
            requested_ns,
            slept_ns,
        });
        // A string takes whatever is written.
        let _ = write!(self.happened.tape, "[z*{}]", milliseconds(slept_ns));
        // A sleep of no time at all would repeat for ever, so such a caller spins.
        let spins = slept_ns == 0 && !self.carries_early_wakes;
        let wake = Event::Wake { thread: index };
        let until_ns = if spins { until_ns } else { self.now_ns.saturating_add(slept_ns) };
        self.cause_at_reading(until_ns, wake);
        self.caused
    }

    /// Returns the programmed error of the next sleep.
    pub(super) fn next_sleep_error_ns(&mut self) -> i128 {
        let errors = &self.scenario.sleep_error_ns;
        self.sleeps += 1;
        if errors.is_empty() { 0 } else { errors[(self.sleeps - 1) % errors.len()] }
    }

    /// Sleeps until the start that its queue position has as things stand. A thread that
    /// requested a wait is woken instead.
    pub(super) fn sleep_queued(&mut self, index: usize) {
        let thread = &mut self.threads[index];
        thread.queued = Some(Queued { wake: None, until_ns: u64::MAX });
        if thread.caller.call == CallMode::Wait {
            return;
        }
        let waiter = Waiter::Requester(Requester::Thread(index));
        let Some(due_ns) = self.limits.due_ns(waiter) else { return };
        let wake = self.sleep_until(index, due_ns);
        self.threads[index].queued = Some(Queued { wake: Some(wake), until_ns: due_ns });
    }

    /// Wakes a queued thread whose start may have moved to before the one that it sleeps for.
    pub(super) fn wake_if_sooner(&mut self, index: usize) {
        let queued = self.threads[index].queued.as_ref();
        let until_ns = queued.map_or(0, |queued| queued.until_ns);
        let due_ns = self.limits.due_ns(Waiter::Requester(Requester::Thread(index)));
        if due_ns.is_some_and(|due_ns| due_ns < until_ns) {
            self.sleep_queued(index);
        }
    }

    /// Returns `true` if a queued thread will wake by itself.
    pub(super) fn sleeps_queued(&self, index: usize) -> bool {
        let queued = self.threads[index].queued.as_ref();
        queued.is_some_and(|queued| queued.wake.is_some())
    }

    /// Returns `true` if the wake-up with this number has been replaced by another one.
    pub(super) fn is_stale_wake(&self, index: usize, number: u64) -> bool {
        let thread = &self.threads[index];
        match &thread.queued {
            Some(queued) => queued.wake != Some(number),
            None => thread.grant.is_none(),
        }
    }

    pub(super) fn leave_queue(&mut self, index: usize) {
        self.threads[index].queued = None;
    }

    pub(super) fn wake(&mut self, index: usize) {
        let thread = &self.threads[index];
        if thread.queued.is_some() {
            return self.take(Requester::Thread(index));
        }
        let Some(grant) = thread.grant else { return };
        if self.now_ns >= grant.start_ns {
            self.pass(index);
        } else if self.carries_early_wakes {
            self.limits.start_early(self.now_ns, grant.ticket);
            self.pass(index);
        } else {
            self.sleep(index);
        }
    }

    /// Passes a thread that has reached the head of the queue.
    pub(super) fn pass_with(&mut self, index: usize, grant: Grant) {
        self.threads[index].grant = Some(grant);
        self.pass(index);
    }

    /// Passes a thread through the gate.
    fn pass(&mut self, index: usize) {
        let thread = &mut self.threads[index];
        let Some(grant) = thread.grant.take() else { return };
        let (requested_ns, caller) = (thread.requested_ns, thread.caller);
        let more = thread.begun < caller.operations;
        // It starts now, whatever the grant says.
        let started_ns =
            if self.limits.takes() { self.limits.clamp(self.now_ns) } else { self.now_ns };
        self.happened.grants.push((started_ns, caller.permits));
        // Callers that wait after the work do so after the last operation too, and begin no
        // other.
        if more {
            self.begin(index, requested_ns, grant.scheduled_ns, grant.promised_ns);
        }
    }

    fn begin(&mut self, index: usize, arrival_ns: u64, scheduled_ns: u64, promised_ns: u64) {
        let thread = &mut self.threads[index];
        let latencies = &thread.caller.latency;
        let Ns(latency_ns) = latencies[(thread.begun % latencies.len() as u64) as usize];
        let end_ns = self.now_ns.saturating_add(latency_ns);
        thread.begun += 1;
        thread.working = true;
        let permits = thread.caller.permits;
        self.happened.tape.push('@');
        self.happened.operations.push(Operation {
            scheduled_ns: Some(scheduled_ns),
            promised_ns: Some(promised_ns),
            start_ns: Some(self.now_ns),
            end_ns: Some(end_ns),
            ..requested(index, arrival_ns, permits, Outcome::Granted)
        });
        self.cause(self.true_ns.saturating_add(latency_ns), Event::Ready { thread: index });
    }

    pub(super) fn refused(&mut self, index: usize, outcome: Outcome) {
        self.give_up(index, outcome);
        // The next operation may be requested at once; one fewer is left.
        let thread = &self.threads[index];
        if thread.begun < thread.caller.operations {
            self.cause(self.true_ns, Event::Ready { thread: index });
        }
    }

    pub(super) fn give_up(&mut self, index: usize, outcome: Outcome) {
        let thread = &mut self.threads[index];
        if thread.begun >= thread.caller.operations {
            return;
        }
        thread.begun += 1;
        let operation = requested(index, thread.requested_ns, thread.caller.permits, outcome);
        self.happened.operations.push(operation);
    }
}
