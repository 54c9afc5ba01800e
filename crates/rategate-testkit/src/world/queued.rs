//! The callers and arrivals of a world that wait in the queue.

use rategate_core::fair::ClassId;
use rategate_core::line::{Outcome as Ended, Request};
use rategate_core::verdict::Grant;

use super::{Event, World};
use crate::report::{Outcome, StepReport};
use crate::scenario::CallMode;
use crate::wait_queue::{Requester, Waiter, Wake};

impl World<'_> {
    pub(super) fn join_queue(&mut self, requester: Requester, permits: u64, class: ClassId) {
        let request = Request::of(permits).in_class(class);
        match self.limits.wait(self.now_ns, request, Waiter::Requester(requester)) {
            Ok(Some(grant)) => self.granted(requester, grant),
            Ok(None) => match requester {
                Requester::Thread(thread) => self.sleep_queued(thread),
                Requester::Arrival(operation) if self.call_mode_of(operation) == CallMode::Wait => {
                    self.end_arrival(operation, Outcome::Waiting);
                }
                Requester::Arrival(_) => {}
            },
            Err(turned) => self.rejected(requester, StepReport::rejected(turned).outcome),
        }
    }

    /// Notifies every waiter that has been woken.
    pub(super) fn notify_woken(&mut self) {
        let mut wakes = self.limits.wakes();
        while !wakes.is_empty() {
            for (waiter, wake) in wakes {
                match (waiter, wake) {
                    (Waiter::Step(step), Wake::Ended(outcome)) => self.step_ended(step, outcome),
                    // A step is never late.
                    (Waiter::Step(step), Wake::Due) => {
                        if let Some(outcome) = self.limits.take(self.now_ns, waiter) {
                            self.step_ended(step, outcome);
                        }
                    }
                    (Waiter::Requester(requester), Wake::Ended(outcome)) => {
                        self.ended(requester, outcome);
                    }
                    (Waiter::Requester(requester), Wake::Due) => self.wake_queued(requester),
                    (Waiter::Requester(Requester::Thread(thread)), Wake::Moved) => {
                        self.wake_if_sooner(thread);
                    }
                    (Waiter::Step(_) | Waiter::Requester(Requester::Arrival(_)), Wake::Moved) => {}
                }
            }
            self.serve_waiting();
            wakes = self.limits.wakes();
        }
    }

    fn step_ended(&mut self, step: usize, outcome: Ended) {
        let now_ns = self.limits.clamp(self.now_ns);
        let limits = (now_ns, &mut self.limits);
        self.steps.wait_ended(step, outcome, limits, &mut self.happened.grants);
    }

    fn ended(&mut self, requester: Requester, outcome: Ended) {
        if let Requester::Thread(thread) = requester {
            self.leave_queue(thread);
        }
        match outcome {
            Ended::Granted(grant) => self.granted(requester, grant),
            _ => self.rejected(requester, StepReport::ended(outcome).outcome),
        }
    }

    /// Wakes a waiter whose start has come. A sleeping one wakes by itself; all others are woken
    /// as late as sleeps are.
    fn wake_queued(&mut self, requester: Requester) {
        if matches!(requester, Requester::Thread(thread) if self.sleeps_queued(thread)) {
            return;
        }
        let error_ns = self.next_sleep_error_ns();
        let late_ns = u64::try_from(error_ns.max(0)).unwrap_or(u64::MAX);
        if late_ns == 0 {
            self.take(requester);
        } else {
            self.cause(self.true_ns.saturating_add(late_ns), Event::Take { requester });
        }
    }

    /// Takes the permits of a waiter, if its start has come.
    pub(super) fn take(&mut self, requester: Requester) {
        match self.limits.take(self.now_ns, Waiter::Requester(requester)) {
            Some(outcome) => self.ended(requester, outcome),
            None => {
                if let Requester::Thread(thread) = requester {
                    self.sleep_queued(thread);
                }
            }
        }
    }

    fn granted(&mut self, requester: Requester, grant: Grant) {
        match requester {
            Requester::Thread(thread) => self.pass_with(thread, grant),
            Requester::Arrival(operation) => self.promise_arrival(operation, grant),
        }
    }

    fn rejected(&mut self, requester: Requester, outcome: Outcome) {
        match requester {
            Requester::Thread(thread) => self.refused(thread, outcome),
            Requester::Arrival(operation) => self.end_arrival(operation, outcome),
        }
    }

    /// Schedules the next service of the queue for the instant at which a waiter is due.
    pub(super) fn arm(&mut self) {
        let next_ns = self.limits.next_ns();
        if next_ns == self.armed.map(|(armed_ns, _)| armed_ns) {
            return;
        }
        self.armed = next_ns.map(|next_ns| {
            self.cause_at_reading(next_ns, Event::Serve);
            (next_ns, self.caused)
        });
    }
}
