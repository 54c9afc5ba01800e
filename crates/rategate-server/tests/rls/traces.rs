//! Rules in the format of envoyproxy/ratelimit are counted and answered as that project does, for
//! every sequence of calls and with all of its settings: see [`oracle`](crate::rls::oracle).

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use rategate::{Clock as _, ManualClock};
use rategate_server::engine::{Engine, EngineSettings};
use rategate_server::protocol::rls::{HeaderNames, Options};
use rategate_server::rule::{Counting, Unit};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use crate::rls::common::{START_NS, runtime};
use crate::rls::oracle::{Call, Limit, ModelDescriptor, Node, Service, yaml};
use crate::rls::places::Place;
use crate::rls::wires::{self, Wire};

const SECOND: u64 = 1_000_000_000;

/// The sequences of calls for each configuration.
const SEQUENCES: u64 = 200;

const KEYS: [&str; 2] = ["a", "b"];
const NAMES: [&str; 3] = ["one", "two", "three"];

fn level(random: &mut Rng, depth: u32) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for _ in 0..=random.u64(..4) {
        let (key, value) = (
            random.choice(KEYS).unwrap(),
            random.choice(["", "", "x", "y", "x*", "*y", "x*y"]).unwrap(),
        );
        if nodes.iter().any(|node| node.key == key && node.value == value) {
            continue;
        }
        let below =
            if depth > 0 && random.u64(..3) == 0 { level(random, depth - 1) } else { vec![] };
        nodes.push(Node {
            key,
            value,
            limit: (random.u64(..5) > 0).then(|| limit(random)),
            is_shadow: random.u64(..6) == 0,
            is_quota: random.u64(..4) == 0,
            is_shared: value.contains('*') && random.u64(..2) == 0,
            metadata: if random.u64(..2) == 0 { metadata(random, 2) } else { Map::new() },
            below,
        });
    }
    nodes
}

/// Returns metadata of few names, so that that of several descriptors meets.
fn metadata(random: &mut Rng, depth: u32) -> Map<String, Value> {
    let mut all = Map::new();
    for _ in 0..=random.u64(..2) {
        let value = match random.u64(..6) {
            0..3 if depth > 0 => Value::Object(metadata(random, depth - 1)),
            0 => Value::Null,
            1 => json!(random.bool()),
            2 => json!([random.choice([0.0, -1.0, 2.5, 1e30]).unwrap(), "x", []]),
            3 => json!({}),
            4 => json!(random.choice([0.0, 7.0, -2.5, 1e-9, 1e21, 1e300]).unwrap()),
            _ => json!(random.choice(["", "x", "\u{fc} \"quoted\"\n", "true", "1"]).unwrap()),
        };
        all.insert(random.choice(["a", "b", ""]).unwrap().to_owned(), value);
    }
    all
}

fn limit(random: &mut Rng) -> Limit {
    let name = if random.u64(..2) == 0 { random.choice(NAMES).unwrap() } else { "" };
    let others = NAMES.into_iter().filter(|other| *other != name);
    let replaces = if random.u64(..5) == 0 { others.take(1).collect() } else { vec![] };
    let unit = (random.u64(..8) > 0).then(|| random.choice(Unit::ALL).unwrap());
    Limit { per_unit: per_unit(random), unit, name, replaces }
}

fn per_unit(random: &mut Rng) -> u32 {
    random.choice([0, 1, 2, 3, 5, 10, 1_000, (1 << 27) - 1, 1 << 27, u32::MAX]).unwrap()
}

fn requested(random: &mut Rng) -> ModelDescriptor {
    let entries = (0..=random.u64(..3) / 2).map(|_| {
        (random.choice(KEYS).unwrap(), random.choice(["x", "y", "z", "xy", "x1y", ""]).unwrap())
    });
    let entries = entries.collect();
    // A caller's own limit of 2^27 and more shares no count with a smaller rule: see
    // docs/limits.md.
    let own = (random.u64(..6) == 0)
        .then(|| (per_unit(random) % (1 << 27), random.choice(Unit::ALL).unwrap()));
    let hits = [0, 0, 1, 1, 2, 4, 9, 900, 1_001, u64::from(u32::MAX), 1 << 33, u64::MAX >> 1];
    let hits = (random.u64(..3) > 0).then(|| random.choice(hits).unwrap());
    ModelDescriptor { entries, own, hits, refund: false }
}

/// Advances the clock by nothing, by a moment, to or just before the border of a window, or past
/// it.
fn pass(random: &mut Rng, clock: &ManualClock) {
    let now_ns = clock.now_ns();
    let unit_ns = random.choice(&Unit::ALL[..4]).copied().unwrap().seconds() * SECOND;
    let border_ns = now_ns / unit_ns * unit_ns + unit_ns;
    match random.u64(..8) {
        0 => clock.set(Duration::from_nanos(border_ns)),
        1 => clock.set(Duration::from_nanos((border_ns - 1).max(now_ns))),
        2 => clock.advance(Duration::from_nanos(random.u64(..unit_ns))),
        3 | 4 => clock.advance(Duration::from_nanos(random.u64(..SECOND))),
        _ => {}
    }
}

/// Returns a service with random settings, and the same settings here.
fn settings(random: &mut Rng) -> (Service, EngineSettings, Options) {
    let own = ["X-Limit", "x-left", "X-Reset"];
    let usual = ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"];
    let service = Service {
        stops_when_over: random.bool(),
        is_shadow: random.u64(..8) == 0,
        is_quota: random.u64(..4) == 0,
        headers: random.choice([None, Some(usual), Some(own)]).unwrap(),
        has_metadata: random.u64(..4) > 0,
        ..Service::default()
    };
    let names = |names: [&str; 3]| {
        let [limit, remaining, reset] = names.map(Into::into);
        Arc::new(HeaderNames { limit, remaining, reset })
    };
    let options = Options {
        headers: service.headers.map(names),
        shadow: service.is_shadow,
        quota: service.is_quota,
        dynamic_metadata: service.has_metadata,
        verbs: false,
        ..Options::default()
    };
    let settings = EngineSettings {
        max_keys: 10_000,
        inline_keys: 1_000,
        inline_limits: 31,
        counting: if service.stops_when_over { Counting::Stop } else { Counting::All },
        ..EngineSettings::default()
    };
    (service, settings, options)
}

fn call(random: &mut Rng) -> Call {
    Call {
        domain: if random.u64(..20) == 0 { "unknown" } else { "d" },
        requested: (0..=random.u64(..3)).map(|_| requested(random)).collect(),
        hits: random.choice([0, 1, 2, 7, u32::MAX]).unwrap(),
    }
}

/// Plays the sequences of some configurations over a wire, with the counters in some place. Returns
/// the number of calls that were compared.
fn play(
    wire: fn(Arc<Runtime>, Engine<ManualClock>, Options) -> Wire,
    place: &Place,
    (configs, sequences): (impl Iterator<Item = u64>, u64),
) -> u64 {
    let (runtime, mut compared) = (Arc::new(runtime()), 0);
    for config in configs {
        let random = &mut Rng::with_seed(config);
        let domain = level(random, 1);
        let (mut model, mut settings, options) = settings(random);
        if place.is_store() {
            model.stops_when_over = false;
            settings.counting = Counting::All;
        }
        let mut placed = place.service(&yaml(&domain), settings, START_NS / SECOND);
        let answers = |engine: &Engine<ManualClock>| {
            wire(Arc::clone(&runtime), engine.clone(), options.clone())
        };
        let mut answer = answers(&placed.engine);
        for sequence in 0..sequences {
            for _ in 0..=random.u64(..5) {
                let mut call = call(random);
                if place.is_store() {
                    call.requested.iter_mut().for_each(|requested| requested.own = None);
                }
                let known = (call.domain == "d").then_some(domain.as_slice());
                let expected = model.call(known, &call, placed.clock.now_ns() / SECOND);
                assert_eq!(
                    answer(&call),
                    expected,
                    "configuration {config}, sequence {sequence}: {call:?} {options:?}\n{}",
                    yaml(&domain)
                );
                compared += 1;
                pass(random, &placed.clock);
                if placed.pass(place, random) {
                    answer = answers(&placed.engine);
                }
            }
        }
    }
    compared
}

/// Half of them as bytes of gRPC, half as JSON: 20 000 sequences, and 400 000 in the long form.
#[test]
fn sequences_of_calls_are_answered_as_by_the_model() {
    thread::scope(|scope| {
        let odd = configs(100).skip(1).step_by(2);
        scope.spawn(|| play(wires::json, &Place::Here, (odd, SEQUENCES)));
        play(wires::grpc, &Place::Here, (configs(100).step_by(2), SEQUENCES));
    });
}

/// Returns how many configurations are played: all that the variable `RATEGATE_TRACES` says, or
/// few.
pub(crate) fn configs(few: u64) -> std::ops::Range<u64> {
    let all = std::env::var("RATEGATE_TRACES").ok();
    0..all.map_or(few, |all| all.parse().expect("RATEGATE_TRACES is a number of configurations"))
}

/// The service reloads its rules and restarts from its counters in a file, between calls.
#[test]
fn traces_go_on_over_reloads_and_restarts() {
    let compared = play(wires::json, &Place::restarted(), (configs(12), 60));
    println!("{compared} calls compared over reloads and restarts");
}

#[test]
fn a_store_in_memory_answers_traces_alike() {
    let compared = play(wires::grpc, &Place::Memory, (configs(40), SEQUENCES));
    println!("{compared} calls compared with counters in a store in memory");
}

#[test]
fn redis_and_valkey_answer_traces_alike() {
    thread::scope(|scope| {
        for place in Place::each_redis() {
            scope.spawn(move || {
                let compared = play(wires::json, &place, (configs(8), 50));
                println!("{compared} calls compared with counters in a server");
            });
        }
    });
}
