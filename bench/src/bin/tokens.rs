//! Charges and reservations beside a take: in the engine of the service, and over RESP.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use rategate::{Gcra, Limiter, ManualClock, MonotonicClock, Rate};
use rategate_bench::process::{Cores, Service, redis, resident};
use rategate_bench::race::{Contender, Races};
use rategate_bench::report::{Arguments, Report, span};
use rategate_bench::wires::{self, Load, Ours, closed_loops, contend, rule};
use rategate_bench::{Made, limits::settle_clock};
use rategate_server::config::load_text;
use rategate_server::engine::{
    Cost, Decided, Engine, EngineSettings, Item, Request, Reserved, Target, UniqueId, Verb,
};
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;

const KEYS: u64 = 10_000;
const TTL: Duration = Duration::from_secs(60);
const RULES: [&str; 3] = ["first", "second", "third"];
/// Connections, and commands at once on each.
const SIZE: (usize, usize) = (16, 16);

fn main() -> Made<()> {
    let arguments = Arguments::read()?;
    let header = ["path", "measured", "beside", "ratio"];
    let mut report = Report::new(&arguments, "tokens", &header);
    settle_clock();
    in_engine(&mut report, &mut Races::new(arguments.quick)?)?;
    bytes(&mut report, if arguments.quick { 100_000 } else { 1_000_000 })?;
    ends(&mut report, if arguments.quick { 1 } else { 5 })?;
    let cores = Cores::split()?;
    over_resp(&mut report, &arguments, cores)?;
    of_store(&mut report, &arguments, cores)?;
    report.end()
}

fn engine() -> Made<Engine<MonotonicClock>> {
    let settings = EngineSettings { max_reservations: 100_000_000, ..EngineSettings::default() };
    let engine = Engine::new(MonotonicClock::new(), settings);
    let rules: String = RULES.map(|name| rule(name, "burst = 1000000000")).concat();
    engine.load_compiled(&load_text("bench.toml", &rules)?.rules)?;
    Ok(engine)
}

/// Measures calls of the engine by one thread.
fn in_engine(report: &mut Report, races: &mut Races) -> Made<()> {
    let engine = &engine()?;
    // Beyond 64 bits, as random ids are. No id is used twice.
    let ids = &AtomicU64::new(1);
    let decide = |name, verb| {
        let random = || SmallRng::seed_from_u64(7);
        Contender::with_state(name, 1, random, move |random: &mut SmallRng| {
            decided(engine, verb, random.random_range(..KEYS))
        })
    };
    let pair = |name, rules: &'static [&'static str]| {
        let random = || SmallRng::seed_from_u64(7);
        Contender::with_state(name, 1, random, move |random: &mut SmallRng| {
            let id = u128::from(ids.fetch_add(1, Ordering::Relaxed)) << 64;
            let key = random.random_range(..KEYS);
            reserved(engine, id, rules, key) && committed(engine, id, rules, key)
        })
    };
    let contenders = [
        decide("take", Verb::Take),
        decide("charge", Verb::Charge),
        pair("reserve + commit", &RULES[..1]),
        pair("reserve + commit of three limits", &RULES),
    ];
    let figures = races.race("engine", 1, &contenders)?;
    let take = format!("take {}", span(figures[0].ns));
    for figure in &figures[1..] {
        let path = format!("engine, {} : take", figure.name);
        // Of the rates, as everywhere in this table.
        let ratio = format!("{:.2}", 1.0 / figure.ratio);
        report.row(&[&path, &span(figure.ns), &take, &ratio]);
    }
    Ok(())
}

fn decided(engine: &Engine<MonotonicClock>, verb: Verb, key: u64) -> bool {
    let key = key.to_be_bytes();
    let values: [&[u8]; 1] = [&key];
    let items = [Item::of(Target::Rule { name: RULES[0], values: &values }, 1)];
    let request = Request { verb, items: &items, counts_denied: false };
    matches!(engine.decide(&request), Decided::Now(Ok(answer)) if answer.allowed)
}

fn reserved(engine: &Engine<MonotonicClock>, id: u128, rules: &[&str], key: u64) -> bool {
    let key = key.to_be_bytes();
    let values: [&[u8]; 1] = [&key];
    let item = |name| Item::of(Target::Rule { name, values: &values }, 2);
    let items = [item(RULES[0]), item(RULES[1]), item(RULES[2])];
    passed(engine.reserve(UniqueId(id.to_be_bytes()), TTL, &items[..rules.len()]))
}

fn committed(engine: &Engine<MonotonicClock>, id: u128, rules: &[&str], key: u64) -> bool {
    let key = key.to_be_bytes();
    let values: [&[u8]; 1] = [&key];
    let cost = |name| Cost {
        target: Target::Rule { name, values: &values },
        permits: Some(1),
        usage: None,
    };
    let costs = [cost(RULES[0]), cost(RULES[1]), cost(RULES[2])];
    passed(engine.commit(UniqueId(id.to_be_bytes()), &costs[..rules.len()]))
}

fn passed(decided: Decided<Reserved>) -> bool {
    matches!(decided, Decided::Now(Ok(Reserved { answer, is_repeated: false, .. })) if answer.allowed)
}

/// Measures what reservations take, by the growth of the process.
fn bytes(report: &mut Report, count: u64) -> Made<()> {
    for (keys, path) in [(1, "all of one key"), (count, "each of its own key")] {
        let engine = engine()?;
        let (rules, id) = (&RULES[..1], |number: u64| u128::from(number + 1) << 64);
        let before = resident("self");
        let open = (0..count).all(|number| reserved(&engine, id(number), rules, number % keys));
        let opened = resident("self");
        let ended = (0..count).all(|number| committed(&engine, id(number), rules, number % keys));
        if !open || !ended {
            return Err("a reservation was denied".into());
        }
        let each = |bytes: f64| format!("{:.0} bytes", (bytes - before) / count as f64);
        report.row(&[&format!("an open reservation, {path}"), &each(opened), "–", "–"]);
        drop(engine);
    }
    Ok(())
}

/// Measures tries of a limiter from the end of a million holds on. The longest of a run is often a
/// pause of the machine, so the smallest of several runs counts.
fn ends(report: &mut Report, runs: u32) -> Made<()> {
    const HOLDS: u32 = 1_000_000;
    let end = TTL;
    let run = || -> Made<u128> {
        let clock = ManualClock::new();
        // A hundred seconds' worth: what is held is never earned back before its end.
        let bucket = Gcra::new(Rate::per_second(10_000), 3 * u64::from(HOLDS))?;
        let limiter = Limiter::with_clock(bucket, clock.clone());
        let step = Duration::from_micros(1);
        let mut holds = Vec::with_capacity(HOLDS as usize);
        for number in 0..HOLDS {
            // Each has begun at an instant of its own, and others are granted between them.
            let hold = limiter.try_hold(2, end.saturating_sub(step * number))?;
            holds.push(hold.map_err(|_| "a hold was denied")?);
            if number % 4 == 0 && !limiter.try_acquire(1)?.is_granted() {
                return Err("a try was denied".into());
            }
            clock.advance(step);
        }
        clock.advance(end.saturating_sub(step * HOLDS));
        let mut longest_ns = 0;
        for _ in 0..100_000 {
            let called = std::time::Instant::now();
            let _ = limiter.try_acquire(1);
            longest_ns = longest_ns.max(called.elapsed().as_nanos());
            clock.advance(step);
        }
        // Each of these has ended: its drop is not what is measured.
        holds.into_iter().for_each(std::mem::forget);
        Ok(longest_ns)
    };
    let all: Vec<u128> = (0..runs).map(|_| run()).collect::<Made<_>>()?;
    let longest = span(all.into_iter().min().unwrap_or(0) as f64);
    report.row(&["a limiter, longest call while its 1 M holds end", &longest, "–", "–"]);
    Ok(())
}

/// Measures the service in memory.
fn over_resp(report: &mut Report, arguments: &Arguments, cores: Cores) -> Made<()> {
    let ours = Ours::start(cores, 4 * wires::KEYS, "reservations = 20000000", &rule("wide", ""))?;
    rows(report, arguments, "RESP", "wide", &ours, None)
}

/// Measures a rule whose permits are in Redis.
fn of_store(report: &mut Report, arguments: &Arguments, cores: Cores) -> Made<()> {
    let (store, port) = redis(cores.server, &[])?;
    let rules = rule("exact", "burst = 2000000\nstore = \"exact\"");
    let head = format!("reservations = 20000000\n[store]\nurl = \"redis://127.0.0.1:{port}\"");
    let ours = Ours::start(cores, 4 * wires::KEYS, &head, &rules)?;
    rows(report, arguments, "RESP, exact in Redis", "exact", &ours, Some(&store))
}

fn rows(
    report: &mut Report,
    arguments: &Arguments,
    path: &str,
    rule: &'static str,
    ours: &Ours,
    store: Option<&Service>,
) -> Made<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", ours.resp))?;
    let connections = (0..SIZE.0)
        .map(|_| Ok(runtime.block_on(client.get_multiplexed_async_connection())?))
        .collect::<Made<Vec<_>>>()?;
    let ids = Cell::new(0_u32);
    let one = |verb: &'static str| {
        pipelines(&runtime, &connections, 1, move |pipe, key| {
            pipe.cmd(verb).arg(rule).arg(1).arg(key);
        })
    };
    let pair = pipelines(&runtime, &connections, 2, |pipe, key| {
        ids.set(ids.get() + 1);
        let id = format!("{:032x}", ids.get());
        pipe.cmd("RATEGATE.RESERVE").arg(&id).arg(60_000).arg(rule).arg(2).arg(key);
        pipe.cmd("RATEGATE.COMMIT").arg(&id).arg(rule).arg(1).arg(key);
    });
    let loads = [
        ("take", one("RATEGATE.CHECK")),
        ("charge", one("RATEGATE.CHARGE")),
        ("reserve + commit", pair),
    ];
    let mut contenders = loads.map(|(who, load)| wires::Contender {
        who: who.to_owned(),
        service: &ours.service,
        store,
        load,
    });
    let figures = contend(arguments.quick, &mut contenders)?;
    let shown = |figures: &wires::Figures| {
        let [decisions, cpu, ..] = figures.cells();
        format!("{decisions}, CPU {cpu}")
    };
    for figure in &figures[1..] {
        let path = format!("{path}, 16 connections, 16 at once, {} : take", figure.who);
        let [ratio, _] = figure.over(&figures[0]);
        let beside = format!("take {}", shown(&figures[0]));
        report.row(&[&path, &shown(figure), &beside, &format!("{ratio:.2}")]);
    }
    Ok(())
}

/// Returns a load of pipelines by the client crate, each operation of `commands` commands.
fn pipelines<'a>(
    runtime: &'a Runtime,
    connections: &'a [MultiplexedConnection],
    commands: usize,
    write: impl Fn(&mut redis::Pipeline, u32) + 'a,
) -> Load<'a> {
    Box::new(move |lasts| {
        let operations = SIZE.1 / commands;
        let call = |lane: usize, key: u32| {
            let mut pipe = redis::pipe();
            for next in 0..operations as u32 {
                write(&mut pipe, (key + next) % wires::KEYS);
            }
            let mut connection = connections[lane].clone();
            async move {
                // An answer that is an error ends the run.
                let _: Vec<redis::Value> = pipe.query_async(&mut connection).await?;
                Ok(())
            }
        };
        runtime.block_on(closed_loops(SIZE.0, lasts, operations as u64, call))
    })
}
