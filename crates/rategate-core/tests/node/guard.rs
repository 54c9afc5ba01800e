//! Laws of the guarded limit, by which leases stay within the promised limit.

use std::time::Duration;

use fastrand::Rng;
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::node::{GuardError, Lent, guarded};
use rategate_core::rate::Rate;
use rategate_core::sliding_log::SlidingLog;

use crate::common::{S, granted, rate};

fn up_to_bits(random: &mut Rng, max: u64) -> u64 {
    let bits = random.u64(1..=max);
    random.u64(1..=1 << bits)
}

#[test]
fn a_log_is_held_longer_by_the_length_on_top_of_its_own_guard() {
    let log =
        SlidingLog::new(10, Duration::from_nanos(S)).with_guard(Duration::from_nanos(5)).unwrap();
    assert_eq!(guarded(log, 100).unwrap(), log.with_guard(Duration::from_nanos(105)).unwrap());
    let max_ns = u64::MAX - S - 5;
    assert!(guarded(log, max_ns).is_ok());
    assert_eq!(guarded(log, max_ns + 1), Err(GuardError::TooLong { max_ns }));
}

#[test]
fn a_bucket_loses_what_it_earns_within_the_length_and_the_error_names_the_longest_that_fits() {
    let bucket = Gcra::new(rate("1000/s"), 100).unwrap();
    assert_eq!(guarded(bucket, 50_000_000), Gcra::new(rate("1000/s"), 50).map_err(|_| panic!()));
    // 49.5 permits.
    assert_eq!(guarded(bucket, 49_500_000).unwrap().burst_size().get(), 50);
    let mut random = Rng::with_seed(3);
    for _ in 0..20_000 {
        let permits = up_to_bits(&mut random, 40);
        let period_ns = up_to_bits(&mut random, 40);
        let rate = Rate::new(permits, Duration::from_nanos(period_ns)).unwrap();
        let bucket = Gcra::new(rate, up_to_bits(&mut random, 30)).unwrap();
        let Err(GuardError::Burst { max_ns }) = guarded(bucket, u64::MAX >> 1) else {
            continue;
        };
        assert!(guarded(bucket, max_ns).is_ok(), "{bucket:?}");
        assert!(guarded(bucket, max_ns + 1).is_err(), "{bucket:?}");
    }
}

#[test]
fn the_two_ends_of_the_rate_need_no_guard() {
    for rate in [Rate::NEVER, Rate::UNLIMITED] {
        let bucket = Gcra::new(rate, 7).unwrap();
        assert_eq!(guarded(bucket, S), Ok(bucket));
    }
}

#[test]
fn no_more_is_out_than_nodes_can_have_and_than_was_debited_within_a_length() {
    let bucket = Gcra::new(rate("1000/s"), 100).unwrap();
    assert_eq!(bucket.outstanding(10, 5, S), 50);
    assert_eq!(bucket.outstanding(10, 5_000, S / 10), 199);
    let log = SlidingLog::new(100, Duration::from_nanos(S));
    assert_eq!(log.outstanding(3, 10, S), 30);
    assert_eq!(log.outstanding(30, 10, S), 100);
    assert_eq!(log.outstanding(30, 10, S + 1), 200);
    assert_eq!(log.outstanding(u64::MAX, u64::MAX, S), 100);
}

/// The latest use of one lease and the earliest of the next are a period apart.
#[test]
fn the_latest_use_of_one_lease_and_the_soonest_of_the_next_are_a_period_apart() {
    let (period_ns, length_ns) = (10, 6);
    let promised = SlidingLog::new(1, Duration::from_nanos(period_ns));
    let mut store = Ledger::new(guarded(promised, length_ns).unwrap(), 0);
    let mut actions = Vec::new();
    for now_ns in 0..200 {
        if granted(store.try_acquire(now_ns, 1)).is_some() {
            let is_late = actions.len() % 2 == 0;
            actions.push(now_ns + if is_late { length_ns - 1 } else { 0 });
        }
    }
    assert!(actions.len() > 10);
    assert!(actions.windows(2).all(|two| two[1] - two[0] >= period_ns), "{actions:?}");
}
