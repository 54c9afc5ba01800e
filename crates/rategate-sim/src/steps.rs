//! Explicit calls, carried out in file order on a clock that may go backwards.

use std::collections::BTreeMap;

use rategate_core::error::ExceedsCapacity;
use rategate_core::verdict::{Ticket, Verdict};

use crate::report::{Outcome, StepReport};
use crate::scenario::{Call, Scenario, Step};
use crate::world::Subject;

/// The steps of a scenario, some of them done.
pub(crate) struct Steps<'s> {
    start_ns: u64,
    to_come: std::slice::Iter<'s, Step>,
    /// The newest reading of the clock.
    seen_ns: u64,
    reserved: BTreeMap<&'s str, Option<(Ticket, u64, usize)>>,
    pub(crate) reports: Vec<StepReport>,
}

/// What a call came to.
struct Answer {
    outcome: Outcome,
    start_ns: Option<u64>,
    scheduled_ns: Option<u64>,
    retry_after_ns: Option<u64>,
}

impl Answer {
    const fn only(outcome: Outcome) -> Self {
        Self { outcome, start_ns: None, scheduled_ns: None, retry_after_ns: None }
    }
}

impl<'s> Steps<'s> {
    pub(crate) fn new(scenario: &'s Scenario) -> Self {
        Self {
            start_ns: scenario.clock_start_ns,
            to_come: scenario.steps.iter(),
            seen_ns: scenario.clock_start_ns,
            reserved: BTreeMap::new(),
            reports: Vec::new(),
        }
    }

    /// The next step's reading of the clock.
    pub(crate) fn next_at_ns(&self) -> Option<u64> {
        let next = self.to_come.as_slice().first()?;
        Some(self.start_ns.saturating_add(next.at_ns))
    }

    /// Carries out the next step. Returns whether somebody in line may now be served.
    pub(crate) fn carry_out(
        &mut self,
        limits: &mut impl Subject,
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
        let wait_ns = match (answer.start_ns, answer.scheduled_ns) {
            (Some(start_ns), Some(scheduled_ns)) => Some(start_ns.saturating_sub(scheduled_ns)),
            _ => None,
        };
        self.reports.push(StepReport {
            at_ns: step.at_ns,
            call,
            permits,
            outcome: answer.outcome,
            start_ns: answer.start_ns.map(since_start),
            scheduled_ns: answer.scheduled_ns.map(since_start),
            wait_ns,
            retry_after_ns: answer.retry_after_ns,
            remaining,
        });
        matches!(answer.outcome, Outcome::Set | Outcome::Cancelled)
    }

    fn call(
        &mut self,
        call: &'s Call,
        now_ns: u64,
        limits: &mut impl Subject,
        grants: &mut Vec<(u64, u64)>,
    ) -> (&'static str, Option<u64>, Answer) {
        match call {
            Call::Try { permits } => {
                let verdict = limits.try_acquire(now_ns, *permits);
                ("try", Some(*permits), granted(verdict, *permits, grants).0)
            }
            Call::Reserve { permits, name, max_wait_ns } => {
                let verdict = limits.reserve(now_ns, *permits, *max_wait_ns);
                let (answer, ticket) = granted(verdict, *permits, grants);
                if let Some(name) = name {
                    let place = grants.len().saturating_sub(1);
                    self.reserved.insert(name, ticket.map(|ticket| (ticket, *permits, place)));
                }
                ("reserve", Some(*permits), answer)
            }
            Call::Cancel { name } => {
                let reserved = self.reserved.get_mut(name.as_str()).and_then(Option::take);
                let permits = reserved.map(|(_, permits, _)| permits);
                let outcome = match reserved {
                    Some((ticket, _, place)) if limits.cancel(now_ns, ticket) => {
                        // What was given back was never used.
                        if let Some((_, permits)) = grants.get_mut(place) {
                            *permits = 0;
                        }
                        Outcome::Cancelled
                    }
                    _ => Outcome::TooLate,
                };
                ("cancel", permits, Answer::only(outcome))
            }
            Call::Set { limits: policies } => {
                // Reading the file has shown that the policies are of the same kinds.
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
        }
    }
}

fn granted(
    verdict: Result<Verdict, ExceedsCapacity>,
    permits: u64,
    grants: &mut Vec<(u64, u64)>,
) -> (Answer, Option<Ticket>) {
    match verdict {
        Ok(Verdict::Granted(grant)) => {
            grants.push((grant.start_ns, permits));
            let answer = Answer {
                outcome: Outcome::Granted,
                start_ns: Some(grant.start_ns),
                scheduled_ns: Some(grant.scheduled_ns),
                retry_after_ns: None,
            };
            (answer, Some(grant.ticket))
        }
        Ok(Verdict::Denied(denial)) => {
            let retry_after_ns = denial.retry_after_ns.map(u64::from);
            (Answer { retry_after_ns, ..Answer::only(Outcome::Denied) }, None)
        }
        Err(_) => (Answer::only(Outcome::Never), None),
    }
}
