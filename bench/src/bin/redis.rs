//! One limit over Redis: exact decisions one at a time and many together, beside the plain client,
//! and leased ones.

use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rategate::distributed::{DecidedBy, Distributed, Leases, Mode};
use rategate::{Gcra, Rate};
use rategate_bench::process::{self, Service};
use rategate_bench::report::{Arguments, Report, rate, span};
use rategate_bench::{Made, median};
use rategate_redis::batch::{Batch, Extra};
use rategate_redis::client::{Config, RedisStore, Server};
use rategate_redis::command::Settings;
use rategate_redis::key::KeySpace;
use rategate_redis::library::Library;
use rategate_redis::limit::Limit;
use rategate_redis::plan::Plan;
use redis::aio::MultiplexedConnection;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

const PREFIX: &str = "bench";
const TASKS: u32 = 512;
const KEYS: u32 = 256;
/// Limits that grant everything, and nothing: a rate per second and a burst.
const GRANTS: (u64, u64) = (1_000_000_000, 1_000_000);
const DENIES: (u64, u64) = (1, 1);

/// A token bucket as most programs write it: no refunds, no batches, no check of the arguments.
const SCRIPT: &str = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2]
local tat = tonumber(redis.call('GET', KEYS[1]) or now) if tat < now then tat = now end
local new = tat + tonumber(ARGV[1])
if new - tonumber(ARGV[2]) > now then return {0, new - tonumber(ARGV[2]) - now} end
redis.call('SET', KEYS[1], string.format('%d', new), 'PX', math.ceil((new - now) / 1000) + 1)
return {1, 0}";

fn main() -> Made<()> {
    let arguments = Arguments::read()?;
    let mut report = Report::new(&arguments, "redis", &["path", "ours", "beside"]);
    let lasts = Duration::from_millis(if arguments.quick { 500 } else { 4_000 });
    let store = Store::start()?;
    one_at_a_time(&mut report, &store, lasts, if arguments.quick { 2 } else { 9 })?;
    for (answer, limit) in [("granted", GRANTS), ("denied", DENIES)] {
        many_together(&mut report, &store, answer, limit, lasts)?;
    }
    leased(&mut report, &store, lasts)?;
    report.end()
}

/// A server with our functions, a runtime of one thread, and the plain client.
struct Store {
    service: Service,
    port: u16,
    runtime: Runtime,
    plain: MultiplexedConnection,
    script: String,
}

impl Store {
    fn start() -> Made<Self> {
        let (service, port) = process::redis(None, &[])?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"))?;
        let mut plain = runtime.block_on(client.get_multiplexed_async_connection())?;
        let script = runtime.block_on(async {
            let _: () = command(&Library::LIVE.load()).query_async(&mut plain).await?;
            redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query_async(&mut plain).await
        })?;
        Ok(Self { service, port, runtime, plain, script })
    }

    /// Returns a limit, after its first decision.
    fn limiter(&self, (per_s, burst): (u64, u64), mode: Mode) -> Made<Distributed<RedisStore>> {
        self.runtime.block_on(async {
            let server = Server::tcp("127.0.0.1", self.port);
            let store = RedisStore::open_in_runtime(Config::server(server).prefix(PREFIX))?;
            let bucket = Gcra::new(Rate::per_second(per_s), burst)?;
            let limiter = Distributed::builder(Arc::new(store)).limit("bench", bucket);
            let limiter = limiter.mode(mode).build()?;
            while limiter.try_acquire(b"warm", 1).await?.by() == DecidedBy::Fallback {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(limiter)
        })
    }
}

fn command(words: &[impl redis::ToRedisArgs]) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word);
    }
    command
}

/// Returns the call of our function for one decision.
fn words((per_s, burst): (u64, u64), key: &str) -> Made<Vec<Vec<u8>>> {
    let bucket = Gcra::new(Rate::per_second(per_s), burst)?;
    let plan = Plan::new([("bench", Limit::gcra(&bucket)?)])?;
    let key = KeySpace::new(PREFIX)?.key(key.as_bytes());
    let mut batch = Batch::new();
    batch.try_acquire(&plan, &key, 1, Extra::default())?;
    Ok(batch.decide(Settings::default()).fcall(Library::LIVE))
}

/// Measures lone decisions in turns with the plain client, which calls the same function, and a
/// script of six lines.
fn one_at_a_time(report: &mut Report, store: &Store, lasts: Duration, rounds: u32) -> Made<()> {
    let limiter = store.limiter(GRANTS, Mode::Exact)?;
    let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key}")).collect();
    let functions = keys.iter().map(|key| Ok(command(&words(GRANTS, key)?)));
    let functions: Vec<redis::Cmd> = functions.collect::<Made<_>>()?;
    let scripts: Vec<redis::Cmd> = keys
        .iter()
        .map(|key| command(&["EVALSHA", &store.script, "1", key, "1", "1000000"]))
        .collect();
    let mut took_ns = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        store.runtime.block_on(async {
            let ours = async |at: usize| {
                let decision = limiter.try_acquire(keys[at].as_bytes(), 1).await?;
                if decision.is_granted() { Ok(()) } else { Err("a decision was denied".into()) }
            };
            let plain = async |command: &redis::Cmd| -> Made<()> {
                store.plain.clone().send_packed_command(command).await?;
                Ok(())
            };
            took_ns[0].push(timed(lasts / rounds, ours).await?);
            took_ns[1].push(timed(lasts / rounds, async |at| plain(&functions[at]).await).await?);
            took_ns[2].push(timed(lasts / rounds, async |at| plain(&scripts[at]).await).await?);
            Made::Ok(())
        })?;
    }
    let shown = |of: &[[f64; 2]]| {
        let at = |quantile: usize| span(median(of.iter().map(|took| took[quantile]).collect()));
        format!("p50 {}, p99 {}", at(0), at(1))
    };
    let times = |other: usize| {
        let both = took_ns[0].iter().zip(&took_ns[other]);
        median(both.map(|(ours, theirs): (&[f64; 2], &[f64; 2])| ours[0] / theirs[0]).collect())
    };
    let beside = format!(
        "plain client, same function: {}, ours {:.2} times its p50; six lines: {}, {:.2} times",
        shown(&took_ns[1]),
        times(1),
        shown(&took_ns[2]),
        times(2)
    );
    report.row(&["exact, one decision after another", &shown(&took_ns[0]), &beside]);
    let [function, script] = [server_us(store, "fcall")?, server_us(store, "evalsha")?];
    let beside = format!("six lines: {}", span(script * 1e3));
    report.row(&["a single decision, the server's time", &span(function * 1e3), &beside]);
    Ok(())
}

/// Calls one after the other for a time. Returns the times of half and of 99 % of the calls.
async fn timed(lasts: Duration, call: impl AsyncFn(usize) -> Made<()>) -> Made<[f64; 2]> {
    let mut took_ns = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
    let begun = Instant::now();
    for at in (0..KEYS as usize).cycle() {
        let called = Instant::now();
        if called.duration_since(begun) >= lasts {
            break;
        }
        call(at).await?;
        took_ns.saturating_record(called.elapsed().as_nanos() as u64);
    }
    Ok([0.5, 0.99].map(|quantile| took_ns.value_at_quantile(quantile) as f64))
}

/// Returns what the server has taken for each call of a command so far.
fn server_us(store: &Store, name: &str) -> Made<f64> {
    let info: String = store
        .runtime
        .block_on(redis::cmd("INFO").arg("commandstats").query_async(&mut store.plain.clone()))?;
    let prefix = format!("cmdstat_{name}:");
    let line = info.lines().find(|line| line.starts_with(&prefix)).ok_or("no such command")?;
    let field = line.split(',').find_map(|field| field.strip_prefix("usec_per_call="));
    Ok(field.ok_or("no time")?.parse()?)
}

/// Calls in many tasks for a time. Returns the decisions in a second.
fn tasks(store: &Store, limiter: &Distributed<RedisStore>, lasts: Duration) -> Made<f64> {
    let tasks = LocalSet::new();
    let limiter = Rc::new(limiter.clone());
    let begun = Instant::now();
    let all: Vec<_> = (0..TASKS)
        .map(|task| {
            let limiter = Rc::clone(&limiter);
            tasks.spawn_local(async move {
                let (mut key, mut count) = (task % KEYS, 0_u64);
                while begun.elapsed() < lasts {
                    let _ = limiter.try_acquire(format!("k{key}").as_bytes(), 1).await?;
                    (key, count) = ((key + 1) % KEYS, count + 1);
                }
                Made::Ok(count)
            })
        })
        .collect();
    let count = tasks.block_on(&store.runtime, async {
        let mut count = 0;
        for task in all {
            count += task.await??;
        }
        Made::Ok(count)
    })?;
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

/// Measures decisions of many tasks, which go to the server in batches, beside one call for each.
fn many_together(
    report: &mut Report,
    store: &Store,
    answer: &str,
    limit: (u64, u64),
    lasts: Duration,
) -> Made<()> {
    let limiter = store.limiter(limit, Mode::Exact)?;
    let before_ns = store.service.cpu_ns();
    let per_s = tasks(store, &limiter, lasts)?;
    let busy = (store.service.cpu_ns() - before_ns) as f64 / lasts.as_nanos() as f64;
    let words = words(limit, "__rand_int__")?;
    let words = words.iter().map(|word| String::from_utf8_lossy(word).into_owned());
    let output = Command::new(Path::new("redis-benchmark"))
        .args(["-p", &store.port.to_string(), "-P", "16", "-r", &KEYS.to_string(), "--csv"])
        .args(["-n", &((lasts.as_secs_f64() * 100_000.0) as u64).to_string()])
        .args(words)
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let row = text.lines().last().ok_or("redis-benchmark printed nothing")?;
    // The command is the first field, and contains no comma.
    let benchmark = row.split(',').nth(1).ok_or("redis-benchmark printed no rate")?;
    let benchmark: f64 = benchmark.trim_matches('"').parse()?;
    let path = format!("exact, {TASKS} tasks, {KEYS} keys, {answer}");
    let ours = format!("{}, {:.0} % of a core of the server", rate(per_s), busy * 100.0);
    let beside = format!(
        "the same function by redis-benchmark -P 16: {}, ours {:.2} times",
        rate(benchmark),
        per_s / benchmark
    );
    report.row(&[&path, &ours, &beside]);
    Ok(())
}

/// Measures one thread that calls for one key as often as it can, beside tasks of the exact mode.
fn leased(report: &mut Report, store: &Store, lasts: Duration) -> Made<()> {
    const LIMIT: (u64, u64) = (10_000, 1_000);
    let exact = tasks(store, &store.limiter(LIMIT, Mode::Exact)?, lasts)?;
    let leases = Leases { ttl: Duration::from_millis(100), max_permits: 500, ..Leases::default() };
    let limiter = store.limiter(LIMIT, Mode::Leased(leases))?;
    let key = limiter.key(b"leased");
    let mut took_ns = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
    let (mut granted, mut count) = (0_u64, 0_u64);
    let begun = Instant::now();
    store.runtime.block_on(async {
        while begun.elapsed() < lasts {
            for call in 0..64 {
                let called = Instant::now();
                let decision = match key.try_acquire(1).at_once() {
                    Ok(decision) => {
                        if call == 0 {
                            took_ns.saturating_record(called.elapsed().as_nanos() as u64);
                        }
                        decision
                    }
                    Err(later) => later.await,
                };
                granted += u64::from(decision?.is_granted());
                count += 1;
            }
            // The driver of the store is a task of this thread.
            tokio::task::yield_now().await;
        }
        Made::Ok(())
    })?;
    let per_s = |count: u64| rate(count as f64 / begun.elapsed().as_secs_f64());
    let at = |quantile| span(took_ns.value_at_quantile(quantile) as f64);
    let ours = format!(
        "{}, of them {} granted; a decision p50 {}, p99 {}",
        per_s(count),
        per_s(granted),
        at(0.5),
        at(0.99)
    );
    let beside = format!("exact, {TASKS} tasks: {}", rate(exact));
    report.row(&["leased, one thread, one key", &ours, &beside]);
    Ok(())
}
