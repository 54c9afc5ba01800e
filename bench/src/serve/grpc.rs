//! gRPC: many calls at a time on each connection, and one.

use rategate_bench::engines::Made;
use rategate_bench::report::Row;

use crate::contend::{Contender, Figures, KEYS, TIGHT, WIDE, contend};
use crate::load::h2::{Grpc, nested, varint};
use crate::load::template::KEY;
use crate::load::{ConnectionGroup, Load};
use crate::ours::{DOMAIN, Ours, Setting, TIGHT_RULE, WIDE_RULE};
use crate::rivals::Throttlecrab;
use crate::service::Service;
use crate::{Bench, Found};

pub(crate) const RATE_LIMITS: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const THROTTLES: &str = "/throttlecrab.RateLimiter/Throttle";

/// The numbers of connections, and of calls at a time on each.
const PATHS: [(usize, usize); 3] = [(16, 16), (16, 1), (64, 1)];

const GOAL_DECISIONS: f64 = 1.5;
const GOAL_CPU_NS: f64 = 12_000.0;

pub(crate) fn all(bench: &Bench) -> Made<Found> {
    let throttlecrab = Throttlecrab::start(bench, 2 * KEYS)?;
    let ours = Ours::start(bench, &Setting::new(4 * KEYS))?;
    let (burst, per_s) = WIDE;
    let mut found = Found::default();
    for (connections, streams) in PATHS {
        let mut contenders = Vec::new();
        // A new key name for each path, so that its limit is unused.
        let tight_key = format!("t{connections}.{streams}:{KEY}");
        let size = (connections, streams);
        if let Some(ours) = &ours {
            let wide = request_message(WIDE_RULE, &format!("w:{KEY}"));
            let tight = request_message(TIGHT_RULE, &tight_key);
            contenders.push(contender(
                "ours",
                &ours.service,
                ours.grpc,
                RATE_LIMITS,
                [wide, tight],
                size,
            )?);
        }
        if let Some(other) = &throttlecrab {
            let wide = throttled(&format!("w:{KEY}"), [burst, per_s, 1]);
            let tight = throttled(&tight_key, [TIGHT, 1, 3_600]);
            contenders.push(contender(
                "throttlecrab",
                &other.service,
                other.grpc,
                THROTTLES,
                [wide, tight],
                size,
            )?);
        }
        let path = format!("gRPC, {connections} connections, {streams} at once");
        found.speeds.extend(judged(&path, contend(bench, &mut contenders)?, streams));
    }
    Ok(found)
}

/// Adds the goals, which are those of the first path.
fn judged(path: &str, figures: Vec<Figures>, streams: usize) -> Vec<Row> {
    let times = match figures.as_slice() {
        [ours, other] => Some(ours.per_s_over(other)),
        _ => None,
    };
    let with_goals = |figures: Figures| {
        let cpu_ns = figures.cpu_ns();
        let is_ours = figures.name == "ours";
        let speed = figures.row(path);
        match times {
            Some(times) if is_ours && streams > 1 => {
                speed.at_least(GOAL_DECISIONS, times, "times throttlecrab")
            }
            _ if is_ours && streams == 1 => speed.at_most(GOAL_CPU_NS, cpu_ns, "ns").of("CPU"),
            _ => speed,
        }
    };
    figures.into_iter().map(with_goals).collect()
}

fn contender<'a>(
    name: &str,
    service: &'a Service,
    port: u16,
    path: &str,
    [wide, tight]: [Vec<u8>; 2],
    (connections, streams): (usize, usize),
) -> Made<Contender<'a>> {
    let connection_group = |message: &[u8]| -> Made<Box<dyn Load>> {
        let one = Grpc::new(path, message, streams);
        Ok(Box::new(ConnectionGroup::connect(port, vec![one; connections])?))
    };
    let (load, exact) = (connection_group(&wide)?, Some(connection_group(&tight)?));
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

/// Returns a request of Envoy's service: one descriptor of one entry.
pub(crate) fn request_message(rule: &str, key: &str) -> Vec<u8> {
    let entry = [nested(1, rule.as_bytes()), nested(2, key.as_bytes())].concat();
    [nested(1, DOMAIN.as_bytes()), nested(2, &nested(1, &entry))].concat()
}

fn throttled(key: &str, [burst, count, period]: [u64; 3]) -> Vec<u8> {
    let numbers = [varint(2, burst), varint(3, count), varint(4, period), varint(5, 1)];
    [nested(1, key.as_bytes()), numbers.concat()].concat()
}
