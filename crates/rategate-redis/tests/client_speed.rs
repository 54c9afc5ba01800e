//! How many decisions a process gets through one driver, beside one call for each decision and beside
//! `redis-benchmark`. Not run by itself:
//!
//! ```text
//! cargo test --release -p rategate-redis --test client_speed -- --ignored --nocapture
//! ```

#![cfg(feature = "client")]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement"
)]

mod common;

use std::num::NonZeroU64;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::server::{Brand, Server};
use rategate::store::{Ask, Store};
use rategate_core::gcra::Gcra;
use rategate_redis::batch::{Batch, Extra};
use rategate_redis::client::{self, Config, RedisStore};
use rategate_redis::command::Settings;
use rategate_redis::key::KeySpace;
use rategate_redis::library::Library;
use rategate_redis::limit::Limit;
use rategate_redis::plan::Plan;

const LASTS: Duration = Duration::from_secs(2);

fn bucket() -> Gcra {
    Gcra::new("1000000000/s".parse().unwrap(), 1_000_000).unwrap()
}

#[test]
#[ignore = "a measurement"]
fn decisions_per_second() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let there = || cpu(&server).1;
        let before = there();
        let alone = one_by_one(&server);
        let between = there();
        let (bench_one, bench_many) = (benchmark(&server, "1"), benchmark(&server, "1000"));
        println!(
            "the server's processor: one call each {:.2} us, redis-benchmark {:.2} us",
            (between - before) / (alone * LASTS.as_secs_f64()) * 1e6,
            (there() - between) / 0.4
        );
        println!(
            "\n{brand:?}: one call each {alone:.0}/s, redis-benchmark -P 16 over 1 key {bench_one:.0}/s, over 1000 \
             {bench_many:.0}/s"
        );
        for (tasks, keys) in [(64, 1_000), (512, 1_000), (2_048, 1_000), (2_048, 1)] {
            for (batch, rounds) in [(256, 2), (512, 1), (512, 2), (512, 4), (1_024, 2)] {
                let (rate, percentiles, size) = driven(&server, tasks, keys, batch, rounds, None);
                println!(
                    "{tasks} tasks over {keys} keys, batch {batch} rounds {rounds}: {rate:.0}/s ({:.1}x, {:.2}x) \
                     p50 {:?} p99 {:?} size {size:.0}",
                    rate / alone,
                    rate / if keys == 1 { bench_one } else { bench_many },
                    percentiles[0],
                    percentiles[1],
                );
            }
        }
        for rate in [20_000, 50_000, 100_000] {
            let (rate, percentiles, size) = driven(&server, 256, 1_000, 512, 2, Some(rate));
            println!(
                "at {rate:.0}/s: p50 {:?} p99 {:?} size {size:.0}",
                percentiles[0], percentiles[1]
            );
        }
    }
}

fn driven(
    server: &Server,
    tasks: u64,
    keys: u64,
    batch: usize,
    rounds: usize,
    rate: Option<u64>,
) -> (f64, [Duration; 2], f64) {
    let config = Config::server(client::Server::tcp("127.0.0.1", server.port()))
        .budget(Duration::from_secs(1))
        .batch(batch)
        .rounds(rounds);
    let store = Arc::new(RedisStore::open(config).unwrap());
    let plan = Arc::new(store.plan(&[("api", bucket().into())]).unwrap());
    let before = cpu(server);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut took, lasted) = runtime.block_on(async {
        let start = Instant::now();
        let handles: Vec<_> = (0..tasks)
            .map(|task| {
                let (store, plan) = (Arc::clone(&store), Arc::clone(&plan));
                tokio::spawn(async move {
                    let mut took = Vec::new();
                    let every = rate.map(|rate| Duration::from_nanos(1_000_000_000 * tasks / rate));
                    let mut due = start
                        + every.unwrap_or_default() * u32::try_from(task).unwrap()
                            / u32::try_from(tasks).unwrap();
                    let mut turn = task;
                    while start.elapsed() < LASTS {
                        if let Some(every) = every {
                            tokio::time::sleep_until(due.into()).await;
                            due += every;
                        }
                        let key: Arc<[u8]> = format!("k{}", turn % keys).into_bytes().into();
                        turn += tasks;
                        let asked = Instant::now();
                        let _ = store.decide(&plan, &key, NonZeroU64::MIN).await.unwrap();
                        took.push(asked.elapsed());
                    }
                    took
                })
            })
            .collect();
        let mut took = Vec::new();
        for handle in handles {
            took.extend(handle.await.unwrap());
        }
        (took, start.elapsed())
    });
    took.sort_unstable();
    let at = |share: usize| took.get(took.len() * share / 1_000).copied().unwrap_or_default();
    let stats = store.stats();
    let size = stats.questions as f64 / stats.calls as f64;
    let (after, count) = (cpu(server), took.len() as f64 / 1e6);
    print!(
        "[us each: here {:.2}, there {:.2}] ",
        (after.0 - before.0) / count,
        (after.1 - before.1) / count
    );
    (took.len() as f64 / lasted.as_secs_f64(), [at(500), at(990)], size)
}

/// Seconds of processor time that this process has used, and the server. What they do in a second of their
/// own does not depend on who else is on the machine.
fn cpu(server: &Server) -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    let own = (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0;
    let told = server.client().ok(&["INFO", "cpu"]).text();
    let of = |name: &str| {
        let line = told.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim_start_matches(':').trim().parse::<f64>().ok()).unwrap_or(0.0)
    };
    (own, of("used_cpu_user") + of("used_cpu_sys"))
}

fn words(key: &[u8]) -> Vec<Vec<u8>> {
    let plan = Plan::new([("api", Limit::gcra(&bucket()).unwrap())]).unwrap();
    let mut batch = Batch::new();
    let key = KeySpace::new("t").unwrap().key(key);
    batch.try_acquire(&plan, &key, 1, Extra::default()).unwrap();
    batch.decide(Settings::default()).fcall(Library::LIVE)
}

fn one_by_one(server: &Server) -> f64 {
    let mut client = server.client();
    client.ok(&Library::LIVE.load());
    let (words, start, mut count) = (words(b"k"), Instant::now(), 0_u64);
    while start.elapsed() < LASTS {
        client.ok(&words);
        count += 1;
    }
    count as f64 / start.elapsed().as_secs_f64()
}

fn benchmark(server: &Server, keys: &str) -> f64 {
    let words = words(b"__rand_int__");
    let words = words.iter().map(|word| String::from_utf8_lossy(word).into_owned());
    let output = Command::new("redis-benchmark")
        .args(["-p", &server.port().to_string(), "-c", "1", "-P", "16", "-r", keys, "--csv"])
        .args(["-n", "200000"])
        .args(words)
        .output();
    let Ok(output) = output else { return f64::NAN };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = text.lines().last().unwrap_or("");
    row.split(',').nth(1).and_then(|rate| rate.trim_matches('"').parse().ok()).unwrap_or(f64::NAN)
}
