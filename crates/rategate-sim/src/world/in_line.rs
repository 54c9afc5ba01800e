//! Who of a world's callers and arrivals waits in line, and what becomes of him.

use rategate_core::fair::ClassId;
use rategate_core::queue::{Outcome as Ended, Request};
use rategate_core::verdict::Grant;

use super::{Event, Subject, World};
use crate::line::{Asker, Waiter};
use crate::report::Outcome;
use crate::steps::Answer;

impl<L: Subject> World<'_, L> {
    pub(super) fn stand_in_line(&mut self, asker: Asker, permits: u64, class: ClassId) {
        let request = Request::of(permits).in_class(class);
        match self.limits.wait(self.now_ns, request, Waiter::Asker(asker)) {
            Ok(Some(grant)) => self.granted(asker, grant),
            Ok(None) => {
                if let Asker::Arrival(operation) = asker {
                    self.end_arrival(operation, Outcome::Waiting);
                }
            }
            Err(turned) => self.turned_away(asker, Answer::turned(turned).outcome),
        }
    }

    /// Tells all whose waits have ended.
    pub(super) fn tell_ended(&mut self) {
        let mut ended = self.limits.ended();
        while !ended.is_empty() {
            for (waiter, outcome) in ended {
                match (waiter, outcome) {
                    (Waiter::Step(step), _) => {
                        let now_ns = self.limits.clamp(self.now_ns);
                        self.steps.wait_ended(step, outcome, now_ns, &mut self.happened.grants);
                    }
                    (Waiter::Asker(asker), Ended::Granted(grant)) => self.granted(asker, grant),
                    (Waiter::Asker(asker), _) => {
                        self.turned_away(asker, Answer::ended(outcome).outcome);
                    }
                }
            }
            self.serve_waiting();
            ended = self.limits.ended();
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

    /// Has the line served when somebody in it is due.
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
