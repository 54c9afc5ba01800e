//! Use of a store in a forked child that was opened before the fork.

#![cfg(all(feature = "client", unix))]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests: a panic is how they fail"
)]

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate::distributed::Distributed;
use rategate::store::{Key, Store, StoreExt, Verdict};
use rategate_core::gcra::Gcra;
use rategate_redis::client::{Config, RedisStore, Server as Address};
use rategate_testkit::forked::in_child;
use rategate_testkit::redis::{Brand, Server};

/// Longer than any delay of a busy machine, and shorter than a child may run.
const BUDGET: Duration = Duration::from_secs(3);

fn open(server: &Server) -> RedisStore {
    let address = Address::tcp("127.0.0.1", server.port());
    RedisStore::open(Config::server(address).prefix("t").budget(BUDGET)).unwrap()
}

/// Returns a bucket of five permits, none of which is earned again within the test.
fn five() -> Gcra {
    Gcra::new("1/3600s".parse().unwrap(), 5).unwrap()
}

fn key() -> Key {
    Arc::from(&b"k"[..])
}

#[test]
fn a_store_of_the_parent_answers_in_the_child() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let store = Arc::new(open(&server));
        let plan = Arc::new(store.plan(&[("api", five().into())]).unwrap());
        let left = || match store.decide(&plan, &key(), NonZeroU64::MIN).wait().unwrap() {
            Verdict::Granted(grant) => grant.remaining,
            Verdict::Denied(_) => panic!("denied"),
        };
        assert_eq!(left(), 4);
        in_child(|| {
            assert_eq!(left(), 3);
            assert_eq!(store.stats().connections, 1, "of its own, and one");
            in_child(|| assert_eq!(left(), 2));
        });
        assert_eq!(left(), 1);
        assert_eq!(store.stats().connections, 1, "the parent keeps its connection");
    }
}

/// Closing the store in the child, which has no driver yet, returns at once and leaves the
/// parent's open.
#[test]
fn a_store_dropped_in_the_child_is_open_in_the_parent() {
    let server = Server::start(Brand::Redis);
    let store = Arc::new(open(&server));
    let plan = Arc::new(store.plan(&[("api", five().into())]).unwrap());
    assert!(store.decide(&plan, &key(), NonZeroU64::MIN).wait().is_ok());
    let handle = Arc::clone(&store);
    in_child(move || drop(handle));
    assert!(store.decide(&plan, &key(), NonZeroU64::MIN).wait().is_ok());
}

#[test]
fn a_distributed_limiter_of_the_parent_decides_in_the_child() {
    let server = Server::start(Brand::Redis);
    let builder = Distributed::builder(Arc::new(open(&server))).limit("api", five());
    let limiter = builder.with_budget(BUDGET).build().unwrap();
    let passes = || limiter.try_acquire(b"k", 1).wait().unwrap().is_granted();
    assert!(passes());
    in_child(|| assert!(passes() && passes()));
    assert!(passes() && passes());
    assert!(!passes());
}
