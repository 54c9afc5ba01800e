//! The leased mode: two processes that call as often as they can, compared with the exact mode,
//! and all grants judged.

use std::time::Duration;

use rategate_bench::clock;
use rategate_bench::engines::Made;
use rategate_bench::report::Row;
use rategate_bench::scratch::Scratch;

use crate::Lengths;
use crate::job::{Job, Load, NodeMode, NodeReport, read_grants, together};
use crate::nodes::work;
use crate::oracle::Excess;
use rategate_testkit::redis::{Brand, Server};

const NODES: u64 = 2;
const PER_S: u64 = 10_000;
const BURST: u64 = 1_000;
/// The maximum number of permits of a lease.
const MAX_UNITS: u64 = 500;
const LENGTH_MS: u64 = 100;
/// The length of a lease with a guard. The guard keeps what is earned in a lease out of the
/// burst, so the lease must be shorter than the time to earn the burst.
const GUARDED_LENGTH_MS: u64 = 50;
/// The number of tasks of each process in the exact mode.
const TASKS: u64 = 256;

const GOAL_TIMES: f64 = 50.0;
const GOAL_P99_NS: f64 = 1e3;

pub(crate) fn all(lengths: Lengths) -> Made<Vec<Row>> {
    let exact = run(NodeMode::Exact, Load::Tasks { tasks: TASKS, pause_us: 0 }, lengths.lasts)?;
    let leases =
        |length_ms, is_guarded| NodeMode::Leased { length_ms, most: MAX_UNITS, is_guarded };
    let free = run(leases(LENGTH_MS, false), Load::Hammer, lengths.lasts)?;
    let guarded = run(leases(GUARDED_LENGTH_MS, true), Load::Hammer, lengths.lasts)?;
    let took_ns = together(&free.report)?;
    let at = |quantile| took_ns.value_at_quantile(quantile) as f64;
    let times = free.of_each() / exact.of_each();
    let (lent, none) = ((NODES * MAX_UNITS) as f64, 0.0);
    Ok(vec![
        Row::new(format!("leased, {NODES} processes, decisions of each"))
            .measured("leased", free.of_each(), "/s")
            .measured("granted in all", free.granted_per_s(), "/s")
            .compared(&format!("exact, {TASKS} tasks"), exact.of_each(), "/s")
            .compared("granted in all", exact.granted_per_s(), "/s")
            .at_least(GOAL_TIMES, times, "times"),
        Row::new("leased, a decision where it is requested")
            .measured("p50", at(0.5), "ns")
            .measured("p99", at(0.99), "ns")
            .compared("of it the clock", clock::cost_ns() as f64, "ns")
            .at_most(GOAL_P99_NS, at(0.99), "ns")
            .of("p99"),
        over(&exact, "exact", none),
        over(&free, &format!("leased for {LENGTH_MS} ms"), lent),
        over(&guarded, &format!("leased for {GUARDED_LENGTH_MS} ms with a guard"), none),
    ])
}

fn over(run: &Run, how: &str, bound: f64) -> Row {
    let Excess { certain, by_before, by_after } = run.excess;
    Row::new(format!("{how}: over {BURST} and {PER_S} a second"))
        .measured("over", certain as f64, "permits")
        .measured("granted", run.granted_per_s(), "/s")
        .compared("by the reading before", by_before as f64, "permits")
        .compared("by the reading after", by_after as f64, "permits")
        .at_most(bound, certain as f64, "permits")
}

struct Run {
    report: Vec<NodeReport>,
    excess: Excess,
}

impl Run {
    /// Returns a node's decisions per second, on average.
    fn of_each(&self) -> f64 {
        self.report.iter().map(NodeReport::per_s).sum::<f64>() / self.report.len() as f64
    }

    fn granted_per_s(&self) -> f64 {
        let per_s =
            |report: &NodeReport| report.granted as f64 * 1e9 / report.lasted_ns.max(1) as f64;
        self.report.iter().map(per_s).sum()
    }
}

fn run(mode: NodeMode, load: Load, lasts: Duration) -> Made<Run> {
    let (server, scratch) = (Server::start(Brand::Redis), Scratch::new("leased")?);
    let job = |node: u64| Job {
        ports: vec![server.port()],
        burst: BURST,
        per_s: PER_S,
        mode,
        is_quarantined: false,
        keys: 1,
        load,
        grants: Some(scratch.file(&node.to_string())),
    };
    let jobs: Vec<Job> = (0..NODES).map(job).collect();
    let report = work(&jobs, lasts)?;
    let mut grants = Vec::new();
    for file in jobs.iter().flat_map(|job| &job.grants) {
        grants.extend(read_grants(file)?);
    }
    let bucket = jobs.first().ok_or("no node")?.bucket();
    Ok(Run { report, excess: bucket.judge(&grants) })
}
