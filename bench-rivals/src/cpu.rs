//! The processor time of this whole process.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A measurement of processor time since a moment.
pub(crate) struct Cpu {
    used: Duration,
    at: Instant,
}

impl Cpu {
    pub(crate) fn start() -> Self {
        Self { used: used(), at: Instant::now() }
    }

    /// Returns the seconds of processor time for each second so far.
    pub(crate) fn per_second(&self) -> f64 {
        used().saturating_sub(self.used).as_secs_f64() / self.at.elapsed().as_secs_f64()
    }
}

/// Returns all processor time so far.
pub(crate) fn used() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}
