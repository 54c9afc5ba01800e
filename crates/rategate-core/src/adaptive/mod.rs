//! Limits that follow measurements: how many operations a server works on at once, found from how
//! long they take.
//!
//! A [`Controller`] is told each operation when it ends, and says how many may be in flight.
//! [`Knee`] is the default; [`Aimd`] is a published rule for servers that refuse what is too much.
//!
//! ```text
//!   latency |            /       Up to the knee the server has idle workers: more in flight,
//!           |           /        more served. Beyond it they wait in a queue: more in flight,
//!           |__________/         the same served, later.
//!           +---------+------- in flight
//!                   knee
//! ```
//!
//! # Contract
//!
//! * **Bounds.** The limit is within its [`Bounds`] for any samples: from the future, reordered,
//!   doubled, of any length.
//! * **Total.** No sample panics, and each costs the same time and memory.
//! * **Deterministic.** Equal samples give equal limits on every machine: all is in whole numbers,
//!   and what is random comes from a seed.
//! * **Growth.** A limit of which less than a half was in flight does not grow. That of [`Knee`]
//!   was reached within its last three windows, or comes back from a probe, or a
//!   [share](crate::share) of a quarter of it was reached.
//!
//! # Example
//!
//! ```
//! use rategate_core::adaptive::{Bounds, Controller, Knee, Outcome, Sample};
//!
//! let mut knee = Knee::new(Bounds::new(1, 20, 200), 1);
//! assert_eq!(knee.limit(), 20);
//! // A server that takes 10 ms for each operation, however many there are.
//! for call in 0..1_000 {
//!     let start_ns = call / 20 * 10_000_000;
//!     let in_flight = u32::try_from(call % 20 + 1)?;
//!     let end_ns = start_ns + 10_000_000;
//!     let outcome = Outcome::Served;
//!     knee.sample(Sample { start_ns, end_ns, in_flight, outcome });
//! }
//! assert!(knee.limit() > 20);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

mod adaptation;
mod aimd;
mod change;
mod concurrency;
mod knee;
mod learned;
mod rate;
mod window;

use core::fmt::Debug;

pub use self::adaptation::{Adaptation, Method};
pub use self::aimd::Aimd;
pub use self::change::{Change, Reason};
pub use self::concurrency::{AdaptiveConcurrency, State};
pub use self::knee::Knee;
use self::learned::Learned;
pub use self::rate::{AdaptiveRate, State as RateState};
use crate::error::LimitError;
pub use crate::outcome::{Outcome, Sample};

/// One, in 256ths: the unit of limits and of average latencies.
const ONE: u64 = 256;

/// A rule that finds how many operations may be in flight.
pub trait Controller: Debug {
    /// Returns the maximum number of operations in flight, which is within the bounds. It costs
    /// nothing.
    fn limit(&self) -> u32;

    /// Puts other bounds into force. What has been found stays, within them.
    fn rebound(&mut self, bounds: Bounds);

    /// Records an operation that has ended, in constant time and without an allocation.
    ///
    /// All instants are of one clock that does not go back. Samples may come in any order; those
    /// of operations that ended together are expected together.
    fn sample(&mut self, sample: Sample);

    /// Records that an operation took all that its [share](crate::share) of the limit had left:
    /// `in_flight` reached the share, although perhaps not the limit.
    fn fill_share(&mut self, _in_flight: u32, _now_ns: u64) {}
}

/// The bounds of a limit that follows measurements, and the limit at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Bounds {
    floor: u32,
    first: u32,
    ceiling: u32,
}

impl Bounds {
    /// Creates the bounds of a limit that is `first` until something is known.
    ///
    /// # Panics
    ///
    /// Panics unless `1 <= floor <= first <= ceiling`.
    #[must_use]
    #[track_caller]
    pub const fn new(floor: u32, first: u32, ceiling: u32) -> Self {
        match Self::try_new(floor, first, ceiling) {
            Ok(bounds) => bounds,
            Err(_) => panic!("a limit is at least 1, and at first within its bounds"),
        }
    }

    /// Creates the bounds of a limit that is `first` until something is known.
    ///
    /// # Errors
    ///
    /// [`LimitError::Bounds`] unless `1 <= floor <= first <= ceiling`.
    pub const fn try_new(floor: u32, first: u32, ceiling: u32) -> Result<Self, LimitError> {
        if floor == 0 || floor > first || first > ceiling {
            return Err(LimitError::Bounds);
        }
        Ok(Self { floor, first, ceiling })
    }

    /// Returns the least limit.
    #[must_use]
    pub const fn floor(self) -> u32 {
        self.floor
    }

    /// Returns the limit at first.
    #[must_use]
    pub const fn first(self) -> u32 {
        self.first
    }

    /// Returns the greatest limit.
    #[must_use]
    pub const fn ceiling(self) -> u32 {
        self.ceiling
    }

    const fn checked(self) -> Result<Self, LimitError> {
        Self::try_new(self.floor, self.first, self.ceiling)
    }

    /// Returns these bounds for a limit that begins with `first`, or the bound that it exceeds.
    fn beginning_with(self, first: u64) -> Self {
        Self { first: self.clamp(first), ..self }
    }

    /// Returns a limit, or the bound that it exceeds.
    fn clamp(self, limit: u64) -> u32 {
        u32::try_from(limit).unwrap_or(u32::MAX).clamp(self.floor, self.ceiling)
    }

    /// Returns a limit in 256ths, or the bound that it exceeds.
    fn clamp_parts(self, limit: u64) -> u64 {
        limit.clamp(parts(self.floor), parts(self.ceiling))
    }
}

/// Returns a whole number in 256ths.
fn parts(whole: u32) -> u64 {
    u64::from(whole).saturating_mul(ONE)
}

/// Returns a ratio, rounded down; `u64::MAX` for what is larger, and for a division by 0.
fn ratio(of: u128, by: u128) -> u64 {
    of.checked_div(by).and_then(|ratio| u64::try_from(ratio).ok()).unwrap_or(u64::MAX)
}

impl Sample {
    /// Returns how long it took: 0 if it ended before it started.
    const fn latency_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

#[cfg(feature = "serde")]
crate::portable::read_checked!(Bounds { floor: u32, first: u32, ceiling: u32 });
