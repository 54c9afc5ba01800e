//! Decisions about one key of a table, together with the key's status.
//!
//! While a limit is changing, decision and status are by the same numbers: the two limits are
//! never mixed in an answer.

use std::num::NonZeroU64;
use std::time::Duration;

use rategate::error::KeyedError;
use rategate::{Clock, Decision, Keyed, Status};

use super::answer::Verdict;
use super::request::Verb;
use crate::units::retry_ns;

/// The maximum number of attempts for a key whose limit changes in between.
const MAX_TRIES: usize = 4;

/// Decides about a key and returns its status. More permits than the capacity are denied for
/// good: an answer, not an error.
pub(super) fn decide<C: Clock + Clone>(
    table: &Keyed<[u8], C>,
    key: &[u8],
    verb: Verb,
    permits: u64,
) -> Result<(Verdict, Status), KeyedError> {
    let try_once = match verb {
        Verb::Take => take,
        Verb::Peek => peek,
        Verb::Charge => {
            let (charged, status) = table.charge_with_status(key, permits)?;
            return Ok((Verdict::Charged(charged.booked), status));
        }
        Verb::Refund => {
            let credited = table.credit(key, permits)?;
            return Ok((Verdict::Refunded(credited), table.status(key)?));
        }
        Verb::Reset => {
            table.reset(key)?;
            return Ok((Verdict::Reset, table.status(key)?));
        }
    };
    for _ in 1..MAX_TRIES {
        if let (outcome, true) = try_once(table, key, permits)? {
            return Ok(outcome);
        }
    }
    try_once(table, key, permits).map(|(outcome, _)| outcome)
}

/// Takes permits. Also returns `true` if verdict and status are by the same limit; if not,
/// nothing was taken.
fn take<C: Clock + Clone>(
    table: &Keyed<[u8], C>,
    key: &[u8],
    permits: u64,
) -> Result<((Verdict, Status), bool), KeyedError> {
    match table.try_acquire_with_status(key, permits) {
        Ok((decision, status)) => Ok(((Verdict::of(&decision), status), true)),
        Err(KeyedError::ExceedsCapacity(_)) => never(table, key, permits),
        Err(error) => Err(error),
    }
}

/// Peeks at a key. Also returns `true` if verdict and status are by the same limit.
fn peek<C: Clock + Clone>(
    table: &Keyed<[u8], C>,
    key: &[u8],
    permits: u64,
) -> Result<((Verdict, Status), bool), KeyedError> {
    match table.peek_with_status(key, permits) {
        Ok((_, status)) if permits == 0 => Ok(((Verdict::of_debt(&status), status), true)),
        Ok((wait, status)) => Ok(((Verdict::of_wait(wait), status), true)),
        Err(KeyedError::ExceedsCapacity(_)) => never(table, key, permits),
        Err(error) => Err(error),
    }
}

/// Returns the answer to more permits than the capacity, and `true` if they still are.
fn never<C: Clock + Clone>(
    table: &Keyed<[u8], C>,
    key: &[u8],
    permits: u64,
) -> Result<((Verdict, Status), bool), KeyedError> {
    let status = table.status(key)?;
    Ok(((Verdict::NEVER, status), permits > status.capacity))
}

impl Verdict {
    /// The verdict on more permits than the capacity.
    pub(super) const NEVER: Self = Self::Denied { retry_after_ns: None, enforced: true };

    fn of(decision: &Decision) -> Self {
        match decision {
            Decision::Granted(_) => Self::Granted,
            Decision::Denied(denial) => {
                let retry_after_ns = denial.retry_after().and_then(retry_ns);
                Self::Denied { retry_after_ns, enforced: true }
            }
        }
    }

    /// Returns the verdict on no permits: a limit that is exceeded denies even that.
    fn of_debt(status: &Status) -> Self {
        match status.debt {
            0 => Self::Granted,
            _ => Self::of_wait(status.debt_ends_in),
        }
    }

    /// Charges permits as a take that counts in any case. Returns the verdict on the take.
    pub(super) fn of_charged_take<C: Clock + Clone>(
        table: &Keyed<[u8], C>,
        key: &[u8],
        permits: u64,
    ) -> Result<(Self, Status), KeyedError> {
        let (charged, status) = table.charge_with_status(key, permits)?;
        if charged.debt == 0 {
            return Ok((Self::Granted, status));
        }
        match table.peek(key, permits) {
            // Another thread's refund has ended the debt since.
            Ok(Some(Duration::ZERO)) => {
                Ok((Self::Denied { retry_after_ns: NonZeroU64::new(1), enforced: true }, status))
            }
            Ok(wait) => Ok((Self::of_wait(wait), status)),
            Err(KeyedError::ExceedsCapacity(_)) => Ok((Self::NEVER, status)),
            Err(error) => Err(error),
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
