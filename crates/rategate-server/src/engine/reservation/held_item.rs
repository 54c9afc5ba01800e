//! The hold of a reservation in one limit, and what was used of it.

use std::sync::Arc;

use rategate::charge::Hold;
use rategate::{AnyPolicy, Clock};
use smallvec::SmallVec;

use super::{Cost, End};
use crate::engine::error::EngineError;
use crate::rule::{Counts, Rule};

/// The holds of a reservation.
pub(in crate::engine) type Holds<C> = SmallVec<[HeldItem<C>; 1]>;

/// A hold of an item in one limit.
pub(in crate::engine) struct HeldItem<C: Clock> {
    /// The index of the item.
    at: u32,
    /// `true` if no other rule decided the item.
    alone: bool,
    pub(in crate::engine) rule: Arc<Rule>,
    pub(in crate::engine) hold: Hold<AnyPolicy, C>,
}

/// The facts of a hold that outlive it.
#[derive(Clone, Debug)]
pub(super) struct EndedHold {
    at: u32,
    alone: bool,
    pub(super) rule: Arc<Rule>,
    /// The number of permits that it held.
    pub(super) permits: u64,
}

impl<C: Clock> HeldItem<C> {
    pub(super) fn new(at: usize, alone: bool, rule: Arc<Rule>, hold: Hold<AnyPolicy, C>) -> Self {
        Self { at: u32::try_from(at).unwrap_or(u32::MAX), alone, rule, hold }
    }

    /// Returns the index of its item.
    pub(super) fn at(&self) -> usize {
        usize::try_from(self.at).unwrap_or(usize::MAX)
    }

    pub(super) fn set_at(&mut self, at: usize) {
        self.at = u32::try_from(at).unwrap_or(u32::MAX);
    }

    pub(super) fn ended(&self) -> EndedHold {
        let Self { at, alone, .. } = *self;
        EndedHold { at, alone, rule: Arc::clone(&self.rule), permits: self.hold.permits() }
    }
}

impl EndedHold {
    /// Returns the index of its item.
    pub(super) fn at(&self) -> usize {
        usize::try_from(self.at).unwrap_or(usize::MAX)
    }

    /// Returns what was used of it.
    pub(super) fn used(&self, costs: &[Cost<'_>], end: End) -> Result<u64, EngineError> {
        let cost = costs.get(self.at());
        let used = end.used(cost, (&self.rule, self.alone))?;
        Ok(used.unwrap_or(self.permits))
    }
}

impl End {
    /// Returns what was used of an item in a rule, by which it was decided `alone`; `None` for as
    /// much as was held. A commit leaves the request that was reserved, however little was used.
    pub(super) fn used(
        self,
        cost: Option<&Cost<'_>>,
        (rule, alone): (&Rule, bool),
    ) -> Result<Option<u64>, EngineError> {
        let (permits, usage) = cost.map_or((None, None), |cost| (cost.permits, cost.usage));
        match (self, permits, usage) {
            (Self::Cancel, ..) => Ok(Some(0)),
            (Self::Commit, None, None) => Ok(None),
            (Self::Commit, ..) if rule.counts == Counts::Requests => Ok(Some(1)),
            (Self::Commit, permits, usage) => {
                let amount = rule.counts.amount(permits.unwrap_or(0), usage.as_ref(), alone);
                amount.map(Some).map_err(|why| rule.cost_error(why))
            }
        }
    }
}
