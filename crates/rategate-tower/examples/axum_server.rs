//! An axum server with a limit per client: 20 requests in any second, which every response
//! reports.
//!
//! `cargo run --example axum_server` serves for four seconds on a free port of this machine;
//! `cargo run --example axum_server -- 60 127.0.0.1:8080` for a minute on that address. Meanwhile
//! `curl -i` shows the header fields, and the example `reqwest_client` follows them.

#![allow(
    clippy::print_stdout,
    unreachable_pub,
    reason = "an example prints, and is a module of another"
)]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::{Router, serve};
use rategate::{Keyed, SlidingLog};
use rategate_tower::headers::{Dialect, Headers, QuotaPolicy};
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
    run(listener, tokio::time::sleep(Duration::from_secs(seconds))).await
}

/// Serves until `end`.
///
/// # Errors
///
/// The error of the listener.
pub async fn run(
    listener: TcpListener,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Box<dyn Error>> {
    let limit = SlidingLog::new(20, Duration::from_secs(1)).compact();
    let client = key::peer(|info: &ConnectInfo<SocketAddr>| info.0.ip());
    let policy = QuotaPolicy::new("per-client", 20, Duration::from_secs(1))?;
    let layer = RateLimitLayer::keyed(Keyed::new(limit), client)
        .headers(Headers::new(policy).and(Dialect::Legacy));

    let app = Router::new().route("/", get(|| async { "hello\n" })).layer(layer);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    serve(listener, service).with_graceful_shutdown(end).await?;
    Ok(())
}
