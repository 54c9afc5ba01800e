//! An axum service with a limit for each API key, and more for the keys of customers who pay.

#![allow(clippy::print_stdout)]

use std::collections::HashSet;
use std::error::Error;

use axum::{Router, routing::get};
use rategate::keyed::{Capacity, Hashing};
use rategate::{Gcra, Keyed, MonotonicClock};
use rategate_tower::RateLimitLayer;
use rategate_tower::key::{self, Key};
use reqwest::header::RETRY_AFTER;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let paid = HashSet::from([Key::of(b"k-paid".as_slice())]);
    let tier_of = move |key: &Key| usize::from(paid.contains(key));
    let tiers = [Gcra::per_minute(6).burst(2), Gcra::per_second(100).burst(20)];
    let (capacity, clock) = (Capacity::for_keys(100_000), MonotonicClock::new());
    let keyed = Keyed::with_tiers(tiers, tier_of, capacity, Hashing::FloodSafe, clock)?;
    let layer = RateLimitLayer::keyed(keyed, key::header("x-api-key".parse()?));
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    assert_eq!(passed(&url, "k-free").await?, 2);
    assert_eq!(passed(&url, "k-paid").await?, 10);
    server.abort();
    Ok(())
}

/// Sends ten requests with an API key, and returns how many passed.
async fn passed(url: &str, key: &str) -> Result<usize, reqwest::Error> {
    let client = reqwest::Client::new();
    let mut statuses = Vec::new();
    for _ in 0..10 {
        let response = client.get(url).header("x-api-key", key).send().await?;
        println!("{key}: {} {:?}", response.status(), response.headers().get(RETRY_AFTER));
        statuses.push(response.status());
    }
    Ok(statuses.iter().filter(|status| status.is_success()).count())
}
