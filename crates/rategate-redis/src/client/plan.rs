//! Limits of `rategate`, converted to the numbers of a store.

use std::num::NonZeroU64;

use rategate::store::{
    Answer, Denial, Fault, Gone, Grant, PlanError, Question, Receipt, Reply, Rule, Verdict,
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
    most: u64,
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
        let most = limits.iter().map(|(_, limit)| limit.most()).min().unwrap_or(0);
        let plan = Plan::new(limits).map_err(|error| error_of(None, error))?;
        Ok(Self { plan, most })
    }

    fn admits(&self, permits: NonZeroU64) -> Result<(), Fault> {
        if permits.get() > self.most {
            return Err(Fault::Exceeds(ExceedsCapacity::new(permits.get(), self.most)));
        }
        Ok(())
    }

    /// Converts a verdict of the store to the type of `rategate`.
    pub(crate) fn verdict(&self, verdict: verdict::Verdict, now_us: u64) -> Result<Verdict, Fault> {
        Ok(match verdict {
            verdict::Verdict::WrongType => {
                let why = "a key of this limit holds data of another kind: delete the key, \
                           or use another prefix";
                return Err(Fault::Gone(Gone::Key(why.to_owned())));
            }
            verdict::Verdict::Granted(grant) => {
                let ends_us = self.plan.window_ends_us(&grant.receipt);
                let window_ends_in_ns =
                    ends_us.map(|ends_us| ends_us.saturating_sub(now_us).saturating_mul(1_000));
                Verdict::Granted(Grant {
                    permits: grant.permits,
                    remaining: grant.remaining,
                    window_ends_in_ns,
                    receipt: Receipt::new(grant.receipt.told.concat()),
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
        let (told, rest) = receipt.words().as_chunks::<3>();
        let fits = rest.is_empty() && told.len() == self.plan.limits().len();
        fits.then(|| verdict::Receipt { told: told.to_vec() })
    }
}

/// Checks that a request makes sense, so that the store will answer it.
pub(crate) fn check(question: &Question<SharedPlan>) -> Result<(), Fault> {
    let refuse = |why: &str| Err(Fault::Question(why.to_owned()));
    match question {
        Question::Decide { plan, permits, lease, .. } => {
            if plan.plan.holds() && lease.is_none() {
                return refuse(
                    "permits in flight are held under the name of a lease, \
                     and the request names none",
                );
            }
            plan.admits(*permits)
        }
        Question::Peek { plan, permits, .. } => plan.admits(*permits),
        Question::Debit { plan, permits, .. } => {
            if plan.plan.holds() {
                return refuse("permits in flight are taken all or none, by decide, not by debit");
            }
            plan.admits(*permits)
        }
        Question::Refund { plan, receipt, permits, .. } => {
            if plan.plan.holds() {
                return refuse("permits in flight come back by release, not by refund");
            }
            if plan.receipt(receipt).is_none() {
                return refuse("the receipt belongs to another set of limits");
            }
            plan.admits(*permits)
        }
        Question::GiveBack { plan, .. } if plan.plan.holds() => {
            refuse("permits in flight come back by release, not by credit")
        }
        Question::Release { plan, permits, .. } | Question::Renew { plan, permits, .. } => {
            if !plan.plan.holds() {
                return refuse("none of these limits is of permits in flight");
            }
            plan.admits(*permits)
        }
        Question::GiveBack { .. } | Question::Reset { .. } | Question::Beat(_) => Ok(()),
    }
}

/// Returns an answer with the reply and nothing else that is known.
pub(crate) const fn answer(reply: Reply, intact_for_ns: Option<u64>) -> Answer {
    Answer { reply, intact_for_ns }
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
