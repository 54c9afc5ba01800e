//! A store's reply as the result of an item.

use rategate::Clock;
use rategate::distributed::{DecidedBy, Decision};
use rategate::store::{ChargeReply, Pending, StoreError};

use super::RemoteItem;
use super::call::{RemoteCall, State};
use crate::engine::Inner;
use crate::engine::answer::{ItemResult, Verdict};
use crate::engine::counted;
use crate::engine::counters::ActiveRule;
use crate::engine::error::EngineError;
use crate::engine::key;
use crate::engine::live::{Live, Located};
use crate::engine::request::Verb;
use crate::engine::stores::reset_after_ns;
use crate::rule::{Limit, OnUnavailable, Rule};
use crate::units::retry_ns;

/// Waits for the store's reply about an item.
pub(super) async fn reply<C: Clock + Clone + 'static>(
    inner: &Inner<C>,
    live: &Live<C>,
    item: &RemoteItem,
    call: &mut RemoteCall,
) -> Result<ItemResult, EngineError> {
    let Some(ruled) = live.ruled.get(item.counter.rule) else { return Err(EngineError::NotLoaded) };
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
            return peeked(inner, live, &item.counter, Verdict::Refunded(credited)).await;
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
    let result = result_of(inner, live, &item.counter, &decision);
    let request = (item.verb, item.permits);
    let result = recounted(ruled, result, request, inner.clock.now_ns());
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
pub(in crate::engine) async fn peeked<C: Clock + Clone + 'static>(
    inner: &Inner<C>,
    live: &Live<C>,
    counter: &Located,
    verdict: Verdict,
) -> Result<ItemResult, EngineError> {
    let Some((ruled, remote)) = live.remote(counter) else { return Err(EngineError::NotLoaded) };
    let status = remote.peek(&key::in_store(&ruled.rule.name, &counter.key), 1).await;
    let status = status.map_err(|error| of_store(&error))?;
    let result = result_of(inner, live, counter, &status);
    let result = recounted(ruled, result, (Verb::Peek, 0), inner.clock.now_ns());
    Ok(ItemResult { verdict, ..result })
}

/// Converts the store's count of a window that counts every hit; other parts are returned
/// unchanged.
fn recounted<C: Clock + Clone>(
    ruled: &ActiveRule<C>,
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
        *enforced = ruled.is_enforced();
        // The end of a hold may come before that of the window.
        let of_store = result.verdict.retry_after_ns().filter(|_| verb == Verb::Peek);
        *retry_after_ns = retry_after_ns.map(|until| of_store.map_or(until, |ns| ns.min(until)));
    }
    let counted = counted::result(window, ruled.rule.display_limit, (verdict, used), now_ns);
    ItemResult { rule: result.rule, ..counted }
}

/// Converts a store's decision into an item's part of the answer.
pub(in crate::engine) fn result_of<C: Clock + Clone + 'static>(
    inner: &Inner<C>,
    live: &Live<C>,
    counter: &Located,
    decision: &Decision,
) -> ItemResult {
    let Some(ruled) = live.ruled.get(counter.rule) else { return ItemResult::UNMATCHED };
    let rule = &ruled.rule;
    let is_enforced = ruled.is_enforced();
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
pub(in crate::engine) fn set_reset(rule: &Rule, result: &mut ItemResult, now_ns: u64) {
    if let Limit::Policy(policy) = rule.limit {
        let (left, is_carried) = ((result.remaining, result.debt), rule.debt.is_carried());
        result.reset_after_ns = reset_after_ns(&policy, result.limit, left, is_carried, now_ns);
    }
}

/// Converts an error of a store.
pub(in crate::engine) fn of_store(error: &StoreError) -> EngineError {
    match error {
        StoreError::OtherRequest => EngineError::OtherItems,
        error => EngineError::Store(error.to_string().into()),
    }
}
