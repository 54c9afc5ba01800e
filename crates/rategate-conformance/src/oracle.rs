//! The expected replies of a store: the core's ledgers, one for each limit, on the same clock.

use rategate::store::Rule;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;
use rategate_core::verdict::{Grant, Verdict};

/// The limits of one key.
#[derive(Clone, Debug)]
pub(crate) struct Oracle {
    limits: Vec<Ledger<AnyPolicy>>,
    capacity: u64,
}

/// An expected grant: the permits, and the grant of each ledger.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) permits: u64,
    pub(crate) remaining: u64,
    each: Vec<Grant>,
}

/// An expected denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) wait_us: u64,
    pub(crate) remaining: u64,
}

impl Oracle {
    pub(crate) fn new(rules: &[(&str, Rule)], now_us: u64) -> Self {
        let policies = rules.iter().map(|(_, rule)| match *rule {
            Rule::Bucket(bucket) => AnyPolicy::from(bucket),
            Rule::Log(log) => log.into(),
            Rule::Window(window) => window.into(),
            Rule::InFlight(..) => panic!("permits in flight are for another oracle"),
        });
        let limits = policies.map(|policy| Ledger::new(policy, now_us * 1_000)).collect();
        let capacity = rules.iter().map(|(_, rule)| rule.capacity()).min().unwrap();
        Self { limits, capacity }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) fn decide(&mut self, now_us: u64, permits: u64) -> Result<Granted, Refused> {
        let now_ns = now_us * 1_000;
        let waits = self.limits.iter().map(|limit| limit.peek(now_ns, permits).unwrap().unwrap());
        let wait_ns = waits.max().unwrap();
        if wait_ns > 0 {
            let remaining = self.remaining(now_us);
            return Err(Refused { wait_us: wait_ns.div_ceil(1_000), remaining });
        }
        let each = self.limits.iter_mut().map(|limit| match limit.try_acquire(now_ns, permits) {
            Ok(Verdict::Granted(grant)) => grant,
            other => panic!("{other:?}"),
        });
        let each = each.collect();
        Ok(Granted { permits, remaining: self.remaining(now_us), each })
    }

    /// Takes as many of the permits as pass.
    pub(crate) fn debit(&mut self, now_us: u64, permits: u64) -> Result<Granted, Refused> {
        match self.remaining(now_us).min(permits) {
            0 => self.decide(now_us, 1),
            permits => self.decide(now_us, permits),
        }
    }

    pub(crate) fn remaining(&self, now_us: u64) -> u64 {
        self.limits.iter().map(|limit| limit.remaining(now_us * 1_000)).min().unwrap()
    }

    /// Returns `true` if a bucket is full. A credit to it changes nothing, and a store that has
    /// evicted it may count the credit or not.
    pub(crate) fn has_a_full_one(&self, now_us: u64) -> bool {
        let now_ns = now_us * 1_000;
        self.limits.iter().any(|limit| match limit.policy() {
            AnyPolicy::Gcra(bucket) => limit.remaining(now_ns) == bucket.burst_size().get(),
            _ => false,
        })
    }

    /// Refunds as many permits as all limits can take back.
    pub(crate) fn refund(&mut self, now_us: u64, granted: &Granted, permits: u64) -> u64 {
        let now_ns = now_us * 1_000;
        let each = self.limits.iter().zip(&granted.each);
        let min = each.map(|(limit, grant)| limit.clone().refund(now_ns, grant, permits));
        let min = min.min().unwrap();
        for (limit, grant) in self.limits.iter_mut().zip(&granted.each) {
            limit.refund(now_ns, grant, min);
        }
        min
    }

    /// Credits permits without a grant, as many as all limits can take back.
    pub(crate) fn credit(&mut self, now_us: u64, permits: u64) -> u64 {
        let now_ns = now_us * 1_000;
        let each = self.limits.iter().map(|limit| limit.clone().credit(now_ns, permits));
        let min = each.min().unwrap();
        for limit in &mut self.limits {
            limit.credit(now_ns, min);
        }
        min
    }
}
