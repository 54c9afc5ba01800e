//! A store that comes back is used again at once, however long the breaker's pause has become.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::load::{at, config, eventually, open};
use crate::common::proxy::Proxy;
use rategate::Gcra;
use rategate::distributed::{DecidedBy, Distributed, Leases, Mode, StoreStatus};
use rategate_redis::client::{Config, RedisStore};
use rategate_testkit::redis::{Brand, Server};

const SOON: Duration = Duration::from_secs(8);
/// The length of the outage, after which the breaker pauses for more than three seconds.
const DOWN_FOR: Duration = Duration::from_millis(3_300);
const BACK_WITHIN: Duration = Duration::from_millis(500);

fn limiter(store: &Arc<RedisStore>, mode: Mode) -> Distributed<RedisStore> {
    let bucket = Gcra::new("100000/s".parse().unwrap(), 1_000).unwrap();
    Distributed::builder(Arc::clone(store)).limit("calls", bucket).mode(mode).build().unwrap()
}

/// Returns the time from the store's return to the first grant.
fn back_after(
    limiter: &Distributed<RedisStore>,
    take_down: impl FnOnce(),
    bring_up: impl FnOnce(),
) -> Duration {
    let is_granted = || {
        let decision = limiter.try_acquire(b"k", 1).wait().unwrap();
        decision.is_granted() && decision.by() != DecidedBy::Fallback
    };
    eventually(SOON, "a first grant", is_granted);
    take_down();
    let down_since = Instant::now();
    while down_since.elapsed() < DOWN_FOR {
        let _ = is_granted();
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(limiter.health().store_status, StoreStatus::Unavailable);
    bring_up();
    let back = Instant::now();
    while !is_granted() {
        assert!(back.elapsed() < SOON, "never back");
        thread::sleep(Duration::from_millis(2));
    }
    back.elapsed()
}

fn leases() -> Mode {
    Mode::Leased(Leases { ttl: Duration::from_millis(100), max_permits: 50, ..Leases::default() })
}

#[test]
fn a_server_that_starts_again_grants_soon() {
    for mode in [Mode::Exact, leases()] {
        let server = Server::start(Brand::Redis);
        let store = open(config(&server));
        let cell = std::cell::RefCell::new(server);
        let limiter = limiter(&store, mode);
        let took =
            back_after(&limiter, || cell.borrow_mut().kill(), || cell.borrow_mut().restart_empty());
        println!("started again: {took:?}");
        assert!(took < BACK_WITHIN, "{took:?}");
    }
}

#[test]
fn a_server_that_stood_still_grants_soon() {
    let server = Server::start(Brand::Redis);
    let store = open(config(&server));
    let took = back_after(&limiter(&store, Mode::Exact), || server.stall(), || server.resume());
    println!("stood still: {took:?}");
    assert!(took < BACK_WITHIN, "{took:?}");
}

#[test]
fn a_replica_that_takes_over_grants_soon() {
    let mut primary = Server::start(Brand::Redis);
    let replica = primary.replica();
    let store = open(Config::primary_of([at(primary.port()), at(replica.port())]));
    let promote = || {
        replica.client().ok(&["REPLICAOF", "NO", "ONE"]);
    };
    let took = back_after(&limiter(&store, Mode::Exact), || primary.kill(), promote);
    println!("taken over: {took:?}");
    assert!(took < BACK_WITHIN, "{took:?}");
}

/// Replies are dropped, even on connections begun meanwhile; new connections get through.
#[test]
fn a_network_that_is_mended_grants_soon() {
    let server = Server::start(Brand::Redis);
    let proxy = Proxy::before(server.port());
    let store = open(Config::server(at(proxy.port())));
    let reply_faults = &proxy.reply_faults;
    let cut = || reply_faults.swallows.store(u64::MAX, Ordering::Relaxed);
    let mend = || {
        reply_faults
            .swallows
            .store(reply_faults.connections.load(Ordering::Relaxed), Ordering::Relaxed);
    };
    let took = back_after(&limiter(&store, Mode::Exact), cut, mend);
    println!("mended: {took:?}");
    assert!(took < BACK_WITHIN, "{took:?}");
}

/// A server that is always late does not get more requests.
#[test]
fn a_server_that_stays_slow_is_left_alone() {
    let server = Server::start(Brand::Redis);
    let proxy = Proxy::before(server.port());
    let store = open(Config::server(at(proxy.port())));
    let limiter = limiter(&store, Mode::Exact);
    eventually(SOON, "a first grant", || {
        limiter.try_acquire(b"k", 1).wait().unwrap().by() == DecidedBy::Store
    });
    proxy.reply_faults.delay_ms.store(60, Ordering::Relaxed);
    let (begun, before) = (Instant::now(), store.stats().late);
    while begun.elapsed() < Duration::from_secs(3) {
        let _ = limiter.try_acquire(b"k", 1).wait();
        thread::sleep(Duration::from_millis(2));
    }
    // Five requests that open the breaker, and a probe for each pause.
    let late = store.stats().late - before;
    assert!((5..=12).contains(&late), "{late}: {:?}", store.stats());
}
