//! The cost of an item as its result says it, and charges beyond what a state can count.

use rategate::charge::{Charged, Settled};

use super::answer::{ItemResult, Verdict};
use crate::rule::{Limit, Rule};

impl ItemResult {
    /// Returns `true` if fewer permits were charged than were used because the state of the limit
    /// can count no more.
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        self.detail.as_ref().is_some_and(|detail| detail.saturated)
    }

    /// Notes that the state of the limit cannot count all of the permits that were used. Where a
    /// debt has a bound, what exceeds it is forgiven instead.
    pub(super) fn note_saturation(&mut self, used: u64) {
        let rule = self.rule.as_deref();
        let is_less = match (self.verdict, rule.map(|rule| &rule.limit)) {
            (Verdict::Charged(permits), Some(Limit::Counted(window))) => {
                permits > 0 && self.debt >= window.debt(u64::MAX)
            }
            (Verdict::Charged(permits), _) => permits < used,
            (Verdict::Committed(Settled::Owed { forgiven, .. }), _) => forgiven > 0,
            _ => false,
        };
        let is_counted = !matches!(self.limit, 0 | u64::MAX);
        let is_bounded = || rule.is_some_and(Rule::bounds_debt);
        if is_less && is_counted && !is_bounded() {
            self.detail.get_or_insert_default().saturated = true;
        }
    }

    /// Returns `true` if it, or any of its parts, has a verdict of which a state may not have
    /// counted all.
    pub(super) fn may_be_saturated(&self) -> bool {
        let is_less = |it: &Self| match it.verdict {
            Verdict::Charged(_) => true,
            Verdict::Committed(Settled::Owed { forgiven, .. }) => forgiven > 0,
            _ => false,
        };
        is_less(self) || self.parts().iter().any(is_less)
    }

    /// Calls `act` with its parts and itself, the rule of each, and `true` if that alone decided
    /// the item.
    pub(super) fn for_each_rule(&mut self, act: impl Fn(&mut Self, &Rule, bool)) {
        let mut parts =
            self.detail.as_mut().map_or_else(Vec::new, |detail| std::mem::take(&mut detail.parts));
        let alone = parts.is_empty();
        for result in parts.iter_mut().chain([&mut *self]) {
            if let Some(rule) = result.rule.clone() {
                act(result, &rule, alone);
            }
        }
        if let Some(detail) = &mut self.detail {
            detail.parts = parts;
        }
    }
}

impl Rule {
    fn bounds_debt(&self) -> bool {
        self.debt.max_ns() != u64::MAX
    }

    /// Returns `true` if a late charge exceeds what the state of the limit can count. Of a rule
    /// that had not held nothing is charged.
    pub(super) fn is_saturated_by(&self, charged: Charged) -> bool {
        charged.booked > 0 && charged.forgiven > 0 && !self.bounds_debt()
    }
}
