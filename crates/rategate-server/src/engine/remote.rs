//! Requests with items that a store decides: all are submitted at once, and refunded if one is
//! over.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rategate::Clock;
use rategate::distributed::{DecidedBy, Decision, DecisionFuture, Grant};
use rategate::store::{ChargeReply, LeaseId, Pending, StoreError};
use smallvec::SmallVec;

use super::answer::{Answer, Decided, ItemResult, Later, Verdict};
use super::counted;
use super::counters::ActiveRule;
use super::decide::Seen;
use super::error::EngineError;
use super::key::{self, Key};
use super::live::Live;
use super::request::{Item, OwnedItem, Request, Verb};
use super::stores::{Remote, reset_after_ns};
use super::{Engine, Inner};
use crate::rule::{CountedWindow, CounterLocation, Enforcement, Limit, OnUnavailable, Over, Rule};
use crate::units::retry_ns;

/// An item that a store decides.
struct RemoteItem {
    /// The item's index in the request.
    at: usize,
    /// The index of the item's rule.
    rule: usize,
    key: Key,
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
        (self.rule, &self.key) == (before.rule, &before.key) && self.verb != before.verb
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

/// A request to a store for one item. Dropping it refunds what the store grants.
struct RemoteCall {
    remote: Arc<dyn Remote>,
    key: Arc<[u8]>,
    permits: Option<NonZeroU64>,
    state: State,
}

enum State {
    /// The decision is pending.
    DecisionFuture(DecisionFuture),
    /// A peek is pending. The verdict, if any, overrides the store's.
    Peeking(DecisionFuture, Option<Verdict>),
    Resetting(Pending<u64>),
    Crediting(Pending<u64>),
    Charging(Pending<ChargeReply>),
    Granted(Grant),
    Settled,
}

impl RemoteCall {
    /// Leaves granted permits with the caller.
    fn commit(mut self) {
        self.state = State::Settled;
    }
}

impl Drop for RemoteCall {
    fn drop(&mut self) {
        let grant = match std::mem::replace(&mut self.state, State::Settled) {
            State::Granted(grant) => grant,
            // The reply may have arrived already.
            State::DecisionFuture(mut deciding) => {
                let reply = Pin::new(&mut deciding).poll(&mut Context::from_waker(Waker::noop()));
                let Poll::Ready(Ok(Decision::Granted(grant))) = reply else { return };
                grant
            }
            State::Peeking(..)
            | State::Resetting(_)
            | State::Crediting(_)
            | State::Charging(_)
            | State::Settled => return,
        };
        if let Some(permits) = self.permits {
            self.remote.refund(&self.key, permits, grant);
        }
    }
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
            // What has no limit has none that another could replace.
            let is_replaced = |ruled: &&ActiveRule<C>| {
                ruled.rule.limit != Limit::Unlimited && replaced.contains(&ruled.rule.name)
            };
            if let Some(ruled) = ruled.filter(is_replaced) {
                split.done.push((at, ruled.result(Verdict::Replaced)));
                split.seen.add(item.quota, false);
            } else if let (Some((rule, key)), Some(ruled)) =
                (found, ruled.filter(|ruled| ruled.remote.is_some()))
            {
                let (verb, quota) = (item.verb(request.verb), item.quota);
                let permits = match verb {
                    Verb::Peek => ruled.rule.looked_for(item.permits),
                    _ => item.permits,
                };
                let is_decision = item.is_decision(request.verb);
                let item = RemoteItem { at, rule, key, permits, verb, quota, is_decision };
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
                Some((Arc::clone(&ruled.rule.name), ruled.remote.as_ref()?.0.health()))
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
        let decision = remote.0.peek(&key::in_store(name, b""), 1).await.ok()?;
        (decision.by() == DecidedBy::Fallback).then(|| remote.0.health())
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
        let counts_all = live.ruled.get(item.rule).is_some_and(|ruled| {
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
            result.warn(item.permits);
            result.note_saturation(item.permits);
        }
        let watch = live.ruled.get(item.rule).and_then(|ruled| ruled.watch.as_ref());
        let is_refusal = result.verdict.is_refusal();
        let (is_noted, permits) = match item.verb {
            Verb::Peek => (item.is_decision && is_refusal, 0),
            _ => (took || counts_all || is_refusal, item.permits),
        };
        if let Some(watch) = watch.filter(|_| is_noted) {
            watch.decided(inner.clock.now_ns(), &item.key, permits, result);
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

/// Submits the request for an item to its store.
fn call<C: Clock + Clone + 'static>(
    live: &Live<C>,
    item: &RemoteItem,
) -> Result<RemoteCall, EngineError> {
    let Some((ruled, remote)) = live.remote(item.rule) else { return Err(EngineError::NotLoaded) };
    let key = key::in_store(&ruled.rule.name, &item.key);
    let never = Verdict::Denied { retry_after_ns: None, enforced: ruled.is_enforced(&item.key) };
    let is_counted = matches!(ruled.rule.limit, Limit::Counted(_));
    let is_exact = ruled.rule.location == CounterLocation::StoreExact;
    let state = match item.verb {
        Verb::Take | Verb::Charge if is_counted => {
            State::DecisionFuture(remote.take(&key, CountedWindow::counted_in_store(item.permits)))
        }
        Verb::Peek if is_counted => {
            State::Peeking(remote.peek(&key, peeked_for(ruled, item)), None)
        }
        Verb::Charge if ruled.is_in_flight() => return Err(EngineError::NOT_CHARGED_IN_FLIGHT),
        Verb::Charge if !is_exact => {
            return Err(EngineError::NOT_CHARGED_LEASED);
        }
        Verb::Charge => match NonZeroU64::new(item.permits) {
            Some(permits) => State::Charging(remote.charge(&key, permits)),
            None => State::Peeking(remote.take_or_charge(&key, 0), Some(Verdict::Charged(0))),
        },
        // A request for no permits is denied while there is a debt, which the store knows.
        Verb::Peek if item.permits == 0 && is_exact && !ruled.is_in_flight() => {
            State::Peeking(remote.take_or_charge(&key, 0), None)
        }
        Verb::Take if ruled.rule.over == Over::Charge => {
            State::DecisionFuture(remote.take_or_charge(&key, item.permits))
        }
        Verb::Take | Verb::Peek if item.permits > ruled.counters.in_force().capacity => {
            State::Peeking(remote.peek(&key, 1), Some(never))
        }
        // A limit of permits in flight has no debt that could deny a request for none.
        Verb::Take | Verb::Peek if item.permits == 0 && ruled.is_in_flight() => {
            State::Peeking(remote.peek(&key, 1), Some(Verdict::Granted))
        }
        // Permits in flight without a lease name of the caller's own end by themselves.
        Verb::Take if ruled.is_in_flight() => {
            State::DecisionFuture(remote.hold(&key, item.permits, LeaseId::random()))
        }
        Verb::Take => State::DecisionFuture(remote.take(&key, item.permits)),
        Verb::Peek => State::Peeking(remote.peek(&key, item.permits), None),
        Verb::Refund => match NonZeroU64::new(item.permits).filter(|_| !ruled.is_in_flight()) {
            Some(permits) => State::Crediting(remote.credit(&key, permits)),
            None => State::Peeking(remote.peek(&key, 1), Some(Verdict::Refunded(0))),
        },
        Verb::Reset => State::Resetting(remote.reset(&key)),
    };
    // Permits of a counted window are never refunded.
    let permits = NonZeroU64::new(item.permits).filter(|_| !is_counted);
    Ok(RemoteCall { remote: Arc::clone(remote), key, permits, state })
}

/// Returns the permits for which a store is asked about a window that only counts: those that it
/// would grant beyond the limit, too.
fn peeked_for<C: Clock + Clone>(ruled: &ActiveRule<C>, item: &RemoteItem) -> u64 {
    let Limit::Counted(window) = ruled.rule.limit else { return item.permits };
    let fits_ever = item.permits > 0 && item.permits <= window.permits();
    if fits_ever { item.permits.saturating_add(window.spared_in_store()) } else { 1 }
}

/// Waits for the store's reply about an item.
async fn reply<C: Clock + Clone + 'static>(
    inner: &Inner<C>,
    live: &Live<C>,
    item: &RemoteItem,
    call: &mut RemoteCall,
) -> Result<ItemResult, EngineError> {
    let Some(ruled) = live.ruled.get(item.rule) else { return Err(EngineError::NotLoaded) };
    let (decision, verdict) = match std::mem::replace(&mut call.state, State::Settled) {
        State::Peeking(deciding, verdict) => (deciding.await, verdict),
        State::Resetting(request) => {
            request.await.map_err(|error| of_store(&error))?;
            let result = ruled.result(Verdict::Reset);
            return Ok(ItemResult { remaining: Some(result.limit), ..result });
        }
        State::Crediting(request) => {
            let credited = match request.await {
                Ok(credited) => credited,
                // The number refunded is unknown.
                Err(StoreError::Unavailable(_)) => 0,
                Err(error) => return Err(of_store(&error)),
            };
            return peeked(inner, live, (item.rule, &item.key), Verdict::Refunded(credited)).await;
        }
        State::Charging(request) => return charged(inner, ruled, request).await,
        other => {
            // The future stays in the struct, so that a grant is refunded if the caller stops
            // waiting.
            call.state = other;
            let State::DecisionFuture(deciding) = &mut call.state else {
                return Err(EngineError::NotLoaded);
            };
            let decision = deciding.await;
            call.state = match &decision {
                Ok(Decision::Granted(grant)) => State::Granted(grant.clone()),
                _ => State::Settled,
            };
            (decision, None)
        }
    };
    let decision = decision.map_err(|error| of_store(&error))?;
    let result = result_of(inner, live, item.rule, &item.key, &decision);
    let request = (item.verb, item.permits);
    let result = recounted(ruled, &item.key, result, request, inner.clock.now_ns());
    Ok(ItemResult { verdict: verdict.unwrap_or(result.verdict), ..result })
}

/// Waits for the outcome of a charge. Without a reply it is unknown, and no status is.
async fn charged<C: Clock + Clone + 'static>(
    inner: &Inner<C>,
    ruled: &ActiveRule<C>,
    request: Pending<ChargeReply>,
) -> Result<ItemResult, EngineError> {
    let unknown = Verdict::Unavailable { admitted: true, retry_after_ns: None };
    let reply = match request.await {
        Ok(reply) => reply,
        Err(StoreError::Unavailable(_)) => {
            return Ok(ItemResult { remaining: None, ..ruled.result(unknown) });
        }
        Err(error) => return Err(of_store(&error)),
    };
    let mut result = ruled.result(Verdict::Charged(reply.charged.booked));
    (result.remaining, result.debt) = (Some(reply.remaining), reply.charged.debt);
    set_reset(&ruled.rule, &mut result, inner.clock.now_ns());
    Ok(result)
}

/// Returns the status of a key, with a verdict that was determined elsewhere.
pub(super) async fn peeked<C: Clock + Clone + 'static>(
    inner: &Inner<C>,
    live: &Live<C>,
    (rule, key): (usize, &[u8]),
    verdict: Verdict,
) -> Result<ItemResult, EngineError> {
    let Some((ruled, remote)) = live.remote(rule) else { return Err(EngineError::NotLoaded) };
    let status = remote.peek(&key::in_store(&ruled.rule.name, key), 1).await;
    let status = status.map_err(|error| of_store(&error))?;
    let result = result_of(inner, live, rule, key, &status);
    let result = recounted(ruled, key, result, (Verb::Peek, 0), inner.clock.now_ns());
    Ok(ItemResult { verdict, ..result })
}

/// Converts the store's count of a window that counts every hit; other parts are returned
/// unchanged.
fn recounted<C: Clock + Clone>(
    ruled: &ActiveRule<C>,
    key: &[u8],
    result: ItemResult,
    (verb, permits): (Verb, u64),
    now_ns: u64,
) -> ItemResult {
    let Limit::Counted(window) = ruled.rule.limit else { return result };
    let Some(left) = result.remaining else { return result };
    let used = window.used_in_store(left);
    let count = if verb == Verb::Peek { used.saturating_add(permits) } else { used };
    let mut verdict = match verb {
        Verb::Charge => Verdict::Charged(permits),
        _ => counted::verdict(window, count, permits, now_ns),
    };
    if let Verdict::Denied { enforced, retry_after_ns } = &mut verdict {
        *enforced = ruled.is_enforced(key);
        // The end of a hold may come before that of the window.
        let of_store = result.verdict.retry_after_ns().filter(|_| verb == Verb::Peek);
        *retry_after_ns = retry_after_ns.map(|until| of_store.map_or(until, |ns| ns.min(until)));
    }
    let counted = counted::result(window, ruled.rule.display_limit, (verdict, used), now_ns);
    ItemResult { rule: result.rule, ..counted }
}

/// Converts a store's decision into an item's part of the answer.
pub(super) fn result_of<C: Clock + Clone + 'static>(
    inner: &Inner<C>,
    live: &Live<C>,
    index: usize,
    key: &[u8],
    decision: &Decision,
) -> ItemResult {
    let Some(ruled) = live.ruled.get(index) else { return ItemResult::UNMATCHED };
    let rule = &ruled.rule;
    let is_enforced = rule.enforcement == Enforcement::All || ruled.is_enforced(key);
    let fallback = (decision.by() == DecidedBy::Fallback).then_some(rule.on_unavailable);
    let retry_after_ns = match decision {
        Decision::Granted(_) => None,
        Decision::Denied(denial) => denial.retry_after.and_then(retry_ns),
    };
    let verdict = match (fallback, decision) {
        (Some(OnUnavailable::Admit), _) => {
            Verdict::Unavailable { admitted: true, retry_after_ns: None }
        }
        (Some(OnUnavailable::Deny), _) => {
            Verdict::Unavailable { admitted: !is_enforced, retry_after_ns }
        }
        (Some(OnUnavailable::Local), Decision::Denied(_)) if ruled.is_in_flight() => {
            Verdict::Unavailable { admitted: !is_enforced, retry_after_ns }
        }
        (_, Decision::Granted(_)) => Verdict::Granted,
        (_, Decision::Denied(_)) => Verdict::Denied { retry_after_ns, enforced: is_enforced },
    };
    let mut result = ruled.result(verdict);
    // The remainder of this server's lease is not the remainder of the limit.
    result.remaining = decision.remaining().filter(|_| decision.by() != DecidedBy::Lease);
    if let Decision::Denied(denial) = decision {
        result.debt = denial.debt;
    }
    result.store_ns = decision.store_ns();
    let now_ns = result.store_ns.unwrap_or_else(|| inner.clock.now_ns());
    set_reset(rule, &mut result, now_ns);
    result
}

/// Sets the time until nothing of the limit is in use, from an instant on the clock that decides.
pub(super) fn set_reset(rule: &Rule, result: &mut ItemResult, now_ns: u64) {
    if let Limit::Policy(policy) = rule.limit {
        let (left, is_carried) = ((result.remaining, result.debt), rule.debt.is_carried());
        result.reset_after_ns = reset_after_ns(&policy, result.limit, left, is_carried, now_ns);
    }
}

pub(super) fn of_store(error: &StoreError) -> EngineError {
    match error {
        StoreError::OtherRequest => EngineError::OtherItems,
        error => EngineError::Store(error.to_string().into()),
    }
}
