//! Charges over connections: each is booked once or its outcome is unknown, and none is sent
//! again because its reply was lost.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::cluster::Cluster;
use crate::common::load::{at, config, eventually, key, open};
use crate::common::proxy::Proxy;
use rategate::charge::Debt;
use rategate::distributed::{DecidedBy, Decision, Distributed};
use rategate::store::{ReservationId, Rule, Store, StoreError, StoreExt, Unavailable};
use rategate_core::concurrency::Concurrency;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::sliding_log::SlidingLog;
use rategate_redis::client::{Config, RedisStore};
use rategate_redis::key::KeySpace;
use rategate_redis::plan::Plan;
use rategate_testkit::redis::{Brand, Server};

const SOON: Duration = Duration::from_secs(8);

/// A log of ten permits that ends after any test, so that a debt counts all charges.
fn log() -> SlidingLog {
    SlidingLog::new(10, Duration::from_secs(3_600))
}

fn plan(store: &Arc<RedisStore>) -> Arc<Plan> {
    Arc::new(store.plan(&[("log", log().into())]).unwrap())
}

/// Returns the permits of a key in use, once the store replies.
fn used(store: &Arc<RedisStore>, plan: &Arc<Plan>, name: &str) -> u64 {
    let mut used = 0;
    eventually(SOON, "a reply", || {
        let reply = store.charge(plan, &key(name), 0, Debt::FORGOTTEN).wait();
        reply.is_ok_and(|reply| {
            used = 10 - reply.remaining + reply.charged.debt;
            true
        })
    });
    used
}

/// The store books each charge whose reply is cut off, once. The caller is told that the outcome
/// is unknown.
#[test]
fn a_charge_whose_reply_is_lost_is_not_sent_again() {
    let server = Server::start(Brand::Redis);
    let proxy = Proxy::before(server.port());
    let store = open(Config::server(at(proxy.port())).budget(Duration::from_millis(500)));
    let plan = plan(&store);
    assert_eq!(used(&store, &plan, "k"), 0);
    for lost in 1..=10 {
        proxy.reply_faults.cuts.store(true, Ordering::Relaxed);
        let result = store.charge(&plan, &key("k"), 7, Debt::FORGOTTEN).wait();
        assert!(matches!(result, Err(StoreError::Unavailable(_))), "{result:?}");
        assert_eq!(used(&store, &plan, "k"), 7 * lost, "booked, and once");
    }
}

/// With an id both are sent again until they are answered, and count once.
#[test]
fn a_charge_with_an_id_is_sent_again_and_counts_once() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let proxy = Proxy::before(server.port());
        let store = open(Config::server(at(proxy.port())).budget(Duration::from_secs(5)));
        let plan = plan(&store);
        let mut repeated = 0;
        assert_eq!(used(&store, &plan, "k"), 0);
        for lost in 1..=10 {
            proxy.reply_faults.cuts.store(true, Ordering::Relaxed);
            let id = ReservationId::random();
            let charge = (7, id);
            let reply = store.charge_once(&plan, &key("k"), charge, Debt::FORGOTTEN).wait();
            let reply = reply.unwrap();
            assert_eq!(reply.charged.booked, 7, "{reply:?}");
            repeated += u32::from(reply.is_repeated);
            assert_eq!(used(&store, &plan, "k"), 7 * lost - 3 * (lost - 1), "booked, and once");
            proxy.reply_faults.cuts.store(true, Ordering::Relaxed);
            let (three, id) = (NonZeroU64::new(3).unwrap(), ReservationId::random());
            let reply = store.credit_once(&plan, &key("k"), three, id).wait().unwrap();
            assert_eq!(reply.permits, 3, "{reply:?}");
            repeated += u32::from(reply.is_repeated);
            assert_eq!(used(&store, &plan, "k"), 4 * lost, "credited, and once");
        }
        assert!(repeated > 10, "replies were lost, not requests: {repeated}");
    }
}

/// The reply to a charge comes after its budget: the charge stays booked, and nothing is returned.
#[test]
fn a_charge_whose_reply_is_late_stays_booked() {
    let server = Server::start(Brand::Redis);
    let store = open(config(&server));
    let plan = plan(&store);
    assert_eq!(used(&store, &plan, "k"), 0);
    server.stall();
    let result = store.charge(&plan, &key("k"), 30, Debt::FORGOTTEN).wait();
    assert_eq!(result, Err(StoreError::Unavailable(Unavailable::Late)));
    server.resume();
    eventually(SOON, "the late charge", || used(&store, &plan, "k") == 30);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(used(&store, &plan, "k"), 30);
    assert_eq!(store.stats().returned, 0);
}

/// Functions that are dropped, and connections that are closed by the server between calls, cost
/// no charge, and double none.
#[test]
fn flushed_functions_neither_lose_nor_double_charges() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let store = open(config(&server).budget(Duration::from_secs(10)));
        let plan = plan(&store);
        let mut charged = 0;
        for round in 0..30 {
            if round % 3 == 0 {
                server.flush_functions();
            }
            let pending: Vec<_> = (1..=20)
                .map(|permits| store.charge(&plan, &key("k"), permits, Debt::FORGOTTEN))
                .collect();
            for pending in pending {
                let reply = pending.wait().unwrap();
                assert_eq!(reply.charged.forgiven, 0);
                charged += reply.charged.booked;
            }
        }
        assert_eq!(charged, 30 * 210);
        assert_eq!(used(&store, &plan, "k"), charged);
        assert!(store.stats().resent > 0, "{:?}", store.stats());
    }
}

/// Charges of many slots, while a slot with debts moves to another server and back.
#[test]
fn charges_in_a_cluster_follow_their_slots() {
    let cluster = Cluster::start(Brand::Redis);
    let prefix = |config: Config| config.prefix("t").budget(Duration::from_secs(10));
    let store = open(prefix(Config::cluster(cluster.addresses())));
    let window = FixedWindow::new(10, Duration::from_secs(3_600), Anchor::Epoch);
    let plan = Arc::new(store.plan(&[("carried", window.into())]).unwrap());
    let slot = KeySpace::new("t").unwrap().key(b"{k}").slot();
    let (from, to) = (usize::from(slot / 5_462), usize::from((slot / 5_462 + 1) % 3));
    let names: Vec<String> = (0..60).map(|name| format!("many {name}")).collect();
    let names: Vec<&str> = ["{k}"].into_iter().chain(names.iter().map(String::as_str)).collect();
    eventually(SOON, "all servers", || {
        let read = |name: &&str| store.charge(&plan, &key(name), 0, Debt::CARRIED);
        let pending: Vec<_> = names.iter().map(read).collect();
        pending.into_iter().all(|pending| pending.wait().is_ok())
    });
    let is_over = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        let charging = scope.spawn(|| {
            let mut rounds = 0;
            while !is_over.load(Ordering::Relaxed) {
                let pending: Vec<_> = names
                    .iter()
                    .map(|name| store.charge(&plan, &key(name), 3, Debt::CARRIED))
                    .collect();
                for pending in pending {
                    pending.wait().unwrap();
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
        charging.join().unwrap()
    });
    assert!(rounds > 10, "{rounds}");
    for name in names {
        let reply = store.charge(&plan, &key(name), 0, Debt::CARRIED).wait().unwrap();
        assert_eq!(reply.charged.debt, 3 * rounds - 10, "{name}");
    }
}

/// While a slot is moving, no key that is missing can be written. A charge that would have to
/// remove a plain state first is refused, and the state stays.
#[test]
fn a_slot_that_is_moving_loses_no_state_to_a_charge() {
    let cluster = Cluster::start(Brand::Redis);
    let store =
        open(Config::cluster(cluster.addresses()).prefix("t").budget(Duration::from_millis(500)));
    let bucket = Gcra::new("1/h".parse().unwrap(), 10).unwrap();
    let plan = Arc::new(store.plan(&[("bucket", bucket.into())]).unwrap());
    let slot = KeySpace::new("t").unwrap().key(b"{k}").slot();
    let (from, to) = (usize::from(slot / 5_462), usize::from((slot / 5_462 + 1) % 3));
    let debt_of = |charged: u64| {
        let reply = store.charge(&plan, &key("{k}"), charged, Debt::FORGOTTEN).wait()?;
        Ok::<_, StoreError>((reply.remaining, reply.charged.debt))
    };
    eventually(SOON, "the server", || debt_of(0).is_ok());
    assert_eq!(debt_of(8), Ok((2, 0)));
    let (slot, target) = (slot.to_string(), cluster.servers[to].client().ok(&["CLUSTER", "MYID"]));
    let mut client = cluster.servers[from].client();
    client.ok(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target.text()]);
    let refused = debt_of(1_000);
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert_eq!(debt_of(0), Ok((2, 0)), "nothing was lost");
    client.ok(&["CLUSTER", "SETSLOT", &slot, "STABLE"]);
    assert_eq!(debt_of(1_000), Ok((0, 998)));
    // A marked state is replaced in place, whatever the slot does.
    client.ok(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target.text()]);
    assert_eq!(debt_of(1), Ok((0, 999)));
    assert_eq!(debt_of(1), Ok((0, 1_000)));
}

/// A store at its `maxmemory` books charges by default, and refuses them where decisions are to
/// take no memory.
#[test]
fn a_full_store_books_by_default() {
    let server = Server::start(Brand::Redis);
    let slow = Duration::from_secs(5);
    let books = open(config(&server).budget(slow));
    let stops = open(config(&server).budget(slow).within_memory());
    let plan = plan(&books);
    assert_eq!((used(&books, &plan, "k"), used(&stops, &plan, "k")), (0, 0));
    server.set_maxmemory(1);
    let charge = |store: &Arc<RedisStore>| store.charge(&plan, &key("k"), 4, Debt::FORGOTTEN);
    assert_eq!(charge(&books).wait().unwrap().remaining, 6);
    let refused = charge(&stops).wait();
    assert!(
        matches!(&refused, Err(StoreError::Unavailable(Unavailable::Unable(_)))),
        "{refused:?}"
    );
    server.set_maxmemory(0);
    assert_eq!(used(&books, &plan, "k"), 4);
}

#[test]
fn limits_that_take_no_charge_say_so() {
    let server = Server::start(Brand::Redis);
    let store = open(config(&server));
    let in_flight = Rule::InFlight(Concurrency::new(3), NonZeroU64::new(1_000_000).unwrap());
    let plan = Arc::new(store.plan(&[("c", in_flight)]).unwrap());
    let refused = store.charge(&plan, &key("k"), 1, Debt::FORGOTTEN).wait();
    assert_eq!(refused, Err(StoreError::CountsInFlight));
    let plan = self::plan(&store);
    let refused = store.charge(&plan, &key("k"), 1, Debt::CARRIED).wait();
    let Err(StoreError::InvalidRequest(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("sliding log"), "{why}");
}

/// Requests that count in any case: the store's decision is exact, a denied one has counted, and
/// without the store the fallback decides.
#[test]
fn requests_that_count_in_any_case_are_decided_by_the_store() {
    let mut server = Server::start(Brand::Redis);
    // Longer than any delay of a busy machine.
    let budget = Duration::from_secs(2);
    let store = open(config(&server).budget(budget));
    let builder = Distributed::builder(Arc::clone(&store)).limit("log", log());
    let limiter = builder.with_budget(budget).build().expect("a limiter");
    let ask = |permits| limiter.try_acquire_or_charge(b"k", permits).wait().unwrap();
    eventually(SOON, "the store", || ask(0).by() == DecidedBy::Store);
    assert!(ask(0).is_granted());
    assert_eq!(ask(10).remaining(), Some(0));
    assert!(ask(0).is_granted(), "full is no debt");
    for (permits, expected) in [(1, 1), (2, 3), (0, 3), (100, 103)] {
        let Decision::Denied(denial) = ask(permits) else { panic!("granted") };
        assert_eq!((denial.by, denial.debt), (DecidedBy::Store, expected));
        // More than ten never pass together.
        assert_eq!(denial.retry_after.is_some(), permits < 100, "{permits}");
    }
    // A caller that no longer waits has been counted all the same.
    drop(limiter.try_acquire_or_charge(b"k", 5));
    eventually(
        SOON,
        "the dropped request",
        || matches!(ask(0), Decision::Denied(denial) if denial.debt == 108),
    );
    let charged = limiter.charge(b"k", NonZeroU64::MIN).wait().unwrap().charged;
    assert_eq!((charged.booked, charged.debt), (1, 109));
    server.kill();
    eventually(SOON, "the fallback", || ask(1).by() == DecidedBy::Fallback);
    let lost = limiter.charge(b"k", NonZeroU64::MIN).wait();
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
}
