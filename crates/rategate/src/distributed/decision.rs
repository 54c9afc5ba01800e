//! What a call is told, and by whom it was decided.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use oneshot::{RecvTimeoutError, TryRecvError};

use super::deadline::Deadline;
use crate::store::{Fault, LeaseId, Receipt};
use crate::wait::assert_may_block;

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a grant that nobody acts on is a permit lost"]
pub enum Decision {
    /// The permits are the caller's.
    Granted(Grant),
    /// Nothing was taken.
    Denied(Denial),
}

impl Decision {
    /// Whether it is a grant.
    #[must_use]
    pub const fn is_granted(&self) -> bool {
        matches!(self, Self::Granted(_))
    }

    /// Who decided.
    #[must_use]
    pub const fn by(&self) -> By {
        match self {
            Self::Granted(grant) => grant.by,
            Self::Denied(denial) => denial.by,
        }
    }

    /// How many permits one more call could take, as far as is known to whoever decided.
    #[must_use]
    pub const fn remaining(&self) -> Option<u64> {
        match self {
            Self::Granted(grant) => grant.remaining,
            Self::Denied(denial) => denial.remaining,
        }
    }

    pub(super) const fn granted(by: By) -> Self {
        Self::Granted(Grant { by, remaining: None, receipt: None, lease: None, until_ns: None })
    }

    pub(super) const fn denied(by: By, retry_after_ns: Option<NonZeroU64>) -> Self {
        Self::Denied(Denial { by, retry_after_ns, remaining: None })
    }

    /// Granted of what was borrowed, and can be used until then.
    pub(super) const fn borrowed(until_ns: Option<u64>) -> Self {
        let (by, remaining, receipt, lease) = (By::Lease, None, None, None);
        Self::Granted(Grant { by, remaining, receipt, lease, until_ns })
    }

    /// Granted by what this node keeps alone.
    pub(super) const fn alone(remaining: u64, receipt: Option<Receipt>) -> Self {
        let (by, remaining, lease, until_ns) = (By::Fallback, Some(remaining), None, None);
        Self::Granted(Grant { by, remaining, receipt, lease, until_ns })
    }

    pub(super) const fn leaving(mut self, permits: u64) -> Self {
        match &mut self {
            Self::Granted(grant) => grant.remaining = Some(permits),
            Self::Denied(denial) => denial.remaining = Some(permits),
        }
        self
    }
}

/// Permits that are the caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Who decided.
    pub by: By,
    /// How many permits one more call could take then. Of a lease, how many this node has left of what it borrowed; of a
    /// share, of that; without the store, of the limit that this node keeps alone. `None` where nobody counts.
    pub remaining: Option<u64>,
    /// What is needed to take permits back: by the store where it decided itself, by what this node keeps alone without it.
    pub(super) receipt: Option<Receipt>,
    /// Under which name they are held, where they are in flight.
    pub(super) lease: Option<LeaseId>,
    /// Until when what was borrowed for them can be granted again.
    pub(super) until_ns: Option<u64>,
}

/// A refusal for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Who decided.
    pub by: By,
    /// When to come again, in ns from now. From a store, and a lease, it is exact up to the way of the answer: never
    /// too early, if no other call comes first. Of permits in flight it is the end of the oldest lease, which is the latest
    /// instant. While the store is gone it is when the store is asked
    /// next, and always known. `None` where no time is known to help.
    pub retry_after_ns: Option<NonZeroU64>,
    /// How many permits a smaller call could take, as of a [grant](Grant::remaining).
    pub remaining: Option<u64>,
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// The store, for this call.
    Store,
    /// This node, with permits that it had borrowed, or by a denial that it remembers.
    Lease,
    /// This node, with its share of the limit.
    Share,
    /// This node, because the store is gone, as it was told to for that.
    Fallback,
    /// Nobody had to: no permits were asked for.
    Nobody,
}

/// Tells a caller its decision, once. A grant to a caller that has gone, or goes before it reads that, is given up.
#[derive(Debug)]
pub(super) struct Told {
    sender: oneshot::Sender<Letter>,
    deadline: Arc<dyn Deadline>,
}

/// A decision on its way.
#[derive(Debug)]
struct Letter {
    decision: Option<Result<Decision, Fault>>,
    deadline: Arc<dyn Deadline>,
}

impl Told {
    /// Whether the caller has gone.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(super) fn send(self, decision: Result<Decision, Fault>) {
        let Self { sender, deadline } = self;
        drop(sender.send(Letter { decision: Some(decision), deadline }));
    }
}

impl Letter {
    fn open(mut self) -> Result<Decision, Fault> {
        self.decision.take().unwrap_or(Err(Fault::Closed))
    }
}

impl Drop for Letter {
    fn drop(&mut self) {
        if let Some(Ok(Decision::Granted(grant))) = self.decision.take() {
            self.deadline.give_up(grant);
        }
    }
}

/// A decision, at once or when the store has answered: a future, or a [call](Self::wait) that blocks.
///
/// It ends within the store's time budget and a quarter of that, in a task and in a thread alike, however late the store's own
/// thread may be. A task that is itself not run in time is late by that much.
///
/// Dropped before the store has answered, or before that answer was read, it gives up the decision: permits go back. A
/// decision that was there at once was made, and its permits are spent unless the grant is
/// [refunded](super::Distributed::refund).
#[derive(Debug)]
#[must_use = "a decision that is dropped before the store has answered is given up"]
pub struct Deciding(State);

#[derive(Debug)]
enum State {
    /// Decided, and `None` once that was told.
    Now(Option<Result<Decision, Fault>>),
    Later(Awaited),
}

/// A decision that has not come. Once it is not waited for, no task is woken for it.
#[derive(Debug)]
struct Awaited {
    heard: oneshot::Receiver<Letter>,
    deadline: Arc<dyn Deadline>,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        drop(self.deadline.task());
    }
}

impl Deciding {
    pub(super) const fn now(decision: Result<Decision, Fault>) -> Self {
        Self(State::Now(Some(decision)))
    }

    /// A decision of the store, or one without it at the deadline; and what tells it.
    pub(super) fn later(deadline: Arc<dyn Deadline>) -> (Told, Self) {
        let (sender, heard) = oneshot::channel();
        let told = Told { sender, deadline: Arc::clone(&deadline) };
        (told, Self(State::Later(Awaited { heard, deadline })))
    }

    /// Blocks this thread until it is decided: no longer than the budget and a quarter of it, however late the store's own
    /// thread may be.
    /// In a task, await it instead: a thread that drives tasks must not block, and in a debug build with the
    /// feature `tokio` it panics unless the decision is there.
    ///
    /// # Errors
    ///
    /// [`Fault`], never [`Fault::Gone`]: that is what the limiter was told to do about.
    pub fn wait(mut self) -> Result<Decision, Fault> {
        if let State::Later(awaited) = &self.0 {
            let decision = match awaited.heard.try_recv() {
                Err(TryRecvError::Empty) => {
                    assert_may_block();
                    awaited.wait()
                }
                heard => heard.map_or(Err(Fault::Closed), Letter::open),
            };
            self.0 = State::Now(Some(decision));
        }
        self.take()
    }

    /// The decision, if no answer of the store is needed for it.
    ///
    /// # Errors
    ///
    /// Itself, if one is.
    pub fn at_once(mut self) -> Result<Result<Decision, Fault>, Self> {
        match &self.0 {
            State::Now(_) => Ok(self.take()),
            State::Later(_) => Err(self),
        }
    }

    fn take(&mut self) -> Result<Decision, Fault> {
        match &mut self.0 {
            State::Now(decision) => decision.take().unwrap_or(Err(Fault::Closed)),
            State::Later(_) => Err(Fault::Closed),
        }
    }
}

impl Future for Deciding {
    type Output = Result<Decision, Fault>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Later(awaited) = &mut self.0 {
            let decision = match Pin::new(&mut awaited.heard).poll(context) {
                Poll::Ready(decision) => decision.map_or(Err(Fault::Closed), Letter::open),
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
    fn wait(&self) -> Result<Decision, Fault> {
        while let Some(left) = self.deadline.left() {
            match self.heard.recv_timeout(left) {
                Ok(letter) => return letter.open(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Fault::Closed),
            }
        }
        self.end()
    }

    /// The last look, and the decision without the store. What comes from now on goes back.
    fn end(&self) -> Result<Decision, Fault> {
        match self.heard.try_recv() {
            Ok(letter) => letter.open(),
            Err(TryRecvError::Empty) => Ok(self.deadline.decide()),
            Err(TryRecvError::Disconnected) => Err(Fault::Closed),
        }
    }
}
