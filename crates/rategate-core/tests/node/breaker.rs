//! Laws of the circuit breaker.

use std::num::{NonZeroU32, NonZeroU64};

use fastrand::Rng;
use rategate_core::node::{Breaker, BreakerConfig, Pass};

use crate::common::MS;
use crate::node::n;

fn opened() -> Breaker {
    let mut breaker = Breaker::new(BreakerConfig::default());
    for _ in 0..5 {
        assert_eq!(breaker.pass(0), Pass::Go);
        breaker.failed(0);
    }
    breaker
}

#[test]
fn opens_after_failures_in_a_row_and_an_answer_starts_the_count_anew() {
    let mut breaker = Breaker::new(BreakerConfig::default());
    for _ in 0..4 {
        breaker.failed(0);
    }
    assert!(!breaker.is_open());
    breaker.answered();
    for _ in 0..4 {
        breaker.failed(0);
    }
    assert_eq!(breaker.pass(0), Pass::Go);
    breaker.failed(0);
    assert!(breaker.is_open());
    assert_eq!(breaker.pass(0), Pass::Reject { for_ns: n(100 * MS) });
    assert_eq!(breaker.pass(100 * MS - 1), Pass::Reject { for_ns: n(1) });
    assert_eq!(breaker.pass(100 * MS), Pass::Probe);
}

#[test]
fn pauses_double_to_the_longest_and_each_has_one_probe() {
    let mut breaker = opened();
    let mut now_ns = 0;
    for pause_ms in [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000] {
        let for_ns = n(pause_ms * MS);
        assert_eq!(breaker.pass(now_ns), Pass::Reject { for_ns });
        now_ns += pause_ms * MS;
        assert_eq!(breaker.pass(now_ns), Pass::Probe);
        assert_eq!(breaker.pass(now_ns), Pass::Reject { for_ns }, "one probe");
        // It fails 20 ms later, and the pause counts from then.
        now_ns += 20 * MS;
        breaker.failed(now_ns);
        assert!(breaker.is_open());
    }
    breaker.answered();
    assert_eq!(breaker.pass(now_ns), Pass::Go);
    for _ in 0..5 {
        breaker.failed(now_ns);
    }
    assert_eq!(breaker.pass(now_ns), Pass::Reject { for_ns: n(100 * MS) }, "pauses start anew");
}

#[test]
fn requests_of_before_it_opened_lengthen_no_pause_and_a_lost_probe_no_more_than_one() {
    let mut breaker = opened();
    for _ in 0..50 {
        breaker.failed(30 * MS);
    }
    assert_eq!(breaker.pass(30 * MS), Pass::Reject { for_ns: n(70 * MS) });
    assert_eq!(breaker.pass(100 * MS), Pass::Probe);
    assert_eq!(breaker.pass(199 * MS), Pass::Reject { for_ns: n(MS) });
    assert_eq!(breaker.pass(200 * MS), Pass::Probe);
}

#[test]
fn never_more_than_one_probe_in_a_pause_whatever_is_called_when() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let config = BreakerConfig {
            failures: NonZeroU32::new(u32::try_from(random.u64(1..=6)).unwrap()).unwrap(),
            pause_ns: n(random.u64(1..=50)),
            max_pause_ns: n(random.u64(50..=400)),
        };
        let mut breaker = Breaker::new(config);
        let (mut now_ns, mut in_a_row, mut last_probe_ns) = (0_u64, 0_u32, None::<u64>);
        for _ in 0..2_000 {
            now_ns += random.u64(0..=20);
            let was_open = breaker.is_open();
            match breaker.pass(now_ns) {
                Pass::Go => assert!(!was_open && in_a_row < config.failures.get()),
                Pass::Reject { for_ns } => {
                    assert!(was_open && for_ns <= config.max_pause_ns);
                }
                Pass::Probe => {
                    assert!(was_open);
                    let since_ns = last_probe_ns.map_or(u64::MAX, |last| now_ns - last);
                    let min_pause = config.pause_ns.min(config.max_pause_ns);
                    assert!(NonZeroU64::new(since_ns).is_some_and(|since| since >= min_pause));
                    last_probe_ns = Some(now_ns);
                }
            }
            if random.u64(..15) == 0 {
                breaker.answered();
                assert!(!breaker.is_open());
                (in_a_row, last_probe_ns) = (0, None);
            } else if random.u64(..2) == 0 {
                breaker.failed(now_ns);
                in_a_row += 1;
            }
        }
    }
}

/// A store known to be available is probed at once, and a failure there restarts the pauses.
#[test]
fn a_store_that_is_back_is_looked_at_at_once() {
    let mut breaker = Breaker::new(BreakerConfig::default());
    breaker.probe_now();
    assert_eq!(breaker.pass(0), Pass::Go);
    for _ in 0..5 {
        breaker.failed(0);
    }
    let mut now_ns = 0;
    for _ in 0..4 {
        now_ns += breaker.closed_for_ns(now_ns).unwrap().get();
        assert_eq!(breaker.pass(now_ns), Pass::Probe);
        breaker.failed(now_ns);
    }
    assert_eq!(breaker.closed_for_ns(now_ns).unwrap().get(), 1_600_000_000);
    breaker.probe_now();
    assert_eq!(breaker.pass(now_ns), Pass::Probe);
    assert!(matches!(breaker.pass(now_ns), Pass::Reject { .. }), "one, not all");
    breaker.failed(now_ns);
    assert_eq!(breaker.closed_for_ns(now_ns).unwrap().get(), 200_000_000);
}
