//! The rows of the table, as JSON.

use rategate_bench::harness::Outcome;
use serde_json::{Value, json};

use crate::pacing::Paced;

/// Returns a row for each of the machine's own steps.
pub(crate) fn floors(threads: u32, floors: &[Outcome]) -> Vec<Value> {
    let row = |floor: &Outcome| {
        json!({
            "path": "machine",
            "threads": threads,
            "running": floor.running,
            "floor": timed(floor),
        })
    };
    floors.iter().map(row).collect()
}

/// Returns a row for each rival of a race, in which ours is first and the machine's floor last.
/// The floor never sleeps, so its running time shows how much of the machine was available.
pub(crate) fn raced(path: &str, threads: u32, outcomes: &[Outcome]) -> Vec<Value> {
    let [ours, rivals @ .., floor] = outcomes else { return Vec::new() };
    let row = |rival: &Outcome| {
        json!({
            "path": path,
            "threads": threads,
            "running": floor.running,
            "ours": timed(ours),
            "rival": timed(rival),
            "ratio": rival.ratio,
            "least_ratio": rival.min_ratio,
            "floor": timed(floor),
            "floor_ratio": floor.ratio,
        })
    };
    rivals.iter().map(row).collect()
}

/// Returns a row for a paced run of ours, with that of a rival if there is one.
pub(crate) fn pacing(path: &str, threads: u32, ours: &Paced, rival: Option<&Paced>) -> Value {
    json!({
        "path": path,
        "threads": threads,
        "ours": paced(ours),
        "rival": rival.map(paced),
        // The ratio of the times that operations take, as everywhere.
        "ratio": rival.map(|rival| rival.achieved / ours.achieved),
    })
}

fn timed(outcome: &Outcome) -> Value {
    json!({
        "name": outcome.name,
        "ns": outcome.ns,
        "per_s": outcome.per_s,
        "granted": outcome.granted,
        "running": outcome.running,
    })
}

fn paced(run: &Paced) -> Value {
    json!({
        "name": run.name,
        "achieved": run.achieved,
        "late_p50_ns": run.late_ns.map(|(p50, _)| p50),
        "late_p90_ns": run.late_ns.map(|(_, p90)| p90),
        "cpu": run.cpu,
    })
}
