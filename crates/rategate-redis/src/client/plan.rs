//! Limits of `rategate`, converted to the numbers of a store.

use std::num::NonZeroU64;

use rategate::store::{PlanError, Rule, StoreError, StoreRequest};
use rategate_core::error::ExceedsCapacity;

use crate::error::LimitError;
use crate::limit::Limit;
use crate::plan::Plan;

/// A set of limits that were checked against what Redis can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPlan {
    pub(crate) plan: Plan,
    /// The maximum number of permits that one call can take.
    maximum: u64,
}

impl SharedPlan {
    /// Checks limits as [`RedisStore`](super::RedisStore) does; a set accepted here is accepted
    /// by any store on Redis.
    ///
    /// # Errors
    ///
    /// [`PlanError`], which names the limit and what would be accepted.
    pub fn new(rules: &[(&str, Rule)]) -> Result<Self, PlanError> {
        let mut limits = Vec::with_capacity(rules.len());
        for (label, rule) in rules {
            let limit = limit_of(rule).map_err(|error| error_of(Some(label), error))?;
            limits.push((*label, limit));
        }
        let maximum = limits.iter().map(|(_, limit)| limit.maximum()).min().unwrap_or(0);
        let plan = Plan::new(limits).map_err(|error| error_of(None, error))?;
        Ok(Self { plan, maximum })
    }

    fn admits(&self, permits: NonZeroU64) -> Result<(), StoreError> {
        if permits.get() > self.maximum {
            return Err(StoreError::Exceeds(ExceedsCapacity::new(permits.get(), self.maximum)));
        }
        Ok(())
    }
}

/// Checks that a request makes sense, so that the store will answer it.
pub(crate) fn check(request: &StoreRequest<SharedPlan>) -> Result<(), StoreError> {
    let refuse = |why: &str| Err(StoreError::InvalidRequest(why.to_owned()));
    match request {
        StoreRequest::Decide { plan, permits, lease, .. } => {
            if plan.plan.holds() && lease.is_none() {
                return refuse(
                    "permits in flight are held under the name of a lease, \
                     and the request names none",
                );
            }
            plan.admits(*permits)
        }
        StoreRequest::Peek { plan, permits, .. } => plan.admits(*permits),
        StoreRequest::Debit { plan, permits, .. } => {
            if plan.plan.holds() {
                return refuse("permits in flight are taken all or none, by decide, not by debit");
            }
            plan.admits(*permits)
        }
        StoreRequest::Refund { plan, receipt, permits, .. } => {
            if plan.plan.holds() {
                return refuse("permits in flight come back by release, not by refund");
            }
            if !plan.plan.is_receipt_of(receipt) {
                return refuse("the receipt belongs to another set of limits");
            }
            plan.admits(*permits)
        }
        StoreRequest::Credit { plan, .. } if plan.plan.holds() => {
            refuse("permits in flight come back by release, not by credit")
        }
        StoreRequest::Release { plan, permits, .. } | StoreRequest::Renew { plan, permits, .. } => {
            if !plan.plan.holds() {
                return refuse("none of these limits is of permits in flight");
            }
            plan.admits(*permits)
        }
        StoreRequest::Credit { .. }
        | StoreRequest::Reset { .. }
        | StoreRequest::Heartbeat { .. } => Ok(()),
    }
}

fn limit_of(rule: &Rule) -> Result<Limit, LimitError> {
    match rule {
        Rule::Bucket(bucket) => Limit::gcra(bucket),
        Rule::Log(log) => Limit::sliding_log(log),
        Rule::Window(window) => Limit::fixed_window(window),
        Rule::InFlight(in_flight, lease_ns) => {
            let whole = lease_ns.get().checked_rem(1_000) == Some(0);
            let length = lease_ns.get().checked_div(1_000).filter(|_| whole);
            Limit::concurrency(in_flight, length.ok_or(LimitError::NotMicroseconds)?)
        }
    }
}

fn error_of(label: Option<&str>, error: LimitError) -> PlanError {
    PlanError { label: label.map(str::to_owned), why: error.to_string() }
}
