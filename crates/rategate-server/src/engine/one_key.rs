//! Decisions about one key of a table, together with the key's status.
//!
//! While a limit is changing, decision and status are by the same numbers: the two limits are
//! never mixed in an answer.

use std::num::NonZeroU64;
use std::time::Duration;

use rategate::{Clock, Decision, Keyed, KeyedError, Look, Twinned};

use super::answer::Verdict;
use super::request::Verb;

/// The maximum number of attempts for a key whose limit changes in between.
const MAX_TRIES: usize = 4;

/// Decides about a key and returns its status. More permits than the capacity are denied for
/// good: an answer, not an error.
pub(super) fn decide<P: Twinned, C: Clock + Clone>(
    table: &Keyed<[u8], P, C>,
    key: &[u8],
    verb: Verb,
    permits: u64,
) -> Result<(Verdict, Look), KeyedError> {
    let try_once = match verb {
        Verb::Take => take,
        Verb::Peek => peek,
        Verb::Refund => {
            let back = table.give_back(key, permits)?;
            return Ok((Verdict::Refunded(back), table.look(key)?));
        }
        Verb::Reset => {
            table.reset(key)?;
            return Ok((Verdict::Reset, table.look(key)?));
        }
    };
    for _ in 1..MAX_TRIES {
        if let (told, true) = try_once(table, key, permits)? {
            return Ok(told);
        }
    }
    try_once(table, key, permits).map(|(told, _)| told)
}

/// Takes permits. Also returns `true` if verdict and status are by the same limit; if not,
/// nothing was taken.
fn take<P: Twinned, C: Clock + Clone>(
    table: &Keyed<[u8], P, C>,
    key: &[u8],
    permits: u64,
) -> Result<((Verdict, Look), bool), KeyedError> {
    match table.try_acquire_told(key, permits) {
        Ok((decision, look)) => Ok(((Verdict::of(&decision), look), true)),
        Err(KeyedError::ExceedsCapacity(_)) => {
            let look = table.look(key)?;
            Ok(((Verdict::NEVER, look), permits > look.capacity))
        }
        Err(error) => Err(error),
    }
}

/// Peeks at a key. Also returns `true` if verdict and status are by the same limit.
fn peek<P: Twinned, C: Clock + Clone>(
    table: &Keyed<[u8], P, C>,
    key: &[u8],
    permits: u64,
) -> Result<((Verdict, Look), bool), KeyedError> {
    let before = table.look(key)?;
    let verdict = match table.peek(key, permits) {
        Ok(wait) => Verdict::of_wait(wait),
        Err(KeyedError::ExceedsCapacity(_)) => Verdict::NEVER,
        Err(error) => return Err(error),
    };
    let look = table.look(key)?;
    Ok(((verdict, look), before.capacity == look.capacity))
}

impl Verdict {
    /// The verdict on more permits than the capacity.
    pub(super) const NEVER: Self = Self::Denied { retry_after_ns: None, enforced: true };

    fn of(decision: &Decision) -> Self {
        match decision {
            Decision::Granted(_) => Self::Granted,
            Decision::Denied(denial) => {
                Self::Denied { retry_after_ns: denial.retry_after_ns(), enforced: true }
            }
        }
    }

    /// Returns the verdict on permits that are available after `wait`; never, if `None`.
    fn of_wait(wait: Option<Duration>) -> Self {
        match wait {
            Some(Duration::ZERO) => Self::Granted,
            wait => {
                let wait_ns = wait.map(|wait| u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
                Self::Denied { retry_after_ns: wait_ns.and_then(NonZeroU64::new), enforced: true }
            }
        }
    }
}
