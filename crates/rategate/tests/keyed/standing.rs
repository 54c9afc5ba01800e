//! The status of a key's limit, and changes made by its owner, which leave no trace if nothing is
//! used.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};

use rategate::{
    Alarm, Anchor, AnyPolicy, AsyncLimiter, Clock, CommitLog, CompactLog, Concurrency, Decision,
    FixedWindow, Gcra, Keyed, KeyedError, Look, ManualClock, Overflow, Pacer, Room, SlidingLog,
    Timer, Together, Wake, try_all,
};

use crate::{S, bucket, passes, table, told};

fn policies() -> Vec<AnyPolicy> {
    vec![
        bucket("1/s", 3).into(),
        FixedWindow::new(3, S, Anchor::Epoch).unwrap().into(),
        CompactLog::new(3, S).unwrap().into(),
        SlidingLog::new(3, S).unwrap().into(),
        Concurrency::new(3).unwrap().into(),
        CommitLog::new(3, S).unwrap().into(),
    ]
}

/// A key that has taken nothing is not kept, in a slot or behind the lock.
#[test]
fn a_stranger_leaves_no_trace() {
    for policy in policies() {
        let (keyed, _) = table::<str, _>(policy, 1, Overflow::Refuse);
        assert_eq!(keyed.give_back("a", 5), Ok(0), "{policy:?}");
        assert_eq!(keyed.reset("a"), Ok(false), "{policy:?}");
        let fresh = Look { remaining: 3, fresh_in_ns: Some(0), capacity: 3 };
        assert_eq!(keyed.look("a"), Ok(fresh), "{policy:?}");
        let (decision, look) = keyed.try_acquire_told("a", 0).unwrap();
        assert_eq!((told(decision), look), ((true, 3), fresh), "{policy:?}");
        let Err(KeyedError::ExceedsCapacity(_)) = keyed.try_acquire_told("a", 4) else { panic!() };
        assert_eq!(keyed.len(), 0, "{policy:?}");
        assert_eq!(passes(&keyed, "b"), Some(true), "the only entry is free: {policy:?}");
    }
}

/// A key whose permits were all credited is evicted as soon as no grant could tell.
#[test]
fn what_has_come_back_needs_no_place() {
    for policy in policies() {
        let (keyed, clock) = table::<u64, _>(policy, 1, Overflow::Refuse);
        for again in [false, true] {
            let _ = keyed.try_acquire(&1, 2).unwrap();
            if again {
                assert_eq!(keyed.reset(&1), Ok(true), "{policy:?}");
            } else {
                assert_eq!(keyed.give_back(&1, 9), Ok(2), "{policy:?}");
            }
            assert_eq!(
                keyed.look(&1),
                Ok(Look { remaining: 3, fresh_in_ns: Some(0), capacity: 3 }),
                "{policy:?}"
            );
            clock.advance(4 * S);
            assert_eq!(keyed.remaining(&1), Ok(3));
            assert_eq!(keyed.len(), 0, "{policy:?}");
        }
    }
}

/// A policy that never fully recovers reports so, and can be reset all the same.
#[test]
fn what_never_rests_begins_anew() {
    let (keyed, _) =
        table::<u64, _>(Pacer::new("1/s".parse().unwrap(), 0, None), 4, Overflow::Refuse);
    assert_eq!(passes(&keyed, &1), Some(true));
    assert_eq!(keyed.look(&1), Ok(Look { remaining: 0, fresh_in_ns: None, capacity: 1 }));
    assert_eq!(keyed.reset(&1), Ok(true));
    assert_eq!(passes(&keyed, &1), Some(true));
    assert_eq!(keyed.give_back(&1, 7), Ok(1));
    assert_eq!(passes(&keyed, &1), Some(true));
}

/// The reported time until fresh is exact: a nanosecond sooner the key still counts.
#[test]
fn fresh_when_it_says() {
    for policy in policies() {
        let (keyed, clock) = table::<u64, _>(policy, 1, Overflow::Refuse);
        clock.advance(S / 3);
        let (_, look) = keyed.try_acquire_told(&1, 2).unwrap();
        let AnyPolicy::Concurrency(_) = policy else {
            let _ = keyed.release(&1, 2);
            let fresh_in_ns = keyed.look(&1).unwrap().fresh_in_ns.unwrap();
            if !matches!(policy, AnyPolicy::CommitLog(_)) {
                assert_eq!(look.fresh_in_ns, Some(fresh_in_ns), "{policy:?}");
            }
            clock.advance(fresh_in_ns - 1);
            assert_eq!(keyed.look(&1).unwrap().fresh_in_ns, Some(1), "{policy:?}");
            clock.advance(1);
            assert_eq!(keyed.look(&1).unwrap().fresh_in_ns, Some(0), "{policy:?}");
            let (_, look) = keyed.try_acquire_told(&1, 3).unwrap();
            assert_eq!(look.remaining, 0, "{policy:?}");
            continue;
        };
        assert_eq!(look, Look { remaining: 1, fresh_in_ns: None, capacity: 3 });
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

    fn wait(&self, _: u64, _: &Alarm) -> Wake {
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
    let keyed: Keyed<u64, Gcra, Counted> =
        Keyed::with_clock(bucket("1/s", 3), Room::for_keys(10), clock.clone());
    let _ = keyed.try_acquire_told(&1, 1).unwrap();
    for permits in [1, 2, 0] {
        let before = clock.0.load(Ordering::Relaxed);
        let _ = keyed.try_acquire_told(&1, permits).unwrap();
        assert_eq!(clock.0.load(Ordering::Relaxed), before + 1, "{permits} permits");
    }
}

/// A denial reports the permits left, and takes none of them.
#[test]
fn a_denial_tells_what_is_left() {
    for policy in policies() {
        let (keyed, _) = table::<u64, _>(policy, 4, Overflow::Refuse);
        let _ = keyed.try_acquire(&1, 2).unwrap();
        for _ in 0..2 {
            let (decision, look) = keyed.try_acquire_told(&1, 2).unwrap();
            assert!(!decision.is_granted(), "{policy:?}");
            assert_eq!(look, keyed.look(&1).unwrap(), "{policy:?}");
            assert_eq!(look.remaining, 1, "{policy:?}");
        }
    }
}

/// New keys of a full table get the status of the limit that they share, and credit nothing to
/// it.
#[test]
fn newcomers_are_told_of_what_they_share() {
    let (keyed, _) = table::<u64, _>(bucket("1/s", 3), 1, Overflow::Share);
    assert_eq!(passes(&keyed, &1), Some(true));
    let (decision, look) = keyed.try_acquire_told(&2, 2).unwrap();
    assert!(decision.is_granted());
    assert_eq!(look, Look { remaining: 1, fresh_in_ns: Some(2 * S), capacity: 3 });
    assert_eq!(keyed.look(&3), Ok(look));
    assert_eq!((keyed.give_back(&2, 2), keyed.reset(&2)), (Ok(0), Ok(false)));
    assert_eq!(keyed.look(&2), Ok(look));
    let (keyed, _) = table::<u64, _>(bucket("1/s", 3), 1, Overflow::Admit);
    assert_eq!(passes(&keyed, &1), Some(true));
    let (decision, look) = keyed.try_acquire_told(&2, 2).unwrap();
    assert_eq!((decision.is_granted(), look.remaining), (true, 1));
    let (keyed, _) = table::<u64, _>(bucket("1/s", 3), 1, Overflow::Refuse);
    assert_eq!(passes(&keyed, &1), Some(true));
    assert_eq!(keyed.try_acquire_told(&2, 1), Err(KeyedError::TableFull));
}

/// A key's limiter that is in use, or has a waiter, reports its status too.
#[test]
fn a_limiter_is_told_of_too() {
    let (keyed, clock) = table::<u64, _>(bucket("1/s", 3), 4, Overflow::Refuse);
    let limiter = keyed.limiter(&1).unwrap();
    let (decision, look) = keyed.try_acquire_told(&1, 2).unwrap();
    assert_eq!(told(decision), (true, 1));
    assert_eq!(look, Look { remaining: 1, fresh_in_ns: Some(2 * S), capacity: 3 });
    assert_eq!(limiter.look(), Ok(look));
    let promise = limiter.reserve(2).unwrap();
    assert_eq!(
        keyed.look(&1).unwrap(),
        Look { remaining: 0, fresh_in_ns: Some(4 * S), capacity: 3 }
    );
    assert_eq!(keyed.give_back(&1, 9), Ok(2));
    assert!(promise.cancel());
    assert_eq!(keyed.look(&1).unwrap().remaining, 3);
    let _ = keyed.try_acquire(&1, 3).unwrap();
    assert_eq!(keyed.reset(&1), Ok(true));
    assert_eq!(limiter.remaining(), Ok(3));
    clock.advance(1);
    limiter.close();
    assert_eq!(keyed.reset(&1), Err(KeyedError::Closed));
    assert_eq!(keyed.give_back(&1, 1), Err(KeyedError::Closed));
    assert_eq!(keyed.look(&1), Err(KeyedError::Closed));
}

/// A request for no permits among others takes nothing, is never denied, and reports the permits
/// left.
#[test]
fn a_part_of_nothing_is_a_look() {
    for policy in policies() {
        let (keyed, _) = table::<u64, _>(policy, 4, Overflow::Refuse);
        let _ = keyed.try_acquire(&1, 3).unwrap();
        let both = try_all(&[keyed.ask(&1, 0), keyed.ask(&2, 1), keyed.ask(&3, 0)]).unwrap();
        let Together::Granted(grants) = both else { panic!("{policy:?}") };
        let left: Vec<_> =
            grants.iter().map(|grant| (grant.permits(), grant.remaining())).collect();
        assert_eq!(left, [(0, 0), (1, 2), (0, 3)], "{policy:?}");
        assert_eq!(keyed.len(), 2, "{policy:?}");
        let Together::Denied { by, .. } = try_all(&[keyed.ask(&2, 0), keyed.ask(&1, 1)]).unwrap()
        else {
            panic!("{policy:?}");
        };
        assert_eq!(by, 1, "{policy:?}");
    }
}

/// A grant from before a reset refunds nothing of later grants, even in a slot.
#[test]
fn a_reset_forgets_grants_too() {
    let policies: [AnyPolicy; 3] = [
        bucket("1/h", 3).into(),
        FixedWindow::new(3, 3_600 * S, Anchor::Epoch).unwrap().into(),
        CompactLog::new(3, 3_600 * S).unwrap().into(),
    ];
    for policy in policies {
        let clock = ManualClock::new();
        let keyed: Keyed<str, _, _> = Keyed::with_clock(policy, Room::for_keys(4), clock.clone());
        let Decision::Granted(before) = keyed.try_acquire("a", 2).unwrap() else { panic!() };
        assert_eq!(keyed.reset("a"), Ok(true));
        assert!(keyed.try_acquire("a", 2).unwrap().is_granted());
        clock.advance(S);
        assert_eq!(keyed.refund("a", &before, 2), Ok(0), "{policy:?}");
        assert_eq!(keyed.remaining("a"), Ok(1), "{policy:?}");
    }
}

/// Unknown keys can be marked as exhausted at an instant: each policy recovers in its own time,
/// to the nanosecond.
#[test]
fn strangers_may_be_spent() {
    for policy in policies() {
        let (keyed, clock) = table::<u64, _>(policy, 2, Overflow::Refuse);
        clock.advance(S / 4);
        let _ = keyed.try_acquire(&1, 1).unwrap();
        let before = keyed.look(&1);
        keyed.spend_strangers(S / 4);
        assert_eq!(keyed.look(&1), before, "a known key stays: {policy:?}");
        if let AnyPolicy::Concurrency(_) = policy {
            assert_eq!(keyed.remaining(&2), Ok(3));
            continue;
        }
        // The expected state is that of a key which has taken all at that instant.
        let (ideal, ideal_clock) = table::<u64, _>(policy, 2, Overflow::Refuse);
        ideal_clock.advance(S / 4);
        assert!(ideal.try_acquire(&2, 3).unwrap().is_granted());
        let _ = ideal.release(&2, 3);
        for step_ns in [0, 1, S / 3, S, 5 * S] {
            clock.advance(step_ns);
            ideal_clock.advance(step_ns);
            assert_eq!(keyed.look(&2), ideal.look(&2), "{policy:?}");
            let (ours, theirs) =
                (keyed.try_acquire(&2, 1).unwrap(), ideal.try_acquire(&2, 1).unwrap());
            assert_eq!(told(ours), told(theirs), "{policy:?}");
            let _ = (keyed.release(&2, 1), ideal.release(&2, 1));
        }
        clock.advance(9 * S);
        assert_eq!(
            keyed.look(&3),
            Ok(Look { remaining: 3, fresh_in_ns: Some(0), capacity: 3 }),
            "{policy:?}"
        );
    }
}

/// A crowd of exhausted unknown keys takes no capacity, and the shared limit of a full table is
/// exhausted too.
#[test]
fn spent_strangers_take_no_room() {
    let (keyed, _) = table::<u64, _>(bucket("1/s", 3), 1, Overflow::Share);
    keyed.spend_strangers(u64::MAX - 1);
    for key in 0..1_000 {
        assert_eq!(told(keyed.try_acquire(&key, 1).unwrap()), (false, S));
    }
    assert_eq!(keyed.len(), 0);
    let _ = keyed.limiter(&1).unwrap();
    let together = try_all(&[keyed.ask(&1, 1)]).unwrap();
    assert!(!together.is_granted());
    let (keyed, _) = table::<u64, _>(bucket("1/s", 3), 1, Overflow::Share);
    assert_eq!(passes(&keyed, &1), Some(true));
    keyed.spend_strangers(0);
    assert_eq!(passes(&keyed, &2), Some(false));
}

/// While a key has a waiter, the time until it is fresh is unknown.
#[test]
fn a_look_at_a_line() {
    let clock = ManualClock::stepped();
    let keyed: Keyed<u64, Gcra, _> =
        Keyed::with_clock(bucket("1/s", 3), Room::for_keys(10), clock.clone());
    let _ = keyed.try_acquire(&1, 3).unwrap();
    let limiter = AsyncLimiter::from(keyed.limiter(&1).unwrap());
    let mut wait = pin!(limiter.acquire(1));
    let mut context = Context::from_waker(Waker::noop());
    assert!(wait.as_mut().poll(&mut context).is_pending());
    let held = Look { remaining: 0, fresh_in_ns: None, capacity: 3 };
    assert_eq!(keyed.look(&1), Ok(held));
    let (decision, look) = keyed.try_acquire_told(&1, 1).unwrap();
    assert_eq!((decision.is_granted(), look), (false, held));
    // A credited permit belongs to the waiter.
    assert_eq!(keyed.give_back(&1, 1), Ok(1));
    assert!(wait.as_mut().poll(&mut context).is_ready());
    assert_eq!(keyed.look(&1), Ok(Look { remaining: 0, fresh_in_ns: Some(3 * S), capacity: 3 }));
}
