//! Results of calls, as their reports.

use rategate_core::debt::Charged;
use rategate_core::error::CountsInFlight;
use rategate_core::holds::Committed;
use rategate_core::line::{Outcome as Ended, QueueRejection};
use rategate_core::verdict::{Denial, Grant, Refusal, Settled};

use crate::report::{Outcome, StepReport};

impl StepReport {
    /// Returns a result of which only the outcome is known.
    pub(crate) fn only(outcome: Outcome) -> Self {
        Self { outcome, ..Self::default() }
    }

    /// Returns the result with other instants.
    pub(crate) fn at(self, other: impl Fn(u64) -> u64) -> Self {
        Self {
            start_ns: self.start_ns.map(&other),
            scheduled_ns: self.scheduled_ns.map(&other),
            ended_ns: self.ended_ns.map(&other),
            ..self
        }
    }

    pub(crate) fn held(start_ns: u64) -> Self {
        Self { start_ns: Some(start_ns), ..Self::only(Outcome::Held) }
    }

    pub(crate) fn granted(grant: &Grant) -> Self {
        let (start_ns, scheduled_ns) = (Some(grant.start_ns), Some(grant.scheduled_ns));
        Self { start_ns, scheduled_ns, ..Self::only(Outcome::Granted) }
    }

    /// Returns the result of a wait that could not join the queue.
    pub(crate) fn rejected(rejected: QueueRejection) -> Self {
        match rejected {
            QueueRejection::Full => Self::only(Outcome::Full),
            QueueRejection::Refused(refusal) => Self::refused(refusal),
            QueueRejection::TooLong { retry_after_ns, .. } => {
                Self { retry_after_ns: Some(retry_after_ns), ..Self::only(Outcome::Denied) }
            }
        }
    }

    /// Returns the result of a wait that has left the queue.
    pub(crate) fn ended(ended: Ended) -> Self {
        match ended {
            Ended::Granted(grant) => Self::granted(&grant),
            Ended::DeadlinePassed => Self::only(Outcome::DeadlinePassed),
            Ended::Evicted => Self::only(Outcome::Evicted),
            Ended::Refused(refusal) => Self::refused(refusal),
            // The queue of a scenario is never closed.
            Ended::Closed => Self::only(Outcome::Left),
        }
    }

    pub(crate) fn denied(denial: Denial) -> Self {
        let retry_after_ns = denial.retry_after_ns.map(u64::from);
        Self { retry_after_ns, ..Self::only(Outcome::Denied) }
    }

    pub(crate) fn committed(committed: Committed) -> Self {
        match committed {
            Committed::InTime(settled) => Self::settled(settled),
            Committed::Late(charged) => Self::charged(Outcome::Late, &charged),
        }
    }

    fn settled(settled: Settled) -> Self {
        let only = Self::only(Outcome::Committed);
        match settled {
            Settled::Even => only,
            Settled::Back { permits } => Self { back: Some(permits), ..only },
            Settled::Owed { permits, forgiven } => {
                let forgiven = Some(forgiven).filter(|&forgiven| forgiven > 0);
                Self { owed: Some(permits), forgiven, ..only }
            }
        }
    }

    pub(crate) fn charge(charged: Result<Charged, CountsInFlight>) -> Self {
        match charged {
            Ok(charged) => Self::charged(Outcome::Charged, &charged),
            Err(CountsInFlight) => Self::only(Outcome::NotForThisLimit),
        }
    }

    fn charged(outcome: Outcome, charged: &Charged) -> Self {
        let (debt, forgiven) = (Some(charged.debt), Some(charged.forgiven));
        Self { debt, forgiven, ..Self::only(outcome) }
    }

    fn refused(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Exceeds(_) => Self::only(Outcome::Never),
            Refusal::TimeCannotHelp | Refusal::Held => Self::only(Outcome::Denied),
            Refusal::BeyondClock { wait_ns } => {
                Self { retry_after_ns: Some(wait_ns), ..Self::only(Outcome::Denied) }
            }
        }
    }

    /// Returns the start less the scheduled time.
    pub(crate) fn wait(&self) -> Option<u64> {
        Some(self.start_ns?.saturating_sub(self.scheduled_ns?))
    }
}
