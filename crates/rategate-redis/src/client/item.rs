//! A pending request together with the callback of its caller.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rategate::store::{
    Callback, Key, Reply, ReservationId, StoreError, StoreReply, StoreRequest, Unavailable, Verdict,
};

use super::shared::Shared;
use crate::plan::Plan;

/// The time budget of requests without a waiter, which return the permits of late grants.
const RETURN_WITHIN: Duration = Duration::from_secs(2);
/// The maximum number of times a request is sent again: after a refusal without effect, or where
/// it counts once.
const MAX_RESENT: u8 = 3;

/// A pending request. Its callback runs exactly once, at the latest when the request is dropped.
pub(crate) struct Item {
    shared: Arc<Shared>,
    pub(crate) request: StoreRequest<Plan>,
    respond: Option<Callback>,
    since: Instant,
    /// The instant after which the reply is of no use.
    pub(crate) until: Instant,
    resent: u8,
    /// The request needs a call of its own, because it was refused together with others.
    pub(crate) is_single: bool,
    /// The request goes to a server that its slot is being moved to, and needs `ASKING`.
    pub(crate) is_asking: bool,
}

impl Item {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        request: StoreRequest<Plan>,
        respond: Callback,
        budget: Duration,
    ) -> Self {
        Self::of(Arc::clone(shared), request, Some(respond), Instant::now(), budget)
    }

    /// Creates a request without a waiter.
    fn silent(&self, request: StoreRequest<Plan>, now: Instant) -> Self {
        Self::of(Arc::clone(&self.shared), request, None, now, RETURN_WITHIN)
    }

    fn of(
        shared: Arc<Shared>,
        request: StoreRequest<Plan>,
        respond: Option<Callback>,
        since: Instant,
        budget: Duration,
    ) -> Self {
        let until = since.checked_add(budget).unwrap_or(since);
        let (resent, is_single, is_asking) = (0, false, false);
        Self { shared, request, respond, since, until, resent, is_single, is_asking }
    }

    pub(crate) const fn is_waited_for(&self) -> bool {
        self.respond.is_some()
    }

    /// Returns the id under which the store decides the request once, however often it arrives.
    pub(crate) const fn id(&self) -> Option<ReservationId> {
        match &self.request {
            StoreRequest::Reserve { id, .. } | StoreRequest::End { id, .. } => Some(*id),
            StoreRequest::Charge { once, .. } | StoreRequest::Credit { once, .. } => *once,
            _ => None,
        }
    }

    /// Returns the key and the id under which the store decides the request once.
    pub(crate) fn key_and_id(&self) -> Option<(Key, ReservationId)> {
        let key = match &self.request {
            StoreRequest::Reserve { key, .. }
            | StoreRequest::End { key, .. }
            | StoreRequest::Charge { key, .. }
            | StoreRequest::Credit { key, .. } => Key::clone(key),
            _ => return None,
        };
        Some((key, self.id()?))
    }

    /// Returns `true` if the store decides the request once, and a waiter wants the reply.
    pub(crate) const fn counts_once(&self) -> bool {
        self.is_waited_for() && self.id().is_some()
    }

    /// Counts another attempt, and returns `true` if the request may be sent again.
    pub(crate) fn resend(&mut self) -> bool {
        self.resent = self.resent.saturating_add(1);
        self.resent <= MAX_RESENT
    }

    /// Delivers the reply to the waiter. Returns `false` if there is no waiter.
    pub(crate) fn respond(&mut self, answer: Result<StoreReply, StoreError>) -> bool {
        let Some(respond) = self.respond.take() else { return false };
        self.shared.one_less();
        // A panic in a foreign callback is contained, so that the other replies are delivered.
        let _ = catch_unwind(AssertUnwindSafe(|| respond(answer)));
        true
    }

    /// Returns `true` if more than half of the time is over. A new request is therefore always
    /// sent.
    pub(crate) fn is_past_half(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) > self.until.saturating_duration_since(now)
    }

    /// Answers a request for which no reply can come in time. Nothing was sent.
    pub(crate) fn shed(&mut self) {
        self.shared.stats.shed.one();
        self.late();
    }

    pub(crate) fn late(&mut self) {
        if self.respond(Err(StoreError::Unavailable(Unavailable::Late))) {
            self.shared.stats.late.one();
        }
    }

    /// Returns the request that refunds or releases a grant whose reply reached no waiter.
    pub(crate) fn return_request(&self, answer: &StoreReply, now: Instant) -> Option<Self> {
        let Reply::Verdict(Verdict::Granted(grant)) = &answer.reply else { return None };
        let permits = std::num::NonZeroU64::new(grant.permits)?;
        let request = match &self.request {
            StoreRequest::Decide { plan, key, lease: Some(lease), .. } if plan.holds() => {
                let (plan, key, lease) = (plan.clone(), key.clone(), *lease);
                StoreRequest::Release { plan, key, permits, lease }
            }
            StoreRequest::Decide { plan, key, .. } | StoreRequest::Debit { plan, key, .. } => {
                let (plan, key, receipt) = (plan.clone(), key.clone(), grant.receipt.clone());
                StoreRequest::Refund { plan, key, receipt, permits }
            }
            _ => return None,
        };
        Some(self.silent(request, now))
    }
}

impl Drop for Item {
    /// Answers the waiter. A request is dropped without a reply only by a driver that ends or
    /// panics.
    fn drop(&mut self) {
        let fault = if thread::panicking() {
            StoreError::Unavailable(panicked())
        } else {
            StoreError::Closed
        };
        self.respond(Err(fault));
    }
}

/// Returns the error for requests lost in a panic of the driver.
pub(crate) fn panicked() -> Unavailable {
    Unavailable::Broken(
        "the driver of the store panicked and restarts; its stderr names the location".to_owned(),
    )
}
