//! The requests of reservations to a store, and the results of its replies.

use std::num::NonZeroU64;
use std::sync::Arc;

use rategate::Clock;
use rategate::charge::Settled;
use rategate::store::{
    EndOutcome, EndReply, ReservationEnd, ReservationId, ReserveReply, ReserveVerdict, StoreError,
    Unavailable,
};

use super::End;
use super::split::{Split, StoredItem};
use crate::engine::answer::{ItemResult, Verdict};
use crate::engine::counters::ActiveRule;
use crate::engine::error::EngineError;
use crate::engine::hold_change::HoldChange;
use crate::engine::remote::{of_store, set_reset};
use crate::engine::stores::Remote;
use crate::engine::unique_id::UniqueId;
use crate::engine::{Inner, counted, key};
use crate::rule::{CounterLocation, Limit, OnUnavailable};

/// The time after which a caller sends the same again if a store did not reply.
const RETRY_AFTER_NS: Option<NonZeroU64> = NonZeroU64::new(1_000_000_000);

/// The decision of a store on an item of a new reservation.
pub(super) struct Estimate {
    pub(super) result: ItemResult,
    /// The time until it ends by itself, if it is held.
    pub(super) ends_in_ns: Option<NonZeroU64>,
    /// The number of permits that was asked for.
    pub(super) permits: u64,
    /// `true` if the id was known to the store.
    pub(super) is_repeated: bool,
    /// `true` if the reservation had ended before.
    pub(super) is_over: bool,
}

/// The end of an item in a store.
pub(super) struct Ended {
    pub(super) result: ItemResult,
    /// `true` if it had ended so before.
    pub(super) is_repeated: bool,
    /// The change for the watcher of its rule, if it has ended now.
    pub(super) change: Option<HoldChange>,
}

/// A reply to a new reservation.
pub(super) enum Estimated {
    Decided(Estimate),
    /// The id is of a reservation of another number of permits.
    Other(u64),
}

impl Estimate {
    /// Gives it the verdict of the first time, when nothing was held.
    pub(super) fn keep(&mut self, verdict: Verdict) {
        self.result.verdict = verdict;
        if self.ends_in_ns.take().is_some() {
            self.result.add_withdrawn(self.permits);
        }
        self.is_repeated = true;
    }

    /// Returns `true` if the item is held, or need not be; of a take, also if it was held before.
    pub(super) const fn passes(&self, is_take: bool) -> bool {
        (is_take || !self.is_over) && !self.result.verdict.is_over()
    }
}

impl<C: Clock + Clone + 'static> Split<C> {
    /// Withdraws what a store has held of the items at these indices. Waits for the replies, so
    /// that the same reservation again comes behind them.
    pub(super) async fn withdraw(&self, id: UniqueId, indices: &[usize]) {
        let mut replies = Vec::new();
        for item in indices.iter().filter_map(|&index| self.stored.get(index)) {
            let Ok((ruled, remote)) = self.remote(item) else { continue };
            let end = ReservationEnd::Withdraw;
            replies.push(remote.end(&in_store(ruled, item), ReservationId(id.0), end));
        }
        for reply in replies {
            // Without a reply it ends by its time.
            let _ = reply.await;
        }
    }

    /// Ends the items in the store. Returns the results, each with `true` if it is repeated.
    pub(super) async fn end(
        &self,
        inner: &Inner<C>,
        (id, used): (UniqueId, &[Option<u64>]),
        end: End,
    ) -> Result<Vec<Ended>, EngineError> {
        let mut replies = Vec::with_capacity(self.stored.len());
        for (nth, item) in self.stored.iter().enumerate() {
            let (ruled, remote) = self.remote(item)?;
            let end = match end {
                End::Commit => ReservationEnd::Commit { used: used.get(nth).copied().flatten() },
                End::Cancel => ReservationEnd::Cancel,
            };
            replies.push(remote.end(&in_store(ruled, item), ReservationId(id.0), end));
        }
        let mut ended = Vec::with_capacity(replies.len());
        for (item, reply) in self.stored.iter().zip(replies) {
            let (ruled, _) = self.remote(item)?;
            let own = of_end(inner, ruled, reply.await)?;
            ended.push(own);
        }
        Ok(ended)
    }

    /// Notifies the watcher of a rule in the store.
    pub(super) fn notify(
        &self,
        inner: &Inner<C>,
        item: &StoredItem,
        permits: u64,
        result: &ItemResult,
    ) {
        let watch = self.live.ruled.get(item.counter.rule).and_then(|ruled| ruled.watch.as_ref());
        if let Some(watch) = watch {
            watch.decided(inner.clock.now_ns(), &item.counter.key, permits, result);
        }
    }

    /// Notifies the watcher of what has been refunded and charged at the end of a reservation.
    pub(super) fn notify_settled(&self, inner: &Inner<C>, item: &StoredItem, result: &ItemResult) {
        let (verdict, permits) = match result.verdict {
            Verdict::Committed(Settled::Back { permits }) | Verdict::Cancelled(permits) => {
                (Verdict::Refunded(permits), permits)
            }
            Verdict::Committed(Settled::Owed { permits, .. }) | Verdict::Late(permits) => {
                (Verdict::Charged(permits), permits)
            }
            _ => return,
        };
        if permits > 0 {
            self.notify(inner, item, permits, &ItemResult { verdict, ..result.clone() });
        }
    }

    /// Reports a change of a reservation to the watcher of an item's rule.
    pub(super) fn report(&self, item: &StoredItem, change: &HoldChange) {
        let watch = self.live.ruled.get(item.counter.rule).and_then(|ruled| ruled.watch.as_ref());
        if let Some(watch) = watch {
            watch.reservation(change);
        }
    }

    /// Returns `true` if the rule of an item is enforced for its key.
    pub(super) fn is_enforced(&self, item: &StoredItem) -> bool {
        self.live.ruled.get(item.counter.rule).is_none_or(ActiveRule::is_enforced)
    }

    pub(super) fn remote(
        &self,
        item: &StoredItem,
    ) -> Result<(&ActiveRule<C>, &dyn Remote), EngineError> {
        let (ruled, remote) = self.live.remote(&item.counter).ok_or(EngineError::NotLoaded)?;
        Ok((ruled, &**remote))
    }
}

pub(super) fn in_store<C: Clock + Clone>(ruled: &ActiveRule<C>, item: &StoredItem) -> Vec<u8> {
    key::in_store(&ruled.rule.name, &item.counter.key).to_vec()
}

impl Estimate {
    /// Returns what a reply says of a new reservation of so many permits.
    pub(super) fn of_reply<C: Clock + Clone>(
        inner: &Inner<C>,
        ruled: &ActiveRule<C>,
        item: &StoredItem,
        permits: u64,
        reply: Result<ReserveReply, StoreError>,
    ) -> Result<Estimated, EngineError> {
        let enforced = ruled.is_enforced();
        let decided = |result: ItemResult, ends_in_ns: Option<NonZeroU64>| Self {
            result: item.with_cost(result),
            ends_in_ns,
            permits,
            is_repeated: false,
            is_over: false,
        };
        let without_status = |verdict| {
            let result = ItemResult { remaining: None, ..ruled.result(verdict) };
            Ok(Estimated::Decided(decided(result, None)))
        };
        let ReserveReply { verdict, is_repeated, remaining: left, debt } = match reply {
            Ok(reply) => reply,
            Err(StoreError::Exceeds(_)) => {
                return without_status(Verdict::Denied { retry_after_ns: None, enforced });
            }
            Err(StoreError::Unavailable(Unavailable::Full(_)))
                if ruled.rule.location == CounterLocation::Here =>
            {
                return Err(EngineError::NoCapacity);
            }
            Err(StoreError::Unavailable(_)) => {
                let admitted = !enforced || ruled.rule.on_unavailable == OnUnavailable::Admit;
                return without_status(unavailable(admitted));
            }
            Err(error) => return Err(of_store(&error)),
        };
        let (verdict, ends_in_ns, is_over) = match verdict {
            ReserveVerdict::Held { ends_in_ns } => (Verdict::Granted, Some(ends_in_ns), false),
            ReserveVerdict::Denied { retry_after_ns } => {
                (Verdict::Denied { retry_after_ns, enforced }, None, false)
            }
            ReserveVerdict::Ended => (Verdict::Late(0), None, true),
            ReserveVerdict::OtherPermits { permits } => return Ok(Estimated::Other(permits)),
        };
        let result = status(inner, ruled, verdict, (left, debt));
        Ok(Estimated::Decided(Self { is_repeated, is_over, ..decided(result, ends_in_ns) }))
    }
}

impl ItemResult {
    /// Adds permits that were withdrawn to what remains.
    pub(super) fn add_withdrawn(&mut self, permits: u64) {
        let left = self.remaining.map(|left| left.saturating_add(permits));
        self.remaining = left.map(|left| left.min(self.limit));
    }
}

impl StoredItem {
    /// Adds the cost of the item's usage to its result.
    pub(super) fn with_cost(&self, mut result: ItemResult) -> ItemResult {
        if self.cost.is_some() {
            result.detail.get_or_insert_default().cost = self.cost;
        }
        result
    }
}

/// Returns what a reply says of the end of a reservation.
fn of_end<C: Clock + Clone>(
    inner: &Inner<C>,
    ruled: &ActiveRule<C>,
    reply: Result<EndReply, StoreError>,
) -> Result<Ended, EngineError> {
    let EndReply { outcome, is_repeated, remaining, debt } = match reply {
        Ok(reply) => reply,
        Err(StoreError::Unavailable(_)) => {
            let result = ruled.result(unavailable(false));
            let result = ItemResult { remaining: None, ..result };
            return Ok(Ended { result, is_repeated: false, change: None });
        }
        Err(error) => return Err(of_store(&error)),
    };
    let verdict = match outcome {
        EndOutcome::Committed(settled) => Verdict::Committed(settled),
        EndOutcome::Cancelled(permits) => Verdict::Cancelled(permits),
        EndOutcome::Late(charged) => Verdict::Late(charged.booked),
        EndOutcome::Unknown => Verdict::Unknown,
    };
    let mut result = status(inner, ruled, verdict, (remaining, debt));
    if let EndOutcome::Late(charged) = outcome
        && ruled.rule.is_saturated_by(charged)
    {
        result.detail.get_or_insert_default().saturated = true;
    }
    let change = HoldChange::of_stored(&outcome).filter(|_| !is_repeated);
    Ok(Ended { result, is_repeated, change })
}

/// Returns the permits that a store's counter grants beyond the limit.
pub(super) fn spared<C: Clock + Clone>(ruled: &ActiveRule<C>) -> u64 {
    match ruled.rule.limit {
        Limit::Counted(window) => window.spared_in_store(),
        _ => 0,
    }
}

pub(super) fn status<C: Clock + Clone>(
    inner: &Inner<C>,
    ruled: &ActiveRule<C>,
    verdict: Verdict,
    (remaining, debt): (u64, u64),
) -> ItemResult {
    if let Limit::Counted(window) = ruled.rule.limit {
        let used = window.used_in_store(remaining);
        let now_ns = inner.clock.now_ns();
        let counted = counted::result(window, ruled.rule.display_limit, (verdict, used), now_ns);
        return ItemResult { rule: Some(Arc::clone(&ruled.rule)), ..counted };
    }
    // The remainder of this server's lease is not the remainder of the limit.
    let is_leased = matches!(ruled.rule.location, CounterLocation::StoreLeased { .. });
    let remaining = (!is_leased).then_some(remaining);
    let result = ruled.result(verdict);
    let mut result = ItemResult { remaining, debt, ..result };
    set_reset(&ruled.rule, &mut result, inner.clock.now_ns());
    result
}

pub(super) const fn unavailable(admitted: bool) -> Verdict {
    let retry_after_ns = if admitted { None } else { RETRY_AFTER_NS };
    Verdict::Unavailable { admitted, retry_after_ns }
}
