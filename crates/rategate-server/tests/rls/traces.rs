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

use crate::rls::common::runtime;
use crate::rls::counting::engine_of;
use crate::rls::oracle::{Call, Limit, ModelDescriptor, Node, Service, yaml};
use crate::rls::wires::{self, Wire};

const SECOND: u64 = 1_000_000_000;

/// Configurations, and sequences of calls for each: 100 000 sequences in all.
const CONFIGS: u64 = 500;
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
    ModelDescriptor { entries, own, hits }
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

/// Plays the sequences of some configurations over a wire.
fn play(
    wire: fn(Arc<Runtime>, Engine<ManualClock>, Options) -> Wire,
    configs: impl Iterator<Item = u64>,
) {
    let runtime = Arc::new(runtime());
    for config in configs {
        let random = &mut Rng::with_seed(config);
        let domain = level(random, 1);
        let (mut model, settings, options) = settings(random);
        let (engine, clock) = engine_of(&yaml(&domain), settings);
        let answer = wire(Arc::clone(&runtime), engine, options.clone());
        for sequence in 0..SEQUENCES {
            for _ in 0..=random.u64(..5) {
                let call = call(random);
                let known = (call.domain == "d").then_some(domain.as_slice());
                let expected = model.call(known, &call, clock.now_ns() / SECOND);
                assert_eq!(
                    answer(&call),
                    expected,
                    "configuration {config}, sequence {sequence}: {call:?} {options:?}\n{}",
                    yaml(&domain)
                );
                pass(random, &clock);
            }
        }
    }
}

/// Half of them as bytes of gRPC, half as JSON.
#[test]
fn a_hundred_thousand_sequences_of_calls_are_answered_as_by_the_model() {
    thread::scope(|scope| {
        scope.spawn(|| play(wires::json, (0..CONFIGS).skip(1).step_by(2)));
        play(wires::grpc, (0..CONFIGS).step_by(2));
    });
}
