//! A store that is killed, stalled, failed over or cut off, under the load of two processes.

use std::thread;
use std::time::Duration;

use rategate_bench::clock::now_ns;
use rategate_bench::engines::Made;
use rategate_bench::report::Row;
use rategate_bench::scratch::Scratch;

use crate::Lengths;
use crate::job::{Job, Load, NodeMode, NodeReport, read_grants, together};
use crate::nodes::{begin, end};
use crate::oracle::{Bucket, Excess, Grant};
use crate::partition::Proxy;
use rategate_testkit::redis::{Brand, Server};

const NODES: u64 = 2;
const TASKS: u64 = 32;
const PAUSE_US: u64 = 1_000;
/// The limit. Earning the burst takes two seconds, so a store's losses are visible.
const LIMIT: Bucket = Bucket { per_s: 2_000, burst: 4_000 };
const LEASE_MS: u64 = 100;
const MAX_LEASE_UNITS: u64 = 500;

/// The goal for a call: the budget, and a margin.
const GOAL_TOOK_NS: f64 = 25e6;
/// The goal for the first grant after the store is back, and after a quarantine as long as the
/// burst takes to be earned.
const GOAL_BACK_NS: f64 = 0.5e9;
const QUARANTINE_NS: f64 = 2e9;

/// The time before the fault, in which the burst is used up.
const BEFORE: Duration = Duration::from_secs(1);
/// The time for which a store is unavailable.
const KILLED: Duration = Duration::from_secs(1);
const STALLED: Duration = Duration::from_secs(3);
const PROMOTED: Duration = Duration::from_millis(500);
const CUT_OFF: Duration = Duration::from_secs(2);
/// The longest time by which a grant of the returned store may precede the report of its return.
const SOONER_NS: u64 = 50_000_000;

const LEASED: NodeMode =
    NodeMode::Leased { length_ms: LEASE_MS, most: MAX_LEASE_UNITS, is_guarded: false };

pub(crate) fn all(lengths: Lengths) -> Made<Vec<Row>> {
    let lost = LIMIT.burst;
    let lent = NODES * MAX_LEASE_UNITS;
    let after = lengths.lasts;
    let mut rows = Vec::new();
    let (quarantined, leased) =
        (Setup { is_quarantined: true, ..PLAIN }, Setup { mode: LEASED, ..PLAIN });
    for (path, setup, bound) in [
        ("killed, empty after 1 s; exact", PLAIN, lost),
        ("killed, empty after 1 s; exact, quarantined", quarantined, 0),
        ("killed, empty after 1 s; leased", leased, lost + lent),
    ] {
        rows.extend(killed(setup, after)?.rows(path, bound, setup)?);
    }
    rows.extend(stalled(after)?.rows("stalled for 3 s; exact", 0, PLAIN)?);
    let path = "killed, replica promoted after 500 ms; exact";
    rows.extend(failed_over(after)?.rows(path, lost, PLAIN)?);
    rows.extend(cut_off(after)?.rows("cut off for 2 s; exact", 0, PLAIN)?);
    Ok(rows)
}

/// The way in which nodes keep the limit.
#[derive(Clone, Copy)]
struct Setup {
    mode: NodeMode,
    is_quarantined: bool,
}

const PLAIN: Setup = Setup { mode: NodeMode::Exact, is_quarantined: false };

/// The results of a run with a fault.
struct Found {
    report: Vec<NodeReport>,
    grants: Vec<Vec<Grant>>,
    /// The instant at which the store was back.
    back_ns: u64,
}

impl Found {
    fn rows(self, path: &str, bound: u64, setup: Setup) -> Made<[Row; 2]> {
        let quarantine_ns = if setup.is_quarantined { QUARANTINE_NS } else { 0.0 };
        let took_ns = together(&self.report)?;
        let at = |quantile| took_ns.value_at_quantile(quantile) as f64;
        let slowest = took_ns.max() as f64;
        let paused = self.report.iter().map(|report| report.paused_longer_ns).max().unwrap_or(0);
        let all: Vec<Grant> = self.grants.iter().flatten().copied().collect();
        let Excess { certain, by_before, by_after } = LIMIT.judge(&all);
        let faults: u64 = self.report.iter().map(|report| report.faults).sum();
        let took = Row::new(format!("store {path}: a call"))
            .measured("p99.9", at(0.999), "ns")
            .measured("longest", slowest, "ns")
            .compared("a pause longer by at most", paused as f64, "ns")
            .at_most(GOAL_TOOK_NS, at(0.999), "ns")
            .of("p99.9")
            .at_most(GOAL_TOOK_NS, slowest, "ns")
            .of("longest");
        let row = Row::new(format!("store {path}: over the limit, and back"))
            .measured("over", certain as f64, "permits")
            .compared("by the reading before", by_before as f64, "permits")
            .compared("by the reading after", by_after as f64, "permits")
            .at_most(bound as f64, certain as f64, "permits");
        let row = match self.back_after_ns() {
            Some(ns) => row
                .measured("granted again after", ns, "ns")
                .at_most(GOAL_BACK_NS + quarantine_ns, ns, "ns")
                .of("again after"),
            None => row.note("no grant again").at_least(1.0, 0.0, "grants by each node again"),
        };
        let row = if faults > 0 { row.measured("errors", faults as f64, "") } else { row };
        Ok([took, row])
    }

    /// Returns the time until the last node has been granted something again.
    fn back_after_ns(&self) -> Option<f64> {
        let first = |grants: &Vec<Grant>| {
            let since_ns = self.back_ns.saturating_sub(SOONER_NS);
            let afterwards = grants.iter().map(|grant| grant.after_ns);
            let first_ns = afterwards.filter(|&at_ns| at_ns >= since_ns).min()?;
            Some(first_ns.saturating_sub(self.back_ns) as f64)
        };
        let each: Option<Vec<f64>> = self.grants.iter().map(first).collect();
        each?.into_iter().reduce(f64::max)
    }
}

/// Runs two processes during a fault, which returns when the store was back.
fn under_load(
    ports: &[u16],
    setup: Setup,
    lasting: Duration,
    happens: impl FnOnce() -> u64,
) -> Made<Found> {
    let scratch = Scratch::new("faults")?;
    let job = |node: u64| Job {
        ports: ports.to_vec(),
        burst: LIMIT.burst,
        per_s: LIMIT.per_s,
        mode: setup.mode,
        is_quarantined: setup.is_quarantined,
        keys: 1,
        load: Load::Tasks { tasks: TASKS, pause_us: PAUSE_US },
        grants: Some(scratch.file(&node.to_string())),
    };
    let jobs: Vec<Job> = (0..NODES).map(job).collect();
    // A quarantine lasts for as long as a burst takes to be earned.
    let quarantine = if setup.is_quarantined { Duration::from_secs(2) } else { Duration::ZERO };
    let mut nodes = begin(&jobs, BEFORE + lasting + quarantine)?;
    thread::sleep(BEFORE);
    let back_ns = happens();
    let report = end(&mut nodes)?;
    let grants = jobs.iter().flat_map(|job| &job.grants).map(|file| read_grants(file));
    Ok(Found { report, grants: grants.collect::<Made<_>>()?, back_ns })
}

fn killed(setup: Setup, after: Duration) -> Made<Found> {
    let mut server = Server::start(Brand::Redis);
    under_load(&[server.port()], setup, KILLED + after, || {
        server.kill();
        thread::sleep(KILLED);
        server.restart_empty();
        now_ns()
    })
}

fn stalled(after: Duration) -> Made<Found> {
    let server = Server::start(Brand::Redis);
    under_load(&[server.port()], PLAIN, STALLED + after, || {
        server.stall();
        thread::sleep(STALLED);
        let back_ns = now_ns();
        server.resume();
        back_ns
    })
}

fn failed_over(after: Duration) -> Made<Found> {
    let mut primary = Server::start(Brand::Redis);
    let replica = primary.replica();
    under_load(&[primary.port(), replica.port()], PLAIN, PROMOTED + after, || {
        primary.kill();
        thread::sleep(PROMOTED);
        let back_ns = now_ns();
        replica.client().ok(&["REPLICAOF", "NO", "ONE"]);
        back_ns
    })
}

fn cut_off(after: Duration) -> Made<Found> {
    let server = Server::start(Brand::Redis);
    let proxy = Proxy::before(server.port())?;
    under_load(&[proxy.port()], PLAIN, CUT_OFF + after, || {
        proxy.cut();
        thread::sleep(CUT_OFF);
        let back_ns = now_ns();
        proxy.mend();
        back_ns
    })
}
