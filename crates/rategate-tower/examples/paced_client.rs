//! A client of reqwest that keeps its own calls under a limit: one request each 50 ms.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::{Duration, Instant};

use axum::{Router, routing::get};
use rategate::{Gcra, Limiter};
use rategate_tower::client::PaceLayer;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let app: Router = Router::new().route("/", get(|| async { "hello" }));
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    let client = reqwest::Client::new();
    let pace = PaceLayer::new(tokio::time::sleep).limiter(Limiter::new(Gcra::per_second(20)));
    let begin = Instant::now();
    for _ in 0..8 {
        let response = pace.send(client.get(&url)).await?;
        println!("{} after {:?}", response.status(), begin.elapsed());
        assert!(response.status().is_success());
    }
    // The first request starts at once, and seven more follow 50 ms apart.
    assert!(begin.elapsed() >= Duration::from_millis(340));
    server.abort();
    Ok(())
}
