//! Quarantine of limits that must hold even if the store loses data: no grant counts until the
//! loss cannot matter.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::cluster::Cluster;
use crate::common::load::{config, decide, eventually, open, plan, recovers};
use rategate::SlidingLog;
use rategate::distributed::{DecidedBy, Distributed, StoreStatus};
use rategate_redis::client::{Config, RedisStore};
use rategate_testkit::redis::{Brand, Server};

const SOON: Duration = Duration::from_secs(8);
const MAX_PERMITS: u64 = 20;
const WINDOW: Duration = Duration::from_secs(2);

fn quarantined(store: &Arc<RedisStore>) -> Distributed<RedisStore> {
    let window_ns = u64::try_from(WINDOW.as_nanos()).unwrap();
    let log = SlidingLog::new(MAX_PERMITS, Duration::from_nanos(window_ns));
    let builder = Distributed::builder(Arc::clone(store)).limit("log", log);
    builder.with_quarantine().with_budget(Duration::from_secs(1)).build().unwrap()
}

/// Returns the instants of the store's grants within `lasts` from now.
fn granted(limiter: &Distributed<RedisStore>, lasts: Duration) -> Vec<Instant> {
    let until = Instant::now() + lasts;
    let mut granted = Vec::new();
    while Instant::now() < until {
        let decision = limiter.try_acquire(b"k", 1).wait().unwrap();
        if decision.is_granted() {
            assert_eq!(decision.by(), DecidedBy::Store);
            granted.push(Instant::now());
        }
        thread::sleep(Duration::from_micros(500));
    }
    granted
}

fn settle(limiter: &Distributed<RedisStore>) {
    eventually(SOON, "the quarantine is over", || {
        let _ = limiter.peek(b"other", 1).wait();
        limiter.health().store_status == StoreStatus::Healthy
            && limiter.peek(b"other", 1).wait().unwrap().by() == DecidedBy::Store
    });
}

#[test]
fn a_store_that_is_emptied_grants_nothing_twice() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let store = open(config(&server).budget(Duration::from_secs(1)));
        let limiter = quarantined(&store);
        settle(&limiter);
        let mut all = granted(&limiter, Duration::from_millis(300));
        assert_eq!(all.len(), usize::try_from(MAX_PERMITS).unwrap());
        server.client().ok(&["FLUSHALL"]);
        all.extend(granted(&limiter, WINDOW * 2));
        let fullest = all
            .iter()
            .map(|from| all.iter().filter(|at| (*from..*from + WINDOW).contains(*at)).count());
        // A reply may be later than its decision, so for the nodes a window that much shorter
        // counts.
        assert!(fullest.max().unwrap() <= usize::try_from(MAX_PERMITS).unwrap() + 1, "{all:?}");
        assert!(
            all.len() > usize::try_from(MAX_PERMITS).unwrap(),
            "it grants again after the quarantine"
        );
    }
}

/// A server of a cluster has markers of its own, in other slots than the keys.
#[test]
fn an_emptied_server_of_a_cluster_is_quarantined_at_once() {
    let cluster = Cluster::start(Brand::Redis);
    let store =
        open(Config::cluster(cluster.addresses()).prefix("t").budget(Duration::from_secs(5)));
    let limiter = quarantined(&store);
    for key in 0..12 {
        eventually(SOON, "the quarantine is over", || {
            limiter.peek(format!("k{key}").as_bytes(), 1).wait().unwrap().by() == DecidedBy::Store
        });
    }
    for server in &cluster.servers {
        server.client().ok(&["FLUSHALL"]);
    }
    for key in 0..12 {
        let decision = limiter.try_acquire(format!("k{key}").as_bytes(), 1).wait().unwrap();
        assert!(!decision.is_granted(), "k{key}: {decision:?}");
    }
}

/// Single states may be evicted without any sign.
#[test]
fn a_store_that_may_drop_states_is_not_trusted() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let server = Server::with(Brand::Redis, &["--maxmemory-policy", policy]);
        let store = open(config(&server).budget(Duration::from_secs(1)));
        let limiter = quarantined(&store);
        // Without a `maxmemory` nothing is evicted.
        settle(&limiter);
        server.set_maxmemory(100 << 20);
        eventually(SOON, "it is noticed", || {
            let _ = limiter.try_acquire(b"k", 1).wait();
            limiter.health().store_status == StoreStatus::Quarantined
        });
        assert!(granted(&limiter, WINDOW + Duration::from_millis(500)).is_empty());
        server.client().ok(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        settle(&limiter);
        // Without a quarantine the store decides, whatever its memory policy.
        let plan = plan(&store, 10);
        server.client().ok(&["CONFIG", "SET", "maxmemory-policy", policy]);
        assert_eq!(decide(&store, &plan, "k"), Ok(true));
        assert!(recovers(&store, &plan, "k", SOON));
    }
}

/// Evicted states leave no trace of their own, and the policy may be the right one again by the
/// next greeting. The server's count of evicted keys shows it.
#[test]
fn states_that_were_evicted_a_moment_ago_are_missed() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let store = open(config(&server).budget(Duration::from_secs(1)));
        let limiter = quarantined(&store);
        settle(&limiter);
        let mut admin = server.client();
        // Keys that expire soon are evicted first: the marker stays.
        admin.ok(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
        let large = "x".repeat(1 << 16);
        for name in 0..20 {
            admin.ok(&["SET", &format!("large {name}"), &large, "EX", "100"]);
        }
        let info = admin.ok(&["INFO", "memory"]).text();
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        server.set_maxmemory(used.parse::<u64>().unwrap() - (8 << 16));
        admin.ok(&["SET", "one more", &large]);
        admin.ok(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        server.set_maxmemory(0);
        let stats = admin.ok(&["INFO", "stats"]).text();
        assert!(!stats.contains("evicted_keys:0\r"), "{stats}");
        eventually(SOON, "it is noticed", || {
            let _ = limiter.peek(b"other", 1).wait();
            limiter.health().store_status == StoreStatus::Quarantined
        });
        let begun = Instant::now();
        settle(&limiter);
        assert!(begun.elapsed() > WINDOW / 2, "{:?}", begun.elapsed());
        // A count that was reset may hide one that rose.
        admin.ok(&["CONFIG", "RESETSTAT"]);
        eventually(SOON, "it is doubted again", || {
            let _ = limiter.peek(b"other", 1).wait();
            limiter.health().store_status == StoreStatus::Quarantined
        });
    }
}
