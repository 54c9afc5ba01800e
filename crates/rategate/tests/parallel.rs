//! Parallel iterators whose actions pass a limiter.

use std::time::Duration;

use rategate::{AcquireError, Limiter, ManualClock, RateLimitedParallelExt, SlidingLog};
use rategate_testkit::ns;
use rayon::prelude::*;

const S: u64 = 1_000_000_000;

/// S4.12: fifty items at 5/s start five in each second, 9 s to the last, whatever rayon pulls and
/// on any number of threads.
#[test]
fn actions_of_a_parallel_iterator_are_gated_one_by_one() {
    let limiter =
        Limiter::with_clock(SlidingLog::new(5, Duration::from_nanos(S)), ManualClock::new());
    let items = (0..50_u64).into_par_iter();
    let actions = items.rate_limited_map(&limiter, |item, grant| (item, ns(grant.promised_at())));
    let mut done = actions.collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(done.iter().map(|&(item, _)| item).collect::<Vec<_>>(), (0..50).collect::<Vec<_>>());
    done.sort_unstable_by_key(|&(_, start_ns)| start_ns);
    let starts: Vec<u64> = done.into_iter().map(|(_, start_ns)| start_ns).collect();
    assert!(starts.windows(6).all(|six| six.first().unwrap() + S <= *six.last().unwrap()));
    // A thread that sleeps moves the clock, also past the start of one that has not run yet: that
    // costs a grace period of 10 ms.
    assert!((9 * S..9 * S + S / 2).contains(starts.last().unwrap()));
}

/// A closed limiter runs no action, and the error is returned.
#[test]
fn a_closed_limiter_runs_no_action() {
    let limiter =
        Limiter::with_clock(SlidingLog::new(5, Duration::from_nanos(S)), ManualClock::new());
    limiter.close();
    let actions = (0..9).into_par_iter().rate_limited_map(&limiter, |_, _| unreachable!());
    assert_eq!(actions.collect::<Result<Vec<()>, _>>(), Err(AcquireError::Closed));
}
