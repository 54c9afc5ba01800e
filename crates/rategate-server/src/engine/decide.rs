//! A request decided: its items found their counters, what belongs together is taken together, and who looks on is told.

use std::num::NonZeroU64;
use std::sync::Arc;

use rategate::{Clock, KeyedError, Together, TryAllError, try_all};
use smallvec::SmallVec;

use super::Inner;
use super::answer::{Answer, Part, Verdict};
use super::counter::{Counter, Joint};
use super::fault::Fault;
use super::inline::fresh;
use super::key;
use super::live::Live;
use super::request::{Item, MOST_ITEMS, Override, Request, Target, Verb};
use crate::rule::Shown;

/// What is to be done about an item.
enum Task<'a, C: Clock> {
    Ask(Asked<'a, C>),
    Done(Part),
}

/// An item with its counter.
struct Asked<'a, C: Clock> {
    counter: Counter<'a, C>,
    permits: u64,
    verb: Verb,
    /// An earlier item is of the same counter, and asks for both.
    same_as: Option<usize>,
    part: Option<Part>,
}

type Tasks<'a, C> = SmallVec<[Task<'a, C>; 4]>;

/// Counters that have no room, and when they will.
type Full = SmallVec<[(usize, Option<NonZeroU64>); 4]>;

/// What has become of a take of several.
enum Outcome {
    Granted,
    Denied(usize, Option<NonZeroU64>),
}

impl<C: Clock + Clone + 'static> Inner<C> {
    /// Decides a request whose counters are all here.
    pub(super) fn decide(
        &self,
        live: Option<&Live<C>>,
        request: &Request<'_>,
    ) -> Result<Answer, Fault> {
        let given = request.items.len();
        if given > MOST_ITEMS {
            return Err(Fault::TooManyItems { given, most: MOST_ITEMS });
        }
        let mut tasks = Tasks::new();
        for item in request.items {
            tasks.push(self.find(live, request.verb, item)?);
        }
        match tasks.as_mut_slice() {
            [Task::Ask(asked)] => {
                asked.part = Some(asked.counter.decide(&self.clock, asked.verb, asked.permits)?);
            }
            _ => self.decide_several(&mut tasks)?,
        }
        self.tell(&tasks);
        let allowed = is_allowed(&tasks);
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
                // A caller's limit stands in for one of a rule: where nothing is limited it is none either.
                if !live.ok_or(Fault::NotLoaded)?.matcher.knows(domain) {
                    return Ok(Task::Done(UNMATCHED));
                }
                let counter = self.of_override(domain, entries, limit, verb, item.permits)?;
                match counter {
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
        Ok(Task::Ask(Asked { counter, permits, verb, same_as: None, part: None }))
    }

    /// The counter of a limit that comes with a descriptor, or its answer, if there is nothing to count.
    fn of_override(
        &self,
        domain: &str,
        entries: &[(&[u8], &[u8])],
        limit: Override,
        verb: Verb,
        permits: u64,
    ) -> Result<Result<Counter<'_, C>, Part>, Fault> {
        if limit.permits == 0 {
            let verdict = Verdict::Denied { retry_after_ns: None, enforced: true };
            let shown = Some(Shown { permits: 0, multiplier: 1, unit: limit.unit });
            return Ok(Err(Part { verdict, shown, limit: 0, remaining: Some(0), ..UNMATCHED }));
        }
        if verb != Verb::Take && !self.windows.knows(limit) {
            return Ok(Err(fresh(limit, verb, permits)?));
        }
        let numbers = self.windows.numbers(limit)?;
        let pairs = entries.iter().flat_map(|(key, value)| [*key, *value]);
        let parts = std::iter::once(domain.as_bytes()).chain(pairs);
        let key = numbers.key(&key::of_values(parts, usize::MAX));
        Ok(Ok(Counter::Window(numbers, key)))
    }

    /// Several items: all or nothing of what is to be taken.
    fn decide_several(&self, tasks: &mut Tasks<'_, C>) -> Result<(), Fault> {
        replace(tasks);
        merge(tasks);
        if !self.settings.count_denied {
            self.take_together(tasks)?;
        }
        for task in tasks.iter_mut() {
            if let Task::Ask(asked) = task
                && asked.part.is_none()
                && asked.same_as.is_none()
            {
                asked.part = Some(asked.counter.decide(&self.clock, asked.verb, asked.permits)?);
            }
        }
        for later in 1..tasks.len() {
            let (before, rest) = tasks.split_at_mut(later);
            if let Some(Task::Ask(asked)) = rest.first_mut()
                && let Some(Task::Ask(first)) = asked.same_as.and_then(|first| before.get(first))
            {
                asked.part.clone_from(&first.part);
            }
        }
        Ok(())
    }

    /// Takes what is enforced, all or nothing, and of quotas those that have room, if one has; then what only takes note. Where
    /// that was denied nothing is taken, and all are looked at.
    fn take_together(&self, tasks: &mut Tasks<'_, C>) -> Result<(), Fault> {
        let (mut full, mut quotas) = (Full::new(), 0_usize);
        for (index, asked) in takes(tasks) {
            if !asked.counter.is_quota() {
                continue;
            }
            quotas = quotas.saturating_add(1);
            // One that only takes note always has room.
            if asked.counter.is_enforced() {
                let part = asked.counter.decide(&self.clock, Verb::Peek, asked.permits)?;
                if let Verdict::Denied { retry_after_ns, .. } = part.verdict {
                    full.push((index, retry_after_ns));
                }
            }
        }
        let stopped = self.is_over_untaken(tasks)?;
        let granted = loop {
            if stopped {
                break false;
            }
            if quotas > 0 && full.len() == quotas {
                break false;
            }
            match self.try_together(tasks, &full)? {
                Outcome::Granted => break true,
                Outcome::Denied(by, retry_after_ns) => {
                    full.push((by, retry_after_ns));
                    let is_quota =
                        takes(tasks).any(|(index, asked)| index == by && asked.counter.is_quota());
                    if !is_quota {
                        break false;
                    }
                }
            }
        };
        for (index, task) in tasks.iter_mut().enumerate() {
            let Task::Ask(asked) = task else { continue };
            if asked.same_as.is_some() || asked.verb != Verb::Take {
                continue;
            }
            let (counter, permits) = (&asked.counter, asked.permits);
            let stood_in_the_way = full.iter().find(|(full, _)| *full == index);
            asked.part = Some(match stood_in_the_way {
                Some((_, retry_after_ns)) => {
                    counter.denied(&self.clock, permits, *retry_after_ns)?
                }
                None if granted && counter.is_enforced() => counter.granted(&self.clock)?,
                None if granted => counter.decide(&self.clock, Verb::Take, permits)?,
                None => counter.decide(&self.clock, Verb::Peek, permits)?,
            });
        }
        Ok(())
    }

    /// Whether something is over that takes nothing itself: what is only looked at, and limits of nothing that came along.
    fn is_over_untaken(&self, tasks: &Tasks<'_, C>) -> Result<bool, Fault> {
        for task in tasks {
            let is_over = match task {
                Task::Done(part) => part.verdict.is_over(),
                Task::Ask(asked) if asked.verb == Verb::Peek && !asked.counter.is_quota() => {
                    let part = asked.counter.decide(&self.clock, Verb::Peek, asked.permits)?;
                    part.verdict.is_over()
                }
                Task::Ask(_) => false,
            };
            if is_over {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn try_together(&self, tasks: &Tasks<'_, C>, full: &Full) -> Result<Outcome, Fault> {
        let enforced = takes(tasks).filter(|(index, asked)| {
            asked.counter.is_enforced() && !full.iter().any(|(full, _)| full == index)
        });
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

    fn tell(&self, tasks: &Tasks<'_, C>) {
        for task in tasks {
            if let Task::Ask(Asked { counter, permits, verb, part: Some(part), .. }) = task
                && *verb != Verb::Peek
            {
                counter.tell(self.inline_watch.as_ref(), || self.clock.now_ns(), *permits, part);
            }
        }
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

/// What is to be taken, with its place.
fn takes<'t, 'a, C: Clock>(
    tasks: &'t [Task<'a, C>],
) -> impl Iterator<Item = (usize, &'t Asked<'a, C>)> {
    tasks.iter().enumerate().filter_map(|(index, task)| match task {
        Task::Ask(asked) if asked.same_as.is_none() && asked.verb == Verb::Take => {
            Some((index, asked))
        }
        _ => None,
    })
}

/// Items of rules that another rule of the request stands in for.
fn replace<C: Clock + Clone>(tasks: &mut Tasks<'_, C>) {
    let rules = tasks.iter().filter_map(|task| match task {
        Task::Ask(asked) => Some(Arc::clone(&asked.counter.ruled()?.rule)),
        Task::Done(_) => None,
    });
    let rules: SmallVec<[_; 4]> = rules.filter(|rule| !rule.replaces.is_empty()).collect();
    for task in tasks.iter_mut().filter(|_| !rules.is_empty()) {
        if let Task::Ask(asked) = task
            && let Some(ruled) = asked.counter.ruled()
            && rules.iter().any(|rule| rule.replaces.contains(&ruled.rule.name))
        {
            *task = Task::Done(ruled.part(Verdict::Replaced));
        }
    }
}

/// Items of one counter are asked as one, for the sum.
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

/// Whether nothing stands in the way: no rule that is over, and of quotas not all.
fn is_allowed<C: Clock + Clone>(tasks: &Tasks<'_, C>) -> bool {
    let (mut quotas, mut full, mut over) = (0_usize, 0_usize, false);
    for task in tasks {
        let (is_quota, part) = match task {
            Task::Done(part) => (false, Some(part)),
            Task::Ask(asked) => (asked.counter.is_quota(), asked.part.as_ref()),
        };
        let is_over = part.is_some_and(|part| part.verdict.is_over());
        if is_quota {
            quotas = quotas.saturating_add(1);
            full = full.saturating_add(usize::from(is_over));
        } else {
            over |= is_over;
        }
    }
    !over && (quotas == 0 || full < quotas)
}

pub(super) const UNMATCHED: Part = Part {
    rule: None,
    shown: None,
    verdict: Verdict::Unmatched,
    limit: u64::MAX,
    remaining: Some(u64::MAX),
    reset_after_ns: 0,
};
