//! Shares of limits in metrics, in the answers about keys, and in the last denials.

use std::time::Duration;

use rategate::adaptive::Outcome;
use rategate_server::config::load_text;
use rategate_server::engine::{Lease, LeaseVerb, UniqueId};

use crate::engine::common::now;
use crate::observe::common::Bench;

const RULES: &str = r#"
    [[rule]]
    name = "fixed"
    algorithm = "concurrency"
    limit = 10
    match = ["backend", { key = "priority", shares = { crawler = "60%", "*" = "90%" } }]

    [[rule]]
    name = "shadow"
    algorithm = "concurrency"
    limit = 1
    enforce = "shadow"
    match = [{ key = "priority", shares = { crawler = "60%" } }]

    [[rule]]
    name = "found"
    algorithm = "concurrency"
    limit = 100
    adaptive = { floor = 2, first = 4, method = "aimd" }
    match = [{ key = "priority", shares = { crawler = "50%" } }]
"#;

fn bench() -> Bench {
    Bench::new(load_text("a.toml", RULES).unwrap().rules.set().as_ref().clone())
}

fn lease(bench: &Bench, verb: LeaseVerb, nth: u8, (rule, values): (&str, &[&[u8]])) -> bool {
    let lease = Lease { name: UniqueId([nth; 16]), rule, values, permits: 1 };
    now(bench.engine.lease(verb, &lease)).unwrap().allowed
}

fn take(bench: &Bench, nth: u8, of: (&str, &[&[u8]])) -> bool {
    lease(bench, LeaseVerb::Take, nth, of)
}

#[test]
fn a_denial_says_which_share_is_full() {
    let bench = bench();
    let crawler: (&str, &[&[u8]]) = ("fixed", &[b"a", b"crawler"]);
    let other: (&str, &[&[u8]]) = ("fixed", &[b"a"]);
    assert!((1..=6).all(|nth| take(&bench, nth, crawler)) && !take(&bench, 7, crawler));
    let status = bench.json("/v1/keys/fixed/a/crawler");
    assert_eq!(
        status["sentence"],
        "Denied: 6 permits or more are in flight, 60% of the limit. One fits when fewer than 6 \
         are, in 1 min 0 s at the latest."
    );
    assert_eq!((&status["share"], &status["limit_permits"]), (&"60%".into(), &6.into()));
    // The key of its counter alone is shown as the others see it.
    let status = bench.json("/v1/keys/fixed/a");
    assert_eq!((&status["share"], &status["remaining_permits"]), (&"90%".into(), &3.into()));
    assert!((7..=9).all(|nth| take(&bench, nth, other)) && !take(&bench, 10, other));
    let detail = &bench.json("/v1/rules?rule=fixed")["detail"];
    let denial = &detail["denials"][0];
    assert_eq!((&denial["share"], &denial["key"]), (&"60%".into(), &"a".into()));
    let rules = bench.json("/v1/rules");
    let live =
        rules["rules"].as_array().unwrap().iter().find(|rule| rule["name"] == "fixed").unwrap();
    assert_eq!(live["limit"], "10 at a time for each key, in shares by priority");
}

#[test]
fn a_share_of_an_adaptive_limit_says_why_it_is_small() {
    let bench = bench();
    let crawler: (&str, &[&[u8]]) = ("found", &[b"crawler"]);
    assert!(take(&bench, 1, crawler));
    bench.clock.advance(Duration::from_secs(1));
    assert!(lease(&bench, LeaseVerb::Release(Outcome::Dropped), 1, crawler));
    bench.clock.advance(Duration::from_secs(2));
    assert!(take(&bench, 2, crawler) && take(&bench, 3, crawler) && !take(&bench, 4, crawler));
    let status = bench.json("/v1/keys/found/crawler");
    let limit = status["adaptive"]["limit"].as_u64().unwrap();
    assert_eq!(
        status["sentence"],
        format!(
            "Denied: 2 permits or more are in flight, 50% of what an adaptive limit of 2 to 100 \
             allows now. It was cut from 4 to {limit} as too much was dropped, 2.0 s ago. One fits \
             when fewer than 2 are, in 1 min 0 s at the latest."
        )
    );
    // The gauge of a rule with one counter is of the whole limit.
    let text = bench.call("GET", "/metrics", "").1;
    assert!(
        text.contains(&format!("rategate_adaptive_limit{{rule=\"found\"}} {limit}\n")),
        "{text}"
    );
    assert!(text.contains("rategate_adaptive_in_flight{rule=\"found\"} 2\n"), "{text}");
}

#[test]
fn what_is_denied_is_counted_by_its_share() {
    let bench = bench();
    let crawler: (&str, &[&[u8]]) = ("shadow", &[b"crawler"]);
    assert!(take(&bench, 1, crawler) && take(&bench, 2, crawler), "it only counts");
    let of_fixed: (&str, &[&[u8]]) = ("fixed", &[b"a", b"crawler"]);
    let denied = (1..=8).filter(|nth| !take(&bench, *nth, of_fixed)).count();
    assert_eq!(denied, 2);
    let text = bench.call("GET", "/metrics", "").1;
    for line in [
        "{rule=\"fixed\",share=\"60%\",outcome=\"denied\"} 2\n",
        "{rule=\"shadow\",share=\"60%\",outcome=\"shadow_denied\"} 1\n",
    ] {
        assert!(text.contains(&format!("rategate_share_denied_total{line}")), "{text}");
    }
    assert!(!text.contains("rategate_share_denied_total{rule=\"found\""), "{text}");
    let live = bench.json("/v1/rules");
    let live =
        live["rules"].as_array().unwrap().iter().find(|rule| rule["name"] == "shadow").unwrap();
    assert_eq!((&live["in_flight"], &live["per_key"]), (&1.into(), &false.into()));
}
