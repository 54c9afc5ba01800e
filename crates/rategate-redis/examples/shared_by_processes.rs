//! One limit that several processes share in Redis, with a limit of their own while Redis is gone.
//!
//! Start it several times at once, with the port of a Redis or Valkey on this machine.

#![allow(clippy::print_stdout)]

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rategate::Gcra;
use rategate::distributed::{Decision, Distributed, OnUnavailable};
use rategate_redis::client::{Config, RedisStore, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let port = env::args().nth(1).map_or(Ok(6379), |port| port.parse())?;

    let server = Server::tcp("127.0.0.1", port);
    let store = Arc::new(RedisStore::open(Config::server(server).prefix("example"))?);
    // Without a fallback of its own, a limiter denies every call while Redis is gone.
    let limiter = Distributed::builder(store)
        .limit("calls", Gcra::per_second(20).burst(5))
        .on_unavailable(OnUnavailable::local(2))
        .build()?;

    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(1500) {
        match limiter.try_acquire(b"tenant 1", 1).wait()? {
            Decision::Granted(grant) => println!("granted by {:?}", grant.by),
            Decision::Denied(denial) => {
                let wait = denial.retry_after.unwrap_or(Duration::from_millis(10));
                thread::sleep(wait.min(Duration::from_millis(100)));
            }
        }
    }
    let counts = limiter.counts();
    println!("{counts:?}, and the store is {:?}", limiter.health().store_status);
    // However many processes there are: 5 at once, and 20 a second for a second and a half.
    assert!(counts.store.granted <= 36);
    Ok(())
}
