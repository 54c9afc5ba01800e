//! What named calls were granted, and how much of it can still go back.

use std::collections::BTreeMap;

use rategate_core::error::DebtError;
use rategate_core::fair::ClassId;
use rategate_core::verdict::{Grant, Settled};

use crate::line::Lined;
use crate::report::Outcome;
use crate::world::Subject;

/// The grants of calls with a name, which may be settled, refunded or cancelled once.
#[derive(Default)]
pub(crate) struct Given<'s> {
    /// The newest call of each name.
    steps: BTreeMap<&'s str, usize>,
    grants: BTreeMap<usize, One>,
}

struct One {
    grant: Grant,
    class: ClassId,
    /// Where it stands among all grants.
    place: usize,
    /// How many permits have not gone back.
    left: u64,
    is_settled: bool,
    /// Whether it has been used, as a reservation is by whoever settles or refunds it.
    is_kept: bool,
}

/// What a settlement or a refund came to.
pub(crate) struct Returned {
    pub(crate) outcome: Outcome,
    pub(crate) back: Option<u64>,
    pub(crate) owed: Option<u64>,
}

impl Returned {
    const fn only(outcome: Outcome) -> Self {
        Self { outcome, back: None, owed: None }
    }
}

impl<'s> Given<'s> {
    /// From now on the name is that step's.
    pub(crate) fn name(&mut self, name: &'s str, step: usize) {
        self.steps.insert(name, step);
    }

    /// A step with a name was granted what is the last of all grants.
    pub(crate) fn add(&mut self, step: usize, grant: Grant, class: ClassId, all: &[(u64, u64)]) {
        let (place, left) = (all.len().saturating_sub(1), grant.permits);
        let one = One { grant, class, place, left, is_settled: false, is_kept: false };
        self.grants.insert(step, one);
    }

    /// Takes out what a step was granted, unless that has been used: the grant, and its place among
    /// all.
    pub(crate) fn cancel(&mut self, step: usize) -> Option<(Grant, usize)> {
        if self.grants.get(&step)?.is_kept {
            return None;
        }
        self.grants.remove(&step).map(|one| (one.grant, one.place))
    }

    /// Settles what the call of that name was granted.
    pub(crate) fn settle(
        &mut self,
        (name, actual): (&str, u64),
        now_ns: u64,
        limits: &mut Lined<impl Subject>,
        all: &mut [(u64, u64)],
    ) -> Returned {
        let Some(one) = self.find(name) else { return Returned::only(Outcome::Ungranted) };
        one.is_kept = true;
        // Once for each grant, and not for what has gone back in part.
        if one.is_settled || one.left < one.grant.permits {
            return Returned::only(Outcome::TooLate);
        }
        let debt = actual.saturating_sub(one.grant.permits);
        let mut returned = Returned::only(Outcome::Settled);
        match limits.settle(now_ns, one.class, &one.grant, actual) {
            Ok(Settled::Even) => {}
            Ok(Settled::Back { permits }) => returned.back = Some(permits),
            Ok(Settled::Owed { permits }) => returned.owed = Some(permits),
            Err(DebtError::Unpayable { left }) => {
                returned = Returned::only(Outcome::Unpayable);
                returned.owed = Some(debt.saturating_sub(left));
            }
            // Nothing was taken.
            Err(_) => return Returned::only(Outcome::Unpayable),
        }
        one.is_settled = true;
        if let Some((_, permits)) = all.get_mut(one.place) {
            // What was too little has been used all the same, and not later than this.
            *permits = permits.saturating_add(debt).saturating_sub(returned.back.unwrap_or(0));
        }
        returned
    }

    /// Gives back what the call of that name was granted, or what is left of it.
    pub(crate) fn refund(
        &mut self,
        (name, permits): (&str, u64),
        now_ns: u64,
        limits: &mut Lined<impl Subject>,
        all: &mut [(u64, u64)],
    ) -> Returned {
        let Some(one) = self.find(name) else { return Returned::only(Outcome::Ungranted) };
        one.is_kept = true;
        if one.is_settled || one.left == 0 {
            return Returned::only(Outcome::TooLate);
        }
        // No permit goes back twice.
        let back = limits.refund(now_ns, one.class, &one.grant, permits.min(one.left));
        one.left = one.left.saturating_sub(back);
        if let Some((_, permits)) = all.get_mut(one.place) {
            *permits = permits.saturating_sub(back);
        }
        Returned { back: Some(back), ..Returned::only(Outcome::Refunded) }
    }

    fn find(&mut self, name: &str) -> Option<&mut One> {
        self.grants.get_mut(self.steps.get(name)?)
    }
}
