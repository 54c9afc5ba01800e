//! HTTP/1.1 with JSON: 64 connections that are kept.

use rategate_bench::engines::Made;
use rategate_bench::report::Row;

use crate::contend::{Contender, KEYS, TIGHT, WIDE, contend};
use crate::load::http::Http;
use crate::load::template::KEY;
use crate::load::{ConnectionGroup, Load};
use crate::ours::{Ours, Setting};
use crate::rivals::Throttlecrab;
use crate::service::Service;
use crate::{Bench, Found};

const CONNECTIONS: usize = 64;
const GOAL: f64 = 1.3;

/// A function that renders the body for a key and a limit: burst, count and period.
type Body = fn(key: &str, limit: [u64; 3]) -> String;

pub(crate) fn all(bench: &Bench) -> Made<Found> {
    let throttlecrab = Throttlecrab::start(bench, 2 * KEYS)?;
    let ours = Ours::start(bench, &Setting::new(4 * KEYS))?;
    let mut contenders = Vec::new();
    if let Some(ours) = &ours {
        contenders.push(contender(
            "ours, POST /throttle",
            &ours.service,
            ours.http,
            "/throttle",
            throttle,
        )?);
        contenders.push(contender(
            "ours, POST /v1/check",
            &ours.service,
            ours.http,
            "/v1/check",
            check,
        )?);
    }
    if let Some(other) = &throttlecrab {
        contenders.push(contender(
            "throttlecrab, POST /throttle",
            &other.service,
            other.http,
            "/throttle",
            throttle,
        )?);
    }
    let figures = contend(bench, &mut contenders)?;
    let goal = match figures.as_slice() {
        [ours, _, other] => Some(ours.per_s_over(other)),
        _ => None,
    };
    let path = format!("HTTP/JSON, {CONNECTIONS} connections");
    let mut speeds: Vec<Row> = figures.into_iter().map(|figures| figures.row(&path)).collect();
    if let Some(times) = goal {
        let first = speeds.remove(0).at_least(GOAL, times, "times throttlecrab");
        speeds.insert(0, first);
    }
    Ok(Found { speeds, rows: Vec::new() })
}

fn contender<'a>(
    name: &str,
    service: &'a Service,
    port: u16,
    path: &str,
    body: Body,
) -> Made<Contender<'a>> {
    let (burst, per_s) = WIDE;
    let connection_group = |key: String, limit| -> Made<Box<dyn Load>> {
        let one = Http::post(path, &body(&key, limit));
        Ok(Box::new(ConnectionGroup::connect(port, vec![one; CONNECTIONS])?))
    };
    let load = connection_group(format!("w:{KEY}"), [burst, per_s, 1])?;
    let exact =
        Some(connection_group(format!("t{}:{KEY}", path.replace('/', ".")), [TIGHT, 1, 3_600])?);
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

fn throttle(key: &str, [burst, count, period]: [u64; 3]) -> String {
    format!(
        "{{\"key\":\"{key}\",\"max_burst\":{burst},\"count_per_period\":{count},\
         \"period\":{period},\"quantity\":1}}"
    )
}

fn check(key: &str, [burst, count, period]: [u64; 3]) -> String {
    format!(r#"{{"limit":"{count}/{period}s","burst":{burst},"key":"{key}"}}"#)
}
