//! A store through its driver, on real servers.

#![cfg(feature = "client")]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests: a panic is how they fail"
)]

mod common;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use common::server::{Brand, Server};
use rategate::store::{Ask, Fault, Gone, Store, Verdict};
use rategate_core::gcra::Gcra;
use rategate_redis::client::{self, Config, RedisStore};

fn key(name: &str) -> Arc<[u8]> {
    Arc::from(name.as_bytes())
}

fn permits(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

fn store(server: &Server) -> Arc<RedisStore> {
    let config = Config::server(client::Server::tcp("127.0.0.1", server.port()));
    Arc::new(RedisStore::open(config.prefix("t").budget(Duration::from_secs(5))).unwrap())
}

#[test]
fn a_store_decides() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let store = store(&server);
        let bucket = Gcra::new("1/60s".parse().unwrap(), 5).unwrap();
        let plan = Arc::new(store.plan(&[("api", bucket.into())]).unwrap());
        let key = key("k");
        for left in (0..5).rev() {
            let Verdict::Granted(grant) = store.decide(&plan, &key, permits(1)).wait().unwrap()
            else {
                panic!("denied")
            };
            assert_eq!((grant.permits, grant.remaining), (1, left));
        }
        let Verdict::Denied(denial) = store.decide(&plan, &key, permits(1)).wait().unwrap() else {
            panic!("granted")
        };
        assert!(denial.retry_after_ns.unwrap().get() > 50_000_000_000);
        assert!(matches!(store.decide(&plan, &key, permits(6)).wait(), Err(Fault::Exceeds(_))));
        assert_eq!(store.reset(&plan, &key).wait(), Ok(1));
    }
}

#[test]
fn nobody_there_is_said_in_time() {
    let mut server = Server::start(Brand::Redis);
    server.kill();
    let config = Config::server(client::Server::tcp("127.0.0.1", server.port()));
    let store = Arc::new(RedisStore::open(config).unwrap());
    let bucket = Gcra::new("1/60s".parse().unwrap(), 5).unwrap();
    let plan = Arc::new(store.plan(&[("api", bucket.into())]).unwrap());
    let said = store.decide(&plan, &key("k"), permits(1)).wait();
    assert!(matches!(said, Err(Fault::Gone(Gone::Unreachable(_)))), "{said:?}");
}
