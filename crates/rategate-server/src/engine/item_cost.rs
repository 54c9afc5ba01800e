//! The cost of an item as its result says it, and charges beyond what a state can count.

use rategate::charge::Settled;

use super::answer::{ItemResult, Verdict};
use crate::rule::{Counts, Limit, Rule, Usage};

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
            // Of a rule that had not held nothing is charged.
            (Verdict::Late(permits), _) => 0 < permits && permits < used,
            (Verdict::Committed(Settled::Owed { forgiven, .. }), _) => forgiven > 0,
            _ => false,
        };
        let is_counted = !matches!(self.limit, 0 | u64::MAX);
        let is_bounded = || rule.is_some_and(|rule| rule.debt.max_ns() != u64::MAX);
        if is_less && is_counted && !is_bounded() {
            self.detail.get_or_insert_default().saturated = true;
        }
    }

    /// Sets the cost of a usage in its rule, and in each of several.
    pub(super) fn set_cost_of(&mut self, usage: &Usage<'_>) {
        self.for_each_rule(|result, rule, alone| {
            if matches!(rule.counts, Counts::Usage(_) | Counts::Money(_))
                && let Ok(cost) = rule.counts.amount(0, Some(usage), alone)
            {
                result.detail.get_or_insert_default().cost = Some(cost);
            }
        });
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
