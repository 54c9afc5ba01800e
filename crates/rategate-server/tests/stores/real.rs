//! A real server, which is killed and comes back.

use std::time::{Duration, Instant};

use rategate::{Clock, MonotonicClock};
use rategate_redis::client::DEFAULT_BUDGET;
use rategate_server::engine::{Answer, Engine, Lease, LeaseVerb, UniqueId, Verb, Verdict};
use rategate_server::rule::{CounterLocation, OnUnavailable, Rule};

use crate::engine::common::{SECOND, SMALL};
use crate::stores::{PATIENCE, decided, in_flight, real_store, rule_set, stored};
use rategate_testkit::redis::{Brand, Server};

/// Returns the answer, and the time that it took.
fn ask(
    runtime: &tokio::runtime::Runtime,
    engine: &Engine,
    verb: Verb,
    item: (&str, &str, u64),
) -> (Answer, Duration) {
    let begun = Instant::now();
    let answer = runtime.block_on(decided(engine, verb, &[item]).answer()).unwrap();
    (answer, begun.elapsed())
}

fn eventually(within: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < within, "{what}: not within {within:?}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn a_server_that_is_killed_and_comes_back() {
    let Some(brand) = Brand::installed().into_iter().next() else { return };
    let mut server = Server::start(brand);
    let store = real_store(&server, DEFAULT_BUDGET);
    let rule = |name, on_unavailable| Rule { on_unavailable, ..stored(name, 4) };
    let rules = vec![
        rule("deny", OnUnavailable::Deny),
        rule("admit", OnUnavailable::Admit),
        rule("local", OnUnavailable::Local),
    ];
    let clock = MonotonicClock::new();
    let engine = Engine::with_store(clock, SMALL, None, Some(store));
    engine.load(rule_set(rules)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let take = |rule: &str, key: &str| ask(&runtime, &engine, Verb::Take, (rule, key, 1));

    let granted = (0..6).filter(|_| take("deny", "x").0.allowed).count();
    assert!((4..=5).contains(&granted), "{granted}");

    server.kill();
    let mut took = Vec::new();
    for _ in 0..30 {
        for (rule, admitted) in [("deny", false), ("admit", true)] {
            let (answer, time) = take(rule, "y");
            took.push(time);
            assert!(
                matches!(
                    answer.results[0].verdict,
                    Verdict::Unavailable { admitted: was_admitted, .. } if was_admitted == admitted
                ),
                "{rule}: {:?}",
                answer.results[0].verdict
            );
        }
        took.push(take("local", "y").1);
    }
    took.sort_unstable();
    // The budget is 20 ms; a busy machine may wake its threads late.
    let median = took[took.len() / 2];
    assert!(median <= Duration::from_millis(25), "{median:?}");
    assert!(took[took.len() - 1] < Duration::from_millis(500), "{:?}", took.last());

    server.restart_empty();
    eventually(Duration::from_secs(20), "it is tried again", || {
        let (answer, _) = take("deny", &format!("after {:?}", engine.clock().now_ns()));
        answer.results[0].verdict == Verdict::Granted
    });
}

/// Refunded permits and released leases are available again, with each kind of server.
#[test]
fn refunded_and_released_permits_are_available_again() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let store = real_store(&server, PATIENCE);
        let settings = SMALL;
        let engine = Engine::with_store(MonotonicClock::new(), settings, None, Some(store));
        // Nothing recovers by itself meanwhile.
        let slow = rategate::Gcra::new("1/h".parse().unwrap(), 4).unwrap();
        let limit = rategate_server::rule::Limit::Policy(slow.into());
        let rules = vec![
            Rule { limit, on_unavailable: OnUnavailable::Deny, ..stored("slow", 4) },
            Rule { held_ns: 3_600 * SECOND, ..in_flight("oven", 2, CounterLocation::StoreExact) },
        ];
        engine.load(rule_set(rules)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let verdict = |verb, permits| {
            ask(&runtime, &engine, verb, ("slow", "x", permits)).0.results[0].verdict
        };
        assert_eq!(verdict(Verb::Refund, 1), Verdict::Refunded(0), "nothing has been taken");
        assert_eq!(verdict(Verb::Take, 3), Verdict::Granted);
        assert_eq!(verdict(Verb::Refund, 2), Verdict::Refunded(2));
        assert_eq!(verdict(Verb::Take, 3), Verdict::Granted);
        assert!(verdict(Verb::Take, 1).is_over());
        assert_eq!(verdict(Verb::Refund, u64::MAX), Verdict::Refunded(4), "up to full");
        assert_eq!(verdict(Verb::Refund, 0), Verdict::Refunded(0));
        assert_eq!(verdict(Verb::Take, 4), Verdict::Granted);

        let name = UniqueId::random();
        let lease = |verb| {
            let lease = Lease { name, rule: "oven", values: &[b"x"], permits: 2 };
            let answer = runtime.block_on(engine.lease(verb, &lease).answer()).unwrap();
            (answer.results[0].verdict, answer.held_ns().is_some())
        };
        for verb in [LeaseVerb::Take, LeaseVerb::Take, LeaseVerb::Renew] {
            assert_eq!(lease(verb), (Verdict::Granted, true), "{verb:?}");
        }
        let oven = |verb| ask(&runtime, &engine, verb, ("oven", "x", 1)).0.results[0].verdict;
        assert!(oven(Verb::Take).is_over());
        assert_eq!(oven(Verb::Refund), Verdict::Refunded(0), "it is released instead");
        assert_eq!(lease(LeaseVerb::Release), (Verdict::Refunded(2), false));
        assert_eq!(lease(LeaseVerb::Release), (Verdict::Refunded(0), false));
        assert!(lease(LeaseVerb::Renew).0.is_over());
        assert_eq!(oven(Verb::Take), Verdict::Granted);
    }
}
