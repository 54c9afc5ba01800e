//! Decisions on requests: the only module that calls a limit.

mod distributed;
mod keyed;
mod limiter;
mod taken;

use std::pin::Pin;
use std::time::Duration;

use rategate::{AcquireError, Denial, Share};

use crate::headers::{Numbers, QuotaStatus};
use crate::key::Key;
use crate::refusal::{Reason, Refusal};

pub(crate) use self::limiter::One;
pub(crate) use self::taken::{InFlight, Taken};

/// A request, as far as a limit is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitRequest {
    pub(crate) key: Key,
    /// The cost in permits, at least one.
    pub(crate) cost: u64,
    /// The share of the limit that it may fill. In one that is not whole it does not wait.
    pub(crate) share: Share,
    /// The longest time that it may wait in the queue; `None` if it does not wait.
    pub(crate) max_wait: Option<Duration>,
    /// `true` if the client is sent its status.
    pub(crate) reports_status: bool,
    /// `true` if the response may refund the permits.
    pub(crate) may_return: bool,
}

/// The outcome of a request.
pub(crate) enum Outcome {
    Passed(Option<KeyStatus>, Option<Taken>),
    Refused(Refusal, Option<KeyStatus>),
}

/// The status that a client is sent, with its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyStatus {
    pub(crate) key: Key,
    pub(crate) quota_status: QuotaStatus,
}

impl KeyStatus {
    const fn new(
        limit_request: LimitRequest,
        remaining: u64,
        more_after: Option<Duration>,
    ) -> Self {
        let quota_status = QuotaStatus { remaining, more_after };
        Self { key: limit_request.key, quota_status }
    }
}

/// An outcome that is known now, or later.
pub(crate) enum Pass {
    Now(Outcome),
    Later(PendingOutcome),
}

/// The wait of a request, and its outcome. The first poll determines the position in the wait
/// queue; dropping it leaves the queue.
pub(crate) type PendingOutcome = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A limit: one limiter for all requests, a table with one limit per key, or a limit that several
/// processes share.
pub(crate) trait Gate: Send + Sync {
    /// Decides at once, or returns a future for the wait queue or the store. The name of the key
    /// is for a store, and empty without one.
    fn pass(&self, limit_request: LimitRequest, name: Vec<u8>) -> Pass;

    /// Returns the time until the request could pass, if known without another process. Takes
    /// nothing.
    fn wait(&self, limit_request: LimitRequest) -> Option<Duration> {
        let _ = limit_request;
        None
    }

    /// Returns a number that differs after each change of the limit.
    fn changes(&self) -> u64 {
        0
    }

    /// Returns the tier of a key.
    fn tier(&self, key: &Key) -> usize {
        let _ = key;
        0
    }

    /// Returns the numbers in force for a tier, if a quota policy can express them.
    fn numbers(&self, tier: usize) -> Option<Numbers> {
        let _ = tier;
        None
    }
}

/// The decision of a limit: the permits that may still come back after the request, if any may.
/// The outer error is the reason why there is none.
type Answer = Result<Result<Option<Taken>, Denial>, Reason>;

/// The limit of one request.
trait Limit {
    /// Takes the cost of the request, if available.
    fn try_take(&self, limit_request: LimitRequest) -> Answer;

    /// Returns the time until `permits` could be taken, if waiting helps.
    fn peek(&self, permits: u64) -> Option<Duration>;

    /// Returns the number of permits that could be taken now.
    fn remaining(&self) -> u64;

    /// Waits in the limit's queue for up to `max_wait`.
    fn wait(
        &self,
        limit_request: LimitRequest,
        max_wait: Duration,
    ) -> Result<PendingOutcome, Reason>;
}

fn decide(limit: &impl Limit, limit_request: LimitRequest) -> Pass {
    Pass::Now(match (limit.try_take(limit_request), limit_request.max_wait) {
        (Ok(Ok(passed_request)), _) => passed(limit, limit_request, passed_request),
        (Ok(Err(_)), Some(max_wait)) if limit_request.share.is_whole() => {
            match limit.wait(limit_request, max_wait) {
                Ok(pending) => return Pass::Later(pending),
                Err(reason) => refused(reason),
            }
        }
        (Ok(Err(denial)), _) => over_limit(limit, limit_request, denial.retry_after()),
        (Err(reason), _) => refused(reason),
    })
}

/// Returns the outcome of a wait.
fn waited_for(
    limit: &impl Limit,
    limit_request: LimitRequest,
    waited: Result<Option<Taken>, AcquireError>,
) -> Outcome {
    match waited {
        Ok(taken) => passed(limit, limit_request, taken),
        // The time until the queue is short enough, not until it is empty.
        Err(AcquireError::TooLong(late)) => {
            over_limit(limit, limit_request, Some(late.retry_after()))
        }
        Err(AcquireError::TimeCannotHelp | AcquireError::Held | AcquireError::DeadlinePassed) => {
            over_limit(limit, limit_request, limit.peek(limit_request.cost))
        }
        Err(AcquireError::QueueFull | AcquireError::Evicted) => refused(Reason::TooManyWaiting),
        Err(AcquireError::ExceedsCapacity(_)) => refused(Reason::TooCostly),
        Err(_) => refused(Reason::Closed),
    }
}

fn passed(limit: &impl Limit, limit_request: LimitRequest, taken: Option<Taken>) -> Outcome {
    let key_status = limit_request.reports_status.then(|| {
        // A full bucket never holds more, so there is no time until one more permit.
        let remaining = limit.remaining();
        KeyStatus::new(limit_request, remaining, limit.peek(remaining.saturating_add(1)))
    });
    Outcome::Passed(key_status, taken)
}

fn over_limit(
    limit: &impl Limit,
    limit_request: LimitRequest,
    retry_after: Option<Duration>,
) -> Outcome {
    let key_status = limit_request.reports_status.then(|| {
        // Permits may have accrued since the denial, which concerned fewer.
        let max_remaining = limit_request.cost.saturating_sub(1);
        KeyStatus::new(limit_request, limit.remaining().min(max_remaining), retry_after)
    });
    Outcome::Refused(Refusal::new(Reason::OverLimit, retry_after), key_status)
}

/// Returns a refusal that waiting does not help.
pub(crate) const fn refused(reason: Reason) -> Outcome {
    Outcome::Refused(Refusal::new(reason, None), None)
}
