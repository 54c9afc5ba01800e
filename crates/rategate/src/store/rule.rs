//! The limits that a store can keep, and why it cannot keep one.

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
    /// At most N in any window, exactly, or to a resolution.
    Log(SlidingLog),
    /// At most N in each window of the grid of the store's clock.
    Window(FixedWindow),
    /// At most N in flight, each for so many nanoseconds unless it is renewed.
    InFlight(Concurrency, NonZeroU64),
}

impl Rule {
    /// The most permits that one call can take.
    #[must_use]
    pub const fn most(&self) -> u64 {
        match self {
            Self::Bucket(bucket) => bucket.burst().get(),
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

/// Why a store cannot keep a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// Which limit, by its label; none where it is the plan as a whole.
    pub label: Option<String>,
    /// What is wrong, and what would be right.
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
