//! A share of the limit that a node keeps locally, on its own clock.

use rategate_core::any_policy::AnyPolicy;
use rategate_core::debt::Debt;
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit as _;
use rategate_core::verdict::Verdict;

use super::{Call, NodeStep};
use crate::fleet::plan::Plan;
use crate::fleet::tally::By;

/// A share of the total, which may change.
#[derive(Debug)]
pub(super) struct LocalShare {
    share: u64,
    ledger: Option<Ledger<AnyPolicy>>,
}

impl LocalShare {
    /// The empty share.
    pub(super) const NONE: Self = Self { share: 0, ledger: None };

    /// Returns a share. If it is not fresh, all of it may have been used a moment ago.
    pub(super) fn new(plan: &Plan, share: u64, now_ns: u64, is_fresh: bool) -> Self {
        let mut local_share = Self::NONE;
        local_share.resize(plan, now_ns, share, if is_fresh { share } else { 0 });
        local_share
    }

    /// Changes the share. Of the permits gained, only `fresh` count as unused.
    pub(super) fn resize(&mut self, plan: &Plan, now_ns: u64, share: u64, fresh: u64) {
        let was = std::mem::replace(&mut self.share, share);
        if share == was {
            return;
        }
        let Some(policy) = plan.limit.local_share(share, plan.known_drift_ppm()) else {
            self.ledger = None;
            return;
        };
        let Some(ledger) = &mut self.ledger else {
            let mut ledger = Ledger::new(policy, now_ns);
            use_up(&mut ledger, now_ns, share.saturating_sub(fresh));
            self.ledger = Some(ledger);
            return;
        };
        ledger.reconfigure(now_ns, policy);
        use_up(ledger, now_ns, share.saturating_sub(was).saturating_sub(fresh));
    }

    /// Decides about a call.
    pub(super) fn call(&mut self, step: &mut NodeStep<'_>, call: Call, by: By) {
        let verdict =
            self.ledger.as_mut().map(|ledger| ledger.try_acquire(step.now_ns, call.permits.get()));
        match verdict {
            Some(Ok(Verdict::Granted(_))) => step.grant(call, by),
            _ => step.deny(call, by),
        }
    }
}

/// Takes permits that count as used now, or as soon as the limit has capacity for them. After a
/// share has shrunk and grown again, the log may hold more than the share.
fn use_up(ledger: &mut Ledger<AnyPolicy>, now_ns: u64, permits: u64) {
    // This is no more than the share, which can always be paid back.
    let _ = ledger.charge(now_ns, permits, Debt::CARRIED);
}

#[cfg(test)]
mod tests {
    use rategate_core::limit::Limit as _;

    use super::LocalShare;
    use crate::fleet::{Limit, Mode, Plan};

    const SECOND: u64 = 1_000_000_000;

    fn take(local_share: &mut LocalShare, now_ns: u64, permits: u64) {
        let ledger = local_share.ledger.as_mut().unwrap();
        assert!(ledger.remaining(now_ns) >= permits);
        let _ = ledger.try_acquire(now_ns, permits).unwrap();
    }

    fn free(local_share: &LocalShare, now_ns: u64) -> u64 {
        local_share.ledger.as_ref().map_or(0, |ledger| ledger.remaining(now_ns))
    }

    #[test]
    fn a_bucket_that_grows_holds_what_it_held_and_what_is_fresh() {
        let limit = Limit::Bucket { burst: 10, permits: 1, period_ns: SECOND };
        let plan = Plan::new(2, limit, Mode::Static);
        let mut local_share = LocalShare::new(&plan, 5, 0, true);
        take(&mut local_share, 0, 4);
        local_share.resize(&plan, 0, 8, 2);
        assert_eq!(free(&local_share, 0), 3, "1 was there, 2 are fresh");
        local_share.resize(&plan, 0, 10, 0);
        assert_eq!(free(&local_share, 0), 3);
        local_share.resize(&plan, 0, 2, 0);
        assert_eq!(free(&local_share, 0), 0, "7 of 10 were in use, and stay so");
        local_share.resize(&plan, 5 * SECOND, 10, 8);
        assert_eq!(free(&local_share, 5 * SECOND), 4, "a fifth of the rate has earned 1 back");
        assert_eq!(free(&LocalShare::new(&plan, 5, 0, false), 0), 0);
    }

    #[test]
    fn what_a_log_gains_counts_as_used_even_if_it_is_overfull() {
        let limit = Limit::Log { permits: 10, period_ns: SECOND };
        let plan = Plan::new(2, limit, Mode::Static);
        let mut local_share = LocalShare::new(&plan, 10, 0, true);
        take(&mut local_share, 0, 10);
        local_share.resize(&plan, SECOND / 4, 5, 0);
        // Another node had these three until now.
        local_share.resize(&plan, SECOND / 2, 8, 0);
        assert_eq!(free(&local_share, SECOND - 1), 0);
        assert_eq!(free(&local_share, SECOND), 5, "three of eight are not free yet");
        local_share.resize(&plan, SECOND, 9, 1);
        assert_eq!(free(&local_share, SECOND), 6);
    }
}
