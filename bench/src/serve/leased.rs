//! Rules whose permits are leased from Redis: the service and the store share the server's core.

use rategate_bench::engines::Made;

use crate::contend::{Contender, contend};
use crate::grpc::{RATE_LIMITS, request_message};
use crate::load::ConnectionGroup;
use crate::load::h2::Grpc;
use crate::load::template::KEY;
use crate::ours::{Ours, Setting, rule};
use crate::rivals::Redis;
use crate::{Bench, Found};

const CONNECTIONS: usize = 16;
const STREAMS: usize = 16;
/// The numbers of keys: of busy callers, for whom leases are meant, and of many occasional ones.
const KEYS: [u64; 2] = [1_000, 100_000];
const RULE: &str = "leased";
/// The lease, long enough that a busy caller sends a few requests in each.
const LEASE: &str = "1s";
/// A limit above what any caller requests, and a burst of which a lease leaves half.
const LIMIT: &str = "1000/s";
const BURST: &str = "burst = 2000";
const GOAL: f64 = 60_000.0;

pub(crate) fn all(bench: &Bench) -> Made<Found> {
    let redis = Redis::start(bench)?;
    let setting = Setting {
        keys: 400_000,
        rules: rule(RULE, LIMIT, &format!("{BURST}\nstore = \"leased\"\nlease = \"{LEASE}\"")),
        more: format!("[store]\nurl = \"redis://127.0.0.1:{}\"", redis.port),
    };
    let Some(ours) = Ours::start(bench, &setting)? else { return Ok(Found::default()) };
    let mut found = Found::default();
    for keys in KEYS {
        let one = Grpc::new(RATE_LIMITS, &request_message(RULE, &format!("{keys}:{KEY}")), STREAMS);
        let mut contenders = [Contender {
            name: "ours".to_owned(),
            service: &ours.service,
            store: Some(&redis.service),
            keys,
            has_ids: false,
            load: Box::new(ConnectionGroup::connect(ours.grpc, vec![one; CONNECTIONS])?),
            exact: None,
        }];
        let path = format!(
            "leased from Redis for {LEASE}, gRPC, {CONNECTIONS} connections, {STREAMS} at once, \
             {keys} keys"
        );
        for figures in contend(bench, &mut contenders)? {
            let per_s = figures.per_s();
            let speed = figures.row(&path);
            // The goal is for the busy callers.
            found.speeds.push(if keys == KEYS[0] {
                speed.at_least(GOAL, per_s, "/s")
            } else {
                speed
            });
        }
    }
    Ok(found)
}
