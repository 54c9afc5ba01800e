//! Requests with items that a store decides: all are submitted at once, and refunded if one is
//! over.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rategate::Clock;
use rategate::distributed::{By, Deciding, Decision, Grant};
use rategate::store::{Asked, Fault as StoreFault, LeaseId};
use smallvec::SmallVec;

use super::answer::{Answer, Decided, Part, Verdict};
use super::counted;
use super::counters::Ruled;
use super::decide::{Seen, UNMATCHED};
use super::fault::Fault;
use super::key::{self, Key};
use super::live::Live;
use super::owned::OwnedItem;
use super::request::{Item, Request, Verb};
use super::stores::{Remote, reset_after_ns};
use super::{Engine, Inner};
use crate::rule::{CountedWindow, Enforcement, Limit, Place, WhenGone};

/// An item that a store decides.
struct Apart {
    /// The item's index in the request.
    at: usize,
    /// The index of the item's rule.
    rule: usize,
    key: Key,
    permits: u64,
    verb: Verb,
}

/// The items of a request by the party that decides them, each with its index.
#[derive(Default)]
struct Split {
    apart: Vec<Apart>,
    here: Vec<(usize, OwnedItem)>,
    /// Items that another rule of the request replaces.
    done: Vec<(usize, Part)>,
}

/// A request to a store for one item. Dropping it refunds what the store grants.
struct Question {
    remote: Arc<dyn Remote>,
    key: Arc<[u8]>,
    permits: Option<NonZeroU64>,
    state: State,
}

enum State {
    /// The decision is pending.
    Deciding(Deciding),
    /// A peek is pending. The verdict, if any, overrides the store's.
    Looking(Deciding, Option<Verdict>),
    Forgetting(Asked<u64>),
    GivingBack(Asked<u64>),
    Granted(Grant),
    Settled,
}

impl Question {
    /// Leaves granted permits with the caller.
    fn keep(mut self) {
        self.state = State::Settled;
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let grant = match std::mem::replace(&mut self.state, State::Settled) {
            State::Granted(grant) => grant,
            // The reply may have arrived already.
            State::Deciding(mut deciding) => {
                let heard = Pin::new(&mut deciding).poll(&mut Context::from_waker(Waker::noop()));
                let Poll::Ready(Ok(Decision::Granted(grant))) = heard else { return };
                grant
            }
            State::Looking(..) | State::Forgetting(_) | State::GivingBack(_) | State::Settled => {
                return;
            }
        };
        if let Some(permits) = self.permits {
            self.remote.refund(&self.key, permits, grant);
        }
    }
}

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Decides a request with items that are not in this process. Returns `None` if all items
    /// are.
    pub(super) fn decide_apart(
        &self,
        live: &Arc<Live<C>>,
        request: &Request<'_>,
    ) -> Option<Decided> {
        // Errors in an item are reported by the code that decides local items.
        let found: SmallVec<[Option<(usize, Key)>; 4]> =
            request.items.iter().map(|item| live.found(&item.target)).collect();
        if !found.iter().flatten().any(|(index, _)| live.remote(*index).is_some()) {
            return None;
        }
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
        let (inner, live) = (Arc::clone(&self.inner), Arc::clone(live));
        let (verb, counts_denied) = (request.verb, request.counts_denied);
        Some(now_or_later(Box::pin(decide(inner, live, verb, counts_denied, split))))
    }

    /// Returns the health of the stores, with the name of the rule that uses each.
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

    /// Submits a peek to the store for the first rule with counters there. Returns the store's
    /// health if it did not reply.
    pub(crate) async fn probe_store(&self) -> Option<rategate::distributed::Health> {
        let live = self.inner.live.load_full()?;
        let mut stored = live.ruled.iter().filter(|ruled| ruled.rule.place != Place::Here);
        let (name, remote) = stored.find_map(|it| Some((&it.rule.name, it.remote.as_ref()?)))?;
        let decision = remote.0.peek(&key::in_store(name, b""), 1).await.ok()?;
        (decision.by() == By::Fallback).then(|| remote.0.health())
    }
}

/// Polls the answer once, so that one that is available is returned at once.
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
    counts_denied: bool,
    split: Split,
) -> Result<Answer, Fault> {
    let Split { apart, here: others, done } = split;
    let items = apart.len().saturating_add(others.len()).saturating_add(done.len());
    let mut parts: Vec<Option<Part>> = vec![None; items];
    let mut put = |at: usize, part: Part| {
        if let Some(place) = parts.get_mut(at) {
            *place = Some(part);
        }
    };
    for (at, part) in done {
        put(at, part);
    }
    // All requests are submitted before the first reply is awaited, so together they take as long
    // as one.
    let questions: Result<Vec<Question>, Fault> =
        apart.iter().map(|item| question(&live, item)).collect();
    let mut questions = questions?;
    let mut seen = Seen::default();
    for (item, question) in apart.iter().zip(&mut questions) {
        let part = heard(&inner, &live, item, question).await?;
        let is_quota = part.rule.as_ref().is_some_and(|rule| rule.quota);
        seen.add(is_quota, part.verdict.is_over());
        put(item.at, part);
    }
    let mut allowed = seen.lets_pass();
    if !others.is_empty() {
        let answer = decide_here(&inner, &live, verb, counts_denied, &others, seen)?;
        allowed = answer.allowed;
        for ((at, _), part) in others.iter().zip(answer.parts) {
            put(*at, part);
        }
    }
    let took = allowed || counts_denied;
    for (item, question) in apart.iter().zip(questions) {
        let Some(Some(part)) = parts.get_mut(item.at) else { continue };
        let is_counted =
            live.ruled.get(item.rule).is_some_and(|it| matches!(it.rule.limit, Limit::Counted(_)));
        if took || is_counted {
            question.keep();
        } else if let State::Granted(_) = question.state {
            // The permits count as never taken.
            let back = part.remaining.map(|left| left.saturating_add(item.permits));
            part.remaining = back.map(|left| left.min(part.limit));
        }
        let watch = live.ruled.get(item.rule).and_then(|ruled| ruled.watch.as_ref());
        if let Some(watch) = watch.filter(|_| item.verb != Verb::Peek)
            && (took || is_counted || part.verdict.is_refusal())
        {
            watch.decided(inner.clock.now_ns(), &item.key, item.permits, part);
        }
    }
    Ok(Answer { allowed, parts: parts.into_iter().flatten().collect() })
}

fn decide_here<C: Clock + Clone + 'static>(
    inner: &Inner<C>,
    live: &Live<C>,
    verb: Verb,
    counts_denied: bool,
    others: &[(usize, OwnedItem)],
    elsewhere: Seen,
) -> Result<Answer, Fault> {
    let borrowed: Vec<_> = others.iter().map(|(_, item)| item.borrowed()).collect();
    let items: Vec<Item<'_>> =
        others.iter().zip(&borrowed).map(|((_, item), lists)| item.item(lists)).collect();
    inner.decide(Some(live), &Request { verb, items: &items, counts_denied }, elsewhere)
}

/// Submits the request for an item to its store.
fn question<C: Clock + Clone + 'static>(live: &Live<C>, item: &Apart) -> Result<Question, Fault> {
    let Some((ruled, remote)) = live.remote(item.rule) else { return Err(Fault::NotLoaded) };
    let key = key::in_store(&ruled.rule.name, &item.key);
    let never = Verdict::Denied { retry_after_ns: None, enforced: ruled.is_enforced(&item.key) };
    let is_counted = matches!(ruled.rule.limit, Limit::Counted(_));
    let state = match item.verb {
        Verb::Take if is_counted => {
            State::Deciding(remote.take(&key, CountedWindow::counted_in_store(item.permits)))
        }
        Verb::Peek if is_counted => State::Looking(remote.peek(&key, 1), None),
        Verb::Take | Verb::Peek if item.permits > ruled.counters.in_force().capacity => {
            State::Looking(remote.peek(&key, 1), Some(never))
        }
        // Permits in flight without a lease name of the caller's own end by themselves.
        Verb::Take if ruled.is_in_flight() => {
            State::Deciding(remote.hold(&key, item.permits, LeaseId::random()))
        }
        Verb::Take => State::Deciding(remote.take(&key, item.permits)),
        Verb::Peek => State::Looking(remote.peek(&key, item.permits), None),
        Verb::Refund => match NonZeroU64::new(item.permits).filter(|_| !ruled.is_in_flight()) {
            Some(permits) => State::GivingBack(remote.give_back(&key, permits)),
            None => State::Looking(remote.peek(&key, 1), Some(Verdict::Refunded(0))),
        },
        Verb::Reset => State::Forgetting(remote.reset(&key)),
    };
    // Permits of a counted window are never refunded.
    let permits = NonZeroU64::new(item.permits).filter(|_| !is_counted);
    Ok(Question { remote: Arc::clone(remote), key, permits, state })
}

/// Waits for the store's reply about an item.
async fn heard<C: Clock + Clone + 'static>(
    inner: &Inner<C>,
    live: &Live<C>,
    item: &Apart,
    question: &mut Question,
) -> Result<Part, Fault> {
    let Some(ruled) = live.ruled.get(item.rule) else { return Err(Fault::NotLoaded) };
    let (decision, verdict) = match std::mem::replace(&mut question.state, State::Settled) {
        State::Looking(deciding, verdict) => (deciding.await, verdict),
        State::Forgetting(asked) => {
            asked.await.map_err(|fault| of_store(&fault))?;
            let part = ruled.part(Verdict::Reset);
            return Ok(Part { remaining: Some(part.limit), ..part });
        }
        State::GivingBack(asked) => {
            let back = match asked.await {
                Ok(back) => back,
                // The number refunded is unknown.
                Err(StoreFault::Gone(_)) => 0,
                Err(fault) => return Err(of_store(&fault)),
            };
            return looked(inner, live, (item.rule, &item.key), Verdict::Refunded(back)).await;
        }
        other => {
            // The future stays in the struct, so that a grant is refunded if the caller stops
            // waiting.
            question.state = other;
            let State::Deciding(deciding) = &mut question.state else {
                return Err(Fault::NotLoaded);
            };
            let decision = deciding.await;
            question.state = match &decision {
                Ok(Decision::Granted(grant)) => State::Granted(grant.clone()),
                _ => State::Settled,
            };
            (decision, None)
        }
    };
    let decision = decision.map_err(|fault| of_store(&fault))?;
    let part = told(inner, live, item.rule, &item.key, &decision);
    let asked = (item.verb, item.permits);
    let part = recounted(ruled, &item.key, part, asked, inner.clock.now_ns());
    Ok(Part { verdict: verdict.unwrap_or(part.verdict), ..part })
}

/// Returns the status of a key, with a verdict that was determined elsewhere.
pub(super) async fn looked<C: Clock + Clone + 'static>(
    inner: &Inner<C>,
    live: &Live<C>,
    (rule, key): (usize, &[u8]),
    verdict: Verdict,
) -> Result<Part, Fault> {
    let Some((ruled, remote)) = live.remote(rule) else { return Err(Fault::NotLoaded) };
    let look = remote.peek(&key::in_store(&ruled.rule.name, key), 1).await;
    let look = look.map_err(|fault| of_store(&fault))?;
    let part = told(inner, live, rule, key, &look);
    let part = recounted(ruled, key, part, (Verb::Peek, 0), inner.clock.now_ns());
    Ok(Part { verdict, ..part })
}

/// Converts the store's count of a window that counts every hit; other parts are returned
/// unchanged.
fn recounted<C: Clock + Clone>(
    ruled: &Ruled<C>,
    key: &[u8],
    part: Part,
    (verb, permits): (Verb, u64),
    now_ns: u64,
) -> Part {
    let Limit::Counted(window) = ruled.rule.limit else { return part };
    let Some(left) = part.remaining else { return part };
    let used = window.used_in_store(left);
    let count = if verb == Verb::Peek { used.saturating_add(permits) } else { used };
    let mut verdict = counted::verdict(window, count, permits, now_ns);
    if let Verdict::Denied { enforced, .. } = &mut verdict {
        *enforced = ruled.is_enforced(key);
    }
    let counted = counted::part(window, ruled.rule.shown, (verdict, used), now_ns);
    Part { rule: part.rule, ..counted }
}

/// Converts a store's decision into an item's part of the answer.
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
    let retry_after_ns = match decision {
        Decision::Granted(_) => None,
        Decision::Denied(denial) => denial.retry_after_ns,
    };
    let verdict = match (gone, decision) {
        (Some(WhenGone::Admit), _) => Verdict::Gone { admitted: true, retry_after_ns: None },
        (Some(WhenGone::Deny), _) => Verdict::Gone { admitted: !is_enforced, retry_after_ns },
        (Some(WhenGone::Local), Decision::Denied(_)) if ruled.is_in_flight() => {
            Verdict::Gone { admitted: !is_enforced, retry_after_ns }
        }
        (_, Decision::Granted(_)) => Verdict::Granted,
        (_, Decision::Denied(_)) => Verdict::Denied { retry_after_ns, enforced: is_enforced },
    };
    let mut part = ruled.part(verdict);
    // The remainder of this server's lease is not the remainder of the limit.
    part.remaining = decision.remaining().filter(|_| decision.by() != By::Lease);
    if let Limit::Policy(policy) = rule.limit {
        let now_ns = inner.clock.now_ns();
        part.reset_after_ns = reset_after_ns(&policy, part.limit, part.remaining, now_ns);
    }
    part
}

pub(super) fn of_store(fault: &StoreFault) -> Fault {
    Fault::Store(fault.to_string().into())
}
