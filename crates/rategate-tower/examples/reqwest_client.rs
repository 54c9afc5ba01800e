//! A client that paces itself: four tasks share a `reqwest` client, its own limit, and the hints
//! of the server.
//!
//! `cargo run --example reqwest_client` starts the server of the example `axum_server` in its own
//! process; `cargo run --example reqwest_client -- http://127.0.0.1:8080/` uses another server.

#![allow(
    clippy::print_stdout,
    unreachable_pub,
    reason = "an example prints, and is a module of a test"
)]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rategate::{Gcra, Limiter};
use rategate_tower::client::PaceLayer;
use tokio::net::TcpListener;

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "axum_server.rs"]
pub mod axum_server;

const TASKS: u32 = 4;
const REQUESTS: u32 = 10;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(url) = std::env::args().nth(1) {
        run(&url).await?;
        return Ok(());
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::select! {
        ended = axum_server::run(listener, std::future::pending()) => ended,
        done = run(&url) => done.map(drop),
    }
}

/// Sends all requests, prints the responses, and counts those that passed and those refused.
///
/// # Errors
///
/// The first error of a request.
pub async fn run(url: &str) -> Result<(u32, u32), Box<dyn Error>> {
    let client = reqwest::Client::new();
    // At most 40 per second; fewer if the server requires it.
    let pace = PaceLayer::new(tokio::time::sleep).limiter(Limiter::new(Gcra::per_second(40)));

    let (passed, refused) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let began = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (pace, client, url) = (pace.clone(), client.clone(), url.to_owned());
            let (passed, refused) = (Arc::clone(&passed), Arc::clone(&refused));
            tokio::spawn(async move {
                for _ in 0..REQUESTS {
                    let response = pace.send(client.get(&url)).await?;
                    let counter = if response.status() == 429 { &refused } else { &passed };
                    counter.fetch_add(1, Ordering::Relaxed);
                    let rate_limit =
                        response.headers().get("ratelimit").map(|value| value.to_str());
                    println!(
                        "{:7.3} task {task}: {} {rate_limit:?}",
                        began.elapsed().as_secs_f32(),
                        response.status()
                    );
                }
                Ok::<_, Box<dyn Error + Send + Sync>>(())
            })
        })
        .collect();
    for task in tasks {
        task.await?.map_err(|error| error.to_string())?;
    }
    let (passed, refused) = (passed.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
    println!("{passed} passed, {refused} refused in {:.1} s", began.elapsed().as_secs_f32());
    Ok((passed, refused))
}
