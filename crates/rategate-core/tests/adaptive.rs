//! Controllers: their bounds for any samples, and the tables of the projects they are from.

use std::mem::size_of;

use fastrand::Rng;
use rategate_core::adaptive::{Aimd, Bounds, Controller, Gradient, Knee, Outcome, Sample, Vegas};
use rategate_core::error::LimitError;

const MS: u64 = 1_000_000;

fn sample(latency_ns: u64, in_flight: u32, outcome: Outcome) -> Sample {
    Sample { start_ns: 0, end_ns: latency_ns, in_flight, outcome }
}

/// Returns the limits after each of these served samples.
fn limits<C: Controller>(mut controller: C, served: &[(u64, u32)]) -> Vec<u32> {
    let limit = |&(latency_ns, in_flight): &(u64, u32)| {
        controller.sample(sample(latency_ns, in_flight, Outcome::Served));
        controller.limit()
    };
    served.iter().map(limit).collect()
}

#[test]
fn vegas_has_the_values_of_the_tests_of_concurrency_limits() {
    let vegas = || Vegas::new(Bounds::new(1, 10, 20), 1);
    assert_eq!(limits(vegas(), &[(10 * MS, 10), (10 * MS, 11)]), [10, 16]);
    assert_eq!(limits(vegas(), &[(10 * MS, 10), (50 * MS, 11)]), [10, 9]);
    assert_eq!(limits(vegas(), &[(10 * MS, 10), (14 * MS, 14)]), [10, 10]);
    let mut dropping = vegas();
    dropping.sample(sample(10 * MS, 1, Outcome::Served));
    dropping.sample(sample(10 * MS, 1, Outcome::Dropped));
    assert_eq!(dropping.limit(), 9);
    let large = Vegas::new(Bounds::new(1, 10_000, 20_000), 1);
    assert_eq!(limits(large, &[(10_000 * MS, 5_000), (10_000 * MS, 6_000)]), [10_000, 10_024]);
}

#[test]
fn aimd_has_the_values_of_the_tests_of_concurrency_limits() {
    let aimd = |first, ceiling| Aimd::new(Bounds::new(1, first, ceiling));
    assert_eq!(limits(aimd(20, 200), &[(MS, 10)]), [21]);
    assert_eq!(limits(aimd(21, 21), &[(MS, 10)]), [21]);
    let mut dropping = aimd(30, 200);
    dropping.sample(sample(0, 0, Outcome::Dropped));
    assert_eq!(dropping.limit(), 27);
}

/// `Gradient2` of concurrency-limits, in floats as it is written there.
struct Float {
    limit: f64,
    long: f64,
    sum: f64,
    count: u32,
}

impl Float {
    fn sample(&mut self, latency_ns: u64, in_flight: u32) {
        let newest = f64::from(u32::try_from(latency_ns).unwrap());
        if self.count < 10 {
            self.count += 1;
            self.sum += newest;
            self.long = self.sum / f64::from(self.count);
        } else {
            let factor = 2.0 / 601.0;
            self.long = self.long * (1.0 - factor) + newest * factor;
        }
        let long = self.long;
        if long / newest > 2.0 {
            self.long *= 0.95;
        }
        if f64::from(in_flight) < self.limit / 2.0 {
            return;
        }
        let gradient = (1.5 * long / newest).clamp(0.5, 1.0);
        let next = self.limit * gradient + 4.0;
        self.limit = (self.limit * 0.8 + next * 0.2).clamp(1.0, 1000.0);
    }
}

#[test]
fn gradient_is_that_of_concurrency_limits_but_for_rounding() {
    for seed in 0..20 {
        let mut rng = Rng::with_seed(seed);
        let mut whole = Gradient::new(Bounds::new(1, 20, 1000));
        let mut float = Float { limit: 20.0, long: 0.0, sum: 0.0, count: 0 };
        let mut scale = 1;
        for _ in 0..5_000 {
            if rng.u32(..500) == 0 {
                scale = rng.u64(1..=8);
            }
            let latency_ns = scale * rng.u64(MS..3 * MS);
            let in_flight = rng.u32(1..=whole.limit() + 1);
            whole.sample(sample(latency_ns, in_flight, Outcome::Served));
            float.sample(latency_ns, in_flight);
            // A sample at half of the limit may count for one and not for the other.
            let off = f64::from(whole.limit()) - float.limit;
            assert!(off.abs() <= 1.0 + float.limit / 16.0, "{whole:?} is not {}", float.limit);
            float.limit = float.limit.clamp(f64::from(whole.limit()), f64::from(whole.limit() + 1));
        }
    }
}

/// Returns a sample that no clock and no server makes.
fn hostile(rng: &mut Rng, now_ns: &mut u64) -> Sample {
    let any = |rng: &mut Rng| match rng.u32(..6) {
        0 => 0,
        1 => u64::MAX,
        2 => u64::MAX - rng.u64(..1_000),
        3 => rng.u64(..1_000),
        4 => 1 << rng.u32(..64),
        _ => rng.u64(..),
    };
    *now_ns = now_ns.saturating_add(rng.u64(..20 * MS));
    let latency_ns = 1 << rng.u32(..40);
    let (start_ns, end_ns) = match rng.u32(..10) {
        0 => (any(rng), any(rng)),
        1 => (*now_ns, now_ns.saturating_sub(latency_ns)),
        _ => (now_ns.saturating_sub(latency_ns), *now_ns),
    };
    let in_flight = match rng.u32(..8) {
        0 => 0,
        1 => u32::MAX,
        _ => 1 << rng.u32(..12),
    };
    let outcome = match rng.u32(..10) {
        0 => Outcome::Ignored,
        1 | 2 => Outcome::Dropped,
        _ => Outcome::Served,
    };
    Sample { start_ns, end_ns, in_flight, outcome }
}

/// The sequences of hostile samples. `RATEGATE_SAMPLES` says how many for each controller.
fn sequences() -> u64 {
    let said = std::env::var("RATEGATE_SAMPLES").ok();
    said.map_or(2_000, |said| said.parse().expect("RATEGATE_SAMPLES is a number"))
}

fn keeps_its_bounds<C: Controller>(new: impl Fn(Bounds, u64) -> C) {
    for seed in 0..sequences() {
        let mut rng = Rng::with_seed(seed);
        let mut numbers = [rng.u32(1..50), rng.u32(1..2_000), rng.u32(1..u32::MAX)];
        numbers.sort_unstable();
        let [floor, first, ceiling] = numbers;
        let mut controller = new(Bounds::new(floor, first, ceiling), seed);
        let mut now_ns = rng.u64(..1 << 40);
        let mut tape = Vec::new();
        for _ in 0..300 {
            let sample = hostile(&mut rng, &mut now_ns);
            // Doubled, too.
            for _ in 0..rng.u32(1..=2) {
                controller.sample(sample);
                tape.push((sample, controller.limit()));
                let limit = controller.limit();
                assert!((floor..=ceiling).contains(&limit), "seed {seed}: {controller:?}");
            }
        }
        let mut again = new(Bounds::new(floor, first, ceiling), seed);
        for (sample, limit) in tape {
            again.sample(sample);
            assert_eq!(again.limit(), limit, "seed {seed}: {sample:?}");
        }
    }
}

#[test]
fn no_samples_move_a_limit_beyond_its_bounds() {
    keeps_its_bounds(Knee::new);
    keeps_its_bounds(Vegas::new);
    keeps_its_bounds(|bounds, _| Aimd::new(bounds));
    keeps_its_bounds(|bounds, _| Gradient::new(bounds));
}

#[test]
fn a_limit_that_is_not_reached_does_not_grow() {
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let mut knee = Knee::new(Bounds::new(1, 40, 1000), seed);
        let (mut now_ns, mut least) = (0, knee.limit());
        for _ in 0..5_000 {
            let in_flight = rng.u32(1..knee.limit().max(2));
            if in_flight >= knee.limit() {
                break;
            }
            now_ns += rng.u64(..4 * MS);
            let end_ns = now_ns + rng.u64(MS..30 * MS);
            let outcome = if rng.u32(..20) == 0 { Outcome::Dropped } else { Outcome::Served };
            knee.sample(Sample { start_ns: now_ns, end_ns, in_flight, outcome });
            assert!(knee.limit() <= least, "seed {seed}: {knee:?}");
            least = least.min(knee.limit());
        }
    }
}

#[test]
fn where_all_is_dropped_the_limit_falls_by_a_fifth_a_window() {
    let mut knee = Knee::new(Bounds::new(1, 500, 1000), 1);
    let (mut now_ns, mut windows, mut last) = (0, 0, knee.limit());
    while knee.limit() > 1 {
        now_ns += 4 * MS;
        let (start_ns, end_ns) = (now_ns, now_ns + 2 * MS);
        knee.sample(Sample { start_ns, end_ns, in_flight: 1, outcome: Outcome::Dropped });
        if knee.limit() < last {
            (last, windows) = (knee.limit(), windows + 1);
        }
        assert!(now_ns < 20_000 * MS, "{knee:?}");
    }
    // ln 500 / ln 1.25 = 27.9.
    assert!(windows <= 29, "{windows}");
}

#[test]
fn bounds_are_checked() {
    for (floor, first, ceiling) in [(0, 1, 1), (2, 1, 3), (1, 3, 2), (0, 0, 0)] {
        assert_eq!(Bounds::try_new(floor, first, ceiling), Err(LimitError::Bounds));
    }
    let bounds = Bounds::new(1, 1, u32::MAX);
    assert_eq!((bounds.floor(), bounds.first(), bounds.ceiling()), (1, 1, u32::MAX));
    assert!(size_of::<Knee>() <= 256, "{}", size_of::<Knee>());
}
