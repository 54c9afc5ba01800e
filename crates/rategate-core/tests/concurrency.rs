//! Tests of the `concurrency` contract, against a plain count of operations in flight.

use crate::common::granted;
use fastrand::Rng;
use rategate_core::concurrency::Concurrency;
use rategate_core::error::{ExceedsCapacity, LimitError};
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;
use rategate_core::verdict::Verdict;

/// Ceiling, retry and change at once: a call passes if and only if it fits, whatever the limit
/// was when the operations in flight started, and a denial names no wait.
#[test]
fn in_flight_never_exceeds_the_limit_of_the_moment() {
    for seed in 1..100 {
        let mut random = Rng::with_seed(seed);
        let mut max = random.u64(1..=6);
        let mut limit = Ledger::new(Concurrency::new(max), 0);
        let (mut in_flight, mut now_ns) = (0_u64, 0);
        for _ in 0..300 {
            now_ns += random.u64(0..=3);
            match random.u64(0..=9) {
                0 => {
                    max = random.u64(1..=6);
                    limit.reconfigure(now_ns, Concurrency::new(max));
                }
                1..=4 if in_flight > 0 => {
                    let ended = random.u64(1..=in_flight);
                    assert!(limit.release(now_ns, ended));
                    in_flight -= ended;
                }
                _ => {
                    let permits = random.u64(1..=max);
                    let answer = if random.u64(..2) == 0 {
                        limit.try_acquire(now_ns, permits)
                    } else {
                        limit.reserve(now_ns, permits, None)
                    };
                    if in_flight + permits <= max {
                        assert_eq!(granted(answer).unwrap().start_ns, now_ns, "seed {seed}");
                        in_flight += permits;
                    } else {
                        let Ok(Verdict::Denied(denial)) = answer else {
                            panic!("seed {seed}: {in_flight} + {permits} > {max}")
                        };
                        assert_eq!(denial.retry_after_ns, None, "time alone cannot help");
                    }
                }
            }
            assert_eq!(limit.remaining(now_ns), max.saturating_sub(in_flight), "seed {seed}");
        }
    }
}

#[test]
fn misuse_is_an_error() {
    assert_eq!(Concurrency::try_new(0), Err(LimitError::ZeroPermits));
    let mut limit = Ledger::new(Concurrency::new(3), 0);
    assert_eq!(limit.try_acquire(0, 4), Err(ExceedsCapacity::new(4, 3)));
    assert_eq!(limit.peek(0, 3), Ok(Some(0)));
    // More ended than had started: no permit is gained.
    assert!(limit.release(0, 10));
    assert_eq!(limit.remaining(0), 3);
    assert!(!limit.refill(0, 1));
}
