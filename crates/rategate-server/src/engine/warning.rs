//! Warnings: the shares of a limit that a call is the first to reach.
//!
//! # Contract
//!
//! * A call reaches a share if less was used before it, and as much or more after it. So of the
//!   calls of one key each share is reached once on the way up, and again after what is used has
//!   fallen below it: by time, or by what came back.
//! * **No state.** Both numbers are those of the decision itself. Where several limits decide
//!   together, they are read right after it, so that calls of one key at the same instant may
//!   repeat a warning or miss one.
//! * A store that says no number left gives no warning.

use rategate::charge::Settled;

use super::answer::{ItemResult, Verdict};
use crate::rule::{Limit, Over};

impl ItemResult {
    /// Returns the shares of the limit, of 10 000 and ascending, that an item of so many permits
    /// reached.
    pub(crate) fn reached(&self, permits: u64) -> impl Iterator<Item = u16> {
        let numbers = self.used(permits);
        let all = self.rule.iter().flat_map(|rule| rule.warn.iter().copied());
        all.filter(move |share| {
            numbers.is_some_and(|(before, after)| {
                // The number of permits is rounded up: a share is not reached too early.
                let parts = u128::from(self.limit).saturating_mul(u128::from(*share));
                let threshold = parts.div_ceil(10_000).max(1);
                before < threshold && threshold <= after
            })
        })
    }

    /// Returns what was used of the limit before an item and after it, if it counted anything.
    fn used(&self, permits: u64) -> Option<(u128, u128)> {
        let rule = self.rule.as_ref().filter(|rule| !rule.warn.is_empty())?;
        let counts_denied = rule.over == Over::Charge || matches!(rule.limit, Limit::Counted(_));
        let counted = match self.verdict {
            Verdict::Granted => permits,
            Verdict::Denied { .. } if counts_denied => permits,
            Verdict::Charged(permits)
            | Verdict::Late(permits)
            | Verdict::Committed(Settled::Owed { permits, .. }) => permits,
            _ => return None,
        };
        let left = self.remaining.filter(|_| self.limit < u64::MAX)?;
        let after = u128::from(self.limit.saturating_sub(left)).saturating_add(self.debt.into());
        Some((after.saturating_sub(counted.into()), after))
    }

    /// Notes the highest share that an item of so many permits reached.
    pub(super) fn warn(&mut self, permits: u64) {
        if let Some(share) = self.reached(permits).last() {
            self.detail.get_or_insert_default().warning = Some(share);
        }
    }

    /// Notes the shares that were reached as a reservation was settled.
    pub(super) fn warn_of_settled(&mut self) {
        if let Some(detail) = &mut self.detail {
            detail.parts.iter_mut().for_each(|part| part.warn(0));
        }
        self.warn(0);
    }

    /// Returns the highest share of the limit, of 10 000, that the item reached and that is to be
    /// warned of.
    #[must_use]
    pub fn warning(&self) -> Option<u16> {
        self.detail.as_ref()?.warning
    }
}
