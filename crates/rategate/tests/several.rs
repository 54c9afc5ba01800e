//! Calls that pass several limits at once, or none.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rategate::error::{KeyedError, TryAllError};
use rategate::keyed::{Capacity, Hashing, JointDecision, Overflow, try_all};
use rategate::{Gcra, Keyed, Limiter, ManualClock, SlidingLog};
use rategate_testkit::ns;

const S: u64 = 1_000_000_000;

fn bucket(rate: &str, burst: u64) -> Gcra {
    Gcra::new(rate.parse().unwrap(), burst).unwrap()
}

fn table(burst: u64, capacity: Capacity, clock: &ManualClock) -> Keyed<u64, ManualClock> {
    Keyed::with_clock(bucket("1/s", burst), capacity, clock.clone())
}

/// S4.15: a limit for each tenant works together with others. The wait of a denied call is exact:
/// a nanosecond sooner it is denied again, and then it passes.
#[test]
fn a_call_passes_all_limits_or_takes_from_none() {
    let clock = ManualClock::new();
    let everybody = Limiter::with_clock(SlidingLog::new(5, Duration::from_nanos(S)), clock.clone());
    let tenants = table(3, Capacity::default(), &clock);
    let callers: Keyed<str, ManualClock> = Keyed::with_clock(
        SlidingLog::new(2, Duration::from_nanos(10 * S))
            .with_resolution(Duration::from_nanos(1))
            .unwrap(),
        Capacity::default(),
        clock.clone(),
    );
    let attempt = |cost| {
        try_all(&[callers.attempt("a", 1), everybody.attempt(cost), tenants.attempt(&7, cost)])
    };
    let left = || {
        (
            everybody.remaining().unwrap(),
            tenants.remaining(&7).unwrap(),
            callers.remaining("a").unwrap(),
        )
    };

    let JointDecision::Granted(grants) = attempt(2).unwrap() else {
        panic!("all limits have enough")
    };
    assert_eq!(grants.iter().map(rategate::Grant::permits).collect::<Vec<_>>(), [1, 2, 2]);
    assert_eq!(left(), (3, 1, 1));
    clock.advance(Duration::from_nanos(S / 4));
    let JointDecision::Denied { retry_after, by } = attempt(3).unwrap() else {
        panic!("2 too many")
    };
    assert_eq!((retry_after.map(ns), by), (Some(2 * S - S / 4), 2));
    assert_eq!(left(), (3, 1, 1), "nothing is taken");
    clock.advance(Duration::from_nanos(2 * S - S / 4 - 1));
    assert!(!attempt(3).unwrap().is_granted());
    clock.advance(Duration::from_nanos(1));
    assert!(attempt(3).unwrap().is_granted());
    assert_eq!(attempt(1).unwrap().retry_after(), Some(Duration::from_secs(8)));
    assert_eq!(callers.remaining("a").unwrap(), 0);
}

#[test]
fn who_was_not_known_leaves_no_trace_of_a_denial() {
    let clock = ManualClock::new();
    let tenants = table(3, Capacity::for_keys(2).or_else(Overflow::Refuse), &clock);
    let never = Limiter::with_clock(bucket("never", 1), clock.clone());
    for key in 0..10 {
        let denied = try_all(&[tenants.attempt(&key, 1), never.attempt(1)]).unwrap();
        assert_eq!(denied, JointDecision::Denied { retry_after: None, by: 1 });
    }
    assert_eq!(tenants.len(), 0);
    assert!(try_all(&[tenants.attempt(&1, 3), tenants.attempt(&2, 3)]).unwrap().is_granted());
    let full = try_all(&[tenants.attempt(&1, 3), tenants.attempt(&3, 1)]);
    assert_eq!(full, Err(TryAllError { at: 1, error: KeyedError::TableFull }));
    assert_eq!((tenants.remaining(&1).unwrap(), tenants.remaining(&2).unwrap()), (0, 0));
}

#[test]
fn duplicates_and_excessive_permits_are_refused() {
    let clock = ManualClock::new();
    let (tenants, limiter) =
        (table(3, Capacity::default(), &clock), Limiter::with_clock(bucket("1/s", 3), clock));
    let twice = |at| Err(TryAllError { at, error: KeyedError::Duplicate });
    assert_eq!(try_all(&[tenants.attempt(&1, 1), tenants.attempt(&1, 1)]), twice(1));
    assert_eq!(
        try_all(&[limiter.attempt(1), tenants.attempt(&1, 1), limiter.attempt(1)]),
        twice(2)
    );
    let key_limiter = tenants.limiter(&1).unwrap();
    assert_eq!(try_all(&[key_limiter.attempt(1), tenants.attempt(&1, 1)]), twice(1));
    let error = try_all(&[limiter.attempt(3), tenants.attempt(&1, 4)]).unwrap_err();
    assert_eq!(error.at, 1);
    assert!(matches!(error.error, KeyedError::ExceedsCapacity(_)), "{error}");
    limiter.close();
    assert_eq!(
        try_all(&[tenants.attempt(&1, 1), limiter.attempt(1)]),
        Err(TryAllError { at: 1, error: KeyedError::Closed })
    );
    assert_eq!(tenants.remaining(&1).unwrap(), 3);
    assert_eq!(try_all(&[]), Ok(JointDecision::Granted(Vec::new())));
}

/// A key with waiters is decided by its limiter, behind the waiters.
#[test]
fn a_joint_attempt_does_not_overtake_waiters_of_a_key() {
    let clock = ManualClock::new();
    let tenants = table(1, Capacity::default(), &clock);
    let limiter = tenants.limiter(&1).unwrap();
    let first = limiter.reserve(1).unwrap();
    let second = limiter.reserve(1).unwrap();
    let JointDecision::Denied { retry_after, by: 1 } =
        try_all(&[tenants.attempt(&2, 1), tenants.attempt(&1, 1)]).unwrap()
    else {
        panic!("two reservations come first")
    };
    assert_eq!(retry_after.map(ns), Some(2 * S));
    assert!(second.cancel());
    drop((first, limiter));
    clock.advance(Duration::from_nanos(S));
    assert!(try_all(&[tenants.attempt(&2, 1), tenants.attempt(&1, 1)]).unwrap().is_granted());
}

/// Threads use equal limits in all orders: none waits for ever, and each limit holds.
#[test]
fn calls_in_any_order_do_not_block_each_other() {
    const ROUNDS: u64 = 300;
    let clock = ManualClock::new();
    let tables = [7, 5].map(|burst| {
        let capacity = Capacity::for_keys(3).or_else(Overflow::Refuse);
        Keyed::<u64, _>::with_hashing(bucket("1/s", burst), capacity, Hashing::Fast, clock.clone())
    });
    let limiter = Limiter::with_clock(bucket("1/s", 6), clock.clone());
    let granted = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (tables, limiter, granted, clock) = (&tables, &limiter, &granted, &clock);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let [a, b] = tables;
                    let attempts = match (thread + round) % 4 {
                        0 => [a.attempt(&1, 1), b.attempt(&1, 1), limiter.attempt(1)],
                        1 => [limiter.attempt(1), b.attempt(&1, 1), a.attempt(&1, 1)],
                        2 => [b.attempt(&1, 1), limiter.attempt(1), a.attempt(&1, 1)],
                        _ => [b.attempt(&1, 1), a.attempt(&1, 1), limiter.attempt(1)],
                    };
                    let key_limiter = (round % 16 == 0).then(|| a.limiter(&1).unwrap());
                    if try_all(&attempts).unwrap().is_granted() {
                        granted.fetch_add(1, Ordering::Relaxed);
                    }
                    drop(key_limiter);
                    if thread == 0 && round % 10 == 0 {
                        clock.advance(Duration::from_nanos(S));
                    }
                }
            });
        }
    });
    // The tightest limit has 5, and one more with each second.
    let max_granted = 5 + ROUNDS / 10;
    assert!(granted.load(Ordering::Relaxed) <= max_granted);
    assert!(granted.load(Ordering::Relaxed) >= 5);
    clock.advance(Duration::from_nanos(S * 10));
    assert!(try_all(&[tables[0].attempt(&1, 7), limiter.attempt(6)]).unwrap().is_granted());
}
