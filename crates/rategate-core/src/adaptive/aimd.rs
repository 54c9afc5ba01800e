//! One more for each success, a tenth less for each drop.

use super::{Bounds, Controller, Outcome, Reason, Sample};

/// The latency beyond which an operation counts as dropped.
const TIMEOUT_NS: u64 = 5_000_000_000;

/// Additive increase, multiplicative decrease: one more for each operation that was served while at
/// least half of the limit was in flight, a tenth less for each that was dropped or took longer
/// than 5 s.
///
/// It finds the limit of a server that refuses what is too much. One that lets callers wait is
/// filled until they give up. The rule is that of Netflix' concurrency-limits, which counts what was
/// in flight when an operation started; here it counts what is when it ends. The limit grows half
/// as fast where many start, and end, at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aimd {
    bounds: Bounds,
    limit: u32,
    reason: Reason,
}

impl Aimd {
    /// Creates a controller within these bounds.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self { bounds, limit: bounds.first, reason: Reason::Restart }
    }

    /// Returns why the limit changed last.
    pub(super) const fn reason(&self) -> Reason {
        self.reason
    }
}

impl Controller for Aimd {
    fn limit(&self) -> u32 {
        self.bounds.clamp(self.limit.into())
    }

    fn rebound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    fn sample(&mut self, sample: Sample) {
        let limit = u64::from(self.limit);
        let (reason, next) = match sample.outcome {
            Outcome::Ignored => return,
            _ if sample.latency_ns() > TIMEOUT_NS => (Reason::Dropped, less(limit)),
            Outcome::Dropped => (Reason::Dropped, less(limit)),
            Outcome::Served if u64::from(sample.in_flight).saturating_mul(2) >= limit => {
                (Reason::Reached, limit.saturating_add(1))
            }
            Outcome::Served => return,
        };
        (self.reason, self.limit) = (reason, self.bounds.clamp(next));
    }
}

/// Returns nine tenths, rounded down.
const fn less(limit: u64) -> u64 {
    limit.saturating_mul(9) / 10
}
