//! What decides whether a request passes: the only place that asks a limit.

mod distributed;
mod keyed;
mod limiter;
mod taken;

use std::pin::Pin;
use std::time::Duration;

use rategate::{AcquireError, Denial, Grant};

use crate::headers::{Numbers, Standing};
use crate::key::Key;
use crate::refusal::{Reason, Refusal};

pub(crate) use self::limiter::One;
pub(crate) use self::taken::{InFlight, Taken};

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

/// What comes of it.
pub(crate) enum Outcome {
    Passed(Option<Told>, Option<Taken>),
    Refused(Refusal, Option<Told>),
}

/// What a client is told: where which key stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) key: Key,
    pub(crate) standing: Standing,
}

impl Told {
    const fn new(ask: Ask, remaining: u64, more_after: Option<Duration>) -> Self {
        Self { key: ask.key, standing: Standing { remaining, more_after } }
    }
}

/// When that is known.
pub(crate) enum Pass {
    Now(Outcome),
    Later(Turn),
}

/// A request's wait in line, and what comes of it. The place in line is that of the first poll;
/// dropped, it is given up.
pub(crate) type Turn = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// One limiter for all, a table with a limit for each key, or a limit that several processes keep together.
pub(crate) trait Gate: Send + Sync {
    /// Decides at once, or says that the decision has to be waited for: in line, or from a store. The name of the key
    /// is for a store; it is empty where there is none.
    fn pass(&self, ask: Ask, name: Vec<u8>) -> Pass;

    /// Returns how long until the request could pass, if that is known without asking another process. Takes nothing.
    fn wait(&self, ask: Ask) -> Option<Duration> {
        let _ = ask;
        None
    }

    /// Another number after each change of the limit.
    fn changes(&self) -> u64 {
        0
    }

    /// The tier of a key.
    fn tier(&self, key: &Key) -> usize {
        let _ = key;
        0
    }

    /// The numbers in force for a tier, if they can be told.
    fn numbers(&self, tier: usize) -> Option<Numbers> {
        let _ = tier;
        None
    }
}

/// A request that passes: what was granted, and what of it is still to come back.
struct Passage {
    grant: Grant,
    taken: Option<Taken>,
}

/// What a limit answers at once; the outer error says why it gives no answer.
type Answer = Result<Result<Passage, Denial>, Reason>;

/// The limit that a request is under, as it is asked here.
trait Limit {
    /// Takes what the request costs, if it is there.
    fn try_take(&self, ask: Ask) -> Answer;

    /// How long until so many permits could be taken, if time helps.
    fn peek(&self, permits: u64) -> Option<Duration>;

    /// How many permits could be taken now.
    fn remaining(&self) -> u64;

    /// Stands in line for up to `longest`.
    fn wait(&self, ask: Ask, longest: Duration) -> Result<Turn, Reason>;
}

fn decide(limit: &impl Limit, ask: Ask) -> Pass {
    Pass::Now(match (limit.try_take(ask), ask.longest_wait) {
        (Ok(Ok(passage)), _) => passed(limit, ask, passage),
        (Ok(Err(_)), Some(longest)) => match limit.wait(ask, longest) {
            Ok(turn) => return Pass::Later(turn),
            Err(reason) => refused(reason),
        },
        (Ok(Err(denial)), None) => over_limit(limit, ask, denial.retry_after()),
        (Err(reason), _) => refused(reason),
    })
}

/// What has come of a wait.
fn waited_for(limit: &impl Limit, ask: Ask, waited: Result<Passage, AcquireError>) -> Outcome {
    match waited {
        Ok(passage) => passed(limit, ask, passage),
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

fn passed(limit: &impl Limit, ask: Ask, passage: Passage) -> Outcome {
    let told = ask.tells.then(|| {
        // A full bucket could never pass more than it has, so the question for it is refused.
        let remaining = passage.grant.remaining();
        Told::new(ask, remaining, limit.peek(remaining.saturating_add(1)))
    });
    Outcome::Passed(told, passage.taken)
}

fn over_limit(limit: &impl Limit, ask: Ask, retry_after: Option<Duration>) -> Outcome {
    let told = ask.tells.then(|| {
        // Some may have been earned since the denial, which was about less.
        let most = ask.cost.saturating_sub(1);
        Told::new(ask, limit.remaining().min(most), retry_after)
    });
    Outcome::Refused(Refusal::new(Reason::OverLimit, retry_after), told)
}

/// A refusal that no time helps.
pub(crate) const fn refused(reason: Reason) -> Outcome {
    Outcome::Refused(Refusal::new(reason, None), None)
}
