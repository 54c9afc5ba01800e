//! Keys of all kinds: equal ones share a limit, different ones do not.

use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rategate::error::KeyedError;
use rategate::keyed::{Capacity, HashedId, Hashing, Key, NumberId};
use rategate::{Keyed, ManualClock};

use crate::keyed::{bucket, passes};

/// Runs `play` on a table of one permit for each key, with either hash.
fn each<K: Key + ?Sized>(play: impl Fn(&Keyed<K, ManualClock>)) {
    for hashing in [Hashing::FloodSafe, Hashing::Fast] {
        let clock = ManualClock::new();
        play(&Keyed::with_hashing(bucket("1/d", 1), Capacity::default(), hashing, clock));
    }
}

fn each_differs<K: Key + Debug>(keys: &[K]) {
    each(|keyed| {
        for key in keys {
            assert_eq!(passes(keyed, key), Some(true), "{key:?}");
        }
        for key in keys {
            assert_eq!(passes(keyed, key), Some(false), "{key:?}");
        }
        assert_eq!(keyed.len(), keys.len());
    });
}

#[test]
fn numbers_are_keys() {
    each_differs(&(0..=u8::MAX).collect::<Vec<_>>());
    each_differs(&[u64::MAX, 0, 1, 1 << 63, 1 << 32]);
    each_differs(&[i64::MIN, -1, 0, 1, i64::MAX]);
    each_differs(&[i8::MIN, -1, 0, 1, i8::MAX]);
    each_differs(&[usize::MAX, 0, 7]);
    each_differs(&[u128::MAX, 0, 1 << 64, 1 << 127]);
    each_differs(&['a', 'b', '\u{10ffff}']);
    each_differs(&[true, false]);
    each_differs(&[0_u32, 1, 7].map(|number| NumberId::from(u64::from(number))));
    each_differs(&(0..2_000_u32).collect::<Vec<_>>());
}

#[test]
fn addresses_are_keys() {
    let v4 = [Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST, Ipv4Addr::UNSPECIFIED];
    each_differs(&v4);
    each_differs(&[Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, v4[0].to_ipv6_mapped()]);
    each_differs(&[IpAddr::V4(v4[0]), IpAddr::V6(Ipv6Addr::LOCALHOST)]);
    each_differs(&[80, 81].map(|port| SocketAddr::from((v4[0], port))));
}

#[test]
fn what_is_hashed_is_a_key() {
    each_differs(&[String::from("a"), String::new(), "ab".repeat(1_000)]);
    each_differs(&[("a", "bc"), ("ab", "c"), ("", "abc")]);
    each_differs(&[("a", 1, 'x'), ("a", 1, 'y'), ("a", 2, 'x')]);
    each_differs(&[(1, 2, 3, 4), (4, 3, 2, 1)]);
    let lists: [&[u8]; 5] = [&[1, 2], &[2, 1], &[], &[0], &[0, 0]];
    each_differs(&lists.map(<[u8]>::to_vec));
    each_differs(&[[1_u8, 2], [2, 1]]);
    each_differs(&[[1, 2], [2, 1], [1, 1]].map(HashedId::from_hash));
    each_differs(&(0..2_000).map(|number| format!("key {number}")).collect::<Vec<_>>());
    each::<str>(|keyed| {
        let owned = String::from("10.0.0.7");
        assert_eq!(passes(keyed, "10.0.0.7"), Some(true));
        assert_eq!(passes(keyed, &owned), Some(false), "the same by another way");
    });
    each::<[u8]>(|keyed| {
        assert_eq!(passes(keyed, b"ab"), Some(true));
        assert_eq!(passes(keyed, b"ab".to_vec().as_slice()), Some(false));
    });
}

/// Each table has its own random seeds, so a key's position in one says nothing about another.
#[test]
fn seeds_are_of_a_table() {
    let id = || {
        let keyed: Keyed<str> = Keyed::new(bucket("1/s", 1));
        "key".id(keyed.seeds())
    };
    assert_ne!(id(), id());
}

#[test]
fn an_unknown_tier_is_an_error() {
    let policies = |n: usize| vec![bucket("1/s", 1); n];
    let make = |n| {
        Keyed::<usize, _>::with_tiers(
            policies(n),
            |key: &usize| *key,
            Capacity::for_keys(1),
            Hashing::Fast,
            ManualClock::new(),
        )
    };
    assert!(make(0).is_err());
    assert!(make(rategate::keyed::MAX_TIERS + 1).is_err());
    let keyed = make(rategate::keyed::MAX_TIERS).unwrap();
    let last = rategate::keyed::MAX_TIERS - 1;
    assert_eq!(passes(&keyed, &last), Some(true));
    let none = KeyedError::NoSuchTier { tier: last + 1, tiers: last + 1 };
    assert_eq!(keyed.try_acquire(&(last + 1), 1), Err(none));
    assert_eq!(keyed.peek(&(last + 1), 1), Err(none));
    assert_eq!(keyed.remaining(&(last + 1)), Err(none));
    assert_eq!(keyed.release(&(last + 1), 1), Err(none));
    assert!(keyed.limiter(&(last + 1)).is_err());
    assert_eq!(keyed.reconfigure_tier(last + 1, bucket("1/s", 1)), Err(none));
    // Each tier changes more often than there are versions of its numbers.
    for permits in 2..60 {
        for tier in 0..=last {
            keyed.reconfigure_tier(tier, bucket("1/s", permits)).unwrap();
        }
    }
    assert!(keyed.peek(&last, 59).is_ok() && keyed.peek(&last, 60).is_err());
}
