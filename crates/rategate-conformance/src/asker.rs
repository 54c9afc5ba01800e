//! Questions to a store, put by its one verb and waited for.

use std::num::NonZeroU64;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rategate::store::{
    Answer, Denial, Fault, Grant, Key, LeaseId, Question, Receipt, Reply, Rule, Store, Verdict,
};

/// Longer than any store's budget.
const PATIENCE: Duration = Duration::from_secs(10);

/// Somebody who asks a store about a key.
pub struct Asker<S: Store> {
    store: Arc<S>,
    plan: Arc<S::Plan>,
    key: Key,
}

// A plan need not be `Debug`.
impl<S: Store> std::fmt::Debug for Asker<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asker").field("key", &self.key).finish_non_exhaustive()
    }
}

impl<S: Store> Asker<S> {
    /// Asks about these limits of a key.
    pub fn new(store: &Arc<S>, rules: &[(&str, Rule)], key: &str) -> Self {
        let plan = Arc::new(store.plan(rules).unwrap());
        Self { store: Arc::clone(store), plan, key: key.as_bytes().into() }
    }

    /// The same about another key.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        let (store, plan) = (Arc::clone(&self.store), Arc::clone(&self.plan));
        Self { store, plan, key: key.as_bytes().into() }
    }

    /// The plan and the key, for questions of one's own.
    pub fn plan_and_key(&self) -> (Arc<S::Plan>, Key) {
        (Arc::clone(&self.plan), Arc::clone(&self.key))
    }

    /// Puts a question, and waits for what is heard: once, and nothing after it.
    pub fn put(&self, question: Question<S::Plan>) -> Result<Answer, Fault> {
        let (tell, heard) = mpsc::channel();
        self.store.put(
            question,
            Box::new(move |answer| {
                let _ = tell.send(answer);
            }),
        );
        let answer = heard.recv_timeout(PATIENCE);
        answer.expect("a store calls whoever hears, within its budget")
    }

    /// Decides.
    pub fn decide(&self, permits: u64) -> Result<Verdict, Fault> {
        self.decide_as(permits, None)
    }

    /// Decides about permits in flight.
    pub fn hold(&self, permits: u64, lease: LeaseId) -> Result<Verdict, Fault> {
        self.decide_as(permits, Some(lease))
    }

    fn decide_as(&self, permits: u64, lease: Option<LeaseId>) -> Result<Verdict, Fault> {
        let ((plan, key), permits) = (self.plan_and_key(), number(permits));
        self.put(Question::Decide { plan, key, permits, lease }).map(verdict)
    }

    /// Takes as many as pass.
    pub fn debit(&self, permits: u64) -> Result<Verdict, Fault> {
        let ((plan, key), permits) = (self.plan_and_key(), number(permits));
        self.put(Question::Debit { plan, key, permits }).map(verdict)
    }

    /// Looks.
    pub fn peek(&self, permits: u64) -> Result<Verdict, Fault> {
        let ((plan, key), permits) = (self.plan_and_key(), number(permits));
        self.put(Question::Peek { plan, key, permits }).map(verdict)
    }

    /// Gives back.
    pub fn refund(&self, receipt: &Receipt, permits: u64) -> Result<u64, Fault> {
        let ((plan, key), permits) = (self.plan_and_key(), number(permits));
        let receipt = receipt.clone();
        self.put(Question::Refund { plan, key, receipt, permits }).map(count)
    }

    /// Gives back without a grant to show.
    pub fn give_back(&self, permits: u64) -> Result<u64, Fault> {
        let ((plan, key), permits) = (self.plan_and_key(), number(permits));
        self.put(Question::GiveBack { plan, key, permits }).map(count)
    }

    /// Ends what is held.
    pub fn release(&self, permits: u64, lease: LeaseId) -> Result<u64, Fault> {
        let ((plan, key), permits) = (self.plan_and_key(), number(permits));
        self.put(Question::Release { plan, key, permits, lease }).map(count)
    }

    /// Lets it go on.
    pub fn renew(&self, permits: u64, lease: LeaseId) -> Result<u64, Fault> {
        let ((plan, key), permits) = (self.plan_and_key(), number(permits));
        self.put(Question::Renew { plan, key, permits, lease }).map(count)
    }

    /// Forgets.
    pub fn reset(&self) -> Result<u64, Fault> {
        let (plan, key) = self.plan_and_key();
        self.put(Question::Reset { plan, key }).map(count)
    }

    /// Decides, and is granted.
    pub fn granted(&self, permits: u64) -> Grant {
        granted(self.decide(permits).unwrap())
    }

    /// Decides, and is denied.
    pub fn denied(&self, permits: u64) -> Denial {
        denied(self.decide(permits).unwrap())
    }

    /// How many one call could take.
    pub fn remaining(&self) -> u64 {
        match self.peek(1).unwrap() {
            Verdict::Granted(grant) => grant.remaining,
            Verdict::Denied(denial) => denial.remaining,
        }
    }
}

/// So many permits.
pub(crate) fn number(permits: u64) -> NonZeroU64 {
    NonZeroU64::new(permits).expect("no question is about no permits")
}

/// How long a denial says to wait, in the microseconds of the slowest clock.
pub(crate) fn wait_us(denial: Denial) -> Option<u64> {
    denial.retry_after_ns.map(|ns| ns.get().div_ceil(1_000))
}

pub(crate) fn granted(verdict: Verdict) -> Grant {
    match verdict {
        Verdict::Granted(grant) => grant,
        Verdict::Denied(denial) => panic!("{denial:?}"),
    }
}

pub(crate) fn denied(verdict: Verdict) -> Denial {
    match verdict {
        Verdict::Denied(denial) => denial,
        Verdict::Granted(grant) => panic!("{grant:?}"),
    }
}

fn verdict(answer: Answer) -> Verdict {
    match answer.reply {
        Reply::Verdict(verdict) => verdict,
        other => panic!("{other:?} is no verdict"),
    }
}

fn count(answer: Answer) -> u64 {
    match answer.reply {
        Reply::Count(count) => count,
        other => panic!("{other:?} is no count"),
    }
}
