//! Reservations of windows that count every hit, in a store: the same answers as in this process.

use std::time::Duration;

use fastrand::Rng;
use rategate::{Clock as _, ManualClock};
use rategate_server::engine::{
    Cost, Decided, Engine, EngineError, EngineSettings, Item, ItemResult, Request, Reserved,
    Target, UniqueId, Verb,
};
use rategate_server::rule::{CounterLocation, Rule};

use crate::engine::common::SECOND;
use crate::stores::counted::rules;
use crate::stores::{World, rule_set};

/// All rules but the one that is not enforced: what a store does not hold of it is unknown there.
const NAMES: [&str; 6] = ["n", "d", "t", "l", "q", "r"];

/// An operation of a story.
enum Step {
    Ask(Verb, Vec<(&'static str, u64)>),
    Once(UniqueId, Verb, Vec<(&'static str, u64)>),
    Reserve(UniqueId, Duration, Vec<(&'static str, u64)>),
    Commit(UniqueId, Vec<(&'static str, Option<u64>)>),
    Cancel(UniqueId, Vec<&'static str>),
}

/// The part of an answer that two engines have to agree on.
#[derive(Debug, PartialEq)]
struct Seen {
    allowed: bool,
    is_repeated: bool,
    ends_after_ns: Option<u64>,
    results: Vec<(String, u64, Option<u64>, u64, u64)>,
}

fn of(name: &str) -> Target<'_> {
    Target::Rule { name, values: &[b"ann"] }
}

fn seen(reserved: Result<Reserved, EngineError>) -> Result<Seen, String> {
    let Reserved { answer, is_repeated, ends_after_ns } =
        reserved.map_err(|error| error.to_string())?;
    let result = |result: &ItemResult| {
        let verdict = format!("{:?}", result.verdict);
        (verdict, result.limit, result.remaining, result.debt, result.reset_after_ns)
    };
    let results = answer.results.iter().map(result).collect();
    let ends_after_ns = ends_after_ns.map(u64::from);
    Ok(Seen { allowed: answer.allowed, is_repeated, ends_after_ns, results })
}

fn make(engine: &Engine<ManualClock>, step: &Step) -> Decided<Reserved> {
    let items = |items: &[(&'static str, u64)]| -> Vec<Item<'_>> {
        items.iter().map(|&(name, permits)| Item::of(of(name), permits)).collect()
    };
    match step {
        Step::Ask(verb, all) => {
            let items = items(all);
            let request = Request { verb: *verb, items: &items, counts_denied: false };
            let plain = |answer| Reserved { answer, is_repeated: false, ends_after_ns: None };
            match engine.decide(&request) {
                Decided::Now(answer) => Decided::Now(answer.map(plain)),
                Decided::Later(answer) => {
                    Decided::Later(Box::pin(async move { answer.await.map(plain) }))
                }
            }
        }
        Step::Once(id, verb, all) => {
            let items = items(all);
            engine.once(*id, &Request { verb: *verb, items: &items, counts_denied: false })
        }
        Step::Reserve(id, ttl, all) => engine.reserve(*id, *ttl, &items(all)),
        Step::Commit(id, costs) => {
            let cost = |&(name, permits)| Cost { target: of(name), permits, usage: None };
            engine.commit(*id, &costs.iter().map(cost).collect::<Vec<_>>())
        }
        Step::Cancel(id, names) => {
            let targets: Vec<_> = names.iter().map(|&name| of(name)).collect();
            engine.cancel(*id, &targets)
        }
    }
}

/// The items that were named under an id.
struct Known {
    id: UniqueId,
    names: Vec<&'static str>,
}

fn next_step(random: &mut Rng, known: &mut Vec<Known>, next: &mut u64) -> Step {
    let permits = |random: &mut Rng| match random.u8(..8) {
        0 => 100_000,
        1 => random.u64(1..1_500),
        _ => random.u64(1..4),
    };
    let some_names = |random: &mut Rng| {
        let mut names = NAMES;
        random.shuffle(&mut names);
        names[..random.usize(1..4)].to_vec()
    };
    let old = (!known.is_empty()).then(|| known.len() - 1 - random.usize(..known.len().min(6)));
    match random.u8(..10) {
        0..2 => {
            let verb = random.choice([Verb::Take, Verb::Charge, Verb::Peek]).unwrap();
            let names = some_names(random).into_iter();
            Step::Ask(verb, names.map(|name| (name, permits(random))).collect())
        }
        2..5 => {
            *next += 1;
            let mut bytes = [3; 16];
            bytes[8..].copy_from_slice(&next.to_be_bytes());
            let (id, names) = (UniqueId(bytes), some_names(random));
            known.push(Known { id, names: names.clone() });
            let ttl = Duration::from_millis(random.u64(1..90_000));
            let all = names.into_iter().map(|name| (name, permits(random))).collect();
            Step::Reserve(id, ttl, all)
        }
        5 => {
            *next += 1;
            let mut bytes = [4; 16];
            bytes[8..].copy_from_slice(&next.to_be_bytes());
            let verb = random.choice([Verb::Charge, Verb::Refund]).unwrap();
            let names = some_names(random).into_iter();
            let all = names.map(|name| (name, permits(random))).collect();
            Step::Once(UniqueId(bytes), verb, all)
        }
        _ => match old.and_then(|at| known.get(at)) {
            None => Step::Ask(Verb::Peek, vec![("d", 1)]),
            Some(Known { id, names }) if random.u8(..4) == 0 => Step::Cancel(*id, names.clone()),
            Some(Known { id, names }) => {
                let used = |random: &mut Rng| match random.u8(..4) {
                    0 => None,
                    1 => Some(0),
                    _ => Some(permits(random)),
                };
                Step::Commit(*id, names.iter().map(|&name| (name, used(random))).collect())
            }
        },
    }
}

/// Windows that count every hit are reserved, committed, cancelled, charged and refunded in a store
/// as in this process: the same verdicts, waits, remainders and debts.
#[test]
fn counted_windows_are_reserved_in_a_store_as_in_this_process() {
    let (mut held, mut denied, mut ended) = (0, 0, 0);
    for seed in 0..20 {
        let world = World::new();
        let rules = |location| -> Vec<Rule> { rules(location) };
        let stored = world.server(rules(CounterLocation::StoreExact));
        let here: Engine<ManualClock> = Engine::new(world.clock.clone(), EngineSettings::default());
        here.load(rule_set(rules(CounterLocation::Here))).unwrap();
        let random = &mut Rng::with_seed(seed);
        let (mut known, mut next) = (Vec::new(), 0);
        for step in 0..600 {
            let passed = match random.u8(..6) {
                0 => random.u64(..40 * SECOND),
                1 => random.u64(..2 * SECOND),
                _ => 0,
            };
            world.clock.set(Duration::from_nanos(world.clock.now_ns() + passed / 1_000 * 1_000));
            here.tick(world.clock.now_ns());
            let made = next_step(random, &mut known, &mut next);
            for again in 0..random.u8(1..3) {
                if again > 0 && matches!(made, Step::Ask(..)) {
                    continue;
                }
                let theirs = seen(world.wait(make(&stored, &made)).0);
                let ours = seen(world.wait(make(&here, &made)).0);
                assert_eq!(theirs, ours, "seed {seed}, step {step}, again {again}");
                if let (Ok(ours), Step::Reserve(..)) = (&ours, &made) {
                    *if ours.allowed { &mut held } else { &mut denied } += 1;
                }
                ended += u32::from(ours.is_ok() && matches!(made, Step::Commit(..)));
            }
        }
    }
    assert!(held > 500 && denied > 500 && ended > 500, "{held} {denied} {ended}");
}
