//! Grants of named calls on a limiter, kept for later settlements and refunds.

use std::collections::BTreeMap;

use crate::report::Outcome;
use rategate::adaptive::Outcome as Ending;
use rategate::error::ChargeError;
use rategate::policy::LimiterPolicy;
use rategate::{Clock, Grant, Limiter};

use super::step_result::StepResult;

/// The grants by the step that received them, each with the class of its caller.
#[derive(Default)]
pub(crate) struct Given(BTreeMap<usize, One>);

struct One {
    grant: Grant,
    class: usize,
    left: u64,
    is_settled: bool,
    has_ended: bool,
}

impl Given {
    pub(crate) fn add(&mut self, step: usize, grant: Grant, class: usize) {
        let left = grant.permits();
        self.0.insert(step, One { grant, class, left, is_settled: false, has_ended: false });
    }

    /// Settles a grant by the handle of its class.
    pub(crate) fn settle<'a, P: LimiterPolicy + 'a, C: Clock + 'a>(
        &mut self,
        step: usize,
        actual: u64,
        handle: impl FnOnce(usize) -> &'a Limiter<P, C>,
    ) -> StepResult {
        let Some(one) = self.0.get_mut(&step) else { return StepResult::only(Outcome::Ungranted) };
        // The library does not remember single grants, so settling once is up to the caller.
        if one.has_ended || one.is_settled || one.left < one.grant.permits() {
            return StepResult::only(Outcome::TooLate);
        }
        let step_result = match handle(one.class).settle(&one.grant, actual) {
            Ok(settled) => StepResult::settled(Outcome::Settled, settled),
            Err(ChargeError::CountsInFlight) => return StepResult::only(Outcome::NotForThisLimit),
            Err(error) => panic!("{error}"),
        };
        one.is_settled = true;
        step_result
    }

    /// Refunds a grant by the handle of its class.
    pub(crate) fn refund<'a, P: LimiterPolicy + 'a, C: Clock + 'a>(
        &mut self,
        step: usize,
        permits: u64,
        handle: impl FnOnce(usize) -> &'a Limiter<P, C>,
    ) -> StepResult {
        let Some(one) = self.0.get_mut(&step) else { return StepResult::only(Outcome::Ungranted) };
        if one.has_ended || one.is_settled || one.left == 0 {
            return StepResult::only(Outcome::TooLate);
        }
        let back = handle(one.class).refund(&one.grant, permits.min(one.left)).unwrap();
        one.left -= back;
        StepResult { back: Some(back), ..StepResult::only(Outcome::Refunded) }
    }

    /// Ends the operations of a grant by the handle of its class.
    pub(crate) fn end<'a, P: LimiterPolicy + 'a, C: Clock + 'a>(
        &mut self,
        step: usize,
        ending: Ending,
        handle: impl FnOnce(usize) -> &'a Limiter<P, C>,
    ) -> StepResult {
        let Some(one) = self.0.get_mut(&step) else { return StepResult::only(Outcome::Ungranted) };
        if one.has_ended || one.is_settled || one.left < one.grant.permits() {
            return StepResult::only(Outcome::TooLate);
        }
        one.has_ended = true;
        handle(one.class).release_with_outcome(&one.grant, ending).unwrap();
        StepResult::only(Outcome::Set)
    }
}
