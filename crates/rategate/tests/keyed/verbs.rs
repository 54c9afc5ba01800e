//! Calls by key, and calls on a key's own limiter: both decide by one limit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use fastrand::Rng;
use rategate::charge::Charged;
use rategate::error::KeyedError;
use rategate::keyed::{Capacity, HashedId, Hashing, Key, Overflow, Seeds};
use rategate::{AnyPolicy, AsyncLimiter, Concurrency, Decision, Keyed, ManualClock};
use rategate_testkit::ns;

use crate::keyed::{S, bucket, outcome, passes, table};
use rategate_testkit::executor::{Task, play};

/// A thread waits for a key, and the table's tries come behind it.
#[test]
fn a_wait_is_of_the_same_limit() {
    let (keyed, clock) = table::<str>(bucket("1/s", 1), 10, Overflow::Refuse);
    assert_eq!(passes(&keyed, "a"), Some(true));
    let limiter = keyed.limiter("a").unwrap();
    assert_eq!(ns(limiter.acquire(1).unwrap().released_at()), S);
    assert_eq!(passes(&keyed, "a"), Some(false));
    assert_eq!(passes(&keyed, "b"), Some(true));
    assert_eq!(ns(keyed.limiter("a").unwrap().acquire(1).unwrap().released_at()), 2 * S);
    clock.set(Duration::from_secs(3));
    assert_eq!(passes(&keyed, "a"), Some(true));
    assert_eq!(limiter.remaining(), Ok(0));
}

/// Tasks that wait for a key keep its limiter, even without another handle.
#[test]
fn tasks_wait_for_a_key() {
    let clock = ManualClock::stepped();
    let keyed: Keyed<u64, ManualClock> =
        Keyed::with_clock(bucket("1/s", 1), Capacity::for_keys(10), clock.clone());
    assert_eq!(passes(&keyed, &1), Some(true));
    let acquire = |key: u64| {
        let limiter = AsyncLimiter::from(keyed.limiter(&key).unwrap());
        Task::new(async move { ns(limiter.acquire_owned(1).await.unwrap().promised_at()) })
    };
    let mut tasks = [acquire(1), acquire(2), acquire(1)];
    assert_eq!(passes(&keyed, &1), Some(false));
    play(&clock, &mut tasks, 10 * S);
    assert_eq!(tasks.map(|task| task.result), [Some(S), Some(0), Some(2 * S)]);
}

/// A promise is kept even if its key is fresh otherwise, and a cancelled one frees its entry.
#[test]
fn a_reservation_is_of_the_same_limit() {
    let (keyed, clock) = table::<u64>(bucket("1/s", 1), 1, Overflow::Refuse);
    assert_eq!(passes(&keyed, &1), Some(true));
    let first = keyed.limiter(&1).unwrap().reserve(1).unwrap();
    let second = keyed.limiter(&1).unwrap().reserve(1).unwrap();
    assert_eq!((ns(first.promised_at()), ns(second.promised_at())), (S, 2 * S));
    clock.set(Duration::from_nanos(S / 2));
    assert_eq!(keyed.peek(&1, 1), Ok(Some(Duration::from_millis(2_500))));
    assert!(second.cancel());
    assert_eq!(keyed.peek(&1, 1), Ok(Some(Duration::from_millis(1_500))));
    let _ = first.keep();
    clock.set(Duration::from_nanos(2 * S - 1));
    assert_eq!(passes(&keyed, &2), None, "the promise is of this second");
    // Until the end of the cancelled promise, a later grant might have depended on it.
    clock.set(Duration::from_nanos(3 * S + 1));
    let passed = (0..2).find_map(|_| passes(&keyed, &2));
    assert_eq!(passed, Some(true));
}

/// A permit of a key is returned when it is dropped.
#[test]
fn a_permit_is_of_the_same_limit() {
    let (keyed, _) = table::<u64>(Concurrency::new(2), 1, Overflow::Refuse);
    let permit = keyed.limiter(&1).unwrap().permit(1).unwrap();
    assert_eq!(passes(&keyed, &1), Some(true));
    assert_eq!(passes(&keyed, &1), Some(false));
    drop(permit);
    assert_eq!(keyed.remaining(&1), Ok(1));
    assert_eq!(keyed.release(&1, 1), Ok(true));
    assert_eq!(passes(&keyed, &2), Some(true), "nothing is in flight");
}

/// The bytes of a limiter are freed after its last handle.
#[test]
fn a_limiter_is_taken_apart() {
    let capacity =
        Capacity { max_bytes: 5_000, ..Capacity::for_keys(100).or_else(Overflow::Refuse) };
    let clock = ManualClock::new();
    let keyed: Keyed<u64, ManualClock> =
        Keyed::with_clock(bucket("1/s", 3), capacity, clock.clone());
    let empty = keyed.bytes();
    assert_eq!(passes(&keyed, &1), Some(true));
    let limiters = [1, 2].map(|key| keyed.limiter(&key).unwrap());
    assert!(keyed.bytes() > empty + 4_000);
    assert!(limiters[0].try_acquire(1).unwrap().is_granted());
    // There is no capacity for a third limiter, but for another handle of the first.
    assert!(matches!(keyed.limiter(&3), Err(KeyedError::TableFull)));
    assert_eq!(keyed.limiter(&1).unwrap().remaining(), Ok(1));
    drop(limiters);
    // The limiters are removed when their entries are needed or examined.
    for _ in 0..4 {
        assert_eq!(keyed.remaining(&1), Ok(1));
        let _ = keyed.release(&3, 1);
    }
    assert_eq!(keyed.len(), 1, "the second was fresh");
    assert!(keyed.bytes() < empty + 1_000, "{}", keyed.bytes() - empty);
    assert!(keyed.limiter(&3).is_ok());
}

/// A key's limiter that is closed is closed for the table, until its last handle is dropped.
#[test]
fn a_closed_limiter() {
    let (keyed, _) = table::<u64>(bucket("1/s", 2), 10, Overflow::Refuse);
    assert_eq!(passes(&keyed, &1), Some(true));
    let limiter = keyed.limiter(&1).unwrap();
    limiter.close();
    assert_eq!(keyed.try_acquire(&1, 1), Err(KeyedError::Closed));
    assert_eq!(keyed.remaining(&1), Err(KeyedError::Closed));
    assert_eq!(passes(&keyed, &2), Some(true));
    drop(limiter);
    assert_eq!(keyed.remaining(&1), Ok(1));
}

/// A charge makes a key known, and a limit on operations in flight takes none.
#[test]
fn charges_are_of_a_key() {
    let (keyed, clock) = table::<u64>(bucket("1/s", 4), 10, Overflow::Refuse);
    let charged = Charged { booked: 6, forgiven: 0, debt: 2 };
    assert_eq!(keyed.charge(&1, 6), Ok(charged));
    assert_eq!((keyed.remaining(&1), keyed.remaining(&2)), (Ok(0), Ok(4)));
    assert_eq!(keyed.peek(&1, 1), Ok(Some(Duration::from_secs(3))));
    clock.set(Duration::from_secs(3));
    assert!(keyed.try_acquire(&1, 1).unwrap().is_granted());
    // Through the key's own limiter, it is the same debt.
    let limiter = keyed.limiter(&1).unwrap();
    assert_eq!(limiter.charge(1).unwrap().debt, 1);
    assert_eq!(keyed.charge(&1, 1).unwrap().debt, 2);
    assert_eq!(limiter.debt(), Ok(2));
    let (ovens, _) = table::<u64>(Concurrency::new(2), 10, Overflow::Refuse);
    assert_eq!(ovens.charge(&1, 1), Err(KeyedError::CountsInFlight));
}

/// A limiter in use follows the key's tier, and has its newest numbers.
#[test]
fn a_limiter_follows_its_tier() {
    let tier = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&tier);
    let keyed = Keyed::with_tiers(
        [bucket("1/s", 2), bucket("1/s", 5)],
        move |_: &u64| seen.load(Ordering::Relaxed),
        Capacity::for_keys(10),
        Hashing::Fast,
        ManualClock::new(),
    );
    let keyed = keyed.unwrap();
    let limiter = keyed.limiter(&1).unwrap();
    assert!(limiter.peek(2).is_ok() && limiter.peek(3).is_err());
    tier.store(1, Ordering::Relaxed);
    assert!(keyed.peek(&1, 5).is_ok());
    assert!(limiter.peek(5).is_ok() && limiter.peek(6).is_err());
    keyed.reconfigure_tier(1, bucket("1/s", 7)).unwrap();
    assert!(limiter.peek(7).is_ok() && limiter.peek(8).is_err());
    keyed.reconfigure_tier(0, bucket("1/s", 9)).unwrap();
    assert!(limiter.peek(8).is_err());
    drop(limiter);
    assert!(keyed.peek(&1, 7).is_ok() && keyed.peek(&1, 8).is_err());
}

/// A request beyond the capacity is refused, and leaves the key in its slot.
#[test]
fn too_much_leaves_a_key_in_its_slot() {
    let (keyed, _) = table::<u64>(bucket("1/s", 2), 1_000, Overflow::Refuse);
    let empty = keyed.bytes();
    for key in 0..500 {
        assert_eq!(passes(&keyed, &key), Some(true));
        assert!(matches!(keyed.try_acquire(&key, 3), Err(KeyedError::ExceedsCapacity(_))));
        assert!(keyed.try_acquire(&key, 0).unwrap().is_granted());
        assert!(keyed.peek(&key, 3).is_err());
    }
    assert!(keyed.bytes() < empty + 10_000, "{}", keyed.bytes() - empty);
}

/// A key with one position in all tables. Fresh keys that a table still holds depend on their
/// positions, and each table has its own seeds.
#[derive(Debug)]
struct Alike(u64);

impl Key for Alike {
    type Id = HashedId;

    fn id(&self, _of_the_table: &Seeds) -> HashedId {
        static SEEDS: LazyLock<Keyed<u64>> = LazyLock::new(|| Keyed::new(bucket("1/s", 1)));
        SEEDS.seeds().hashed(&self.0)
    }
}

/// Makes equal calls in batches on one table, and one by one on another. Returns the number of
/// keys that each has in the end.
fn compare_with_single_tries<K: Key>(policy: AnyPolicy, key_of: impl Fn(u64) -> K) -> [usize; 2] {
    let mut random = Rng::with_seed(7);
    let [many, one] = [(); 2].map(|()| table::<K>(policy, 500, Overflow::Refuse));
    for round in 0..60_u64 {
        let attempts: Vec<(K, u64)> =
            (0..round).map(|_| (key_of(random.u64(..40)), random.u64(..4))).collect();
        let mut ours = Vec::new();
        let outcome = |result: Result<Decision, KeyedError>| result.map(outcome);
        many.0.try_each(attempts.iter().map(|(key, permits)| (key, *permits)), |result| {
            ours.push(outcome(result));
        });
        let theirs: Vec<_> = attempts
            .iter()
            .map(|(key, permits)| outcome(one.0.try_acquire(key, *permits)))
            .collect();
        assert_eq!(ours, theirs, "{round} of {policy:?}");
        let ns = random.u64(..S / 4);
        many.1.advance(Duration::from_nanos(ns));
        one.1.advance(Duration::from_nanos(ns));
    }
    [many.0.len(), one.0.len()]
}

/// A batch equals its tries one by one, in its results and in the keys that are evicted.
#[test]
fn a_batch_is_its_tries() {
    fn each(policy: impl Into<AnyPolicy>) {
        let policy = policy.into();
        let _ = compare_with_single_tries(policy, |key| key);
        let [many, one] = compare_with_single_tries(policy, Alike);
        assert_eq!(many, one, "{policy:?}");
    }
    each(bucket("3/s", 3));
    each(bucket("30000001/s", 3));
    each(rategate::SlidingLog::new(3, Duration::from_nanos(S)).compact());
    each(Concurrency::new(30));
}
