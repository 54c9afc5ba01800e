//! The adaptive request concurrency of Vector.

use rategate_core::adaptive::{Bounds, Controller, Outcome, Sample};

use super::{float, whole};

/// The weight of the newest mean latency.
const WEIGHT: f64 = 0.4;
/// The standard deviations above the average that count as back pressure.
const DEVIATIONS: f64 = 2.5;
/// The share of the limit that back pressure leaves.
const DECREASE: f64 = 0.9;

/// One more in each mean latency in which the limit was reached and calls became no slower; nine
/// tenths after a drop or a mean far above the average.
///
/// A call says that the limit was reached when it ends, not when it begins.
#[derive(Clone, Debug)]
pub struct Vector {
    bounds: Bounds,
    limit: u32,
    /// The limit of the window before, in which calls of this one have begun.
    last_limit: u32,
    average: Option<Average>,
    window: Window,
    end_ns: u64,
}

/// The average of the mean latencies, which follows them, and their variance.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Average {
    mean_ns: f64,
    variance: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    samples: u64,
    sum_ns: u64,
    is_dropped: bool,
    is_reached: bool,
}

impl Average {
    const fn new(point: f64) -> Self {
        Self { mean_ns: point, variance: 0.0 }
    }

    fn add(&mut self, point: f64, weight: f64) {
        let difference = point - self.mean_ns;
        let step = weight * difference;
        self.mean_ns += step;
        self.variance = (1.0 - weight) * (self.variance + difference * step);
    }
}

impl Vector {
    /// Creates a controller within these bounds. Vector's are 1, 1 and 200.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let limit = bounds.first();
        let window = Window::default();
        Self { bounds, limit, last_limit: limit, average: None, window, end_ns: 0 }
    }

    fn next(&self, average: Average, mean_ns: Option<f64>) -> u32 {
        let slow_ns = average.mean_ns + average.variance.sqrt() * DEVIATIONS;
        let is_fast = mean_ns.is_some_and(|mean_ns| mean_ns <= average.mean_ns);
        let is_slow = mean_ns.is_some_and(|mean_ns| mean_ns >= slow_ns);
        let Window { is_dropped, is_reached, .. } = self.window;
        if self.limit < self.bounds.ceiling() && is_reached && !is_dropped && is_fast {
            self.limit.saturating_add(1)
        } else if is_dropped || is_slow {
            whole(f64::from(self.limit) * DECREASE)
        } else {
            self.limit
        }
    }
}

impl Controller for Vector {
    fn limit(&self) -> u32 {
        self.limit.clamp(self.bounds.floor(), self.bounds.ceiling())
    }

    fn rebound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    fn sample(&mut self, sample: Sample) {
        let latency_ns = sample.end_ns.saturating_sub(sample.start_ns);
        match sample.outcome {
            Outcome::Ignored => return,
            Outcome::Dropped => self.window.is_dropped = true,
            Outcome::Served => {
                self.window.samples = self.window.samples.saturating_add(1);
                self.window.sum_ns = self.window.sum_ns.saturating_add(latency_ns);
            }
        }
        self.window.is_reached |= sample.in_flight >= self.limit.min(self.last_limit);
        let Window { samples, sum_ns, .. } = self.window;
        let mean_ns = (samples > 0).then(|| float(sum_ns) / float(samples));
        let next_ns = match (&mut self.average, mean_ns) {
            (None, None) => return,
            (None, Some(mean_ns)) => {
                self.average = Some(Average::new(mean_ns));
                mean_ns
            }
            (Some(_), _) if sample.end_ns < self.end_ns => return,
            (Some(average), mean_ns) => {
                let before = *average;
                if let Some(mean_ns) = mean_ns {
                    average.add(mean_ns, WEIGHT);
                }
                let next_ns = average.mean_ns;
                self.last_limit = self.limit;
                let next = self.next(before, mean_ns);
                self.limit = next.clamp(self.bounds.floor(), self.bounds.ceiling());
                self.window = Window::default();
                next_ns
            }
        };
        self.end_ns = sample.end_ns.saturating_add(whole(next_ns).into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The figures of `ewma_variance_update_works` in Vector's `vector-common`. Its controller is
    /// tested there as a whole only, by the ranges of runs.
    #[test]
    fn the_average_has_a_variance() {
        let mut average = Average::new(2.0);
        let expected = [(2.0, 2.0, 0.0), (1.0, 1.5, 0.25), (2.0, 1.75, 0.1875)];
        for (point, mean_ns, variance) in expected {
            average.add(point, 0.5);
            assert_eq!(average, Average { mean_ns, variance });
        }
    }

    /// The run of `constant-link.yaml` in Vector's tests: 500 requests of 100 ms each, as many at
    /// once as the limit allows. At most 30 or 31 are in flight, and the limit is then at most 32.
    #[test]
    fn a_constant_link_reaches_the_limit_of_its_test() {
        let mut vector = Vector::new(Bounds::new(1, 1, 200));
        let (mut left, mut max, mut in_flight, mut now_ns) = (500, 0, 0, 0);
        while left > 0 {
            let outcome = Outcome::Served;
            let start_ns = now_ns;
            now_ns += 100 * MS;
            for in_flight in 1..=in_flight {
                vector.sample(Sample {
                    start_ns,
                    end_ns: now_ns,
                    in_flight,
                    fills_share: false,
                    outcome,
                });
            }
            in_flight = vector.limit().min(left);
            left -= in_flight;
            max = max.max(in_flight);
        }
        assert!((22..=32).contains(&vector.limit()), "{}", vector.limit());
        assert!((30..=31).contains(&max), "{max}");
    }

    #[test]
    fn a_drop_leaves_nine_tenths() {
        let mut vector = Vector::new(Bounds::new(1, 100, 200));
        let mut sample = |end_ns, outcome| {
            let start_ns = end_ns - 10 * MS;
            vector.sample(Sample { start_ns, end_ns, in_flight: 100, fills_share: false, outcome });
            vector.limit()
        };
        assert_eq!(sample(10 * MS, Outcome::Served), 100);
        assert_eq!(sample(15 * MS, Outcome::Dropped), 100);
        assert_eq!(sample(20 * MS, Outcome::Served), 90);
    }
}
