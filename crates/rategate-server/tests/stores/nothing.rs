//! A denied request changes nothing, wherever its counters are: with leased permits, and without
//! the store.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use rategate::Clock;
use rategate_server::engine::{Decided, Item, Request, Target, Verb, Verdict};
use rategate_server::rule::{CounterLocation, Rule};
use rategate_testkit::faulty::Fate;

use crate::engine::common::{SECOND, bucket, per_minute};
use crate::stores::{BUDGET_NS, MS, World, decided, stored};

fn leased(permits: u64) -> Rule {
    let location = CounterLocation::StoreLeased { lease_ns: 100 * MS };
    Rule { location, ..per_minute("leased", &["who"], permits) }
}

/// Returns how many of a hundred calls for one permit of a rule pass.
fn passing(
    world: &World,
    server: &rategate_server::engine::Engine<rategate::ManualClock>,
    rule: &str,
) -> usize {
    (0..100).filter(|_| world.take(server, &[(rule, "x", 1)])).count()
}

#[test]
fn borrowed_permits_stay() {
    for full in [bucket("full", &["who"], 1), stored("full", 1)] {
        let world = World::new();
        let server = world.server(vec![leased(20), full]);
        assert!(world.take(&server, &[("full", "x", 1)]));
        for _ in 0..30 {
            assert!(!world.take(&server, &[("leased", "x", 1), ("full", "x", 1)]));
        }
        assert_eq!(passing(&world, &server, "leased"), 20);
    }
}

#[test]
fn what_is_kept_without_the_store_stays() {
    let world = World::new();
    let server = world.server(vec![
        Rule { location: CounterLocation::StoreExact, ..per_minute("alone", &["who"], 20) },
        bucket("full", &["who"], 1),
    ]);
    world.clock.set(Duration::from_nanos(world.clock.now_ns() + 180 * SECOND));
    world.store.set_usual(Fate::Unreachable);
    assert!(world.take(&server, &[("full", "x", 1)]));
    for _ in 0..30 {
        assert!(!world.take(&server, &[("alone", "x", 1), ("full", "x", 1)]));
    }
    assert_eq!(passing(&world, &server, "alone"), 10, "the part of one of two servers");
}

/// A cancelled answer has used none of the leased permits.
#[test]
fn borrowed_permits_of_abandoned_requests_stay() {
    let world = World::new();
    let server = world.server(vec![leased(20), stored("far", 5)]);
    assert!(world.take(&server, &[("leased", "x", 1)]));
    let slow = Fate::Slow { there_ns: MS, back_ns: 5 * MS };
    world.store.set_usual(slow);
    for _ in 0..30 {
        let Decided::Later(mut answer) =
            decided(&server, Verb::Take, &[("leased", "x", 1), ("far", "x", 1)])
        else {
            panic!("the store receives the request");
        };
        assert!(Pin::new(&mut answer).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(answer);
        for _ in 0..10 {
            world.clock.set(Duration::from_nanos(world.clock.now_ns() + MS));
        }
    }
    world.store.set_usual(Fate::Prompt);
    assert_eq!(passing(&world, &server, "leased"), 19);
    assert_eq!(world.left(&server, "far", "x"), Some(5));
}

/// Several stored items take no longer than one.
#[test]
fn a_request_has_one_budget() {
    let world = World::new();
    let names = ["a", "b", "c", "d"];
    let server = world.server(names.map(|name| stored(name, 5)).to_vec());
    let items = names.map(|name| (name, "x", 1));
    let slow = Fate::Slow { there_ns: 5 * MS, back_ns: 5 * MS };
    world.store.set_usual(slow);
    let (answer, took_ns) = world.ask(&server, Verb::Take, &items);
    assert!(answer.allowed && took_ns <= 11 * MS, "{took_ns}");
    // An item that never fits, and a reset one, report the key's status.
    let (answer, took_ns) = world.ask(&server, Verb::Take, &[("a", "x", 1), ("b", "x", 9)]);
    assert!(!answer.allowed && took_ns <= 11 * MS, "{took_ns}");
    assert_eq!(answer.results[1].remaining, Some(4));
    let (answer, took_ns) = world.ask(&server, Verb::Reset, &items);
    assert!(
        answer
            .results
            .iter()
            .all(|result| result.verdict == Verdict::Reset && result.remaining == Some(5))
    );
    assert!(took_ns <= 11 * MS, "{took_ns}");
    world.store.set_usual(Fate::ReplyLost);
    let (_, took_ns) = world.ask(&server, Verb::Take, &items);
    assert!(took_ns <= BUDGET_NS, "{took_ns}");
}

/// A request is over only if all its quotas are, wherever they are.
#[test]
fn quotas_in_both_places() {
    let quota = |rule: Rule| Rule { quota: true, ..rule };
    for (far, here) in [(1, 3), (3, 1)] {
        let world = World::new();
        let rules = vec![
            quota(stored("far", far)),
            quota(bucket("here", &["who"], here)),
            bucket("hard", &["who"], 9),
        ];
        let server = world.server(rules);
        let all = [("far", "x", 1), ("here", "x", 1), ("hard", "x", 1)];
        let passed: Vec<bool> = (0..4).map(|_| world.take(&server, &all)).collect();
        assert_eq!(passed, [true, true, true, false], "{far} {here}");
        assert_eq!(world.left(&server, "hard", "x"), Some(6));
        assert_eq!(world.left(&server, "far", "x"), Some(0));
    }
}

/// Refunds of a request that a store denies are not made.
#[test]
fn nothing_goes_back_in_a_denied_request() {
    let world = World::new();
    let server = world.server(vec![stored("far", 1), bucket("here", &["who"], 5)]);
    assert!(world.take(&server, &[("far", "x", 1), ("here", "x", 4)]));
    let values: [&[u8]; 1] = [b"x"];
    let target = |name| Target::Rule { name, values: &values };
    let back = Item { refund: true, ..Item::of(target("here"), 2) };
    let items = [back, Item::of(target("far"), 1)];
    let request = Request { verb: Verb::Take, items: &items, counts_denied: false };
    let Decided::Now(Ok(answer)) = server.decide(&request) else { panic!() };
    assert!(!answer.allowed);
    assert_eq!(answer.results[0].verdict, Verdict::Refunded(0));
    assert_eq!(world.left(&server, "here", "x"), Some(1));
}

/// The permits that this server has leased are not what is left of the limit.
#[test]
fn borrowed_permits_are_not_reported_as_remaining() {
    let world = World::new();
    let server = world.server(vec![leased(1000)]);
    let (answer, _) = world.ask(&server, Verb::Take, &[("leased", "x", 1)]);
    assert_eq!((answer.allowed, answer.results[0].remaining), (true, None));
    assert_eq!(world.left(&server, "leased", "x"), Some(999), "the store knows");
}

/// Envoy's setting to count denied requests applies to counters in a store too.
#[test]
fn what_is_denied_is_counted_if_it_shall() {
    let world = World::new();
    let server = world.server(vec![stored("far", 5), bucket("full", &["who"], 1)]);
    let values: [&[u8]; 1] = [b"x"];
    let target = |name| Target::Rule { name, values: &values };
    let items = [Item::of(target("far"), 1), Item::of(target("full"), 2)];
    for (counts_denied, left) in [(false, 5), (true, 4)] {
        let request = Request { verb: Verb::Take, items: &items, counts_denied };
        let Decided::Now(Ok(answer)) = server.decide(&request) else { panic!() };
        assert!(!answer.allowed);
        assert_eq!(world.left(&server, "far", "x"), Some(left));
    }
}
