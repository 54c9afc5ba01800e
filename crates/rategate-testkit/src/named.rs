//! Grants and holds of named calls, and what can still be done with each. A limiter remembers none
//! of this: its callers do.

use std::collections::BTreeMap;

use rategate_core::fair::ClassId;

use crate::report::Outcome;

/// The grants of named calls, kept for later steps that settle, refund, end or cancel them.
pub(crate) struct NamedGrants<'s, G> {
    /// The step index of the newest call of each name.
    steps: BTreeMap<&'s str, usize>,
    grants: BTreeMap<usize, One<G>>,
}

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

impl<G> Default for NamedGrants<'_, G> {
    fn default() -> Self {
        Self { steps: BTreeMap::new(), grants: BTreeMap::new() }
    }
}

impl<'s, G> NamedGrants<'s, G> {
    /// Binds `name` to `step`, replacing an earlier binding.
    pub(crate) fn name(&mut self, name: &'s str, step: usize) {
        self.steps.insert(name, step);
    }

    /// Returns the step of that name.
    #[cfg(feature = "library")]
    pub(crate) fn step(&self, name: &str) -> Option<usize> {
        self.steps.get(name).copied()
    }

    /// Records the grant of a named step.
    pub(crate) fn add(&mut self, step: usize, grant: G, class: ClassId, permits: u64) {
        let (left, is_settled, has_ended, is_used) = (permits, false, false, false);
        let one = One { grant, class, permits, left, is_settled, has_ended, is_used };
        self.grants.insert(step, one);
    }

    /// Removes a step's grant. Returns `None` if it has been settled or refunded.
    pub(crate) fn cancel(&mut self, step: usize) -> Option<G> {
        if self.grants.get(&step)?.is_used {
            return None;
        }
        self.grants.remove(&step).map(|one| one.grant)
    }

    /// Settles the grant of the named call, unless that was done, by a function that returns `None`
    /// if the limit has none of it. Returns the reason why nothing was settled.
    pub(crate) fn settle<T>(
        &mut self,
        name: &str,
        settle: impl FnOnce(&One<G>) -> Option<T>,
    ) -> Result<T, Outcome> {
        let one = self.find(name)?;
        // Each grant is settled once, and not after a part of it was refunded or its end.
        if !one.is_whole() {
            return Err(Outcome::TooLate);
        }
        // Nothing was taken.
        let settled = settle(one).ok_or(Outcome::NotForThisLimit)?;
        one.is_settled = true;
        Ok(settled)
    }

    /// Refunds the grant of the named call, or as much of it as is left. Returns what came back.
    pub(crate) fn refund(
        &mut self,
        name: &str,
        permits: u64,
        refund: impl FnOnce(&One<G>, u64) -> u64,
    ) -> Result<u64, Outcome> {
        let one = self.find(name)?;
        if one.has_ended || one.is_settled || one.left == 0 {
            return Err(Outcome::TooLate);
        }
        // No permit is refunded twice.
        let back = refund(one, permits.min(one.left));
        one.left -= back;
        Ok(back)
    }

    /// Ends the operations of the named call's grant. Returns its permits, if there is one.
    pub(crate) fn end(&mut self, name: &str, end: impl FnOnce(&One<G>)) -> (Option<u64>, Outcome) {
        let Ok(one) = self.find(name) else { return (None, Outcome::Ungranted) };
        if !one.is_whole() {
            return (Some(one.permits), Outcome::TooLate);
        }
        one.has_ended = true;
        end(one);
        (Some(one.permits), Outcome::Set)
    }

    fn find(&mut self, name: &str) -> Result<&mut One<G>, Outcome> {
        let step = self.steps.get(name);
        let one = step.and_then(|step| self.grants.get_mut(step)).ok_or(Outcome::Ungranted)?;
        one.is_used = true;
        Ok(one)
    }
}

impl<G> One<G> {
    const fn is_whole(&self) -> bool {
        !self.has_ended && !self.is_settled && self.left == self.permits
    }
}

/// The holds of all steps. Those with a name can be committed or cancelled.
pub(crate) struct NamedHolds<'s, H> {
    /// The hold of the newest step of each name, if it was held.
    named: BTreeMap<&'s str, Option<usize>>,
    all: Vec<Option<H>>,
}

impl<H> Default for NamedHolds<'_, H> {
    fn default() -> Self {
        Self { named: BTreeMap::new(), all: Vec::new() }
    }
}

impl<'s, H> NamedHolds<'s, H> {
    /// Records the hold of a step, or that the step has none.
    pub(crate) fn add(&mut self, name: Option<&'s str>, hold: Option<H>) {
        self.named.extend(name.map(|name| (name, hold.as_ref().map(|_| self.all.len()))));
        self.all.extend(hold.map(Some));
    }

    /// Returns the hold of that name, which ends now, or the reason why none does.
    pub(crate) fn take(&mut self, name: &str) -> Result<H, Outcome> {
        let at = self.named.get(name).copied().flatten().ok_or(Outcome::Ungranted)?;
        self.all[at].take().ok_or(Outcome::TooLate)
    }

    /// Returns the holds that no step has ended.
    pub(crate) fn open(&self) -> impl Iterator<Item = &H> {
        self.all.iter().flatten()
    }
}
