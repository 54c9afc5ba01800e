//! Random traffic, on which a store decides exactly as the core does.

use std::time::Duration;

use rategate::charge::Debt;
use rategate::store::{Receipt, Rule, StoreError, Verdict};

use super::client::wait_us;
use super::rules::{LABELS, NOW_US, bucket, cases, policy};
use super::story::Stage;
use super::{Arena, laws};
use crate::oracle::{Granted, Oracle, Refused};

/// Runs all cases.
pub fn suite(arena: &impl Arena) {
    for (seed, (name, rules, typical_us)) in (1..).zip(cases()) {
        let rules: Vec<(&str, Rule)> = LABELS.into_iter().zip(rules).collect();
        // Cases are played in order of time, so that they can share a store whose clock cannot go
        // back.
        Traffic::new(arena, name, &rules, (seed, NOW_US), None).play(typical_us, 1_200);
    }
}

/// Runs all cases with charges among the calls, for each way in which a debt ends.
///
/// A log that carries its debts is left out: a store may refuse that. So are rates at which a
/// permit takes a part of a nanosecond: by the core's receipts, of whole ones, a refund behind a
/// charge may be a permit less.
pub fn charges(arena: &impl Arena) {
    let bounded = |debt: Debt, us| debt.at_most(Duration::from_micros(us));
    for (seed, (name, rules, typical_us)) in (1..).zip(cases()) {
        let terms = [
            Debt::FORGOTTEN,
            bounded(Debt::FORGOTTEN, typical_us * 7),
            Debt::CARRIED,
            bounded(Debt::CARRIED, typical_us * 7),
        ];
        let rules = match name {
            "a fine bucket" => vec![bucket("100000000/s", 3_000)],
            _ => rules,
        };
        let has_log = rules.iter().any(|rule| matches!(rule, Rule::Log(_)));
        let rules: Vec<(&str, Rule)> = LABELS.into_iter().zip(rules).collect();
        for debt in terms.into_iter().filter(|debt| !(has_log && debt.is_carried())) {
            let name = format!("{name}, {debt:?}");
            Traffic::new(arena, &name, &rules, (seed, NOW_US), Some(debt)).play(typical_us, 600);
        }
    }
}

pub(super) struct Traffic<'a, A: Arena> {
    stage: Stage<'a, A>,
    oracle: Oracle,
    /// The way in which debts end, if there are any.
    debt: Option<Debt>,
    /// `true` if a limit bounds its debts: a forgotten one has a bound in buckets only.
    has_bound: bool,
    grants: Vec<(Granted, Receipt)>,
}

impl<'a, A: Arena> Traffic<'a, A> {
    /// Creates traffic on an empty store, from an instant on.
    pub(super) fn new(
        arena: &'a A,
        name: &'a str,
        rules: &[(&str, Rule)],
        begin: (u64, u64),
        debt: Option<Debt>,
    ) -> Self {
        let stage = Stage::new(arena, name, rules, begin);
        let oracle = Oracle::new(rules.iter().map(|(_, rule)| policy(*rule)), stage.now_ns());
        let has_bound = debt.is_some_and(|debt| {
            debt.is_carried() || rules.iter().any(|(_, rule)| matches!(rule, Rule::Bucket(_)))
        });
        Self { stage, oracle, debt, has_bound, grants: Vec::new() }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.stage.below(bound)
    }

    fn now_ns(&self) -> u64 {
        self.stage.now_ns()
    }

    fn pass(&mut self, us: u64) {
        self.stage.pass(us);
    }

    /// Plays some steps, and returns the number of decisions and charges that were compared.
    pub(super) fn play(mut self, typical_us: u64, steps: u64) -> u64 {
        for step in 0..steps {
            let us = match self.below(8) {
                0..3 => 0,
                3 => 1,
                7 => self.below(typical_us * 6 + 1),
                _ => self.below(typical_us * 2 + 1),
            };
            self.pass(us);
            if self.debt.is_some() && self.below(6) == 0 {
                self.charge(step);
                continue;
            }
            match self.below(11) {
                0..2 => self.refund(step),
                2 => self.debit(step),
                3 => self.peek(step),
                4 if step % 3 == 0 => self.credit(step),
                _ => self.decide(step),
            }
        }
        self.stage.assert_over(steps / 20, &["granted", "denied"]);
        // A debt leaves less to refund.
        let few = if self.debt.is_some() { 3 } else { 10 };
        self.stage.assert_over(few, &["back", "credited"]);
        if self.stage.capacity > 1 {
            self.stage.assert_over(0, &["partly"]);
        }
        if let Some(debt) = self.debt {
            self.stage.assert_over(steps / 20, &["charged"]);
            self.stage.assert_over(10, &["in debt"]);
            if debt.max_ns() < u64::MAX && self.has_bound {
                self.stage.assert_over(0, &["forgiven"]);
            }
        }
        self.stage.counts["compared"]
    }

    fn wanted(&mut self) -> u64 {
        let capacity = self.stage.capacity;
        match self.below(5) {
            0 => 1 + self.below(capacity),
            1 => 1 + self.below(capacity.min(3)),
            _ => 1,
        }
    }

    fn decide(&mut self, step: u64) {
        let permits = self.wanted();
        let about = self.about(step, permits);
        let expected = self.oracle.decide(self.now_ns(), permits);
        let refused = expected.as_ref().err().copied();
        let seen = self.stage.client.decide(permits);
        self.compare(&about, seen, expected);
        let Some(Refused { wait_ns, .. }) = refused else { return };
        if self.below(3) > 0 {
            return;
        }
        // One microsecond before the reported instant the wait is one microsecond; at it, the
        // call passes.
        let wait_us = wait_ns.div_ceil(1_000);
        self.pass(wait_us - 1);
        if wait_us > 1 {
            let sooner = laws::wait_of(self.stage.client.decide(permits).unwrap());
            assert_eq!(sooner, Some(1), "{about}: a microsecond before");
        }
        self.pass(1);
        let expected = self.oracle.decide(self.now_ns(), permits);
        assert!(expected.is_ok(), "{about}: the core passes after the wait that it reports");
        let seen = self.stage.client.decide(permits);
        self.compare(&format!("{about}: after the reported wait"), seen, expected);
    }

    fn debit(&mut self, step: u64) {
        let permits = self.wanted();
        let about = self.about(step, permits);
        let expected = self.oracle.debit(self.now_ns(), permits);
        self.stage
            .count("partly", u64::from(expected.as_ref().is_ok_and(|it| it.permits < permits)));
        let seen = self.stage.client.debit(permits);
        self.compare(&format!("{about}: a debit"), seen, expected);
    }

    /// Compares a peek with a decision. It takes nothing, so that all later steps agree as well.
    fn peek(&mut self, step: u64) {
        let permits = self.wanted();
        let about = self.about(step, permits);
        let before = self.oracle.remaining(self.now_ns());
        self.stage.count("compared", 1);
        match (
            self.stage.client.peek(permits).unwrap(),
            self.oracle.clone().decide(self.now_ns(), permits),
        ) {
            (Verdict::Granted(grant), Ok(_)) => {
                assert_eq!((grant.permits, grant.remaining), (permits, before), "{about}: a peek");
            }
            (Verdict::Denied(denial), Err(refused)) => {
                let seen = (wait_us(denial), denial.remaining);
                assert_eq!(
                    seen,
                    (Some(refused.wait_ns.div_ceil(1_000)), before),
                    "{about}: a peek"
                );
            }
            (seen, expected) => panic!("{about}: a peek: {seen:?}, the core {expected:?}"),
        }
    }

    fn refund(&mut self, step: u64) {
        if self.grants.is_empty() || self.oracle.has_a_full_bucket(self.now_ns()) {
            return;
        }
        let newest = u64::try_from(self.grants.len().min(6)).unwrap();
        let at = usize::try_from(self.below(newest)).unwrap();
        let (theirs, receipt) = self.grants.remove(self.grants.len() - 1 - at);
        let permits = 1 + self.below(theirs.permits);
        let about = self.about(step, permits);
        let expected = self.oracle.refund(self.now_ns(), &theirs, permits);
        let seen = self.stage.client.refund(&receipt, permits).unwrap();
        assert_eq!(seen, expected, "{about}: refunded, of {theirs:?}");
        self.stage.count("back", seen);
    }

    /// Charges permits. At the reported instant a call for as many passes, and not before.
    fn charge(&mut self, step: u64) {
        let Some(debt) = self.debt else { return };
        let capacity = self.stage.capacity;
        let permits = match self.below(8) {
            0 => 0,
            1 => self.below(capacity * 4 + 8),
            2 => self.below(capacity + 1),
            _ => 1 + self.below(2),
        };
        let about = self.about(step, permits);
        let (expected, wait_ns) = self.oracle.charge(self.now_ns(), permits, debt);
        let remaining = self.oracle.remaining(self.now_ns());
        let seen = self.stage.client.charge(permits, debt).unwrap();
        assert_eq!((seen.charged, seen.remaining), (expected, remaining), "{about}: a charge");
        let seen_us = seen.retry_after_ns.map(|ns| ns.div_ceil(1_000));
        let wait_us = wait_ns.map(|ns| ns.div_ceil(1_000));
        assert_eq!(seen_us, wait_us, "{about}: the wait after a charge");
        self.stage.count("compared", 1);
        self.stage.count("charged", expected.booked);
        self.stage.count("in debt", u64::from(expected.debt > 0));
        self.stage.count("forgiven", expected.forgiven);
        let Some(wait_us) = wait_us.filter(|&wait_us| wait_us > 0) else { return };
        if self.below(2) == 0 {
            self.pass(wait_us - 1);
            if permits > 0 {
                let sooner = laws::wait_of(self.stage.client.peek(permits).unwrap());
                assert_eq!(sooner, Some(1), "{about}: a microsecond before");
            } else {
                let sooner = self.stage.client.charge(0, debt).unwrap();
                assert_eq!(sooner.retry_after_ns.map(|ns| ns.div_ceil(1_000)), Some(1), "{about}");
            }
            self.pass(1);
            let then = self.stage.client.charge(0, debt).unwrap();
            assert_eq!(then.charged.debt, 0, "{about}: when its debt ends");
            if permits > 0 {
                let peeked = self.stage.client.peek(permits).unwrap();
                assert!(matches!(peeked, Verdict::Granted(_)), "{about}: {peeked:?}");
            }
        }
    }

    /// Credits permits without a grant. A credit beyond what is missing fills the limits, and
    /// later refunds of earlier grants return as much as still holds for them.
    fn credit(&mut self, step: u64) {
        let capacity = self.stage.capacity;
        let permits = 1 + self.below(capacity + 2);
        let about = self.about(step, permits);
        let expected = self.oracle.credit(self.now_ns(), permits.min(capacity));
        let seen = self.stage.client.credit(permits).unwrap();
        assert_eq!(seen, expected, "{about}: credited without a grant");
        assert_eq!(
            self.stage.client.remaining(),
            self.oracle.remaining(self.now_ns()),
            "{about}: after it"
        );
        self.stage.count("credited", seen);
    }

    fn compare(
        &mut self,
        about: &str,
        seen: Result<Verdict, StoreError>,
        expected: Result<Granted, Refused>,
    ) {
        self.stage.count("compared", 1);
        match (seen.unwrap(), expected) {
            (Verdict::Granted(ours), Ok(theirs)) => {
                let seen = (ours.permits, ours.remaining);
                assert_eq!(seen, (theirs.permits, theirs.remaining), "{about}");
                self.stage.count("granted", 1);
                self.grants.push((theirs, ours.receipt));
            }
            (Verdict::Denied(ours), Err(theirs)) => {
                let seen = (wait_us(ours), ours.remaining, ours.debt);
                let wait_us = Some(theirs.wait_ns.div_ceil(1_000));
                assert_eq!(seen, (wait_us, theirs.remaining, theirs.debt), "{about}");
                self.stage.count("denied", 1);
            }
            (seen, expected) => panic!("{about}: {seen:?}, the core {expected:?}"),
        }
    }

    fn about(&self, step: u64, permits: u64) -> String {
        format!("{}, step {step}: {permits} permits at {} us", self.stage.name, self.stage.now_us)
    }
}
