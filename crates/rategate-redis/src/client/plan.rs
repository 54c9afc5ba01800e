//! Limits of `rategate`, converted to the numbers of a store.

use std::num::NonZeroU64;

use rategate::store::{
    Denial, Grant, PlanError, Receipt, Reply, Rule, StoreError, StoreReply, StoreRequest,
    Unavailable, Verdict,
};
use rategate_core::error::ExceedsCapacity;

use crate::error::LimitError;
use crate::limit::Limit;
use crate::plan::Plan;
use crate::verdict;

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

    /// Converts a verdict of the store to the type of `rategate`.
    pub(crate) fn verdict(
        &self,
        verdict: verdict::Verdict,
        now_us: u64,
    ) -> Result<Verdict, StoreError> {
        Ok(match verdict {
            verdict::Verdict::WrongType => {
                let why = "a key of this limit holds data of another kind: delete the key, \
                           or use another prefix";
                return Err(StoreError::Unavailable(Unavailable::Key(why.to_owned())));
            }
            verdict::Verdict::Granted(grant) => {
                let ends_us = self.plan.window_ends_us(&grant.receipt);
                let window_ends_in_ns =
                    ends_us.map(|ends_us| ends_us.saturating_sub(now_us).saturating_mul(1_000));
                Verdict::Granted(Grant {
                    permits: grant.permits,
                    remaining: grant.remaining,
                    window_ends_in_ns,
                    receipt: Receipt::new(grant.receipt.fields.concat()),
                })
            }
            verdict::Verdict::Denied(denial) => Verdict::Denied(Denial {
                retry_after_ns: denial.retry_after_ns,
                remaining: denial.remaining,
            }),
        })
    }

    /// Converts a receipt to the type of the store, or returns `None` if it does not fit these
    /// limits.
    pub(crate) fn receipt(&self, receipt: &Receipt) -> Option<verdict::Receipt> {
        let (fields, rest) = receipt.words().as_chunks::<3>();
        let fits = rest.is_empty() && fields.len() == self.plan.limits().len();
        fits.then(|| verdict::Receipt { fields: fields.to_vec() })
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
            if plan.receipt(receipt).is_none() {
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
        StoreRequest::Credit { .. } | StoreRequest::Reset { .. } | StoreRequest::Heartbeat(_) => {
            Ok(())
        }
    }
}

/// Combines a reply with the time for which the store has lost nothing.
pub(crate) const fn answer(reply: Reply, intact_for_ns: Option<u64>) -> StoreReply {
    StoreReply { reply, intact_for_ns }
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
