//! Holds items in stores.
//!
//! A reservation that is known of the same id, of another number of permits that a share of the
//! limit may have been cut to, is the same one.

use std::time::Duration;

use rategate::Clock;
use rategate::store::{ReservationId, StoreError};

use super::NOT_HELD;
use super::local_part::Known;
use super::requests::{Estimate, Estimated, in_store, spared};
use super::split::{Split, StoredItem};
use crate::engine::Inner;
use crate::engine::error::EngineError;
use crate::engine::remote::peeked;
use crate::engine::unique_id::UniqueId;

/// A rule of an item, and the store's decision on it.
struct Attempt {
    permits: u64,
    estimate: Option<Estimate>,
}

impl<C: Clock + Clone + 'static> Split<C> {
    /// Holds the items in the store.
    ///
    /// # Errors
    ///
    /// [`EngineError::OtherItems`], and errors of the store. What has been held is withdrawn.
    pub(super) async fn hold(
        &self,
        inner: &Inner<C>,
        id: UniqueId,
        ttl: Duration,
    ) -> Result<Vec<Estimate>, EngineError> {
        let first = |item: &StoredItem| Attempt { permits: item.permits, estimate: None };
        let mut all: Vec<Attempt> = self.stored.iter().map(first).collect();
        let mut held = self.submit(inner, (id, ttl), &mut all).await;
        if held.is_ok() && all.iter().any(|attempt| attempt.estimate.is_none()) {
            // The numbers are now those that the store knows.
            held = self.submit(inner, (id, ttl), &mut all).await;
        }
        if let Err(error) = held {
            let is_new = |it: &Estimate| it.ends_in_ns.is_some() && !it.is_repeated;
            let new = all.iter().enumerate();
            let new = new.filter(|(_, attempt)| attempt.estimate.as_ref().is_some_and(is_new));
            self.withdraw(id, &new.map(|(index, _)| index).collect::<Vec<_>>()).await;
            return Err(error);
        }
        Ok(all.into_iter().filter_map(|attempt| attempt.estimate).collect())
    }

    /// Gives items of a reservation that is known here the verdicts of before: those that are not
    /// enforced and were not held at first, which are withdrawn, and permits in flight that have
    /// ended.
    pub(super) async fn keep_decided(
        &self,
        id: UniqueId,
        known: &Known,
        all: &mut [Estimate],
        is_take: bool,
    ) {
        let ends = !is_take && known.ends_after_ns.is_none();
        let is_other = |(item, estimate): (&StoredItem, &Estimate)| {
            let is_new = !estimate.is_repeated && !estimate.result.verdict.is_unavailable();
            // After a restart their store does not remember what has ended, and holds it anew.
            let is_ended = estimate.is_over || is_new;
            let has_ended = is_ended && ends && self.is_in_flight_here(item);
            has_ended || is_new && !self.is_enforced(item)
        };
        let decided: Vec<usize> = (0..all.len())
            .filter(|&nth| self.stored.get(nth).zip(all.get(nth)).is_some_and(is_other))
            .collect();
        let is_held = |nth: &usize| all.get(*nth).is_some_and(|it| it.ends_in_ns.is_some());
        let held: Vec<usize> = decided.iter().copied().filter(is_held).collect();
        self.withdraw(id, &held).await;
        for nth in decided {
            let (Some(item), Some(estimate)) = (self.stored.get(nth), all.get_mut(nth)) else {
                continue;
            };
            let (verdicts, _) = &known.verdicts;
            let end = verdicts.get(item.at).filter(|_| ends);
            estimate.keep(end.map_or(NOT_HELD, |end| end.of_nothing()));
        }
    }

    /// Asks the store for what has no decision yet.
    async fn submit(
        &self,
        inner: &Inner<C>,
        (id, ttl): (UniqueId, Duration),
        all: &mut [Attempt],
    ) -> Result<(), EngineError> {
        // All requests are submitted before the first reply is awaited, so together they take as
        // long as one.
        let mut replies = Vec::with_capacity(all.len());
        for (item, attempt) in self.stored.iter().zip(all.iter()) {
            let (ruled, remote) = self.remote(item)?;
            let key = in_store(ruled, item);
            let is_open = attempt.estimate.is_none();
            let permits = (attempt.permits, spared(ruled));
            let submit = || remote.reserve(&key, permits, ReservationId(id.0), ttl);
            replies.push(is_open.then(submit));
        }
        let mut failed = None;
        for ((item, attempt), reply) in self.stored.iter().zip(all).zip(replies) {
            let Some(reply) = reply else { continue };
            let (ruled, _) = self.remote(item)?;
            let reply = reply.await;
            let is_never = matches!(reply, Err(StoreError::Exceeds(_)));
            match Estimate::of_reply(inner, ruled, item, attempt.permits, reply) {
                Ok(Estimated::Decided(mut estimate)) => {
                    if is_never {
                        let verdict = estimate.result.verdict;
                        let status = peeked(inner, &self.live, &item.counter, verdict);
                        // What other replies hold has to be known to be withdrawn.
                        match status.await {
                            Ok(result) => estimate.result = item.with_cost(result),
                            Err(error) => failed = failed.or(Some(error)),
                        }
                    }
                    attempt.estimate = Some(estimate);
                }
                Ok(Estimated::Other(permits))
                    if attempt.permits == item.permits && item.may_hold(permits) =>
                {
                    attempt.permits = permits;
                }
                Ok(Estimated::Other(_)) => failed = failed.or(Some(EngineError::OtherItems)),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }
}
