//! The capacity of the table: its bound, the time of evictions, and the fate of new keys.

use std::collections::HashMap;
use std::time::Duration;

use fastrand::Rng;
use rategate::error::KeyedError;
use rategate::keyed::{Capacity, Overflow};
use rategate::{Keyed, Limiter, ManualClock, SlidingLog};

use crate::keyed::{MS, S, bucket, passes, table};

/// A flood of keys never exceeds the capacity, and live keys keep their entries and their states
/// to the nanosecond.
#[test]
fn a_flood_evicts_no_active_key() {
    for max_keys in [1, 2, 63, 64, 500, 3_000] {
        let (keyed, clock) = table::<u64>(bucket("3/s", 2), max_keys, Overflow::Refuse);
        clock.set(Duration::from_secs(5));
        let live = u64::try_from(max_keys).unwrap().min(40);
        for key in 0..live {
            assert_eq!(passes(&keyed, &key), Some(true));
        }
        for key in 1_000..10_000 {
            passes(&keyed, &key);
            assert!(keyed.len() <= max_keys, "{} of {max_keys}", keyed.len());
        }
        let capped = max_keys.max(40) < 9_000;
        assert_eq!(keyed.overflows() > 0, capped, "{max_keys}");
        for key in 0..live {
            assert_eq!(keyed.remaining(&key), Ok(1), "{key} of {max_keys}");
            let outcome = keyed.peek(&key, 2).unwrap().unwrap();
            assert_eq!(outcome.as_nanos(), 333_333_334);
            assert_eq!(passes(&keyed, &key), Some(true));
            assert_eq!(passes(&keyed, &key), Some(false));
        }
    }
}

/// An entry is free at the first nanosecond at which its key can be evicted, and no sooner. A
/// slot's key can be evicted once its bucket has been full for a moment, a log's key when the log
/// is empty.
#[test]
fn a_slot_is_freed_at_its_nanosecond() {
    let from_ns = 1_000;
    let buckets = [("3/s", 1, 333_333_334), ("2/s", 1, 500_000_001), ("1/s", 2, 2 * S + 1)];
    for (rate, permits, vacant_ns) in buckets {
        let (keyed, clock) = table::<u64>(bucket(rate, 2), 1, Overflow::Refuse);
        clock.set(Duration::from_nanos(from_ns));
        assert!(keyed.try_acquire(&1, permits).unwrap().is_granted());
        clock.set(Duration::from_nanos(from_ns + vacant_ns - 1));
        assert_eq!(passes(&keyed, &2), None, "{rate}");
        assert_eq!(passes(&keyed, &2), None, "{rate}");
        clock.set(Duration::from_nanos(from_ns + vacant_ns));
        assert_eq!(passes(&keyed, &2), Some(true), "{rate}");
        assert_eq!(passes(&keyed, &1), None, "{rate}");
        assert_eq!(keyed.len(), 1);
    }
    let (keyed, clock) =
        table::<u64>(SlidingLog::new(2, Duration::from_nanos(S)), 1, Overflow::Refuse);
    assert_eq!(passes(&keyed, &1), Some(true));
    clock.set(Duration::from_nanos(S - 1));
    assert_eq!(passes(&keyed, &2), None);
    clock.set(Duration::from_nanos(S));
    assert_eq!(passes(&keyed, &2), Some(true));
    assert_eq!(passes(&keyed, &1), None);
}

/// The number of calls in which the slots of a table with one shard are all examined.
const SWEEP: usize = 6;

/// A new key is refused for no longer than one pass over the slots if a key can be evicted. It is
/// never admitted if none can, whether or not a refused crowd stops asking for the lock.
#[test]
fn a_new_key_is_admitted_as_soon_as_a_slot_is_free() {
    let (mut admitted, mut refused) = (0, 0);
    for seed in 0..30 {
        let mut random = Rng::with_seed(seed);
        let rate = random.choice(["1/s", "3/s", "7/10s", "1000/s"]).unwrap();
        let max_keys = random.choice([1, 3, 20, 100, 127]).unwrap();
        let (keyed, clock) = table::<u64>(bucket(rate, 3), max_keys, Overflow::Refuse);
        let mut known: HashMap<u64, Limiter<ManualClock>> = HashMap::new();
        let step = random.choice([3, MS, S / 3, S]).unwrap();
        for _ in 0..800 {
            if random.u64(..4) == 0 {
                clock.advance(Duration::from_nanos(random.u64(..step)));
            }
            let key = random.u64(..2 * u64::try_from(max_keys).unwrap() + 2);
            let is_live = |limiter: &Limiter<_>| limiter.remaining() != Ok(3);
            let mut outcome = passes(&keyed, &key);
            if outcome.is_none() {
                assert!(!known.get(&key).is_some_and(is_live), "seed {seed}: {key} is live");
                let live = known.values().filter(|limiter| is_live(limiter)).count();
                // One nanosecond later, buckets that are full now have been full for a moment.
                clock.advance(Duration::from_nanos(1));
                for _ in 0..SWEEP {
                    outcome = outcome.or_else(|| passes(&keyed, &key));
                }
                assert!(outcome.is_some() || live == max_keys, "seed {seed}: {key} is kept out");
                refused += u32::from(outcome.is_none());
            }
            if let Some(passed) = outcome {
                admitted += 1;
                // The evicted key's bucket had been full, so no decision differs.
                let fresh = || Limiter::with_clock(bucket(rate, 3), clock.clone());
                let limiter = known.entry(key).or_insert_with(fresh);
                assert_eq!(limiter.try_acquire(1).unwrap().is_granted(), passed, "seed {seed}");
            }
            let live = known.values().filter(|limiter| is_live(limiter)).count();
            assert!(live <= max_keys && keyed.len() <= max_keys, "seed {seed}: {live}");
        }
    }
    assert!(admitted > 5_000 && refused > 2_000, "{admitted} {refused}");
}

/// A refusal holds for a crowd until the first bucket is full, even if the clock goes back
/// meanwhile.
#[test]
fn a_crowd_retries_when_the_first_bucket_is_full() {
    let (keyed, clock) = table::<u64>(bucket("1/s", 2), 60, Overflow::Refuse);
    clock.set(Duration::from_secs(10));
    for key in 0..60 {
        assert!(keyed.try_acquire(&key, 1 + key.min(1)).unwrap().is_granted());
    }
    for key in 100..200 {
        assert_eq!(passes(&keyed, &key), None);
    }
    clock.set(Duration::from_secs(8));
    assert_eq!(passes(&keyed, &200), None);
    clock.set(Duration::from_secs(11));
    assert_eq!(passes(&keyed, &200), None, "key 0 is full, but not for a moment yet");
    clock.set(Duration::from_nanos(11 * S + 1));
    let passed = (200..300).filter(|key| passes(&keyed, key) == Some(true)).count();
    assert_eq!(passed, 1, "the slot of key 0");
    // Under these numbers all buckets are full sooner.
    keyed.reconfigure(bucket("10/s", 2)).unwrap();
    clock.advance(Duration::from_nanos(S / 5 + 1));
    let passed = (400..700).filter(|key| passes(&keyed, key) == Some(true)).count();
    assert_eq!(passed, 60);
}

/// New keys of a full table share a limit, are refused, or pass; known keys are not affected.
#[test]
fn new_keys_without_a_slot() {
    let crowd = 1..=3_u64;
    let play = |overflow| {
        let (keyed, _) = table::<u64>(bucket("1/s", 2), 1, overflow);
        assert_eq!(passes(&keyed, &0), Some(true));
        let outcome = crowd.clone().map(|key| passes(&keyed, &key)).collect::<Vec<_>>();
        assert_eq!(passes(&keyed, &0), Some(true));
        assert_eq!(passes(&keyed, &0), Some(false));
        assert_eq!((keyed.len(), keyed.overflows()), (1, 3), "{overflow:?}");
        // A call for no permits needs no capacity, and too large a call never has any.
        assert!(keyed.try_acquire(&9, 0).unwrap().is_granted());
        let too_much = keyed.try_acquire(&9, 3).unwrap_err();
        assert!(!matches!(too_much, KeyedError::TableFull) || overflow == Overflow::Refuse);
        let limiter = keyed.limiter(&9).map(|limiter| limiter.remaining().unwrap());
        (outcome, limiter.ok())
    };
    assert_eq!(play(Overflow::Share), (vec![Some(true), Some(true), Some(false)], Some(0)));
    assert_eq!(play(Overflow::Refuse), (vec![None; 3], None));
    assert_eq!(play(Overflow::Admit), (vec![Some(true); 3], Some(2)));
}

/// The shared limit has the tier's newest numbers.
#[test]
fn new_keys_share_the_limit_in_force() {
    let (keyed, clock) = table::<u64>(bucket("1/d", 2), 1, Overflow::Share);
    assert_eq!(passes(&keyed, &0), Some(true));
    assert_eq!(keyed.try_acquire(&1, 2).map(|decision| decision.is_granted()), Ok(true));
    keyed.reconfigure(bucket("1/s", 2)).unwrap();
    assert_eq!(passes(&keyed, &2), Some(false));
    clock.advance(Duration::from_nanos(S));
    let shared = keyed.limiter(&3).unwrap();
    assert!(shared.remaining().unwrap() <= 2);
}

/// A log beyond the bound on bytes is refused; other keys, and logs that grow no further, are
/// not.
#[test]
fn bytes_are_bounded() {
    // One shard: how many rows several have depends on the seeds of the table.
    let capacity = Capacity { max_bytes: 2_000, ..Capacity::for_keys(100) };
    let clock = ManualClock::new();
    let keyed: Keyed<u64, ManualClock> =
        Keyed::with_clock(SlidingLog::new(100, Duration::from_nanos(S)), capacity, clock.clone());
    let empty = keyed.bytes();
    let mut refused = 0;
    for call in 0..2_000 {
        clock.advance(Duration::from_nanos(10));
        refused += u32::from(passes(&keyed, &(call % 90)).is_none());
    }
    assert!(refused > 10, "{refused}");
    // Rows and their index come on top.
    let row = 160;
    assert!(keyed.bytes() < empty + 2_000 + 128 + 128 * row, "{}", keyed.bytes() - empty);
    clock.advance(Duration::from_nanos(S));
    // Peeks leave no trace, and each examines another key for eviction.
    for call in 0..300 {
        assert!(keyed.peek(&(call % 90), 1).is_ok());
    }
    assert_eq!(keyed.len(), 0);
    assert!(keyed.bytes() < empty + 64 * row, "{}", keyed.bytes() - empty);
}

/// A compact log with a grant takes a row and no heap.
#[test]
fn a_log_with_a_grant_takes_no_heap() {
    let capacity = Capacity { max_bytes: 0, ..Capacity::for_keys(5_000) };
    let clock = ManualClock::new();
    let log = SlidingLog::new(100, Duration::from_nanos(S)).compact();
    let keyed: Keyed<u64, ManualClock> = Keyed::with_clock(log, capacity, clock.clone());
    for key in 0..5_000 {
        assert_eq!(passes(&keyed, &key), Some(true));
    }
    assert_eq!((keyed.len(), keyed.overflows()), (5_000, 0));
}

/// The memory of a table of buckets does not grow with its keys, and is bounded for each key.
#[test]
fn slots_are_all_that_buckets_take() {
    for max_keys in [1, 1_000, 20_000] {
        let (keyed, _) = table::<u64>(bucket("1/s", 2), max_keys, Overflow::Refuse);
        let empty = keyed.bytes();
        for key in 0..u64::try_from(max_keys).unwrap() {
            passes(&keyed, &key);
        }
        let entries = keyed.bytes() - empty;
        assert!(entries <= max_keys / 2 + 8_192, "{entries} in rows for {max_keys}");
        assert!(empty <= max_keys * 42 + 64 * 1_024, "{empty} for {max_keys}");
    }
}
