//! The decision of a reservation: finds the counters, and holds of all or of none.

use std::sync::Arc;
use std::time::Duration;

use rategate::Clock;
use rategate::charge::Settled;
use smallvec::SmallVec;

use super::Cost;
use super::held_item::Holds;
use super::part::{Blocker, Counts, IN_A_STORE, Part, check_apart, hold_all};
use crate::engine::Inner;
use crate::engine::answer::{Answer, ItemResult, Verdict};
use crate::engine::counter::Counter;
use crate::engine::decide::Seen;
use crate::engine::error::EngineError;
use crate::engine::hold_change::{HoldChange, HoldOutcome};
use crate::engine::layered::{Layers, PartOf};
use crate::engine::live::Live;
use crate::engine::request::{Item, Request, Target, Verb};
use crate::engine::tasks::{Task, Tasks, replace};

impl<C: Clock + Clone + 'static> Inner<C> {
    /// Holds the permits of all items, or of none. `replaced` are rules that others of the call
    /// replace.
    pub(super) fn hold_items(
        &self,
        items: &[Item<'_>],
        ttl: Duration,
        replaced: &[Arc<str>],
    ) -> Result<(Answer, Holds<C>), EngineError> {
        let live = self.live.load();
        let live = live.as_ref().ok_or(EngineError::NotLoaded)?;
        let request = Request { verb: Verb::Take, items, counts_denied: false };
        let Some(layers) = Layers::of(Some(&**live), &request)? else {
            let plain = |origin| PartOf { origin, alone: true, cost: None };
            let origins: SmallVec<[PartOf; 4]> = (0..items.len()).map(plain).collect();
            return self.hold_each(live, (items, &origins), ttl, replaced);
        };
        let origins = layers.origins();
        let held = self.hold_each(live, (&layers.items(), &origins), ttl, replaced);
        let (answer, holds) = held.map_err(|error| match error {
            EngineError::DuplicateItem { first, second } => EngineError::DuplicateItem {
                first: layers.origin(first),
                second: layers.origin(second),
            },
            error => error,
        })?;
        Ok((layers.fold(answer), holds))
    }

    /// Holds the permits of items that come under one rule each, and have these origins.
    fn hold_each(
        &self,
        live: &Live<C>,
        (items, origins): (&[Item<'_>], &[PartOf]),
        ttl: Duration,
        replaced: &[Arc<str>],
    ) -> Result<(Answer, Holds<C>), EngineError> {
        let mut tasks = Tasks::new();
        for item in items {
            tasks.push(self.find(Some(live), Verb::Take, item)?);
        }
        replace(&mut tasks, replaced);
        let mut results: SmallVec<[ItemResult; 1]> = SmallVec::with_capacity(tasks.len());
        let (mut enforced, mut others) = (Vec::new(), Vec::new());
        let mut blocker = None;
        for (index, (task, origin)) in tasks.iter().zip(origins).enumerate() {
            let item = match task {
                Task::Done(result) => {
                    results.push(result.clone());
                    continue;
                }
                Task::Acquisition(item) => item,
            };
            check_apart(&tasks, index, &item.counter)?;
            results.push(ItemResult::UNMATCHED);
            let Some(counts) = Counts::of(&item.counter, &self.clock)? else {
                let result = item.counter.granted(&self.clock)?;
                if result.verdict.is_over() {
                    blocker = blocker.or(Some((index, None)));
                }
                if let Some(own) = results.last_mut() {
                    *own = result;
                }
                continue;
            };
            let PartOf { origin, alone, .. } = *origin;
            let (task, permits) = (index, counts.cut(item.permits));
            let part = Part { task, origin, alone, counts, permits, item };
            if item.counter.is_enforced() { enforced.push(part) } else { others.push(part) }
        }
        if blocker.is_none() {
            blocker = self.in_debt(&enforced)?;
        }
        let mut holds = SmallVec::new();
        if blocker.is_none() {
            blocker = hold_all(&enforced, ttl, &mut holds)?;
        }
        if blocker.is_none() {
            // What is not enforced counts where it fits.
            for part in others.chunks(1) {
                if self.in_debt(part)?.is_none() {
                    hold_all(part, ttl, &mut holds)?;
                }
            }
        }
        let allowed = blocker.is_none();
        let inline_watch = self.inline_watch.as_ref();
        let held = |part: &Part<'_, C>| holds.iter().find(|held| held.task == part.task);
        let mut counts: SmallVec<[(usize, u64); 4]> = SmallVec::new();
        for part in enforced.iter().chain(&others) {
            let (counter, held) = (&part.item.counter, held(part));
            let permits = part.permits;
            let mut result = match blocker {
                Some((by, retry_after_ns)) if by == part.task => {
                    part.notify(inline_watch, HoldChange::of(HoldOutcome::Denied));
                    counter.denied(&self.clock, permits, retry_after_ns)?
                }
                None if held.is_some() => match held.and_then(|held| held.status) {
                    Some(status) => counter.result_of(&self.clock, Verdict::Granted, status)?,
                    None => counter.granted(&self.clock)?,
                },
                _ => counter.decide(&self.clock, Verb::Peek, permits)?,
            };
            let held = held.map(|held| held.item.permits());
            if let Some(taken) = held {
                let change = HoldChange { taken, ..HoldChange::of(HoldOutcome::Held) };
                part.notify(inline_watch, change);
            }
            if allowed {
                result.set_held(held.unwrap_or(0));
            }
            counts.push((part.task, permits));
            if let Some(own) = results.get_mut(part.task) {
                *own = result;
            }
        }
        self.note(&tasks, &results, &counts, allowed);
        Ok((Answer { allowed, results }, holds.into_iter().map(|held| held.item).collect()))
    }

    /// Notifies the watchers. `counts` are the permits of
    /// tasks that have a counter.
    fn note(
        &self,
        tasks: &Tasks<'_, C>,
        results: &[ItemResult],
        counts: &[(usize, u64)],
        allowed: bool,
    ) {
        for (index, (task, result)) in tasks.iter().zip(results).enumerate() {
            if let Task::Acquisition(item) = task
                && (allowed || result.verdict.is_refusal())
            {
                let own = counts.iter().find(|(task, _)| *task == index);
                let permits = own.map_or(item.permits, |(_, permits)| *permits);
                let now_ns = || self.clock.now_ns();
                item.counter.notify_watch(self.inline_watch.as_ref(), now_ns, permits, result);
            }
        }
    }

    /// Decides a request all of whose counters are in this process.
    pub(super) fn decide_here(&self, request: &Request<'_>) -> Result<Answer, EngineError> {
        let live = self.live.load();
        let live = live.as_deref();
        let layers = Layers::of(live, request)?;
        let layered = layers.as_ref().map(Layers::items);
        let items = layered.as_deref().unwrap_or(request.items);
        self.check_here(live, items)?;
        let answer = self.decide(live, &Request { items, ..*request }, Seen::default())?;
        Ok(match &layers {
            Some(layers) => layers.fold(answer),
            None => answer,
        })
    }

    /// Checks that no item has its counter in a store.
    pub(super) fn check_here(
        &self,
        live: Option<&Live<C>>,
        items: &[Item<'_>],
    ) -> Result<(), EngineError> {
        for item in items {
            if let Task::Acquisition(item) = self.find(live, Verb::Peek, item)?
                && let Some(ruled) = item.counter.ruled()
                && ruled.remote.is_some()
            {
                return Err(IN_A_STORE);
            }
        }
        Ok(())
    }

    /// Returns the first of the parts whose limit is exceeded, which denies even 0 permits.
    fn in_debt(&self, parts: &[Part<'_, C>]) -> Result<Option<Blocker>, EngineError> {
        for part in parts.iter().filter(|part| part.permits == 0) {
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

    /// Notifies the watchers of what has been refunded and charged at the end of a reservation. If
    /// that `was_over`, what was charged is reported already.
    pub(super) fn notify_settled<'a>(
        &self,
        targets: impl Iterator<Item = (usize, Target<'a>)>,
        answer: &Answer,
        was_over: bool,
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
            self.notify_settled_one(&item.counter, result, was_over);
        }
    }

    /// Notifies the watcher of a counter of what has been refunded or charged.
    pub(super) fn notify_settled_one(
        &self,
        counter: &Counter<'_, C>,
        result: &ItemResult,
        was_over: bool,
    ) {
        let (verdict, permits) = match result.verdict {
            Verdict::Committed(Settled::Back { permits }) | Verdict::Cancelled(permits) => {
                (Verdict::Refunded(permits), permits)
            }
            Verdict::Committed(Settled::Owed { permits, .. }) => {
                (Verdict::Charged(permits), permits)
            }
            Verdict::Late(permits) if !was_over => (Verdict::Charged(permits), permits),
            _ => return,
        };
        if permits > 0 {
            let result = ItemResult { verdict, ..result.clone() };
            let now_ns = || self.clock.now_ns();
            counter.notify_watch(self.inline_watch.as_ref(), now_ns, permits, &result);
        }
    }
}
