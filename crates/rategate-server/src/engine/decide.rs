//! The decision of a request: finds the counters, takes from all of them or none, and notifies
//! watchers.

use std::num::NonZeroU64;

use rategate::Clock;
use rategate::error::{KeyedError, TryAllError};
use rategate::keyed::{JointDecision, try_all};
use smallvec::SmallVec;

use super::Inner;
use super::answer::{Answer, ItemResult, Verdict};
use super::counted::{self, OwnLimit};
use super::counter::{Counter, Joint};
use super::error::EngineError;
use super::inline::{UnitWindow, fresh};
use super::key;
use super::live::Live;
use super::request::{Item, Override, Request, Target, Verb, display_limit, window};
use super::tasks::{PendingItem, Task, Tasks, merge, replace, split_merged, takes};
use crate::rule::Counting;
use crate::units::retry_ns;

/// The keys and values of a descriptor, in order.
type Entries<'a> = &'a [(&'a [u8], &'a [u8])];

/// Counters that are full, each with the time until it no longer is.
type Full = SmallVec<[(usize, Option<NonZeroU64>); 4]>;

/// The outcome of a joint take.
enum Outcome {
    Granted,
    Denied(usize, Option<NonZeroU64>),
}

/// The items seen so far that may cause a denial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    is_over: bool,
    quotas: usize,
    full: usize,
}

impl Seen {
    /// Adds one item. A quota that takes nothing and is not over counts as available.
    pub(super) fn add(&mut self, is_quota: bool, is_over: bool) {
        if is_quota {
            self.quotas = self.quotas.saturating_add(1);
            self.full = self.full.saturating_add(usize::from(is_over));
        } else {
            self.is_over |= is_over;
        }
    }

    /// Returns `true` if the request may pass: no rule is over, and not all quotas are.
    pub(super) const fn allows(self) -> bool {
        !self.is_over && (self.quotas == 0 || self.full < self.quotas)
    }
}

impl<C: Clock + Clone + 'static> Inner<C> {
    /// Decides items with local counters, together with the items that stores have decided.
    pub(super) fn decide(
        &self,
        live: Option<&Live<C>>,
        request: &Request<'_>,
        elsewhere: Seen,
    ) -> Result<Answer, EngineError> {
        let mut tasks = Tasks::new();
        for item in request.items {
            tasks.push(self.find(live, request.verb, item)?);
        }
        let allowed = match tasks.as_mut_slice() {
            [Task::Acquisition(item)] if elsewhere == Seen::default() => {
                let result = item.counter.decide(&self.clock, item.verb, item.permits)?;
                !item.result.insert(result).verdict.is_over()
            }
            _ => self.decide_several(&mut tasks, request, elsewhere)?,
        };
        self.notify_watch(&mut tasks, allowed || request.counts_denied);
        split_merged(&mut tasks);
        Ok(Answer { allowed, results: tasks.into_iter().map(Task::into_result).collect() })
    }

    /// Finds the counter of an item that comes under one rule.
    pub(super) fn find<'a>(
        &'a self,
        live: Option<&'a Live<C>>,
        verb: Verb,
        item: &Item<'_>,
    ) -> Result<Task<'a, C>, EngineError> {
        let (is_decision, verb) = (verb != Verb::Peek, item.verb(verb));
        let counter = match item.target {
            Target::Rule { name, values } => {
                let (ruled, key) = live.ok_or(EngineError::NotLoaded)?.of_name(name, values)?;
                Counter::Rule(ruled, key)
            }
            Target::Descriptor { domain, entries, limit: Some(limit) } => {
                // A caller's limit replaces a rule's. In an unknown domain, nothing is limited
                // either way.
                if !live.ok_or(EngineError::NotLoaded)?.matcher.knows(domain) {
                    return Ok(Task::Done(ItemResult::UNMATCHED));
                }
                let live = live.ok_or(EngineError::NotLoaded)?;
                match self.of_override(live, (domain, entries), limit, verb, item.permits)? {
                    Ok(counter) => counter,
                    Err(result) => return Ok(Task::Done(result)),
                }
            }
            Target::Descriptor { domain, entries, limit: None } => {
                let live = live.ok_or(EngineError::NotLoaded)?;
                match live.of_descriptor(domain, entries) {
                    Some((ruled, key)) => Counter::Rule(ruled, key),
                    None => return Ok(Task::Done(ItemResult::UNMATCHED)),
                }
            }
            Target::Inline { limit, key } => {
                if !verb.counts() && !self.buckets.knows(limit) {
                    return Ok(Task::Done(fresh(limit, verb, item.permits)?));
                }
                let numbers = self.buckets.numbers(limit)?;
                let key = numbers.key(key);
                Counter::Bucket(numbers, key)
            }
        };
        let (permits, quota) = (item.permits, item.quota);
        let (same_as, is_uncharged, result) = (None, false, None);
        let item = PendingItem {
            counter,
            permits,
            verb,
            quota,
            is_decision,
            same_as,
            is_uncharged,
            result,
        };
        Ok(Task::Acquisition(item))
    }

    /// Returns the counter of a limit that comes with a descriptor, or its answer if nothing is
    /// counted.
    fn of_override<'a>(
        &'a self,
        live: &'a Live<C>,
        (domain, entries): (&str, Entries<'_>),
        limit: Override,
        verb: Verb,
        permits: u64,
    ) -> Result<Result<Counter<'a, C>, ItemResult>, EngineError> {
        let (window, display_limit) = (window(limit)?, display_limit(limit));
        if let Some((ruled, key)) = live.of_descriptor(domain, entries)
            && let Some(counter) = ruled.lent_to(window)
        {
            let own = Box::new(OwnLimit { window, counter, display_limit });
            return Ok(Ok(Counter::CallerLimit(ruled, key, own)));
        }
        let unit = UnitWindow(limit.unit);
        if !verb.counts() && !self.windows.knows(unit) {
            let now_ns = self.clock.now_ns();
            let verdict = match verb {
                Verb::Refund => Verdict::Refunded(0),
                Verb::Reset => Verdict::Reset,
                Verb::Take | Verb::Peek | Verb::Charge => {
                    counted::verdict(window, permits, permits, now_ns)
                }
            };
            return Ok(Err(counted::result(window, display_limit, (verdict, 0), now_ns)));
        }
        let numbers = self.windows.numbers(unit)?;
        let pairs = entries.iter().flat_map(|(key, value)| [*key, *value]);
        let results = std::iter::once(domain.as_bytes()).chain(pairs);
        let key = numbers.key(&key::of_values(results, usize::MAX));
        let own = Box::new(OwnLimit { window, counter: unit.counter()?, display_limit });
        Ok(Ok(Counter::Window(numbers, key, own)))
    }

    /// Decides several items, all or nothing. Returns `true` if the caller may proceed.
    fn decide_several(
        &self,
        tasks: &mut Tasks<'_, C>,
        request: &Request<'_>,
        mut seen: Seen,
    ) -> Result<bool, EngineError> {
        replace(tasks, &[]);
        merge(tasks);
        if self.settings.counting == Counting::Stop {
            self.uncharge_fitting(tasks)?;
        }
        // What is found here holds for the whole request, whatever other requests do meanwhile.
        for (task, requested) in tasks.iter_mut().zip(request.items) {
            match task {
                Task::Done(result) => seen.add(requested.quota, result.verdict.is_over()),
                Task::Acquisition(item) if item.same_as.is_some() => {}
                Task::Acquisition(item)
                    if item.verb == Verb::Peek
                        || request.counts_denied
                        || item.is_counted_take() =>
                {
                    let permits = if item.is_uncharged { 0 } else { item.permits };
                    let result = item.counter.decide(&self.clock, item.verb, permits)?;
                    seen.add(item.is_quota(), result.verdict.is_over());
                    item.result = Some(result);
                }
                // Enforced takes are decided together below.
                Task::Acquisition(item) if !item.is_enforced_take() => {
                    seen.add(item.is_quota(), false);
                }
                Task::Acquisition(_) => {}
            }
        }
        let allowed = self.take_jointly(tasks, seen)?;
        for task in tasks.iter_mut() {
            if let Task::Acquisition(item) = task
                && item.result.is_none()
                && item.same_as.is_none()
            {
                item.result = Some(self.rest(item, allowed)?);
            }
        }
        Ok(allowed)
    }

    /// Marks the items that do not count because another window that counts every hit is over.
    fn uncharge_fitting(&self, tasks: &mut Tasks<'_, C>) -> Result<(), EngineError> {
        let mut fit = SmallVec::<[usize; 4]>::new();
        let mut is_over = false;
        for (index, task) in tasks.iter().enumerate() {
            let Task::Acquisition(item) = task else { continue };
            // A peek that is over also denies the request.
            if item.counter.counts_all() && matches!(item.verb, Verb::Take | Verb::Peek) {
                let result = item.counter.decide(&self.clock, Verb::Peek, item.permits)?;
                let is_fitting = !result.verdict.is_refusal();
                is_over |= !is_fitting;
                fit.extend(is_fitting.then_some(index));
            }
        }
        for (index, task) in tasks.iter_mut().enumerate() {
            if let Task::Acquisition(item) = task {
                item.is_uncharged = is_over && fit.contains(&index);
            }
        }
        Ok(())
    }

    /// Decides an item outside of the joint take: it counts if the request passes, and is a peek
    /// otherwise.
    fn rest(&self, item: &PendingItem<'_, C>, allowed: bool) -> Result<ItemResult, EngineError> {
        let PendingItem { counter, verb, permits, .. } = item;
        match verb {
            Verb::Refund if !allowed => {
                let result = counter.decide(&self.clock, Verb::Peek, 1)?;
                Ok(ItemResult { verdict: Verdict::Refunded(0), ..result })
            }
            Verb::Take if !allowed => counter.decide(&self.clock, Verb::Peek, *permits),
            verb => counter.decide(&self.clock, *verb, *permits),
        }
    }

    /// Takes the enforced items that are not decided yet, all or nothing; of quotas, those that
    /// are not over. Returns `true` if nothing denies the request.
    fn take_jointly(&self, tasks: &mut Tasks<'_, C>, mut seen: Seen) -> Result<bool, EngineError> {
        let mut full = Full::new();
        for (index, item) in takes(tasks).filter(|(_, item)| item.is_quota()) {
            let result = item.counter.decide(&self.clock, Verb::Peek, item.permits)?;
            seen.add(true, result.verdict.is_over());
            if let Verdict::Denied { retry_after_ns, .. } = result.verdict {
                full.push((index, retry_after_ns));
            }
        }
        let granted = loop {
            if !seen.allows() {
                break false;
            }
            match self.try_jointly(tasks, &full)? {
                Outcome::Granted => break true,
                Outcome::Denied(by, retry_after_ns) => {
                    full.push((by, retry_after_ns));
                    let mut those = takes(tasks).filter(|(index, _)| *index == by);
                    if those.any(|(_, item)| item.is_quota()) {
                        seen.full = seen.full.saturating_add(1);
                    } else {
                        seen.is_over = true;
                    }
                }
            }
        };
        for (index, task) in tasks.iter_mut().enumerate() {
            let Task::Acquisition(item) = task else { continue };
            if item.result.is_some() || item.same_as.is_some() || !item.is_enforced_take() {
                continue;
            }
            let blocker = full.iter().find(|(full, _)| *full == index);
            if let Some((_, retry_after_ns)) = blocker {
                let result = item.counter.denied(&self.clock, item.permits, *retry_after_ns)?;
                item.result = Some(result);
            } else if granted {
                item.result = Some(item.counter.granted(&self.clock)?);
            }
        }
        Ok(granted)
    }

    fn try_jointly(&self, tasks: &Tasks<'_, C>, full: &Full) -> Result<Outcome, EngineError> {
        let enforced =
            takes(tasks).filter(|(index, _)| !full.iter().any(|(full, _)| full == index));
        let enforced: SmallVec<[_; 4]> =
            enforced.map(|(index, item)| (index, item, item.counter.in_force())).collect();
        let mut acquisitions = Vec::with_capacity(enforced.len());
        let mut indexes = SmallVec::<[usize; 4]>::new();
        for (index, item, in_force) in &enforced {
            match item.counter.join(in_force.as_ref(), &self.clock, item.permits) {
                Joint::Acquisition(acquisition) => {
                    acquisitions.push(acquisition);
                    indexes.push(*index);
                }
                Joint::Over => return Ok(Outcome::Denied(*index, None)),
                Joint::Passes => {}
            }
        }
        let by = |at: usize| indexes.get(at).copied().unwrap_or(0);
        match try_all(&acquisitions) {
            Ok(JointDecision::Granted(_)) => Ok(Outcome::Granted),
            Ok(JointDecision::Denied { by: at, retry_after }) => {
                Ok(Outcome::Denied(by(at), retry_after.and_then(retry_ns)))
            }
            Err(TryAllError { at, error: KeyedError::ExceedsCapacity(_) }) => {
                Ok(Outcome::Denied(by(at), None))
            }
            Err(TryAllError { error, .. }) => Err(EngineError::of(error)),
        }
    }

    /// Notifies the watchers. Of a request that took nothing, they receive only the items that
    /// denied it; of a peek that decides about a caller, only the denial, of 0 permits.
    fn notify_watch(&self, tasks: &mut Tasks<'_, C>, took: bool) {
        for task in tasks {
            if let Task::Acquisition(PendingItem {
                counter,
                permits,
                verb,
                is_decision,
                result: Some(result),
                ..
            }) = task
            {
                let is_refusal = result.verdict.is_refusal();
                let permits = match verb {
                    Verb::Peek if *is_decision && is_refusal => 0,
                    Verb::Peek => continue,
                    _ if took || is_refusal || counter.counts_all() => *permits,
                    _ => continue,
                };
                result.note_saturation(permits);
                let now_ns = || self.clock.now_ns();
                counter.notify_watch(self.inline_watch.as_ref(), now_ns, permits, result);
            }
        }
    }
}
