//! Gradient2 behind the windows of Netflix' concurrency-limits.

use rategate_core::adaptive::{Bounds, Controller, Gradient, Outcome, Sample};

/// The length of a window.
const WINDOW_NS: u64 = 1_000_000_000;
/// The minimum samples of a window that counts.
const SAMPLES: u64 = 10;
/// The latency below which a sample is ignored.
const MIN_LATENCY_NS: u64 = 100_000;

/// [`Gradient`] with the mean latency and the maximum in flight of windows of a second, after
/// `WindowedLimit` of Netflix' concurrency-limits.
#[derive(Clone, Debug)]
pub struct Windowed {
    inner: Gradient,
    window: Window,
    end_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    samples: u64,
    sum_ns: u64,
    in_flight: u32,
}

impl Window {
    fn add(&mut self, latency_ns: u64, in_flight: u32) {
        self.samples = self.samples.saturating_add(1);
        self.sum_ns = self.sum_ns.saturating_add(latency_ns);
        self.in_flight = self.in_flight.max(in_flight);
    }

    fn mean_ns(self) -> u64 {
        self.sum_ns.checked_div(self.samples).unwrap_or(0)
    }
}

impl Windowed {
    /// Creates a controller within these bounds.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self { inner: Gradient::new(bounds), window: Window::default(), end_ns: 0 }
    }
}

impl Controller for Windowed {
    fn limit(&self) -> u32 {
        self.inner.limit()
    }

    fn rebound(&mut self, bounds: Bounds) {
        self.inner.rebound(bounds);
    }

    fn sample(&mut self, sample: Sample) {
        let latency_ns = sample.end_ns.saturating_sub(sample.start_ns);
        if sample.outcome == Outcome::Ignored || latency_ns < MIN_LATENCY_NS {
            return;
        }
        self.window.add(latency_ns, sample.in_flight);
        if sample.end_ns <= self.end_ns {
            return;
        }
        self.end_ns = sample.end_ns.saturating_add(WINDOW_NS);
        let window = std::mem::take(&mut self.window);
        if window.samples >= SAMPLES {
            let start_ns = sample.start_ns;
            let end_ns = start_ns.saturating_add(window.mean_ns());
            // The rule does not look at drops.
            let outcome = Outcome::Served;
            let in_flight = window.in_flight;
            self.inner.sample(Sample { start_ns, end_ns, in_flight, fills_share: false, outcome });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The figures of `ImmutableAverageSampleWindowTest`, both tests. Gradient2 and WindowedLimit
    /// themselves have no tests there.
    #[test]
    fn a_window_has_the_mean_of_all_samples() {
        let mut window = Window::default();
        for latency_ns in [5_000, 500, 10] {
            window.add(latency_ns, 1);
        }
        assert_eq!(window.mean_ns(), (5_000 + 500 + 10) / 3);
        window.add(5_000, 1);
        assert_eq!(window.mean_ns(), (5_000 + 500 + 10 + 5_000) / 4);
    }

    #[test]
    fn the_limit_changes_once_in_a_window_with_ten_samples() {
        let mut windowed = Windowed::new(Bounds::new(1, 20, 1_000));
        let mut sample = |end_ns, latency_ns| {
            let start_ns = end_ns - latency_ns;
            let outcome = Outcome::Served;
            windowed.sample(Sample {
                start_ns,
                end_ns,
                in_flight: 20,
                fills_share: false,
                outcome,
            });
            windowed.limit()
        };
        // The first sample begins the windows.
        assert_eq!(sample(100 * MS, 10 * MS), 20);
        for at in 1..=8 {
            assert_eq!(sample((100 + at) * MS, 10 * MS), 20);
        }
        // Nine, and those below 100 us do not count.
        assert_eq!(sample(1_100 * MS, 50_000), 20);
        assert_eq!(sample(1_101 * MS, 10 * MS), 20);
        for at in 1..=9 {
            assert_eq!(sample((1_200 + at) * MS, 10 * MS), 20);
        }
        // A fifth of the way to 4 more, rounded down: 20.8.
        assert_eq!(sample(2_102 * MS, 10 * MS), 20);
        for at in 1..=9 {
            sample((2_200 + at) * MS, 10 * MS);
        }
        assert_eq!(sample(3_103 * MS, 10 * MS), 21);
    }
}
