//! RESP: 64 connections, with sixteen requests in flight on each, and with one.

use rategate_bench::engines::Made;
use rategate_bench::report::Row;

use crate::contend::{Contender, Figures, KEYS, TIGHT, WIDE, contend};
use crate::load::resp::{Answer, Resp};
use crate::load::template::KEY;
use crate::load::{ConnectionGroup, Load};
use crate::ours::{Ours, Setting};
use crate::rivals::{Redis, Throttlecrab};
use crate::service::Service;
use crate::{Bench, Found};

const CONNECTIONS: usize = 64;

const GOAL_DECISIONS: f64 = 1.0;
const GOAL_CPU: f64 = 1.0;
const GOAL_P99: f64 = 1.0;

/// A function that renders a command for a key and a limit: burst, count and period.
type CommandOf = fn(key: &str, limit: [u64; 3]) -> Vec<String>;

pub(crate) fn all(bench: &Bench) -> Made<Found> {
    let redis = Redis::start(bench)?;
    let throttlecrab = Throttlecrab::start(bench, 2 * KEYS)?;
    let ours = Ours::start(bench, &Setting::new(4 * KEYS))?;
    let mut found = Found::default();
    for pipeline in [16, 1] {
        let mut contenders = Vec::new();
        let mut add = |name: &str, service, port, words, answer| -> Made<()> {
            contenders.push(contender(name, service, port, words, answer, pipeline)?);
            Ok(())
        };
        if let Some(ours) = &ours {
            add("ours, CL.THROTTLE", &ours.service, ours.resp, cell as CommandOf, Answer::Limited)?;
            add("ours, THROTTLE", &ours.service, ours.resp, throttle, Answer::Allowed)?;
        }
        add("redis, INCR", &redis.service, redis.port, increment, Answer::Number)?;
        if redis.has_cell {
            add("redis-cell, CL.THROTTLE", &redis.service, redis.port, cell, Answer::Limited)?;
        }
        if let Some(other) = &throttlecrab {
            add("throttlecrab, THROTTLE", &other.service, other.resp, throttle, Answer::Allowed)?;
        }
        contenders.push(script(&redis, pipeline)?);
        let path = format!("RESP, {CONNECTIONS} connections, {pipeline} at once");
        found.speeds.extend(judged(&path, contend(bench, &mut contenders)?, pipeline));
    }
    Ok(found)
}

/// Adds the goals, which are those of the first path.
fn judged(path: &str, figures: Vec<Figures>, pipeline: usize) -> Vec<Row> {
    let goals =
        figures.iter().position(|figures| figures.name == "redis, INCR").filter(|&index| index > 0);
    let goals = goals.and_then(|index| Some((figures.first()?, figures.get(index)?))).map(
        |(ours, increment)| {
            [ours.per_s_over(increment), ours.cpu_over(increment), ours.p99_over(increment)]
        },
    );
    let mut speeds: Vec<Row> = figures.into_iter().map(|figures| figures.row(path)).collect();
    if let Some([decisions, cpu, p99]) = goals {
        let mut first = speeds
            .remove(0)
            .at_least(GOAL_DECISIONS, decisions, "times INCR")
            .at_most(GOAL_CPU, cpu, "times INCR's")
            .of("CPU");
        if pipeline == 1 {
            first = first.at_most(GOAL_P99, p99, "times INCR's").of("p99");
        }
        speeds.insert(0, first);
    }
    speeds
}

fn contender<'a>(
    name: &str,
    service: &'a Service,
    port: u16,
    words: CommandOf,
    answer: Answer,
    pipeline: usize,
) -> Made<Contender<'a>> {
    let (burst, per_s) = WIDE;
    // A bucket of redis-cell holds one more than its burst.
    let tight = if matches!(answer, Answer::Limited) { TIGHT - 1 } else { TIGHT };
    let load =
        connection_group(port, &words(&format!("w:{KEY}"), [burst, per_s, 1]), answer, pipeline)?;
    let exact = match answer {
        Answer::Number => None,
        // A new key name for each path, so that its limit is unused.
        _ => Some(connection_group(
            port,
            &words(&format!("t{pipeline}{}:{KEY}", name.len()), [tight, 1, 3_600]),
            answer,
            pipeline,
        )?),
    };
    Ok(Contender {
        name: name.to_owned(),
        service,
        store: None,
        keys: KEYS,
        has_ids: false,
        load,
        exact,
    })
}

fn script(redis: &Redis, pipeline: usize) -> Made<Contender<'_>> {
    let words = |key: String, limit: [u64; 3]| {
        let [burst, count, period] = limit.map(|number| number.to_string());
        vec!["EVALSHA".to_owned(), redis.script.clone(), "1".to_owned(), key, burst, count, period]
    };
    let (burst, per_s) = WIDE;
    let load = connection_group(
        redis.port,
        &words(format!("s:{KEY}"), [burst, per_s, 1]),
        Answer::Limited,
        pipeline,
    )?;
    let tight = words(format!("s{pipeline}:{KEY}"), [TIGHT, 1, 3_600]);
    let exact = Some(connection_group(redis.port, &tight, Answer::Limited, pipeline)?);
    Ok(Contender {
        name: "redis, a script".to_owned(),
        service: &redis.service,
        store: None,
        keys: KEYS,
        has_ids: false,
        load,
        exact,
    })
}

fn connection_group(
    port: u16,
    words: &[String],
    answer: Answer,
    pipeline: usize,
) -> Made<Box<dyn Load>> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let one = Resp::new(&words, answer, pipeline);
    Ok(Box::new(ConnectionGroup::connect(port, vec![one; CONNECTIONS])?))
}

fn increment(key: &str, _: [u64; 3]) -> Vec<String> {
    ["INCR", key].map(str::to_owned).to_vec()
}

fn cell(key: &str, limit: [u64; 3]) -> Vec<String> {
    words("CL.THROTTLE", key, limit)
}

fn throttle(key: &str, limit: [u64; 3]) -> Vec<String> {
    words("THROTTLE", key, limit)
}

fn words(command: &str, key: &str, limit: [u64; 3]) -> Vec<String> {
    let numbers = limit.iter().map(u64::to_string);
    [command, key].map(str::to_owned).into_iter().chain(numbers).collect()
}
