//! The decision of a reservation: finds the counters, and holds of all or of none.

use std::sync::Arc;
use std::time::Duration;

use rategate::charge::{Hold, Settled};
use rategate::error::{KeyedError, TryAllError};
use rategate::keyed::{JointDecision, try_hold_all};
use rategate::{AnyPolicy, Clock, Limiter};
use smallvec::SmallVec;

use super::Cost;
use crate::engine::Inner;
use crate::engine::answer::{Answer, ItemResult, Verdict};
use crate::engine::counted::OwnLimit;
use crate::engine::counter::Counter;
use crate::engine::counters::ActiveRule;
use crate::engine::decide::Seen;
use crate::engine::error::EngineError;
use crate::engine::key::Key;
use crate::engine::layered::Layers;
use crate::engine::live::Live;
use crate::engine::request::{Item, Request, Target, Verb};
use crate::engine::tasks::{PendingItem, Task, Tasks, replace};
use crate::rule::{Limit, Rule};
use crate::units::retry_ns;

/// The holds of a reservation.
pub(super) type Holds<C> = SmallVec<[HeldItem<C>; 1]>;

/// A hold, with the index of its item and the rule that it is of.
pub(super) type HeldItem<C> = (usize, Hold<AnyPolicy, C>, Arc<Rule>);

const INLINE: EngineError = EngineError::NotFor(
    "a reservation is of rules; write a rule for a limit that comes with the call",
);

const IN_FLIGHT: EngineError = EngineError::NotFor(
    "the limit counts permits in flight: they are leased, and have no other id",
);

/// A counter that takes part.
struct Part<'t, C: Clock> {
    /// The index of its task.
    task: usize,
    limiter: Limiter<AnyPolicy, C>,
    /// The permits that its limiter grants beyond the limit.
    spared: u64,
    item: &'t PendingItem<'t, C>,
    rule: &'t Arc<Rule>,
}

impl<C: Clock + Clone + 'static> Inner<C> {
    /// Holds the permits of all items, or of none.
    pub(super) fn hold_items(
        &self,
        items: &[Item<'_>],
        ttl: Duration,
    ) -> Result<(Answer, Holds<C>), EngineError> {
        let live = self.live.load();
        let live = live.as_ref().ok_or(EngineError::NotLoaded)?;
        let request = Request { verb: Verb::Take, items, counts_denied: false };
        let Some(layers) = Layers::of(Some(&**live), &request)? else {
            return self.hold_each(live, items, ttl);
        };
        let held = self.hold_each(live, &layers.items(), ttl);
        let (answer, mut holds) = held.map_err(|error| match error {
            EngineError::DuplicateItem { first, second } => EngineError::DuplicateItem {
                first: layers.origin(first),
                second: layers.origin(second),
            },
            error => error,
        })?;
        for (at, ..) in &mut holds {
            *at = layers.origin(*at);
        }
        Ok((layers.fold(answer), holds))
    }

    /// Holds the permits of items that come under one rule each.
    fn hold_each(
        &self,
        live: &Live<C>,
        items: &[Item<'_>],
        ttl: Duration,
    ) -> Result<(Answer, Holds<C>), EngineError> {
        let mut tasks = Tasks::new();
        for item in items {
            tasks.push(self.find(Some(live), Verb::Take, item)?);
        }
        replace(&mut tasks);
        let mut results: SmallVec<[Option<ItemResult>; 4]> = SmallVec::new();
        let (mut enforced, mut others) = (Vec::new(), Vec::new());
        let mut blocker = None;
        for (index, task) in tasks.iter().enumerate() {
            let item = match task {
                Task::Done(result) => {
                    results.push(Some(result.clone()));
                    continue;
                }
                Task::Acquisition(item) => item,
            };
            let (ruled, key, own) = reservable(item)?;
            check_apart(&tasks, index, ruled, key)?;
            let in_force = ruled.counters.in_force();
            results.push(None);
            let counted = match (own, in_force.limit) {
                (Some(own), _) => Some((own.window, own.counter)),
                (None, Limit::Counted(window)) => Some((window, window.counter())),
                (None, _) => None,
            };
            let table = match own {
                Some(own) => Some(ruled.lent_table(own, &self.clock)),
                None => ruled.table(&in_force, &self.clock),
            };
            let Some(table) = table else {
                let result = ruled.uncounted(&in_force, key);
                if result.verdict.is_over() {
                    blocker = blocker.or(Some((index, None)));
                }
                if let Some(own) = results.last_mut() {
                    *own = Some(result);
                }
                continue;
            };
            let limiter = table.limiter(key).map_err(EngineError::of)?;
            let spared = counted.map_or(0, |(window, counter)| window.spared(&counter));
            let part = Part { task: index, limiter, spared, item, rule: &ruled.rule };
            if item.counter.is_enforced() { enforced.push(part) } else { others.push(part) }
        }
        if blocker.is_none() {
            blocker = self.in_debt(&enforced)?;
        }
        let mut holds = Holds::new();
        if blocker.is_none() {
            blocker = hold_all(&enforced, ttl, &mut holds)?;
        }
        if blocker.is_none() {
            // What is not enforced counts where it fits.
            for part in &others {
                if self.in_debt(std::slice::from_ref(part))?.is_none() {
                    hold_all(std::slice::from_ref(part), ttl, &mut holds)?;
                }
            }
        }
        let is_held = |index: usize| holds.iter().any(|(at, ..)| *at == index);
        for part in enforced.iter().chain(&others) {
            let PendingItem { counter, permits, .. } = part.item;
            let result = match blocker {
                Some((by, retry_after_ns)) if by == part.task => {
                    counter.denied(&self.clock, *permits, retry_after_ns)?
                }
                None if is_held(part.task) => counter.granted(&self.clock)?,
                _ => counter.decide(&self.clock, Verb::Peek, *permits)?,
            };
            if let Some(own) = results.get_mut(part.task) {
                *own = Some(result);
            }
        }
        let allowed = blocker.is_none();
        let mut results: SmallVec<[ItemResult; 1]> =
            results.into_iter().map(|result| result.unwrap_or(ItemResult::UNMATCHED)).collect();
        for (task, result) in tasks.iter().zip(&mut results) {
            if let Task::Acquisition(item) = task
                && (allowed || result.verdict.is_refusal())
            {
                result.warn(item.permits);
                item.counter.notify_watch(None, || self.clock.now_ns(), item.permits, result);
            }
        }
        Ok((Answer { allowed, results }, holds))
    }

    /// Decides a request all of whose counters are in this process.
    pub(super) fn decide_here(&self, request: &Request<'_>) -> Result<Answer, EngineError> {
        let live = self.live.load();
        let live = live.as_deref();
        let layers = Layers::of(live, request)?;
        let layered = layers.as_ref().map(Layers::items);
        let items = layered.as_deref().unwrap_or(request.items);
        for item in items {
            if let Task::Acquisition(item) = self.find(live, Verb::Peek, item)?
                && let Some(ruled) = item.counter.ruled()
                && ruled.remote.is_some()
            {
                return Err(IN_FLIGHT);
            }
        }
        let answer = self.decide(live, &Request { items, ..*request }, Seen::default())?;
        Ok(match &layers {
            Some(layers) => layers.fold(answer),
            None => answer,
        })
    }

    /// Returns the first of the parts whose limit is exceeded, which denies even 0 permits.
    fn in_debt(&self, parts: &[Part<'_, C>]) -> Result<Option<Blocker>, EngineError> {
        for part in parts.iter().filter(|part| part.item.permits == 0) {
            let result = part.item.counter.decide(&self.clock, Verb::Peek, 0)?;
            if let Verdict::Denied { retry_after_ns, .. } = result.verdict {
                return Ok(Some((part.task, retry_after_ns)));
            }
        }
        Ok(None)
    }

    /// Returns `true` if any item comes under several rules.
    pub(super) fn comes_under_several(&self, costs: &[Cost<'_>]) -> bool {
        let live = self.live.load();
        let items: SmallVec<[Item<'_>; 4]> =
            costs.iter().map(|cost| Item::of(cost.target, 0)).collect();
        let request = Request { verb: Verb::Reset, items: &items, counts_denied: false };
        let layers = Layers::of(live.as_deref(), &request);
        layers.is_ok_and(|layers| layers.is_some_and(|layers| layers.has_several()))
    }

    /// Notifies the watchers of what has been refunded and charged at the end of a reservation.
    pub(super) fn notify_settled<'a>(
        &self,
        targets: impl Iterator<Item = (usize, Target<'a>)>,
        answer: &Answer,
    ) {
        let live = self.live.load();
        let Some(live) = live.as_ref() else { return };
        let items: Vec<_> =
            targets.map(|(nth, target)| Item { nth: Some(nth), ..Item::of(target, 0) }).collect();
        let request = Request { verb: Verb::Peek, items: &items, counts_denied: false };
        let Ok(layers) = Layers::of(Some(&**live), &request) else { return };
        let layered = layers.as_ref().map_or_else(|| items.clone(), Layers::items);
        for (nth, item) in layered.iter().enumerate() {
            let origin = layers.as_ref().map_or(nth, |layers| layers.origin(nth));
            let Some(result) = answer.results.get(origin) else { continue };
            let Ok(Task::Acquisition(item)) = self.find(Some(live), Verb::Take, item) else {
                continue;
            };
            let mut parts = result.parts().iter();
            let own =
                parts.find(|part| part.rule.as_ref() == item.counter.ruled().map(|it| &it.rule));
            let result = own.unwrap_or(result);
            // A late charge is already reported.
            let (verdict, permits) = match result.verdict {
                Verdict::Committed(Settled::Back { permits }) | Verdict::Cancelled(permits) => {
                    (Verdict::Refunded(permits), permits)
                }
                Verdict::Committed(Settled::Owed { permits, .. }) => {
                    (Verdict::Charged(permits), permits)
                }
                _ => continue,
            };
            if permits > 0 {
                let result = ItemResult { verdict, ..result.clone() };
                item.counter.notify_watch(None, || self.clock.now_ns(), permits, &result);
            }
        }
    }
}

/// Returns the rule and key of an item, if its permits can be held.
fn reservable<'t, C: Clock + Clone>(
    item: &'t PendingItem<'_, C>,
) -> Result<(&'t ActiveRule<C>, &'t Key, Option<&'t OwnLimit>), EngineError> {
    let Some((ruled, key, own)) = of_rule(&item.counter) else { return Err(INLINE) };
    if ruled.remote.is_some() {
        return Err(IN_FLIGHT);
    }
    Ok((ruled, key, own))
}

/// Returns the rule and key of a counter, and a caller's own limit for it, if it is a rule's.
fn of_rule<'t, C: Clock>(
    counter: &'t Counter<'_, C>,
) -> Option<(&'t ActiveRule<C>, &'t Key, Option<&'t OwnLimit>)> {
    match counter {
        Counter::Rule(ruled, key) => Some((ruled, key, None)),
        Counter::CallerLimit(ruled, key, own) => Some((ruled, key, Some(own))),
        Counter::Bucket(..) | Counter::Window(..) => None,
    }
}

/// The task that denies a reservation, and the time until it no longer does.
type Blocker = (usize, Option<std::num::NonZeroU64>);

/// Holds all parts, or returns the one that denies.
fn hold_all<C: Clock>(
    parts: &[Part<'_, C>],
    ttl: Duration,
    holds: &mut Holds<C>,
) -> Result<Option<Blocker>, EngineError> {
    let estimates: SmallVec<[_; 1]> = parts
        .iter()
        .map(|part| part.limiter.estimate(part.item.permits).sparing(part.spared))
        .collect();
    let task = |at: usize| parts.get(at).map_or(0, |part| part.task);
    match try_hold_all(&estimates, ttl) {
        Ok(JointDecision::Granted(held)) => {
            holds.extend(
                parts.iter().zip(held).map(|(part, hold)| (part.task, hold, Arc::clone(part.rule))),
            );
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

/// Checks that no earlier item is of the same counter.
fn check_apart<C: Clock>(
    tasks: &[Task<'_, C>],
    second: usize,
    ruled: &ActiveRule<C>,
    key: &Key,
) -> Result<(), EngineError> {
    let is_same = |task: &Task<'_, C>| match task {
        Task::Acquisition(item) => of_rule(&item.counter).is_some_and(|(other, same, _)| {
            Arc::ptr_eq(&other.counters, &ruled.counters) && same == key
        }),
        Task::Done(_) => false,
    };
    match tasks.iter().take(second).position(is_same) {
        Some(first) => Err(EngineError::DuplicateItem { first, second }),
        None => Ok(()),
    }
}
