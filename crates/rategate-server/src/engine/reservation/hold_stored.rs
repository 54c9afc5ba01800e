//! Holds items in stores: as many permits as there are, where an item says so.
//!
//! A store is asked for the maximum. Its denial says what remains, which is asked for next under
//! the same id: a refusal leaves the id unused. What an item holds is one number in all of its
//! rules, so what holds more is withdrawn. A reservation that is known of the same id, of a number
//! in the range, is the same one.

use std::time::Duration;

use rategate::Clock;
use rategate::store::{ReservationId, StoreError};

use super::NOT_HELD;
use super::as_many::MAX_TRIES;
use super::local_part::Known;
use super::requests::{Estimate, Estimated, in_store, spared};
use super::split::{Split, StoredItem};
use crate::engine::Inner;
use crate::engine::answer::Verdict;
use crate::engine::error::EngineError;
use crate::engine::remote::peeked;
use crate::engine::unique_id::UniqueId;

/// A rule of an item, while numbers are tried.
struct Attempt {
    permits: u64,
    /// `true` if the store knows a reservation of the id, of these permits.
    is_known: bool,
    estimate: Option<Estimate>,
}

impl Attempt {
    /// Returns the number that remains, if the store has denied this one.
    fn denied(&self) -> Option<u64> {
        let estimate = self.estimate.as_ref()?;
        let is_denied = matches!(estimate.result.verdict, Verdict::Denied { enforced: true, .. });
        is_denied.then_some(estimate.left)
    }

    /// Returns `true` if it is held since this operation.
    fn is_new(&self) -> bool {
        self.estimate.as_ref().is_some_and(|it| it.ends_in_ns.is_some() && !it.is_repeated)
    }
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
        let first = |item: &StoredItem| {
            let of_item = self.stored.iter().filter(|other| other.at == item.at);
            let number = of_item.map(|other| other.first).min().unwrap_or(u64::MAX);
            Attempt { permits: item.of(number), is_known: false, estimate: None }
        };
        let mut all: Vec<Attempt> = self.stored.iter().map(first).collect();
        // After the tries of the maximum, of what remained and of the minimum, one more finds what
        // is known of the id.
        for round in 0..=MAX_TRIES.saturating_add(2) {
            let failed = self.submit(inner, (id, ttl), &mut all).await.err();
            let again =
                if failed.is_none() { self.choose(&mut all, round >= MAX_TRIES) } else { vec![] };
            self.withdraw(id, &again).await;
            if let Some(error) = failed {
                self.withdraw(id, &new_of(&all)).await;
                return Err(error);
            }
            if all.iter().all(|attempt| attempt.estimate.is_some()) {
                return Ok(all.into_iter().filter_map(|attempt| attempt.estimate).collect());
            }
        }
        self.withdraw(id, &new_of(&all)).await;
        Err(EngineError::OtherItems)
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
                Ok(Estimated::Other(permits)) if !attempt.is_known && item.may_hold(permits) => {
                    (attempt.permits, attempt.is_known) = (permits, true);
                }
                Ok(Estimated::Other(_)) => failed = failed.or(Some(EngineError::OtherItems)),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Chooses the numbers that are tried next, if any. Returns the indices of what has to be
    /// withdrawn first.
    fn choose(&self, all: &mut [Attempt], is_last: bool) -> Vec<usize> {
        let mut withdrawn = Vec::new();
        for at in 0..self.items.len() {
            let of_item = || self.stored.iter().enumerate().filter(move |(_, item)| item.at == at);
            let known = of_item().find_map(|(index, item)| {
                let attempt = all.get(index)?;
                let is_repeated = attempt.estimate.as_ref().is_some_and(|it| it.is_repeated);
                let has_choice = item.least < item.most;
                (has_choice && (attempt.is_known || is_repeated)).then_some(attempt.permits)
            });
            let left = of_item().filter_map(|(index, item)| {
                let attempt = all.get(index).filter(|attempt| attempt.permits > item.least)?;
                let less = attempt.denied()?.min(attempt.permits.saturating_sub(1));
                Some(if is_last { item.least } else { less })
            });
            let Some(number) = known.or_else(|| left.min()) else { continue };
            for (index, item) in of_item() {
                let Some(attempt) = all.get_mut(index) else { continue };
                let permits = item.of(number);
                let is_settled = attempt.estimate.as_ref().is_some_and(|it| it.is_repeated);
                if attempt.permits == permits || attempt.is_known || is_settled {
                    continue;
                }
                if attempt.is_new() {
                    withdrawn.push(index);
                }
                (attempt.permits, attempt.estimate) = (permits, None);
            }
        }
        withdrawn
    }
}

/// Returns the indices of what is held since this operation.
fn new_of(all: &[Attempt]) -> Vec<usize> {
    (0..all.len()).filter(|&index| all.get(index).is_some_and(Attempt::is_new)).collect()
}
