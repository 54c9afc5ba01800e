//! What decides whether a request passes: the only place that asks a limiter.

use rategate::{Clock, Concurrent, Decision, Limiter, LimiterError};

use crate::headers::Standing;
use crate::key::Key;
use crate::refusal::{Reason, Refusal};

/// A request, as far as a limit is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) key: Key,
    /// In permits, at least one.
    pub(crate) cost: u64,
    /// Whether the client will be told where it stands.
    pub(crate) tells: bool,
}

/// What comes of it.
#[derive(Debug)]
pub(crate) enum Outcome {
    Passed(Option<Standing>),
    Refused(Refusal, Option<Standing>),
}

/// One limiter for all, or one for each key.
pub(crate) trait Gate: Send + Sync {
    /// Decides at once.
    fn try_pass(&self, ask: Ask) -> Outcome;
}

impl<L, C> Gate for Limiter<L, C>
where
    L: Concurrent + Send,
    C: Clock,
{
    fn try_pass(&self, ask: Ask) -> Outcome {
        match self.try_acquire(ask.cost) {
            Ok(Decision::Granted(grant)) => {
                let standing = ask.tells.then(|| standing(self, grant.remaining()));
                Outcome::Passed(standing)
            }
            Ok(Decision::Denied(denial)) => {
                let retry_after = denial.retry_after();
                let standing = ask.tells.then(|| {
                    // Some may have been earned since the denial, which was about less.
                    let most = ask.cost.saturating_sub(1);
                    let remaining = self.remaining().unwrap_or(0).min(most);
                    Standing { remaining, more_after: retry_after }
                });
                Outcome::Refused(Refusal::new(Reason::OverLimit, retry_after), standing)
            }
            Err(LimiterError::ExceedsCapacity(_)) => refused(Reason::TooCostly),
            Err(_) => refused(Reason::Closed),
        }
    }
}

/// A refusal that no time helps.
pub(crate) const fn refused(reason: Reason) -> Outcome {
    Outcome::Refused(Refusal::new(reason, None), None)
}

/// What is left after a grant, and when it will be more. A full bucket could never pass more, so the
/// question for it is refused.
fn standing<L: Concurrent, C: Clock>(limiter: &Limiter<L, C>, remaining: u64) -> Standing {
    let more_after = limiter.peek(remaining.saturating_add(1)).ok().flatten();
    Standing { remaining, more_after }
}
