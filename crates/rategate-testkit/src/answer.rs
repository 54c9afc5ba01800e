//! Results of calls, in the words of the report.

use rategate_core::debt::Charged;
use rategate_core::error::CountsInFlight;
use rategate_core::holds::Committed;
use rategate_core::queue::{Outcome as Ended, QueueRejection};
use rategate_core::verdict::{Denial, Grant, Refusal, Settled};

use crate::report::Outcome;

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    pub(crate) start_ns: Option<u64>,
    pub(crate) scheduled_ns: Option<u64>,
    pub(crate) retry_after_ns: Option<u64>,
    pub(crate) ended_ns: Option<u64>,
    pub(crate) back: Option<u64>,
    pub(crate) owed: Option<u64>,
    pub(crate) debt: Option<u64>,
    pub(crate) forgiven: Option<u64>,
    pub(crate) remaining: u64,
}

impl Answer {
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

    pub(crate) const fn held(start_ns: u64) -> Self {
        Self { start_ns: Some(start_ns), ..Self::only(Outcome::Held) }
    }

    pub(crate) const fn granted(grant: &Grant) -> Self {
        let (start_ns, scheduled_ns) = (Some(grant.start_ns), Some(grant.scheduled_ns));
        Self { start_ns, scheduled_ns, ..Self::only(Outcome::Granted) }
    }

    /// Returns the result of a wait that could not join the queue.
    pub(crate) const fn rejected(rejected: QueueRejection) -> Self {
        match rejected {
            QueueRejection::Full => Self::only(Outcome::Full),
            QueueRejection::Refused(refusal) => Self::refused(refusal),
            QueueRejection::TooLong { retry_after_ns, .. } => {
                Self { retry_after_ns: Some(retry_after_ns), ..Self::only(Outcome::Denied) }
            }
        }
    }

    /// Returns the result of a wait that has left the queue.
    pub(crate) const fn ended(ended: Ended) -> Self {
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

    pub(crate) const fn refunded(back: u64) -> Self {
        Self { back: Some(back), ..Self::only(Outcome::Refunded) }
    }

    pub(crate) fn committed(committed: Committed) -> Self {
        match committed {
            Committed::InTime(settled) => Self::settled(Outcome::Committed, settled),
            Committed::Late(charged) => Self::charged(Outcome::Late, &charged),
        }
    }

    pub(crate) fn settled(outcome: Outcome, settled: Settled) -> Self {
        let only = Self::only(outcome);
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

    const fn charged(outcome: Outcome, charged: &Charged) -> Self {
        let (debt, forgiven) = (Some(charged.debt), Some(charged.forgiven));
        Self { debt, forgiven, ..Self::only(outcome) }
    }

    const fn refused(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Exceeds(_) => Self::only(Outcome::Never),
            Refusal::TimeCannotHelp | Refusal::Held => Self::only(Outcome::Denied),
            Refusal::BeyondClock { wait_ns } => {
                Self { retry_after_ns: Some(wait_ns), ..Self::only(Outcome::Denied) }
            }
        }
    }

    pub(crate) fn wait_ns(&self) -> Option<u64> {
        Some(self.start_ns?.saturating_sub(self.scheduled_ns?))
    }
}
