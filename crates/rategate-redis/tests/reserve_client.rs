//! Reservations over connections: the client sends both requests again when a reply was lost, and
//! each counts once.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::cluster::Cluster;
use crate::common::load::{at, config, eventually, key, open, permits};
use crate::common::proxy::Proxy;
use crate::common::store::id_of;
use rategate::charge::{Debt, Settled};
use rategate::store::{
    EndOutcome, EndReply, ReservationEnd, ReserveReply, ReserveVerdict, Store, StoreError,
    StoreExt, Unavailable,
};
use rategate_core::gcra::Gcra;
use rategate_core::sliding_log::SlidingLog;
use rategate_redis::client::{Config, RedisStore};
use rategate_redis::key::KeySpace;
use rategate_redis::plan::Plan;
use rategate_testkit::redis::{Brand, Server};

const SOON: Duration = Duration::from_secs(8);
const LIMIT: u64 = 100_000;

/// A bucket that earns nothing during a test, and a log.
fn plan(store: &Arc<RedisStore>) -> Arc<Plan> {
    let bucket = Gcra::new("1/d".parse().unwrap(), 20_000).unwrap();
    let log = SlidingLog::new(LIMIT, Duration::from_secs(3_600));
    let log = log.with_resolution(Duration::from_secs(1)).unwrap();
    Arc::new(store.plan(&[("bucket", bucket.into()), ("log", log.into())]).unwrap())
}

fn reserve(
    store: &Arc<RedisStore>,
    plan: &Arc<Plan>,
    name: &str,
    (id, number): (u64, u64),
) -> Result<ReserveReply, StoreError> {
    let hour_ns = NonZeroU64::new(3_600_000_000_000).unwrap();
    store.reserve(plan, &key(name), permits(number), (id_of(id), hour_ns)).wait()
}

fn end(
    store: &Arc<RedisStore>,
    plan: &Arc<Plan>,
    name: &str,
    (id, used): (u64, u64),
) -> Result<EndReply, StoreError> {
    let end = ReservationEnd::Commit { used: Some(used) };
    store.end(plan, &key(name), id_of(id), end, Debt::FORGOTTEN).wait()
}

/// Returns the permits of a key that are left, once the store replies.
fn left(store: &Arc<RedisStore>, plan: &Arc<Plan>, name: &str) -> u64 {
    let mut left = 0;
    eventually(SOON, "a reply", || {
        let reply = store.charge(plan, &key(name), 0, Debt::FORGOTTEN).wait();
        reply.is_ok_and(|reply| {
            left = reply.remaining;
            true
        })
    });
    left
}

/// The reply to each request is cut off once. The caller gets a reply all the same, to a request
/// that counted once.
#[test]
fn what_was_lost_is_sent_again_and_counts_once() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let proxy = Proxy::before(server.port());
        let store = open(Config::server(at(proxy.port())).budget(Duration::from_secs(5)));
        let plan = plan(&store);
        let full = left(&store, &plan, "k");
        for id in 1..=10 {
            proxy.reply_faults.cuts.store(true, Ordering::Relaxed);
            let reply = reserve(&store, &plan, "k", (id, 9)).unwrap();
            assert!(matches!(reply.verdict, ReserveVerdict::Held { .. }), "{reply:?}");
            assert_eq!(reply.remaining, full - (id - 1) * 2 - 9);
            proxy.reply_faults.cuts.store(true, Ordering::Relaxed);
            let reply = end(&store, &plan, "k", (id, 2)).unwrap();
            let back = EndOutcome::Committed(Settled::Back { permits: 7 });
            assert_eq!(reply.outcome, back);
            assert_eq!(left(&store, &plan, "k"), full - id * 2, "counted, and once");
        }
        // Now and then a greeting is cut off instead.
        assert!(store.stats().resent >= 5, "{:?}", store.stats());
    }
}

/// A server that stands still: the caller's time is over, and the same requests later count once.
#[test]
fn what_came_late_counts_once() {
    let server = Server::start(Brand::Redis);
    let store = open(config(&server));
    let plan = plan(&store);
    let full = left(&store, &plan, "k");
    server.stall();
    let result = reserve(&store, &plan, "k", (1, 30));
    assert_eq!(result.err(), Some(StoreError::Unavailable(Unavailable::Late)));
    server.resume();
    eventually(SOON, "the hold", || left(&store, &plan, "k") == full - 30);
    let again = reserve(&store, &plan, "k", (1, 30)).unwrap();
    assert!(again.is_repeated && again.remaining == full - 30, "{again:?}");
    server.stall();
    let result = end(&store, &plan, "k", (1, 10));
    assert_eq!(result.err(), Some(StoreError::Unavailable(Unavailable::Late)));
    server.resume();
    eventually(SOON, "the end", || left(&store, &plan, "k") == full - 10);
    let again = end(&store, &plan, "k", (1, 10)).unwrap();
    assert!(again.is_repeated && again.remaining == full - 10, "{again:?}");
    assert_eq!(store.stats().returned, 0, "what is held is not returned");
}

/// Repeats a request until it has a reply: a server may be out of reach for a moment, and while a
/// slot is moving, a record and a state may lie on two servers.
fn repeated<T>(request: impl Fn() -> Result<T, StoreError>) -> T {
    let mut reply = None;
    eventually(SOON, "a reply", || {
        reply = request().ok();
        reply.is_some()
    });
    reply.unwrap()
}

/// Connections that are killed in between, and functions that are dropped, cost nothing.
#[test]
fn killed_connections_neither_lose_nor_double() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let store = open(config(&server).budget(Duration::from_secs(10)));
        let plan = plan(&store);
        let full = left(&store, &plan, "k");
        let hour_ns = NonZeroU64::new(3_600_000_000_000).unwrap();
        let end = ReservationEnd::Commit { used: Some(1) };
        for round in 0..30 {
            if round % 3 == 0 {
                server.flush_functions();
            }
            let ids = round * 20..round * 20 + 20;
            let reserve = |id| store.reserve(&plan, &key("k"), permits(5), (id_of(id), hour_ns));
            let held: Vec<_> = ids.clone().map(|id| (id, reserve(id))).collect();
            if round % 3 == 1 {
                server.client().ok(&["CLIENT", "KILL", "TYPE", "normal"]);
            }
            for (id, held) in held {
                let held = held.wait().unwrap_or_else(|_| repeated(|| reserve(id).wait()));
                assert!(matches!(held.verdict, ReserveVerdict::Held { .. }), "{held:?}");
            }
            let end = |id| store.end(&plan, &key("k"), id_of(id), end, Debt::FORGOTTEN);
            let ended: Vec<_> = ids.map(|id| (id, end(id))).collect();
            if round % 3 == 2 {
                server.client().ok(&["CLIENT", "KILL", "TYPE", "normal"]);
            }
            for (id, ended) in ended {
                let ended = ended.wait().unwrap_or_else(|_| repeated(|| end(id).wait()));
                let back = EndOutcome::Committed(Settled::Back { permits: 4 });
                assert_eq!(ended.outcome, back);
            }
        }
        assert_eq!(left(&store, &plan, "k"), full - 600);
    }
}

/// An end that is submitted before the reply to its beginning is not sent before it.
#[test]
fn an_end_follows_its_beginning() {
    let server = Server::start(Brand::Redis);
    let store = open(config(&server).budget(Duration::from_secs(10)));
    let plan = plan(&store);
    let full = left(&store, &plan, "k");
    let hour_ns = NonZeroU64::new(3_600_000_000_000).unwrap();
    let end = ReservationEnd::Commit { used: Some(1) };
    let pending: Vec<_> = (0..300)
        .map(|id| {
            // Some end what has been held for longer.
            let (key, before) = (key("k"), u64::max(id, 3) - 3);
            let held = store.reserve(&plan, &key, permits(5), (id_of(id), hour_ns));
            (held, store.end(&plan, &key, id_of(before), end, Debt::FORGOTTEN))
        })
        .collect();
    for (held, ended) in pending {
        let (held, ended) = (held.wait().unwrap(), ended.wait().unwrap());
        assert!(matches!(held.verdict, ReserveVerdict::Held { .. } | ReserveVerdict::Ended));
        assert_ne!(ended.outcome, EndOutcome::Unknown);
    }
    assert_eq!(left(&store, &plan, "k"), full - 297 - 3 * 5);
}

/// Reservations of many slots, while one with holds moves to another server and back.
#[test]
fn reservations_in_a_cluster_follow_their_slots() {
    let cluster = Cluster::start(Brand::Redis);
    let prefix = |config: Config| config.prefix("t").budget(Duration::from_secs(10));
    let store = open(prefix(Config::cluster(cluster.addresses())));
    let plan = plan(&store);
    let slot = KeySpace::new("t").unwrap().key(b"{k}").slot();
    let (from, to) = (usize::from(slot / 5_462), usize::from((slot / 5_462 + 1) % 3));
    let names: Vec<String> = (0..20).map(|name| format!("many {name}")).collect();
    let names: Vec<&str> = ["{k}"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let full = names.iter().map(|name| left(&store, &plan, name)).min().unwrap();
    let is_over = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        let reserving = scope.spawn(|| {
            let mut rounds = 0;
            while !is_over.load(Ordering::Relaxed) {
                for name in &names {
                    let held = repeated(|| reserve(&store, &plan, name, (rounds, 7)));
                    assert!(matches!(held.verdict, ReserveVerdict::Held { .. }), "{held:?}");
                }
                // One of them stays open for a while.
                let before = u64::max(rounds, 2) - 2;
                for name in &names {
                    let ended = repeated(|| end(&store, &plan, name, (before, 3)));
                    let back = EndOutcome::Committed(Settled::Back { permits: 4 });
                    assert_eq!(ended.outcome, back);
                }
                rounds += 1;
            }
            rounds
        });
        thread::sleep(Duration::from_millis(200));
        cluster.migrate(slot, from, to, Duration::from_millis(5));
        thread::sleep(Duration::from_millis(200));
        cluster.migrate(slot, to, from, Duration::from_millis(5));
        thread::sleep(Duration::from_millis(100));
        is_over.store(true, Ordering::Relaxed);
        reserving.join().unwrap()
    });
    assert!(rounds > 2, "{rounds}");
    for name in names {
        assert_eq!(left(&store, &plan, name), full - (rounds - 2) * 3 - 14, "{name}");
    }
}

/// While a slot is moving, no key that is missing can be written. A late end that would have to
/// remove a plain state first is refused, and the state stays.
#[test]
fn a_slot_that_is_moving_loses_no_state_to_a_late_end() {
    let cluster = Cluster::start(Brand::Redis);
    let store =
        open(Config::cluster(cluster.addresses()).prefix("t").budget(Duration::from_millis(500)));
    let bucket = Gcra::new("1/d".parse().unwrap(), 10).unwrap();
    let plan = Arc::new(store.plan(&[("bucket", bucket.into())]).unwrap());
    let slot = KeySpace::new("t").unwrap().key(b"{k}").slot();
    let (from, to) = (usize::from(slot / 5_462), usize::from((slot / 5_462 + 1) % 3));
    let full = left(&store, &plan, "{k}");
    let ms_ns = NonZeroU64::new(1_000_000).unwrap();
    repeated(|| store.reserve(&plan, &key("{k}"), permits(5), (id_of(1), ms_ns)).wait());
    eventually(SOON, "the end", || left(&store, &plan, "{k}") == full);
    let decided = repeated(|| store.decide(&plan, &key("{k}"), permits(2)).wait());
    assert!(matches!(decided, rategate::store::Verdict::Granted(_)));
    let (slot, target) = (slot.to_string(), cluster.servers[to].client().ok(&["CLUSTER", "MYID"]));
    let mut client = cluster.servers[from].client();
    client.ok(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target.text()]);
    let refused = end(&store, &plan, "{k}", (1, 50));
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert_eq!(left(&store, &plan, "{k}"), full - 2, "nothing was lost");
    client.ok(&["CLUSTER", "SETSLOT", &slot, "STABLE"]);
    let late = repeated(|| end(&store, &plan, "{k}", (1, 50)));
    let EndOutcome::Late(charged) = late.outcome else { panic!("{late:?}") };
    assert_eq!((charged.booked, charged.debt), (50, 50 + 2 - full));
}

/// A store at its `maxmemory` holds by default, and refuses where decisions are to take no memory.
/// What is held can be ended in either case.
#[test]
fn a_full_store_holds_by_default() {
    let server = Server::start(Brand::Redis);
    let slow = Duration::from_secs(5);
    let holds = open(config(&server).budget(slow));
    let stops = open(config(&server).budget(slow).within_memory());
    let plan = plan(&holds);
    assert_eq!(left(&holds, &plan, "k"), left(&stops, &plan, "k"));
    server.set_maxmemory(1);
    assert!(reserve(&holds, &plan, "k", (1, 5)).is_ok());
    let refused = reserve(&stops, &plan, "k", (2, 5));
    assert!(matches!(refused, Err(StoreError::Unavailable(Unavailable::Unable(_)))), "{refused:?}");
    let ended = end(&stops, &plan, "k", (1, 5)).unwrap();
    assert_eq!(ended.outcome, EndOutcome::Committed(Settled::Even));
}

/// A request that no store can decide is an error with a type, and is not sent.
#[test]
fn what_makes_no_sense_is_not_sent() {
    let server = Server::start(Brand::Redis);
    let store = open(config(&server));
    let plan = plan(&store);
    let full = left(&store, &plan, "k");
    let century_ns = NonZeroU64::new(3_155_760_000_000_000_000).unwrap();
    let too_long = store.reserve(&plan, &key("k"), permits(1), (id_of(1), century_ns));
    let refused = too_long.wait().err();
    assert!(matches!(refused, Some(StoreError::InvalidRequest(_))), "{refused:?}");
    let refused = reserve(&store, &plan, "k", (1, 20_001)).err();
    assert!(matches!(refused, Some(StoreError::Exceeds(_))), "{refused:?}");
    let unknown = end(&store, &plan, "k", (1, 1)).unwrap();
    assert_eq!((unknown.outcome, unknown.remaining), (EndOutcome::Unknown, full));
}
