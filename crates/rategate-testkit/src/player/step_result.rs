//! Results of a scenario's steps on a real limiter. Instants are on its clock.

use std::time::Duration;

use crate::ns;
use crate::report::{Outcome, StepReport};
use crate::scenario::Call;
use rategate::{AcquireError, Grant, TryAcquireError};

/// The maximum delay of a wake-up that is merged with others.
pub(crate) const GATHER_NS: u64 = 1_000_000;

impl StepReport {
    pub(crate) fn granted_by_limiter(grant: &Grant) -> Self {
        let (start_ns, scheduled_ns) =
            (Some(ns(grant.promised_at())), Some(ns(grant.scheduled_at())));
        Self { start_ns, scheduled_ns, ..Self::only(Outcome::Granted) }
    }

    pub(crate) fn denied_for(retry_after: Option<Duration>) -> Self {
        let retry_after_ns = retry_after.map(|wait| wait.as_nanos().try_into().unwrap());
        Self { retry_after_ns, ..Self::only(Outcome::Denied) }
    }

    /// Returns the result of a try for more permits than could ever pass.
    pub(crate) fn never(error: &TryAcquireError) -> Self {
        assert!(matches!(error, TryAcquireError::ExceedsCapacity(_)), "{error}");
        Self::only(Outcome::Never)
    }

    pub(crate) fn failed(error: &AcquireError) -> Self {
        match error {
            AcquireError::ExceedsCapacity(_) => Self::only(Outcome::Never),
            AcquireError::TimeCannotHelp | AcquireError::Held => Self::denied_for(None),
            AcquireError::TooLong(too_long) => Self::denied_for(Some(too_long.retry_after())),
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
    pub(crate) fn ideal(step: &StepReport, call: &Call, start_ns: u64) -> Self {
        let seen = Self { at_ns: 0, call: "", permits: None, wait_ns: None, ..step.clone() };
        // Neither a reservation nor a hold tells when it was scheduled.
        let tells = !call.holds() && !matches!(call, Call::Reserve { .. });
        let scheduled_ns = seen.scheduled_ns.filter(|_| tells);
        Self { scheduled_ns, ..seen }.at(|since_ns| start_ns + since_ns)
    }
}
