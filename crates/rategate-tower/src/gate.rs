//! What decides whether a request passes: the only place that asks a limiter.

use std::pin::Pin;
use std::time::Duration;

use rategate::{
    AcquireError, AsyncLimiter, Clock, Concurrent, Decision, Grant, Limiter, LimiterError,
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

/// One limiter for all, or one for each key.
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
        Pass::Now(match (self.try_acquire(ask.cost), ask.longest_wait) {
            (Ok(Decision::Granted(grant)), _) => passed(self, ask, grant),
            (Ok(Decision::Denied(_)), Some(longest)) => {
                return Pass::Later(wait(self.clone(), ask, longest));
            }
            (Ok(Decision::Denied(denial)), None) => over_limit(self, ask, denial.retry_after()),
            (Err(LimiterError::ExceedsCapacity(_)), _) => refused(Reason::TooCostly),
            (Err(_), _) => refused(Reason::Closed),
        })
    }
}

/// Stands in line for up to `longest`.
fn wait<L, C>(limiter: Limiter<L, C>, ask: Ask, longest: Duration) -> Turn
where
    L: Concurrent + Send + 'static,
    C: Clock + 'static,
{
    let line = AsyncLimiter::from(limiter);
    Box::pin(async move {
        let limiter = line.limiter();
        match line.acquire_within(ask.cost, longest).await {
            Ok(grant) => passed(limiter, ask, grant),
            // When the line will be short enough, not when it will be gone.
            Err(AcquireError::TooLong(late)) => over_limit(limiter, ask, Some(late.retry_after())),
            Err(AcquireError::TimeCannotHelp | AcquireError::DeadlinePassed) => {
                over_limit(limiter, ask, limiter.peek(ask.cost).ok().flatten())
            }
            Err(AcquireError::QueueFull | AcquireError::Evicted) => refused(Reason::TooManyWaiting),
            Err(AcquireError::ExceedsCapacity(_)) => refused(Reason::TooCostly),
            Err(_) => refused(Reason::Closed),
        }
    })
}

fn passed<L, C>(limiter: &Limiter<L, C>, ask: Ask, grant: Grant) -> Outcome
where
    L: Concurrent + Send + 'static,
    C: Clock + 'static,
{
    let standing = ask.tells.then(|| {
        // A full bucket could never pass more than it has, so the question for it is refused.
        let remaining = grant.remaining();
        let more_after = limiter.peek(remaining.saturating_add(1)).ok().flatten();
        Standing { remaining, more_after }
    });
    let give_back = ask.may_return.then(|| -> GiveBack {
        let limiter = limiter.clone();
        Box::new(move || {
            // To a limiter that is closed nothing has to go back.
            let _ = limiter.refund(&grant, grant.permits());
        })
    });
    Outcome::Passed(standing, give_back)
}

fn over_limit<L: Concurrent, C: Clock>(
    limiter: &Limiter<L, C>,
    ask: Ask,
    retry_after: Option<Duration>,
) -> Outcome {
    let standing = ask.tells.then(|| {
        // Some may have been earned since the denial, which was about less.
        let most = ask.cost.saturating_sub(1);
        let remaining = limiter.remaining().unwrap_or(0).min(most);
        Standing { remaining, more_after: retry_after }
    });
    Outcome::Refused(Refusal::new(Reason::OverLimit, retry_after), standing)
}

/// A refusal that no time helps.
pub(crate) const fn refused(reason: Reason) -> Outcome {
    Outcome::Refused(Refusal::new(reason, None), None)
}
