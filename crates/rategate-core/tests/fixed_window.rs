//! Tests of the `fixed_window` contract, against a count for each window of the grid.

use std::collections::HashMap;
use std::time::Duration;

use crate::common::{S, call, granted, ns, retry, start, window};
use fastrand::Rng;
use rategate_core::error::{ExceedsCapacity, LimitError};
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::ledger::Ledger;
use rategate_core::verdict::Verdict;
use rategate_testkit::oracle::Grants;

/// Units, Ceiling, Retry: every decision is that of one counter for each window.
#[test]
fn answers_are_those_of_one_counter_a_window() {
    for seed in 1..200 {
        let mut random = Rng::with_seed(seed);
        let (permits, period_ns) = (random.u64(1..=6), random.u64(1..=50));
        let anchor = random.choice([Anchor::Epoch, Anchor::FirstCall]).unwrap();
        let mut now_ns = random.u64(0..=90);
        let mut limit = Ledger::new(FixedWindow::new(permits, ns(period_ns), anchor), now_ns);
        let mut grid_ns = (anchor == Anchor::Epoch).then_some(0);
        let (mut counts, mut grants) = (HashMap::<u64, u64>::new(), Grants::default());
        let mut last_ns = now_ns;
        for _ in 0..100 {
            now_ns += random.choice([0, 0, 0, 1, 7, 60]).unwrap();
            let requested = random.u64(1..=permits);
            let reserves = random.u64(..2) == 0;
            // Looking anchors no grid.
            assert!(limit.peek(now_ns, requested).is_ok());
            let mut opens_ns = now_ns.max(last_ns);
            let window = |at_ns: u64| (at_ns - grid_ns.unwrap_or(at_ns)) / period_ns;
            while counts.get(&window(opens_ns)).unwrap_or(&0) + requested > permits {
                opens_ns += 1;
            }
            let answer = call(&mut limit, reserves, now_ns, requested);
            if reserves || opens_ns == now_ns {
                assert_eq!(start(answer), opens_ns, "seed {seed}");
                let grid_ns = *grid_ns.get_or_insert(opens_ns);
                *counts.entry((opens_ns - grid_ns) / period_ns).or_default() += requested;
                grants.add(opens_ns, requested);
                last_ns = opens_ns;
            } else {
                assert_eq!(retry(answer), opens_ns - now_ns, "seed {seed}");
            }
        }
        assert!(counts.values().all(|&count| count <= permits));
        let any_phase =
            |window_ns: u128| u128::from(permits) * (window_ns.div_ceil(period_ns.into()) + 1);
        grants.assert_ceiling(&format!("seed {seed}"), any_phase);
    }
}

/// S1.2: a window of the grid's length at another phase contains twice as many, which is why
/// there is a sliding log.
#[test]
fn across_a_border_twice_as_many_pass() {
    let mut limit = Ledger::new(FixedWindow::new(3, Duration::from_micros(1), Anchor::Epoch), 0);
    let mut grants = Grants::default();
    for now_ns in [999, 1_000] {
        assert!(granted(limit.try_acquire(now_ns, 3)).is_some());
        grants.add(now_ns, 3);
    }
    assert_eq!(grants.fullest_window(1_000).0, 6);
    assert_eq!(retry(limit.try_acquire(1_000, 1)), 1_000);
    assert!(granted(limit.try_acquire(1_999, 1)).is_none());
    assert!(granted(limit.try_acquire(2_000, 1)).is_some());
}

/// Clock: a clock that goes back stays in the newest window; at the end of 64 bits nothing wraps.
#[test]
fn a_bad_clock_gains_nothing() {
    let mut limit = Ledger::new(FixedWindow::new(1, Duration::from_micros(1), Anchor::Epoch), 0);
    assert!(granted(limit.try_acquire(5_500, 1)).is_some());
    assert!(granted(limit.try_acquire(4_500, 1)).is_none());
    assert_eq!(retry(limit.try_acquire(0, 1)), 500, "counted from the newest reading");

    let begin_ns = 18_446_744_073 * S;
    let mut limit = Ledger::new(window(1, S), begin_ns);
    assert!(granted(limit.try_acquire(u64::MAX, 1)).is_some());
    let Ok(Verdict::Denied(denial)) = limit.reserve(u64::MAX, 1, None) else { panic!("wrapped") };
    // The next border is the first full second after the clock's end.
    assert_eq!(denial.retry_after_ns.unwrap().get(), S - u64::MAX % S);
    // The clock's last instant is no border, or a window at it would never end.
    let mut limit = Ledger::new(window(1, 1), 0);
    assert!(granted(limit.try_acquire(u64::MAX - 1, 1)).is_some());
    assert_eq!(retry(limit.try_acquire(u64::MAX, 1)), 1);
}

/// Change: the count moves into the new window.
#[test]
fn a_change_keeps_the_count() {
    let mut limit = Ledger::new(window(4, 1_000), 0);
    assert!(granted(limit.try_acquire(2_300, 3)).is_some());
    limit.reconfigure(2_400, window(5, 100)).unwrap();
    assert_eq!(limit.remaining(2_400), 2);
    assert_eq!(retry(limit.try_acquire(2_450, 3)), 50);
    limit.reconfigure(2_460, window(2, 100)).unwrap();
    assert_eq!(limit.remaining(2_460), 0);
    assert_eq!(limit.remaining(2_500), 2);
    // A window that had passed by then is not carried over.
    limit.reconfigure(2_600, window(2, 5_000)).unwrap();
    assert_eq!(limit.remaining(2_600), 2);
    let first = FixedWindow::new(2, Duration::from_micros(1), Anchor::FirstCall);
    assert!(granted(limit.try_acquire(2_600, 2)).is_some());
    limit.reconfigure(2_700, first).unwrap();
    assert_eq!(retry(limit.try_acquire(2_700, 1)), 1_000, "a grid from the change on");
}

#[test]
fn misuse_is_an_error() {
    assert_eq!(FixedWindow::try_new(0, ns(1), Anchor::Epoch), Err(LimitError::ZeroPermits));
    assert_eq!(FixedWindow::try_new(1, ns(0), Anchor::Epoch), Err(LimitError::ZeroPeriod));
    let mut limit = Ledger::new(window(2, 10), 0);
    assert_eq!(limit.try_acquire(0, 3), Err(ExceedsCapacity::new(3, 2)));
}
