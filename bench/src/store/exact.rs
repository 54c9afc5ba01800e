//! The exact mode: the decisions of a process per second, and the time of one at half that rate.

use std::process::Command;
use std::time::{Duration, Instant};

use rategate::{Gcra, Rate};
use rategate_bench::engines::Made;
use rategate_bench::report::Row;
use rategate_bench::usage::Share;
use rategate_redis::batch::{Batch, Extra};
use rategate_redis::command::Settings;
use rategate_redis::key::KeySpace;
use rategate_redis::library::Library;
use rategate_redis::limit::Limit;
use rategate_redis::plan::Plan;

use crate::job::{Job, Load, NodeMode, together};
use crate::nodes::{begin, end, work};
use crate::{Lengths, PREFIX};
use rategate_testkit::redis::{Brand, Server};

const TASKS: u64 = 512;
const KEYS: u64 = 256;

/// The goal for the server's busy time, in percent: below it, the server is not the bottleneck.
const GOAL_SERVER: f64 = 75.0;
const GOAL_BENCHMARK: f64 = 1.5;
const GOAL_P99_NS: f64 = 2e6;
const GOAL_GRANTED: f64 = 99.9;

/// The rate and the burst of a bucket.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) per_s: u64,
    pub(crate) burst: u64,
}

pub(crate) const GRANTS: Limits = Limits { per_s: 1_000_000_000, burst: 1_000_000 };
const DENIES: Limits = Limits { per_s: 1, burst: 1 };

pub(crate) fn all(lengths: Lengths) -> Made<Vec<Row>> {
    let mut rows = Vec::new();
    for (answer, limits) in [("granted", GRANTS), ("denied", DENIES)] {
        let single = one_by_one(limits, lengths.lasts / 2)?;
        let benchmark = benchmark(limits, lengths.decisions_of_rivals)?;
        let peak = tasks(limits, lengths.lasts)?;
        let row = Row::new(format!("exact, {TASKS} tasks, {KEYS} keys, {answer}"))
            .measured("decisions", peak.per_s, "/s")
            .measured("in a call", peak.together, "")
            .compared("one call each", single, "/s")
            .compared("redis-benchmark -P 16", benchmark, "/s")
            .compared("others took", peak.others, "% of the machine")
            .at_least(GOAL_SERVER, peak.server, "% of the server's time")
            .at_least(GOAL_BENCHMARK, peak.per_s / benchmark, "times redis-benchmark");
        rows.push(row);
        if answer == "granted" {
            rows.push(at_half(limits, lengths.lasts, (peak.per_s / 2.0) as u64)?);
        }
    }
    Ok(rows)
}

/// The maximum throughput of tasks that call again at once.
struct Peak {
    per_s: f64,
    /// The average number of decisions in one call.
    together: f64,
    /// The server's processor time, in percent.
    server: f64,
    others: f64,
}

fn job(server: &Server, limits: Limits, load: Load) -> Job {
    Job {
        ports: vec![server.port()],
        burst: limits.burst,
        per_s: limits.per_s,
        mode: NodeMode::Exact,
        is_quarantined: false,
        keys: KEYS,
        load,
        grants: None,
    }
}

fn tasks(limits: Limits, lasts: Duration) -> Made<Peak> {
    let server = Server::start(Brand::Redis);
    let load = Load::Tasks { tasks: TASKS, pause_us: 0 };
    let mut nodes = begin(&[job(&server, limits, load)], lasts)?;
    let share = Share::begin(Some(server.pid()));
    let report = end(&mut nodes)?;
    let server = share.of_server();
    drop(nodes);
    let report = report.first().ok_or("no node")?;
    let together = report.together_hundredths as f64 / 100.0;
    Ok(Peak { per_s: report.per_s(), together, server, others: share.of_others() })
}

/// Measures calls by a schedule: a call's time counts from when it was due.
fn at_half(limits: Limits, lasts: Duration, per_s: u64) -> Made<Row> {
    let server = Server::start(Brand::Redis);
    let share = Share::begin(Some(server.pid()));
    let report = work(&[job(&server, limits, Load::Schedule { per_s })], lasts)?;
    let others = share.of_others();
    let took_ns = together(&report)?;
    let at = |quantile| took_ns.value_at_quantile(quantile) as f64;
    // A request that the store did not decide in time was denied at once, and would make the
    // others look fast.
    let (granted, requested) = report.iter().fold((0, 0), |(granted, requested), report| {
        (granted + report.granted, requested + report.decisions)
    });
    let granted = granted as f64 * 100.0 / requested as f64;
    Ok(Row::new("exact, at half of that, by a schedule")
        .measured("p50", at(0.5), "ns")
        .measured("p99", at(0.99), "ns")
        .measured("p99.9", at(0.999), "ns")
        .compared("requested", per_s as f64, "/s")
        .compared("granted", granted, "%")
        .compared("others took", others, "% of the machine")
        .at_most(GOAL_P99_NS, at(0.99), "ns")
        .of("p99")
        .at_least(GOAL_GRANTED, granted, "% granted"))
}

/// Returns the request to a store for one decision.
pub(crate) fn words(limits: Limits, key: &str) -> Made<Vec<Vec<u8>>> {
    let bucket = Gcra::new(Rate::per_second(limits.per_s), limits.burst)?;
    let plan = Plan::new([("bench", Limit::gcra(&bucket)?)])?;
    let key = KeySpace::new(PREFIX)?.key(key.as_bytes());
    let mut batch = Batch::new();
    batch.try_acquire(&plan, &key, 1, Extra::default())?;
    Ok(batch.decide(Settings::default()).fcall(Library::LIVE))
}

/// Measures one call for each decision, one after the other, on one connection.
fn one_by_one(limits: Limits, lasts: Duration) -> Made<f64> {
    let server = Server::start(Brand::Redis);
    let mut client = server.client();
    client.ok(&Library::LIVE.load());
    let keys = (0..KEYS).map(|key| words(limits, &format!("k{key}")));
    let keys: Vec<Vec<Vec<u8>>> = keys.collect::<Made<_>>()?;
    let (begun, mut count) = (Instant::now(), 0_u64);
    for words in keys.iter().cycle() {
        if begun.elapsed() >= lasts {
            break;
        }
        client.ok(words);
        count += 1;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

/// Measures one decision for each call, with sixteen in flight on each of fifty connections.
fn benchmark(limits: Limits, decisions: u64) -> Made<f64> {
    let server = Server::start(Brand::Redis);
    server.client().ok(&Library::LIVE.load());
    let words = words(limits, "__rand_int__")?;
    let words = words.iter().map(|word| String::from_utf8_lossy(word).into_owned());
    let output = Command::new("redis-benchmark")
        .args(["-p", &server.port().to_string(), "-P", "16", "-r", &KEYS.to_string(), "--csv"])
        .args(["-n", &decisions.to_string()])
        .args(words)
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let row = text.lines().last().ok_or("redis-benchmark printed nothing")?;
    // The command is the first field, and contains no comma.
    let rate = row.split(',').nth(1).ok_or("redis-benchmark printed no rate")?;
    Ok(rate.trim_matches('"').parse()?)
}
