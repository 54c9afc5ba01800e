//! Windows that count every hit, in a store: the same answers as in this process and in
//! envoyproxy/ratelimit.

use std::task::{Context, Waker};
use std::time::Duration;

use fastrand::Rng;
use rategate::{Clock, ManualClock, MonotonicClock};
use rategate_server::engine::{Decided, Engine, Verb, Verdict};
use rategate_server::rule::{
    CountedWindow, CounterLocation, DisplayLimit, Enforcement, Limit, OnUnavailable, Rule, Unit,
};
use rategate_testkit::faulty::Fate;

use crate::engine::common::{SECOND, SMALL, bucket};
use crate::stores::{MS, PATIENCE, World, decided, real_store, rule_set};
use rategate_testkit::redis::{Brand, Server};

fn counted(name: &str, permits: u32, unit: Unit, location: CounterLocation) -> Rule {
    let limit = Limit::Counted(CountedWindow::new(permits, unit.seconds() * SECOND).unwrap());
    let display_limit = DisplayLimit { permits: permits.into(), multiplier: 1, unit };
    let on_unavailable =
        if location == CounterLocation::Here { OnUnavailable::Local } else { OnUnavailable::Deny };
    Rule { limit, display_limit, location, on_unavailable, ..bucket(name, &["who"], 1) }
}

pub(crate) fn rules(location: CounterLocation) -> Vec<Rule> {
    let shadow =
        Rule { enforcement: Enforcement::Shadow, ..counted("s", 3, Unit::Minute, location) };
    let quotas = [("q", 4), ("r", 9)].map(|(name, permits)| Rule {
        quota: true,
        ..counted(name, permits, Unit::Minute, location)
    });
    let large = counted("l", u32::MAX, Unit::Hour, location);
    let mut all = vec![
        counted("n", 0, Unit::Second, location),
        counted("d", 1000, Unit::Day, location),
        counted("t", 2, Unit::Second, location),
        shadow,
        large,
    ];
    all.extend(quotas);
    all
}

const NAMES: [&str; 7] = ["n", "d", "t", "s", "l", "q", "r"];
const HITS: [u64; 11] = [0, 0, 1, 1, 2, 3, 400, 900, (1 << 32) - 1, 1 << 40, u64::MAX];

fn random_items(random: &mut Rng) -> (Verb, Vec<(&'static str, &'static str, u64)>) {
    let verb = random.choice([Verb::Take, Verb::Take, Verb::Take, Verb::Peek]).unwrap();
    let items = (0..=random.u8(..3)).map(|_| {
        (
            random.choice(NAMES).unwrap(),
            random.choice(["ann", "ben"]).unwrap(),
            random.choice(HITS).unwrap(),
        )
    });
    (verb, items.collect())
}

fn here<C: Clock + Clone + 'static>(
    engine: &Engine<C>,
    verb: Verb,
    items: &[(&str, &str, u64)],
) -> rategate_server::engine::Answer {
    let Decided::Now(answer) = decided(engine, verb, items) else { panic!("nothing is submitted") };
    answer.unwrap()
}

#[test]
fn a_store_answers_as_this_process_does() {
    let world = World::new();
    let stored = world.server(rules(CounterLocation::StoreExact));
    let here_engine: Engine<ManualClock> = Engine::new(world.clock.clone(), SMALL);
    here_engine.load(rule_set(rules(CounterLocation::Here))).unwrap();
    let random = &mut Rng::with_seed(7);
    for step in 0..20_000 {
        let (verb, items) = random_items(random);
        let (mut answer, _) = world.ask(&stored, verb, &items);
        let mut expected = here(&here_engine, verb, &items);
        for result in answer.results.iter_mut().chain(&mut expected.results) {
            result.rule = None;
        }
        assert_eq!(answer, expected, "step {step}: {verb:?} {items:?}");
        let now_ns = world.clock.now_ns();
        match random.u8(..12) {
            0 => world
                .clock
                .set(Duration::from_nanos(now_ns / (60 * SECOND) * 60 * SECOND + 60 * SECOND)),
            1 => world.clock.set(Duration::from_nanos(now_ns + SECOND / 3)),
            2 if random.u8(..40) == 0 => {
                world.clock.set(Duration::from_nanos(now_ns + 86_400 * SECOND));
            }
            _ => {}
        }
    }
}

/// Counts of a denied call are not refunded. A call that is cancelled before the store replied
/// counts nothing.
#[test]
fn what_is_counted_stays_counted() {
    let world = World::new();
    let closed = Rule { location: CounterLocation::StoreExact, ..bucket("closed", &["who"], 1) };
    let server =
        world.server(vec![counted("d", 1000, Unit::Day, CounterLocation::StoreExact), closed]);
    assert!(!world.take(&server, &[("d", "x", 5), ("closed", "x", 2)]));
    assert_eq!(world.left(&server, "d", "x"), Some(995));
    world.store.script([Fate::Slow { there_ns: MS, back_ns: 5 * MS }]);
    let Decided::Later(answer) = decided(&server, Verb::Take, &[("d", "x", 5)]) else { panic!() };
    drop(answer);
    for _ in 0..5 {
        world.clock.set(Duration::from_nanos(world.clock.now_ns() + 10 * MS));
    }
    assert_eq!(world.left(&server, "d", "x"), Some(995));
    // What the store has counted stays, whatever else of the call is still pending.
    world.store.script([Fate::Prompt, Fate::Slow { there_ns: MS, back_ns: 5 * MS }]);
    let items = [("d", "x", 5), ("closed", "y", 1)];
    let Decided::Later(mut answer) = decided(&server, Verb::Take, &items) else { panic!() };
    let mut context = Context::from_waker(Waker::noop());
    assert!(answer.as_mut().poll(&mut context).is_pending());
    drop(answer);
    for _ in 0..5 {
        world.clock.set(Duration::from_nanos(world.clock.now_ns() + 10 * MS));
    }
    assert_eq!(world.left(&server, "d", "x"), Some(990));
    // An explicit refund is credited.
    let (answer, _) = world.ask(&server, Verb::Refund, &[("d", "x", 4)]);
    assert_eq!(
        (answer.results[0].verdict, answer.results[0].remaining),
        (Verdict::Refunded(4), Some(994))
    );
}

#[test]
fn the_rule_decides_while_the_store_is_unavailable() {
    let world = World::new();
    let deny = counted("d", 9, Unit::Day, CounterLocation::StoreExact);
    let admit = Rule {
        on_unavailable: OnUnavailable::Admit,
        ..counted("t", 9, Unit::Day, CounterLocation::StoreExact)
    };
    let server = world.server(vec![deny, admit]);
    for (rule, admitted) in [("d", false), ("t", true)] {
        world.store.set_usual(Fate::Unreachable);
        let (answer, _) = world.ask(&server, Verb::Take, &[(rule, "x", 1)]);
        let Verdict::Unavailable { admitted: was_admitted, retry_after_ns } =
            answer.results[0].verdict
        else {
            panic!("{answer:?}");
        };
        // A denied caller receives the time to retry.
        assert_eq!((was_admitted, retry_after_ns.is_none()), (admitted, admitted));
    }
}

/// A real server counts the same. Windows are years, so that the test meets a border only at new
/// year.
#[test]
fn real_servers_answer_as_this_process_does() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let clock = MonotonicClock::new();
        let settings = SMALL;
        let store = real_store(&server, PATIENCE);
        let stored = Engine::with_store(clock, settings, None, Some(store));
        let of_years = |location| {
            rules(location).into_iter().map(move |rule| {
                let Limit::Counted(window) = rule.limit else { panic!() };
                let permits = u32::try_from(window.permits()).unwrap();
                let Rule { enforcement, quota, .. } = rule;
                Rule { enforcement, quota, ..counted(&rule.name, permits, Unit::Year, location) }
            })
        };
        stored.load(rule_set(of_years(CounterLocation::StoreExact).collect())).unwrap();
        let here_engine = Engine::new(clock, settings);
        here_engine.load(rule_set(of_years(CounterLocation::Here).collect())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ask = |verb, items: &[(&str, &str, u64)]| {
            runtime.block_on(decided(&stored, verb, items).answer()).unwrap()
        };
        let random = &mut Rng::with_seed(11);
        for step in 0..400 {
            let (verb, items) = random_items(random);
            let (answer, expected) = (ask(verb, &items), here(&here_engine, verb, &items));
            assert_eq!(answer.allowed, expected.allowed, "step {step}: {verb:?} {items:?}");
            for (result, expected) in answer.results.iter().zip(&expected.results) {
                assert_eq!(result.verdict.is_refusal(), expected.verdict.is_refusal(), "{step}");
                assert_eq!(result.remaining, expected.remaining, "step {step}: {verb:?} {items:?}");
            }
        }
    }
}
