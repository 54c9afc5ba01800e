//! What somebody is told who carries out a step of a scenario, in the words of the report.

use std::time::Duration;

use rategate::{AcquireError, Grant};
use rategate_sim::report::{Outcome, StepReport};

pub(crate) use given::Given;

mod given;

/// By so much a limiter may wake a task late, to wake it together with others.
pub(crate) const GATHER_NS: u64 = 1_000_000;

/// What came out of a step. Instants are on the limiter's clock.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) outcome: Outcome,
    pub(crate) start_ns: Option<u64>,
    /// Of a reservation the library tells it only to whoever keeps it.
    pub(crate) scheduled_ns: Option<u64>,
    pub(crate) retry_after_ns: Option<u64>,
    pub(crate) ended_ns: Option<u64>,
    pub(crate) back: Option<u64>,
    pub(crate) owed: Option<u64>,
    pub(crate) remaining: u64,
}

impl Told {
    pub(crate) const fn only(outcome: Outcome) -> Self {
        let (start_ns, scheduled_ns, retry_after_ns, ended_ns) = (None, None, None, None);
        let (back, owed, remaining) = (None, None, 0);
        Self { outcome, start_ns, scheduled_ns, retry_after_ns, ended_ns, back, owed, remaining }
    }

    pub(crate) fn granted(grant: &Grant) -> Self {
        let (start_ns, scheduled_ns) = (Some(grant.promised_ns()), Some(grant.scheduled_ns()));
        Self { start_ns, scheduled_ns, ..Self::only(Outcome::Granted) }
    }

    pub(crate) fn denied(retry_after: Option<Duration>) -> Self {
        let retry_after_ns = retry_after.map(|wait| wait.as_nanos().try_into().unwrap());
        Self { retry_after_ns, ..Self::only(Outcome::Denied) }
    }

    pub(crate) fn refused(error: &AcquireError) -> Self {
        match error {
            AcquireError::ExceedsCapacity(_) => Self::only(Outcome::Never),
            AcquireError::TimeCannotHelp => Self::denied(None),
            AcquireError::TooLong(too_long) => Self::denied(Some(too_long.retry_after())),
            AcquireError::DeadlinePassed => Self::only(Outcome::DeadlinePassed),
            AcquireError::QueueFull => Self::only(Outcome::Full),
            AcquireError::Evicted => Self::only(Outcome::Evicted),
            other => panic!("{other}"),
        }
    }

    /// The same for somebody who would have been woken at once.
    pub(crate) fn woken_at_once(self) -> Self {
        let late_ns =
            self.ended_ns.zip(self.start_ns).map(|(ended_ns, start_ns)| ended_ns - start_ns);
        match late_ns {
            Some(late_ns) if late_ns <= GATHER_NS => Self { ended_ns: self.start_ns, ..self },
            _ => self,
        }
    }

    /// The same, if its deadline passed as that of the ideal did, and it was told so together with others.
    pub(crate) fn told_as_soon_as(self, ideal: &Self) -> Self {
        let late_ns =
            self.ended_ns.zip(ideal.ended_ns).and_then(|(told, came)| told.checked_sub(came));
        let is_deadline = [&self, ideal].map(|told| told.outcome) == [Outcome::DeadlinePassed; 2];
        match late_ns {
            Some(late_ns) if is_deadline && late_ns <= GATHER_NS => {
                Self { ended_ns: ideal.ended_ns, ..self }
            }
            _ => self,
        }
    }

    /// What the world says of a step.
    pub(crate) fn ideal(step: &StepReport, start_ns: u64) -> Self {
        let on_clock = |since_ns: Option<u64>| since_ns.map(|since_ns| start_ns + since_ns);
        Self {
            outcome: step.outcome,
            start_ns: on_clock(step.start_ns),
            scheduled_ns: on_clock(step.scheduled_ns).filter(|_| step.call != "reserve"),
            retry_after_ns: step.retry_after_ns,
            ended_ns: on_clock(step.ended_ns),
            back: step.back,
            owed: step.owed,
            remaining: step.remaining,
        }
    }
}
