//! The adaptive limiter of failsafe-go.

use std::collections::VecDeque;

use rategate_core::adaptive::{Bounds, Controller, Outcome, Sample};

use super::{float, whole};

/// The minimum and the maximum length of a window.
const WINDOW_NS: [u64; 2] = [1_000_000_000, 30_000_000_000];
/// The minimum samples of a window.
const SAMPLES: usize = 50;
/// The windows whose median counts, and over which it is averaged.
const SMOOTHED: usize = 5;
/// The windows over which the base is averaged.
const BASE_AGE: u32 = 10;
/// The windows of which an average or a correlation is made at least.
const WARM_UP: usize = 10;
/// The windows that are correlated.
const CORRELATED: usize = 50;
/// The maximum limit for each operation in flight.
const FACTOR: f64 = 5.0;

/// The queue that the 90th percentile of latencies implies, as with
/// [`Vegas`](rategate_core::adaptive::Vegas), over an average of it; and one step less where more
/// in flight is slower, and no more is served.
///
/// Dropped calls do not count. Whether the limit is reached is that of the call which ends a
/// window, when it began.
#[derive(Clone, Debug)]
pub struct Failsafe {
    bounds: Bounds,
    limit: f64,
    latencies_ns: Vec<u64>,
    in_flight: u32,
    end_ns: u64,
    medians: VecDeque<f64>,
    recent_ns: Average,
    base_ns: Average,
    served: Correlation,
    slower: Correlation,
    window_ns: [u64; 2],
    samples: usize,
    factor: f64,
}

/// A plain average at first, which follows the newest numbers then.
#[derive(Clone, Debug, Default)]
struct Average {
    weight: f64,
    warm_up: usize,
    count: usize,
    sum: f64,
    value: f64,
}

impl Average {
    fn new(age: u32, warm_up: usize) -> Self {
        Self { weight: 2.0 / (f64::from(age) + 1.0), warm_up, ..Self::default() }
    }

    fn add(&mut self, newest: f64) -> f64 {
        if self.count < self.warm_up {
            self.count = self.count.saturating_add(1);
            self.sum += newest;
            self.value = self.sum / counted(self.count);
        } else {
            self.value = self.value * (1.0 - self.weight) + newest * self.weight;
        }
        self.value
    }
}

/// The newest pairs of numbers.
#[derive(Clone, Debug)]
struct Correlation {
    pairs: VecDeque<[f64; 2]>,
    max: usize,
    warm_up: usize,
}

impl Correlation {
    const fn new(max: usize, warm_up: usize) -> Self {
        Self { pairs: VecDeque::new(), max, warm_up }
    }

    /// Adds a pair. Returns the correlation of all, and how much the second numbers vary: their
    /// standard deviation by their mean.
    fn add(&mut self, pair: [f64; 2]) -> [f64; 2] {
        if self.pairs.len() == self.max {
            self.pairs.pop_front();
        }
        self.pairs.push_back(pair);
        let count = counted(self.pairs.len());
        let mean = |of: &dyn Fn(&[f64; 2]) -> f64| self.pairs.iter().map(of).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(&|[x, _]| *x), mean(&|[_, y]| *y));
        let deviation_x = mean(&|[x, _]| (x - mean_x) * (x - mean_x)).sqrt();
        let deviation_y = mean(&|[_, y]| (y - mean_y) * (y - mean_y)).sqrt();
        let (vary_x, vary_y) = (deviation_x / mean_x, deviation_y / mean_y);
        if self.pairs.len() < self.warm_up.max(2) || !vary_x.is_finite() || !vary_y.is_finite() {
            return [0.0, 0.0];
        }
        if vary_x < 0.01 || vary_y < 0.01 {
            return [0.0, vary_y];
        }
        let together = mean(&|[x, y]| (x - mean_x) * (y - mean_y));
        [together / (deviation_x * deviation_y), vary_y]
    }
}

fn counted(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

impl Failsafe {
    /// Creates a controller within these bounds.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            limit: bounds.first().into(),
            latencies_ns: Vec::new(),
            in_flight: 0,
            end_ns: 0,
            medians: VecDeque::new(),
            recent_ns: Average::new(5, WARM_UP),
            base_ns: Average::new(BASE_AGE, WARM_UP),
            served: Correlation::new(CORRELATED, WARM_UP),
            slower: Correlation::new(CORRELATED, WARM_UP),
            window_ns: WINDOW_NS,
            samples: SAMPLES,
            factor: FACTOR,
        }
    }

    /// Returns the newest number, or the median of the last five.
    fn median(&mut self, newest: f64) -> f64 {
        if self.medians.len() == SMOOTHED {
            self.medians.pop_front();
        }
        self.medians.push_back(newest);
        let mut sorted: Vec<f64> = self.medians.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let median = sorted.get(SMOOTHED / 2).filter(|_| sorted.len() == SMOOTHED);
        median.copied().unwrap_or(newest)
    }

    fn change(&mut self, recent_ns: f64, is_full: bool) {
        let base_ns = self.base_ns.add(recent_ns);
        let queue = (self.limit * (1.0 - base_ns / recent_ns)).ceil();
        let in_flight = f64::from(self.in_flight);
        let [served, vary] = self.served.add([in_flight, in_flight / (recent_ns / 1e9)]);
        let [slower, _] = self.slower.add([in_flight, recent_ns]);
        let step = f64::from(whole(self.limit).max(1).ilog10().max(1));
        let is_worse = served < 0.0 || (slower > 0.5 && (served < 0.3 || vary < 0.2));
        let mut next = if queue > 6.0 * step || (is_full && is_worse) {
            self.limit - step
        } else if queue < 3.0 * step {
            self.limit + step
        } else {
            self.limit
        };
        let max = in_flight * self.factor;
        if next > max {
            next = if self.limit > max { self.limit - step } else { max };
        }
        self.limit = next.clamp(self.bounds.floor().into(), self.bounds.ceiling().into());
    }
}

impl Controller for Failsafe {
    fn limit(&self) -> u32 {
        whole(self.limit).clamp(self.bounds.floor(), self.bounds.ceiling())
    }

    fn rebound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    fn sample(&mut self, sample: Sample) {
        if sample.outcome == Outcome::Served {
            let latency_ns = sample.end_ns.saturating_sub(sample.start_ns);
            self.latencies_ns.push(latency_ns.max(1));
            self.in_flight = self.in_flight.max(sample.in_flight);
        }
        let samples = self.latencies_ns.len();
        if sample.end_ns <= self.end_ns || samples < self.samples {
            return;
        }
        self.latencies_ns.sort_unstable();
        let at = samples.saturating_mul(9).div_ceil(10).saturating_sub(1);
        let (Some(&p90_ns), Some(&min_ns)) = (self.latencies_ns.get(at), self.latencies_ns.first())
        else {
            return;
        };
        let median_ns = self.median(float(p90_ns));
        let recent_ns = self.recent_ns.add(median_ns);
        self.change(recent_ns, sample.in_flight >= self.limit());
        let [least_ns, most_ns] = self.window_ns;
        let window_ns = min_ns.saturating_mul(2).clamp(least_ns, most_ns);
        self.end_ns = sample.end_ns.saturating_add(window_ns);
        self.latencies_ns.clear();
        self.in_flight = 0;
    }
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "small figures of tests")]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns a limiter as in failsafe-go's tests, and what records a latency with so many in
    /// flight two seconds after the one before.
    fn limiter(factor: f64) -> impl FnMut(u64, u32) -> Failsafe {
        let (bounds, window_ns) = (Bounds::new(1, 20, 200), [1_000 * MS; 2]);
        let mut limiter = Failsafe { window_ns, samples: 1, factor, ..Failsafe::new(bounds) };
        for _ in 0..WARM_UP {
            limiter.base_ns.add(1e9);
        }
        let mut end_ns = 0;
        move |latency_ms, in_flight| {
            end_ns += 2_000 * MS;
            let start_ns = end_ns.saturating_sub(latency_ms * MS);
            limiter.sample(Sample {
                start_ns,
                end_ns,
                in_flight,
                fills_share: false,
                outcome: Outcome::Served,
            });
            limiter.clone()
        }
    }

    /// The figures of `TestAdaptiveLimiter_record`, all four; and queues of 2 and of 3, between
    /// which the limit stops to grow.
    #[test]
    fn the_limit_follows_the_queue() {
        let mut record = limiter(FACTOR);
        let recent = [100, 300, 200, 200, 250].map(|ms| record(ms, 10).recent_ns.value);
        assert!((recent[4] - 2e8).abs() < 1.0, "{recent:?}");
        for (latencies_ms, in_flight, limits) in [
            ([1_000, 500], 5, [21, 22]),
            ([2_000, 2_000], 10, [19, 18]),
            ([1_300, 1_300], 10, [20, 20]),
            ([1_100, 1_100], 10, [21, 22]),
            ([1_200, 1_200], 10, [20, 20]),
        ] {
            let mut record = limiter(FACTOR);
            assert_eq!(latencies_ms.map(|ms| record(ms, in_flight).limit()), limits);
        }
    }

    /// The figures of `TestAdaptiveLimiter_MaxLimitStabilizationWindow`, without that window.
    #[test]
    fn the_limit_is_at_most_a_multiple_of_what_is_in_flight() {
        let mut record = limiter(1.5);
        assert_eq!((record(1_000, 20).limit(), record(1_000, 5).limit()), (21, 20));
    }

    /// The figures of `TestMovingAverage_AddAndValue`.
    #[test]
    fn an_average_warms_up() {
        for (age, warm_up, numbers, expected) in
            [(5, 3, &[10.0, 20.0, 30.0][..], 20.0), (3, 2, &[10.0, 20.0, 30.0, 40.0], 31.0)]
        {
            let mut average = Average::new(age, warm_up);
            let last = numbers.iter().map(|&number| average.add(number)).last();
            assert!((last.unwrap().round() - expected).abs() < 1e-9, "{last:?}");
        }
    }

    /// The figures of `TestCorrelationWindow`, and one of `TestMovingSum`.
    #[test]
    fn pairs_are_correlated() {
        let last = |max, pairs: &[[f64; 2]]| {
            let mut correlation = Correlation::new(max, 1);
            pairs.iter().map(|&pair| correlation.add(pair)).last().unwrap()
        };
        let close = |one: f64, other: f64| (one - other).abs() < 1e-4;
        assert!(close(last(3, &[[1.0, 2.0]])[0], 0.0));
        assert!(close(last(3, &[[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])[0], 1.0));
        assert!(close(last(3, &[[1.0, 30.0], [2.0, 20.0], [3.0, 10.0]])[0], -1.0));
        assert!(close(last(3, &[[100.0, 200.0], [100.1, 200.1], [100.05, 200.05]])[0], 0.0));
        let rolling = [1.0, 2.0, 3.0, 4.0, 5.0].map(|x| [x, 10.0 * x]);
        assert!(close(last(3, &rolling)[0], 1.0));
        let sliding = [10.0, 20.0, 30.0, 40.0].map(|y| [y, y]);
        assert!(close(last(3, &sliding)[1], 0.2722));
    }
}
