//! Grants of named calls on a limiter, kept for later settlements and refunds.

use std::collections::BTreeMap;

use rategate::{Clock, Concurrent, Grant, Limiter, SettleError, Settled};
use rategate_sim::report::Outcome;

use super::Told;

/// The grants by the step that received them, each with the class of its caller.
#[derive(Default)]
pub(crate) struct Given(BTreeMap<usize, One>);

struct One {
    grant: Grant,
    class: usize,
    left: u64,
    is_settled: bool,
}

impl Given {
    pub(crate) fn add(&mut self, step: usize, grant: Grant, class: usize) {
        let left = grant.permits();
        self.0.insert(step, One { grant, class, left, is_settled: false });
    }

    /// Settles a grant by the handle of its class.
    pub(crate) fn settle<'a, L: Concurrent + 'a, C: Clock + 'a>(
        &mut self,
        step: usize,
        actual: u64,
        handle: impl FnOnce(usize) -> &'a Limiter<L, C>,
    ) -> Told {
        let Some(one) = self.0.get_mut(&step) else { return Told::only(Outcome::Ungranted) };
        // The library does not remember single grants, so settling once is up to the caller.
        if one.is_settled || one.left < one.grant.permits() {
            return Told::only(Outcome::TooLate);
        }
        let told = match handle(one.class).settle(&one.grant, actual) {
            Ok(Settled::Even) => Told::only(Outcome::Settled),
            Ok(Settled::Back { permits }) => {
                Told { back: Some(permits), ..Told::only(Outcome::Settled) }
            }
            Ok(Settled::Owed { permits }) => {
                Told { owed: Some(permits), ..Told::only(Outcome::Settled) }
            }
            Err(SettleError::Debt(rategate::DebtError::Unpayable { left })) => {
                let owed = Some(actual - one.grant.permits() - left);
                Told { owed, ..Told::only(Outcome::Unpayable) }
            }
            Err(SettleError::Debt(_)) => return Told::only(Outcome::Unpayable),
            Err(error) => panic!("{error}"),
        };
        one.is_settled = true;
        told
    }

    /// Refunds a grant by the handle of its class.
    pub(crate) fn refund<'a, L: Concurrent + 'a, C: Clock + 'a>(
        &mut self,
        step: usize,
        permits: u64,
        handle: impl FnOnce(usize) -> &'a Limiter<L, C>,
    ) -> Told {
        let Some(one) = self.0.get_mut(&step) else { return Told::only(Outcome::Ungranted) };
        if one.is_settled || one.left == 0 {
            return Told::only(Outcome::TooLate);
        }
        let back = handle(one.class).refund(&one.grant, permits.min(one.left)).unwrap();
        one.left -= back;
        Told { back: Some(back), ..Told::only(Outcome::Refunded) }
    }
}
