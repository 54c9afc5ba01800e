//! A deny list shared by machines: a copy equals the store's list, by the store's clock alone.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use crate::common::store::{Store, key};
use crate::common::value;
use fastrand::Rng;
use rategate_redis::command::Command;
use rategate_redis::denied::{
    self, Fetched, Listed, MAX_LISTED, Published, Version, read_fetched, read_published,
};
use rategate_redis::error::{ReplyError, RequestError};
use rategate_redis::library::Library;
use rategate_redis::reply::Value;
use rategate_testkit::redis::Reply;

const NOW_US: u64 = 1_790_000_000_123_457;

fn entry(name: &[u8], left_us: u64) -> Listed {
    Listed { name: name.to_vec(), left_ns: left_us * 1_000 }
}

fn publish(store: &mut Store, command: Command, now_us: u64) -> Published {
    read_published(&store.send(command, now_us)).unwrap()
}

fn fetch(store: &mut Store, known: Version, now_us: u64) -> Option<Fetched> {
    let value = store.send(denied::fetch(&key("list"), known), now_us);
    read_fetched(&value, known).unwrap()
}

/// S3.20: after any publication, a fetched copy has the callers still listed, to the microsecond.
#[test]
fn a_copy_agrees_with_a_simple_list() {
    for mut store in Store::each() {
        let (mut random, mut now_us) = (Rng::with_seed(20), NOW_US);
        let (mut list, mut known) = (BTreeMap::<Vec<u8>, u64>::new(), Version::NONE);
        for step in 0..600 {
            now_us += random.u64(..2_000);
            let random_entry = |random: &mut Rng| {
                let name = [b"caller ".as_slice(), &[random.u64(..30) as u8]].concat();
                entry(&name, random.u64(..9_000))
            };
            let entries: Vec<Listed> =
                (0..random.u64(..6)).map(|_| random_entry(&mut random)).collect();
            let is_new = random.u64(..8) == 0;
            let make = if is_new { denied::replace } else { denied::extend };
            let command = make(&key("list"), &entries, 100).unwrap();
            let before = known;
            let published = publish(&mut store, command, now_us);
            if is_new {
                list.clear();
            }
            list.retain(|_, until_us| *until_us > now_us);
            for Listed { name, left_ns } in entries.into_iter().filter(|entry| entry.left_ns > 0) {
                let until_us = list.entry(name).or_default();
                *until_us = (now_us + left_ns / 1_000).max(*until_us);
            }
            assert_eq!(published.listed, list.len() as u64, "step {step}");
            assert_eq!(published.version == Version::NONE, list.is_empty(), "step {step}");
            assert!(list.is_empty() || published.version != before, "step {step}");
            now_us += random.u64(..1_000);
            let found = fetch(&mut store, known, now_us);
            let expected = list.iter().filter(|(_, until_us)| **until_us > now_us);
            let expected = expected.map(|(name, until_us)| entry(name, until_us - now_us));
            let mut expected: Vec<Listed> = expected.collect();
            expected.sort_by(|a, b| (a.left_ns, &a.name).cmp(&(b.left_ns, &b.name)));
            if let Some(found) = found {
                assert_eq!(found.entries, expected, "step {step}");
                known = found.version;
            } else {
                assert!(expected.is_empty(), "step {step}");
            }
            assert_eq!(fetch(&mut store, known, now_us), None, "step {step}");
        }
    }
}

/// An unchanged list is answered with a few numbers, however long it is.
#[test]
fn an_unchanged_list_is_a_short_answer() {
    for mut store in Store::each() {
        let entries: Vec<Listed> =
            (0..20_000).map(|number: u32| entry(&number.to_be_bytes(), 60_000_000)).collect();
        let command = denied::replace(&key("list"), &entries, MAX_LISTED).unwrap();
        let published = publish(&mut store, command, NOW_US);
        assert_eq!((published.listed, published.left_out), (20_000, 0));
        let found = fetch(&mut store, Version::NONE, NOW_US).unwrap();
        assert_eq!((found.entries.len(), found.version), (20_000, published.version));
        let value = store.send(denied::fetch(&key("list"), found.version), NOW_US + 1);
        assert!(matches!(value, Value::List(numbers) if numbers.len() == 4));
        // Entries that have ended since are no change either: every copy ends them itself.
        assert_eq!(fetch(&mut store, found.version, NOW_US + 59_999_999), None);
        // An entry is over at its end, even if others are not.
        let longer = denied::extend(&key("list"), &[entry(b"longer", 60_000_001)], MAX_LISTED);
        publish(&mut store, longer.unwrap(), NOW_US);
        let left = fetch(&mut store, Version::NONE, NOW_US + 60_000_000).unwrap();
        assert_eq!(left.entries, [entry(b"longer", 1)]);
        // The key has ended with its last entry, and a reader with the old version learns that.
        let expired = fetch(&mut store, found.version, NOW_US + 61_000_000).unwrap();
        assert_eq!(expired, Fetched { version: Version::NONE, entries: Vec::new() });
    }
}

/// A list has a bound: the entries that end last stay.
#[test]
fn a_full_list_keeps_the_longest() {
    for mut store in Store::each() {
        let entries: Vec<Listed> =
            (1..=9).map(|number: u8| entry(&[number], number.into())).collect();
        let command = denied::extend(&key("list"), &entries, 4).unwrap();
        let published = publish(&mut store, command, NOW_US);
        assert_eq!((published.listed, published.left_out), (4, 5));
        let found = fetch(&mut store, Version::NONE, NOW_US).unwrap();
        assert_eq!(found.entries, entries[5..]);
        // A version is never reused, even while the clock stands still.
        let again = publish(&mut store, denied::extend(&key("list"), &[], 4).unwrap(), NOW_US);
        assert_ne!(again.version, published.version);
        assert_eq!(again.listed, 4);
    }
}

/// On the store's own clock the key expires by itself, replicas may answer, and names are any
/// bytes.
#[test]
fn a_list_lives_on_the_stores_clock() {
    for mut store in Store::each() {
        let name: Vec<u8> = (0..=255).collect();
        let list = key("list");
        let command = denied::extend(&list, &[entry(&name, 300_000)], 10).unwrap();
        let received = value(&store.client.ok(&command.fcall(Library::LIVE)));
        let published = read_published(&received).unwrap();
        let words = denied::fetch(&list, Version::NONE).fcall(Library::LIVE);
        assert_eq!(words[0], b"FCALL_RO");
        let received = value(&store.client.ok(&words));
        let found = read_fetched(&received, Version::NONE).unwrap().unwrap();
        assert_eq!((found.version, found.entries.len()), (published.version, 1));
        assert_eq!(found.entries[0].name, name);
        assert!((1..=300_000_000).contains(&found.entries[0].left_ns));
        // The script gives the same result.
        let script = Library::LIVE.script();
        let received = value(&store.client.ok(&denied::fetch(&list, Version::NONE).eval(&script)));
        assert_eq!(
            read_fetched(&received, Version::NONE).unwrap().unwrap().version,
            published.version
        );
        thread::sleep(Duration::from_millis(350));
        assert_eq!(store.client.ok(&["EXISTS", "t:1r{list}:d"]), Reply::Int(0));
        // A list can be published whatever the memory.
        store.server.set_maxmemory(1);
        let command = denied::extend(&list, &[entry(b"a", 9_000_000)], 10).unwrap();
        let received = value(&store.client.ok(&command.fcall(Library::LIVE)));
        assert_eq!(read_published(&received).unwrap().listed, 1);
    }
}

#[test]
fn invalid_requests_and_replies_are_reported() {
    let list = key("list");
    for name in [Vec::new(), vec![0; 257]] {
        let entries = [Listed { name, left_ns: 1 }];
        assert_eq!(denied::extend(&list, &entries, 1), Err(RequestError::Name));
    }
    let many = vec![entry(b"a", 1); MAX_LISTED + 1];
    assert_eq!(denied::replace(&list, &many, 1), Err(RequestError::Full));
    let list_of = |values: &[Value]| {
        let head = [1, 5, 0, 7].map(Value::Int);
        Value::List([&head, values].concat())
    };
    let name = Value::Bytes(b"a".to_vec());
    for (value, expected) in [
        (Value::Null, ReplyError::Shape),
        (Value::List(vec![Value::Int(2)]), ReplyError::Version),
        (list_of(std::slice::from_ref(&name)), ReplyError::Length),
        (list_of(&[Value::Int(1), Value::Int(1)]), ReplyError::Shape),
        (list_of(&[Value::Bytes(Vec::new()), Value::Int(1)]), ReplyError::Shape),
        (list_of(&[name.clone(), Value::Int(-1)]), ReplyError::Number),
    ] {
        assert_eq!(read_fetched(&value, Version::NONE), Err(expected), "{value:?}");
    }
    let value = list_of(&[name, Value::Int(i64::MAX)]);
    let found = read_fetched(&value, Version::NONE).unwrap().unwrap();
    assert_eq!(found.entries[0].left_ns, u64::MAX);
    assert_eq!(read_fetched(&value, found.version), Err(ReplyError::Length));
}
