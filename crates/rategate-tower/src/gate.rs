//! What decides whether a request passes: the only place that asks a limit.

use std::pin::Pin;
use std::time::Duration;

use rategate::{
    AcquireError, AsyncLimiter, Clock, Concurrent, Decision, Grant, Keyed, KeyedError, Ledger,
    Limiter, LimiterError, Twinned,
};

use crate::headers::Standing;
use crate::key::Key;
use crate::refusal::{Reason, Refusal};

/// A request, as far as a limit is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) key: Key,
    /// In permits, at least one.
    pub(crate) cost: u64,
    /// How long it may wait in line, if at all.
    pub(crate) longest_wait: Option<Duration>,
    /// Whether the client will be told where it stands.
    pub(crate) tells: bool,
    /// Whether the response may give the permits back.
    pub(crate) may_return: bool,
}

/// Gives back what a request has taken.
pub(crate) type GiveBack = Box<dyn FnOnce() + Send>;

/// What comes of it.
pub(crate) enum Outcome {
    Passed(Option<Standing>, Option<GiveBack>),
    Refused(Refusal, Option<Standing>),
}

/// When that is known.
pub(crate) enum Pass {
    Now(Outcome),
    Later(Turn),
}

/// A request's wait in line, and what comes of it. The place in line is that of the first poll;
/// dropped, it is given up.
pub(crate) type Turn = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// One limiter for all, or a table with a limit for each key.
pub(crate) trait Gate: Send + Sync {
    /// Decides at once, or puts the request in line if it may wait.
    fn pass(&self, ask: Ask) -> Pass;
}

impl<L, C> Gate for Limiter<L, C>
where
    L: Concurrent + Send + 'static,
    C: Clock + 'static,
{
    fn pass(&self, ask: Ask) -> Pass {
        decide(self, ask)
    }
}

impl<P, C> Gate for Keyed<Key, P, C>
where
    P: Twinned + Send + Sync + 'static,
    P::State: Send,
    Ledger<P>: Send,
    C: Clock + Clone + 'static,
{
    fn pass(&self, ask: Ask) -> Pass {
        decide(&OfKey { keyed: self, key: ask.key }, ask)
    }
}

/// The limit that a request is under, as it is asked here.
trait Limit {
    fn try_acquire(&self, permits: u64) -> Result<Decision, Reason>;

    /// How long until so many permits could be taken, if time helps.
    fn peek(&self, permits: u64) -> Option<Duration>;

    /// How many permits could be taken now.
    fn remaining(&self) -> u64;

    /// Stands in line for up to `longest`.
    fn wait(&self, ask: Ask, longest: Duration) -> Result<Turn, Reason>;

    /// What gives back a grant of this limit.
    fn give_back(&self, grant: Grant) -> GiveBack;
}

impl<L, C> Limit for Limiter<L, C>
where
    L: Concurrent + Send + 'static,
    C: Clock + 'static,
{
    fn try_acquire(&self, permits: u64) -> Result<Decision, Reason> {
        Self::try_acquire(self, permits).map_err(|error| match error {
            LimiterError::ExceedsCapacity(_) => Reason::TooCostly,
            _ => Reason::Closed,
        })
    }

    fn peek(&self, permits: u64) -> Option<Duration> {
        Self::peek(self, permits).ok().flatten()
    }

    fn remaining(&self) -> u64 {
        Self::remaining(self).unwrap_or(0)
    }

    fn wait(&self, ask: Ask, longest: Duration) -> Result<Turn, Reason> {
        let line = AsyncLimiter::from(self.clone());
        Ok(Box::pin(async move {
            let waited = line.acquire_within(ask.cost, longest).await;
            waited_for(line.limiter(), ask, waited)
        }))
    }

    fn give_back(&self, grant: Grant) -> GiveBack {
        let limiter = self.clone();
        Box::new(move || {
            // To a limiter that is closed nothing has to go back.
            let _ = limiter.refund(&grant, grant.permits());
        })
    }
}

/// A key's limit in a table: a few bytes for as long as nobody waits for it.
struct OfKey<'a, P: Twinned, C: Clock> {
    keyed: &'a Keyed<Key, P, C>,
    key: Key,
}

impl<P, C> Limit for OfKey<'_, P, C>
where
    P: Twinned + Send + Sync + 'static,
    P::State: Send,
    Ledger<P>: Send,
    C: Clock + Clone + 'static,
{
    fn try_acquire(&self, permits: u64) -> Result<Decision, Reason> {
        self.keyed.try_acquire(&self.key, permits).map_err(reason)
    }

    fn peek(&self, permits: u64) -> Option<Duration> {
        self.keyed.peek(&self.key, permits).ok().flatten()
    }

    fn remaining(&self) -> u64 {
        self.keyed.remaining(&self.key).unwrap_or(0)
    }

    fn wait(&self, ask: Ask, longest: Duration) -> Result<Turn, Reason> {
        // Whoever waits has the key's limiter, and so keeps it in the table, from before the first
        // poll on.
        let limiter = match self.keyed.limiter(&self.key) {
            Ok(limiter) => limiter,
            Err(KeyedError::TableFull) => return Err(Reason::TooManyWaiting),
            Err(error) => return Err(reason(error)),
        };
        let known = Known { keyed: self.keyed.clone(), key: self.key };
        let in_line = InLine { line: AsyncLimiter::from(limiter), known };
        Ok(Box::pin(in_line.wait(ask, longest)))
    }

    fn give_back(&self, grant: Grant) -> GiveBack {
        let (keyed, key) = (self.keyed.clone(), self.key);
        Box::new(move || {
            // If there is no room for what has come back, it has not.
            let _ = keyed.refund(&key, &grant, grant.permits());
        })
    }
}

/// A request that waits for its key's limiter, which it lets go of first.
struct InLine<P: Twinned, C: Clock + Clone> {
    line: AsyncLimiter<Ledger<P>, C>,
    known: Known<P, C>,
}

impl<P, C> InLine<P, C>
where
    P: Twinned + Send + Sync + 'static,
    P::State: Send,
    Ledger<P>: Send,
    C: Clock + Clone + 'static,
{
    async fn wait(self, ask: Ask, longest: Duration) -> Outcome {
        let waited = self.line.acquire_within(ask.cost, longest).await;
        let Known { keyed, key } = &self.known;
        waited_for(&OfKey { keyed, key: *key }, ask, waited)
    }
}

/// A key that was waited for. A table sees that nobody has a key's limiter any more when it is asked for
/// that key, or by chance; so it is asked.
struct Known<P: Twinned, C: Clock + Clone> {
    keyed: Keyed<Key, P, C>,
    key: Key,
}

impl<P: Twinned, C: Clock + Clone> Drop for Known<P, C> {
    fn drop(&mut self) {
        let _ = self.keyed.remaining(&self.key);
    }
}

/// Why a table gives no answer.
const fn reason(error: KeyedError) -> Reason {
    match error {
        KeyedError::ExceedsCapacity(_) => Reason::TooCostly,
        KeyedError::TableFull => Reason::TooManyKeys,
        KeyedError::NoSuchTier { .. } => Reason::NoSuchTier,
        _ => Reason::Closed,
    }
}

fn decide(limit: &impl Limit, ask: Ask) -> Pass {
    Pass::Now(match (limit.try_acquire(ask.cost), ask.longest_wait) {
        (Ok(Decision::Granted(grant)), _) => passed(limit, ask, grant),
        (Ok(Decision::Denied(_)), Some(longest)) => match limit.wait(ask, longest) {
            Ok(turn) => return Pass::Later(turn),
            Err(reason) => refused(reason),
        },
        (Ok(Decision::Denied(denial)), None) => over_limit(limit, ask, denial.retry_after()),
        (Err(reason), _) => refused(reason),
    })
}

/// What has come of a wait.
fn waited_for(limit: &impl Limit, ask: Ask, waited: Result<Grant, AcquireError>) -> Outcome {
    match waited {
        Ok(grant) => passed(limit, ask, grant),
        // When the line will be short enough, not when it will be gone.
        Err(AcquireError::TooLong(late)) => over_limit(limit, ask, Some(late.retry_after())),
        Err(AcquireError::TimeCannotHelp | AcquireError::DeadlinePassed) => {
            over_limit(limit, ask, limit.peek(ask.cost))
        }
        Err(AcquireError::QueueFull | AcquireError::Evicted) => refused(Reason::TooManyWaiting),
        Err(AcquireError::ExceedsCapacity(_)) => refused(Reason::TooCostly),
        Err(_) => refused(Reason::Closed),
    }
}

fn passed(limit: &impl Limit, ask: Ask, grant: Grant) -> Outcome {
    let standing = ask.tells.then(|| {
        // A full bucket could never pass more than it has, so the question for it is refused.
        let remaining = grant.remaining();
        Standing { remaining, more_after: limit.peek(remaining.saturating_add(1)) }
    });
    Outcome::Passed(standing, ask.may_return.then(|| limit.give_back(grant)))
}

fn over_limit(limit: &impl Limit, ask: Ask, retry_after: Option<Duration>) -> Outcome {
    let standing = ask.tells.then(|| {
        // Some may have been earned since the denial, which was about less.
        let most = ask.cost.saturating_sub(1);
        Standing { remaining: limit.remaining().min(most), more_after: retry_after }
    });
    Outcome::Refused(Refusal::new(Reason::OverLimit, retry_after), standing)
}

/// A refusal that no time helps.
pub(crate) const fn refused(reason: Reason) -> Outcome {
    Outcome::Refused(Refusal::new(reason, None), None)
}
