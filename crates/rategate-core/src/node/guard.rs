//! Guarded limits, which a store must enforce so that leases never exceed the promised limit.
//!
//! A store decides about *debits*; a node acts up to the lease's length `L` later. An action in a
//! window `[t, t + M)` therefore comes from a debit in `[t - L, t + M)`, a window of length
//! `M + L`:
//!
//! ```text
//!   debits      |<-- L -->|<------------ M ------------>|
//!   ------------d---------+----a------------------------+--------> time
//!               debited here   used here
//! ```
//!
//! So a limit that keeps the promise for windows longer by `L` suffices
//! (docs/theory.md, section 5.2):
//!
//! * **Sliding log, compact log**, `N` in any `M`: a debit stays in the log for `M + L`. At most
//!   `N` debits are in any window of `M + L`, so at most `N` actions in any of `M`. The price is
//!   rate: `N / (M + L)`.
//! * **Token bucket** of rate `r` and burst `b`: the same rate and the burst
//!   `b' = b - ceil(r L)`. Debits in any window `W` are at most `ceil(r W + b' - 1)`, so actions
//!   in any window `M` are at most `ceil(r (M + L) + b' - 1) <= ceil(r M + b - 1)`, which is the
//!   bucket's own ceiling for every `M`. The price is burst.
//! * **Fixed window**: no guard, and no price. A lease ends with the window of its debit, so
//!   every action is in the window that counted it.
//!
//! Without a guard, actions in a window exceed the limit's ceiling by at most
//! [`outstanding`](Lent::outstanding): what was lent before the window began and could still be
//! used then.
//!
//! ```
//! use rategate_core::gcra::Gcra;
//! use rategate_core::node::{GuardError, Lent, guarded};
//! use rategate_core::rate::Rate;
//!
//! let bucket = Gcra::new(Rate::per_second(1_000), 100)?;
//! // Lent for 40 ms, in which it earns 40 permits.
//! assert_eq!(guarded(bucket, 40_000_000)?.burst_size().get(), 60);
//! let too_long = GuardError::Burst { max_ns: 99_000_000 };
//! assert_eq!(guarded(bucket, 1_000_000_000), Err(too_long));
//! // Without a guard, ten nodes with up to five units each exceed the limit by at most:
//! assert_eq!(bucket.outstanding(10, 5, 1_000_000_000), 50);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::error::Error;
use core::fmt;
use core::time::Duration;

use crate::fixed_window::FixedWindow;
use crate::gcra::Gcra;
use crate::rate::{Kind, Rate};
use crate::sliding_log::SlidingLog;
use crate::wide::{mul_div_ceil, mul_div_floor};

/// A limit whose permits can be lent for a time.
pub trait Lent: Sized {
    /// Returns the limit on debits that keeps this limit on actions up to `length_ns` later.
    ///
    /// # Errors
    ///
    /// [`GuardError`], which names the longest length that would do.
    fn guarded(self, length_ns: u64) -> Result<Self, GuardError>;

    /// Returns by how much actions may exceed the limit in any window if the store enforces it
    /// unguarded.
    ///
    /// It is the maximum number of permits that `nodes` can have at one instant, each at most
    /// `units`, lent for `length_ns`.
    fn outstanding(&self, nodes: u64, units: u64, length_ns: u64) -> u64;
}

/// Returns the limit on debits that keeps `policy` for actions up to `length_ns` later.
///
/// # Errors
///
/// [`GuardError`], which names the longest length that would do.
pub fn guarded<P: Lent>(policy: P, length_ns: u64) -> Result<P, GuardError> {
    policy.guarded(length_ns)
}

/// A reason for which permits of a limit cannot be lent for so long without exceeding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardError {
    /// The bucket earns its whole burst within the length: no permits are left to lend.
    Burst {
        /// The longest length that leaves a burst of one permit; 0 for a burst of one, which has
        /// none.
        max_ns: u64,
    },
    /// Period, guard and length together exceed 584 years.
    TooLong {
        /// The longest length that does not.
        max_ns: u64,
    },
}

impl fmt::Display for GuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Burst { max_ns: 0 } => f.write_str(
                "a bucket with a burst of 1 has no permits to lend; \
                 use a larger burst, or request each permit from the store",
            ),
            Self::Burst { max_ns } => write!(
                f,
                "the bucket earns its whole burst during a lease; use a lease of at most \
                 {max_ns}ns or a larger burst"
            ),
            Self::TooLong { max_ns } => write!(
                f,
                "window and lease together exceed 584 years; use a lease of at most {max_ns}ns"
            ),
        }
    }
}

impl Error for GuardError {}

impl Lent for Gcra {
    fn guarded(self, length_ns: u64) -> Result<Self, GuardError> {
        let Some((permits, period_ns)) = self.rate().fraction() else { return Ok(self) };
        let burst = self.burst_size().get();
        let left = burst.checked_sub(earned(self.rate(), length_ns)).filter(|&left| left > 0);
        left.and_then(|left| Self::new(self.rate(), left).ok()).ok_or_else(|| {
            // ceil(r L) <= b - 1 as long as L <= (b - 1) / r.
            let leftover = u128::from(burst.saturating_sub(1));
            let max_ns = mul_div_floor(leftover, period_ns, permits.into());
            let max_ns = max_ns.and_then(|ns| u64::try_from(ns).ok());
            GuardError::Burst { max_ns: max_ns.unwrap_or(u64::MAX) }
        })
    }

    /// Returns no more than the debits within a length: `ceil(r L) + b - 1`.
    fn outstanding(&self, nodes: u64, units: u64, length_ns: u64) -> u64 {
        let rate = self.rate();
        let debits = match rate.kind() {
            // An unlimited rate cannot be exceeded; a rate of zero can lend only its burst.
            Kind::Unlimited => return 0,
            Kind::Never => self.burst_size().get(),
            Kind::Paced(_) => {
                earned(rate, length_ns).saturating_add(self.burst_size().get().saturating_sub(1))
            }
        };
        nodes.saturating_mul(units).min(debits)
    }
}

impl Lent for SlidingLog {
    fn guarded(self, length_ns: u64) -> Result<Self, GuardError> {
        let max_ns = u64::MAX.saturating_sub(self.held_for_ns());
        let guard_ns = self.guard_ns().saturating_add(length_ns);
        self.with_guard(Duration::from_nanos(guard_ns)).map_err(|_| GuardError::TooLong { max_ns })
    }

    fn outstanding(&self, nodes: u64, units: u64, length_ns: u64) -> u64 {
        in_logs(self.permits(), self.held_for_ns(), length_ns).min(nodes.saturating_mul(units))
    }
}

impl Lent for FixedWindow {
    /// Returns the window unchanged: leases end with it.
    fn guarded(self, _length_ns: u64) -> Result<Self, GuardError> {
        Ok(self)
    }

    /// Returns zero: leases end with the window, as long as nodes receive its end.
    fn outstanding(&self, _nodes: u64, _units: u64, _length_ns: u64) -> u64 {
        0
    }
}

/// Returns how many permits a bucket earns in a time, rounded up.
fn earned(rate: Rate, length_ns: u64) -> u64 {
    let Some((permits, period_ns)) = rate.fraction() else { return 0 };
    let earned = mul_div_ceil(length_ns.into(), permits, period_ns.into());
    earned.and_then(|earned| u64::try_from(earned).ok()).unwrap_or(u64::MAX)
}

/// Returns how many permits a log grants within a length.
///
/// Once full, it grants no more until the oldest leave it.
fn in_logs(permits: u64, held_for_ns: u64, length_ns: u64) -> u64 {
    let windows = u128::from(length_ns).div_ceil(u128::from(held_for_ns.max(1))).max(1);
    u64::try_from(windows).unwrap_or(u64::MAX).saturating_mul(permits)
}
