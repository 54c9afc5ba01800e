//! Keys with one home in the table: as many as fit have slots, the others are behind the lock,
//! and all are decided alike.

use std::time::Duration;

use rategate::keyed::{HashedId, Overflow};

use crate::keyed::{S, bucket, passes, table};

/// There are more keys than a search examines, so that some have no slot.
#[test]
fn keys_with_one_home_are_answered_alike() {
    let (keyed, clock) = table::<HashedId>(bucket("1/s", 2), 1_000, Overflow::Refuse);
    clock.set(Duration::from_nanos(S));
    let empty = keyed.bytes();
    let key = |number| HashedId::from_hash([7, number]);
    let slots = 48;
    for number in 0..slots {
        assert_eq!(passes(&keyed, &key(number)), Some(true));
    }
    assert_eq!(keyed.bytes(), empty, "all are in slots");
    for number in slots..200 {
        assert_eq!(passes(&keyed, &key(number)), Some(true));
    }
    assert!(keyed.bytes() > empty, "some are not");
    assert_eq!((keyed.len(), keyed.overflows()), (200, 0));
    for number in 0..200 {
        assert_eq!(keyed.remaining(&key(number)), Ok(1));
        assert_eq!(passes(&keyed, &key(number)), Some(true));
        assert_eq!(passes(&keyed, &key(number)), Some(false));
        assert_eq!(keyed.peek(&key(number), 1).unwrap().unwrap().as_secs(), 1);
    }
    // Grants of both kinds are refunded alike, and follow a change of the numbers alike.
    keyed.reconfigure(bucket("2/s", 2)).unwrap();
    for number in 0..200 {
        assert_eq!(keyed.peek(&key(number), 1).unwrap().unwrap().as_millis(), 500);
    }
    clock.advance(Duration::from_secs(2));
    for number in 300..900 {
        assert_eq!(passes(&keyed, &key(number)), Some(true), "{number}");
    }
    assert!(keyed.len() <= 700, "the earlier keys are evicted: {}", keyed.len());
}

/// A full table whose new keys have one home still admits as many as can be evicted there.
#[test]
fn a_crowd_at_one_home_waits_for_its_neighbours() {
    let (keyed, clock) = table::<HashedId>(bucket("1/s", 1), 60, Overflow::Refuse);
    let key = |number| HashedId::from_hash([7, number]);
    for number in 0..60 {
        assert_eq!(passes(&keyed, &key(number)), Some(true));
    }
    assert_eq!(passes(&keyed, &key(60)), None);
    clock.advance(Duration::from_nanos(S + 1));
    for number in 100..160 {
        let outcome = (0..3).find_map(|_| passes(&keyed, &key(number)));
        assert_eq!(outcome, Some(true), "{number}");
    }
    assert_eq!(passes(&keyed, &key(200)), None);
    assert_eq!(keyed.len(), 60);
}

/// A full shard that admits a new key, because keys of another shard were evicted, tries again
/// when the bucket of that key is full.
#[test]
fn a_full_shard_notes_new_keys() {
    let (keyed, clock) = table::<HashedId>(bucket("1/s", 3), 128, Overflow::Refuse);
    let [here, there] = [0, 0xffff_ffff_u64 << 32];
    let key = |upper: u64, home: u64, number| HashedId::from_hash([upper | home, number]);
    let middle = 0x8000_0000;
    for number in 0..64 {
        assert!(keyed.try_acquire(&key(here, 0, number), 3).unwrap().is_granted());
    }
    for number in 0..48 {
        assert!(keyed.try_acquire(&key(there, 0, number), 3).unwrap().is_granted());
    }
    for number in 0..16 {
        assert!(keyed.try_acquire(&key(there, middle, number), 1).unwrap().is_granted());
    }
    let crowd = |from: u64, upper| {
        (from..from + 8).filter(|&number| passes(&keyed, &key(upper, 0, number)).is_some()).count()
    };
    assert_eq!(crowd(100, here), 0);
    clock.set(Duration::from_nanos(S + 1));
    assert_eq!(crowd(200, here), 0, "its own keys are live");
    assert!(crowd(300, there) > 0, "some of the others can be evicted");
    let mut new_numbers = 400..;
    while keyed.len() < 128 {
        let new_key = key(here, middle, new_numbers.next().unwrap());
        assert_eq!(passes(&keyed, &new_key), Some(true));
    }
    assert_eq!(crowd(500, here), 0);
    clock.set(Duration::from_nanos(2 * S + 2));
    assert!(crowd(600, here) > 0, "the new keys' buckets are full");
}
