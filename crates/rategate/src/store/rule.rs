//! Limits that a store can keep, and the error for those it cannot.

use std::error::Error;
use std::fmt;
use std::num::NonZeroU64;

use rategate_core::concurrency::Concurrency;
use rategate_core::fixed_window::FixedWindow;
use rategate_core::gcra::Gcra;
use rategate_core::sliding_log::SlidingLog;

/// A limit as a store keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A token bucket.
    Bucket(Gcra),
    /// A sliding log: at most N in any window, exactly, or to a resolution.
    Log(SlidingLog),
    /// A fixed window: at most N in each window of the grid of the store's clock, or of a calendar
    /// by the store's clock since 1970.
    Window(FixedWindow),
    /// A concurrency limit: at most N in flight, each for these nanoseconds unless renewed.
    InFlight(Concurrency, NonZeroU64),
}

impl Rule {
    /// Returns the most permits that one call can take.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        match self {
            Self::Bucket(bucket) => bucket.burst_size().get(),
            Self::Log(log) => log.permits(),
            Self::Window(window) => window.permits(),
            Self::InFlight(in_flight, _) => in_flight.permits(),
        }
    }
}

impl From<Gcra> for Rule {
    fn from(bucket: Gcra) -> Self {
        Self::Bucket(bucket)
    }
}

impl From<SlidingLog> for Rule {
    fn from(log: SlidingLog) -> Self {
        Self::Log(log)
    }
}

impl From<FixedWindow> for Rule {
    fn from(window: FixedWindow) -> Self {
        Self::Window(window)
    }
}

/// An error for a set of limits that a store cannot keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// The label of the limit, or `None` if the error concerns the whole set.
    pub label: Option<String>,
    /// A description of the error, and of what would be accepted.
    pub why: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.label {
            Some(label) => write!(f, "limit `{label}`: {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

impl Error for PlanError {}
