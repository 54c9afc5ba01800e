//! Grants and holds of steps, and what can still be done with each. A limiter remembers none
//! of this: its callers do.

use std::collections::BTreeMap;

use rategate_core::fair::ClassId;

use crate::report::Outcome;

/// The grants of steps, kept for later ones that settle, refund, end or cancel them.
pub(crate) struct Granted<G>(BTreeMap<usize, One<G>>);

pub(crate) struct One<G> {
    pub(crate) grant: G,
    pub(crate) class: ClassId,
    pub(crate) permits: u64,
    /// The number of permits not yet refunded.
    left: u64,
    is_settled: bool,
    has_ended: bool,
    /// `true` once a settlement, a refund or an end has used the reservation, which then cannot be
    /// cancelled.
    is_used: bool,
}

impl<G> Default for Granted<G> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<G> Granted<G> {
    /// Records the grant of a step.
    pub(crate) fn add(&mut self, step: usize, grant: G, class: ClassId, permits: u64) {
        let (left, is_settled, has_ended, is_used) = (permits, false, false, false);
        let one = One { grant, class, permits, left, is_settled, has_ended, is_used };
        self.0.insert(step, one);
    }

    /// Removes a step's grant. Returns `None` if it has been settled or refunded.
    pub(crate) fn cancel(&mut self, step: usize) -> Option<G> {
        if self.0.get(&step)?.is_used {
            return None;
        }
        self.0.remove(&step).map(|one| one.grant)
    }

    /// Settles the grant of a step, unless that was done, by a function that returns `None`
    /// if the limit has none of it. Returns the reason why nothing was settled.
    pub(crate) fn settle<T>(
        &mut self,
        step: usize,
        settle: impl FnOnce(&One<G>) -> Option<T>,
    ) -> Result<T, Outcome> {
        let one = self.find(step)?;
        // Each grant is settled once, and not after a part of it was refunded or its end.
        if !one.is_whole() {
            return Err(Outcome::TooLate);
        }
        // Nothing was taken.
        let settled = settle(one).ok_or(Outcome::NotForThisLimit)?;
        one.is_settled = true;
        Ok(settled)
    }

    /// Refunds the grant of a step, or as much of it as is left. Returns what came back.
    pub(crate) fn refund(
        &mut self,
        step: usize,
        permits: u64,
        refund: impl FnOnce(&One<G>, u64) -> u64,
    ) -> Result<u64, Outcome> {
        let one = self.find(step)?;
        if one.has_ended || one.is_settled || one.left == 0 {
            return Err(Outcome::TooLate);
        }
        // No permit is refunded twice.
        let back = refund(one, permits.min(one.left));
        one.left -= back;
        Ok(back)
    }

    /// Ends the operations of a step's grant. Returns its permits, if there is one.
    pub(crate) fn end(&mut self, step: usize, end: impl FnOnce(&One<G>)) -> (Option<u64>, Outcome) {
        let Ok(one) = self.find(step) else { return (None, Outcome::Ungranted) };
        if !one.is_whole() {
            return (Some(one.permits), Outcome::TooLate);
        }
        one.has_ended = true;
        end(one);
        (Some(one.permits), Outcome::Set)
    }

    fn find(&mut self, step: usize) -> Result<&mut One<G>, Outcome> {
        let one = self.0.get_mut(&step).ok_or(Outcome::Ungranted)?;
        one.is_used = true;
        Ok(one)
    }
}

impl<G> One<G> {
    const fn is_whole(&self) -> bool {
        !self.has_ended && !self.is_settled && self.left == self.permits
    }
}

/// The holds of steps, until a later one commits or cancels them.
pub(crate) struct Held<H>(BTreeMap<usize, Option<H>>);

impl<H> Default for Held<H> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<H> Held<H> {
    /// Records the hold of a step, if it has one.
    pub(crate) fn add(&mut self, step: usize, hold: Option<H>) {
        self.0.extend(hold.map(|hold| (step, Some(hold))));
    }

    /// Returns the hold of that step, which ends now, or the reason why none does.
    pub(crate) fn take(&mut self, step: usize) -> Result<H, Outcome> {
        self.0.get_mut(&step).ok_or(Outcome::Ungranted)?.take().ok_or(Outcome::TooLate)
    }

    /// Returns the holds that no step has ended.
    pub(crate) fn open(&self) -> impl Iterator<Item = &H> {
        self.0.values().flatten()
    }
}
