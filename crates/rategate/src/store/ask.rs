//! Requests as futures and as blocking calls.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{
    Answer, Fault, Gone, Grant, Key, LeaseId, Question, Receipt, Reply, Share, Store, Verdict,
};
use crate::delivery::{Delivery, HandBack};
use crate::store::Beat;
use crate::wait::assert_may_block;

/// Requests as futures, for a shared store.
///
/// A dropped future gives up its reply: permits return to the store, whether granted before or
/// after that.
pub trait Ask<P> {
    /// Submits any request.
    fn ask(&self, question: Question<P>) -> Asked<Answer>;

    /// Takes all these permits, or none.
    fn decide(&self, plan: &Arc<P>, key: &Key, permits: NonZeroU64) -> Asked<Verdict> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.ask(Question::Decide { plan, key, permits, lease: None }).read_as(verdict)
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
    ) -> Asked<Verdict> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.ask(Question::Decide { plan, key, permits, lease: Some(lease) }).read_as(verdict)
    }

    /// Takes as many of these permits as pass now.
    fn debit(&self, plan: &Arc<P>, key: &Key, permits: NonZeroU64) -> Asked<Verdict> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.ask(Question::Debit { plan, key, permits }).read_as(verdict)
    }

    /// Returns the verdict that [`decide`](Self::decide) would get, and takes nothing.
    fn peek(&self, plan: &Arc<P>, key: &Key, permits: NonZeroU64) -> Asked<Verdict> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.ask(Question::Peek { plan, key, permits }).read_as(verdict)
    }

    /// Refunds permits of a grant. Returns the number that came back.
    fn refund(
        &self,
        plan: &Arc<P>,
        key: &Key,
        receipt: Receipt,
        permits: NonZeroU64,
    ) -> Asked<u64> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.ask(Question::Refund { plan, key, receipt, permits }).read_as(count)
    }

    /// Credits permits without a grant, up to a full limit. Returns the number that came back.
    fn give_back(&self, plan: &Arc<P>, key: &Key, permits: NonZeroU64) -> Asked<u64> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.ask(Question::GiveBack { plan, key, permits }).read_as(count)
    }

    /// Ends a [held](Self::hold) lease. Returns 0 if it had ended.
    fn release(&self, plan: &Arc<P>, key: &Key, permits: NonZeroU64, lease: LeaseId) -> Asked<u64> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.ask(Question::Release { plan, key, permits, lease }).read_as(count)
    }

    /// Renews a lease for its full time from now. Returns 0 if it had ended.
    fn renew(&self, plan: &Arc<P>, key: &Key, permits: NonZeroU64, lease: LeaseId) -> Asked<u64> {
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        self.ask(Question::Renew { plan, key, permits, lease }).read_as(count)
    }

    /// Clears the use of a key. Returns the number of limits that had any.
    fn reset(&self, plan: &Arc<P>, key: &Key) -> Asked<u64> {
        self.ask(Question::Reset { plan: Arc::clone(plan), key: Arc::clone(key) }).read_as(count)
    }

    /// Reports that a member of a group is alive. Returns its partition.
    fn beat(&self, beat: Beat) -> Asked<Share> {
        self.ask(Question::Beat(beat)).read_as(share)
    }
}

impl<S: Store> Ask<S::Plan> for Arc<S> {
    fn ask(&self, question: Question<S::Plan>) -> Asked<Answer> {
        let (told, heard) = oneshot::channel();
        let unclaimed = Unclaimed::of(&question, self);
        self.put(
            question,
            Box::new(move |answer| {
                let hand_back = unclaimed.map(|unclaimed| -> HandBack<_> {
                    Box::new(move |unheard| unclaimed.give_back(unheard))
                });
                // If the receiver was dropped, the reply is returned when it drops.
                let _ = told.send(Delivery::new(answer, hand_back));
            }),
        );
        Asked { heard, read: |answer| Some(answer.clone()) }
    }
}

/// A pending reply: a future, or a blocking [call](Asked::wait).
///
/// It completes within the time budget of its store.
#[derive(Debug)]
#[must_use = "dropping it gives up the reply"]
pub struct Asked<A> {
    heard: oneshot::Receiver<Delivery<Result<Answer, Fault>>>,
    read: fn(&Answer) -> Option<A>,
}

impl<A> Asked<A> {
    /// Blocks this thread until the reply arrives.
    ///
    /// In a task, await it instead: a thread that drives tasks must not block, and in a debug
    /// build with the feature `tokio` it panics.
    ///
    /// # Errors
    ///
    /// [`Fault`].
    pub fn wait(self) -> Result<A, Fault> {
        let heard = match self.heard.try_recv() {
            Err(oneshot::TryRecvError::Empty) => {
                assert_may_block();
                self.heard.recv().ok()
            }
            heard => heard.ok(),
        };
        understood(self.read, heard)
    }

    fn read_as<B>(self, read: fn(&Answer) -> Option<B>) -> Asked<B> {
        Asked { heard: self.heard, read }
    }
}

impl<A> Future for Asked<A> {
    type Output = Result<A, Fault>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let read = self.read;
        Pin::new(&mut self.heard).poll(context).map(|heard| understood(read, heard.ok()))
    }
}

/// The request of a reply, whose permits return to the store if the caller no longer waits.
pub(super) struct Unclaimed<S: Store> {
    store: Arc<S>,
    plan: Arc<S::Plan>,
    key: Key,
    lease: Option<LeaseId>,
}

impl<S: Store> Unclaimed<S> {
    pub(super) fn of(question: &Question<S::Plan>, store: &Arc<S>) -> Option<Self> {
        let (plan, key, lease) = match question {
            Question::Decide { plan, key, lease, .. } => (plan, key, *lease),
            Question::Debit { plan, key, .. } => (plan, key, None),
            _ => return None,
        };
        let (plan, key) = (Arc::clone(plan), Arc::clone(key));
        Some(Self { store: Arc::clone(store), plan, key, lease })
    }

    pub(super) fn give_back(self, unheard: Result<Answer, Fault>) {
        let Ok(Answer { reply: Reply::Verdict(Verdict::Granted(grant)), .. }) = unheard else {
            return;
        };
        let Self { store, plan, key, lease } = self;
        let Grant { permits, receipt, .. } = grant;
        let Some(permits) = NonZeroU64::new(permits) else { return };
        let question = match lease {
            Some(lease) => Question::Release { plan, key, permits, lease },
            None => Question::Refund { plan, key, receipt, permits },
        };
        store.put(question, Box::new(|_| ()));
    }
}

/// Takes a reply, if there is one, and reads it.
fn understood<A>(
    read: fn(&Answer) -> Option<A>,
    heard: Option<Delivery<Result<Answer, Fault>>>,
) -> Result<A, Fault> {
    let answer = heard.and_then(Delivery::take).unwrap_or(Err(Fault::Closed))?;
    read(&answer).ok_or_else(|| Fault::Gone(Gone::Broken("the reply is to another request".into())))
}

fn verdict(answer: &Answer) -> Option<Verdict> {
    match &answer.reply {
        Reply::Verdict(verdict) => Some(verdict.clone()),
        _ => None,
    }
}

const fn count(answer: &Answer) -> Option<u64> {
    match &answer.reply {
        Reply::Count(count) => Some(*count),
        _ => None,
    }
}

const fn share(answer: &Answer) -> Option<Share> {
    match &answer.reply {
        Reply::Share(share) => Some(*share),
        _ => None,
    }
}
