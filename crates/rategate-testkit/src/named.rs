//! Grants and holds of steps, and what can still be done with each. A limiter remembers none
//! of this: its callers do.

use std::collections::BTreeMap;

use crate::report::Outcome;

/// The grants of steps, kept for later ones that end or cancel them.
pub(crate) struct Granted<G>(BTreeMap<usize, One<G>>);

pub(crate) struct One<G> {
    pub(crate) grant: G,
    permits: u64,
    has_ended: bool,
    /// `true` once an end has used the reservation, which then cannot be cancelled.
    is_used: bool,
}

impl<G> Default for Granted<G> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<G> Granted<G> {
    /// Records the grant of a step.
    pub(crate) fn add(&mut self, step: usize, grant: G, permits: u64) {
        self.0.insert(step, One { grant, permits, has_ended: false, is_used: false });
    }

    /// Removes a step's grant. Returns `None` if it has been used.
    pub(crate) fn cancel(&mut self, step: usize) -> Option<G> {
        if self.0.get(&step)?.is_used {
            return None;
        }
        self.0.remove(&step).map(|one| one.grant)
    }

    /// Ends the operations of a step's grant. Returns its permits, if there is one.
    pub(crate) fn end(&mut self, step: usize, end: impl FnOnce(&One<G>)) -> (Option<u64>, Outcome) {
        let Some(one) = self.0.get_mut(&step) else { return (None, Outcome::Ungranted) };
        one.is_used = true;
        if one.has_ended {
            return (Some(one.permits), Outcome::TooLate);
        }
        one.has_ended = true;
        end(one);
        (Some(one.permits), Outcome::Set)
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
