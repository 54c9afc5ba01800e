//! Parts of limits add up to the limit.

use std::time::Duration;

use fastrand::Rng;
use rategate_core::concurrency::Concurrency;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::node::{Divisible, Part};
use rategate_core::rate::Rate;
use rategate_core::sliding_log::SlidingLog;

use crate::common::S;

fn parts<P: Divisible>(limit: &P, count: u32) -> Vec<Option<P>> {
    (0..count).map(|index| limit.part(Part::new(index, count).unwrap())).collect()
}

/// S3.15, X3.7: each node has its part, and nothing of the limit is lost or given twice.
#[test]
fn parts_add_up_to_the_limit() {
    let mut random = Rng::with_seed(7);
    let period = Duration::from_nanos(10 * S);
    let (guard, grid) = (Duration::from_nanos(S), Duration::from_nanos(S / 4));
    for _ in 0..300 {
        let permits = random.choice([1, 2, 7, 1_000, 4_294_967_295]).unwrap();
        let count = random.u32(1..=40);
        let sum = |of: &dyn Fn(Part) -> u64| -> u64 {
            (0..count).map(|index| of(Part::new(index, count).unwrap())).sum()
        };
        assert_eq!(sum(&|part| part.of(permits)), permits);
        assert_eq!(sum(&|part| part.of(u64::MAX)), u64::MAX);

        let log = SlidingLog::new(permits, period).with_guard(guard).unwrap();
        let log = log.with_resolution(grid).unwrap();
        let window = FixedWindow::new(permits, period, Anchor::Epoch);
        let in_flight = Concurrency::new(permits);
        assert_eq!(sum(&|part| log.part(part).map_or(0, |log| log.permits())), permits);
        assert_eq!(sum(&|part| window.part(part).map_or(0, |window| window.permits())), permits);
        assert_eq!(sum(&|part| in_flight.part(part).map_or(0, |limit| limit.permits())), permits);
        let all = Part::new(0, 1).unwrap();
        assert_eq!(log.part(all), Some(log));
        assert_eq!((window.part(all), in_flight.part(all)), (Some(window), Some(in_flight)));
    }
}

/// A bucket is divided by its burst, and the rate goes with it.
#[test]
fn the_rates_of_buckets_add_up_to_the_rate() {
    for (burst, count) in [(1_u64, 1_u32), (1, 3), (10, 3), (7, 7), (100, 8)] {
        let bucket = Gcra::new(Rate::per_second(30), burst).unwrap();
        let (mut permits, mut earned) = (0, 0);
        for part in parts(&bucket, count).into_iter().flatten() {
            let (rate, each_ns) = part.rate().fraction().unwrap();
            permits += part.burst_size().get();
            // In as many seconds as the whole burst has permits, each part earns whole permits.
            let seconds_ns = u128::from(burst) * u128::from(S);
            assert_eq!(u128::from(rate) * seconds_ns % u128::from(each_ns), 0);
            earned += u128::from(rate) * seconds_ns / u128::from(each_ns);
        }
        assert_eq!((permits, earned), (burst, u128::from(30 * burst)));
    }
}

#[test]
fn only_nodes_of_the_division_have_a_part() {
    assert_eq!((Part::new(0, 0), Part::new(3, 3), Part::new(4, 3)), (None, None, None));
    let one = SlidingLog::new(1, Duration::from_nanos(S));
    assert_eq!(parts(&one, 3), [Some(one), None, None]);
}
