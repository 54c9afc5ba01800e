//! Holds of steps on a limiter, kept until a later step ends them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::report::Outcome;
use rategate::charge::{Committed, Hold};
use rategate::policy::LimiterPolicy;
use rategate::{Limiter, ManualClock, TryAcquireError};

use super::step_result::StepResult;
use crate::ns;

/// The holds of all steps. None is dropped before the end, since that would cancel it.
pub(crate) struct Held<'a, P: LimiterPolicy> {
    /// The hold of the newest step of each name, if it was held.
    named: BTreeMap<&'a str, Option<usize>>,
    all: Vec<Option<Hold<P, ManualClock>>>,
}

impl<P: LimiterPolicy> Default for Held<'_, P> {
    fn default() -> Self {
        Self { named: BTreeMap::new(), all: Vec::new() }
    }
}

impl<'a, P: LimiterPolicy> Held<'a, P> {
    pub(crate) fn hold(
        &mut self,
        limiter: &Limiter<P, ManualClock>,
        (permits, ttl_ns): (u64, u64),
        name: Option<&'a str>,
    ) -> StepResult {
        let at = self.all.len();
        let (hold, step_result) = match limiter.try_hold(permits, Duration::from_nanos(ttl_ns)) {
            Ok(Ok(hold)) => {
                let start_ns = Some(ns(hold.ends_at()) - ttl_ns);
                (Some(hold), StepResult { start_ns, ..StepResult::only(Outcome::Held) })
            }
            Ok(Err(denial)) => (None, StepResult::denied(denial.retry_after())),
            Err(TryAcquireError::ExceedsCapacity(_)) => (None, StepResult::only(Outcome::Never)),
            Err(error) => panic!("{error}"),
        };
        self.named.extend(name.map(|name| (name, hold.as_ref().map(|_| at))));
        self.all.extend(hold.map(Some));
        step_result
    }

    pub(crate) fn commit(&mut self, name: &str, actual: u64) -> StepResult {
        match self.take(name).map(|hold| hold.commit(actual).unwrap()) {
            Ok(Committed::InTime(settled)) => StepResult::settled(Outcome::Committed, settled),
            Ok(Committed::Late(charged)) => StepResult::charged(Outcome::Late, &charged),
            Err(outcome) => StepResult::only(outcome),
        }
    }

    pub(crate) fn cancel(&mut self, name: &str, now_ns: u64) -> StepResult {
        StepResult::only(match self.take(name) {
            // A drop does not report whether it came in time.
            Ok(hold) if now_ns < ns(hold.ends_at()) => Outcome::Cancelled,
            Ok(_) => Outcome::TooLate,
            Err(outcome) => outcome,
        })
    }

    /// Returns the hold of that name, which ends now, or the reason why none does.
    fn take(&mut self, name: &str) -> Result<Hold<P, ManualClock>, Outcome> {
        let at = self.named[name].ok_or(Outcome::Ungranted)?;
        self.all[at].take().ok_or(Outcome::TooLate)
    }
}
