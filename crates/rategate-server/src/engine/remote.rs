//! Requests with items that a store decides: all are submitted at once, and refunded if one is
//! over.

mod call;
mod reply;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rategate::Clock;
use rategate::distributed::DecidedBy;
use smallvec::SmallVec;

use self::call::{State, call};
use self::reply::reply;
pub(super) use self::reply::{of_store, peeked, result_of, set_reset};
use super::answer::{Answer, Decided, ItemResult, Later, Verdict};
use super::counters::ActiveRule;
use super::decide::Seen;
use super::error::EngineError;
use super::key;
use super::live::{Live, Located};
use super::request::{Item, OwnedItem, Request, Verb};
use super::{Engine, Inner};
use crate::rule::{CounterLocation, Limit, Over};

/// An item that a store decides.
struct RemoteItem {
    /// The item's index in the request.
    at: usize,
    counter: Located,
    permits: u64,
    verb: Verb,
    /// `true` if the item counts as a quota whatever its rule is.
    quota: bool,
    /// `true` if a denial of the item denies a caller, even if the item takes nothing.
    is_decision: bool,
}

impl RemoteItem {
    /// Returns `true` if the item is of the same key as an earlier one that does something else.
    fn follows(&self, before: &Self) -> bool {
        self.counter == before.counter && self.verb != before.verb
    }
}

/// The items of a request by the party that decides them, each with its index.
#[derive(Default)]
struct Split {
    remote_items: Vec<RemoteItem>,
    here: Vec<(usize, OwnedItem)>,
    /// Items that another rule of the request replaces.
    done: Vec<(usize, ItemResult)>,
    /// Those items.
    seen: Seen,
}

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Decides a request with items that are not in this process. Returns `None` if all items
    /// are.
    pub(super) fn decide_remote(
        &self,
        live: &Arc<Live<C>>,
        request: &Request<'_>,
    ) -> Option<Decided> {
        // Errors in an item are reported by the code that decides local items.
        let found: SmallVec<[Option<Located>; 4]> =
            request.items.iter().map(|item| live.found(&item.target)).collect();
        if !found.iter().flatten().any(|counter| live.remote(counter).is_some()) {
            return None;
        }
        let rule_of = |counter: &Located| live.ruled.get(counter.rule);
        let all = found.iter().flatten().filter_map(rule_of);
        let replaced: Vec<Arc<str>> =
            all.flat_map(|ruled| ruled.rule.replaces.iter().cloned()).collect();
        let mut split = Split::default();
        for ((at, item), found) in request.items.iter().enumerate().zip(found) {
            let ruled = found.as_ref().and_then(rule_of);
            // What has no limit has none that another could replace.
            let is_replaced = |ruled: &&ActiveRule<C>| {
                ruled.rule.limit != Limit::Unlimited && replaced.contains(&ruled.rule.name)
            };
            if let Some(ruled) = ruled.filter(is_replaced) {
                split.done.push((at, ruled.result(Verdict::Replaced)));
                split.seen.add(item.quota, false);
            } else if let (Some(counter), Some(ruled)) =
                (found, ruled.filter(|ruled| ruled.remote.is_some()))
            {
                let (verb, quota) = (item.verb(request.verb), item.quota);
                let permits = match verb {
                    Verb::Peek => ruled.rule.looked_for(item.permits),
                    _ => item.permits,
                };
                let is_decision = request.verb != Verb::Peek;
                let item = RemoteItem { at, counter, permits, verb, quota, is_decision };
                split.remote_items.push(item);
            } else {
                split.here.push((at, OwnedItem::of(item)));
            }
        }
        if split.remote_items.is_empty() {
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
                Some((Arc::clone(&ruled.rule.name), ruled.remote.as_ref()?.health()))
            })
            .collect()
    }

    /// Submits a peek to the store for the first rule with counters there. Returns the store's
    /// health if it did not reply.
    pub(crate) async fn probe_store(&self) -> Option<rategate::distributed::Health> {
        let live = self.inner.live.load_full()?;
        let mut stored =
            live.ruled.iter().filter(|ruled| ruled.rule.location != CounterLocation::Here);
        let (name, remote) = stored.find_map(|it| Some((&it.rule.name, it.remote.as_ref()?)))?;
        let decision = remote.peek(&key::in_store(name, b""), 1).await.ok()?;
        (decision.by() == DecidedBy::Fallback).then(|| remote.health())
    }
}

/// Polls the answer once, so that one that is available is returned at once.
pub(super) fn now_or_later<A>(mut answer: Later<A>) -> Decided<A> {
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Decided::Now(answer),
        Poll::Pending => Decided::Later(answer),
    }
}

async fn decide<C: Clock + Clone + 'static>(
    inner: Arc<Inner<C>>,
    live: Arc<Live<C>>,
    verb: Verb,
    counts_denied: bool,
    split: Split,
) -> Result<Answer, EngineError> {
    let Split { remote_items, here: others, done, mut seen } = split;
    let items = remote_items.len().saturating_add(others.len()).saturating_add(done.len());
    let mut results: Vec<Option<ItemResult>> = vec![None; items];
    let mut put = |at: usize, result: ItemResult| {
        if let Some(location) = results.get_mut(at) {
            *location = Some(result);
        }
    };
    for (at, result) in done {
        put(at, result);
    }
    // All requests are submitted before the first reply is awaited, so together they take as long
    // as one. But a store need not keep the order of looks and takes: where an item follows one of
    // the same key that does something else, it is submitted after that one's reply.
    let mut calls = Vec::with_capacity(remote_items.len());
    for (place, item) in remote_items.iter().enumerate() {
        let is_next = remote_items.iter().take(place).any(|before| item.follows(before));
        calls.push(if is_next { None } else { Some(call(&live, item)?) });
    }
    for (item, submitted) in remote_items.iter().zip(&mut calls) {
        if submitted.is_none() {
            *submitted = Some(call(&live, item)?);
        }
        let Some(submitted) = submitted else { continue };
        let result = reply(&inner, &live, item, submitted).await?;
        let is_quota = item.quota || result.rule.as_ref().is_some_and(|rule| rule.quota);
        seen.add(is_quota, result.verdict.is_over());
        put(item.at, result);
    }
    let mut allowed = seen.allows();
    if !others.is_empty() {
        let answer = decide_here(&inner, &live, verb, counts_denied, &others, seen)?;
        allowed = answer.allowed;
        for ((at, _), result) in others.iter().zip(answer.results) {
            put(*at, result);
        }
    }
    let took = allowed || counts_denied;
    for (item, call) in remote_items.iter().zip(calls.into_iter().flatten()) {
        let Some(Some(result)) = results.get_mut(item.at) else { continue };
        let counts_all = live.ruled.get(item.counter.rule).is_some_and(|ruled| {
            ruled.rule.over == Over::Charge || matches!(ruled.rule.limit, Limit::Counted(_))
        });
        if took || counts_all {
            call.commit();
        } else if let State::Granted(_) = call.state {
            // The permits count as never taken.
            let credited = result.remaining.map(|left| left.saturating_add(item.permits));
            result.remaining = credited.map(|left| left.min(result.limit));
        }
        if item.verb != Verb::Peek && (took || counts_all) {
            result.note_saturation(item.permits);
        }
        let watch = live.ruled.get(item.counter.rule).and_then(|ruled| ruled.watch.as_ref());
        let is_refusal = result.verdict.is_refusal();
        let (is_noted, permits) = match item.verb {
            Verb::Peek => (item.is_decision && is_refusal, 0),
            _ => (took || counts_all || is_refusal, item.permits),
        };
        if let Some(watch) = watch.filter(|_| is_noted) {
            watch.decided(inner.clock.now_ns(), &item.counter.key, permits, result);
        }
    }
    Ok(Answer { allowed, results: results.into_iter().flatten().collect() })
}

fn decide_here<C: Clock + Clone + 'static>(
    inner: &Inner<C>,
    live: &Live<C>,
    verb: Verb,
    counts_denied: bool,
    others: &[(usize, OwnedItem)],
    elsewhere: Seen,
) -> Result<Answer, EngineError> {
    let borrowed: Vec<_> = others.iter().map(|(_, item)| item.borrowed()).collect();
    let items: Vec<Item<'_>> =
        others.iter().zip(&borrowed).map(|((_, item), lists)| item.item(lists)).collect();
    inner.decide(Some(live), &Request { verb, items: &items, counts_denied }, elsewhere)
}
