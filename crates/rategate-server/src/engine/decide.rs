//! The decision of a request: finds the counters, takes from all of them or none, and notifies
//! watchers.

use std::num::NonZeroU64;
use std::sync::Arc;

use rategate::{Clock, KeyedError, Together, TryAllError, try_all};
use smallvec::SmallVec;

use super::Inner;
use super::answer::{Answer, Part, Verdict};
use super::counted::{self, OwnLimit};
use super::counter::{Counter, Joint};
use super::fault::Fault;
use super::inline::{Own as _, UnitWindow, fresh};
use super::key;
use super::live::Live;
use super::request::{Item, Override, Request, Target, Verb};
use crate::rule::Limit;

/// The work on one item.
enum Task<'a, C: Clock> {
    Ask(Asked<'a, C>),
    Done(Part),
}

/// An item with its counter.
struct Asked<'a, C: Clock> {
    counter: Counter<'a, C>,
    permits: u64,
    verb: Verb,
    /// The index of an earlier item with the same counter, which takes the permits of both.
    same_as: Option<usize>,
    /// `true` if the item is only peeked at, since another window alone counts the request.
    is_spared: bool,
    part: Option<Part>,
}

/// The keys and values of a descriptor, in order.
type Entries<'a> = &'a [(&'a [u8], &'a [u8])];

type Tasks<'a, C> = SmallVec<[Task<'a, C>; 4]>;

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
    pub(super) const fn lets_pass(self) -> bool {
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
    ) -> Result<Answer, Fault> {
        let mut tasks = Tasks::new();
        for item in request.items {
            tasks.push(self.find(live, request.verb, item)?);
        }
        let allowed = match tasks.as_mut_slice() {
            [Task::Ask(asked)] if elsewhere == Seen::default() => {
                let part = asked.counter.decide(&self.clock, asked.verb, asked.permits)?;
                !asked.part.insert(part).verdict.is_over()
            }
            _ => self.decide_several(&mut tasks, request.counts_denied, elsewhere)?,
        };
        self.tell(&tasks, allowed || request.counts_denied);
        share_out(&mut tasks);
        Ok(Answer { allowed, parts: tasks.into_iter().map(Task::into_part).collect() })
    }

    fn find<'a>(
        &'a self,
        live: Option<&'a Live<C>>,
        verb: Verb,
        item: &Item<'_>,
    ) -> Result<Task<'a, C>, Fault> {
        let verb = match verb {
            Verb::Take if item.refund => Verb::Refund,
            Verb::Take if item.permits == 0 => Verb::Peek,
            verb => verb,
        };
        let counter = match item.target {
            Target::Rule { name, values } => {
                let (ruled, key) = live.ok_or(Fault::NotLoaded)?.of_name(name, values)?;
                Counter::Rule(ruled, key)
            }
            Target::Descriptor { domain, entries, limit: Some(limit) } => {
                // A caller's limit replaces a rule's. In an unknown domain, nothing is limited
                // either way.
                if !live.ok_or(Fault::NotLoaded)?.matcher.knows(domain) {
                    return Ok(Task::Done(UNMATCHED));
                }
                let live = live.ok_or(Fault::NotLoaded)?;
                match self.of_override(live, (domain, entries), limit, verb, item.permits)? {
                    Ok(counter) => counter,
                    Err(part) => return Ok(Task::Done(part)),
                }
            }
            Target::Descriptor { domain, entries, limit: None } => {
                let live = live.ok_or(Fault::NotLoaded)?;
                match live.of_descriptor(domain, entries) {
                    Some((ruled, key)) => Counter::Rule(ruled, key),
                    None => return Ok(Task::Done(UNMATCHED)),
                }
            }
            Target::Inline { limit, key } => {
                if verb != Verb::Take && !self.buckets.knows(limit) {
                    return Ok(Task::Done(fresh(limit, verb, item.permits)?));
                }
                let numbers = self.buckets.numbers(limit)?;
                let key = numbers.key(key);
                Counter::Bucket(numbers, key)
            }
        };
        let permits = item.permits;
        let (same_as, is_spared, part) = (None, false, None);
        Ok(Task::Ask(Asked { counter, permits, verb, same_as, is_spared, part }))
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
    ) -> Result<Result<Counter<'a, C>, Part>, Fault> {
        let (window, shown) = (limit.window()?, limit.shown());
        if let Some((ruled, key)) = live.of_descriptor(domain, entries)
            && let Some(counter) = ruled.lent_to(window)
        {
            let own = Box::new(OwnLimit { window, counter, shown });
            return Ok(Ok(Counter::Lent(ruled, key, own)));
        }
        let unit = UnitWindow(limit.unit);
        if verb != Verb::Take && !self.windows.knows(unit) {
            let now_ns = self.clock.now_ns();
            let verdict = match verb {
                Verb::Refund => Verdict::Refunded(0),
                Verb::Reset => Verdict::Reset,
                Verb::Take | Verb::Peek => counted::verdict(window, permits, permits, now_ns),
            };
            return Ok(Err(counted::part(window, shown, (verdict, 0), now_ns)));
        }
        let numbers = self.windows.numbers(unit)?;
        let pairs = entries.iter().flat_map(|(key, value)| [*key, *value]);
        let parts = std::iter::once(domain.as_bytes()).chain(pairs);
        let key = numbers.key(&key::of_values(parts, usize::MAX));
        let own = Box::new(OwnLimit { window, counter: unit.policy()?, shown });
        Ok(Ok(Counter::Window(numbers, key, own)))
    }

    /// Decides several items, all or nothing. Returns `true` if the caller may proceed.
    fn decide_several(
        &self,
        tasks: &mut Tasks<'_, C>,
        counts_denied: bool,
        mut seen: Seen,
    ) -> Result<bool, Fault> {
        replace(tasks);
        merge(tasks);
        if self.settings.count_over_only {
            self.spare(tasks)?;
        }
        // What is found here holds for the whole request, whatever other requests do meanwhile.
        for task in tasks.iter_mut() {
            match task {
                Task::Done(part) => seen.add(false, part.verdict.is_over()),
                Task::Ask(asked) if asked.same_as.is_some() => {}
                Task::Ask(asked)
                    if asked.verb == Verb::Peek || counts_denied || asked.is_counted_take() =>
                {
                    let permits = if asked.is_spared { 0 } else { asked.permits };
                    let part = asked.counter.decide(&self.clock, asked.verb, permits)?;
                    seen.add(asked.counter.is_quota(), part.verdict.is_over());
                    asked.part = Some(part);
                }
                // Enforced takes are decided together below.
                Task::Ask(asked) if !asked.is_enforced_take() => {
                    seen.add(asked.counter.is_quota(), false);
                }
                Task::Ask(_) => {}
            }
        }
        let allowed = self.take_together(tasks, seen)?;
        for task in tasks.iter_mut() {
            if let Task::Ask(asked) = task
                && asked.part.is_none()
                && asked.same_as.is_none()
            {
                asked.part = Some(self.rest(asked, allowed)?);
            }
        }
        Ok(allowed)
    }

    /// Marks the items that do not count because another window that counts every hit is over.
    fn spare(&self, tasks: &mut Tasks<'_, C>) -> Result<(), Fault> {
        let mut fit = SmallVec::<[usize; 4]>::new();
        let mut is_over = false;
        for (index, task) in tasks.iter().enumerate() {
            let Task::Ask(asked) = task else { continue };
            // A peek that is over also denies the request.
            if asked.counter.counts_all() && matches!(asked.verb, Verb::Take | Verb::Peek) {
                let part = asked.counter.decide(&self.clock, Verb::Peek, asked.permits)?;
                let has_place = !part.verdict.is_refusal();
                is_over |= !has_place;
                fit.extend(has_place.then_some(index));
            }
        }
        for (index, task) in tasks.iter_mut().enumerate() {
            if let Task::Ask(asked) = task {
                asked.is_spared = is_over && fit.contains(&index);
            }
        }
        Ok(())
    }

    /// Decides an item outside of the joint take: it counts if the request passes, and is a peek
    /// otherwise.
    fn rest(&self, asked: &Asked<'_, C>, allowed: bool) -> Result<Part, Fault> {
        let Asked { counter, verb, permits, .. } = asked;
        match verb {
            Verb::Refund if !allowed => {
                let part = counter.decide(&self.clock, Verb::Peek, 1)?;
                Ok(Part { verdict: Verdict::Refunded(0), ..part })
            }
            Verb::Take if !allowed => counter.decide(&self.clock, Verb::Peek, *permits),
            verb => counter.decide(&self.clock, *verb, *permits),
        }
    }

    /// Takes the enforced items that are not decided yet, all or nothing; of quotas, those that
    /// are not over. Returns `true` if nothing denies the request.
    fn take_together(&self, tasks: &mut Tasks<'_, C>, mut seen: Seen) -> Result<bool, Fault> {
        let mut full = Full::new();
        for (index, asked) in takes(tasks).filter(|(_, asked)| asked.counter.is_quota()) {
            let part = asked.counter.decide(&self.clock, Verb::Peek, asked.permits)?;
            seen.add(true, part.verdict.is_over());
            if let Verdict::Denied { retry_after_ns, .. } = part.verdict {
                full.push((index, retry_after_ns));
            }
        }
        let granted = loop {
            if !seen.lets_pass() {
                break false;
            }
            match self.try_together(tasks, &full)? {
                Outcome::Granted => break true,
                Outcome::Denied(by, retry_after_ns) => {
                    full.push((by, retry_after_ns));
                    let mut those = takes(tasks).filter(|(index, _)| *index == by);
                    if those.any(|(_, asked)| asked.counter.is_quota()) {
                        seen.full = seen.full.saturating_add(1);
                    } else {
                        seen.is_over = true;
                    }
                }
            }
        };
        for (index, task) in tasks.iter_mut().enumerate() {
            let Task::Ask(asked) = task else { continue };
            if asked.part.is_some() || asked.same_as.is_some() || !asked.is_enforced_take() {
                continue;
            }
            let stood_in_the_way = full.iter().find(|(full, _)| *full == index);
            if let Some((_, retry_after_ns)) = stood_in_the_way {
                let part = asked.counter.denied(&self.clock, asked.permits, *retry_after_ns)?;
                asked.part = Some(part);
            } else if granted {
                asked.part = Some(asked.counter.granted(&self.clock)?);
            }
        }
        Ok(granted)
    }

    fn try_together(&self, tasks: &Tasks<'_, C>, full: &Full) -> Result<Outcome, Fault> {
        let enforced =
            takes(tasks).filter(|(index, _)| !full.iter().any(|(full, _)| full == index));
        let enforced: SmallVec<[_; 4]> =
            enforced.map(|(index, asked)| (index, asked, asked.counter.in_force())).collect();
        let mut asks = Vec::with_capacity(enforced.len());
        let mut whose = SmallVec::<[usize; 4]>::new();
        for (index, asked, in_force) in &enforced {
            match asked.counter.join(in_force.as_ref(), &self.clock, asked.permits) {
                Joint::Ask(ask) => {
                    asks.push(ask);
                    whose.push(*index);
                }
                Joint::Over => return Ok(Outcome::Denied(*index, None)),
                Joint::Passes => {}
            }
        }
        let by = |at: usize| whose.get(at).copied().unwrap_or(0);
        match try_all(&asks) {
            Ok(Together::Granted(_)) => Ok(Outcome::Granted),
            Ok(Together::Denied { by: at, retry_after_ns }) => {
                Ok(Outcome::Denied(by(at), retry_after_ns))
            }
            Err(TryAllError { at, error: KeyedError::ExceedsCapacity(_) }) => {
                Ok(Outcome::Denied(by(at), None))
            }
            Err(TryAllError { error, .. }) => Err(Fault::of(error)),
        }
    }

    /// Notifies the watchers. Of a request that took nothing, they receive only the items that
    /// denied it.
    fn tell(&self, tasks: &Tasks<'_, C>, took: bool) {
        for task in tasks {
            if let Task::Ask(Asked { counter, permits, verb, part: Some(part), .. }) = task
                && *verb != Verb::Peek
                && (took || part.verdict.is_refusal() || counter.counts_all())
            {
                counter.tell(self.inline_watch.as_ref(), || self.clock.now_ns(), *permits, part);
            }
        }
    }
}

impl<C: Clock + Clone> Asked<'_, C> {
    /// Returns `true` for a take from a counter that counts every hit.
    fn is_counted_take(&self) -> bool {
        self.verb == Verb::Take && self.counter.counts_all()
    }

    fn is_enforced_take(&self) -> bool {
        self.verb == Verb::Take && self.counter.is_enforced()
    }
}

impl<C: Clock> Task<'_, C> {
    fn into_part(self) -> Part {
        match self {
            Self::Done(part) => part,
            Self::Ask(asked) => asked.part.unwrap_or(UNMATCHED),
        }
    }
}

/// Returns the enforced takes that are not decided yet, with their indices.
fn takes<'t, 'a, C: Clock + Clone>(
    tasks: &'t [Task<'a, C>],
) -> impl Iterator<Item = (usize, &'t Asked<'a, C>)> {
    tasks.iter().enumerate().filter_map(|(index, task)| match task {
        Task::Ask(asked)
            if asked.same_as.is_none() && asked.part.is_none() && asked.is_enforced_take() =>
        {
            Some((index, asked))
        }
        _ => None,
    })
}

/// Marks the items whose rules are replaced by another rule of the request.
fn replace<C: Clock + Clone>(tasks: &mut Tasks<'_, C>) {
    let rules = tasks.iter().filter_map(|task| match task {
        Task::Ask(asked) => Some(Arc::clone(&asked.counter.ruled()?.rule)),
        Task::Done(_) => None,
    });
    let rules: SmallVec<[_; 4]> = rules.filter(|rule| !rule.replaces.is_empty()).collect();
    for task in tasks.iter_mut().filter(|_| !rules.is_empty()) {
        if let Task::Ask(asked) = task
            && let Some(ruled) = asked.counter.ruled()
            // An unlimited rule has nothing to replace.
            && ruled.counters.in_force().limit != Limit::Unlimited
            && rules.iter().any(|rule| rule.replaces.contains(&ruled.rule.name))
        {
            *task = Task::Done(ruled.part(Verdict::Replaced));
        }
    }
}

/// Merges items of the same counter into one that takes the sum.
fn merge<C: Clock + Clone>(tasks: &mut Tasks<'_, C>) {
    for later in 1..tasks.len() {
        let (before, rest) = tasks.split_at_mut(later);
        let Some(Task::Ask(asked)) = rest.first_mut() else { continue };
        for (index, task) in before.iter_mut().enumerate() {
            if let Task::Ask(first) = task
                && first.same_as.is_none()
                && first.verb == asked.verb
                && first.counter.is(&asked.counter)
            {
                first.permits = first.permits.saturating_add(asked.permits);
                asked.same_as = Some(index);
                break;
            }
        }
    }
}

/// Copies the result to merged items. Refunded permits are split between them, in order.
fn share_out<C: Clock + Clone>(tasks: &mut Tasks<'_, C>) {
    for later in (1..tasks.len()).rev() {
        let (before, rest) = tasks.split_at_mut(later);
        let Some(Task::Ask(asked)) = rest.first_mut() else { continue };
        let Some(Task::Ask(first)) = asked.same_as.and_then(|first| before.get_mut(first)) else {
            continue;
        };
        first.permits = first.permits.saturating_sub(asked.permits);
        asked.part.clone_from(&first.part);
        if let (
            Some(Part { verdict: Verdict::Refunded(all), .. }),
            Some(Part { verdict: Verdict::Refunded(own), .. }),
        ) = (&mut first.part, &mut asked.part)
        {
            *own = all.saturating_sub(first.permits);
            *all = all.saturating_sub(*own);
        }
    }
}

pub(super) const UNMATCHED: Part = Part {
    rule: None,
    shown: None,
    verdict: Verdict::Unmatched,
    limit: u64::MAX,
    remaining: Some(u64::MAX),
    reset_after_ns: 0,
};
