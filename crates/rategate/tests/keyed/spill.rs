//! New keys of a full table, and the limiters of keys.

use std::time::Duration;

use rategate::charge::{Committed, Settled};
use rategate::error::KeyedError;
use rategate::keyed::{Capacity, Overflow};
use rategate::{Concurrency, Keyed, ManualClock};

use super::{S, bucket};

/// Returns a table with a capacity of one key, which is key 0.
fn full(overflow: Overflow, clock: &ManualClock) -> Keyed<u64, ManualClock> {
    let capacity = Capacity::for_keys(1).or_else(overflow);
    let keyed = Keyed::with_clock(bucket("1/s", 3), capacity, clock.clone());
    assert!(keyed.try_acquire(&0, 2).unwrap().is_granted());
    keyed
}

#[test]
fn new_keys_report_the_limit_they_would_share() {
    let clock = ManualClock::new();
    let keyed = full(Overflow::Share, &clock);
    assert_eq!(keyed.remaining(&1), Ok(3));
    assert_eq!(keyed.overflows(), 0, "a status takes nothing");
    assert!(keyed.try_acquire(&2, 2).unwrap().is_granted());
    assert_eq!(keyed.remaining(&1), Ok(1));
    assert_eq!(keyed.peek(&1, 2), Ok(Some(Duration::from_secs(1))));
    assert_eq!((keyed.remaining(&0), keyed.overflows()), (Ok(1), 1));

    // Once the entry is free, the next key would have it.
    clock.advance(Duration::from_nanos(2 * S + 1));
    assert!(keyed.try_acquire(&2, 3).unwrap().is_granted());
    assert_eq!((keyed.remaining(&1), keyed.remaining(&0)), (Ok(3), Ok(3)), "no key has used more");
    assert_eq!((keyed.remaining(&2), keyed.overflows()), (Ok(0), 1));

    let keyed = full(Overflow::Refuse, &clock);
    assert_eq!(keyed.remaining(&1), Err(KeyedError::TableFull));
    assert_eq!(keyed.peek(&1, 1), Err(KeyedError::TableFull));
    let keyed = full(Overflow::Admit, &clock);
    assert_eq!((keyed.remaining(&1), keyed.peek(&1, 3)), (Ok(3), Ok(Some(Duration::ZERO))));
}

#[test]
fn holds_of_new_keys_are_of_the_shared_limit() {
    let clock = ManualClock::new();
    let keyed = full(Overflow::Share, &clock);
    let held = |key, permits| keyed.try_hold(&key, permits, Duration::MAX).unwrap().unwrap();
    let (first, second) = (held(1, 2), held(2, 1));
    assert_eq!(keyed.remaining(&1), Ok(0));
    let back = Committed::InTime(Settled::Back { permits: 1 });
    assert_eq!(first.commit(1), Ok(back));
    assert_eq!(keyed.remaining(&2), Ok(1), "for all who share");
    let owed = Committed::InTime(Settled::Owed { permits: 1, forgiven: 0 });
    assert_eq!(second.commit(2), Ok(owed));
    assert_eq!(keyed.remaining(&1), Ok(0));

    // Now key 1 has an entry, to which its earlier holds do not belong.
    let early = held(3, 0);
    clock.advance(Duration::from_nanos(2 * S + 1));
    let own = held(1, 3);
    assert_eq!(keyed.len(), 1);
    early.cancel();
    assert_eq!(keyed.remaining(&1), Ok(0));
    assert_eq!(own.commit(1), Ok(Committed::InTime(Settled::Back { permits: 2 })));
    assert_eq!(keyed.remaining(&1), Ok(2));

    // The accounting is equal after a change of the numbers.
    keyed.reconfigure(bucket("2/s", 5)).unwrap();
    let shared = held(7, 1);
    let left = keyed.remaining(&8).unwrap();
    assert_eq!(shared.commit(0), Ok(back));
    assert_eq!(keyed.remaining(&8), Ok(left + 1));
}

/// A key with a limiter gets another handle, even if there is no capacity for a second limiter.
#[test]
fn a_limiter_takes_capacity_once() {
    let capacity = Capacity { max_bytes: 3000, ..Capacity::default() };
    let keyed: Keyed<u64, _> = Keyed::with_clock(bucket("1/s", 3), capacity, ManualClock::new());
    let first = keyed.limiter(&1).unwrap();
    let again = keyed.limiter(&1).unwrap();
    assert!(again.try_acquire(3).unwrap().is_granted());
    assert_eq!(first.remaining(), Ok(0), "the same one");
    assert_eq!(keyed.limiter(&2).map(drop), Err(KeyedError::TableFull));
    drop((first, again));
    assert_eq!(keyed.remaining(&1), Ok(0), "which is small again");
    assert!(keyed.limiter(&2).is_ok());
}

/// The operations of a new key are in flight in the limit that it shares, and end there.
#[test]
fn operations_of_new_keys_end_at_the_shared_limit() {
    let capacity = Capacity::for_keys(1).or_else(Overflow::Share);
    let keyed: Keyed<u64, _> = Keyed::with_clock(Concurrency::new(2), capacity, ManualClock::new());
    assert!(keyed.try_acquire(&0, 1).unwrap().is_granted());
    for _ in 0..3 {
        let passed = [1, 2, 3].map(|key| keyed.try_acquire(&key, 1).unwrap().is_granted());
        assert_eq!(passed, [true, true, false]);
        assert_eq!([1, 2].map(|key| keyed.release(&key, 1).unwrap()), [true, true]);
    }
    assert_eq!(keyed.remaining(&0).unwrap(), 1, "no known key's operation has ended");
}

/// Limiters that were taken and dropped do not pile up next to those that are in use.
#[test]
fn limiters_without_handles_are_dropped() {
    let keyed: Keyed<u64, _> =
        Keyed::with_clock(bucket("1/s", 2), Capacity::for_keys(100_000), ManualClock::new());
    let limiters: Vec<_> = (0..1_000).map(|key| keyed.limiter(&key).unwrap()).collect();
    let with_limiters = keyed.bytes();
    for key in 1_000..30_000 {
        drop(keyed.limiter(&key).unwrap());
    }
    assert!(keyed.bytes() < 2 * with_limiters, "{} and {with_limiters}", keyed.bytes());
    drop(limiters);
}

/// In a completely full table, some keys find no slot near their home. Unknown keys are refused
/// without a search for those, but none of those is taken for an unknown key.
#[test]
fn a_flood_passes_keys_without_a_slot_by() {
    const KEYS: u64 = 16 * 1638;
    let clock = ManualClock::new();
    let capacity = Capacity::for_keys(KEYS.try_into().unwrap()).or_else(Overflow::Refuse);
    let keyed: Keyed<u64, _> = Keyed::with_clock(bucket("1/h", 2), capacity, clock.clone());
    let passes = |key: u64| keyed.try_acquire(&key, 1).map(|decision| decision.is_granted());
    assert!((0..KEYS).all(|key| passes(key) == Ok(true)), "all keys fit");
    let unknown_keys =
        |turned_away| (1 << 40..(1 << 40) + 4 * KEYS).all(|key| passes(key) == turned_away);
    assert!(unknown_keys(Err(KeyedError::TableFull)));
    assert!((0..KEYS).all(|key| passes(key) == Ok(true)), "all are known");
    assert!(unknown_keys(Err(KeyedError::TableFull)));
    assert!((0..KEYS).all(|key| passes(key) == Ok(false)), "their states are known");
    assert_eq!(keyed.len(), usize::try_from(KEYS).unwrap());
    // Three hours later all can be evicted: each of half as many other keys gets a slot.
    clock.advance(Duration::from_nanos(3 * 3600 * S));
    assert!(
        (0..KEYS / 2).all(|key| passes((1 << 41) + key) == Ok(true)),
        "there is capacity again"
    );
}

/// A capacity beyond the maximum is the maximum; a capacity of zero is one.
#[test]
fn capacity_has_bounds() {
    for (requested, max_keys) in [(0, 1), (1, 1), (usize::MAX, rategate::keyed::MAX_KEYS)] {
        // A log has no slots, so this allocates no more memory than the locks take.
        let log = rategate::SlidingLog::new(1, Duration::from_nanos(S));
        let capacity = Capacity::for_keys(requested);
        let keyed: Keyed<u64, _> = Keyed::with_clock(log, capacity, ManualClock::new());
        assert_eq!(keyed.capacity().max_keys, max_keys);
        assert!(keyed.try_acquire(&7, 1).unwrap().is_granted());
    }
}
