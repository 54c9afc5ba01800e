//! The status of a key's limit, and changes made by its owner, which leave no trace if nothing is
//! used.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use rategate::error::KeyedError;
use rategate::keyed::{Capacity, JointDecision, Overflow, try_all};
use rategate::policy::Anchor;
use rategate::policy::Mode;
use rategate::wait::{CancelToken, Timer, Wake};
use rategate::{
    AnyPolicy, AsyncLimiter, Clock, CommitLog, Concurrency, FixedWindow, Grant, Keyed, ManualClock,
    SlidingLog, Status, TwoTimeline,
};

use crate::keyed::{S, bucket, outcome, passes, table};

fn policies() -> Vec<AnyPolicy> {
    vec![
        bucket("1/s", 3).into(),
        FixedWindow::new(3, Duration::from_nanos(S), Anchor::Epoch).into(),
        SlidingLog::new(3, Duration::from_nanos(S)).compact().into(),
        SlidingLog::new(3, Duration::from_nanos(S)).into(),
        Concurrency::new(3).into(),
        CommitLog::new(3, Duration::from_nanos(S)).into(),
    ]
}

/// A key that has taken nothing is not kept, in a slot or behind the lock.
#[test]
fn an_unknown_key_leaves_no_trace() {
    for policy in policies() {
        let (keyed, _) = table::<str>(policy, 1, Overflow::Refuse);
        assert_eq!(keyed.credit("a", 5), Ok(0), "{policy:?}");
        assert_eq!(keyed.reset("a"), Ok(false), "{policy:?}");
        let fresh = Status::new(3, Some(Duration::ZERO), 3);
        assert_eq!(keyed.status("a"), Ok(fresh), "{policy:?}");
        let (decision, status) = keyed.try_acquire_with_status("a", 0).unwrap();
        assert_eq!((outcome(decision), status), ((true, 0), fresh), "{policy:?}");
        let Err(KeyedError::ExceedsCapacity(_)) = keyed.try_acquire_with_status("a", 4) else {
            panic!()
        };
        assert_eq!(keyed.len(), 0, "{policy:?}");
        assert_eq!(passes(&keyed, "b"), Some(true), "the only entry is free: {policy:?}");
    }
}

/// A key whose permits were all credited is evicted as soon as no grant could tell.
#[test]
fn a_recovered_key_needs_no_slot() {
    for policy in policies() {
        let (keyed, clock) = table::<u64>(policy, 1, Overflow::Refuse);
        for again in [false, true] {
            let _ = keyed.try_acquire(&1, 2).unwrap();
            if again {
                assert_eq!(keyed.reset(&1), Ok(true), "{policy:?}");
            } else {
                assert_eq!(keyed.credit(&1, 9), Ok(2), "{policy:?}");
            }
            assert_eq!(keyed.status(&1), Ok(Status::new(3, Some(Duration::ZERO), 3)), "{policy:?}");
            clock.advance(Duration::from_secs(4));
            assert_eq!(keyed.remaining(&1), Ok(3));
            assert_eq!(keyed.len(), 0, "{policy:?}");
        }
    }
}

/// A policy that never fully recovers reports so, and can be reset all the same.
#[test]
fn what_never_rests_begins_anew() {
    let (keyed, _) = table::<u64>(
        TwoTimeline::new("1/s".parse().unwrap(), Mode::Batched { min_sleep_ns: 0 }, None),
        4,
        Overflow::Refuse,
    );
    assert_eq!(passes(&keyed, &1), Some(true));
    assert_eq!(keyed.status(&1), Ok(Status::new(0, None, 1)));
    assert_eq!(keyed.reset(&1), Ok(true));
    assert_eq!(passes(&keyed, &1), Some(true));
    assert_eq!(keyed.credit(&1, 7), Ok(1));
    assert_eq!(passes(&keyed, &1), Some(true));
}

/// The reported time until fresh is exact: a nanosecond sooner the key still counts.
#[test]
fn fresh_when_it_says() {
    for policy in policies() {
        let (keyed, clock) = table::<u64>(policy, 1, Overflow::Refuse);
        clock.advance(Duration::from_nanos(S / 3));
        let (_, status) = keyed.try_acquire_with_status(&1, 2).unwrap();
        let AnyPolicy::Concurrency(_) = policy else {
            let _ = keyed.release(&1, 2);
            let fresh_in = keyed.status(&1).unwrap().fresh_in.unwrap();
            if !matches!(policy, AnyPolicy::CommitLog(_)) {
                assert_eq!(status.fresh_in, Some(fresh_in), "{policy:?}");
            }
            clock.advance(fresh_in.saturating_sub(Duration::from_nanos(1)));
            assert_eq!(
                keyed.status(&1).unwrap().fresh_in,
                Some(Duration::from_nanos(1)),
                "{policy:?}"
            );
            clock.advance(Duration::from_nanos(1));
            assert_eq!(keyed.status(&1).unwrap().fresh_in, Some(Duration::ZERO), "{policy:?}");
            let (_, status) = keyed.try_acquire_with_status(&1, 3).unwrap();
            assert_eq!(status.remaining, 0, "{policy:?}");
            continue;
        };
        assert_eq!(status, Status::new(1, None, 3));
    }
}

/// A clock that stands still, and counts its readings.
#[derive(Clone, Debug, Default)]
struct Counted(Arc<AtomicU64>);

impl Clock for Counted {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed);
        S
    }

    fn wait(&self, _: u64, _: &CancelToken) -> Wake {
        Wake::Due
    }

    fn timer(&self) -> &dyn Timer {
        unreachable!("no caller waits")
    }
}

/// A try in a slot reads the clock once, even if it returns the status too.
#[test]
fn one_reading_tells_all() {
    let clock = Counted::default();
    let keyed: Keyed<u64, Counted> =
        Keyed::with_clock(bucket("1/s", 3), Capacity::for_keys(10), clock.clone());
    let _ = keyed.try_acquire_with_status(&1, 1).unwrap();
    for permits in [1, 2, 0] {
        let before = clock.0.load(Ordering::Relaxed);
        let _ = keyed.try_acquire_with_status(&1, permits).unwrap();
        assert_eq!(clock.0.load(Ordering::Relaxed), before + 1, "{permits} permits");
    }
}

/// A denial reports the permits left, and takes none of them.
#[test]
fn a_denial_tells_what_is_left() {
    for policy in policies() {
        let (keyed, _) = table::<u64>(policy, 4, Overflow::Refuse);
        let _ = keyed.try_acquire(&1, 2).unwrap();
        for _ in 0..2 {
            let (decision, status) = keyed.try_acquire_with_status(&1, 2).unwrap();
            assert!(!decision.is_granted(), "{policy:?}");
            assert_eq!(status, keyed.status(&1).unwrap(), "{policy:?}");
            assert_eq!(status.remaining, 1, "{policy:?}");
        }
    }
}

/// New keys of a full table get the status of the limit that they share, and credit nothing to
/// it.
#[test]
fn new_keys_report_the_shared_status() {
    let (keyed, _) = table::<u64>(bucket("1/s", 3), 1, Overflow::Share);
    assert_eq!(passes(&keyed, &1), Some(true));
    let (decision, status) = keyed.try_acquire_with_status(&2, 2).unwrap();
    assert!(decision.is_granted());
    assert_eq!(status, Status::new(1, Some(Duration::from_secs(2)), 3));
    assert_eq!(keyed.status(&3), Ok(status));
    assert_eq!((keyed.credit(&2, 2), keyed.reset(&2)), (Ok(0), Ok(false)));
    assert_eq!(keyed.status(&2), Ok(status));
    let (keyed, _) = table::<u64>(bucket("1/s", 3), 1, Overflow::Admit);
    assert_eq!(passes(&keyed, &1), Some(true));
    let (decision, status) = keyed.try_acquire_with_status(&2, 2).unwrap();
    assert_eq!((decision.is_granted(), status.remaining), (true, 1));
    let (keyed, _) = table::<u64>(bucket("1/s", 3), 1, Overflow::Refuse);
    assert_eq!(passes(&keyed, &1), Some(true));
    assert_eq!(keyed.try_acquire_with_status(&2, 1), Err(KeyedError::TableFull));
}

/// A key's limiter that is in use, or has a waiter, reports its status too.
#[test]
fn the_status_of_a_keys_limiter_is_reported() {
    let (keyed, clock) = table::<u64>(bucket("1/s", 3), 4, Overflow::Refuse);
    let limiter = keyed.limiter(&1).unwrap();
    let (decision, status) = keyed.try_acquire_with_status(&1, 2).unwrap();
    assert_eq!(outcome(decision), (true, 0));
    assert_eq!(status, Status::new(1, Some(Duration::from_secs(2)), 3));
    assert_eq!(limiter.status(), Ok(status));
    let promise = limiter.reserve(2).unwrap();
    assert_eq!(keyed.status(&1).unwrap(), Status::new(0, Some(Duration::from_secs(4)), 3));
    assert_eq!(keyed.credit(&1, 9), Ok(2));
    assert!(promise.cancel());
    assert_eq!(keyed.status(&1).unwrap().remaining, 3);
    let _ = keyed.try_acquire(&1, 3).unwrap();
    assert_eq!(keyed.reset(&1), Ok(true));
    assert_eq!(limiter.remaining(), Ok(3));
    clock.advance(Duration::from_nanos(1));
    limiter.close();
    assert_eq!(keyed.reset(&1), Err(KeyedError::Closed));
    assert_eq!(keyed.credit(&1, 1), Err(KeyedError::Closed));
    assert_eq!(keyed.status(&1), Err(KeyedError::Closed));
}

/// A request for no permits among others takes nothing, and is never denied.
#[test]
fn an_attempt_for_zero_permits_takes_nothing() {
    for policy in policies() {
        let (keyed, _) = table::<u64>(policy, 4, Overflow::Refuse);
        let _ = keyed.try_acquire(&1, 3).unwrap();
        let both =
            try_all(&[keyed.attempt(&1, 0), keyed.attempt(&2, 1), keyed.attempt(&3, 0)]).unwrap();
        let JointDecision::Granted(grants) = both else { panic!("{policy:?}") };
        let permits: Vec<_> = grants.iter().map(Grant::permits).collect();
        let left = [1, 2, 3].map(|key| keyed.remaining(&key).unwrap());
        assert_eq!((permits.as_slice(), left), (&[0, 1, 0][..], [0, 2, 3]), "{policy:?}");
        assert_eq!(keyed.len(), 2, "{policy:?}");
        let JointDecision::Denied { by, .. } =
            try_all(&[keyed.attempt(&2, 0), keyed.attempt(&1, 1)]).unwrap()
        else {
            panic!("{policy:?}");
        };
        assert_eq!(by, 1, "{policy:?}");
    }
}

/// While a key has a waiter, the time until it is fresh is unknown.
#[test]
fn the_status_of_a_limit_with_waiters() {
    let clock = ManualClock::stepped();
    let keyed: Keyed<u64, _> =
        Keyed::with_clock(bucket("1/s", 3), Capacity::for_keys(10), clock.clone());
    let _ = keyed.try_acquire(&1, 3).unwrap();
    let limiter = AsyncLimiter::from(keyed.limiter(&1).unwrap());
    let mut wait = pin!(limiter.acquire(1));
    let mut context = Context::from_waker(Waker::noop());
    assert!(wait.as_mut().poll(&mut context).is_pending());
    let held = Status::new(0, None, 3);
    assert_eq!(keyed.status(&1), Ok(held));
    let (decision, status) = keyed.try_acquire_with_status(&1, 1).unwrap();
    assert_eq!((decision.is_granted(), status), (false, held));
    // A credited permit belongs to the waiter.
    assert_eq!(keyed.credit(&1, 1), Ok(1));
    assert!(wait.as_mut().poll(&mut context).is_ready());
    assert_eq!(keyed.status(&1), Ok(Status::new(0, Some(Duration::from_secs(3)), 3)));
}
