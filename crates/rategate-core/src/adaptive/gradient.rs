//! The limit follows the ratio of a long average of latencies to the newest one.

use super::{Bounds, Controller, MAX_LATENCY_NS, ONE, Outcome, Reason, Sample, parts, ratio};

/// The samples of the first average, which is plain.
const FIRST: u64 = 10;
/// The divisor of a step of the long average, in halves.
const LONG: u64 = 601;
/// The permits that are added at each step.
const QUEUE: u64 = 4 * ONE;

/// The limit times the ratio of 1.5 long averages of the latency to the newest latency, between a
/// half and one, and 4 more; a fifth of the way at each sample.
///
/// It does not see what is dropped. In a modest overload the long average follows the newest, and
/// the limit grows without end. The rule is `Gradient2` of Netflix' concurrency-limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gradient {
    bounds: Bounds,
    /// In 256ths.
    limit: u64,
    /// The long average, in 256ths of a nanosecond.
    long: u64,
    samples: u64,
    /// The sum of the first latencies, in 256ths of a nanosecond.
    sum: u64,
    reason: Reason,
}

impl Gradient {
    /// Creates a controller within these bounds.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let (limit, reason) = (parts(bounds.first), Reason::Restart);
        Self { bounds, limit, long: 0, samples: 0, sum: 0, reason }
    }

    /// Returns why the limit changed last.
    pub(super) const fn reason(&self) -> Reason {
        self.reason
    }
}

impl Controller for Gradient {
    fn limit(&self) -> u32 {
        self.bounds.clamp(self.limit / ONE)
    }

    fn rebound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    fn sample(&mut self, sample: Sample) {
        if sample.outcome == Outcome::Ignored {
            return;
        }
        let newest = sample.latency_ns().clamp(1, MAX_LATENCY_NS).saturating_mul(ONE);
        if self.samples < FIRST {
            self.samples = self.samples.saturating_add(1);
            self.sum = self.sum.saturating_add(newest);
            self.long = ratio(self.sum.into(), self.samples.into());
        } else {
            let step = u128::from(newest.abs_diff(self.long)).saturating_mul(2);
            let step = ratio(step, LONG.into());
            self.long = if newest >= self.long {
                self.long.saturating_add(step)
            } else {
                self.long.saturating_sub(step)
            };
        }
        if self.long / 2 > newest {
            self.long = (self.long / 20).saturating_mul(19);
        }
        if parts(sample.in_flight).saturating_mul(2) < self.limit {
            return;
        }
        let long = u128::from(self.limit).saturating_mul(self.long.into()).saturating_mul(3);
        // To the nearest: what is rounded down each time would add up.
        let scaled = ratio(long.saturating_add(newest.into()), newest.saturating_mul(2).into());
        let scaled = scaled.clamp(self.limit / 2, self.limit);
        let sum = self.limit.saturating_mul(4).saturating_add(scaled).saturating_add(QUEUE);
        let next = self.bounds.clamp_parts(sum.saturating_add(2) / 5);
        self.reason = if next < self.limit { Reason::Queue } else { Reason::Reached };
        self.limit = next;
    }
}
