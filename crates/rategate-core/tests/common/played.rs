//! A limit that is called in all ways, and what its callers have of it.

use super::ns;
use fastrand::Rng;
use rategate_core::all_of::AllOf;
use rategate_core::debt::Debt;
use rategate_core::holds::{Hold, HoldVerdict};
use rategate_core::ledger::Ledger;
use rategate_core::verdict::{Grant, Verdict};

pub(crate) struct Played {
    pub(crate) ledger: Ledger,
    pub(crate) grants: Vec<Grant>,
    holds: Vec<Hold>,
}

/// What is done: the verb, how much, and to which of the grants or holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) now_ns: u64,
    pub(crate) verb: Verb,
    permits: u64,
    span_ns: u64,
    debt: Debt,
    pick: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Try,
    Reserve,
    ReserveWithin,
    Hold,
    Commit,
    Charge,
    Cancel,
    Refund,
    Credit,
}

/// Each verb, as often as any other.
pub(crate) const VERBS: [Verb; 9] = [
    Verb::Try,
    Verb::Reserve,
    Verb::ReserveWithin,
    Verb::Hold,
    Verb::Commit,
    Verb::Charge,
    Verb::Cancel,
    Verb::Refund,
    Verb::Credit,
];

impl Step {
    pub(crate) fn random(
        now_ns: u64,
        verbs: &[Verb],
        (most, max_ns): (u64, u64),
        random: &mut Rng,
    ) -> Self {
        let verb = random.choice(verbs).copied().unwrap();
        let (permits, span_ns) = (random.u64(1..=most), random.u64(1..max_ns));
        let debt = random.choice([Debt::CARRIED, Debt::CARRIED.at_most(ns(span_ns))]).unwrap();
        Self { now_ns, verb, permits, span_ns, debt, pick: random.usize(..100) }
    }
}

impl Played {
    pub(crate) fn new(limits: impl Into<AllOf>) -> Self {
        Self { ledger: Ledger::new(limits, 0), grants: Vec::new(), holds: Vec::new() }
    }

    /// Returns what a caller sees of a step.
    ///
    /// A call can be cancelled until it starts, and gives back what it has at most.
    pub(crate) fn step(&mut self, step: &Step) -> String {
        let &Step { now_ns, verb, permits, span_ns, debt, pick } = step;
        let Self { ledger, grants, holds } = self;
        match verb {
            Verb::Try | Verb::Reserve | Verb::ReserveWithin => {
                let max_wait_ns = (verb == Verb::ReserveWithin).then_some(span_ns);
                let verdict = match verb {
                    Verb::Try => ledger.try_acquire(now_ns, permits),
                    _ => ledger.reserve(now_ns, permits, max_wait_ns),
                };
                let Ok(Verdict::Granted(grant)) = verdict else { return format!("{verdict:?}") };
                grants.push(grant);
                let Grant { start_ns, scheduled_ns, permits, .. } = grant;
                let left = ledger.remaining(now_ns);
                format!("{permits} at {start_ns}, scheduled {scheduled_ns}, {left} left")
            }
            Verb::Hold => match ledger.try_hold(now_ns, permits, span_ns) {
                Ok(HoldVerdict::Held(hold)) => {
                    holds.push(hold);
                    format!("held to {}", hold.end_ns)
                }
                other => format!("{other:?}"),
            },
            Verb::Commit if !holds.is_empty() => {
                let hold = holds.swap_remove(pick % holds.len());
                format!("{:?}", ledger.commit(now_ns, hold, permits, debt))
            }
            Verb::Charge => format!("{:?}", ledger.charge(now_ns, permits, debt)),
            Verb::Cancel if !grants.is_empty() => {
                let grant = grants.swap_remove(pick % grants.len());
                let cancelled = ledger.cancel(now_ns, grant.ticket);
                assert_eq!(cancelled, grant.start_ns > now_ns, "{step:?} of {grant:?}");
                format!("cancelled {cancelled}")
            }
            Verb::Refund if !grants.is_empty() => {
                let grant = grants.swap_remove(pick % grants.len());
                let back = ledger.refund(now_ns, &grant, permits);
                assert!(back <= grant.permits.min(permits), "{step:?} of {grant:?}");
                format!("back {back}")
            }
            Verb::Credit => format!("credit {}", ledger.credit(now_ns, permits)),
            _ => String::new(),
        }
    }

    /// Returns what a caller sees of the limit.
    pub(crate) fn seen(&self, now_ns: u64) -> String {
        let peeked = [1, 3].map(|permits| self.ledger.peek(now_ns, permits));
        let (left, debt) = (self.ledger.remaining(now_ns), self.ledger.debt(now_ns));
        format!("{peeked:?}, {left} left, owes {debt} to {:?}", self.ledger.debt_ends_in_ns(now_ns))
    }
}
