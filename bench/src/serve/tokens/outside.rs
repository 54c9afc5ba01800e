//! The service from outside: sixteen commands at once by RESP, and calls by gRPC.

use rategate_bench::engines::Made;
use rategate_bench::report::Row;

use crate::Bench;
use crate::contend::{Contender, Figures, KEYS, contend};
use crate::grpc::{RATE_LIMITS, request_message};
use crate::load::h2::Grpc;
use crate::load::resp::{Answer, Resp, command};
use crate::load::template::{KEY, TAIL};
use crate::load::{ConnectionGroup, Load};
use crate::ours::{Ours, Setting, WIDE_RULE, rule};
use crate::rivals::Redis;
use crate::service::Service;

const CONNECTIONS: usize = 16;
/// The number of commands or calls at a time on each connection.
const AT_ONCE: usize = 16;
/// The number of distinct ids, of which none is sent twice: nothing would be held then.
const IDS: u64 = 100_000_000;

const GOAL_CHARGE: f64 = 0.9;
const GOAL_RESERVE: f64 = 0.4;
const GOAL_LEASED: f64 = 20.0;

/// The rules of the stores, named as their settings.
const EXACT: &str = "exact";
const LEASED: &str = "leased";
/// The key of the rules that leases serve.
const BUSY: &str = "busy";

/// The rule that charges what is over.
const CHARGES: &str = "charges";

pub(super) fn all(bench: &Bench) -> Made<Vec<Row>> {
    let mut setting = Setting::new(4 * KEYS);
    setting.rules += &rule(CHARGES, "1000000/s", "over = \"charge\"");
    // It continues the table of keys.
    "reservations = 20000000".clone_into(&mut setting.more);
    let Some(ours) = Ours::start(bench, &setting)? else { return Ok(Vec::new()) };
    let mut rows = by_resp(bench, &ours)?;
    rows.extend(by_grpc(bench, &ours)?);
    drop(ours);
    rows.extend(of_stores(bench)?);
    Ok(rows)
}

/// Measures rules whose permits are in Redis, and rules that lease from it.
fn of_stores(bench: &Bench) -> Made<Vec<Row>> {
    let redis = Redis::start(bench)?;
    let of = |store: &str, more: &str| {
        rule(store, "1000000/s", &format!("burst = 2000000\nstore = \"{store}\"\n{more}"))
    };
    let setting = Setting {
        keys: 4 * KEYS,
        rules: of(EXACT, "") + &of(LEASED, "lease = \"1s\""),
        more: format!(
            "reservations = 20000000\n[store]\nurl = \"redis://127.0.0.1:{}\"",
            redis.port
        ),
    };
    let Some(ours) = Ours::start(bench, &setting)? else { return Ok(Vec::new()) };
    let take = |key: &str| command(&["RATEGATE.CHECK", EXACT, "1", key]);
    // Leases are for busy keys. Takes of one key go to a store as one, which reservations cannot.
    let loads = [
        ("take", take(TAIL), 1),
        ("reserve + commit", pair(0, EXACT, TAIL), 2),
        ("take", take(BUSY), 1),
        ("reserve + commit", pair(1, EXACT, BUSY), 2),
        ("reserve + commit, leased", pair(2, LEASED, BUSY), 2),
    ];
    let mut contenders = Vec::new();
    for (name, bytes, replies) in loads {
        let load = group(ours.resp, bytes, replies)?;
        let own = contender(name, &ours.service, IDS, load);
        contenders.push(Contender { store: Some(&redis.service), ..own });
    }
    let figures = contend(bench, &mut contenders)?;
    let [take, many, take_one, one, leased] = figures.as_slice() else {
        return Err("not five figures".into());
    };
    let path = format!("RESP, {CONNECTIONS} connections, {AT_ONCE} at once");
    let exact = format!("{path}, exact store, reserve + commit : take");
    Ok(vec![
        row(&exact, take, many, GOAL_RESERVE),
        row(&format!("{exact}, of one key"), take_one, one, GOAL_RESERVE),
        row(
            &format!("{path}, of one key, reserve + commit, leased : exact"),
            one,
            leased,
            GOAL_LEASED,
        ),
    ])
}

/// Returns a reservation and its commit, under ids that no other number's have.
fn pair(number: u32, rule: &str, key: &str) -> Vec<u8> {
    let id = format!("{number:024x}{KEY}");
    let reserve = command(&["RATEGATE.RESERVE", &id, "60000", rule, "2", key]);
    [reserve, command(&["RATEGATE.COMMIT", &id, rule, "1", key])].concat()
}

/// Returns a load of commands that come in groups of `replies`.
fn group(port: u16, bytes: Vec<u8>, replies: usize) -> Made<Box<dyn Load>> {
    let one = Resp::of_bytes(bytes, Answer::Own { replies }, AT_ONCE / replies);
    Ok(Box::new(ConnectionGroup::connect(port, vec![one; CONNECTIONS])?))
}

fn by_resp(bench: &Bench, ours: &Ours) -> Made<Vec<Row>> {
    let check = |verb: &str| command(&[verb, WIDE_RULE, "1", TAIL]);
    let group = |bytes, replies| group(ours.resp, bytes, replies);
    let mut contenders = [
        contender("take", &ours.service, IDS, group(check("RATEGATE.CHECK"), 1)?),
        contender("charge", &ours.service, IDS, group(check("RATEGATE.CHARGE"), 1)?),
        contender("reserve + commit", &ours.service, IDS, group(pair(0, WIDE_RULE, TAIL), 2)?),
    ];
    let [take, charge, reserve] = three(contend(bench, &mut contenders)?)?;
    let path = format!("RESP, {CONNECTIONS} connections, {AT_ONCE} at once");
    Ok(vec![
        row(&format!("{path}, charge : take"), &take, &charge, GOAL_CHARGE),
        row(&format!("{path}, reserve + commit : take"), &take, &reserve, GOAL_RESERVE),
    ])
}

fn by_grpc(bench: &Bench, ours: &Ours) -> Made<Vec<Row>> {
    let group = |rule: &str| -> Made<Box<dyn Load>> {
        let one = Grpc::new(RATE_LIMITS, &request_message(rule, &format!("w:{KEY}")), AT_ONCE);
        Ok(Box::new(ConnectionGroup::connect(ours.grpc, vec![one; CONNECTIONS])?))
    };
    let mut contenders = [
        contender("take", &ours.service, KEYS, group(WIDE_RULE)?),
        contender("charge", &ours.service, KEYS, group(CHARGES)?),
    ];
    let figures = contend(bench, &mut contenders)?;
    let [take, charge] = figures.as_slice() else { return Err("not two figures".into()) };
    let path = format!("gRPC, {CONNECTIONS} connections, {AT_ONCE} at once, charge : take");
    Ok(vec![row(&path, take, charge, GOAL_CHARGE)])
}

fn contender<'a>(
    name: &str,
    service: &'a Service,
    keys: u64,
    load: Box<dyn Load>,
) -> Contender<'a> {
    let (name, has_ids) = (name.to_owned(), keys == IDS);
    Contender { name, service, store: None, keys, has_ids, load, exact: None }
}

fn row(path: &str, base: &Figures, other: &Figures, goal: f64) -> Row {
    let ratio = other.per_s_over(base);
    let row = Row::new(path)
        .measured(&other.name, other.per_s(), "/s")
        .measured("CPU", other.cpu_ns(), "ns")
        .measured("ratio", ratio, "ratio")
        .compared(&base.name, base.per_s(), "/s")
        .compared("CPU", base.cpu_ns(), "ns")
        .compared("others took cores", base.others().max(other.others()), "")
        .at_least(goal, ratio, "ratio");
    let failed = base.tally.failed + other.tally.failed + base.tally.denied + other.tally.denied;
    if failed > 0 { row.measured("failed or denied", failed as f64, "") } else { row }
}

fn three(figures: Vec<Figures>) -> Made<[Figures; 3]> {
    figures.try_into().map_err(|_| "not three figures".into())
}
