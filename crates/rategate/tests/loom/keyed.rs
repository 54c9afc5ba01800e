//! The table of keys: slots that threads swap without a lock, while others seal them, assign them
//! to other keys, or change their numbers. There are two slots, so that keys meet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rategate::error::KeyedError;
use rategate::keyed::{Capacity, HashedId, Hashing, Key, Overflow};
use rategate::{AnyPolicy, Decision, Gcra, Keyed, Rate};
use rategate_core::span::whole_ns;

use crate::world::{ManualTime, S, explore, explore_within, start};

/// Returns a bucket of so many permits in each `S`.
fn bucket(permits: u64, burst: u64) -> Gcra {
    Gcra::new(Rate::new(permits, Duration::from_nanos(S)).unwrap(), burst).unwrap()
}

fn table<K: Key + ?Sized>(
    policy: impl Into<AnyPolicy>,
    keys: usize,
    time: &ManualTime,
) -> Keyed<K, ManualTime> {
    let capacity = Capacity::for_keys(keys).or_else(Overflow::Refuse);
    Keyed::with_clock(policy, capacity, time.clone())
}

/// The result of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Granted,
    /// A denial, with the wait.
    Denied(u64),
    TableFull,
}

fn try_one<K: Key + ?Sized>(table: &Keyed<K, ManualTime>, key: &K) -> Outcome {
    match table.try_acquire(key, 1) {
        Ok(Decision::Granted(_)) => Outcome::Granted,
        Ok(Decision::Denied(denial)) => {
            Outcome::Denied(denial.retry_after().map_or(u64::MAX, whole_ns))
        }
        Err(KeyedError::TableFull) => Outcome::TableFull,
        Err(error) => panic!("{error}"),
    }
}

/// Both threads insert the key, or find it inserted.
#[test]
fn quick_two_are_the_first_of_a_key() {
    explore(|time| {
        let keyed = table(bucket(1, 2), 2, time);
        let thread = start({
            let keyed = keyed.clone();
            move || [try_one(&keyed, &7_u64), try_one(&keyed, &7)]
        });
        let mut outcome = vec![try_one(&keyed, &7)];
        outcome.extend(thread.join().unwrap());
        outcome.sort_by_key(|outcome| *outcome != Outcome::Granted);
        assert_eq!(outcome, [Outcome::Granted, Outcome::Granted, Outcome::Denied(S)]);
        assert_eq!(keyed.len(), 1);
    });
}

/// A key that can be evicted is used while another needs its slot. The key that is granted stays,
/// and its permit is charged.
#[test]
fn quick_a_slot_goes_to_another_key() {
    explore(|time| {
        let keyed = table(bucket(1, 1), 1, time);
        assert_eq!(try_one(&keyed, &7_u64), Outcome::Granted);
        time.set(S + 1);
        let twice = |keyed: &Keyed<u64, ManualTime>, key| {
            let [first, second] = [try_one(keyed, &key), try_one(keyed, &key)];
            assert!(!matches!(first, Outcome::Denied(_)), "{key}: nothing has been taken");
            let once_more =
                if first == Outcome::Granted { Outcome::Denied(S) } else { Outcome::TableFull };
            assert_eq!(second, once_more, "{key}");
            first
        };
        let thread = start({
            let keyed = keyed.clone();
            move || twice(&keyed, 8)
        });
        let known = twice(&keyed, 7);
        let new_key = thread.join().unwrap();
        assert_ne!(known, new_key, "one of them has the slot");
        assert_eq!(keyed.len(), 1);
    });
}

/// The halves of an evicted key and of a new one look like a third key, and so may their states.
#[test]
fn quick_a_key_is_read_as_a_whole() {
    explore(|time| {
        let [old, new, mixed] = [[1, 1], [2, 2], [1, 2]].map(HashedId::from_hash);
        let keyed = table(bucket(1, 1), 1, time);
        assert_eq!(try_one(&keyed, &old), Outcome::Granted);
        let thread = start({
            let keyed = keyed.clone();
            move || try_one(&keyed, &mixed)
        });
        time.set(S + 1);
        let new_key = try_one(&keyed, &new);
        let outcome = thread.join().unwrap();
        assert!(!matches!(outcome, Outcome::Denied(_)), "nothing has been taken");
        assert!(new_key == Outcome::TableFull || outcome == Outcome::TableFull);
    });
}

/// A key is evicted at the first instant at which it can be, and a fresh key takes its slot.
#[test]
fn quick_a_fresh_key_is_not_what_was_there_before() {
    explore(|time| {
        let keyed = table(bucket(1, 1), 1, time);
        assert_eq!(try_one(&keyed, &7_u64), Outcome::Granted);
        time.set(S);
        let thread = start({
            let keyed = keyed.clone();
            move || try_one(&keyed, &7)
        });
        // The key moves behind the lock, where it is evicted.
        let _ = keyed.release(&7, 1);
        let new_key = keyed.limiter(&8);
        let outcome = thread.join().unwrap();
        match new_key {
            // No permit of the fresh key has been taken.
            Ok(limiter) => assert_eq!(limiter.remaining(), Ok(1), "{outcome:?}"),
            Err(_) => assert_eq!(outcome, Outcome::Granted),
        }
    });
}

/// One thread has a limiter for a moment while the other tries: both use one limit.
#[test]
fn quick_a_try_and_a_limiter_share_a_key() {
    explore(|time| {
        let keyed = table(bucket(1, 3), 1, time);
        assert_eq!(try_one(&keyed, &7_u64), Outcome::Granted);
        let thread = start({
            let keyed = keyed.clone();
            move || try_one(&keyed, &7)
        });
        assert!(keyed.limiter(&7).unwrap().try_acquire(1).unwrap().is_granted());
        assert_eq!(thread.join().unwrap(), Outcome::Granted);
        assert_eq!(try_one(&keyed, &7), Outcome::Denied(S));
    });
}

/// The end of a hold meets a try: no permit is lost, and none is made.
#[test]
fn quick_a_try_and_the_end_of_a_hold_share_a_key() {
    explore(|time| {
        let keyed = table(bucket(1, 2), 1, time);
        let held = keyed.try_hold(&7_u64, 1, Duration::MAX).unwrap().unwrap();
        let thread = start({
            let keyed = keyed.clone();
            move || [try_one(&keyed, &7), try_one(&keyed, &7)]
        });
        held.cancel();
        let outcome = thread.join().unwrap();
        assert_eq!(outcome[0], Outcome::Granted);
        let left = if outcome[1] == Outcome::Granted { 0 } else { 1 };
        assert_eq!(keyed.remaining(&7), Ok(left), "{outcome:?}");
    });
}

/// A try that meets a change of the numbers sees the old ones or the new.
#[test]
fn quick_a_try_and_a_change_share_a_key() {
    explore(|time| {
        let keyed = table(bucket(1, 2), 1, time);
        assert_eq!(try_one(&keyed, &7_u64), Outcome::Granted);
        let thread = start({
            let keyed = keyed.clone();
            move || [try_one(&keyed, &7), try_one(&keyed, &7)]
        });
        keyed.reconfigure(bucket(2, 2)).unwrap();
        let outcome = thread.join().unwrap();
        assert_eq!(outcome[0], Outcome::Granted);
        assert!([Outcome::Denied(S), Outcome::Denied(S / 2)].contains(&outcome[1]), "{outcome:?}");
        assert_eq!(try_one(&keyed, &7), Outcome::Denied(S / 2));
    });
}

/// So many changes follow that the first numbers are overwritten while a try reads them. The last
/// numbers have another burst, so that mixing them up would give a wait that neither gives.
#[test]
fn quick_numbers_are_read_as_a_whole() {
    explore_within(2, |time| {
        // The other tier's numbers leave two versions for this one.
        let policies = [bucket(1, 2), bucket(1, 2)];
        let capacity = Capacity::for_keys(1);
        let keyed = Keyed::with_tiers(policies, |_: &u64| 0, capacity, Hashing::Fast, time.clone())
            .unwrap();
        assert_eq!(try_one(&keyed, &7_u64), Outcome::Granted);
        assert_eq!(try_one(&keyed, &7_u64), Outcome::Granted);
        let thread = start({
            let keyed = keyed.clone();
            move || try_one(&keyed, &7)
        });
        for (permits, burst) in [(2, 2), (5, 1)] {
            keyed.reconfigure(bucket(permits, burst)).unwrap();
        }
        let outcome = thread.join().unwrap();
        // Nothing is left, and a change leaves it so: the next permit is one interval away.
        let possible = [S, S / 2, S / 5].map(Outcome::Denied);
        assert!(possible.contains(&outcome), "{outcome:?}");
    });
}

/// Two new keys compete for one slot.
#[test]
fn quick_two_new_keys_and_one_slot() {
    explore(|time| {
        let keyed = table(bucket(1, 1), 1, time);
        let thread = start({
            let keyed = keyed.clone();
            move || try_one(&keyed, &7_u64)
        });
        let mut outcome = [try_one(&keyed, &8), thread.join().unwrap()];
        outcome.sort_by_key(|outcome| *outcome != Outcome::Granted);
        assert_eq!(outcome, [Outcome::Granted, Outcome::TableFull]);
        assert_eq!(keyed.len(), 1);
    });
}

/// A crowd at a full table takes no lock until a slot can be evicted. Then one of its keys gets
/// it, and the others wait for that one.
#[test]
fn quick_a_crowd_is_not_kept_out_for_long() {
    explore(|time| {
        let keyed = table(bucket(1, 1), 1, time);
        assert_eq!(try_one(&keyed, &7_u64), Outcome::Granted);
        assert_eq!(try_one(&keyed, &8), Outcome::TableFull);
        time.set(S + 1);
        let thread = start({
            let keyed = keyed.clone();
            move || try_one(&keyed, &8)
        });
        let outcome = [try_one(&keyed, &9), thread.join().unwrap()];
        let granted = outcome.iter().filter(|outcome| **outcome == Outcome::Granted).count();
        assert_eq!(granted, 1, "{outcome:?}");
        time.set(2 * S + 2);
        let next = if outcome[0] == Outcome::Granted { 8 } else { 9 };
        assert_eq!(try_one(&keyed, &next), Outcome::Granted);
    });
}

/// A key with a limiter changes its tier while the tier's numbers change, and ends up with the
/// newest. The policy has no lock-free form, since all is behind the limiter's lock.
#[test]
fn quick_a_limiter_ends_up_with_the_newest_numbers() {
    explore(|time| {
        let tier = Arc::new(AtomicUsize::new(0));
        let tier_of = {
            let tier = Arc::clone(&tier);
            move |_: &u64| tier.load(Ordering::Relaxed)
        };
        let keyed = Keyed::with_tiers(
            [bucket(1, 1), bucket(1, 2)],
            tier_of,
            Capacity::for_keys(1),
            Hashing::Fast,
            time.clone(),
        );
        let keyed = keyed.unwrap();
        let limiter = keyed.limiter(&7).unwrap();
        tier.store(1, Ordering::Relaxed);
        let thread = start({
            let keyed = keyed.clone();
            move || keyed.remaining(&7).map(drop)
        });
        keyed.reconfigure_tier(1, bucket(1, 3)).unwrap();
        thread.join().unwrap().unwrap();
        assert!(limiter.peek(3).is_ok(), "three may pass together");
    });
}
