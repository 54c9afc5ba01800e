//! Outcomes of calls, as far as statistics distinguish them.

use std::time::Duration;

use crate::decision::{Decision, Grant};
use crate::error::AcquireError;

/// The divisor of the limit: a grant that leaves less than the quotient is near.
const NEAR_FRACTION: u64 = 10;

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The permits are the caller's.
    Granted {
        /// `true` if less than a tenth of the limit was left then.
        is_near: bool,
    },
    /// The limit sent the caller away.
    Denied {
        /// The wait after which the same call would have passed, if time could help.
        retry_after: Option<Duration>,
    },
}

impl Outcome {
    /// Returns the outcome of a try under a limit that grants at most `limit` permits at once.
    /// `remaining` is called after a grant, and returns what it has left.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::{Limiter, ManualClock, SlidingLog, stats::Outcome};
    ///
    /// let log = SlidingLog::new(20, Duration::from_secs(1));
    /// let limiter = Limiter::with_clock(log, ManualClock::new());
    /// let remaining = || limiter.remaining().unwrap_or(0);
    /// let outcome = |decision| Outcome::of(&decision, remaining, 20);
    /// assert_eq!(outcome(limiter.try_acquire(18)?), Outcome::Granted { is_near: false });
    /// assert_eq!(outcome(limiter.try_acquire(1)?), Outcome::Granted { is_near: true });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn of(decision: &Decision, remaining: impl FnOnce() -> u64, limit: u64) -> Self {
        match decision {
            Decision::Granted(_) => Self::granted(remaining(), limit),
            Decision::Denied(denial) => Self::Denied { retry_after: denial.retry_after() },
        }
    }

    /// Creates the outcome of a grant that leaves `remaining` permits, decided by other means.
    #[inline]
    #[must_use]
    pub const fn granted(remaining: u64, limit: u64) -> Self {
        Self::Granted { is_near: remaining < limit.div_ceil(NEAR_FRACTION) }
    }

    /// Returns the outcome of a wait, or `None` if the limit had no part in its end.
    pub(crate) fn of_wait(
        ended: &Result<Grant, AcquireError>,
        remaining: impl FnOnce() -> u64,
        limit: u64,
    ) -> Option<Self> {
        let retry_after = match ended {
            Ok(_) => return Some(Self::granted(remaining(), limit)),
            Err(AcquireError::TooLong(too_long)) => {
                Some(too_long.retry_after()).filter(|wait| !wait.is_zero())
            }
            Err(
                AcquireError::TimeCannotHelp
                | AcquireError::Held
                | AcquireError::DeadlinePassed
                | AcquireError::QueueFull
                | AcquireError::Evicted,
            ) => None,
            Err(
                AcquireError::Closed | AcquireError::ExceedsCapacity(_) | AcquireError::Interrupted,
            ) => return None,
        };
        Some(Self::Denied { retry_after })
    }
}
