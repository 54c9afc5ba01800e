//! Explicit calls, carried out in file order on a clock that may go backwards.

use rategate_core::error::ExceedsCapacity;
use rategate_core::fair::ClassId;
use rategate_core::holds::{Committed, Hold, HoldVerdict};
use rategate_core::line::{Outcome as Ended, Request};
use rategate_core::policy::Ending;
use rategate_core::verdict::{Grant, Settled, Verdict};

use crate::named::{Granted, Held};
use crate::report::{Outcome, StepReport};
use crate::scenario::{Call, Ns, Scenario, Step};
use crate::wait_queue::{QueuedLimits, Waiter};

/// The steps of a scenario, and how far they have been carried out.
pub(crate) struct Steps<'s> {
    start_ns: u64,
    all: &'s [Step],
    to_come: std::slice::Iter<'s, Step>,
    /// The newest reading of the clock.
    seen_ns: u64,
    /// Each with its index among all grants.
    given: Granted<(Grant, usize)>,
    held: Held<(Hold, usize, ClassId)>,
    pub(crate) reports: Vec<StepReport>,
}

impl<'s> Steps<'s> {
    pub(crate) fn new(scenario: &'s Scenario) -> Self {
        Self {
            start_ns: scenario.clock_start_ns,
            all: &scenario.steps,
            to_come: scenario.steps.iter(),
            seen_ns: scenario.clock_start_ns,
            given: Granted::default(),
            held: Held::default(),
            reports: Vec::new(),
        }
    }

    /// Returns the clock's reading at the next step.
    pub(crate) fn next_at_ns(&self) -> Option<u64> {
        let next = self.to_come.as_slice().first()?;
        Some(self.start_ns.saturating_add(next.at_ns))
    }

    /// Starts every waiter whose start has come by the next step, if waiters take their permits
    /// or the step refers to a grant. Returns `true` if the woken waiters are to be reported
    /// first.
    pub(crate) fn serve_before(&self, limits: &mut QueuedLimits) -> bool {
        let next = self.to_come.as_slice().first();
        let comes_first = |next: &&Step| limits.takes() || next.call.is_about_a_grant();
        let Some(next) = next.filter(comes_first) else { return false };
        limits.serve(self.seen_ns.max(self.start_ns.saturating_add(next.at_ns)));
        true
    }

    /// Carries out the next step. Returns `true` if a waiter may now be served.
    pub(crate) fn carry_out(
        &mut self,
        limits: &mut QueuedLimits,
        grants: &mut Vec<(u64, u64)>,
    ) -> bool {
        let Some(step) = self.to_come.next() else { return false };
        let reading_ns = self.start_ns.saturating_add(step.at_ns);
        self.seen_ns = limits.clamp(self.seen_ns.max(reading_ns));
        let now_ns = self.seen_ns;
        let before = limits.remaining(now_ns);
        let (call, permits, answer) = self.call(step, now_ns, limits, grants);
        let remaining = match step.call {
            Call::Peek { .. } => before,
            _ => limits.remaining(now_ns),
        };
        let (at_ns, outcome) = (step.at_ns, answer.outcome);
        let wait_ns = answer.wait();
        let answer = answer.at(|instant_ns| instant_ns.saturating_sub(self.start_ns));
        self.reports.push(StepReport { at_ns, call, permits, wait_ns, remaining, ..answer });
        matches!(outcome, Outcome::Set | Outcome::Cancelled | Outcome::Committed)
    }

    /// Records how the wait of a step has ended.
    pub(crate) fn wait_ended(
        &mut self,
        step: usize,
        ended: Ended,
        (now_ns, limits): (u64, &mut QueuedLimits),
        grants: &mut Vec<(u64, u64)>,
    ) {
        if let Ended::Granted(grant) = ended {
            self.give(step, grant, (now_ns, limits), grants);
        }
        let answer = StepReport { ended_ns: Some(now_ns), ..StepReport::ended(ended) };
        let wait_ns = answer.wait();
        let answer = answer.at(|instant_ns| instant_ns.saturating_sub(self.start_ns));
        let StepReport { at_ns, call, permits, remaining, .. } = self.reports[step];
        self.reports[step] = StepReport { at_ns, call, permits, wait_ns, remaining, ..answer };
    }

    fn call(
        &mut self,
        step: &Step,
        now_ns: u64,
        limits: &mut QueuedLimits,
        grants: &mut Vec<(u64, u64)>,
    ) -> (&'static str, Option<u64>, StepReport) {
        let (own, of) = (self.reports.len(), step.of);
        match &step.call {
            Call::Try { permits } => {
                let verdict = limits.try_acquire(now_ns, *permits);
                ("try", Some(*permits), self.granted(own, verdict, (now_ns, limits), grants))
            }
            Call::Reserve { permits, max_wait } => {
                let verdict = limits.reserve(now_ns, *permits, max_wait.map(|Ns(ns)| ns));
                ("reserve", Some(*permits), self.granted(own, verdict, (now_ns, limits), grants))
            }
            Call::Wait { permits, max_wait, class, .. } => {
                let request = Request::of(*permits).within(max_wait.map(|Ns(ns)| ns));
                let request = request.in_class(*class);
                let answer = match limits.wait(now_ns, request, Waiter::Step(own)) {
                    Ok(None) => StepReport::only(Outcome::Waiting),
                    Ok(Some(grant)) => {
                        self.give(own, grant, (now_ns, limits), grants);
                        StepReport { ended_ns: Some(now_ns), ..StepReport::granted(&grant) }
                    }
                    Err(rejected) => {
                        StepReport { ended_ns: Some(now_ns), ..StepReport::rejected(rejected) }
                    }
                };
                ("wait", Some(*permits), answer)
            }
            Call::Leave {} => {
                let in_time = limits.leave(now_ns, Waiter::Step(of));
                let outcome = if in_time { Outcome::Left } else { Outcome::TooLate };
                let wait = &mut self.reports[of];
                if in_time {
                    wait.outcome = outcome;
                    wait.ended_ns = Some(now_ns.saturating_sub(self.start_ns));
                }
                ("leave", wait.permits, StepReport::only(outcome))
            }
            Call::Release { permits } => {
                limits.end(now_ns, *permits, Ending::Released);
                ("release", Some(*permits), StepReport::only(Outcome::Set))
            }
            Call::End { outcome: ending } => {
                let (permits, outcome) = self.given.end(of, |one| {
                    let Grant { start_ns, permits, .. } = one.grant.0;
                    limits.end(now_ns, permits, Ending::Of { start_ns, outcome: *ending });
                });
                ("release", permits, StepReport::only(outcome))
            }
            Call::Set { limits: policies } => {
                // The reader of the file has checked that the policies are of equal kinds.
                let _ = limits.reconfigure(now_ns, policies);
                ("set", None, StepReport::only(Outcome::Set))
            }
            Call::Refill { permits } => {
                limits.refill(now_ns, *permits);
                ("refill", Some(*permits), StepReport::only(Outcome::Set))
            }
            Call::Peek { permits } => {
                let answer = match limits.peek(now_ns, *permits) {
                    Ok(retry_after_ns) => StepReport {
                        retry_after_ns: retry_after_ns.filter(|&wait_ns| wait_ns > 0),
                        ..StepReport::only(Outcome::Peeked)
                    },
                    Err(_) => StepReport::only(Outcome::Never),
                };
                ("peek", Some(*permits), answer)
            }
            _ => self.correct(step, now_ns, limits, grants),
        }
    }

    /// Carries out a call that corrects what was granted, or holds permits and ends them.
    fn correct(
        &mut self,
        step: &Step,
        now_ns: u64,
        limits: &mut QueuedLimits,
        grants: &mut Vec<(u64, u64)>,
    ) -> (&'static str, Option<u64>, StepReport) {
        let (own, of) = (self.reports.len(), step.of);
        match &step.call {
            Call::Charge { permits } => {
                let charged = limits.charge(now_ns, *permits);
                grants.extend(charged.ok().map(|charged| (now_ns, charged.booked)));
                ("charge", Some(*permits), StepReport::charge(charged))
            }
            Call::Hold { permits, ttl } => {
                let (answer, hold) = match limits.try_hold(now_ns, *permits, ttl.0) {
                    Ok(HoldVerdict::Held(hold)) => (StepReport::held(now_ns), Some(hold)),
                    Ok(HoldVerdict::Denied(denial)) => (StepReport::denied(denial), None),
                    Err(_) => (StepReport::only(Outcome::Never), None),
                };
                self.held.add(own, hold.map(|hold| (hold, grants.len(), ClassId::FIRST)));
                grants.extend(hold.map(|hold| (now_ns, hold.permits)));
                ("hold", Some(*permits), answer)
            }
            Call::Commit { actual } => {
                let committed = self.held.take(of).map(|(hold, index, class)| {
                    let committed = limits.commit(now_ns, class, hold, *actual);
                    // All that was used in time counts from the start. What is charged counts from
                    // now on.
                    let (used, charged) = match committed {
                        Committed::InTime(Settled::Owed { permits, .. }) => (hold.permits, permits),
                        Committed::InTime(_) => ((*actual).min(hold.permits), 0),
                        Committed::Late(charged) => (0, charged.booked),
                    };
                    grants[index].1 = used;
                    grants.push((now_ns, charged));
                    StepReport::committed(committed)
                });
                ("commit", Some(*actual), committed.unwrap_or_else(StepReport::only))
            }
            Call::Cancel {} if self.all[of].call.holds() => {
                let cancelled = self.held.take(of).map(|(hold, index, class)| {
                    grants[index].1 = 0;
                    let outcome = match limits.commit(now_ns, class, hold, 0) {
                        Committed::InTime(_) => Outcome::Cancelled,
                        Committed::Late(_) => Outcome::TooLate,
                    };
                    (Some(hold.permits), outcome)
                });
                let (permits, outcome) = cancelled.unwrap_or_else(|outcome| (None, outcome));
                ("cancel", permits, StepReport::only(outcome))
            }
            Call::Cancel {} => {
                let reserved = self.given.cancel(of);
                let permits = reserved.map(|(grant, _)| grant.permits);
                let outcome = match reserved {
                    Some((grant, index)) if limits.cancel(now_ns, grant.ticket) => {
                        // A cancelled grant was never used.
                        grants[index].1 = 0;
                        Outcome::Cancelled
                    }
                    _ => Outcome::TooLate,
                };
                ("cancel", permits, StepReport::only(outcome))
            }
            other => unreachable!("{other:?} corrects nothing"),
        }
    }

    /// Takes back what the holds kept that ended by `end_ns` without a commit.
    pub(crate) fn end_holds(&self, end_ns: u64, grants: &mut [(u64, u64)]) {
        for (_, index, _) in self.held.open().filter(|(hold, ..)| hold.end_ns <= end_ns) {
            grants[*index].1 = 0;
        }
    }

    /// Records the grant of a step, and holds it if the step is an estimate.
    fn give(
        &mut self,
        step: usize,
        grant: Grant,
        (now_ns, limits): (u64, &mut QueuedLimits),
        grants: &mut Vec<(u64, u64)>,
    ) {
        let (class, ttl) = match self.all[step].call {
            Call::Wait { class, ttl, .. } => (class, ttl),
            _ => (ClassId::FIRST, None),
        };
        match ttl {
            None => self.given.add(step, (grant, grants.len()), grant.permits),
            Some(Ns(ttl_ns)) => {
                let end_ns = grant.start_ns.saturating_add(ttl_ns);
                let hold = limits.hold_grant(now_ns, &grant, end_ns);
                self.held.add(step, Some((hold, grants.len(), class)));
            }
        }
        grants.push((grant.start_ns, grant.permits));
    }

    fn granted(
        &mut self,
        step: usize,
        verdict: Result<Verdict, ExceedsCapacity>,
        limits: (u64, &mut QueuedLimits),
        grants: &mut Vec<(u64, u64)>,
    ) -> StepReport {
        match verdict {
            Ok(Verdict::Granted(grant)) => {
                self.give(step, grant, limits, grants);
                StepReport::granted(&grant)
            }
            Ok(Verdict::Denied(denial)) => StepReport::denied(denial),
            Err(_) => StepReport::only(Outcome::Never),
        }
    }
}
