//! Explicit calls, carried out in file order on a clock that may go backwards.

use std::collections::BTreeMap;

use rategate_core::debt::Charged;
use rategate_core::error::{CountsInFlight, ExceedsCapacity};
use rategate_core::fair::ClassId;
use rategate_core::holds::{Committed, Hold, HoldVerdict};
use rategate_core::queue::{Outcome as Ended, Request};
use rategate_core::verdict::{Grant, Settled, Verdict};

use crate::answer::Answer;
use crate::named::{NamedGrants, NamedHolds};
use crate::report::{Outcome, StepReport};
use crate::scenario::{Call, Scenario, Step};
use crate::wait_queue::{QueuedLimits, Waiter};
use crate::world::Subject;

/// The steps of a scenario, and how far they have been carried out.
pub(crate) struct Steps<'s> {
    start_ns: u64,
    all: &'s [Step],
    to_come: std::slice::Iter<'s, Step>,
    /// The newest reading of the clock.
    seen_ns: u64,
    /// The index of the reservation with each name.
    reserved: BTreeMap<&'s str, usize>,
    /// The index of the wait with each name.
    waits: BTreeMap<&'s str, usize>,
    /// Each with its index among all grants.
    given: NamedGrants<'s, (Grant, usize)>,
    held: NamedHolds<'s, (Hold, usize)>,
    pub(crate) reports: Vec<StepReport>,
}

impl<'s> Steps<'s> {
    pub(crate) fn new(scenario: &'s Scenario) -> Self {
        Self {
            start_ns: scenario.clock_start_ns,
            all: &scenario.steps,
            to_come: scenario.steps.iter(),
            seen_ns: scenario.clock_start_ns,
            reserved: BTreeMap::new(),
            waits: BTreeMap::new(),
            given: NamedGrants::default(),
            held: NamedHolds::default(),
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
    pub(crate) fn serve_before(&self, limits: &mut QueuedLimits<impl Subject>) -> bool {
        let next = self.to_come.as_slice().first();
        let comes_first = |next: &&Step| limits.takes() || next.call.is_about_a_grant();
        let Some(next) = next.filter(comes_first) else { return false };
        limits.serve(self.seen_ns.max(self.start_ns.saturating_add(next.at_ns)));
        true
    }

    /// Carries out the next step. Returns `true` if a waiter may now be served.
    pub(crate) fn carry_out(
        &mut self,
        limits: &mut QueuedLimits<impl Subject>,
        grants: &mut Vec<(u64, u64)>,
    ) -> bool {
        let Some(step) = self.to_come.next() else { return false };
        let reading_ns = self.start_ns.saturating_add(step.at_ns);
        self.seen_ns = limits.clamp(self.seen_ns.max(reading_ns));
        let now_ns = self.seen_ns;
        let before = limits.remaining(now_ns);
        let (call, permits, answer) = self.call(&step.call, now_ns, limits, grants);
        let remaining = match step.call {
            Call::Peek { .. } => before,
            _ => limits.remaining(now_ns),
        };
        let since_start = |instant_ns: u64| instant_ns.saturating_sub(self.start_ns);
        self.reports.push(StepReport {
            at_ns: step.at_ns,
            call,
            permits,
            outcome: answer.outcome,
            start_ns: answer.start_ns.map(since_start),
            scheduled_ns: answer.scheduled_ns.map(since_start),
            wait_ns: answer.wait_ns(),
            retry_after_ns: answer.retry_after_ns,
            remaining,
            ended_ns: answer.ended_ns.map(since_start),
            back: answer.back,
            owed: answer.owed,
            debt: answer.debt,
            forgiven: answer.forgiven,
        });
        matches!(
            answer.outcome,
            Outcome::Set
                | Outcome::Cancelled
                | Outcome::Settled
                | Outcome::Refunded
                | Outcome::Committed
        )
    }

    /// Records how the wait of a step has ended.
    pub(crate) fn wait_ended(
        &mut self,
        step: usize,
        ended: Ended,
        now_ns: u64,
        grants: &mut Vec<(u64, u64)>,
    ) {
        let start_ns = self.start_ns;
        let since_start = |instant_ns: u64| instant_ns.saturating_sub(start_ns);
        let Some(report) = self.reports.get_mut(step) else { return };
        if let Ended::Granted(grant) = ended {
            grants.push((grant.start_ns, grant.permits));
            let call = self.all.get(step).map(|step| &step.call);
            if let Some(&Call::Wait { name: Some(_), class, .. }) = call {
                self.given.add(step, (grant, grants.len() - 1), class, grant.permits);
            }
        }
        let answer = Answer::ended(ended);
        report.outcome = answer.outcome;
        report.start_ns = answer.start_ns.map(since_start);
        report.scheduled_ns = answer.scheduled_ns.map(since_start);
        report.wait_ns = answer.wait_ns();
        report.retry_after_ns = answer.retry_after_ns;
        report.ended_ns = Some(since_start(now_ns));
    }

    fn call(
        &mut self,
        call: &'s Call,
        now_ns: u64,
        limits: &mut QueuedLimits<impl Subject>,
        grants: &mut Vec<(u64, u64)>,
    ) -> (&'static str, Option<u64>, Answer) {
        match call {
            Call::Try { permits, name } => {
                let verdict = limits.try_acquire(now_ns, *permits);
                let (answer, grant) = granted(verdict, *permits, grants);
                self.give(name.as_deref(), grant, ClassId::FIRST, grants);
                ("try", Some(*permits), answer)
            }
            Call::Reserve { permits, name, max_wait_ns } => {
                let verdict = limits.reserve(now_ns, *permits, *max_wait_ns);
                let (answer, grant) = granted(verdict, *permits, grants);
                if let Some(name) = name {
                    self.reserved.insert(name, self.reports.len());
                }
                self.give(name.as_deref(), grant, ClassId::FIRST, grants);
                ("reserve", Some(*permits), answer)
            }
            Call::Wait { permits, name, max_wait_ns, class } => {
                let step = self.reports.len();
                if let Some(name) = name {
                    self.waits.insert(name, step);
                }
                let request = Request::of(*permits).within(*max_wait_ns).in_class(*class);
                let waited = limits.wait(now_ns, request, Waiter::Step(step));
                self.give(name.as_deref(), None, *class, grants);
                let answer = match waited {
                    Ok(None) => Answer::only(Outcome::Waiting),
                    Ok(Some(grant)) => {
                        grants.push((grant.start_ns, *permits));
                        self.give(name.as_deref(), Some(grant), *class, grants);
                        Answer { ended_ns: Some(now_ns), ..Answer::granted(&grant) }
                    }
                    Err(rejected) => {
                        Answer { ended_ns: Some(now_ns), ..Answer::rejected(rejected) }
                    }
                };
                ("wait", Some(*permits), answer)
            }
            Call::Leave { name } => {
                let (permits, outcome) = self.leave(name, now_ns, limits);
                ("leave", permits, Answer::only(outcome))
            }
            Call::Release { permits } => {
                limits.release(now_ns, *permits);
                ("release", Some(*permits), Answer::only(Outcome::Set))
            }
            Call::End { name, ending } => {
                let (permits, outcome) = self.given.end(name, |one| {
                    limits.release_with_outcome(now_ns, &one.grant.0, *ending);
                });
                ("release", permits, Answer::only(outcome))
            }
            Call::Cancel { name } => {
                let (permits, outcome) = self.cancel(name, now_ns, limits, grants);
                ("cancel", permits, Answer::only(outcome))
            }
            Call::Set { limits: policies } => {
                // The reader of the file has checked that the policies are of equal kinds.
                let _ = limits.reconfigure(now_ns, policies);
                ("set", None, Answer::only(Outcome::Set))
            }
            Call::Refill { permits } => {
                limits.refill(now_ns, *permits);
                ("refill", Some(*permits), Answer::only(Outcome::Set))
            }
            Call::Peek { permits } => {
                let answer = match limits.peek(now_ns, *permits) {
                    Ok(retry_after_ns) => Answer {
                        retry_after_ns: retry_after_ns.filter(|&wait_ns| wait_ns > 0),
                        ..Answer::only(Outcome::Peeked)
                    },
                    Err(_) => Answer::only(Outcome::Never),
                };
                ("peek", Some(*permits), answer)
            }
            _ => self.correct(call, now_ns, limits, grants),
        }
    }

    /// Carries out a call that corrects what was granted, or holds permits and ends them.
    fn correct(
        &mut self,
        call: &'s Call,
        now_ns: u64,
        limits: &mut QueuedLimits<impl Subject>,
        grants: &mut Vec<(u64, u64)>,
    ) -> (&'static str, Option<u64>, Answer) {
        match call {
            Call::Settle { name, actual } => {
                let settled = self.given.settle(name, |one| {
                    let (grant, index) = &one.grant;
                    let settled = limits.settle(now_ns, one.class, grant, *actual).ok()?;
                    let answer = Answer::settled(Outcome::Settled, settled);
                    // The permits beyond the estimate were used all the same, no later than now.
                    let debt = actual.saturating_sub(grant.permits);
                    let used = &mut grants[*index].1;
                    *used = used.saturating_add(debt).saturating_sub(answer.back.unwrap_or(0));
                    Some(answer)
                });
                ("settle", Some(*actual), settled.unwrap_or_else(Answer::only))
            }
            Call::Refund { name, permits } => {
                let back = self.given.refund(name, *permits, |one, permits| {
                    let (grant, index) = &one.grant;
                    let back = limits.refund(now_ns, one.class, grant, permits);
                    let used = &mut grants[*index].1;
                    *used = used.saturating_sub(back);
                    back
                });
                ("refund", Some(*permits), back.map_or_else(Answer::only, Answer::refunded))
            }
            Call::Charge { permits } => {
                let answer = charged(limits.charge(now_ns, *permits), now_ns, grants);
                ("charge", Some(*permits), answer)
            }
            Call::Hold { permits, ttl_ns, name } => {
                let (answer, hold) = match limits.try_hold(now_ns, *permits, *ttl_ns) {
                    Ok(HoldVerdict::Held(hold)) => (Answer::held(now_ns), Some(hold)),
                    Ok(HoldVerdict::Denied(denial)) => (Answer::denied(denial), None),
                    Err(_) => (Answer::only(Outcome::Never), None),
                };
                self.held.add(name.as_deref(), hold.map(|hold| (hold, grants.len())));
                grants.extend(hold.map(|hold| (now_ns, hold.permits)));
                ("hold", Some(*permits), answer)
            }
            Call::Commit { name, actual } => {
                let committed = self.held.take(name).map(|(hold, index)| {
                    let committed = limits.commit(now_ns, hold, *actual);
                    // All that was used in time counts from the start. What is charged counts from
                    // now on.
                    let (used, charged) = match committed {
                        Committed::InTime(Settled::Owed { permits, .. }) => (hold.permits, permits),
                        Committed::InTime(_) => ((*actual).min(hold.permits), 0),
                        Committed::Late(charged) => (0, charged.booked),
                    };
                    grants[index].1 = used;
                    grants.push((now_ns, charged));
                    Answer::committed(committed)
                });
                ("commit", Some(*actual), committed.unwrap_or_else(Answer::only))
            }
            Call::CancelHold { name } => {
                let cancelled = self.held.take(name).map(|(hold, index)| {
                    grants[index].1 = 0;
                    let outcome = match limits.commit(now_ns, hold, 0) {
                        Committed::InTime(_) => Outcome::Cancelled,
                        Committed::Late(_) => Outcome::TooLate,
                    };
                    (Some(hold.permits), outcome)
                });
                let (permits, outcome) = cancelled.unwrap_or_else(|outcome| (None, outcome));
                ("cancel", permits, Answer::only(outcome))
            }
            other => unreachable!("{other:?} corrects nothing"),
        }
    }

    fn leave(
        &mut self,
        name: &str,
        now_ns: u64,
        limits: &mut QueuedLimits<impl Subject>,
    ) -> (Option<u64>, Outcome) {
        let wait = self.waits.get(name).copied();
        let in_time = wait.is_some_and(|step| limits.leave(now_ns, Waiter::Step(step)));
        let ended_ns = now_ns.saturating_sub(self.start_ns);
        let wait = wait.and_then(|step| self.reports.get_mut(step));
        let permits = wait.as_ref().and_then(|wait| wait.permits);
        if let Some(wait) = wait.filter(|_| in_time) {
            wait.outcome = Outcome::Left;
            wait.ended_ns = Some(ended_ns);
        }
        (permits, if in_time { Outcome::Left } else { Outcome::TooLate })
    }

    fn cancel(
        &mut self,
        name: &str,
        now_ns: u64,
        limits: &mut QueuedLimits<impl Subject>,
        grants: &mut [(u64, u64)],
    ) -> (Option<u64>, Outcome) {
        let reserved = self.reserved.get(name).and_then(|&step| self.given.cancel(step));
        let permits = reserved.map(|(grant, _)| grant.permits);
        let outcome = match reserved {
            Some((grant, index)) if limits.cancel(now_ns, grant.ticket) => {
                // A cancelled grant was never used.
                if let Some((_, permits)) = grants.get_mut(index) {
                    *permits = 0;
                }
                Outcome::Cancelled
            }
            _ => Outcome::TooLate,
        };
        (permits, outcome)
    }

    /// Takes back what the holds kept that ended by `end_ns` without a commit.
    pub(crate) fn end_holds(&self, end_ns: u64, grants: &mut [(u64, u64)]) {
        for (_, index) in self.held.open().filter(|(hold, _)| hold.end_ns <= end_ns) {
            grants[*index].1 = 0;
        }
    }

    /// Records the immediate grant of the next step to be reported, if the step has a name.
    fn give(
        &mut self,
        name: Option<&'s str>,
        grant: Option<Grant>,
        class: ClassId,
        grants: &[(u64, u64)],
    ) {
        let Some(name) = name else { return };
        let step = self.reports.len();
        self.given.name(name, step);
        if let Some(grant) = grant {
            self.given.add(step, (grant, grants.len() - 1), class, grant.permits);
        }
    }
}

fn charged(
    charged: Result<Charged, CountsInFlight>,
    now_ns: u64,
    grants: &mut Vec<(u64, u64)>,
) -> Answer {
    let Ok(charged) = charged else { return Answer::only(Outcome::NotForThisLimit) };
    grants.push((now_ns, charged.booked));
    Answer::charged(Outcome::Charged, &charged)
}

fn granted(
    verdict: Result<Verdict, ExceedsCapacity>,
    permits: u64,
    grants: &mut Vec<(u64, u64)>,
) -> (Answer, Option<Grant>) {
    match verdict {
        Ok(Verdict::Granted(grant)) => {
            grants.push((grant.start_ns, permits));
            (Answer::granted(&grant), Some(grant))
        }
        Ok(Verdict::Denied(denial)) => (Answer::denied(denial), None),
        Err(_) => (Answer::only(Outcome::Never), None),
    }
}
