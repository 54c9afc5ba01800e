//! The hold of a reservation in one limit, and what was used of it.

use std::sync::Arc;
use std::time::Duration;

use rategate::charge::{Committed, Hold};
use rategate::{Clock, Status};
use smallvec::SmallVec;

use super::{Cost, End};
use crate::engine::error::EngineError;
use crate::engine::inline::{Numbers, UnitWindow};
use crate::engine::request::Inline;
use crate::rule::{Counts, Rule};

/// The holds of a reservation.
pub(in crate::engine) type Holds<C> = SmallVec<[HeldItem<C>; 1]>;

/// A hold of an item in one limit.
pub(in crate::engine) struct HeldItem<C: Clock> {
    /// The index of the item.
    at: u32,
    /// `true` if no other rule decided the item.
    alone: bool,
    held: HeldPermits<C>,
}

/// Permits that a limit holds.
pub(super) enum HeldPermits<C: Clock> {
    Rule(Arc<Rule>, Hold<C>),
    /// Of a limit that came with a call. It keeps its tier while it is named here, so it is dropped
    /// after the hold.
    Bucket(Hold<C>, Arc<Numbers<Inline, C>>),
    Window(Hold<C>, Arc<Numbers<UnitWindow, C>>),
    /// In flight. The memory store of their rule holds and ends them.
    InFlight {
        rule: Arc<Rule>,
        permits: u64,
        ends_at: Duration,
    },
}

/// The facts of a hold that outlive it.
#[derive(Clone, Debug)]
pub(super) struct EndedHold {
    at: u32,
    alone: bool,
    /// Its rule; `None` for a limit that came with the call.
    pub(super) rule: Option<Arc<Rule>>,
    /// The number of permits that it held.
    pub(super) permits: u64,
}

impl<C: Clock> HeldItem<C> {
    pub(super) fn new(at: usize, alone: bool, held: HeldPermits<C>) -> Self {
        Self { at: u32::try_from(at).unwrap_or(u32::MAX), alone, held }
    }

    /// Returns its rule; `None` for a limit that came with the call.
    pub(super) const fn rule(&self) -> Option<&Arc<Rule>> {
        match &self.held {
            HeldPermits::Rule(rule, _) | HeldPermits::InFlight { rule, .. } => Some(rule),
            HeldPermits::Bucket(..) | HeldPermits::Window(..) => None,
        }
    }

    /// Returns the number of permits that it holds.
    pub(super) const fn permits(&self) -> u64 {
        match &self.held {
            HeldPermits::Rule(_, hold)
            | HeldPermits::Bucket(hold, _)
            | HeldPermits::Window(hold, _) => hold.permits(),
            HeldPermits::InFlight { permits, .. } => *permits,
        }
    }

    /// Returns the instant at which it ends by itself, on the engine's clock.
    pub(super) const fn ends_at(&self) -> Duration {
        match &self.held {
            HeldPermits::Rule(_, hold)
            | HeldPermits::Bucket(hold, _)
            | HeldPermits::Window(hold, _) => hold.ends_at(),
            HeldPermits::InFlight { ends_at, .. } => *ends_at,
        }
    }

    /// Returns the index of its item.
    pub(super) fn at(&self) -> usize {
        usize::try_from(self.at).unwrap_or(usize::MAX)
    }

    pub(super) fn set_at(&mut self, at: usize) {
        self.at = u32::try_from(at).unwrap_or(u32::MAX);
    }

    /// Returns `true` for permits in flight, which count in no table.
    pub(super) const fn is_in_flight(&self) -> bool {
        matches!(self.held, HeldPermits::InFlight { .. })
    }

    /// Returns what outlives it. `None` for permits in flight, which take no charge.
    pub(super) fn ended(&self) -> Option<EndedHold> {
        let Self { at, alone, .. } = *self;
        let rule = self.rule().map(Arc::clone);
        let ended = EndedHold { at, alone, rule, permits: self.permits() };
        (!self.is_in_flight()).then_some(ended)
    }
}

impl<C: Clock + Clone> HeldItem<C> {
    /// Ends it: so many permits were used. Returns the status of its limit after that; `None` for
    /// permits in flight. The limiter of a key is never closed.
    pub(super) fn commit(self, used: u64, clock: &C) -> Option<(Committed, Status)> {
        let ended = match self.held {
            HeldPermits::Rule(_, hold) => hold.commit_with_status(used),
            HeldPermits::Bucket(hold, numbers) => {
                hold.commit_with_status(used).inspect(|(_, status)| numbers.note_end(clock, status))
            }
            HeldPermits::Window(hold, numbers) => {
                hold.commit_with_status(used).inspect(|(_, status)| numbers.note_end(clock, status))
            }
            HeldPermits::InFlight { .. } => return None,
        };
        ended.ok()
    }
}

impl EndedHold {
    /// Returns the index of its item.
    pub(super) fn at(&self) -> usize {
        usize::try_from(self.at).unwrap_or(usize::MAX)
    }

    /// Returns what was used of it.
    pub(super) fn used(&self, costs: &[Cost<'_>], end: End) -> Result<u64, EngineError> {
        let used = end.used((self.at(), costs), (self.rule.as_deref(), self.alone))?;
        Ok(used.unwrap_or(self.permits))
    }
}

impl End {
    /// Returns the number of permits of the item at an index that were used in a rule, by which it
    /// was decided `alone`, or in a limit that came with the call; `None` for as many as were held.
    /// A commit leaves the request that was reserved, however little was used.
    pub(super) fn used(
        self,
        (at, costs): (usize, &[Cost<'_>]),
        (rule, alone): (Option<&Rule>, bool),
    ) -> Result<Option<u64>, EngineError> {
        let cost = costs.get(at);
        let (permits, usage) = cost.map_or((None, None), |cost| (cost.permits, cost.usage));
        match (self, permits, usage, rule) {
            (Self::Cancel, ..) => Ok(Some(0)),
            (Self::Commit, None, None, _) => Ok(None),
            (Self::Commit, _, Some(_), None) => Err(EngineError::NO_WEIGHTS),
            (Self::Commit, permits, None, None) => Ok(permits),
            (Self::Commit, .., Some(rule)) if rule.counts == Counts::Requests => Ok(Some(1)),
            (Self::Commit, permits, usage, Some(rule)) => {
                let amount = rule.counts.amount(permits.unwrap_or(0), usage.as_ref(), alone);
                amount.map(Some).map_err(|why| rule.cost_error(at, why))
            }
        }
    }
}
