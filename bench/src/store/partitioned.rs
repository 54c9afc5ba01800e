//! The partitioned mode: four processes, of which one is killed, and one more that joins.

use std::path::Path;
use std::thread;
use std::time::Duration;

use rategate_bench::clock::now_ns;
use rategate_bench::engines::Made;
use rategate_bench::report::Row;
use rategate_bench::scratch::Scratch;

use crate::Lengths;
use crate::job::{Job, Load, NodeMode, read_grants};
use crate::nodes::{Node, begin};
use crate::oracle::{Bucket, Excess, Grant};
use rategate_testkit::redis::{Brand, Server};

const NODES: u64 = 4;
const BEAT_MS: u64 = 500;
const LIMIT: Bucket = Bucket { per_s: 10_000, burst: 400 };

/// The heartbeats measured after each change: two in which partitions move, and two that are
/// judged.
const HEARTBEATS: u32 = 4;
const GOAL_SHARE: f64 = 0.95;

pub(crate) fn all(_: Lengths) -> Made<Vec<Row>> {
    let (server, scratch) = (Server::start(Brand::Redis), Scratch::new("shared-out")?);
    let heartbeat = Duration::from_millis(BEAT_MS);
    let job = |node: u64| Job {
        ports: vec![server.port()],
        burst: LIMIT.burst,
        per_s: LIMIT.per_s,
        mode: NodeMode::Partitioned { beat_ms: BEAT_MS },
        is_quarantined: false,
        keys: 1,
        load: Load::UntilDenied,
        grants: Some(scratch.file(&node.to_string())),
    };
    let jobs: Vec<Job> = (0..NODES).map(job).collect();
    let lasts = heartbeat * HEARTBEATS * 3 + heartbeat;
    let until_ns = now_ns() + lasts.as_nanos() as u64;
    let mut nodes = begin(&jobs, lasts)?;
    thread::sleep(heartbeat * HEARTBEATS);
    let all_there_ns = now_ns();
    let mut killed = nodes.remove(0);
    killed.kill();
    let killed_ns = now_ns();
    thread::sleep(heartbeat * HEARTBEATS);
    let mut joiner = Node::start(&job(NODES))?;
    joiner.ready()?;
    joiner.go(until_ns)?;
    let joined_ns = now_ns();
    nodes.push(joiner);
    for node in &mut nodes {
        let _ = node.report()?;
    }
    let files = (0..=NODES).map(|node| scratch.file(&node.to_string()));
    let grants = read_all(files)?;
    let length_ns = heartbeat.as_nanos() as u64 * 2;
    let share = |from_ns: u64| share(&grants, from_ns, from_ns + length_ns);
    let (before, survivors, after) = (
        share(all_there_ns - length_ns),
        share(killed_ns + length_ns),
        share(joined_ns + length_ns),
    );
    let Excess { certain, by_before, by_after } = LIMIT.judge(&grants);
    let Bucket { burst, per_s } = LIMIT;
    Ok(vec![
        Row::new(format!(
            "partitioned, {NODES} processes, one killed, one more: \
             over {burst} and {per_s} a second"
        ))
        .measured("over", certain as f64, "permits")
        .compared("by the reading before", by_before as f64, "permits")
        .compared("by the reading after", by_after as f64, "permits")
        .at_most(0.0, certain as f64, "permits"),
        Row::new("partitioned, of the rate in use two heartbeats after one was killed")
            .measured("three of four", survivors * 100.0, "%")
            .compared("all four, before", before * 100.0, "%")
            .compared("with one more, after", after * 100.0, "%")
            .at_least(GOAL_SHARE * 100.0, survivors * 100.0, "%"),
    ])
}

fn read_all(files: impl Iterator<Item = impl AsRef<Path>>) -> Made<Vec<Grant>> {
    let mut grants = Vec::new();
    for file in files {
        grants.extend(read_grants(file.as_ref())?);
    }
    Ok(grants)
}

/// Returns the granted fraction of the permits earned in the time.
fn share(grants: &[Grant], from_ns: u64, until_ns: u64) -> f64 {
    let within = |grant: &&Grant| (from_ns..until_ns).contains(&grant.after_ns);
    let flowed = (until_ns - from_ns) as f64 * LIMIT.per_s as f64 / 1e9;
    grants.iter().filter(within).count() as f64 / flowed
}
