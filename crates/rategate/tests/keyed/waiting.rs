//! Waits by key, and operations on all keys of a table.

use std::time::Duration;

use rategate::error::{AcquireError, Error, ErrorKind, KeyedError};
use rategate::keyed::{Capacity, Overflow};
use rategate::policy::Anchor;
use rategate::stats::Detail;
use rategate::{AllOf, AnyPolicy, Gcra, Keyed, Limiter, ManualClock, SlidingLog};
use rategate_testkit::ns;

use super::{MS, S, bucket, passes, table};
use rategate_testkit::executor::{Task, play};

/// A wait by key starts where the key's limiter would let it start, and is counted once.
#[test]
fn a_thread_waits_by_key() {
    let (keyed, clock) = table::<str>(bucket("1/s", 1), 10, Overflow::Refuse);
    let keyed = keyed.with_stats("keys", Detail::exact(), str::to_owned);
    let starts = [(); 3].map(|()| ns(keyed.acquire("a", 1).unwrap().released_at()));
    assert_eq!(starts, [0, S, 2 * S]);
    let waited = keyed.acquire_within("a", 1, Duration::from_millis(999));
    let Err(error) = waited else { panic!("{waited:?}") };
    assert_eq!(
        (error.kind(), error.retry_after()),
        (ErrorKind::NotYet, Some(Duration::from_millis(1)))
    );
    assert_eq!(ns(clock_now(&clock)), 2 * S, "reported at once");
    assert!(keyed.acquire_within("a", 1, Duration::from_secs(1)).is_ok());
    let counts = keyed.stats().unwrap().report().counts;
    assert_eq!((counts.granted_calls, counts.denied_calls), (4, 1));
}

fn clock_now(clock: &ManualClock) -> Duration {
    Duration::from_nanos(rategate::Clock::now_ns(clock))
}

/// Each way in which a wait by key can fail keeps its own kind.
#[test]
fn a_wait_by_key_fails_by_kind() {
    let (keyed, _) = table::<u64>(bucket("1/s", 1), 1, Overflow::Refuse);
    assert_eq!(keyed.acquire(&1, 2).unwrap_err().kind(), ErrorKind::Never);
    assert!(keyed.acquire(&1, 1).is_ok());
    assert_eq!(keyed.acquire(&2, 1), Err(Error::Keyed(KeyedError::TableFull)));
    let limiter = keyed.limiter(&1).unwrap();
    limiter.close();
    assert_eq!(keyed.acquire(&1, 1).unwrap_err().kind(), ErrorKind::Closed);
    let (never, _) = table::<u64>(bucket("never", 1), 1, Overflow::Refuse);
    assert_eq!(never.acquire(&1, 1), Err(Error::Acquire(AcquireError::TimeCannotHelp)));
}

/// Tasks that wait by key are served in arrival order, behind threads' limiters too, and a
/// dropped wait leaves the queue. The futures can move between threads.
#[test]
fn tasks_wait_by_key() {
    let clock = ManualClock::stepped();
    let keyed: Keyed<u64, ManualClock> =
        Keyed::with_clock(bucket("1/s", 1), Capacity::for_keys(10), clock.clone());
    assert_eq!(passes(&keyed, &1), Some(true));
    let start = |grant: Result<rategate::Grant, Error>| grant.map(|grant| ns(grant.promised_at()));
    let mut tasks = [
        Task::new(async { start(keyed.acquire_async(&1, 1).await) }),
        Task::new(async { start(keyed.acquire_async(&1, 1).await) }),
        Task::new(async { start(keyed.acquire_async(&2, 1).await) }),
        Task::new(async { start(keyed.acquire_async(&1, 1).await) }),
    ];
    let wait = Duration::from_millis(2_500);
    let late = Task::new(async { start(keyed.acquire_async_within(&1, 1, wait).await) });
    assert!(matches!(late.result, Some(Err(Error::Acquire(AcquireError::TooLong(_))))));
    tasks[1].future = None;
    play(&clock, &mut tasks, 10 * S);
    assert_eq!(
        tasks.map(|task| task.result.map(Result::unwrap)),
        [Some(S), None, Some(0), Some(2 * S)]
    );
    clock.set(Duration::from_millis(3_050));
    keyed.retain_recent();
    assert_eq!(keyed.len(), 0, "limiters go with their last waiter");
}

/// Recovered keys are evicted, of every form in which a table keeps a key, and no other key.
#[test]
fn recovered_keys_are_evicted_and_no_others() {
    let second = Duration::from_secs(1);
    let policies = [
        AnyPolicy::from(Gcra::per_second(1)),
        AnyPolicy::from(SlidingLog::new(1, second)),
        AnyPolicy::from(rategate::FixedWindow::new(1, second, Anchor::Epoch)),
        AnyPolicy::from(SlidingLog::new(1, second).compact()),
    ];
    for policy in policies {
        let (keyed, clock) = table::<u64>(policy, 100, Overflow::Refuse);
        for key in 0..20 {
            clock.set(Duration::from_millis(1_000 + key * 100));
            assert_eq!(passes(&keyed, &key), Some(true));
        }
        let recovered =
            (0..20).filter(|key| keyed.status(key).unwrap().fresh_in == Some(Duration::ZERO));
        clock.advance(Duration::from_nanos(1));
        let recovered = recovered.count();
        assert!((9..=10).contains(&recovered), "{policy:?}: {recovered}");
        let known = keyed.iter().filter(|(_, status)| status.remaining == 0).count();
        assert_eq!(known, 20 - recovered, "{policy:?}");
        keyed.retain_recent();
        assert_eq!(keyed.len(), 20 - recovered, "{policy:?}");
        assert_eq!(keyed.iter().count(), 20 - recovered, "{policy:?}");
        for key in 0..20 {
            let is_known = keyed.iter().any(|(id, _)| id.number() == key);
            assert_eq!(keyed.remaining(&key).unwrap(), u64::from(!is_known), "{policy:?}");
        }
        assert_eq!(keyed.clear(), Ok(20 - recovered), "{policy:?}");
        assert!((0..20).all(|key| passes(&keyed, &key) == Some(true)), "{policy:?}");
    }
}

/// Every limiter can be reset, one of several limits too, and tells whether that changed it.
#[test]
fn several_limits_are_reset_together() {
    let clock = ManualClock::new();
    for log in [false, true] {
        let both = AllOf::default().and(Gcra::per_hour(10).burst(10));
        let both = if log {
            both.and(SlidingLog::new(3, Duration::from_secs(1)))
        } else {
            both.and(Gcra::per_hour(3).burst(3))
        };
        let limiter = Limiter::with_clock(both, clock.clone());
        assert_eq!(limiter.reset(), Ok(false));
        assert!(limiter.try_acquire(3).unwrap().is_granted());
        assert!(!limiter.try_acquire(1).unwrap().is_granted());
        assert_eq!(limiter.reset(), Ok(true));
        assert!(limiter.try_acquire(3).unwrap().is_granted());
        assert!(!limiter.try_acquire(1).unwrap().is_granted());
        clock.advance(Duration::from_nanos(MS));
    }
}
