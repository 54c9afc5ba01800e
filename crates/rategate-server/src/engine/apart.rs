//! Requests with items that are decided elsewhere: a future that takes one after the other, and gives back if one is over.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rategate::Clock;
use rategate::distributed::{By, Decision, Grant};
use rategate::store::Fault as StoreFault;

use super::answer::{Answer, Decided, Part, Verdict};
use super::decide::{Seen, UNMATCHED};
use super::fault::Fault;
use super::key::{self, Key};
use super::live::Live;
use super::owned::OwnedItem;
use super::request::{Item, MOST_ITEMS, Request, Verb};
use super::stores::{Remote, reset_after_ns};
use super::{Engine, Inner};
use crate::rule::{Enforcement, Limit, WhenGone};

/// An item that a store decides.
struct Apart {
    /// Its place in the request.
    at: usize,
    /// Its rule's place.
    rule: usize,
    key: Key,
    permits: u64,
    verb: Verb,
}

/// The items of a request by who decides them, each with its place.
#[derive(Default)]
struct Split {
    apart: Vec<Apart>,
    here: Vec<(usize, OwnedItem)>,
    /// Another rule of the request stands in for theirs.
    done: Vec<(usize, Part)>,
}

/// What a store has granted for a request that is not decided yet: it goes back if that is dropped.
#[derive(Default)]
struct Taken(Vec<Granted>);

/// A grant of a store, for the item at this place.
struct Granted {
    at: usize,
    remote: Arc<dyn Remote>,
    key: Arc<[u8]>,
    permits: NonZeroU64,
    grant: Grant,
}

impl Taken {
    fn keep(&mut self) {
        self.0.clear();
    }

    fn give_back(&mut self) {
        for Granted { remote, key, permits, grant, .. } in self.0.drain(..) {
            remote.refund(&key, permits, grant);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Decides a request some of whose items are not here. `None` if all are.
    pub(super) fn decide_apart(
        &self,
        live: &Arc<Live<C>>,
        request: &Request<'_>,
    ) -> Option<Decided> {
        if request.items.len() > MOST_ITEMS {
            return None;
        }
        // What is wrong with an item is said by whoever decides those that are here.
        let found: Vec<Option<(usize, Key)>> =
            request.items.iter().map(|item| live.found(&item.target)).collect();
        let rule_of = |index: usize| live.ruled.get(index);
        let all = found.iter().flatten().filter_map(|(index, _)| rule_of(*index));
        let replaced: Vec<Arc<str>> =
            all.flat_map(|ruled| ruled.rule.replaces.iter().cloned()).collect();
        let mut split = Split::default();
        for ((at, item), found) in request.items.iter().enumerate().zip(found) {
            let ruled = found.as_ref().and_then(|(index, _)| rule_of(*index));
            if let Some(ruled) = ruled.filter(|ruled| replaced.contains(&ruled.rule.name)) {
                split.done.push((at, ruled.part(Verdict::Replaced)));
            } else if let (Some((rule, key)), Some(_)) =
                (found, ruled.and_then(|ruled| ruled.remote.as_ref()))
            {
                let verb = verb_of(request.verb, item);
                split.apart.push(Apart { at, rule, key, permits: item.permits, verb });
            } else {
                split.here.push((at, OwnedItem::of(item)));
            }
        }
        if split.apart.is_empty() {
            return None;
        }
        let (inner, live, verb) = (Arc::clone(&self.inner), Arc::clone(live), request.verb);
        Some(now_or_later(Box::pin(decide(inner, live, verb, split))))
    }

    /// How the stores of rules are: the rule's name and what is seen of its store.
    #[must_use]
    pub fn stores(&self) -> Vec<(Arc<str>, rategate::distributed::Health)> {
        let live = self.inner.live.load_full();
        let ruled = live.iter().flat_map(|live| &live.ruled);
        ruled
            .filter_map(|ruled| {
                Some((Arc::clone(&ruled.rule.name), ruled.remote.as_ref()?.0.health()))
            })
            .collect()
    }
}

/// An answer that is there is told at once.
pub(super) fn now_or_later(
    mut answer: Pin<Box<dyn Future<Output = Result<Answer, Fault>> + Send>>,
) -> Decided {
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Decided::Now(answer),
        Poll::Pending => Decided::Later(answer),
    }
}

const fn verb_of(verb: Verb, item: &Item<'_>) -> Verb {
    match verb {
        Verb::Take if item.refund => Verb::Refund,
        Verb::Take if item.permits == 0 => Verb::Peek,
        verb => verb,
    }
}

async fn decide<C: Clock + Clone + 'static>(
    inner: Arc<Inner<C>>,
    live: Arc<Live<C>>,
    verb: Verb,
    split: Split,
) -> Result<Answer, Fault> {
    let Split { apart, here: others, done } = split;
    let mut taken = Taken::default();
    let items = apart.len().saturating_add(others.len()).saturating_add(done.len());
    let mut parts: Vec<Option<Part>> = vec![None; items];
    for (at, part) in done {
        if let Some(place) = parts.get_mut(at) {
            *place = Some(part);
        }
    }
    let (mut is_over, mut quotas, mut full) = (false, 0_usize, 0_usize);
    for item in &apart {
        // Behind one that is over, the others are looked at.
        let verb = if is_over && item.verb == Verb::Take { Verb::Peek } else { item.verb };
        let part = asked(&inner, &live, item, verb, &mut taken).await?;
        if part.rule.as_ref().is_some_and(|rule| rule.quota) {
            quotas = quotas.saturating_add(1);
            full = full.saturating_add(usize::from(part.verdict.is_over()));
        } else {
            is_over |= part.verdict.is_over();
        }
        if let Some(place) = parts.get_mut(item.at) {
            *place = Some(part);
        }
    }
    let is_quota_here = || others.iter().any(|(_, item)| item.is_quota(&live));
    is_over |= quotas > 0 && quotas == full && !is_quota_here();
    let verb_here = if is_over && verb == Verb::Take { Verb::Peek } else { verb };
    let mut allowed = !is_over;
    if !others.is_empty() {
        let answer = decide_here(&inner, &live, verb_here, &others)?;
        // Quotas in both places: those here say for themselves.
        allowed &= answer.allowed;
        for ((at, _), part) in others.iter().zip(answer.parts) {
            if let Some(place) = parts.get_mut(*at) {
                *place = Some(part);
            }
        }
    }
    if allowed || verb != Verb::Take {
        taken.keep();
    } else {
        // As if they had never been taken.
        for Granted { at, permits, .. } in &taken.0 {
            if let Some(Some(part)) = parts.get_mut(*at) {
                let back = part.remaining.map(|left| left.saturating_add(permits.get()));
                part.remaining = back.map(|left| left.min(part.limit));
            }
        }
        taken.give_back();
    }
    for item in apart.iter().filter(|item| item.verb != Verb::Peek) {
        let watch = live.ruled.get(item.rule).and_then(|ruled| ruled.watch.as_ref());
        if let (Some(watch), Some(Some(part))) = (watch, parts.get(item.at)) {
            watch.decided(inner.clock.now_ns(), &item.key, item.permits, part);
        }
    }
    Ok(Answer { allowed, parts: parts.into_iter().flatten().collect() })
}

fn decide_here<C: Clock + Clone + 'static>(
    inner: &Inner<C>,
    live: &Live<C>,
    verb: Verb,
    others: &[(usize, OwnedItem)],
) -> Result<Answer, Fault> {
    let borrowed: Vec<_> = others.iter().map(|(_, item)| item.borrowed()).collect();
    let items: Vec<Item<'_>> =
        others.iter().zip(&borrowed).map(|((_, item), lists)| item.item(lists)).collect();
    inner.decide(
        Some(live),
        &Request { verb, items: &items, counts_denied: false },
        Seen::default(),
    )
}

/// One item, asked of its store.
async fn asked<C: Clock + Clone + 'static>(
    inner: &Inner<C>,
    live: &Live<C>,
    item: &Apart,
    verb: Verb,
    taken: &mut Taken,
) -> Result<Part, Fault> {
    let Some((ruled, remote)) = live.remote(item.rule) else { return Err(Fault::NotLoaded) };
    let key = key::in_store(&ruled.rule.name, &item.key);
    let decision = match verb {
        // Permits in flight without a name of the caller's: they end by themselves.
        Verb::Take if ruled.is_in_flight() => {
            remote.hold(&key, item.permits, inner.new_lease()).await
        }
        Verb::Take => remote.take(&key, item.permits).await,
        Verb::Refund => {
            let back = match NonZeroU64::new(item.permits).filter(|_| !ruled.is_in_flight()) {
                Some(permits) => remote.give_back(&key, permits).await,
                None => Ok(0),
            };
            let back = match back {
                Ok(back) => back,
                // What it might have taken back nobody knows.
                Err(StoreFault::Gone(_)) => 0,
                Err(fault) => return Err(of_store(&fault)),
            };
            return looked(inner, live, (item.rule, &item.key), Verdict::Refunded(back)).await;
        }
        Verb::Peek => remote.peek(&key, item.permits).await,
        Verb::Reset => {
            return match remote.reset(&key).await {
                Ok(_) => looked(inner, live, (item.rule, &item.key), Verdict::Reset).await,
                Err(fault) => Err(of_store(&fault)),
            };
        }
    };
    let decision = match decision {
        Ok(decision) => decision,
        Err(StoreFault::Exceeds(_)) => {
            let verdict =
                Verdict::Denied { retry_after_ns: None, enforced: ruled.is_enforced(&item.key) };
            return looked(inner, live, (item.rule, &item.key), verdict).await;
        }
        Err(fault) => return Err(of_store(&fault)),
    };
    let part = told(inner, live, item.rule, &item.key, &decision);
    if let (Decision::Granted(grant), Verb::Take, Some(permits)) =
        (decision, verb, NonZeroU64::new(item.permits))
    {
        let remote = Arc::clone(remote);
        taken.0.push(Granted { at: item.at, remote, key, permits, grant });
    }
    Ok(part)
}

/// Where a key stands, beside a verdict that says nothing of it.
pub(super) async fn looked<C: Clock + Clone + 'static>(
    inner: &Inner<C>,
    live: &Live<C>,
    (rule, key): (usize, &[u8]),
    verdict: Verdict,
) -> Result<Part, Fault> {
    let Some((ruled, remote)) = live.remote(rule) else { return Err(Fault::NotLoaded) };
    let look = remote.peek(&key::in_store(&ruled.rule.name, key), 1).await;
    let look = look.map_err(|fault| of_store(&fault))?;
    Ok(Part { verdict, ..told(inner, live, rule, key, &look) })
}

/// What a store said, in the engine's words.
pub(super) fn told<C: Clock + Clone + 'static>(
    inner: &Inner<C>,
    live: &Live<C>,
    index: usize,
    key: &[u8],
    decision: &Decision,
) -> Part {
    let Some(ruled) = live.ruled.get(index) else { return UNMATCHED };
    let rule = &ruled.rule;
    let is_enforced = rule.enforcement == Enforcement::All || ruled.is_enforced(key);
    let gone = (decision.by() == By::Fallback).then_some(rule.when_gone);
    let verdict = match (gone, decision) {
        (Some(WhenGone::Admit), _) => Verdict::Gone { admitted: true },
        (Some(WhenGone::Deny), _) => Verdict::Gone { admitted: !is_enforced },
        (Some(WhenGone::Local), Decision::Denied(_)) if ruled.is_in_flight() => {
            Verdict::Gone { admitted: !is_enforced }
        }
        (_, Decision::Granted(_)) => Verdict::Granted,
        (_, Decision::Denied(denial)) => {
            Verdict::Denied { retry_after_ns: denial.retry_after_ns, enforced: is_enforced }
        }
    };
    let mut part = ruled.part(verdict);
    part.remaining = decision.remaining();
    if let Limit::Policy(policy) = rule.limit {
        let now_ns = inner.clock.now_ns();
        part.reset_after_ns = reset_after_ns(&policy, part.limit, part.remaining, now_ns);
    }
    part
}

pub(super) fn of_store(fault: &StoreFault) -> Fault {
    Fault::Store(fault.to_string().into())
}
