//! Calls that pass several limits at once, or none.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rategate::{
    CompactLog, Gcra, Hashing, Keyed, KeyedError, Limiter, ManualClock, Overflow, Room, SlidingLog,
    Together, TryAllError, try_all,
};

const S: u64 = 1_000_000_000;

fn bucket(rate: &str, burst: u64) -> Gcra {
    Gcra::new(rate.parse().unwrap(), burst).unwrap()
}

fn table(burst: u64, room: Room, clock: &ManualClock) -> Keyed<u64, Gcra, ManualClock> {
    Keyed::with_clock(bucket("1/s", burst), room, clock.clone())
}

/// S4.15: a limit for each tenant works together with others. The wait of a denied call is exact:
/// a nanosecond sooner it is denied again, and then it passes.
#[test]
fn a_call_passes_all_limits_or_takes_from_none() {
    let clock = ManualClock::new();
    let everybody = Limiter::with_clock(SlidingLog::new(5, S).unwrap(), clock.clone());
    let tenants = table(3, Room::default(), &clock);
    let callers: Keyed<str, CompactLog, ManualClock> = Keyed::with_clock(
        CompactLog::new(2, 10 * S).unwrap().with_resolution(1).unwrap(),
        Room::default(),
        clock.clone(),
    );
    let ask = |cost| try_all(&[callers.ask("a", 1), everybody.ask(cost), tenants.ask(&7, cost)]);
    let left = || {
        (
            everybody.remaining().unwrap(),
            tenants.remaining(&7).unwrap(),
            callers.remaining("a").unwrap(),
        )
    };

    let Together::Granted(grants) = ask(2).unwrap() else { panic!("all limits have enough") };
    assert_eq!(grants.iter().map(rategate::Grant::permits).collect::<Vec<_>>(), [1, 2, 2]);
    assert_eq!(left(), (3, 1, 1));
    clock.advance(S / 4);
    let Together::Denied { retry_after_ns, by } = ask(3).unwrap() else { panic!("2 too many") };
    assert_eq!((retry_after_ns.map(u64::from), by), (Some(2 * S - S / 4), 2));
    assert_eq!(left(), (3, 1, 1), "nothing is taken");
    clock.advance(2 * S - S / 4 - 1);
    assert!(!ask(3).unwrap().is_granted());
    clock.advance(1);
    assert!(ask(3).unwrap().is_granted());
    assert_eq!(ask(1).unwrap().retry_after(), Some(std::time::Duration::from_secs(8)));
    assert_eq!(callers.remaining("a").unwrap(), 0);
}

#[test]
fn who_was_not_known_leaves_no_trace_of_a_denial() {
    let clock = ManualClock::new();
    let tenants = table(3, Room::for_keys(2).or_else(Overflow::Refuse), &clock);
    let nobody = Limiter::with_clock(bucket("never", 1), clock.clone());
    for key in 0..10 {
        let denied = try_all(&[tenants.ask(&key, 1), nobody.ask(1)]).unwrap();
        assert_eq!(denied, Together::Denied { retry_after_ns: None, by: 1 });
    }
    assert_eq!(tenants.len(), 0);
    assert!(try_all(&[tenants.ask(&1, 3), tenants.ask(&2, 3)]).unwrap().is_granted());
    let full = try_all(&[tenants.ask(&1, 3), tenants.ask(&3, 1)]);
    assert_eq!(full, Err(TryAllError { at: 1, error: KeyedError::TableFull }));
    assert_eq!((tenants.remaining(&1).unwrap(), tenants.remaining(&2).unwrap()), (0, 0));
}

#[test]
fn no_limit_is_asked_twice_and_none_for_too_much() {
    let clock = ManualClock::new();
    let (tenants, limiter) =
        (table(3, Room::default(), &clock), Limiter::with_clock(bucket("1/s", 3), clock));
    let twice = |at| Err(TryAllError { at, error: KeyedError::AskedTwice });
    assert_eq!(try_all(&[tenants.ask(&1, 1), tenants.ask(&1, 1)]), twice(1));
    assert_eq!(try_all(&[limiter.ask(1), tenants.ask(&1, 1), limiter.ask(1)]), twice(2));
    let held = tenants.limiter(&1).unwrap();
    assert_eq!(try_all(&[held.ask(1), tenants.ask(&1, 1)]), twice(1));
    let error = try_all(&[limiter.ask(3), tenants.ask(&1, 4)]).unwrap_err();
    assert_eq!(error.at, 1);
    assert!(matches!(error.error, KeyedError::ExceedsCapacity(_)), "{error}");
    limiter.close();
    assert_eq!(
        try_all(&[tenants.ask(&1, 1), limiter.ask(1)]),
        Err(TryAllError { at: 1, error: KeyedError::Closed })
    );
    assert_eq!(tenants.remaining(&1).unwrap(), 3);
    assert_eq!(try_all(&[]), Ok(Together::Granted(Vec::new())));
}

/// A key with waiters is decided by its limiter, behind the waiters.
#[test]
fn nobody_overtakes_who_waits_for_a_key() {
    let clock = ManualClock::new();
    let tenants = table(1, Room::default(), &clock);
    let limiter = tenants.limiter(&1).unwrap();
    let first = limiter.reserve(1).unwrap();
    let second = limiter.reserve(1).unwrap();
    let Together::Denied { retry_after_ns, by: 1 } =
        try_all(&[tenants.ask(&2, 1), tenants.ask(&1, 1)]).unwrap()
    else {
        panic!("two reservations come first")
    };
    assert_eq!(retry_after_ns.map(u64::from), Some(2 * S));
    assert!(second.cancel());
    drop((first, limiter));
    clock.advance(S);
    assert!(try_all(&[tenants.ask(&2, 1), tenants.ask(&1, 1)]).unwrap().is_granted());
}

/// Threads use equal limits in all orders: none waits for ever, and each limit holds.
#[test]
fn calls_in_any_order_do_not_block_each_other() {
    const ROUNDS: u64 = 300;
    let clock = ManualClock::new();
    let tables = [7, 5].map(|burst| {
        let room = Room::for_keys(3).or_else(Overflow::Refuse);
        Keyed::<u64, Gcra, _>::with_hashing(
            bucket("1/s", burst),
            room,
            Hashing::Fast,
            clock.clone(),
        )
    });
    let limiter = Limiter::with_clock(bucket("1/s", 6), clock.clone());
    let granted = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (tables, limiter, granted, clock) = (&tables, &limiter, &granted, &clock);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let [a, b] = tables;
                    let asks = match (thread + round) % 4 {
                        0 => [a.ask(&1, 1), b.ask(&1, 1), limiter.ask(1)],
                        1 => [limiter.ask(1), b.ask(&1, 1), a.ask(&1, 1)],
                        2 => [b.ask(&1, 1), limiter.ask(1), a.ask(&1, 1)],
                        _ => [b.ask(&1, 1), a.ask(&1, 1), limiter.ask(1)],
                    };
                    let held = (round % 16 == 0).then(|| a.limiter(&1).unwrap());
                    if try_all(&asks).unwrap().is_granted() {
                        granted.fetch_add(1, Ordering::Relaxed);
                    }
                    drop(held);
                    if thread == 0 && round % 10 == 0 {
                        clock.advance(S);
                    }
                }
            });
        }
    });
    // The tightest limit has 5, and one more with each second.
    let most = 5 + ROUNDS / 10;
    assert!(granted.load(Ordering::Relaxed) <= most);
    assert!(granted.load(Ordering::Relaxed) >= 5);
    clock.advance(S * 10);
    assert!(try_all(&[tables[0].ask(&1, 7), limiter.ask(6)]).unwrap().is_granted());
}
