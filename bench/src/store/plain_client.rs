//! Single decisions at a steady rate, compared with the plain client crate that calls the same
//! function, and with one that calls a script of six lines: the same tasks, schedule and run.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rategate::distributed::{DecidedBy, Distributed};
use rategate::{Gcra, Rate};
use rategate_bench::engines::Made;
use rategate_bench::report::Row;
use rategate_bench::usage::Share;
use rategate_redis::client::{self, Config, RedisStore};
use rategate_redis::library::Library;
use redis::aio::MultiplexedConnection;
use tokio::runtime::{Builder, Handle};

use crate::exact::{GRANTS, words};
use crate::job::histogram;
use crate::{Lengths, PREFIX};
use rategate_testkit::redis::{Brand, Server};

const RATES: [u32; 3] = [200, 10_000, 50_000];
const KEYS: u64 = 256;
/// The maximum number of calls in flight: a server that falls behind is not buried.
const MAX_UNDER_WAY: u64 = 20_000;
/// The number of rounds of each contender.
const ROUNDS: usize = 5;
const LOOK_EVERY: Duration = Duration::from_micros(50);

const GOAL_BESIDE_PLAIN: f64 = 1.3;
const GOAL_BESIDE_SCRIPT: f64 = 2.0;
const GOAL_ANSWERED: f64 = 99.0;
const GOAL_SERVER_US: f64 = 10.0;

/// A token bucket as most programs write it: no refunds, no batches, no check of the arguments.
const SCRIPT: &str = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2]
local tat = tonumber(redis.call('GET', KEYS[1]) or now) if tat < now then tat = now end
local new = tat + tonumber(ARGV[1])
if new - tonumber(ARGV[2]) > now then return {0, new - tonumber(ARGV[2]) - now} end
redis.call('SET', KEYS[1], string.format('%d', new), 'PX', math.ceil((new - now) / 1000) + 1)
return {1, 0}";

/// One contender: its call, and the results so far.
struct Contender<'a> {
    call: Box<dyn Fn(u64) -> Calling + 'a>,
    took_ns: Arc<Mutex<Histogram<u64>>>,
    requested: u64,
    failed: Arc<AtomicU64>,
}

/// A call, which returns `true` if the server replied to it.
type Calling = Pin<Box<dyn Future<Output = bool> + Send>>;

pub(crate) fn all(lengths: Lengths) -> Made<Vec<Row>> {
    let mut rows = vec![server_time()?];
    for rate in RATES {
        rows.push(at(rate, lengths.lasts)?);
    }
    Ok(rows)
}

/// Runs all contenders in turns, in a different order each round, so that other work of the
/// machine affects them alike.
fn at(rate: u32, lasts: Duration) -> Made<Row> {
    let server = Server::start(Brand::Redis);
    server.client().ok(&Library::LIVE.load());
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let handle = runtime.handle();
    let plain = runtime.block_on(connect(&server))?;
    let within =
        runtime.block_on(async { limiter(RedisStore::open_in_runtime(config(&server))?) })?;
    let apart = limiter(RedisStore::open(config(&server))?)?;
    for limiter in [&within, &apart] {
        warm(handle, limiter);
    }
    let calls = (0..KEYS).map(|key| Ok(Arc::new(command(&words(GRANTS, &format!("p{key}"))?))));
    let calls: Vec<Arc<redis::Cmd>> = calls.collect::<Made<_>>()?;
    let loaded: String = runtime
        .block_on(redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query_async(&mut plain.clone()))?;
    let mut contenders = [
        Contender::new(|number| decided(&within, number))?,
        Contender::new(|number| decided(&apart, number))?,
        Contender::new(|number| {
            let call = calls.get((number % KEYS) as usize).map(Arc::clone);
            requested(plain.clone(), call)
        })?,
        Contender::new(|number| {
            let mut call = redis::cmd("EVALSHA");
            call.arg(&loaded).arg(1).arg(format!("s{}", number % KEYS)).arg(1).arg(1_000_000);
            requested(plain.clone(), Some(Arc::new(call)))
        })?,
    ];
    let share = Share::begin(Some(server.pid()));
    for round in 0..ROUNDS {
        for index in 0..contenders.len() {
            let contender = (index + round) % contenders.len();
            contenders[contender].calls(handle, rate, lasts / ROUNDS as u32)?;
        }
    }
    let others = share.of_others();
    let [ours, apart, function, script] = contenders.map(Contender::end);
    Ok(row(rate, [&ours, &apart, &function, &script], others))
}

fn row(rate: u32, [ours, apart, function, script]: [&Took; 4], others: f64) -> Row {
    let at = |took: &Took, quantile| took.took_ns.value_at_quantile(quantile) as f64;
    let times = |other: &Took, quantile| at(ours, quantile) / at(other, quantile);
    Row::new(format!("exact, {rate}/s, a task for each call"))
        .measured("p50", at(ours, 0.5), "ns")
        .measured("p99", at(ours, 0.99), "ns")
        .compared("a thread of its own: p50", at(apart, 0.5), "ns")
        .compared("p99", at(apart, 0.99), "ns")
        .compared("plain crate, same function: p50", at(function, 0.5), "ns")
        .compared("p99", at(function, 0.99), "ns")
        .compared("plain crate, six lines: p50", at(script, 0.5), "ns")
        .compared("p99", at(script, 0.99), "ns")
        .compared("answered", ours.answered, "%")
        .compared("by a thread of its own", apart.answered, "%")
        .compared("by the plain crate", function.answered, "%")
        .compared("others took", others, "% of the machine")
        .at_most(GOAL_BESIDE_PLAIN, times(function, 0.5), "times the plain crate")
        .of("p50")
        .at_most(GOAL_BESIDE_PLAIN, times(function, 0.99), "times the plain crate")
        .of("p99")
        .at_most(GOAL_BESIDE_SCRIPT, times(script, 0.5), "times six lines")
        .of("p50")
        .at_most(GOAL_BESIDE_SCRIPT, times(script, 0.99), "times six lines")
        .of("p99")
        .at_least(GOAL_ANSWERED, ours.answered, "% answered")
}

fn config(server: &Server) -> Config {
    Config::server(client::Server::tcp("127.0.0.1", server.port())).prefix(PREFIX)
}

fn limiter(store: RedisStore) -> Made<Distributed<RedisStore>> {
    let bucket = Gcra::new(Rate::per_second(GRANTS.per_s), GRANTS.burst)?;
    Ok(Distributed::builder(Arc::new(store)).limit("bench", bucket).build()?)
}

/// Waits until the limiter has made its first decision.
fn warm(handle: &Handle, limiter: &Distributed<RedisStore>) {
    handle.block_on(async {
        while !limiter
            .try_acquire(b"warm", 1)
            .await
            .is_ok_and(|reply| reply.by() == DecidedBy::Store)
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

fn decided(
    limiter: &Distributed<RedisStore>,
    number: u64,
) -> impl Future<Output = bool> + Send + use<> {
    let (limiter, key) = (limiter.clone(), format!("k{}", number % KEYS));
    async move {
        let decision = limiter.try_acquire(key.as_bytes(), 1).await;
        decision.is_ok_and(|decision| decision.is_granted())
    }
}

async fn connect(server: &Server) -> Made<MultiplexedConnection> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port()))?;
    Ok(client.get_multiplexed_async_connection().await?)
}

fn command(words: &[Vec<u8>]) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word.as_slice());
    }
    command
}

async fn requested(mut connection: MultiplexedConnection, call: Option<Arc<redis::Cmd>>) -> bool {
    let Some(call) = call else { return false };
    connection.send_packed_command(&call).await.is_ok()
}

/// The times of calls, and the percentage to which the server replied.
struct Took {
    took_ns: Histogram<u64>,
    answered: f64,
}

impl<'a> Contender<'a> {
    fn new<F: Future<Output = bool> + Send + 'static>(call: impl Fn(u64) -> F + 'a) -> Made<Self> {
        let call: Box<dyn Fn(u64) -> Calling + 'a> = Box::new(move |number| Box::pin(call(number)));
        let took_ns = Arc::new(Mutex::new(histogram()?));
        Ok(Self { call, took_ns, requested: 0, failed: Arc::default() })
    }

    /// Calls `rate` times a second, each call a task of its own, whatever became of earlier ones.
    /// The time of each counts from its own first instruction.
    fn calls(&mut self, handle: &Handle, rate: u32, lasts: Duration) -> Made<()> {
        let gap = Duration::from_secs(1) / NonZeroU32::new(rate).ok_or("no rate")?.get();
        let under_way = Arc::new(AtomicU64::new(0));
        let (begun, mut number) = (Instant::now(), 0_u32);
        while begun.elapsed() < lasts {
            while begun + gap * number <= Instant::now() {
                number += 1;
                self.requested += 1;
                if under_way.fetch_add(1, Ordering::Relaxed) >= MAX_UNDER_WAY {
                    under_way.fetch_sub(1, Ordering::Relaxed);
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let (took_ns, failed) = (Arc::clone(&self.took_ns), Arc::clone(&self.failed));
                let (call, under_way) = ((self.call)(self.requested), Arc::clone(&under_way));
                handle.spawn(async move {
                    let begun = Instant::now();
                    let is_answered = call.await;
                    let took = begun.elapsed();
                    let mut took_ns = took_ns.lock().unwrap_or_else(PoisonError::into_inner);
                    took_ns.saturating_record(took.as_nanos() as u64);
                    failed.fetch_add(u64::from(!is_answered), Ordering::Relaxed);
                    under_way.fetch_sub(1, Ordering::Relaxed);
                });
            }
            thread::sleep(LOOK_EVERY);
        }
        let ends = Instant::now();
        while under_way.load(Ordering::Relaxed) > 0 && ends.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn end(self) -> Took {
        let answered = self.requested.saturating_sub(self.failed.load(Ordering::Relaxed));
        let took_ns = self.took_ns.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Took { took_ns, answered: answered as f64 * 100.0 / self.requested.max(1) as f64 }
    }
}

/// Measures the time of the server alone, one call after the other.
fn server_time() -> Made<Row> {
    let server = Server::start(Brand::Redis);
    let mut client = server.client();
    client.ok(&Library::LIVE.load());
    let sha = client.ok(&["SCRIPT", "LOAD", SCRIPT]).text();
    let mut took_us = |name: &str, call: &dyn Fn(u64) -> Made<Vec<Vec<u8>>>| -> Made<f64> {
        client.ok(&["CONFIG", "RESETSTAT"]);
        let calls = (0..KEYS).map(call).collect::<Made<Vec<_>>>()?;
        for words in calls.iter().cycle().take(20_000) {
            client.ok(words);
        }
        let reply = client.ok(&["INFO", "commandstats"]).text();
        let line = reply.lines().find(|line| line.starts_with(name)).ok_or("no such command")?;
        let field = line.split(',').find_map(|field| field.strip_prefix("usec_per_call="));
        Ok(field.ok_or("no time")?.parse()?)
    };
    let ours = took_us("cmdstat_fcall:", &|key| words(GRANTS, &format!("k{key}")))?;
    let script = took_us("cmdstat_evalsha:", &|key| {
        let key = format!("s{key}");
        Ok(["EVALSHA", &sha, "1", &key, "1", "1000000"]
            .map(|word| word.as_bytes().to_vec())
            .to_vec())
    })?;
    Ok(Row::new("exact, a single decision: the server's time")
        .measured("a call", ours * 1e3, "ns")
        .compared("six lines", script * 1e3, "ns")
        .at_most(GOAL_SERVER_US * 1e3, ours * 1e3, "ns"))
}
