//! The exact oracle: the decisions of several limits of one key, by the core's ledgers.

use rategate_core::any_policy::AnyPolicy;
use rategate_core::debt::{Charged, Debt};
use rategate_core::holds::{Committed, Hold, HoldVerdict};
use rategate_core::ledger::Ledger;
use rategate_core::verdict::{Grant, Settled, Verdict};

/// The limits of one key, decided all or none, one call after another.
///
/// ```
/// use rategate::{Gcra, SlidingLog};
/// use rategate_testkit::oracle::Oracle;
/// use std::time::Duration;
///
/// let (bucket, log) = (Gcra::per_second(10).burst(3), SlidingLog::new(4, Duration::from_secs(1)));
/// let mut oracle = Oracle::new([bucket.into(), log.into()], 0);
/// assert_eq!(oracle.decide(0, 2).unwrap().remaining, 1);
/// assert_eq!(oracle.decide(0, 2).unwrap_err().wait_ns, 100_000_000);
/// ```
#[derive(Clone, Debug)]
pub struct Oracle {
    limits: Vec<Ledger>,
}

/// An expected grant.
#[derive(Clone, Debug)]
pub struct Granted {
    /// The permits taken.
    pub permits: u64,
    /// The permits that one call could take after it.
    pub remaining: u64,
    /// The grant of each ledger.
    each: Vec<Grant>,
}

/// An expected hold.
#[derive(Clone, Debug)]
pub struct Held {
    /// The permits held.
    pub permits: u64,
    /// The instant at which it ends by itself.
    pub end_ns: u64,
    /// The hold of each ledger.
    each: Vec<Hold>,
}

/// An expected denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The wait after which the same call passes.
    pub wait_ns: u64,
    /// The permits that one call could take now.
    pub remaining: u64,
    /// The permits by which the limit that is exceeded most is exceeded.
    pub debt: u64,
}

impl Oracle {
    /// Returns limits of which nothing has been taken.
    pub fn new(policies: impl IntoIterator<Item = AnyPolicy>, now_ns: u64) -> Self {
        let limits = policies.into_iter().map(|policy| Ledger::new(policy, now_ns));
        Self { limits: limits.collect() }
    }

    /// Gives the limits other numbers, in the order of [`new`](Self::new).
    pub fn change(&mut self, now_ns: u64, policies: impl IntoIterator<Item = AnyPolicy>) {
        for (limit, policy) in self.limits.iter_mut().zip(policies) {
            limit.reconfigure(now_ns, policy).expect("a policy that can follow");
        }
    }

    /// Takes all the permits or none.
    ///
    /// # Errors
    ///
    /// [`Refused`], if a limit lacks permits.
    ///
    /// # Panics
    ///
    /// Panics if more permits are requested than could ever pass.
    pub fn decide(&mut self, now_ns: u64, permits: u64) -> Result<Granted, Refused> {
        self.check(now_ns, permits)?;
        let each = self.limits.iter_mut().map(|limit| match limit.try_acquire(now_ns, permits) {
            Ok(Verdict::Granted(grant)) => grant,
            other => panic!("{other:?}"),
        });
        let each = each.collect();
        Ok(Granted { permits, remaining: self.remaining(now_ns), each })
    }

    /// Returns what a decision would be, without taking permits.
    ///
    /// # Errors
    ///
    /// [`Refused`], if a limit lacks permits.
    pub fn check(&self, now_ns: u64, permits: u64) -> Result<(), Refused> {
        let waits = self.limits.iter().map(|limit| wait_ns(limit, now_ns, permits).unwrap());
        match waits.max().unwrap() {
            0 => Ok(()),
            wait_ns => {
                let (remaining, debt) = (self.remaining(now_ns), self.debt(now_ns));
                Err(Refused { wait_ns, remaining, debt })
            }
        }
    }

    /// Holds all the permits or none.
    ///
    /// # Errors
    ///
    /// [`Refused`], if a limit lacks permits.
    pub fn hold(&mut self, now_ns: u64, permits: u64, ttl_ns: u64) -> Result<Held, Refused> {
        self.check(now_ns, permits)?;
        let each =
            self.limits.iter_mut().map(|limit| match limit.try_hold(now_ns, permits, ttl_ns) {
                Ok(HoldVerdict::Held(hold)) => hold,
                other => panic!("{other:?}"),
            });
        Ok(Held { permits, end_ns: now_ns + ttl_ns, each: each.collect() })
    }

    /// Ends a hold of which `actual` permits were used, and charges what was not held.
    pub fn commit(&mut self, now_ns: u64, held: &Held, actual: u64, debt: Debt) -> Committed {
        let used = actual.min(held.permits);
        let each = self.limits.iter_mut().zip(&held.each);
        let backs: Vec<_> = each.map(|(limit, hold)| limit.end_hold(now_ns, *hold, used)).collect();
        let Some(back) = backs.into_iter().min().flatten() else {
            return Committed::Late(self.charge(now_ns, actual, debt).0);
        };
        Committed::InTime(match actual - used {
            0 if used == held.permits => Settled::Even,
            0 => Settled::Back { permits: back },
            short => match self.charge(now_ns, short, debt).0 {
                // Permits in flight owe nothing.
                Charged { booked: 0, forgiven: 0, .. } => Settled::Even,
                Charged { booked: permits, forgiven, .. } => Settled::Owed { permits, forgiven },
            },
        })
    }

    /// Returns the instant at which the next hold ends by itself.
    pub fn next_end_ns(&self) -> Option<u64> {
        self.limits.first()?.next_end_ns()
    }

    /// Takes as many of the permits as pass.
    ///
    /// # Errors
    ///
    /// [`Refused`], if not even one passes.
    pub fn debit(&mut self, now_ns: u64, permits: u64) -> Result<Granted, Refused> {
        let passing = self.remaining(now_ns).min(permits);
        self.decide(now_ns, passing.max(1))
    }

    /// Returns the number of permits that one call could take.
    pub fn remaining(&self, now_ns: u64) -> u64 {
        self.limits.iter().map(|limit| limit.remaining(now_ns)).min().unwrap()
    }

    /// Charges each limit but those on operations in flight, and returns the outcome with the wait
    /// after which a call for as many permits passes. `None` if none ever does.
    pub fn charge(&mut self, now_ns: u64, permits: u64, debt: Debt) -> (Charged, Option<u64>) {
        let is_charged = |limit: &&mut Ledger| !limit.counts_in_flight();
        let charged = self.limits.iter_mut().filter(is_charged);
        let each = charged.map(|limit| limit.charge(now_ns, permits, debt).unwrap().forgiven);
        let Some(forgiven) = each.max() else { return (Charged::default(), None) };
        let mut waits = self.limits.iter().map(|limit| match permits {
            0 => limit.debt_ends_in_ns(now_ns),
            _ => wait_ns(limit, now_ns, permits),
        });
        let wait_ns = waits.try_fold(0, |all, wait: Option<u64>| Some(wait?.max(all)));
        (Charged { booked: permits - forgiven, forgiven, debt: self.debt(now_ns) }, wait_ns)
    }

    /// Returns the number of permits by which the limit that is exceeded most is exceeded.
    pub fn debt(&self, now_ns: u64) -> u64 {
        self.limits.iter().map(|limit| limit.debt(now_ns)).max().unwrap()
    }

    /// Returns `true` if a bucket is full. A credit to it changes nothing, and a store that has
    /// evicted it may count the credit or not.
    pub fn has_a_full_bucket(&self, now_ns: u64) -> bool {
        self.limits.iter().any(|limit| {
            let is_bucket = limit.policies().all(|policy| matches!(policy, AnyPolicy::Gcra(_)));
            is_bucket
                && limit.policies().all(|policy| limit.remaining(now_ns) == policy.max_at_once())
        })
    }

    /// Refunds as many permits as all limits can take back.
    pub fn refund(&mut self, now_ns: u64, granted: &Granted, permits: u64) -> u64 {
        let each = self.limits.iter().zip(&granted.each);
        let min = each.map(|(limit, grant)| limit.clone().refund(now_ns, grant, permits));
        let min = min.min().unwrap();
        for (limit, grant) in self.limits.iter_mut().zip(&granted.each) {
            limit.refund(now_ns, grant, min);
        }
        min
    }

    /// Credits permits without a grant, as many as all limits can take back.
    pub fn credit(&mut self, now_ns: u64, permits: u64) -> u64 {
        let each = self.limits.iter().map(|limit| limit.clone().credit(now_ns, permits));
        let min = each.min().unwrap();
        for limit in &mut self.limits {
            limit.credit(now_ns, min);
        }
        min
    }
}

/// Returns what a store's denial says. All permits in flight in a store are held until some end, so
/// it names the one after which these pass.
fn wait_ns(limit: &Ledger, now_ns: u64, permits: u64) -> Option<u64> {
    let told_ns = |at_ns| limit.peek(at_ns, permits).ok().flatten();
    let (mut at_ns, mut more_ns) = (now_ns, told_ns(now_ns)?);
    while limit.counts_in_flight() && more_ns > 0 {
        at_ns += more_ns;
        more_ns = told_ns(at_ns)?;
    }
    Some(at_ns + more_ns - now_ns)
}
