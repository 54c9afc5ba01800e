//! A request to a store for one item.

use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rategate::Clock;
use rategate::distributed::{Decision, DecisionFuture, Grant};
use rategate::store::{ChargeReply, LeaseId, Pending};

use super::RemoteItem;
use crate::engine::answer::Verdict;
use crate::engine::counters::ActiveRule;
use crate::engine::error::EngineError;
use crate::engine::key;
use crate::engine::live::Live;
use crate::engine::request::Verb;
use crate::engine::stores::Remote;
use crate::rule::{CountedWindow, CounterLocation, Limit, Over};

/// A request to a store for one item. Dropping it refunds what the store grants.
pub(super) struct RemoteCall {
    remote: Arc<dyn Remote>,
    key: Arc<[u8]>,
    permits: Option<NonZeroU64>,
    pub(super) state: State,
}

/// The progress of a request to a store.
pub(super) enum State {
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
    pub(super) fn commit(mut self) {
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

/// Submits the request for an item to its store.
pub(super) fn call<C: Clock + Clone + 'static>(
    live: &Live<C>,
    item: &RemoteItem,
) -> Result<RemoteCall, EngineError> {
    let Some((ruled, remote)) = live.remote(&item.counter) else {
        return Err(EngineError::NotLoaded);
    };
    let key = key::in_store(&ruled.rule.name, &item.counter.key);
    let never = Verdict::Denied { retry_after_ns: None, enforced: ruled.is_enforced() };
    let is_counted = matches!(ruled.rule.limit, Limit::Counted(_));
    let is_exact = ruled.rule.location == CounterLocation::StoreExact;
    let state = match item.verb {
        Verb::Take | Verb::Charge if is_counted => {
            State::DecisionFuture(remote.take(&key, CountedWindow::counted_in_store(item.permits)))
        }
        Verb::Peek if is_counted => {
            State::Peeking(remote.peek(&key, peeked_for(ruled, item)), None)
        }
        Verb::Charge if ruled.is_in_flight() || !is_exact => {
            return Err(EngineError::not_charged(item.at, &ruled.rule));
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
        Verb::Take | Verb::Peek if item.permits > ruled.capacity() => {
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
