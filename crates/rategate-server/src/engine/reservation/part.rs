//! The counters that take part in a reservation, and how all of them hold or none.

use std::sync::Arc;
use std::time::Duration;

use rategate::charge::Hold;
use rategate::error::{KeyedError, TryAllError};
use rategate::keyed::{JointDecision, try_hold_all_with_status};
use rategate::{Clock, Status};
use smallvec::SmallVec;

use super::held_item::{HeldItem, HeldPermits};
use crate::engine::answer::Watch;
use crate::engine::counted::OwnLimit;
use crate::engine::counter::Counter;
use crate::engine::counters::{ActiveRule, Counters, Table};
use crate::engine::error::EngineError;
use crate::engine::hold_change::HoldChange;
use crate::engine::inline::{InlineLimit as _, Numbers, UnitWindow};
use crate::engine::key::Key;
use crate::engine::request::Inline;
use crate::engine::tasks::{PendingItem, Task};
use crate::rule::{CountedWindow, Limit};
use crate::units::retry_ns;

/// The error for a rule that a store took over while its item was decided.
pub(super) const IN_A_STORE: EngineError = EngineError::NotFor(
    "the counters of the rule have moved to a store meanwhile; send the same again",
);

/// A counter that takes part.
pub(super) struct Part<'t, C: Clock> {
    /// The index of its task.
    pub(super) task: usize,
    /// The index of its item in the call, and `true` if no other rule decides that.
    pub(super) origin: usize,
    pub(super) alone: bool,
    pub(super) counts: Counts<'t, C>,
    /// The number of permits to hold.
    pub(super) permits: u64,
    pub(super) item: &'t PendingItem<'t, C>,
}

/// The table of a counter, its key, and the limit to which it counts.
pub(super) struct Counts<'t, C: Clock> {
    table: PartTable<'t, C>,
    key: &'t Key,
    /// The permits that the table grants beyond the limit.
    spared: u64,
    capacity: u64,
}

/// A table of a rule, or of limits that come with calls.
enum PartTable<'t, C: Clock> {
    Rule(&'t ActiveRule<C>, &'t Table<C>),
    Bucket(&'t Arc<Numbers<Inline, C>>),
    Window(&'t Arc<Numbers<UnitWindow, C>>),
}

/// The task that denies a reservation, and the time until it no longer does.
pub(super) type Blocker = (usize, Option<std::num::NonZeroU64>);

/// The holds of a reservation in progress.
pub(super) type TaskHolds<C> = SmallVec<[TaskHold<C>; 1]>;

/// A hold of a task.
pub(super) struct TaskHold<C: Clock> {
    /// The index of the task.
    pub(super) task: usize,
    pub(super) item: HeldItem<C>,
    /// The status of the limit after that, where it was decided alone.
    pub(super) status: Option<Status>,
}

impl<'t, C: Clock + Clone + 'static> Counts<'t, C> {
    /// Returns where an item counts, or `None` if nothing counts it.
    ///
    /// # Errors
    ///
    /// [`IN_A_STORE`].
    pub(super) fn of(counter: &'t Counter<'_, C>, clock: &C) -> Result<Option<Self>, EngineError> {
        let windowed = |own: &OwnLimit| (own.window, own.counter);
        let (table, key, window, capacity) = match counter {
            Counter::Bucket(numbers, key) => {
                (PartTable::Bucket(numbers), key, None, numbers.limit().capacity())
            }
            Counter::Window(numbers, key, own) => {
                (PartTable::Window(numbers), key, Some(windowed(own)), 0)
            }
            Counter::CallerLimit(ruled, key, own) => {
                let table = PartTable::Rule(ruled, ruled.lent_table(own, clock));
                (table, key, Some(windowed(own)), 0)
            }
            Counter::Rule(ruled, _) if ruled.remote.is_some() => return Err(IN_A_STORE),
            Counter::Rule(ruled, key) => {
                let in_force = ruled.counters.in_force();
                let Some(table) = ruled.table(&in_force, clock) else { return Ok(None) };
                let window = match in_force.limit {
                    Limit::Counted(window) => Some((window, window.counter())),
                    _ => None,
                };
                (PartTable::Rule(ruled, table), key, window, in_force.capacity)
            }
        };
        let spared = window.map_or(0, |(window, counter)| window.spared(&counter));
        let capacity = window.map_or(capacity, |(window, _)| CountedWindow::permits(&window));
        Ok(Some(Self { table, key, spared, capacity }))
    }

    /// Returns an estimate, cut to the share of the limit that one reservation may hold.
    pub(super) fn cut(&self, estimate: u64) -> u64 {
        match self.table {
            PartTable::Rule(ruled, _) => ruled.rule.hold_bounds.cut(estimate, self.capacity),
            PartTable::Bucket(_) | PartTable::Window(_) => estimate,
        }
    }

    fn ruled(&self) -> Option<&'t ActiveRule<C>> {
        match self.table {
            PartTable::Rule(ruled, _) => Some(ruled),
            PartTable::Bucket(_) | PartTable::Window(_) => None,
        }
    }
}

impl<C: Clock + Clone + 'static> Part<'_, C> {
    fn held(&self, held: HeldPermits<C>, status: Option<Status>) -> TaskHold<C> {
        TaskHold { task: self.task, item: HeldItem::new(self.origin, self.alone, held), status }
    }

    fn of_rule(&self, hold: Hold<C>, status: Option<Status>) -> Option<TaskHold<C>> {
        let rule = Arc::clone(&self.counts.ruled()?.rule);
        Some(self.held(HeldPermits::Rule(rule, hold), status))
    }

    /// Notifies the watcher of the rule, or that of limits that come with calls.
    pub(super) fn notify(&self, inline_watch: Option<&Arc<dyn Watch>>, change: HoldChange) {
        let watch = match self.counts.ruled() {
            Some(ruled) => ruled.watch.as_ref(),
            None => inline_watch,
        };
        if let Some(watch) = watch {
            watch.reservation(&change);
        }
    }

    /// Holds the permits of a limit that came with the call.
    fn hold_inline(
        &self,
        ttl: Duration,
        holds: &mut TaskHolds<C>,
    ) -> Result<Option<Blocker>, EngineError> {
        let key = self.counts.key;
        let permits = (self.permits, self.counts.spared);
        let held = match self.counts.table {
            PartTable::Rule(..) => return Ok(None),
            PartTable::Bucket(numbers) => {
                let held = |hold| HeldPermits::Bucket(hold, Arc::clone(numbers));
                numbers.try_hold(key, permits, ttl).map(|decision| decision.map(held))
            }
            PartTable::Window(numbers) => {
                let held = |hold| HeldPermits::Window(hold, Arc::clone(numbers));
                numbers.try_hold(key, permits, ttl).map(|decision| decision.map(held))
            }
        };
        match held {
            Ok(Ok(held)) => {
                holds.push(self.held(held, None));
                Ok(None)
            }
            Ok(Err(retry_after)) => Ok(Some((self.task, retry_after.and_then(retry_ns)))),
            Err(KeyedError::ExceedsCapacity(_)) => Ok(Some((self.task, None))),
            Err(error) => Err(EngineError::of(error)),
        }
    }
}

/// Holds all parts, or returns the one that denies: those of rules at one instant, and then those
/// of limits that came with the call.
pub(super) fn hold_all<C: Clock + Clone + 'static>(
    parts: &[Part<'_, C>],
    ttl: Duration,
    holds: &mut TaskHolds<C>,
) -> Result<Option<Blocker>, EngineError> {
    let before = holds.len();
    let mut blocker = hold_of_rules(parts, ttl, holds)?;
    let inline = parts.iter().filter(|part| part.counts.ruled().is_none());
    for part in inline {
        if blocker.is_none() {
            blocker = part.hold_inline(ttl, holds)?;
        }
    }
    if blocker.is_some() {
        // What is dropped is cancelled.
        holds.truncate(before);
    }
    Ok(blocker)
}

fn hold_of_rules<C: Clock + Clone + 'static>(
    parts: &[Part<'_, C>],
    ttl: Duration,
    holds: &mut TaskHolds<C>,
) -> Result<Option<Blocker>, EngineError> {
    if let [part] = parts
        && let PartTable::Rule(_, table) = part.counts.table
        && part.counts.spared == 0
        && part.permits > 0
    {
        return hold_one(part, table, ttl, holds);
    }
    let of_rules = || {
        parts.iter().filter_map(|part| match part.counts.table {
            PartTable::Rule(_, table) => Some((part, table)),
            PartTable::Bucket(_) | PartTable::Window(_) => None,
        })
    };
    let estimates: SmallVec<[_; 1]> = of_rules()
        .map(|(part, table)| {
            table.estimate(part.counts.key, part.permits).sparing(part.counts.spared)
        })
        .collect();
    if estimates.is_empty() {
        return Ok(None);
    }
    let task = |at: usize| of_rules().nth(at).map_or(0, |(part, _)| part.task);
    match try_hold_all_with_status(&estimates, ttl) {
        Ok(JointDecision::Granted(held)) => {
            holds.reserve(held.len());
            for ((part, _), (hold, status)) in of_rules().zip(held) {
                holds.extend(part.of_rule(hold, status));
            }
            Ok(None)
        }
        Ok(JointDecision::Denied { retry_after, by }) => {
            Ok(Some((task(by), retry_after.and_then(retry_ns))))
        }
        Err(TryAllError { at, error: KeyedError::ExceedsCapacity(_) }) => {
            Ok(Some((task(at), None)))
        }
        // Keys that find no capacity share a limiter.
        Err(TryAllError { error: KeyedError::Duplicate, .. }) => Err(EngineError::NoCapacity),
        Err(TryAllError { error, .. }) => Err(EngineError::of(error)),
    }
}

/// Holds one part of a rule, or returns when it no longer denies.
fn hold_one<C: Clock + Clone + 'static>(
    part: &Part<'_, C>,
    table: &Table<C>,
    ttl: Duration,
    holds: &mut TaskHolds<C>,
) -> Result<Option<Blocker>, EngineError> {
    match table.try_hold_with_status(part.counts.key, part.permits, ttl) {
        Ok((Ok(hold), status)) => {
            holds.extend(part.of_rule(hold, Some(status)));
            Ok(None)
        }
        Ok((Err(denial), _)) => Ok(Some((part.task, denial.retry_after().and_then(retry_ns)))),
        Err(KeyedError::ExceedsCapacity(_)) => Ok(Some((part.task, None))),
        Err(error) => Err(EngineError::of(error)),
    }
}

/// Checks that no earlier item is of the same counter.
pub(super) fn check_apart<C: Clock>(
    tasks: &[Task<'_, C>],
    second: usize,
    counter: &Counter<'_, C>,
) -> Result<(), EngineError> {
    let is_same = |task: &Task<'_, C>| match task {
        Task::Acquisition(item) => is_one(&item.counter, counter),
        Task::Done(_) => false,
    };
    match tasks.iter().take(second).position(is_same) {
        Some(first) => Err(EngineError::DuplicateItem { first, second }),
        None => Ok(()),
    }
}

fn is_one<C: Clock>(one: &Counter<'_, C>, other: &Counter<'_, C>) -> bool {
    fn of_rule<'c, C: Clock>(
        counter: &'c Counter<'_, C>,
    ) -> Option<(&'c Arc<Counters<C>>, &'c Key)> {
        match counter {
            Counter::Rule(ruled, key) | Counter::CallerLimit(ruled, key, _) => {
                Some((&ruled.counters, key))
            }
            Counter::Bucket(..) | Counter::Window(..) => None,
        }
    }
    match (one, other) {
        (Counter::Bucket(one, key), Counter::Bucket(other, same)) => {
            Arc::ptr_eq(one, other) && key == same
        }
        (Counter::Window(one, key, _), Counter::Window(other, same, _)) => {
            Arc::ptr_eq(one, other) && key == same
        }
        _ => match (of_rule(one), of_rule(other)) {
            (Some((one, key)), Some((other, same))) => Arc::ptr_eq(one, other) && key == same,
            _ => false,
        },
    }
}
