//! Deny lists through the driver: a list published by one process soon reaches the copies of the
//! others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::common::cluster::Cluster;
use crate::common::load::{at, config, open};
use rategate::deny::{DenyList, Refreshed, Replaced};
use rategate::store::{StoreError, Unavailable};
use rategate_redis::client::denied::DenyCopy;
use rategate_redis::client::{Config, RedisStore};
use rategate_redis::denied::{Listed, MAX_LISTED, Version};
use rategate_testkit::redis::{Brand, Server};

const SECOND_NS: u64 = 1_000_000_000;
const HOUR_NS: u64 = 3_600 * SECOND_NS;

fn entry(name: &str, left_ns: u64) -> Listed {
    Listed { name: name.as_bytes().to_vec(), left_ns }
}

fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

fn copy(server: &Server) -> DenyCopy {
    DenyCopy::new(open(config(server)), "noisy", DenyList::new(1_000))
}

fn replaced(listed: usize) -> Refreshed {
    Refreshed::Replaced { entries: Replaced { listed, left_out: 0 }, unknown: 0 }
}

/// Repeats a request until the store answers.
fn answered<A>(mut attempt: impl FnMut() -> Result<A, StoreError>) -> A {
    let start = Instant::now();
    loop {
        match attempt() {
            Ok(answer) => return answer,
            Err(StoreError::Unavailable(unavailable)) => {
                assert!(start.elapsed() < Duration::from_secs(20), "{unavailable}");
                thread::sleep(Duration::from_millis(20));
            }
            Err(fault) => panic!("{fault}"),
        }
    }
}

/// S3.20: each copy, over a connection and on a thread of its own, denies within the time between
/// two refreshes.
#[test]
fn copies_deny_soon_after() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let publisher = open(config(&server));
        let copies = [copy(&server), copy(&server)];
        let lists: Vec<DenyList> = copies.iter().map(|copy| copy.list().clone()).collect();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for copy in copies {
                let copy = copy.every(Duration::from_millis(50));
                let is_over = &is_over;
                scope.spawn(move || {
                    let start = Instant::now();
                    while !is_over.load(Ordering::Relaxed) {
                        let now_ns = u64::try_from(start.elapsed().as_nanos()).unwrap();
                        if let Some(refreshed) = copy.refresh_if_due(now_ns) {
                            // A loaded machine may be late; the next refresh is not.
                            drop(refreshed);
                        }
                        thread::sleep(Duration::from_millis(5));
                    }
                });
            }
            let result =
                answered(|| publisher.extend_denied(b"noisy", &[entry("a", HOUR_NS)], 9).wait());
            assert_eq!((result.listed, result.left_out), (1, 0));
            let start = Instant::now();
            while !lists.iter().all(|list| list.denied_for(b"a").is_some()) {
                assert!(start.elapsed() < Duration::from_secs(10), "{lists:?}");
                thread::sleep(Duration::from_millis(1));
            }
            // Far above 50 ms, for loaded machines; far below any other period here.
            let late = start.elapsed();
            is_over.store(true, Ordering::Relaxed);
            assert!(late < Duration::from_millis(900), "{late:?}");
        });
        assert!(lists.iter().all(|list| list.denied_for(b"b").is_none()));
    }
}

/// No caller is denied for longer than the store says, and the denial is shorter by at most the
/// duration of the request.
#[test]
fn ends_are_those_of_the_store() {
    let server = Server::start(Brand::Redis);
    let copy = copy(&server);
    let publisher = open(config(&server));
    let before_ns = wall_ns();
    let entries = [entry("a", 5 * SECOND_NS), entry("b", 1)];
    answered(|| publisher.replace_denied(b"noisy", &entries, 9).wait());
    let after_ns = wall_ns();
    thread::sleep(Duration::from_millis(300));
    let requested_ns = wall_ns();
    assert_eq!(copy.refresh(), Ok(replaced(1)));
    let took_ns = wall_ns() - requested_ns;
    let until_ns = copy.list().until_ns(b"a").unwrap().get();
    assert!(until_ns <= after_ns + 5 * SECOND_NS, "{until_ns} {after_ns}");
    assert!(until_ns + took_ns >= before_ns + 5 * SECOND_NS, "{until_ns} {before_ns} {took_ns}");
    assert_eq!(copy.refresh(), Ok(Refreshed::Unchanged));
    // The time is counted from the sending: a slow request ends entries sooner, never later.
    answered(|| publisher.replace_denied(b"noisy", &entries, 9).wait());
    let end_ns = wall_ns() + 5 * SECOND_NS;
    server.stall();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(400));
            server.resume();
        });
        assert_eq!(copy.refresh(), Ok(replaced(1)));
    });
    let until_ns = copy.list().until_ns(b"a").unwrap().get();
    assert!(until_ns + 300_000_000 < end_ns, "{until_ns} {end_ns}");
    // The list was lifted: it is another list, and empty.
    answered(|| publisher.replace_denied(b"noisy", &[], 9).wait());
    assert_eq!(copy.refresh(), Ok(replaced(0)));
    assert_eq!(copy.list().denied_for(b"a"), None);
}

/// An unavailable store changes nothing: each caller stays listed until the entry ends, and not
/// beyond.
#[test]
fn a_copy_outlives_the_store() {
    let mut server = Server::start(Brand::Redis);
    let copy = copy(&server);
    let publisher = open(config(&server));
    let entries = [entry("long", HOUR_NS), entry("short", 2 * SECOND_NS)];
    answered(|| publisher.extend_denied(b"noisy", &entries, 9).wait());
    answered(|| copy.refresh());
    server.kill();
    let start = Instant::now();
    // The connection breaks during the first request, or is refused.
    while !matches!(copy.refresh(), Err(StoreError::Unavailable(Unavailable::Unreachable(_)))) {
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    assert!(copy.list().denied_for(b"long").is_some());
    let until_ns = copy.list().until_ns(b"short").unwrap().get();
    assert!(copy.list().denied_for_at(b"short", until_ns - 1).is_some());
    assert_eq!(copy.list().denied_for_at(b"short", until_ns), None);
    assert!(until_ns < wall_ns() + 2 * SECOND_NS);

    // The server restarts empty, and the list is published once more.
    server.restart_empty();
    answered(|| copy.refresh());
    assert!(copy.list().is_empty());
    answered(|| publisher.extend_denied(b"noisy", &entries[..1], 9).wait());
    assert_eq!(answered(|| copy.refresh()), replaced(1));
    assert!(copy.list().denied_for(b"long").is_some());
}

/// A store that does not reply causes an error in time, and the list is unchanged.
#[test]
fn a_stalled_store_is_reported_in_time() {
    let server = Server::start(Brand::Redis);
    let copy = copy(&server);
    let publisher = open(config(&server));
    answered(|| publisher.extend_denied(b"noisy", &[entry("a", HOUR_NS)], 9).wait());
    answered(|| copy.refresh());
    server.stall();
    let start = Instant::now();
    let pending = publisher.extend_denied(b"noisy", &[entry("b", HOUR_NS)], 9);
    assert!(pending.wait_for(Duration::from_millis(1)).is_none());
    assert_eq!(copy.refresh(), Err(StoreError::Unavailable(Unavailable::Late)));
    assert_eq!(pending.wait(), Err(StoreError::Unavailable(Unavailable::Late)));
    let took = start.elapsed();
    server.resume();
    assert!((1_950..9_000).contains(&took.as_millis()), "{took:?}");
    assert!(copy.list().denied_for(b"a").is_some());
    // The request without a reply took effect all the same; a repetition would change nothing.
    let start = Instant::now();
    while copy.list().denied_for(b"b").is_none() {
        assert!(start.elapsed() < Duration::from_secs(20));
        drop(copy.refresh());
    }
}

/// A list of the maximum length arrives within the time for lists, however short the budget of
/// calls is.
#[test]
fn the_longest_list_arrives() {
    let server = Server::start(Brand::Redis);
    let short = Config::server(at(server.port())).prefix("t").budget(Duration::from_millis(1));
    let store = Arc::new(RedisStore::open(short).unwrap());
    let entries: Vec<Listed> =
        (0..MAX_LISTED).map(|number| entry(&format!("caller {number}"), HOUR_NS)).collect();
    answered(|| store.replace_denied(b"noisy", &entries, MAX_LISTED).wait());
    let copy = DenyCopy::new(Arc::clone(&store), "noisy", DenyList::new(MAX_LISTED));
    assert_eq!(answered(|| copy.refresh()), replaced(MAX_LISTED));
    assert!(copy.list().denied_for(b"caller 65535").is_some());
    // One more entry than the maximum is refused.
    let many = [entries.as_slice(), &entries[..1]].concat();
    let result = store.replace_denied(b"noisy", &many, MAX_LISTED).wait();
    assert!(matches!(result, Err(StoreError::InvalidRequest(_))), "{result:?}");
    let result = store.extend_denied(b"noisy", &[entry("", 1)], 9).wait();
    assert!(matches!(result, Err(StoreError::InvalidRequest(_))), "{result:?}");
}

/// Names that match no key are counted, and two refreshes at a time are applied in order.
#[tokio::test(flavor = "current_thread")]
async fn a_task_keeps_a_list_by_other_keys() {
    let server = Server::start(Brand::Redis);
    let store = open(config(&server).budget(Duration::from_secs(5)));
    let list: DenyList<u64> = DenyList::new(10);
    let id_of = |list: &DenyList<u64>, name: &[u8]| {
        let number: u64 = std::str::from_utf8(name).ok()?.parse().ok()?;
        Some(list.id(&number))
    };
    let copy = DenyCopy::with_names(Arc::clone(&store), "noisy", list.clone(), id_of);
    let entries = [entry("7", HOUR_NS), entry("eight", HOUR_NS)];
    store.extend_denied(b"noisy", &entries, 9).await.unwrap();
    let found = copy.refresh_if_due_async(5).await;
    let entries = Replaced { listed: 1, left_out: 0 };
    assert_eq!(found, Some(Ok(Refreshed::Replaced { entries, unknown: 1 })));
    assert_eq!(copy.refresh_if_due_async(1_000_000_004).await, None);
    assert_eq!(copy.refresh_if_due_async(1_000_000_005).await, Some(Ok(Refreshed::Unchanged)));
    assert!(list.denied_for(&7).is_some() && list.denied_for(&8).is_none());
    // Other lists of the same store are separate.
    assert_eq!(store.fetch_denied(b"quiet", Version::NONE).await, Ok(None));
    drop(store.extend_denied(b"noisy", &[entry("8", HOUR_NS)], 9));
    let (one, two) = (copy.refresh_async(), copy.refresh_async());
    let found = tokio::join!(one, two);
    assert!(matches!(found, (Ok(_), Ok(_))), "{found:?}");
    assert!(list.denied_for(&8).is_some());
}

/// In a cluster each list is at the server that has its slot, which is computed beforehand.
#[test]
fn lists_of_a_cluster_are_where_their_slots_are() {
    let cluster = Cluster::start(Brand::Redis);
    let config = Config::cluster(cluster.addresses()).prefix("t");
    let store = open(config.budget(Duration::from_secs(5)));
    let publish = || {
        for number in 0..20 {
            let (name, entries) = (format!("list {number}"), [entry("a", HOUR_NS)]);
            answered(|| store.extend_denied(name.as_bytes(), &entries, 9).wait());
            let copy = DenyCopy::new(Arc::clone(&store), &name, DenyList::new(9));
            assert_eq!(answered(|| copy.refresh()), replaced(1));
        }
    };
    publish();
    let resent = store.stats().resent;
    publish();
    // Once the cluster is known, no request is redirected.
    assert_eq!(store.stats().resent, resent);
}
