//! An unavailable store: answers within the budget, as each rule says, and recovery.

use std::time::Duration;

use rategate::Clock;
use rategate::distributed::StoreStatus;
use rategate_server::engine::{Verb, Verdict};
use rategate_server::protocol::rls::descriptor_status;
use rategate_server::rule::{OnUnavailable, Rule};
use rategate_testkit::faulty::Fate;

use crate::engine::common::{SECOND, bucket};
use crate::stores::{BUDGET_NS, MS, World, stored};

#[test]
fn each_rule_says_what_is_answered() {
    for course in [Fate::RequestLost, Fate::ReplyLost, Fate::Unreachable, Fate::Unable] {
        let world = World::new();
        let rule = |name, on_unavailable| Rule { on_unavailable, ..stored(name, 4) };
        let server = world.server(vec![
            rule("deny", OnUnavailable::Deny),
            rule("admit", OnUnavailable::Admit),
            rule("local", OnUnavailable::Local),
            bucket("here", &["who"], 4),
        ]);
        // A new process enforces no limit alone before the previous process' grants have expired.
        world.clock.set(Duration::from_nanos(world.clock.now_ns() + 10 * SECOND));
        assert!(world.take(&server, &[("deny", "x", 1)]));
        world.store.set_usual(course);
        let (mut passed, mut slow) = ([0; 3], 0);
        for _ in 0..40 {
            for (index, rule) in ["deny", "admit", "local"].into_iter().enumerate() {
                let (answer, took_ns) = world.ask(&server, Verb::Take, &[(rule, "x", 1)]);
                assert!(took_ns <= BUDGET_NS, "{rule}, {course:?}: {took_ns}");
                slow += u64::from(took_ns > 0);
                passed[index] += u64::from(answer.allowed);
                match rule {
                    "deny" => {
                        let verdict = answer.results[0].verdict;
                        assert!(matches!(verdict, Verdict::Unavailable { admitted: false, .. }));
                        // Every denial has a retry time, also before the circuit breaker opens.
                        let wait_ns = verdict.retry_after_ns().unwrap().get();
                        assert!(wait_ns <= 5 * SECOND, "{wait_ns}, {course:?}");
                        let status = descriptor_status(&answer.results[0]);
                        let reset_s = status.duration_until_reset.unwrap().seconds;
                        assert_eq!(reset_s.unsigned_abs(), wait_ns.div_ceil(SECOND));
                    }
                    "admit" => {
                        let admitted =
                            Verdict::Unavailable { admitted: true, retry_after_ns: None };
                        assert_eq!(answer.results[0].verdict, admitted);
                    }
                    _ => {}
                }
            }
            assert!(world.take(&server, &[("here", "y", 0)]), "what is here goes on");
        }
        let [deny, admit, local] = passed;
        assert_eq!((deny, admit), (0, 40), "{course:?}");
        assert!(
            (2..=4).contains(&local),
            "half of the bucket, and what it earns: {local}, {course:?}"
        );
        assert!(slow <= 30, "{slow} calls waited for nothing");
        let health = server.stores();
        assert!(
            health.iter().all(|(_, health)| health.store_status == StoreStatus::Unavailable),
            "{health:?}"
        );
        assert_eq!(health.len(), 3);
        // The store is back, and is tried again.
        world.store.set_usual(Fate::Prompt);
        world.clock.set(Duration::from_nanos(world.clock.now_ns() + 10 * SECOND));
        for rule in ["deny", "admit", "local"] {
            let _ = world.ask(&server, Verb::Peek, &[(rule, "x", 1)]);
            world.clock.set(Duration::from_nanos(world.clock.now_ns() + 10 * MS));
            assert!(world.take(&server, &[(rule, "z", 4)]), "{rule}");
            assert!(!world.take(&server, &[(rule, "z", 1)]), "{rule}: the limit holds again");
        }
        assert!(
            server.stores().iter().all(|(_, health)| health.store_status == StoreStatus::Healthy)
        );
    }
}

/// A peek takes nothing from the local fallback either.
#[test]
fn a_peek_takes_nothing_without_the_store() {
    let world = World::new();
    let server = world.server(vec![stored("local", 4)]);
    world.clock.set(Duration::from_nanos(world.clock.now_ns() + 10 * SECOND));
    world.store.set_usual(Fate::Unreachable);
    for _ in 0..10 {
        assert_eq!(world.left(&server, "local", "x"), Some(2));
    }
    assert!(world.take(&server, &[("local", "x", 2)]));
    assert!(!world.take(&server, &[("local", "x", 1)]));
}

/// The effect of a refund on the store is unknown: the answer is 0, without an error.
#[test]
fn nothing_goes_back_without_the_store() {
    for course in [Fate::RequestLost, Fate::ReplyLost, Fate::Unreachable, Fate::Unable] {
        let world = World::new();
        let server = world.server(vec![stored("local", 4)]);
        assert!(world.take(&server, &[("local", "x", 3)]));
        world.store.set_usual(course);
        for _ in 0..3 {
            let (answer, _) = world.ask(&server, Verb::Refund, &[("local", "x", 2)]);
            assert_eq!(answer.results[0].verdict, Verdict::Refunded(0), "{course:?}");
        }
    }
}

/// Without a store for a rule that needs one, the rules are refused, and the previous ones stay.
#[test]
fn a_rule_without_a_store_is_refused() {
    let (engine, _) = crate::engine::common::engine(vec![bucket("b", &["who"], 1)]);
    let refused = engine.load(crate::engine::common::set(vec![stored("s", 4)])).unwrap_err();
    assert_eq!(refused.to_string(), "rule `s` cannot be kept in a store: no store is configured");
    assert_eq!(engine.rules().unwrap().rules[0].name.as_ref(), "b");
}

/// Counters that move to the store, or back, start afresh, and the rule is reported as restarted.
#[test]
fn a_rule_that_moves_begins_anew_and_says_so() {
    let world = World::new();
    let here = || bucket("r", &["who"], 4);
    let server = world.server(vec![here()]);
    assert!(world.take(&server, &[("r", "x", 3)]));
    for (rule, left) in [(stored("r", 4), 4), (here(), 4)] {
        let loaded = server.load(crate::stores::rule_set(vec![rule])).unwrap();
        assert_eq!((loaded.restarted.len(), loaded.kept.len()), (1, 0));
        assert_eq!(world.left(&server, "r", "x"), Some(left));
        assert!(world.take(&server, &[("r", "x", 3)]));
    }
}

/// Unknown keys that find the table full do not displace known ones.
#[test]
fn a_flood_of_keys_leaves_the_others_alone() {
    let world = World::new();
    let rule = Rule {
        max_keys: Some(20),
        ..crate::stores::in_flight("oven", 2, rategate_server::rule::CounterLocation::Here)
    };
    let server = world.server(vec![rule]);
    assert!(world.take(&server, &[("oven", "known", 1)]));
    let passed =
        (0..200).filter(|key| world.take(&server, &[("oven", &format!("k{key}"), 1)])).count();
    assert_eq!(passed, 19, "as many keys as fit");
    assert!(world.take(&server, &[("oven", "known", 1)]), "as there is a permit left");
    assert!(server.stores().iter().all(|(_, health)| health.store_status == StoreStatus::Healthy));
    // Permits in flight stay held when the limit changes.
    let wider = crate::stores::in_flight("oven", 3, rategate_server::rule::CounterLocation::Here);
    server.load(crate::stores::rule_set(vec![wider])).unwrap();
    assert_eq!(world.left(&server, "oven", "known"), Some(1));
}

/// The local fallback has capacity for as many keys as the rule says.
#[test]
fn a_flood_without_the_store_has_a_bound() {
    let world = World::new();
    let rule = Rule { max_keys: Some(20), ..stored("s", 4) };
    let server = world.server(vec![rule]);
    world.clock.set(Duration::from_nanos(world.clock.now_ns() + 10 * SECOND));
    world.store.set_usual(Fate::Unreachable);
    let passed =
        (0..200).filter(|key| world.take(&server, &[("s", &format!("k{key}"), 1)])).count();
    assert!((20..30).contains(&passed), "{passed}");
}

/// Each rule that leases has a thread, so their number is bounded.
#[test]
fn rules_that_borrow_have_a_bound() {
    let world = World::new();
    let server = world.server(vec![bucket("b", &["who"], 1)]);
    let location = rategate_server::rule::CounterLocation::StoreLeased { lease_ns: 100 * MS };
    let rules = (0..1025).map(|nth| Rule { location, ..stored(&format!("r{nth}"), 4) });
    let refused = server.load(crate::stores::rule_set(rules.collect())).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "rule `r1024` cannot be kept in a store: at most 1024 rules can lease from a store"
    );
    assert_eq!(server.rules().unwrap().rules.len(), 1);
}
