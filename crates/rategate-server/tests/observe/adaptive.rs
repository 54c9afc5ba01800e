//! Adaptive limits in metrics, in the answers about keys and rules, and in what the page reads.

use std::time::Duration;

use rategate::adaptive::Outcome;
use rategate_server::config::load_text;
use rategate_server::engine::{Lease, LeaseVerb, UniqueId};
use serde_json::json;

use crate::engine::common::now;
use crate::observe::common::Bench;
use crate::observe::metrics::Scrape;

fn bench() -> Bench {
    let rules = r#"
        [[rule]]
        name = "calls"
        algorithm = "concurrency"
        limit = 100
        adaptive = { floor = 2, first = 4, method = "aimd" }

        [[rule]]
        name = "users"
        match = ["user"]
        algorithm = "concurrency"
        limit = 100
        adaptive = { floor = 1, first = 2, method = "aimd" }

        [[rule]]
        name = "fixed"
        algorithm = "concurrency"
        limit = 3
    "#;
    Bench::new(load_text("a.toml", rules).unwrap().rules.set().as_ref().clone())
}

fn lease(bench: &Bench, verb: LeaseVerb, nth: u8, (rule, values): (&str, &[&[u8]])) -> bool {
    let lease = Lease { name: UniqueId([nth; 16]), rule, values, permits: 1 };
    now(bench.engine.lease(verb, &lease)).unwrap().allowed
}

/// Returns the value of a series, if it is there.
fn of(scrape: &Scrape, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let labels = labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned()));
    scrape.values.get(&(name.to_owned(), labels.collect())).copied()
}

const CALLS: (&str, &[&[u8]]) = ("calls", &[]);
const ANN: (&str, &[&[u8]]) = ("users", &[b"ann"]);

/// Four calls of 20 ms that are served, and two that are dropped.
fn some(bench: &Bench) {
    for nth in 1..=4 {
        assert!(lease(bench, LeaseVerb::Take, nth, CALLS));
    }
    bench.clock.advance(Duration::from_millis(20));
    for nth in 1..=4 {
        lease(bench, LeaseVerb::Release(Outcome::Served), nth, CALLS);
    }
    for nth in 5..=6 {
        assert!(lease(bench, LeaseVerb::Take, nth, CALLS));
        bench.clock.advance(Duration::from_millis(20));
        lease(bench, LeaseVerb::Release(Outcome::Dropped), nth, CALLS);
    }
    assert!(lease(bench, LeaseVerb::Take, 7, ANN));
    lease(bench, LeaseVerb::Release(Outcome::Dropped), 7, ANN);
}

#[test]
fn metrics_have_the_limit_and_the_reasons_of_its_changes() {
    let bench = bench();
    some(&bench);
    assert!(lease(&bench, LeaseVerb::Take, 8, CALLS));
    let scrape = Scrape::read(&bench.call("GET", "/metrics", "").1);
    let now = bench.engine.adaptive("calls", &[]).unwrap();
    let (limit, in_flight) = (now.limit, now.in_flight);
    assert!(limit > 4 && in_flight == 1, "{now:?}");
    let one = |name: &str| of(&scrape, name, &[("rule", "calls")]);
    assert_eq!(one("rategate_adaptive_limit"), Some(f64::from(u32::try_from(limit).unwrap())));
    assert_eq!(one("rategate_adaptive_in_flight"), Some(1.0));
    assert_eq!(one("rategate_adaptive_base_seconds"), None);
    let sample = |rule, outcome| {
        of(&scrape, "rategate_adaptive_samples_total", &[("rule", rule), ("outcome", outcome)])
    };
    assert_eq!(
        ["served", "dropped", "ignored"].map(|outcome| sample("calls", outcome)),
        [Some(4.0), Some(2.0), Some(0.0)]
    );
    let change = |rule, reason| {
        of(&scrape, "rategate_adaptive_changes_total", &[("rule", rule), ("reason", reason)])
    };
    assert!(change("calls", "reached") > Some(0.0));
    assert_eq!([change("calls", "dropped"), change("calls", "queue")], [Some(2.0), Some(0.0)]);
    // A rule with a counter for each key has counts alone; one that is fixed has nothing.
    assert_eq!(of(&scrape, "rategate_adaptive_limit", &[("rule", "users")]), None);
    assert_eq!((sample("users", "dropped"), change("users", "dropped")), (Some(1.0), Some(1.0)));
    assert_eq!((sample("fixed", "served"), change("fixed", "reached")), (None, None));
}

#[test]
fn a_denial_says_that_the_limit_is_adaptive_and_why_it_changed() {
    let bench = bench();
    some(&bench);
    bench.clock.advance(Duration::from_secs(3));
    let now = bench.engine.adaptive("calls", &[]).unwrap();
    let limit = u8::try_from(now.limit).unwrap();
    for nth in 0..limit {
        assert!(lease(&bench, LeaseVerb::Take, 20 + nth, CALLS));
    }
    let status = bench.json("/v1/keys/calls");
    let sentence = format!(
        "Denied: all {limit} permits that an adaptive limit of 2 to 100 allows now are in flight. \
         It was cut from {} to {limit} as too much was dropped, 3.0 s ago. One fits when a call \
         ends, in 1 min 0 s at the latest.",
        limit + 1
    );
    assert_eq!(status["sentence"], sentence);
    assert_eq!(status["limit_permits"], limit);
    let adaptive = &status["adaptive"];
    assert_eq!((&adaptive["floor"], &adaptive["ceiling"]), (&2.into(), &100.into()));
    assert_eq!((&adaptive["limit"], &adaptive["in_flight"]), (&limit.into(), &limit.into()));
    assert!(adaptive["base_ns"].is_null());
    assert_eq!(adaptive["last_change"]["reason"], "dropped");
    assert_eq!(adaptive["last_change"]["ago_ms"], 3_000);
    assert!(bench.json("/v1/keys/fixed")["adaptive"].is_null());
    let rules = bench.json("/v1/rules");
    let live = rules["rules"].as_array().unwrap().iter().find(|rule| rule["name"] == "calls");
    let live = live.unwrap();
    assert_eq!(live["limit"], "2 to 100 at a time in all, adaptive");
    assert_eq!((&live["adaptive"]["limit"], &live["in_flight"]), (&limit.into(), &limit.into()));
}

/// The page reads the limit, what is in flight, the latency and the reasons, second by second.
#[test]
fn a_quarter_of_an_hour_of_the_limit_is_kept() {
    let bench = bench();
    let second = || {
        bench.second();
        bench.observe.tick_adaptive(&bench.engine);
    };
    second();
    some(&bench);
    second();
    bench.observe.tick_adaptive(&bench.engine);
    assert!(lease(&bench, LeaseVerb::Take, 9, CALLS));
    second();
    let limit = bench.engine.adaptive("calls", &[]).unwrap().limit;
    let curve = &bench.json("/v1/rules?rule=calls")["detail"]["adaptive"];
    assert_eq!(curve["limit_permits"], json!([4, limit, limit]));
    assert_eq!(curve["in_flight_permits"], json!([0, 0, 1]));
    assert_eq!(curve["latency_us"], json!([null, 20_000, null]), "of what was served");
    assert_eq!(curve["reasons"], json!([null, "dropped", null]), "the last one of the second");
    let at_s = curve["at_s"].as_array().unwrap().iter().map(|at| at.as_u64().unwrap());
    let at_s: Vec<u64> = at_s.collect();
    assert!(at_s.windows(2).all(|pair| pair[1] == pair[0] + 1), "{at_s:?}");
    for _ in 0..1_000 {
        second();
    }
    let curve = &bench.json("/v1/rules?rule=calls")["detail"]["adaptive"];
    assert_eq!(curve["at_s"].as_array().unwrap().len(), 900);
    for rule in ["users", "fixed"] {
        let detail = &bench.json(&format!("/v1/rules?rule={rule}"))["detail"];
        assert!(detail["adaptive"].is_null(), "{rule}");
    }
}
