//! Requests as futures and as blocking calls.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rategate_core::debt::Debt;

use super::{
    Callback, ChargeReply, CreditReply, EndReply, Grant, Key, LeaseId, Receipt, Reply,
    ReservationEnd, ReservationId, ReserveReply, Store, StoreError, StoreReply, StoreRequest,
    Unavailable, Verdict,
};
use crate::clock::wait::assert_may_block;
use crate::delivery::{Delivery, OnUnclaimed};

/// Requests as futures, for a shared store.
///
/// A dropped future gives up its reply: permits return to the store, whether granted before or
/// after that.
pub trait StoreExt<P> {
    /// Submits any request.
    fn call(&self, request: StoreRequest<P>) -> Pending<StoreReply>;

    /// Takes all these permits, or none.
    fn decide(&self, plan: &Arc<P>, key: &Key, permits: NonZeroU64) -> Pending<Verdict> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.call(StoreRequest::Decide { plan, key, permits, lease: None })
            .read_as(StoreReply::verdict)
    }

    /// Takes all these permits or none, and holds them as a lease until release or expiry.
    ///
    /// Dropping this future ends the lease, even if it was granted before.
    fn hold(
        &self,
        plan: &Arc<P>,
        key: &Key,
        permits: NonZeroU64,
        lease: LeaseId,
    ) -> Pending<Verdict> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.call(StoreRequest::Decide { plan, key, permits, lease: Some(lease) })
            .read_as(StoreReply::verdict)
    }

    /// Takes as many of these permits as pass now.
    fn debit(&self, plan: &Arc<P>, key: &Key, permits: NonZeroU64) -> Pending<Verdict> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.call(StoreRequest::Debit { plan, key, permits }).read_as(StoreReply::verdict)
    }

    /// Returns the verdict that [`decide`](Self::decide) would get, and takes nothing.
    fn peek(&self, plan: &Arc<P>, key: &Key, permits: NonZeroU64) -> Pending<Verdict> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.call(StoreRequest::Peek { plan, key, permits }).read_as(StoreReply::verdict)
    }

    /// Refunds permits of a grant. Returns the number that came back.
    fn refund(
        &self,
        plan: &Arc<P>,
        key: &Key,
        receipt: Receipt,
        permits: NonZeroU64,
    ) -> Pending<u64> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.call(StoreRequest::Refund { plan, key, receipt, permits }).read_as(StoreReply::count)
    }

    /// Credits permits without a grant, up to a full limit. Returns the number that came back.
    fn credit(&self, plan: &Arc<P>, key: &Key, permits: NonZeroU64) -> Pending<u64> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.call(StoreRequest::Credit { plan, key, permits, once: None })
            .read_as(|reply| reply.credited().map(|credited| credited.permits))
    }

    /// Credits permits once: the same again under its id changes nothing.
    fn credit_once(
        &self,
        plan: &Arc<P>,
        key: &Key,
        permits: NonZeroU64,
        id: ReservationId,
    ) -> Pending<CreditReply> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.call(StoreRequest::Credit { plan, key, permits, once: Some(id) })
            .read_as(StoreReply::credited)
    }

    /// Counts permits that have been used already, whether they fit or not.
    ///
    /// After [`StoreError::Unavailable`] the outcome is unknown, and a second charge may count
    /// twice; [one with an id](Self::charge_once) does not. Dropping the future takes nothing back.
    fn charge(&self, plan: &Arc<P>, key: &Key, permits: u64, debt: Debt) -> Pending<ChargeReply> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.call(StoreRequest::Charge { plan, key, permits, debt, once: None })
            .read_as(StoreReply::charged)
    }

    /// Counts permits that have been used already, once: the same again under its id changes
    /// nothing.
    ///
    /// After [`StoreError::Unavailable`] send it again under the same id.
    fn charge_once(
        &self,
        plan: &Arc<P>,
        key: &Key,
        (permits, id): (u64, ReservationId),
        debt: Debt,
    ) -> Pending<ChargeReply> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.call(StoreRequest::Charge { plan, key, permits, debt, once: Some(id) })
            .read_as(StoreReply::charged)
    }

    /// Holds an estimate until its [end](Self::end), or until `ttl_ns` are over.
    ///
    /// After [`StoreError::Unavailable`] send it again under the same id: it is held once.
    /// Dropping the future ends nothing; a reservation that is not ended ends by itself.
    fn reserve(
        &self,
        plan: &Arc<P>,
        key: &Key,
        permits: NonZeroU64,
        (id, ttl_ns): (ReservationId, NonZeroU64),
    ) -> Pending<ReserveReply> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.call(StoreRequest::Reserve { plan, key, permits, id, ttl_ns, spared: 0 })
            .read_as(StoreReply::reserved)
    }

    /// Ends a reservation: an excess comes back, a shortfall is charged.
    ///
    /// After [`StoreError::Unavailable`] send it again under the same id: it counts once.
    fn end(
        &self,
        plan: &Arc<P>,
        key: &Key,
        id: ReservationId,
        end: ReservationEnd,
        debt: Debt,
    ) -> Pending<EndReply> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.call(StoreRequest::End { plan, key, id, end, debt }).read_as(StoreReply::ended)
    }

    /// Ends a [held](Self::hold) lease. Returns 0 if it had ended.
    fn release(
        &self,
        plan: &Arc<P>,
        key: &Key,
        permits: NonZeroU64,
        lease: LeaseId,
    ) -> Pending<u64> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.call(StoreRequest::Release { plan, key, permits, lease }).read_as(StoreReply::count)
    }

    /// Renews a lease for its full time from now. Returns 0 if it had ended.
    fn renew(&self, plan: &Arc<P>, key: &Key, permits: NonZeroU64, lease: LeaseId) -> Pending<u64> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.call(StoreRequest::Renew { plan, key, permits, lease }).read_as(StoreReply::count)
    }

    /// Clears the use of a key. Returns the number of limits that had any.
    fn reset(&self, plan: &Arc<P>, key: &Key) -> Pending<u64> {
        self.call(StoreRequest::Reset { plan: Arc::clone(plan), key: Arc::clone(key) })
            .read_as(StoreReply::count)
    }
}

impl<S: Store> StoreExt<S::Plan> for Arc<S> {
    fn call(&self, request: StoreRequest<S::Plan>) -> Pending<StoreReply> {
        let (sender, received) = oneshot::channel();
        let unclaimed = Unclaimed::of(&request, self);
        self.submit(
            request,
            Box::new(move |answer| {
                let on_unclaimed = unclaimed.map(|unclaimed| -> OnUnclaimed<_> {
                    Box::new(move |unread| unclaimed.credit(unread))
                });
                // If the receiver was dropped, the reply is returned when it drops.
                let _ = sender.send(Delivery::new(answer, on_unclaimed));
            }),
        );
        Pending { received, read: Some }
    }
}

/// A pending reply: a future, or a blocking [call](Pending::wait).
///
/// It completes within the time budget of its store.
#[derive(Debug)]
#[must_use = "dropping it gives up the reply"]
pub struct Pending<A> {
    received: oneshot::Receiver<Delivery<Result<StoreReply, StoreError>>>,
    read: fn(StoreReply) -> Option<A>,
}

impl<A> Pending<A> {
    /// Blocks this thread until the reply arrives.
    ///
    /// In a task, await it instead: a thread that drives tasks must not block, and in a debug
    /// build with the feature `tokio` it panics.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn wait(self) -> Result<A, StoreError> {
        let received = match self.received.try_recv() {
            Err(oneshot::TryRecvError::Empty) => {
                assert_may_block();
                self.received.recv().ok()
            }
            received => received.ok(),
        };
        understood(self.read, received)
    }

    /// Creates a reply that was not requested from the store.
    pub(crate) fn failed(error: StoreError) -> Self {
        let (sender, received) = oneshot::channel();
        let _ = sender.send(Delivery::new(Err(error), None));
        Self { received, read: |_| None }
    }

    /// Creates a reply that `submit` requests from a store, by the callback that it gets.
    pub(crate) fn requested(
        read: fn(StoreReply) -> Option<A>,
        submit: impl FnOnce(Callback),
    ) -> Self {
        let (sender, received) = oneshot::channel();
        submit(Box::new(move |reply| {
            let _ = sender.send(Delivery::new(reply, None));
        }));
        Self { received, read }
    }

    fn read_as<B>(self, read: fn(StoreReply) -> Option<B>) -> Pending<B> {
        Pending { received: self.received, read }
    }
}

impl<A> Future for Pending<A> {
    type Output = Result<A, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let read = self.read;
        Pin::new(&mut self.received).poll(context).map(|received| understood(read, received.ok()))
    }
}

/// The means to return the permits of a grant that reaches no caller, for stores before a store.
pub struct Unclaimed<S: Store> {
    store: Arc<S>,
    plan: Arc<S::Plan>,
    key: Key,
    lease: Option<LeaseId>,
}

impl<S: Store> Unclaimed<S> {
    /// Returns the means for a request, or `None` if its reply grants no permits.
    pub fn of(request: &StoreRequest<S::Plan>, store: &Arc<S>) -> Option<Self> {
        let (plan, key, lease) = match request {
            StoreRequest::Decide { plan, key, lease, .. } => (plan, key, *lease),
            StoreRequest::Debit { plan, key, .. } => (plan, key, None),
            _ => return None,
        };
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        Some(Self { store: Arc::clone(store), plan, key, lease })
    }

    /// Returns the permits of a reply that no caller has read: its lease ends, or its grant is
    /// refunded.
    pub fn credit(self, unread: Result<StoreReply, StoreError>) {
        let Ok(StoreReply { reply: Reply::Verdict(Verdict::Granted(grant)), .. }) = unread else {
            return;
        };
        let Self { store, plan, key, lease } = self;
        let Grant { permits, receipt, .. } = grant;
        let Some(permits) = NonZeroU64::new(permits) else { return };
        let request = match lease {
            Some(lease) => StoreRequest::Release { plan, key, permits, lease },
            None => StoreRequest::Refund { plan, key, receipt, permits },
        };
        store.submit(request, Box::new(|_| ()));
    }
}

// A plan need not be `Debug`.
impl<S: Store> fmt::Debug for Unclaimed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unclaimed").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Takes a reply, if there is one, and reads it.
fn understood<A>(
    read: fn(StoreReply) -> Option<A>,
    received: Option<Delivery<Result<StoreReply, StoreError>>>,
) -> Result<A, StoreError> {
    let answer = received.and_then(Delivery::take).unwrap_or(Err(StoreError::Closed))?;
    read(answer).ok_or_else(|| {
        StoreError::Unavailable(Unavailable::Broken("the reply is to another request".into()))
    })
}
