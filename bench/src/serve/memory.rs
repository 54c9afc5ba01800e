//! The memory of a server that has seen many keys, each of them in use.

use std::time::Duration;

use rategate_bench::engines::Made;
use rategate_bench::report::Row;

use crate::load::key_sequence::KeySequence;
use crate::load::resp::{Answer, Resp};
use crate::load::template::KEY;
use crate::load::{ConnectionGroup, Load as _};
use crate::ours::{Ours, Setting};
use crate::rivals::{Redis, Throttlecrab};
use crate::service::Service;
use crate::{Bench, Found};

const CONNECTIONS: usize = 4;
const PIPELINE: usize = 64;
/// The limit of each key, which stays in use for an hour.
const LIMIT: [&str; 3] = ["10", "1", "3600"];
const COMPARED_KEYS: u64 = 1_000_000;
const GOALS: [(u64, f64); 2] = [(1_000_000, 60e6), (10_000_000, 420e6)];

pub(crate) fn all(bench: &Bench) -> Made<Found> {
    let mut found = Found::default();
    for (keys, goal) in GOALS.into_iter().filter(|(keys, _)| *keys <= bench.lengths.max_keys) {
        let mut row =
            Row::new(format!("memory of the process, {} M keys in use", keys / 1_000_000));
        if let Some(ours) = Ours::start(bench, &Setting::new(keys))? {
            let words = ["CL.THROTTLE", KEY, LIMIT[0], LIMIT[1], LIMIT[2]];
            let [empty, full] = filled(&ours.service, ours.resp, &words, Answer::Limited, keys)?;
            row = row.measured("resident", full, "bytes").measured("before", empty, "bytes");
            row = row.at_most(goal, full, "bytes");
        }
        if keys == COMPARED_KEYS {
            row = compared(bench, row, keys)?;
        }
        found.rows.push(row);
    }
    Ok(found)
}

fn compared(bench: &Bench, row: Row, keys: u64) -> Made<Row> {
    let redis = Redis::start(bench)?;
    let [_, increments] = filled(&redis.service, redis.port, &["INCR", KEY], Answer::Number, keys)?;
    let mut row = row.compared("redis, INCR", increments, "bytes");
    drop(redis);
    if let Some(other) = Throttlecrab::start(bench, keys)? {
        let words = ["THROTTLE", KEY, LIMIT[0], LIMIT[1], LIMIT[2]];
        let [_, full] = filled(&other.service, other.resp, &words, Answer::Allowed, keys)?;
        row = row.compared("throttlecrab", full, "bytes");
    }
    Ok(row)
}

/// Returns the memory before and after one request for each key.
fn filled(
    service: &Service,
    port: u16,
    words: &[&str],
    answer: Answer,
    keys: u64,
) -> Made<[f64; 2]> {
    let mut connection_group =
        ConnectionGroup::connect(port, vec![Resp::new(words, answer, PIPELINE); CONNECTIONS])?;
    let before = service.resident_bytes()? as f64;
    let tally = connection_group.run(&mut KeySequence::each(keys, 1), Duration::MAX)?;
    if tally.allowed != keys {
        return Err(format!("of {keys} keys, {} passed; {:?}", tally.allowed, tally.failure).into());
    }
    Ok([before, service.resident_bytes()? as f64])
}
