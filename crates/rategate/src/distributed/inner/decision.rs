//! Decisions on calls, and the party that made them.

pub(in crate::distributed) mod deadline;

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use oneshot::{RecvTimeoutError, TryRecvError};

use self::deadline::Deadline;
use crate::clock::wait::assert_may_block;
use crate::delivery::{Delivery, OnUnclaimed};
use crate::store::{ChargeReply, LeaseId, Receipt, StoreError, Verdict};

/// The decision on a call: a grant or a denial.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an unused grant is a lost permit"]
pub enum Decision {
    /// The permits are the caller's.
    Granted(Grant),
    /// Nothing was taken.
    Denied(Denial),
}

impl Decision {
    /// Returns `true` for a grant.
    #[must_use]
    pub const fn is_granted(&self) -> bool {
        matches!(self, Self::Granted(_))
    }

    /// Returns the party that decided.
    #[must_use]
    pub const fn by(&self) -> DecidedBy {
        match self {
            Self::Granted(grant) => grant.by,
            Self::Denied(denial) => denial.by,
        }
    }

    /// Returns the permits that one more call could take, as far as the deciding party knows.
    #[must_use]
    pub const fn remaining(&self) -> Option<u64> {
        match self {
            Self::Granted(grant) => grant.remaining,
            Self::Denied(denial) => denial.remaining,
        }
    }

    pub(in crate::distributed) const fn granted(by: DecidedBy) -> Self {
        let (remaining, receipt, lease, until_ns, store_ns) = (None, None, None, None, None);
        Self::Granted(Grant { by, remaining, store_ns, receipt, lease, until_ns })
    }

    pub(in crate::distributed) fn denied(
        by: DecidedBy,
        retry_after_ns: Option<NonZeroU64>,
    ) -> Self {
        let retry_after = retry_after_ns.map(|ns| Duration::from_nanos(ns.get()));
        Self::Denied(Denial { by, retry_after, remaining: None, debt: 0, store_ns: None })
    }

    /// Creates a grant of borrowed permits, usable until that instant.
    pub(in crate::distributed) const fn borrowed(until_ns: Option<u64>) -> Self {
        let (by, remaining, store_ns) = (DecidedBy::Lease, None, None);
        Self::Granted(Grant { by, remaining, store_ns, receipt: None, lease: None, until_ns })
    }

    /// Converts the verdict of a store. A peek leaves nothing that could be refunded.
    pub(in crate::distributed) fn of_verdict(
        by: DecidedBy,
        verdict: Verdict,
        lease: Option<LeaseId>,
        takes: bool,
    ) -> Self {
        match verdict {
            Verdict::Granted(grant) => {
                let (remaining, receipt) = (Some(grant.remaining), Some(grant.receipt));
                let receipt = receipt.filter(|_| takes);
                let (until_ns, store_ns) = (None, None);
                Self::Granted(Grant { by, remaining, store_ns, receipt, lease, until_ns })
            }
            Verdict::Denied(denial) => {
                Self::denied(by, denial.retry_after_ns).leaving(denial.remaining).owing(denial.debt)
            }
        }
    }

    /// Converts the outcome of a charge that was made as a take. What was charged is not refunded.
    pub(in crate::distributed) fn of_charge(reply: ChargeReply) -> Self {
        let (by, debt) = (DecidedBy::Store, reply.charged.debt);
        let decision = match debt {
            0 => Self::granted(by),
            _ => Self::denied(by, reply.retry_after_ns.and_then(NonZeroU64::new)),
        };
        decision.leaving(reply.remaining).owing(debt)
    }

    /// Adds the instant of the store's reply.
    pub(in crate::distributed) const fn at(mut self, now_ns: Option<u64>) -> Self {
        match &mut self {
            Self::Granted(grant) => grant.store_ns = now_ns,
            Self::Denied(denial) => denial.store_ns = now_ns,
        }
        self
    }

    /// Returns the instant of the decision on the store's clock, in ns, if the store made it.
    #[must_use]
    pub const fn store_ns(&self) -> Option<u64> {
        match self {
            Self::Granted(grant) => grant.store_ns,
            Self::Denied(denial) => denial.store_ns,
        }
    }

    const fn owing(mut self, permits: u64) -> Self {
        if let Self::Denied(denial) = &mut self {
            denial.debt = permits;
        }
        self
    }

    pub(in crate::distributed) const fn leaving(mut self, permits: u64) -> Self {
        match &mut self {
            Self::Granted(grant) => grant.remaining = Some(permits),
            Self::Denied(denial) => denial.remaining = Some(permits),
        }
        self
    }
}

/// Permits that are the caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The party that decided.
    pub by: DecidedBy,
    /// The permits that one more call could take then.
    ///
    /// For a lease, the permits left of those that this node borrowed; without the store, of the
    /// limit that this node keeps alone. `None` where they are not counted.
    pub remaining: Option<u64>,
    /// The instant on the store's clock, in ns, if the store decided.
    pub(in crate::distributed) store_ns: Option<u64>,
    /// The receipt for a refund: to the store if it decided, else to the limit kept alone.
    pub(in crate::distributed) receipt: Option<Receipt>,
    /// The lease that holds the permits, where they are in flight.
    pub(in crate::distributed) lease: Option<LeaseId>,
    /// The instant until which the borrowed permits can be granted again.
    pub(in crate::distributed) until_ns: Option<u64>,
}

/// A denial, with the wait until the next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denial {
    /// The party that decided.
    pub by: DecidedBy,
    /// The wait until the next try, from now.
    ///
    /// From a store or a lease it is exact up to the travel time of the reply: never too early, if
    /// no other call comes first. For permits in flight it is the end of the oldest lease, which
    /// is the latest instant. While the store is unavailable, it is the wait until the next request
    /// may go to it, and always known. `None` where no time is known to help.
    pub retry_after: Option<Duration>,
    /// The permits that a smaller call could take, as in a [grant](Grant::remaining).
    pub remaining: Option<u64>,
    /// The permits by which the limit is exceeded, after charges. 0 where only the store knows.
    pub debt: u64,
    /// The instant on the store's clock, in ns, if the store decided.
    pub(in crate::distributed) store_ns: Option<u64>,
}

/// The party that decided a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecidedBy {
    /// The store, for this call.
    Store,
    /// This node, with permits that it had borrowed, or by a remembered denial.
    Lease,
    /// This node, by its fallback, because the store is unavailable.
    Fallback,
    /// No party: the request was for no permits.
    NoPermits,
}

/// A decision on its way to the caller.
type Delivered = Delivery<Result<Decision, StoreError>>;

/// A one-shot channel to a caller that waits for a decision.
///
/// A grant to a caller that no longer waits, or stops before it reads it, is given up.
#[derive(Debug)]
pub(in crate::distributed) struct DecisionSender {
    sender: oneshot::Sender<Delivered>,
    deadline: Arc<dyn Deadline>,
}

impl DecisionSender {
    /// Returns `true` if the caller no longer waits.
    pub(in crate::distributed) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(in crate::distributed) fn send(self, decision: Result<Decision, StoreError>) {
        let Self { sender, deadline } = self;
        let on_unclaimed: OnUnclaimed<_> = Box::new(move |unread| {
            if let Ok(Decision::Granted(grant)) = unread {
                deadline.give_up(grant);
            }
        });
        drop(sender.send(Delivery::new(decision, Some(on_unclaimed))));
    }
}

/// Reads a decision, which is the caller's from now on.
fn claimed(received: Option<Delivered>) -> Result<Decision, StoreError> {
    received.and_then(Delivery::take).unwrap_or(Err(StoreError::Closed))
}

/// A pending or completed decision: a future, or a blocking [call](Self::wait).
///
/// It completes within the store's time budget plus a quarter, in tasks and threads alike,
/// however late the store's own thread may be. A task that is itself scheduled late completes
/// later by as much.
///
/// Dropped before the store's reply was read, it gives up the decision: permits go back. A
/// decision that was there at once has been made, and its permits stay taken unless the grant
/// is [refunded](crate::distributed::Distributed::refund).
#[derive(Debug)]
#[must_use = "a decision that is dropped before the store has replied is given up"]
pub struct DecisionFuture(State);

#[derive(Debug)]
enum State {
    /// Decided; `None` once the decision was taken.
    Now(Option<Result<Decision, StoreError>>),
    Later(Awaited),
}

/// A decision that has not arrived. Dropping it removes its task, which is then not woken.
#[derive(Debug)]
struct Awaited {
    received: oneshot::Receiver<Delivered>,
    deadline: Arc<dyn Deadline>,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        drop(self.deadline.task());
    }
}

impl DecisionFuture {
    pub(in crate::distributed) const fn now(decision: Result<Decision, StoreError>) -> Self {
        Self(State::Now(Some(decision)))
    }

    /// Creates a decision of the store, or one without it at the deadline, and its sender.
    pub(in crate::distributed) fn later(deadline: Arc<dyn Deadline>) -> (DecisionSender, Self) {
        let (sender, received) = oneshot::channel();
        let caller = DecisionSender { sender, deadline: Arc::clone(&deadline) };
        (caller, Self(State::Later(Awaited { received, deadline })))
    }

    /// Blocks this thread until the decision is made.
    ///
    /// It takes no longer than the budget plus a quarter, however late the store's own thread may
    /// be. In a task, await it instead: a thread that drives tasks must not block, and in a debug
    /// build with the feature `tokio` it panics unless the decision is there.
    ///
    /// # Errors
    ///
    /// [`StoreError`], never [`StoreError::Unavailable`], which the limiter's fallback handles.
    pub fn wait(mut self) -> Result<Decision, StoreError> {
        if let State::Later(awaited) = &self.0 {
            let decision = match awaited.received.try_recv() {
                Err(TryRecvError::Empty) => {
                    assert_may_block();
                    awaited.wait()
                }
                received => claimed(received.ok()),
            };
            self.0 = State::Now(Some(decision));
        }
        self.take()
    }

    /// Returns the decision, if it needs no reply of the store.
    ///
    /// # Errors
    ///
    /// Itself, if it needs one.
    pub fn at_once(mut self) -> Result<Result<Decision, StoreError>, Self> {
        match &self.0 {
            State::Now(_) => Ok(self.take()),
            State::Later(_) => Err(self),
        }
    }

    fn take(&mut self) -> Result<Decision, StoreError> {
        match &mut self.0 {
            State::Now(decision) => decision.take().unwrap_or(Err(StoreError::Closed)),
            State::Later(_) => Err(StoreError::Closed),
        }
    }
}

impl Future for DecisionFuture {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Later(awaited) = &mut self.0 {
            let decision = match Pin::new(&mut awaited.received).poll(context) {
                Poll::Ready(received) => claimed(received.ok()),
                Poll::Pending if awaited.deadline.left().is_some() => {
                    Arc::clone(&awaited.deadline).watch(context.waker());
                    return Poll::Pending;
                }
                Poll::Pending => awaited.end(),
            };
            self.0 = State::Now(Some(decision));
        }
        Poll::Ready(self.take())
    }
}

impl Awaited {
    fn wait(&self) -> Result<Decision, StoreError> {
        while let Some(left) = self.deadline.left() {
            match self.received.recv_timeout(left) {
                Ok(received) => return claimed(Some(received)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(StoreError::Closed),
            }
        }
        self.end()
    }

    /// Checks for a reply a last time, and decides without the store if there is none.
    ///
    /// Permits of a later reply are returned to the store.
    fn end(&self) -> Result<Decision, StoreError> {
        match self.received.try_recv() {
            Ok(received) => claimed(Some(received)),
            Err(TryRecvError::Empty) => Ok(self.deadline.decide()),
            Err(TryRecvError::Disconnected) => Err(StoreError::Closed),
        }
    }
}
