//! An overloaded axum service under limits on requests in flight: none, fixed ones, and one that
//! follows measurements.
//!
//! The handler has a real bottleneck, a pool of 8 with 10 ms of work: 800 requests a second. This
//! program starts it as another process, once for each limit, and sends three times as many, at
//! fixed instants whether answers come or not. Callers give up after 500 ms. It prints what was
//! served in time, and how late.
//!
//! ```text
//! cargo run --release --example adaptive_server -- [SECONDS] [REQUESTS A SECOND]
//! ```

#![allow(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::cast_precision_loss)]
#![allow(clippy::print_stdout)]

use std::env;
use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use rategate::{AdaptiveConcurrency, Concurrency, Limiter};
use rategate_tower::RateLimitLayer;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, sleep_until, timeout};

const POOL: usize = 8;
const WORK: Duration = Duration::from_millis(10);
const CAPACITY: f64 = 800.0;
const PATIENCE: Duration = Duration::from_millis(500);
const FIXED: [u64; 6] = [4, 8, 12, 16, 32, 128];

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = env::args().skip(1).collect();
    if let [verb, limit] = words.as_slice()
        && verb == "serve"
    {
        return serve(limit).await;
    }
    let seconds = words.first().map_or(Ok(2.0), |word| word.parse())?;
    let per_s = words.get(1).map_or(Ok(3.0 * CAPACITY), |word| word.parse())?;
    println!("{per_s} requests a second for {seconds} s, of which {CAPACITY} can be served");
    println!("limit                served in time   p50 ms   p99 ms   refused   90 % after");
    let fixed = FIXED.map(|limit| limit.to_string());
    for limit in ["none"].into_iter().chain(fixed.iter().map(String::as_str)).chain(["adaptive"]) {
        let server = Server::start(limit)?;
        let calls = load(&server.url, Duration::from_secs_f64(seconds), per_s).await?;
        print(limit, &calls, seconds);
    }
    Ok(())
}

/// Serves until the process is killed. The first line that it prints is its address.
async fn serve(limit: &str) -> Result<(), Failure> {
    let pool = Arc::new(Semaphore::new(POOL));
    let work = move || async move {
        let Ok(_worker) = pool.acquire().await else { return StatusCode::SERVICE_UNAVAILABLE };
        sleep(WORK).await;
        StatusCode::OK
    };
    let app = Router::new().route("/", get(work));
    let app = match limit {
        "none" => app,
        "adaptive" => {
            app.layer(RateLimitLayer::new(Limiter::new(AdaptiveConcurrency::new(1, 1_000))))
        }
        fixed => {
            app.layer(RateLimitLayer::new(Limiter::new(Concurrency::try_new(fixed.parse()?)?)))
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}

/// A service in another process.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(limit: &str) -> Result<Self, Failure> {
        let program = env::current_exe()?;
        let mut process =
            Command::new(program).args(["serve", limit]).stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().ok_or("no output")?;
        let mut url = String::new();
        BufReader::new(output).read_line(&mut url)?;
        Ok(Self { process, url: url.trim().to_owned() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The end of one request.
struct Call {
    /// The time since the start of the load at which it was sent.
    sent: Duration,
    took: Duration,
    /// `None` where the caller gave up.
    status: Option<StatusCode>,
}

/// Sends requests at fixed instants, and returns their ends.
async fn load(url: &str, lasts: Duration, per_s: f64) -> Result<Vec<Call>, Failure> {
    let client = reqwest::Client::new();
    let (tell, mut answers) = mpsc::unbounded_channel();
    let begun = Instant::now();
    let mut number = 0_u32;
    loop {
        let sent = Duration::from_secs_f64(f64::from(number) / per_s);
        if sent >= lasts {
            break;
        }
        number += 1;
        sleep_until((begun + sent).into()).await;
        let (request, tell) = (client.get(url), tell.clone());
        tokio::spawn(async move {
            let answer = timeout(PATIENCE, request.send()).await;
            let status = answer.ok().and_then(Result::ok).map(|answer| answer.status());
            // Counted from the instant at which it should have been sent.
            let took = begun.elapsed().saturating_sub(sent);
            let _ = tell.send(Call { sent, took, status });
        });
    }
    drop(tell);
    let mut calls = Vec::new();
    while let Some(call) = answers.recv().await {
        calls.push(call);
    }
    Ok(calls)
}

fn print(limit: &str, calls: &[Call], seconds: f64) {
    let is_served = |call: &&Call| call.status == Some(StatusCode::OK) && call.took <= PATIENCE;
    let served: Vec<&Call> = calls.iter().filter(is_served).collect();
    let mut took: Vec<Duration> = served.iter().map(|call| call.took).collect();
    took.sort();
    let at =
        |percent: usize| took.get(took.len() * percent / 100).map_or(0.0, Duration::as_secs_f64);
    let refused =
        calls.iter().filter(|call| call.status == Some(StatusCode::TOO_MANY_REQUESTS)).count();
    // The first tenth of a second from which on the rest of that second has 90 % of the capacity.
    let since = (0..).map(|tenth| Duration::from_millis(100 * tenth));
    let reached = since.take_while(|since| since.as_secs_f64() + 1.0 <= seconds).find(|&since| {
        let until = since + Duration::from_secs(1);
        let count = served.iter().filter(|call| (since..until).contains(&call.sent)).count();
        count as f64 >= 0.9 * CAPACITY
    });
    println!(
        "{limit:>8} {:>19.1} % {:>8.1} {:>8.1} {:>7.1} % {:>10}",
        100.0 * served.len() as f64 / (CAPACITY * seconds),
        1e3 * at(50),
        1e3 * at(99),
        100.0 * refused as f64 / calls.len() as f64,
        reached.map_or("never".to_owned(), |since| format!("{:.1} s", since.as_secs_f64())),
    );
}
