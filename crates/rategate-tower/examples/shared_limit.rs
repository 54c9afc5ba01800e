//! An axum server that shares its limit with all servers on the same store: 20 requests in any
//! second per client, in Redis or Valkey.
//!
//! `cargo run --example shared_limit -- 60 127.0.0.1:8080 127.0.0.1:6379` serves for a minute on
//! the first address, with the store on the second. A second server, on another port, shares the
//! limit. Without arguments it serves for four seconds on a free port, with a store in its own
//! memory.

#![allow(
    clippy::print_stdout,
    unreachable_pub,
    reason = "an example prints, and is a module of a test"
)]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::{Router, serve};
use rategate::SlidingLog;
use rategate::distributed::{Distributed, OnUnavailable};
use rategate::store::{MemoryStore, Store};
use rategate_redis::client::{Config, RedisStore, Server};
use rategate_tower::{RateLimitLayer, key};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().unwrap_or_else(|| "4".to_owned());
    let invalid = |_| format!("`{seconds}` is not a whole number of seconds, such as 60");
    let seconds = seconds.parse::<u64>().map_err(invalid)?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());

    let listener = TcpListener::bind(address).await?;
    println!("http://{} for {seconds} s", listener.local_addr()?);
    let end = tokio::time::sleep(Duration::from_secs(seconds));
    match arguments.next() {
        Some(store) => run(listener, redis(store.parse()?)?, end).await,
        None => run(listener, MemoryStore::new(), end).await,
    }
}

/// Opens a store on Redis or Valkey.
///
/// # Errors
///
/// An invalid configuration. An unreachable store is no error: the limiter's fallback handles it.
pub fn redis(address: SocketAddr) -> Result<RedisStore, Box<dyn Error>> {
    let server = Server::tcp(&address.ip().to_string(), address.port());
    Ok(RedisStore::open(Config::server(server).prefix("example"))?)
}

/// Serves until `end`.
///
/// # Errors
///
/// The error of the listener or of the limit.
pub async fn run<S: Store>(
    listener: TcpListener,
    store: S,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Box<dyn Error>> {
    let limiter = Distributed::builder(Arc::new(store))
        .limit("client", SlidingLog::new(20, Duration::from_secs(1)))
        .on_unavailable(OnUnavailable::Admit)
        .build()?;
    let client = key::peer(|info: &ConnectInfo<SocketAddr>| info.0.ip());
    let layer = RateLimitLayer::distributed(limiter, client);

    let app = Router::new().route("/", get(|| async { "hello\n" })).layer(layer);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    serve(listener, service).with_graceful_shutdown(end).await?;
    Ok(())
}
