//! The queue that a latency implies is kept between two bounds.

use super::{Bounds, Controller, Outcome, Reason, Sample};
use crate::random::Random;

/// The samples, for each operation of the limit, after which the minimum latency is measured anew.
const PROBE_EVERY: u64 = 30;

/// The queue that a latency implies, `limit * (1 - minimum / latency)`, is kept between 3 and 6
/// times the number of digits of the limit after the first, after TCP Vegas.
///
/// The minimum latency is that of one operation, so a server whose latencies vary much is left
/// idle.
/// The rule is that of Netflix' concurrency-limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vegas {
    bounds: Bounds,
    limit: u32,
    /// The minimum latency; 0 if there is none.
    min_ns: u64,
    samples: u64,
    /// The share of the samples after which the minimum latency is measured anew, in 2^32nds of
    /// [`PROBE_EVERY`] times the limit.
    jitter: u64,
    random: Random,
    reason: Reason,
}

impl Vegas {
    /// Creates a controller within these bounds. The seed decides when the minimum latency is
    /// measured anew.
    #[must_use]
    pub const fn new(bounds: Bounds, seed: u64) -> Self {
        let mut vegas = Self {
            bounds,
            limit: bounds.first,
            min_ns: 0,
            samples: 0,
            jitter: 0,
            random: Random::new(seed),
            reason: Reason::Restart,
        };
        vegas.draw();
        vegas
    }

    /// Returns why the limit changed last.
    pub(super) const fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the minimum latency, if there is one.
    pub(super) fn base_ns(&self) -> Option<u64> {
        Some(self.min_ns).filter(|&ns| ns > 0)
    }

    /// Draws a share between a half and one.
    const fn draw(&mut self) {
        self.jitter = (1_u64 << 31).saturating_add(self.random.bits() >> 33);
    }
}

impl Controller for Vegas {
    fn limit(&self) -> u32 {
        self.bounds.clamp(self.limit.into())
    }

    fn rebound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    fn sample(&mut self, sample: Sample) {
        if sample.outcome == Outcome::Ignored {
            return;
        }
        let (limit, latency_ns) = (u64::from(self.limit), sample.latency_ns().max(1));
        self.samples = self.samples.saturating_add(1);
        let most = u128::from(limit.saturating_mul(PROBE_EVERY));
        let until = most.saturating_mul(self.jitter.into()) >> 32;
        if u128::from(self.samples) >= until {
            self.samples = 0;
            self.draw();
            self.min_ns = latency_ns;
            return;
        }
        if self.min_ns == 0 || latency_ns < self.min_ns {
            self.min_ns = latency_ns;
            return;
        }
        let step = u64::from(self.limit.ilog10()).max(1);
        let (reason, next) = if sample.outcome == Outcome::Dropped {
            (Reason::Dropped, limit.saturating_sub(step))
        } else if u64::from(sample.in_flight).saturating_mul(2) < limit {
            return;
        } else {
            let more_ns = latency_ns.saturating_sub(self.min_ns);
            let queue =
                u128::from(limit).saturating_mul(more_ns.into()).div_ceil(latency_ns.into());
            match u64::try_from(queue).unwrap_or(u64::MAX) {
                queue if queue <= step => {
                    (Reason::Reached, limit.saturating_add(step.saturating_mul(6)))
                }
                queue if queue < step.saturating_mul(3) => {
                    (Reason::Reached, limit.saturating_add(step))
                }
                queue if queue > step.saturating_mul(6) => {
                    (Reason::Queue, limit.saturating_sub(step))
                }
                _ => return,
            }
        };
        (self.reason, self.limit) = (reason, self.bounds.clamp(next));
    }
}
