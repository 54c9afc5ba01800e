//! The gradient controller of Envoy's filter `adaptive_concurrency`.

use rategate_core::adaptive::{Bounds, Controller, Outcome, Sample};
use rategate_core::random::Random;

use super::{float, whole};

/// The time from one change of the limit to the next.
const UPDATE_NS: u64 = 100_000_000;
/// The time from one measurement of the base to the next, and the maximum that is added to it.
const PROBE_NS: u64 = 60_000_000_000;
const JITTER_NS: u64 = PROBE_NS / 100 * 15;
/// The windows at the minimum limit after which the base is measured anew.
const WINDOWS_AT_FLOOR: u32 = 5;

/// The limit times the ratio of the base latency, a quarter longer, to the median of a window,
/// and its square root more.
///
/// The base is the median of 50 calls at the floor of the limit, measured anew each minute. The
/// limit begins with that. Medians are exact here, and of a histogram there.
#[derive(Clone, Debug)]
pub struct Envoy {
    bounds: Bounds,
    limit: u32,
    /// The limit from before the base is measured, while it is.
    deferred: Option<u32>,
    /// The begin of the last measurement. Calls from before it do not count.
    epoch_ns: u64,
    base_us: u64,
    latencies_us: Vec<u64>,
    update_ns: u64,
    probe_ns: u64,
    at_floor: u32,
    random: Random,
    /// The samples of a measurement of the base, and the share by which it is longer.
    probe: (usize, f64),
}

impl Envoy {
    /// Creates a controller within these bounds; Envoy's are 3, 3 and 1000. The seed decides when
    /// the base is measured anew.
    #[must_use]
    pub fn new(bounds: Bounds, seed: u64) -> Self {
        Self {
            bounds,
            limit: bounds.floor(),
            deferred: Some(bounds.first()),
            epoch_ns: 0,
            base_us: 0,
            latencies_us: Vec::new(),
            update_ns: 0,
            probe_ns: u64::MAX,
            at_floor: 0,
            random: Random::new(seed),
            probe: (50, 0.25),
        }
    }

    /// Does what the timers would have done by now.
    fn run_timers(&mut self, now_ns: u64) {
        while self.deferred.is_none() {
            if self.probe_ns <= now_ns.min(self.update_ns) {
                // Nothing can have begun after it that has ended.
                self.epoch_ns = self.probe_ns;
                self.deferred = Some(self.limit);
                self.latencies_us.clear();
                self.set(self.bounds.floor());
            } else if self.update_ns <= now_ns {
                if let Some(median_us) = self.median_us() {
                    self.set(self.next(median_us));
                    if self.at_floor >= WINDOWS_AT_FLOOR {
                        self.probe_ns = self.update_ns;
                    }
                }
                self.update_ns = self.update_ns.saturating_add(UPDATE_NS);
            } else {
                return;
            }
        }
    }

    fn next(&self, median_us: u64) -> u32 {
        let (_, longer) = self.probe;
        let base = float(self.base_us) * (1.0 + longer);
        let gradient = (base / float(median_us)).clamp(0.5, 2.0);
        let limit = f64::from(self.limit) * gradient;
        whole(limit + limit.sqrt()).clamp(self.bounds.floor(), self.bounds.ceiling())
    }

    fn set(&mut self, limit: u32) {
        let floor = self.bounds.floor();
        let is_at_floor = self.deferred.is_none() && (self.limit, limit) == (floor, floor);
        self.at_floor = if is_at_floor { self.at_floor.saturating_add(1) } else { 0 };
        self.limit = limit;
    }

    /// Returns the median of the window, which is empty then.
    fn median_us(&mut self) -> Option<u64> {
        self.latencies_us.sort_unstable();
        let at = self.latencies_us.len().div_ceil(2).saturating_sub(1);
        let median_us = self.latencies_us.get(at).copied();
        self.latencies_us.clear();
        median_us
    }
}

impl Controller for Envoy {
    fn limit(&self) -> u32 {
        self.limit.clamp(self.bounds.floor(), self.bounds.ceiling())
    }

    fn rebound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    fn sample(&mut self, sample: Sample) {
        self.run_timers(sample.end_ns);
        if sample.outcome == Outcome::Ignored || sample.start_ns < self.epoch_ns {
            return;
        }
        // A reply that says no has a latency, too.
        self.latencies_us.push(sample.end_ns.saturating_sub(sample.start_ns) / 1_000);
        let (samples, _) = self.probe;
        if self.latencies_us.len() < samples {
            return;
        }
        if let Some(deferred) = self.deferred {
            self.base_us = self.median_us().unwrap_or(self.base_us);
            self.set(deferred);
            self.deferred = None;
            let jitter_ns = self.random.bits().checked_rem(JITTER_NS).unwrap_or(0);
            self.probe_ns = sample.end_ns.saturating_add(PROBE_NS).saturating_add(jitter_ns);
            self.update_ns = sample.end_ns.saturating_add(UPDATE_NS);
        }
    }
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "small figures of tests")]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    struct World {
        envoy: Envoy,
        now_ns: u64,
    }

    impl World {
        fn new(floor: u32, probe: (usize, f64)) -> Self {
            let envoy = Envoy { probe, ..Envoy::new(Bounds::new(floor, floor, 1_000), 1) };
            Self { envoy, now_ns: 1_000_000 * MS }
        }

        /// Ends some calls of this latency, and waits for the end of their window.
        fn window(&mut self, calls: usize, latency_ms: u64) -> u32 {
            for _ in 0..calls {
                let (start_ns, end_ns) = (self.now_ns - latency_ms * MS, self.now_ns);
                let outcome = Outcome::Served;
                self.envoy.sample(Sample {
                    start_ns,
                    end_ns,
                    in_flight: 1,
                    fills_share: false,
                    outcome,
                });
            }
            self.now_ns += 101 * MS;
            self.envoy.run_timers(self.now_ns);
            self.envoy.limit()
        }
    }

    /// The figures of `MinRTTLogicTest`: 50 calls of 13 ms at a limit of 7.
    #[test]
    fn the_base_is_the_median_of_fifty_calls_at_the_floor() {
        let mut world = World::new(7, Envoy::new(Bounds::new(7, 7, 1_000), 1).probe);
        assert_eq!((world.window(49, 13), world.envoy.base_us), (7, 0));
        world.window(1, 13);
        assert_eq!((world.envoy.base_us, world.envoy.deferred), (13_000, None));
    }

    /// The figures of `CancelLatencySample`: the base of calls of 1 to 5 ms is 3 ms.
    #[test]
    fn the_base_is_a_median() {
        let mut world = World::new(3, (5, 0.25));
        for latency_ms in 1..=5 {
            world.window(1, latency_ms);
        }
        assert_eq!(world.envoy.base_us, 3_000);
    }

    /// The figures of `MinRTTBufferTest` and `ConcurrencyLimitBehaviorTestBasic`: a base of 5 ms.
    /// With a half more 6 ms lets the limit grow; with a tenth more 4 ms does, and 6 ms does not.
    #[test]
    fn the_limit_follows_the_ratio_to_the_base() {
        let mut world = World::new(3, (5, 0.5));
        let mut limit = world.window(5, 5);
        for _ in 0..10 {
            let next = world.window(5, 6);
            assert!(next > limit);
            limit = next;
        }
        let mut world = World::new(7, (5, 0.1));
        let mut limit = world.window(5, 5);
        for _ in 0..10 {
            let next = world.window(5, 4);
            assert!(limit <= next && limit * 2 >= next);
            limit = next;
        }
        for _ in 0..10 {
            let next = world.window(5, 6);
            assert!(next < limit && next >= 7);
            limit = next;
        }
    }

    /// The figures of `MinRTTReturnToPreviousLimit`, after a minute and its jitter instead of 31 s:
    /// the limit is 3 while the base is measured, and then what it was.
    #[test]
    fn the_limit_returns_after_a_measurement() {
        let mut world = World::new(3, (5, 0.25));
        world.window(5, 5);
        let limit = (0..5).map(|_| world.window(5, 4)).last().unwrap();
        assert!(limit > 3);
        world.now_ns += PROBE_NS + JITTER_NS;
        assert_eq!(world.window(0, 0), 3);
        world.now_ns += 1_000 * MS;
        assert_eq!(world.window(4, 13), 3);
        assert_eq!(world.window(1, 13), limit);
    }

    /// The figures of `ConsecutiveMinConcurrencyReset`: five windows of twice the base at the
    /// floor, and then the base is the new latency.
    #[test]
    fn five_windows_at_the_floor_measure_the_base_anew() {
        let mut world = World::new(7, (5, 0.0));
        world.window(5, 5);
        for _ in 0..5 {
            assert_eq!(world.window(5, 10), 7);
        }
        let mut limit = 7;
        for _ in 0..10 {
            let next = world.window(5, 10);
            assert!(next >= limit);
            limit = next;
        }
        assert!(limit > 7 && world.envoy.base_us == 10_000);
    }
}
