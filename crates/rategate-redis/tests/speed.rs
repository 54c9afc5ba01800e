//! A measurement of the decisions per second of a store over one connection.
//!
//! It measures one decision per call, in a pipeline, and many per call, next to
//! `redis-benchmark`, which calls the same function. It prints the figures and asserts nothing:
//!
//! ```text
//! cargo test --release --package rategate-redis speed:: -- --ignored --nocapture
//! ```

use std::num::NonZeroU64;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use crate::common::store::key;
use rategate::charge::Debt;
use rategate::store::{ReservationEnd, ReservationId};
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::sliding_log::SlidingLog;
use rategate_redis::batch::{Batch, Extra};
use rategate_redis::command::Settings;
use rategate_redis::library::Library;
use rategate_redis::limit::Limit;
use rategate_redis::plan::Plan;
use rategate_redis::reserve::{Ends, Estimates};
use rategate_testkit::redis::{Brand, Server};
use rategate_testkit::redis::{Client, Reply};

/// The number of calls under way at once, as with `redis-benchmark -P 16`.
const PIPELINE: usize = 16;
const DECISIONS: usize = 60_000;

#[test]
#[ignore = "measures; run it alone, on a quiet machine, in release mode"]
fn decisions_per_second() {
    let bucket =
        |rate: &str, burst| Limit::gcra(&Gcra::new(rate.parse().unwrap(), burst).unwrap()).unwrap();
    let log = Limit::sliding_log(&SlidingLog::new(1_000, Duration::from_secs(1))).unwrap();
    let window = FixedWindow::new(1_000, Duration::from_secs(1), Anchor::Epoch);
    let window = Limit::fixed_window(&window).unwrap();
    let plans = [
        ("bucket, granted", Plan::new([("a", bucket("1000000000/s", 1 << 40))])),
        ("bucket, denied", Plan::new([("a", bucket("1/s", 1))])),
        ("log of 1000 a second", Plan::new([("a", log)])),
        (
            "bucket, log, window",
            Plan::new([("a", bucket("1000/s", 100)), ("b", log), ("c", window)]),
        ),
    ];
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let mut client = server.client();
        client.ok(&Library::LIVE.load());
        println!("\n{brand:?}, decisions per second");
        for (name, plan) in &plans {
            let plan = plan.as_ref().unwrap();
            let (single, many) = (benchmark(&server, plan, "1"), benchmark(&server, plan, "256"));
            print!(
                "{name:22} redis-benchmark -c 1 -P 16 over 1: {single:>7.0}, over 256: {many:>7.0}"
            );
            for (size, keys) in
                [(1, 1), (1, 256), (16, 256), (64, 256), (256, 256), (16, 1), (64, 1), (256, 1)]
            {
                let rate = ours(&mut client, plan, size, keys);
                let theirs = if keys == 1 { single } else { many };
                print!(" | {size} over {keys}: {rate:>7.0} ({:.2}x)", rate / theirs);
            }
            println!();
        }
    }
}

/// Measures reservations with their commits beside decisions, in calls of one and of many.
#[test]
#[ignore = "measures; run it alone, on a quiet machine, in release mode"]
fn reservations_per_second() {
    let bucket = Gcra::new("1000000000/s".parse().unwrap(), 1 << 40).unwrap();
    let plan = Plan::new([("a", Limit::gcra(&bucket).unwrap())]).unwrap();
    let ttl_ns = NonZeroU64::new(30_000_000_000).unwrap();
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let mut client = server.client();
        client.ok(&Library::LIVE.load());
        for size in [1, 64] {
            let decides = ours(&mut client, &plan, size, 256);
            let pairs: Vec<_> = (0..DECISIONS / 4 / size)
                .map(|call| {
                    let (mut estimates, mut ends) = (Estimates::new(), Ends::new());
                    for at in 0..size {
                        let number = call * size + at;
                        let key = key(&format!("256 {}", number % 256));
                        let id = ReservationId((number as u128).to_be_bytes());
                        estimates.push(&plan, &key, (50, 0), (id, ttl_ns)).unwrap();
                        let end = ReservationEnd::Commit { used: Some(50) };
                        ends.push(&plan, &key, id, end, Debt::FORGOTTEN).unwrap();
                    }
                    let settings = Settings::default();
                    [estimates.command(settings), ends.command(settings)]
                        .map(|command| command.fcall(Library::LIVE))
                })
                .collect();
            client.ok(&["FLUSHALL"]);
            let start = Instant::now();
            for pair in pairs.chunks(PIPELINE) {
                pair.iter().flatten().for_each(|words| client.push(words));
                client.flush();
                pair.iter()
                    .flatten()
                    .for_each(|_| assert!(matches!(client.read(), Reply::List(_))));
            }
            let reserved = (pairs.len() * size) as f64 / start.elapsed().as_secs_f64();
            println!(
                "{brand:?}, {size} in a call: {decides:>7.0} decisions, {reserved:>7.0} reservations \
                 with commits a second ({:.2}x)",
                reserved / decides
            );
        }
    }
}

/// Measures batches of `size` decisions over `keys` keys.
fn ours(client: &mut Client, plan: &Plan, size: usize, keys: usize) -> f64 {
    let calls: Vec<_> = (0..keys.div_ceil(size).max(1))
        .map(|call| {
            let mut batch = Batch::new();
            for at in 0..size {
                let name = format!("{keys} {}", (call * size + at) % keys);
                batch.try_acquire(plan, &key(&name), 1, Extra::default()).unwrap();
            }
            batch.decide(Settings::default()).fcall(Library::LIVE)
        })
        .collect();
    let rounds = DECISIONS / size / PIPELINE;
    let start = Instant::now();
    let mut next = calls.iter().cycle();
    for _ in 0..rounds {
        for _ in 0..PIPELINE {
            client.push(next.next().unwrap());
        }
        client.flush();
        for _ in 0..PIPELINE {
            assert!(matches!(client.read(), Reply::List(_)));
        }
    }
    (rounds * PIPELINE * size) as f64 / start.elapsed().as_secs_f64()
}

/// Measures one decision per call with `redis-benchmark`, over `keys` keys.
fn benchmark(server: &Server, plan: &Plan, keys: &str) -> f64 {
    let mut batch = Batch::new();
    batch.try_acquire(plan, &key("__rand_int__"), 1, Extra::default()).unwrap();
    let words = batch.decide(Settings::default()).fcall(Library::LIVE);
    let words = words.iter().map(|word| String::from_utf8_lossy(word).into_owned());
    let output = Command::new("redis-benchmark")
        .args(["-p", &server.port().to_string(), "-c", "1", "-P", "16", "-r", keys, "--csv"])
        .args(["-n", &DECISIONS.to_string()])
        .args(words)
        .output();
    let Ok(output) = output else { return f64::NAN };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = text.lines().last().unwrap_or("");
    // The command is the first field, and contains no comma.
    row.split(',').nth(1).and_then(|rate| rate.trim_matches('"').parse().ok()).unwrap_or(f64::NAN)
}
