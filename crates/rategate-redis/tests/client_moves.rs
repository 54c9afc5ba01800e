//! A driver whose server changes: manual failovers, sentinels, and clusters.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::cluster::Cluster;
use crate::common::fake::{Fake, all_slots_at};
use crate::common::load::{at, decide, eventually, key, open, permits, plan, recovers, under_load};
use crate::common::proxy::Proxy;
use rategate::store::{Store, StoreError, StoreExt, StoreRequest, Unavailable, Verdict};
use rategate_redis::client::{Config, RedisStore};
use rategate_redis::key::KeySpace;
use rategate_redis::plan::Plan;
use rategate_testkit::redis::{Brand, Server};

const SOON: Duration = Duration::from_secs(12);

/// Asserts that an idle driver uses hardly any processor time.
fn idles() {
    let used = || {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let fields: Vec<String> =
            stat.rsplit(')').next().unwrap_or("").split_whitespace().map(str::to_owned).collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        ticks(11).unwrap_or(0) + ticks(12).unwrap_or(0)
    };
    let before = used();
    thread::sleep(Duration::from_secs(1));
    // Out of a hundred ticks.
    assert!(used() - before < 20, "{}", used() - before);
}

/// Returns for how long the store reports to have lost nothing.
fn intact_for_ns(store: &Arc<RedisStore>, plan: &Arc<Plan>) -> u64 {
    let mut intact_ns = None;
    eventually(SOON, "a reply", || {
        let (plan, key) = (Arc::clone(plan), key("k0"));
        let answer = store.call(StoreRequest::Peek { plan, key, permits: permits(1) }).wait();
        intact_ns = answer.ok().and_then(|answer| answer.intact_for_ns);
        intact_ns.is_some()
    });
    intact_ns.unwrap()
}

#[test]
fn a_replica_that_takes_over_by_hand_is_found() {
    for brand in Brand::installed() {
        let mut primary = Server::start(brand);
        let replica = primary.replica();
        let addresses = [at(primary.port()), at(replica.port())];
        let store = open(Config::primary_of(addresses));
        let plan = plan(&store, 60);
        assert!(recovers(&store, &plan, "k0", SOON));
        thread::sleep(Duration::from_secs(1));
        let before = intact_for_ns(&store, &plan);
        assert!(before > 900_000_000);
        let seen = under_load(&store, &plan, 1, || {
            thread::sleep(Duration::from_millis(200));
            primary.kill();
            thread::sleep(Duration::from_millis(200));
            replica.client().ok(&["REPLICAOF", "NO", "ONE"]);
            recovers(&store, &plan, "other", SOON);
            let after = intact_for_ns(&store, &plan);
            assert!(after < before, "it may have lost something just now: {after} {before}");
            thread::sleep(Duration::from_millis(100));
        });
        println!(
            "{brand:?}: {} granted, {} faults, {:?}",
            seen.granted,
            seen.faults.len(),
            store.stats()
        );
        idles();
        // Grants that the replica had not seen can be granted again, and no more.
        assert!(seen.granted <= 2 * 60 && seen.denied > 0, "{}", seen.granted);
        assert_eq!(store.stats().open, 0);
    }
}

#[test]
fn a_primary_that_becomes_a_replica_under_load_fails_no_call() {
    let primary = Server::start(Brand::Redis);
    let replica = primary.replica();
    let addresses = [at(primary.port()), at(replica.port())];
    let store = open(Config::primary_of(addresses).budget(Duration::from_secs(10)));
    let plan = plan(&store, 5_000);
    assert!(recovers(&store, &plan, "k0", SOON));
    let seen = under_load(&store, &plan, 1, || {
        thread::sleep(Duration::from_millis(150));
        replica.client().ok(&["REPLICAOF", "NO", "ONE"]);
        primary.client().ok(&["REPLICAOF", "127.0.0.1", &replica.port().to_string()]);
        thread::sleep(Duration::from_millis(300));
    });
    // Some versions cut connections when a server becomes a replica, which loses their replies.
    println!("{} granted, faults {:?}, {:?}", seen.granted, seen.faults, store.stats());
    assert!(seen.faults.len() < 40, "{:?}", seen.faults);
    assert!(seen.granted > 0 && seen.granted <= 5_000);
    primary.is_linked();
    assert_eq!(decide(&store, &plan, "k0").map(|_| ()), Ok(()));
}

#[test]
fn sentinels_say_who_took_over() {
    let mut primary = Server::start(Brand::Redis);
    let replica = primary.replica();
    let file = std::env::temp_dir().join(format!("rategate-sentinel-{}", std::process::id()));
    let text = format!(
        "sentinel monitor shop 127.0.0.1 {} 1\n\
         sentinel down-after-milliseconds shop 300\n\
         sentinel failover-timeout shop 2000\n",
        primary.port()
    );
    std::fs::write(&file, text).unwrap();
    let sentinel = Server::sentinel(Brand::Redis, &file);
    let store = open(Config::sentinel("shop", [at(1), at(sentinel.port())]));
    let plan = plan(&store, 60);
    assert!(recovers(&store, &plan, "k0", SOON));
    eventually(SOON, "the sentinel knows the replica", || {
        sentinel
            .client()
            .ok(&["SENTINEL", "MASTER", "shop"])
            .list_text()
            .windows(2)
            .any(|pair| pair == ["num-slaves", "1"])
    });
    let seen = under_load(&store, &plan, 1, || {
        thread::sleep(Duration::from_millis(100));
        primary.kill();
        recovers(&store, &plan, "other", SOON);
        thread::sleep(Duration::from_millis(100));
    });
    println!("{} granted, {} faults, {:?}", seen.granted, seen.faults.len(), store.stats());
    assert!(seen.granted <= 2 * 60 && seen.denied > 0, "{}", seen.granted);
    assert!(replica.client().ok(&["INFO", "replication"]).text().contains("role:master"));
    let _ = std::fs::remove_file(file);
}

#[test]
fn a_slot_that_moves_under_load_fails_no_call() {
    for brand in Brand::installed() {
        let cluster = Cluster::start(brand);
        let store =
            open(Config::cluster(cluster.addresses()).prefix("t").budget(Duration::from_secs(10)));
        let plan = plan(&store, 40);
        let slot = KeySpace::new("t").unwrap().key(b"{k}").slot();
        assert_eq!(store.backends(), 16);
        assert_eq!(store.backend_of(&key("{k}")), usize::from(slot / 1_024));
        assert!(recovers(&store, &plan, "other", SOON));
        let (from, to) = (usize::from(slot / 5_462), usize::from((slot / 5_462 + 1) % 3));
        // Each slot has a call of its own, so nothing is sent twice except where functions had to
        // be loaded. All calls to a server go in a few writes.
        let (rounds, calls) = (store.stats().rounds, store.stats().calls);
        let pending: Vec<_> = (0..200)
            .map(|name| store.decide(&plan, &key(&format!("many {name}")), permits(1)))
            .collect();
        assert!(pending.into_iter().all(|pending| pending.wait().is_ok()));
        assert!(store.stats().resent <= 3, "{:?}", store.stats());
        let (rounds, calls) = (store.stats().rounds - rounds, store.stats().calls - calls);
        assert!(calls > 150 && rounds * 4 < calls, "{rounds} writes for {calls} calls");
        // The load covers keys of many slots, and of the one that moves.
        let (names, is_over) = (of_one_slot(), AtomicBool::new(false));
        let others = under_load(&store, &plan, 50, || {
            thread::scope(|scope| {
                let load = scope.spawn(|| decide_all(&store, &plan, &names, &is_over));
                thread::sleep(Duration::from_millis(100));
                cluster.migrate(slot, from, to, Duration::from_millis(15));
                thread::sleep(Duration::from_millis(100));
                cluster.migrate(slot, to, from, Duration::from_millis(15));
                thread::sleep(Duration::from_millis(100));
                is_over.store(true, Ordering::Relaxed);
                let (rounds, granted) = load.join().unwrap();
                println!("{rounds} rounds, {granted} granted of one slot");
                assert_eq!(granted, 20 * rounds.min(40));
            });
        });
        assert!(store.stats().resent > 20, "{:?}", store.stats());
        println!("{brand:?}: {} granted, {:?}", others.granted, store.stats());
        assert_eq!(others.faults, []);
        assert!(others.granted <= 50 * 40);
        idles();
    }
}

/// Returns keys that all lie in the slot of `{k}`.
fn of_one_slot() -> Vec<String> {
    let keys = KeySpace::new("t").unwrap();
    let slot = keys.key(b"{k}").slot();
    let names = (0_u32..).map(|number| number.to_string());
    names.filter(|name| keys.key(name.as_bytes()).slot() == slot).take(20).collect()
}

/// Requests all names at once, repeatedly. Returns how often, and how many were granted.
fn decide_all(
    store: &Arc<RedisStore>,
    plan: &Arc<Plan>,
    names: &[String],
    is_over: &AtomicBool,
) -> (u64, u64) {
    let (mut rounds, mut granted) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let pending: Vec<_> =
            names.iter().map(|name| store.decide(plan, &key(name), permits(1))).collect();
        for pending in pending {
            let verdict = pending.wait().unwrap();
            granted += u64::from(matches!(verdict, Verdict::Granted(_)));
        }
        rounds += 1;
        thread::sleep(Duration::from_millis(3));
    }
    (rounds, granted)
}

/// The first server to report the owners of slots may have been cut off, and be wrong.
#[test]
fn the_newest_map_of_a_cluster_counts_and_not_the_first() {
    let cluster = Cluster::start(Brand::Redis);
    let own = Arc::new(AtomicU16::new(0));
    let port = Arc::clone(&own);
    let stale = Fake::start(move |words| match words.get(1).map(String::as_str) {
        Some("SLOTS") => all_slots_at(port.load(Ordering::Relaxed)),
        Some("INFO") => "$25\r\ncluster_current_epoch:1\r\n\r\n".to_owned(),
        _ => "-ERR\r\n".to_owned(),
    });
    own.store(stale.port(), Ordering::Relaxed);
    // The other servers take longer to reply.
    let proxies: Vec<_> =
        cluster.servers.iter().map(|server| Proxy::before(server.port())).collect();
    for proxy in &proxies {
        proxy.reply_faults.delay_ms.store(20, Ordering::Relaxed);
    }
    let addresses = proxies.iter().map(|proxy| at(proxy.port())).chain([at(stale.port())]);
    let store = open(Config::cluster(addresses).budget(Duration::from_secs(2)));
    let plan = plan(&store, 5);
    for name in ["k0", "k1", "k2", "k3"] {
        assert_eq!(decide(&store, &plan, name), Ok(true), "{name}");
    }
    assert!(stale.connections() > 0);
    assert!(stale.calls().iter().all(|word| word == "CLUSTER"), "{:?}", stale.calls());
}

/// An address that a cluster has left may belong to another program by now, which would receive
/// the password.
#[test]
fn servers_that_have_left_a_cluster_are_not_contacted_again() {
    let left = Fake::start(|_| "+OK\r\n".to_owned());
    let stays = Fake::start(|_| "+OK\r\n".to_owned());
    let owner = Arc::new(AtomicU16::new(left.port()));
    let seen = Arc::clone(&owner);
    let guide = Fake::start(move |words| match words.get(1).map(String::as_str) {
        Some("SLOTS") => all_slots_at(seen.load(Ordering::Relaxed)),
        _ => "+OK\r\n".to_owned(),
    });
    let store = open(Config::cluster([at(guide.port())]).password("sesame"));
    let plan = plan(&store, 5);
    let drive_until = |until: &dyn Fn() -> bool| {
        eventually(SOON, "more searches", || {
            let _ = decide(&store, &plan, "k");
            until()
        });
    };
    drive_until(&|| left.connections() > 0);
    owner.store(stays.port(), Ordering::Relaxed);
    drive_until(&|| stays.connections() > 0);
    // Connections under way have ended.
    thread::sleep(Duration::from_millis(300));
    let (before, searches) = (left.connections(), store.stats().searches);
    drive_until(&|| store.stats().searches >= searches + 4);
    assert_eq!(left.connections(), before);
}

#[test]
fn an_unavailable_slot_range_affects_no_other() {
    let mut cluster = Cluster::start(Brand::Redis);
    let store = open(Config::cluster(cluster.addresses()));
    let plan = plan(&store, 1_000);
    let names: Vec<String> = (0..40).map(|name| format!("k{name}")).collect();
    for name in &names {
        assert!(recovers(&store, &plan, name, SOON));
    }
    cluster.servers.remove(0);
    thread::sleep(Duration::from_millis(200));
    let (mut there, mut unavailable) = (HashSet::new(), HashSet::new());
    for _ in 0..5 {
        for name in &names {
            let slot = KeySpace::new("rategate").unwrap().key(name.as_bytes()).slot();
            match decide(&store, &plan, name) {
                Ok(_) => {
                    there.insert(slot > 5_460);
                }
                Err(StoreError::Unavailable(Unavailable::Late)) => {}
                Err(fault) => {
                    assert!(matches!(fault, StoreError::Unavailable(_)), "{fault:?}");
                    unavailable.insert(slot <= 5_460);
                }
            }
        }
    }
    idles();
    assert_eq!((there, unavailable), (HashSet::from([true]), HashSet::from([true])));
}
