//! The tables that Guava publishes for its `SmoothWarmingUp`, in its test class `RateLimiterTest`.
//!
//! A row there is the time that each call sleeps, in hundredths of a second.

use std::time::Duration;

use crate::common::{S, granted, ns, part, rate};
use fastrand::Rng;
use rategate_core::ledger::Ledger;
use rategate_core::warm_up::WarmUp;

/// A limit, and a caller that sleeps until its permits start.
struct Caller {
    limit: Ledger,
    now_ns: u64,
}

impl Caller {
    fn new(permits_per_second: &str, period_ms: u64, cold_factor: &str) -> Self {
        Self {
            limit: Ledger::new(warm_up(permits_per_second, period_ms, cold_factor), 0),
            now_ns: 0,
        }
    }

    /// Returns for how many nanoseconds a call sleeps.
    fn acquire(&mut self, permits: u64) -> u64 {
        let start_ns = granted(self.limit.reserve(self.now_ns, permits, None)).unwrap().start_ns;
        let slept_ns = start_ns - self.now_ns;
        self.now_ns = start_ns;
        slept_ns
    }

    /// Returns for how many hundredths of a second each call for one permit sleeps.
    fn calls<const CALLS: usize>(&mut self) -> [u64; CALLS] {
        std::array::from_fn(|_| (self.acquire(1) + 5_000_000) / 10_000_000)
    }

    const fn sleep_ms(&mut self, ms: u64) {
        self.now_ns += ms * 1_000_000;
    }

    fn set_rate(&mut self, permits_per_second: &str) {
        let old = *part::<WarmUp>(&self.limit);
        let new = WarmUp::new(rate(permits_per_second), ns(old.period_ns()));
        let new = new.unwrap().with_cold_factor(old.cold_factor()).unwrap();
        self.limit.reconfigure(self.now_ns, new).unwrap();
    }
}

fn warm_up(permits_per_second: &str, period_ms: u64, cold_factor: &str) -> WarmUp {
    let warm_up = WarmUp::new(rate(permits_per_second), Duration::from_millis(period_ms)).unwrap();
    let warm_up = warm_up.with_cold_factor(cold_factor.parse().unwrap()).unwrap();
    warm_up.with_max_request(10).unwrap()
}

const COLD_2: [u64; 8] = [0, 138, 113, 88, 63, 50, 50, 50];
const WARM_2: [u64; 8] = [0, 50, 50, 50, 50, 50, 50, 50];
const COLD_5: [u64; 8] = [0, 175, 126, 76, 30, 20, 20, 20];
const WARM_5: [u64; 8] = [0, 20, 20, 20, 20, 20, 20, 20];

#[test]
fn test_warm_up() {
    let mut caller = Caller::new("2/s", 4_000, "3");
    assert_eq!(caller.calls(), COLD_2);
    caller.sleep_ms(500);
    caller.sleep_ms(4_000);
    assert_eq!(caller.calls(), COLD_2, "cold again");
    caller.sleep_ms(500);
    caller.sleep_ms(2_000);
    assert_eq!(caller.calls(), WARM_2, "it takes two more seconds to cool down");
}

/// The figures of `testWarmUp` before they are rounded.
#[test]
fn test_warm_up_to_the_nanosecond() {
    let mut caller = Caller::new("2/s", 4_000, "3");
    let sleeps_ms = [0, 1_375, 1_125, 875, 625, 500, 500, 500];
    assert_eq!([(); 8].map(|()| caller.acquire(1)), sleeps_ms.map(|ms| ms * 1_000_000));
}

#[test]
fn test_warm_up_with_cold_factor() {
    let mut caller = Caller::new("5/s", 4_000, "10");
    assert_eq!(caller.calls(), COLD_5);
    caller.sleep_ms(200);
    caller.sleep_ms(4_000);
    assert_eq!(caller.calls(), COLD_5, "cold again");
    caller.sleep_ms(200);
    caller.sleep_ms(1_000);
    assert_eq!(caller.calls(), WARM_5, "it takes three more seconds to cool down");
}

#[test]
fn test_warm_up_with_cold_factor_1() {
    let mut caller = Caller::new("5/s", 4_000, "1");
    assert_eq!(caller.calls(), WARM_5);
    caller.sleep_ms(340);
    assert_eq!(caller.calls(), WARM_5);
}

#[test]
fn test_warm_up_and_update() {
    let mut caller = Caller::new("2/s", 4_000, "3");
    assert_eq!(caller.calls(), COLD_2);
    caller.sleep_ms(4_500);
    assert_eq!(caller.calls(), [0, 138, 113]);
    caller.set_rate("4/s");
    assert_eq!(caller.calls(), [88], "the debt of the last call, at the rate of before");
    assert_eq!(caller.calls(), [34, 28, 25, 25]);
    caller.sleep_ms(4_250);
    assert_eq!(caller.calls(), [0, 72, 66, 59, 53, 47, 41, 34, 28, 25, 25]);
}

#[test]
fn test_warm_up_and_update_with_cold_factor() {
    let mut caller = Caller::new("5/s", 4_000, "10");
    assert_eq!(caller.calls(), COLD_5);
    caller.sleep_ms(4_200);
    assert_eq!(caller.calls(), [0, 175, 126]);
    caller.set_rate("10/s");
    assert_eq!(caller.calls(), [76], "the debt of the last call, at the rate of before");
    assert_eq!(caller.calls(), [20, 10, 10, 10]);
    caller.sleep_ms(4_100);
    assert_eq!(caller.calls(), [0, 94, 81, 69, 57, 44, 32, 20, 10, 10, 10]);
}

/// At an unlimited rate the limit is warm, and stays so. Guava repays the last permit's interval
/// after a change to an unlimited rate; here all limits pass at once then.
#[test]
fn test_infinity_warm_up() {
    let mut caller = Caller::new("unlimited", 10_000, "3");
    assert_eq!([1, 2, 4].map(|quarters| caller.acquire(quarters * (1 << 29))), [0; 3]);
    caller.set_rate("1/s");
    assert_eq!(caller.calls(), [0, 100, 100]);
    caller.set_rate("unlimited");
    assert_eq!(caller.calls(), [0, 0, 0]);
}

#[test]
fn test_infinity_warm_up_time_elapsed() {
    let mut caller = Caller::new("unlimited", 10_000, "3");
    caller.sleep_ms(1);
    caller.set_rate("1/s");
    assert_eq!(caller.calls(), [0, 100, 100, 100, 100]);
}

/// Ten permits from cold take the same time in calls of any size. In Guava the first permit
/// starts a call, so the instants at which the next caller is free are compared.
#[test]
fn test_time_to_warm_up_is_honoured_even_with_weights() {
    let mut random = Rng::with_seed(7);
    for _ in 0..100 {
        for (cold_factor, halves_of_sum) in [("2", 3), ("3", 4), ("10", 11)] {
            for (rate, interval_ms) in
                [("4/s", 250), ("2/s", 500), ("1/s", 1_000), ("1/2s", 2_000), ("1/10s", 10_000)]
            {
                let period_ms = halves_of_sum * 10 * interval_ms / 2;
                let mut caller = Caller::new(rate, period_ms, cold_factor);
                let mut left = 10;
                while left > 0 {
                    let permits = random.u64(..left).max(1);
                    left -= permits;
                    caller.acquire(permits);
                }
                caller.acquire(1);
                assert_eq!(caller.now_ns, period_ms * 1_000_000, "{rate}, {cold_factor}");
            }
        }
    }
}

/// A limit of 10/s with a warm-up of 500 ms, tried each 120 ms, is at the rate of its caller after
/// a second: what it denies does not cool it.
#[test]
fn a_limit_that_is_tried_again_and_again_becomes_warm() {
    let mut limit = Ledger::new(warm_up("10/s", 500, "3"), 0);
    let tries = (0..100).map(|nth| nth * 120_000_000);
    let passed = tries.map(|now_ns| (now_ns, granted(limit.try_acquire(now_ns, 1)).is_some()));
    let denied: Vec<u64> =
        passed.filter(|&(_, passes)| !passes).map(|(now_ns, _)| now_ns / 1_000_000).collect();
    assert_eq!(denied, [120, 240, 480], "nothing later");
    assert!(denied.iter().all(|&ms| ms * 1_000_000 < S));
}
