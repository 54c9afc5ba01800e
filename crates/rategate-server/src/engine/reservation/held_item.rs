//! The hold of a reservation in one limit, and what was used of it.

use std::sync::Arc;
use std::time::Duration;

use rategate::charge::{Committed, Hold};
use rategate::error::Closed;
use rategate::{AnyPolicy, Clock, FixedWindow, Gcra, Status};
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
    /// `true` if its end by time gives nothing back, as it may have been committed by an earlier
    /// process.
    keeps: bool,
    held: HeldPermits<C>,
}

/// Permits that a limit holds.
pub(super) enum HeldPermits<C: Clock> {
    Rule(Arc<Rule>, Hold<AnyPolicy, C>),
    /// Of a limit that came with a call. It keeps its tier while it is named here, so it is dropped
    /// after the hold.
    Bucket(Hold<Gcra, C>, Arc<Numbers<Inline, C>>),
    Window(Hold<FixedWindow, C>, Arc<Numbers<UnitWindow, C>>),
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
        Self { at: u32::try_from(at).unwrap_or(u32::MAX), alone, keeps: false, held }
    }

    /// Returns this hold as one whose end by time gives nothing back, or not.
    pub(super) const fn keeping(mut self, keeps: bool) -> Self {
        self.keeps = keeps;
        self
    }

    /// Returns `true` if its end by time gives nothing back.
    pub(super) const fn keeps(&self) -> bool {
        self.keeps
    }

    /// Ends it, as its time is over.
    pub(super) fn expire(self) {
        if !self.keeps {
            // What is dropped is cancelled, unless its limit has ended it.
            return;
        }
        let permits = self.permits();
        // The limiter of a key is never closed.
        let _ = match self.held {
            HeldPermits::Rule(_, hold) => hold.commit(permits),
            HeldPermits::Bucket(hold, _) => hold.commit(permits),
            HeldPermits::Window(hold, _) => hold.commit(permits),
        };
    }

    /// Returns its rule; `None` for a limit that came with the call.
    pub(super) const fn rule(&self) -> Option<&Arc<Rule>> {
        match &self.held {
            HeldPermits::Rule(rule, _) => Some(rule),
            HeldPermits::Bucket(..) | HeldPermits::Window(..) => None,
        }
    }

    /// Returns the number of permits that it holds.
    pub(super) const fn permits(&self) -> u64 {
        match &self.held {
            HeldPermits::Rule(_, hold) => hold.permits(),
            HeldPermits::Bucket(hold, _) => hold.permits(),
            HeldPermits::Window(hold, _) => hold.permits(),
        }
    }

    /// Returns the instant at which it ends by itself, on the engine's clock.
    pub(super) const fn ends_at(&self) -> Duration {
        match &self.held {
            HeldPermits::Rule(_, hold) => hold.ends_at(),
            HeldPermits::Bucket(hold, _) => hold.ends_at(),
            HeldPermits::Window(hold, _) => hold.ends_at(),
        }
    }

    /// Returns the index of its item.
    pub(super) fn at(&self) -> usize {
        usize::try_from(self.at).unwrap_or(usize::MAX)
    }

    /// Returns `true` if no other rule decided the item.
    pub(super) const fn alone(&self) -> bool {
        self.alone
    }

    pub(super) const fn held(&self) -> &HeldPermits<C> {
        &self.held
    }

    pub(super) fn set_at(&mut self, at: usize) {
        self.at = u32::try_from(at).unwrap_or(u32::MAX);
    }

    pub(super) fn ended(&self) -> EndedHold {
        let Self { at, alone, .. } = *self;
        EndedHold { at, alone, rule: self.rule().map(Arc::clone), permits: self.permits() }
    }
}

impl<C: Clock + Clone> HeldItem<C> {
    /// Ends it: so many permits were used. Returns the status of its limit after that.
    ///
    /// # Errors
    ///
    /// [`Closed`], which the limiter of a key never is.
    pub(super) fn commit(self, used: u64, clock: &C) -> Result<(Committed, Status), Closed> {
        match self.held {
            HeldPermits::Rule(_, hold) => hold.commit_with_status(used),
            HeldPermits::Bucket(hold, numbers) => {
                hold.commit_with_status(used).inspect(|(_, status)| numbers.note_end(clock, status))
            }
            HeldPermits::Window(hold, numbers) => {
                hold.commit_with_status(used).inspect(|(_, status)| numbers.note_end(clock, status))
            }
        }
    }
}

impl EndedHold {
    pub(super) fn new((at, alone): (usize, bool), rule: Option<Arc<Rule>>, permits: u64) -> Self {
        Self { at: u32::try_from(at).unwrap_or(u32::MAX), alone, rule, permits }
    }

    /// Returns `true` if no other rule decided the item.
    pub(super) const fn alone(&self) -> bool {
        self.alone
    }

    /// Returns the index of its item.
    pub(super) fn at(&self) -> usize {
        usize::try_from(self.at).unwrap_or(usize::MAX)
    }

    /// Returns what was used of it.
    pub(super) fn used(&self, costs: &[Cost<'_>], end: End) -> Result<u64, EngineError> {
        let cost = costs.get(self.at());
        let used = end.used(cost, (self.rule.as_deref(), self.alone))?;
        Ok(used.unwrap_or(self.permits))
    }
}

impl End {
    /// Returns the number of permits of an item that were used in a rule, by which it was decided
    /// `alone`, or in a limit that came with the call; `None` for as many as were held. A commit
    /// leaves the request that was reserved, however little was used.
    pub(super) fn used(
        self,
        cost: Option<&Cost<'_>>,
        (rule, alone): (Option<&Rule>, bool),
    ) -> Result<Option<u64>, EngineError> {
        let (permits, usage) = cost.map_or((None, None), |cost| (cost.permits, cost.usage));
        match (self, permits, usage, rule) {
            (Self::Cancel, ..) => Ok(Some(0)),
            (Self::Commit, None, None, _) => Ok(None),
            (Self::Commit, _, Some(_), None) => Err(EngineError::NO_WEIGHTS),
            (Self::Commit, permits, None, None) => Ok(permits),
            (Self::Commit, .., Some(rule)) if rule.counts == Counts::Requests => Ok(Some(1)),
            (Self::Commit, permits, usage, Some(rule)) => {
                let amount = rule.counts.amount(permits.unwrap_or(0), usage.as_ref(), alone);
                amount.map(Some).map_err(|why| rule.cost_error(why))
            }
        }
    }
}
