//! The callers and arrivals of a world that wait in the queue.

use rategate_core::fair::ClassId;
use rategate_core::queue::{Outcome as Ended, Request};
use rategate_core::verdict::Grant;

use super::{Event, Subject, World};
use crate::line::{Asker, Waiter, Wake};
use crate::report::Outcome;
use crate::scenario::Asks;
use crate::steps::Answer;

impl<L: Subject> World<'_, L> {
    pub(super) fn stand_in_line(&mut self, asker: Asker, permits: u64, class: ClassId) {
        let request = Request::of(permits).in_class(class);
        match self.limits.wait(self.now_ns, request, Waiter::Asker(asker)) {
            Ok(Some(grant)) => self.granted(asker, grant),
            Ok(None) => match asker {
                Asker::Thread(thread) => self.sleep_in_line(thread),
                Asker::Arrival(operation) if self.asks_of(operation) == Some(Asks::Wait) => {
                    self.end_arrival(operation, Outcome::Waiting);
                }
                Asker::Arrival(_) => {}
            },
            Err(turned) => self.turned_away(asker, Answer::turned(turned).outcome),
        }
    }

    /// Notifies every waiter that has been woken.
    pub(super) fn tell_woken(&mut self) {
        let mut told = self.limits.told();
        while !told.is_empty() {
            for (waiter, wake) in told {
                match (waiter, wake) {
                    (Waiter::Step(step), Wake::Ended(outcome)) => self.step_ended(step, outcome),
                    // A step is never late.
                    (Waiter::Step(step), Wake::Due) => {
                        if let Some(outcome) = self.limits.take(self.now_ns, waiter) {
                            self.step_ended(step, outcome);
                        }
                    }
                    (Waiter::Asker(asker), Wake::Ended(outcome)) => self.ended(asker, outcome),
                    (Waiter::Asker(asker), Wake::Due) => self.wake_in_line(asker),
                    (Waiter::Asker(Asker::Thread(thread)), Wake::Moved) => {
                        self.wake_if_sooner(thread);
                    }
                    (Waiter::Step(_) | Waiter::Asker(Asker::Arrival(_)), Wake::Moved) => {}
                }
            }
            self.serve_waiting();
            told = self.limits.told();
        }
    }

    fn step_ended(&mut self, step: usize, outcome: Ended) {
        let now_ns = self.limits.clamp(self.now_ns);
        self.steps.wait_ended(step, outcome, now_ns, &mut self.happened.grants);
    }

    fn ended(&mut self, asker: Asker, outcome: Ended) {
        if let Asker::Thread(thread) = asker {
            self.no_longer_in_line(thread);
        }
        match outcome {
            Ended::Granted(grant) => self.granted(asker, grant),
            _ => self.turned_away(asker, Answer::ended(outcome).outcome),
        }
    }

    /// Wakes a waiter whose start has come. A sleeping one wakes by itself; all others are woken
    /// as late as sleeps are.
    fn wake_in_line(&mut self, asker: Asker) {
        if matches!(asker, Asker::Thread(thread) if self.sleeps_in_line(thread)) {
            return;
        }
        let error_ns = self.next_sleep_error_ns();
        let late_ns = u64::try_from(error_ns.max(0)).unwrap_or(u64::MAX);
        if late_ns == 0 {
            self.take(asker);
        } else {
            self.cause(self.true_ns.saturating_add(late_ns), Event::Take { asker });
        }
    }

    /// Takes the permits of a waiter, if its start has come.
    pub(super) fn take(&mut self, asker: Asker) {
        match self.limits.take(self.now_ns, Waiter::Asker(asker)) {
            Some(outcome) => self.ended(asker, outcome),
            None => {
                if let Asker::Thread(thread) = asker {
                    self.sleep_in_line(thread);
                }
            }
        }
    }

    fn granted(&mut self, asker: Asker, grant: Grant) {
        match asker {
            Asker::Thread(thread) => self.pass_with(thread, grant),
            Asker::Arrival(operation) => self.promise_arrival(operation, grant),
        }
    }

    fn turned_away(&mut self, asker: Asker, outcome: Outcome) {
        match asker {
            Asker::Thread(thread) => self.refused(thread, outcome),
            Asker::Arrival(operation) => self.end_arrival(operation, outcome),
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
