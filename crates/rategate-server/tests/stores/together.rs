//! Several servers, and several items: one limit, all or nothing.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use rategate_server::engine::{Decided, Item, Request, Target, Verb, Verdict};
use rategate_server::rule::{CounterLocation, Enforcement, Rule};
use rategate_testkit::faulty::Fate;

use crate::engine::common::{SECOND, bucket, per_minute};
use crate::stores::{MS, World, decided, stored};

/// A grant of one server is not granted again by the other, and each reports what is left.
#[test]
fn servers_share_a_limit() {
    let world = World::new();
    let [one, two] = [(); 2].map(|()| world.server(vec![stored("s", 5)]));
    let (answer, _) = world.ask(&one, Verb::Take, &[("s", "ann", 3)]);
    assert_eq!(
        (answer.allowed, answer.results[0].remaining, answer.results[0].limit),
        (true, Some(2), 5)
    );
    assert_eq!(answer.results[0].reset_after_ns, 3 * SECOND);
    let (answer, _) = world.ask(&two, Verb::Take, &[("s", "ann", 3)]);
    assert!(!answer.allowed);
    let Verdict::Denied { retry_after_ns, enforced: true } = answer.results[0].verdict else {
        panic!()
    };
    assert_eq!(retry_after_ns.map(u64::from), Some(SECOND));
    assert_eq!(answer.results[0].remaining, Some(2));
    assert!(world.take(&two, &[("s", "bob", 5)]), "each key on its own");
    assert_eq!(world.left(&one, "s", "ann"), Some(2));
    // More than ever passes.
    let (answer, _) = world.ask(&one, Verb::Take, &[("s", "ann", 6)]);
    assert_eq!(answer.results[0].verdict, Verdict::Denied { retry_after_ns: None, enforced: true });
    let _ = world.ask(&two, Verb::Reset, &[("s", "ann", 1)]);
    assert_eq!(world.left(&one, "s", "ann"), Some(5));
    // A refund is credited on the caller's word, up to full, through any server.
    assert!(world.take(&one, &[("s", "ann", 5)]));
    let back =
        |permits| world.ask(&two, Verb::Refund, &[("s", "ann", permits)]).0.results[0].clone();
    let result = back(2);
    assert_eq!((result.verdict, result.remaining), (Verdict::Refunded(2), Some(2)));
    assert_eq!(back(u64::MAX).verdict, Verdict::Refunded(3));
    assert_eq!(back(1).verdict, Verdict::Refunded(0));
    assert_eq!(world.left(&one, "s", "ann"), Some(5));
}

/// Only rules with the same name and key share a counter.
#[test]
fn rules_keep_apart() {
    let world = World::new();
    let server = world.server(vec![stored("a", 5), stored("ab", 5)]);
    assert!(world.take(&server, &[("a", "bc", 5)]));
    assert!(world.take(&server, &[("ab", "c", 5)]));
}

/// If any item is over, wherever it is, nothing is taken from the others.
#[test]
fn all_or_nothing_over_stores_and_tables() {
    let world = World::new();
    let server = world.server(vec![stored("s", 5), stored("t", 2), bucket("here", &["who"], 3)]);
    let all = |s, t, here| [("s", "x", s), ("t", "x", t), ("here", "x", here)];
    let left = || ["s", "t", "here"].map(|rule| world.left(&server, rule, "x").unwrap());
    assert!(world.take(&server, &all(1, 1, 1)));
    assert_eq!(left(), [4, 1, 2]);
    for (s, t, here, by) in [(1, 2, 1, 1), (1, 1, 3, 2), (5, 1, 1, 0), (1, 9, 1, 1)] {
        let (answer, _) = world.ask(&server, Verb::Take, &all(s, t, here));
        assert!(!answer.allowed, "{s} {t} {here}");
        assert!(answer.results[by].verdict.is_over());
        let reported: Vec<_> =
            answer.results.iter().map(|result| result.remaining.unwrap()).collect();
        assert_eq!(reported, [4, 1, 2], "what is left, as nothing was taken");
        assert_eq!(left(), [4, 1, 2], "{s} {t} {here}");
    }
    assert!(world.take(&server, &all(4, 1, 2)));
}

/// A shadow rule denies nothing, and a replaced one is not submitted.
#[test]
fn shadows_and_replaced() {
    let world = World::new();
    let shadow = Rule { enforcement: Enforcement::Shadow, ..stored("shadow", 1) };
    let wins = Rule { replaces: vec!["s".into(), "here".into()], ..stored("wins", 9) };
    let server = world.server(vec![shadow, stored("s", 5), wins, per_minute("here", &["who"], 5)]);
    for _ in 0..3 {
        assert!(world.take(&server, &[("shadow", "x", 1), ("s", "x", 1)]));
    }
    assert_eq!(world.left(&server, "s", "x"), Some(2));
    let (answer, _) =
        world.ask(&server, Verb::Take, &[("s", "x", 3), ("here", "x", 3), ("wins", "x", 3)]);
    assert!(answer.allowed);
    let verdicts = [0, 1, 2].map(|result| answer.results[result].verdict);
    assert_eq!(verdicts, [Verdict::Replaced, Verdict::Replaced, Verdict::Granted]);
    assert_eq!(
        (world.left(&server, "s", "x"), world.left(&server, "here", "x")),
        (Some(2), Some(5))
    );
}

/// A cancelled answer has taken nothing in the end.
#[test]
fn the_answer_of_an_abandoned_request_is_refunded() {
    let world = World::new();
    let server = world.server(vec![stored("s", 5), stored("t", 5)]);
    let slow = Fate::Slow { there_ns: MS, back_ns: 5 * MS };
    let slower = Fate::Slow { there_ns: MS, back_ns: 12 * MS };
    let cases =
        [([slow, slow], 3), ([Fate::Prompt, slow], 2), ([slow, slower], 9), ([slower, slow], 9)];
    for (courses, waits) in cases {
        world.store.script(courses);
        let Decided::Later(mut answer) =
            decided(&server, Verb::Take, &[("s", "x", 3), ("t", "x", 3)])
        else {
            panic!("the store receives the request");
        };
        for _ in 0..waits {
            let mut context = Context::from_waker(Waker::noop());
            assert!(Pin::new(&mut answer).poll(&mut context).is_pending());
            world.clock.set(Duration::from_nanos(rategate::Clock::now_ns(&world.clock) + MS));
        }
        drop(answer);
        // The refund is in flight for a while, too.
        for _ in 0..5 {
            world.clock.set(Duration::from_nanos(rategate::Clock::now_ns(&world.clock) + 10 * MS));
        }
        let left = ["s", "t"].map(|rule| world.left(&server, rule, "x"));
        assert_eq!(left, [Some(5); 2], "{courses:?}, for {waits} ms");
    }
}

/// Leased permits are granted without the store, and never more than the limit in all.
#[test]
fn leases_are_borrowed() {
    let world = World::new();
    let leased = || {
        let location = CounterLocation::StoreLeased { lease_ns: 100 * MS };
        Rule { location, ..per_minute("l", &["who"], 50) }
    };
    let [one, two] = [(); 2].map(|()| world.server(vec![leased()]));
    let mut granted = 0;
    for round in 0..200 {
        granted +=
            u64::from(world.take(if round % 3 == 0 { &one } else { &two }, &[("l", "x", 1)]));
    }
    assert!(granted <= 50, "{granted}");
    assert!(granted >= 40, "{granted}");
}

/// Of two rules for the same calls one is in the store, and one here: both or none.
#[test]
fn rules_on_one_match_are_checked_wherever_they_are() {
    let world = World::new();
    let mut here = bucket("here", &["who"], 3);
    here.entries[0].key = "s".into();
    let server = world.server(vec![stored("s", 5)]);
    let both = vec![here, {
        let mut s = stored("s", 5);
        s.entries[0].key = "s".into();
        s
    }];
    server.load(rategate_server::rule::RuleSet { rules: both, hash: "both".into() }).unwrap();
    let ask = |permits| {
        let entries = [(b"s".as_slice(), b"x".as_slice())];
        let target = Target::Descriptor { domain: "d", entries: &entries, limit: None };
        let items = [Item::of(target, permits)];
        let decided =
            server.decide(&Request { verb: Verb::Take, items: &items, counts_denied: false });
        let Decided::Now(answer) = decided else { panic!("the store answers at once") };
        let answer = answer.unwrap();
        (answer.allowed, answer.results.len(), answer.results[0].remaining)
    };
    assert_eq!(ask(2), (true, 1, Some(1)));
    assert_eq!(ask(2), (false, 1, Some(1)), "here there is one left");
    assert_eq!(world.left(&server, "s", "x"), Some(3), "and the store has its two back");
}

/// Items that are all quotas: a request is over only if all of them are, wherever they are. One
/// that another rule replaces is not.
#[test]
fn items_that_count_as_quotas_deny_only_together() {
    let world = World::new();
    let wins = Rule { replaces: vec!["t".into()], ..stored("wins", 1) };
    let server =
        world.server(vec![stored("s", 1), stored("t", 9), wins, per_minute("here", &["who"], 1)]);
    let passes = |rules: &[&str]| {
        let item = |name| {
            let target = Target::Rule { name, values: &[b"x"] };
            Item { quota: true, ..Item::of(target, 1) }
        };
        let items: Vec<Item<'_>> = rules.iter().copied().map(item).collect();
        let request = Request { verb: Verb::Take, items: &items, counts_denied: false };
        let Decided::Now(answer) = server.decide(&request) else { panic!("it answers at once") };
        answer.unwrap().allowed
    };
    assert!(passes(&["s", "wins"]) && !passes(&["s", "wins"]), "both are in the store");
    assert!(passes(&["s", "here"]), "there is one left here");
    assert!(!passes(&["s", "here"]));
    assert!(passes(&["wins", "t"]), "the replaced one is not over");
    assert!(passes(&["s", "t"]));
}
