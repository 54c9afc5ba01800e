//! Results of a scenario's steps on a real limiter, in the words of the report.

use std::time::Duration;

use crate::ns;
use crate::report::{Outcome, StepReport};
use rategate::charge::{Charged, Settled};
use rategate::{AcquireError, Grant};

/// The maximum delay of a wake-up that is merged with others.
pub(crate) const GATHER_NS: u64 = 1_000_000;

/// The result of a step. Instants are on the limiter's clock.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StepResult {
    pub(crate) outcome: Outcome,
    pub(crate) start_ns: Option<u64>,
    /// The scheduled time, which the library reports of a reservation only once it is kept.
    pub(crate) scheduled_ns: Option<u64>,
    pub(crate) retry_after_ns: Option<u64>,
    pub(crate) ended_ns: Option<u64>,
    pub(crate) back: Option<u64>,
    pub(crate) owed: Option<u64>,
    pub(crate) debt: Option<u64>,
    pub(crate) forgiven: Option<u64>,
    pub(crate) remaining: u64,
}

impl StepResult {
    pub(crate) const fn only(outcome: Outcome) -> Self {
        let (start_ns, scheduled_ns, retry_after_ns, ended_ns) = (None, None, None, None);
        Self {
            outcome,
            start_ns,
            scheduled_ns,
            retry_after_ns,
            ended_ns,
            back: None,
            owed: None,
            debt: None,
            forgiven: None,
            remaining: 0,
        }
    }

    pub(crate) fn granted(grant: &Grant) -> Self {
        let (start_ns, scheduled_ns) =
            (Some(ns(grant.promised_at())), Some(ns(grant.scheduled_at())));
        Self { start_ns, scheduled_ns, ..Self::only(Outcome::Granted) }
    }

    pub(crate) fn denied(retry_after: Option<Duration>) -> Self {
        let retry_after_ns = retry_after.map(|wait| wait.as_nanos().try_into().unwrap());
        Self { retry_after_ns, ..Self::only(Outcome::Denied) }
    }

    pub(crate) fn settled(outcome: Outcome, settled: Settled) -> Self {
        let only = Self::only(outcome);
        match settled {
            Settled::Even => only,
            Settled::Back { permits } => Self { back: Some(permits), ..only },
            Settled::Owed { permits, forgiven } => {
                let (owed, forgiven) = (Some(permits), Some(forgiven).filter(|&some| some > 0));
                Self { owed, forgiven, ..only }
            }
        }
    }

    pub(crate) const fn charged(outcome: Outcome, charged: &Charged) -> Self {
        let (debt, forgiven) = (Some(charged.debt), Some(charged.forgiven));
        Self { debt, forgiven, ..Self::only(outcome) }
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

    /// Returns the result as if the waiter had been woken at its start.
    pub(crate) fn woken_at_once(self) -> Self {
        let late_ns =
            self.ended_ns.zip(self.start_ns).map(|(ended_ns, start_ns)| ended_ns - start_ns);
        match late_ns {
            Some(late_ns) if late_ns <= GATHER_NS => Self { ended_ns: self.start_ns, ..self },
            _ => self,
        }
    }

    /// Returns the result with the ideal's end, if both deadlines passed and only the merged
    /// wake-up came later.
    pub(crate) fn ended_as_soon_as(self, ideal: &Self) -> Self {
        let late_ns = self
            .ended_ns
            .zip(ideal.ended_ns)
            .and_then(|(step_result, came)| step_result.checked_sub(came));
        let is_deadline =
            [&self, ideal].map(|step_result| step_result.outcome) == [Outcome::DeadlinePassed; 2];
        match late_ns {
            Some(late_ns) if is_deadline && late_ns <= GATHER_NS => {
                Self { ended_ns: ideal.ended_ns, ..self }
            }
            _ => self,
        }
    }

    /// Returns the result that the world reports for a step.
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
            debt: step.debt,
            forgiven: step.forgiven,
            remaining: step.remaining,
        }
    }
}
