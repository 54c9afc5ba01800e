//! The figures at `/metrics`.

use std::collections::BTreeMap;
use std::time::Duration;

use rategate::charge::{Debt, Settled};
use rategate_server::engine::{
    Answer, Cost, DEFAULT_TTL, Inline, Item, Request, Reserved, Target, UniqueId, Verb, Verdict,
};
use rategate_server::net::Tally as _;
use rategate_server::observe::Protocol;
use rategate_server::rule::{Limit, Rule, RuleSet, Unit};

use crate::engine::common::now;
use crate::observe::common::{Bench, SECOND_NS, bucket, rule, rules};

/// The rule of most tests: 10 a second for each key, 20 at once.
const RULE: &str = "per-address";

/// Returns the series, with their names and labels as they are written, and their values.
pub(crate) fn scrape(bench: &Bench) -> BTreeMap<String, String> {
    let (status, text) = bench.call("GET", "/metrics", "");
    assert_eq!(status, 200);
    let mut values = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(
            values.insert(series.to_owned(), value.to_owned()).is_none(),
            "{line} is there twice"
        );
    }
    values
}

/// Checks that these lines are among the metrics.
fn check(bench: &Bench, lines: &str) {
    let values = scrape(bench);
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert_eq!(values.get(series).map(String::as_str), Some(value), "{series}");
    }
}

fn one_rule(rule: Rule) -> RuleSet {
    RuleSet { rules: vec![rule], hash: "1".into() }
}

fn decide(bench: &Bench, verb: Verb, target: Target<'_>, permits: u64) -> Answer {
    let items = [Item::of(target, permits)];
    now(bench.engine.decide(&Request { verb, items: &items, counts_denied: false })).unwrap()
}

/// Returns the counter of a key in a rule that has one value.
fn of<'a>(name: &'a str, values: &'a [&'a [u8]; 1]) -> Target<'a> {
    Target::Rule { name, values }
}

fn reserve(bench: &Bench, number: u8, target: Target<'_>, permits: u64) -> Reserved {
    let items = [Item::of(target, permits)];
    now(bench.engine.reserve(UniqueId([number; 16]), DEFAULT_TTL, &items)).unwrap()
}

fn commit(bench: &Bench, number: u8, target: Target<'_>, used: impl Into<Option<u64>>) -> Reserved {
    let cost = Cost { target, permits: used.into(), usage: None };
    now(bench.engine.commit(UniqueId([number; 16]), &[cost])).unwrap()
}

#[test]
fn decisions_are_counted_by_rule_and_outcome() {
    let bench = Bench::new(rules());
    for _ in 0..30 {
        bench.take(RULE, &["a"], 1);
    }
    bench.take(RULE, &["b"], 5);
    for _ in 0..12 {
        bench.take("uploads", &["ann"], 40);
    }
    let inline = Inline { capacity: 1, count: 1, period_ns: SECOND_NS };
    for _ in 0..3 {
        bench.engine.inline(inline, b"k", Verb::Take, 1).unwrap();
    }
    bench.engine.inline(inline, b"k", Verb::Peek, 1).unwrap();
    bench.engine.inline(inline, b"k", Verb::Take, 0).unwrap();
    let listener = bench.observe.status().listener(Protocol::Resp, "127.0.0.1:6380", false);
    listener.opened();
    listener.opened();
    listener.closed();
    // Of 20, two of `a` left one or none.
    check(
        &bench,
        r#"
        rategate_decisions_total{rule="per-address",outcome="granted"} 21
        rategate_decisions_total{rule="per-address",outcome="denied"} 10
        rategate_decisions_total{rule="uploads",outcome="granted"} 10
        rategate_decisions_total{rule="uploads",outcome="shadow_denied"} 2
        rategate_decisions_total{rule="*inline",outcome="granted"} 1
        rategate_decisions_total{rule="*inline",outcome="denied"} 2
        rategate_decided_permits_total{rule="per-address",outcome="granted"} 25
        rategate_near_limit_total{rule="per-address"} 2
        rategate_rule_keys{rule="per-address"} 2
        rategate_retry_after_seconds_bucket{rule="per-address",le="0.03"} 0
        rategate_retry_after_seconds_bucket{rule="per-address",le="0.1"} 10
        rategate_retry_after_seconds_bucket{rule="per-address",le="86400"} 10
        rategate_retry_after_seconds_bucket{rule="per-address",le="+Inf"} 10
        rategate_retry_after_seconds_sum{rule="per-address"} 1.0
        rategate_retry_after_seconds_count{rule="per-address"} 10
        rategate_connections{protocol="resp"} 1
        rategate_connections_accepted_total{protocol="resp"} 2
        rategate_config_reload_failed 0
        "#,
    );
    bench.observe.status().load_failed("no");
    check(&bench, "rategate_config_reload_failed 1");
}

/// Gateways ask with a look before they call: what it denies is denied to a caller, of 0 permits.
/// A peek is no decision, and a look that passes takes nothing.
#[test]
fn denied_looks_are_counted_and_peeks_are_not() {
    let bench = Bench::new(rules());
    let limit = Inline { capacity: 1, count: 1, period_ns: SECOND_NS };
    let own = Target::Inline { limit, key: b"k" };
    assert!(bench.take(RULE, &["a"], 0));
    assert!(decide(&bench, Verb::Charge, of(RULE, &[b"a"]), 25).allowed);
    assert!(!bench.take(RULE, &["a"], 0));
    assert!(!decide(&bench, Verb::Peek, of(RULE, &[b"a"]), 1).allowed);
    assert!(decide(&bench, Verb::Charge, own, 3).allowed);
    assert!(bench.engine.inline(limit, b"k", Verb::Take, 0).unwrap().verdict.is_over());
    assert!(bench.engine.inline(limit, b"k", Verb::Peek, 0).unwrap().verdict.is_over());
    bench.second();
    check(
        &bench,
        r#"
        rategate_decisions_total{rule="per-address",outcome="granted"} 0
        rategate_decisions_total{rule="per-address",outcome="denied"} 1
        rategate_decided_permits_total{rule="per-address",outcome="denied"} 0
        rategate_decisions_total{rule="*inline",outcome="denied"} 1
        rategate_decided_permits_total{rule="*inline",outcome="denied"} 0
        rategate_retry_after_seconds_count{rule="per-address"} 1
        rategate_charged_over_total{rule="per-address"} 1
        "#,
    );
    let shown = bench.json("/v1/rules?rule=per-address");
    assert_eq!(shown["detail"]["denials"].as_array().map(Vec::len), Some(1), "{shown}");
}

/// No label depends on keys, whatever their number and contents: the series stay the same.
#[test]
fn keys_make_no_series() {
    let bench = Bench::new(rules());
    bench.take(RULE, &["quiet"], 1);
    let before = scrape(&bench);
    for key in 0..3_000 {
        bench.take(RULE, &[&format!("flood-{key}\"\n")], 1);
        bench.take("free-plan", &["free", &format!("flood-{key}")], 1);
    }
    bench.second();
    let after = scrape(&bench);
    assert!(after.keys().eq(before.keys()) && !after.keys().any(|series| series.contains("flood")));
    assert_ne!(after["rategate_rule_overflows_total{rule=\"per-address\"}"], "0");
}

/// A rule's name is arbitrary text of the configuration: it must stay within its label. The name
/// that a rule of Envoy's format is given is shown next to its own.
#[test]
fn names_of_rules_are_escaped() {
    let named = |name: &str, given: &str| Rule {
        envoy_name: given.into(),
        ..rule(name, &["k"], bucket(1, 1), 1, Unit::Second)
    };
    let odd = "a\"b\\c\nd{e=\"f\"} 1";
    let rules = vec![named(odd, "of \"a\""), named("edge.b", ""), named("c", "c")];
    let bench = Bench::new(RuleSet { rules, hash: "\"\n".into() });
    bench.take(odd, &["x"], 1);
    check(
        &bench,
        r#"
        rategate_decisions_total{rule="a\"b\\c\nd{e=\"f\"} 1",outcome="granted"} 1
        rategate_config_info{hash="\"\n"} 1
        rategate_rule_info{rule="a\"b\\c\nd{e=\"f\"} 1",envoy_name="of \"a\""} 1
        "#,
    );
    let infos =
        scrape(&bench).into_keys().filter(|series| series.starts_with("rategate_rule_info"));
    assert_eq!(infos.count(), 1);
    let shown = bench.json("/v1/rules");
    let given = |nth: usize| shown["rules"][nth]["envoy_name"].as_str();
    assert_eq!([given(0), given(1), given(2)], [Some("of \"a\""), None, None]);
    assert_eq!(bench.json("/v1/config")["rules"][0]["envoy_name"], "of \"a\"");
}

#[test]
fn uncounted_items_and_permits_that_went_back_are_counted() {
    let open = rule("open", &["k"], Limit::Unlimited, 0, Unit::Second);
    let bench =
        Bench::new(RuleSet { rules: [rules().rules, vec![open]].concat(), hash: "1".into() });
    bench.take("open", &["x"], 7);
    bench.take(RULE, &["a"], 3);
    for permits in [2, 1_000_000] {
        assert!(decide(&bench, Verb::Refund, of(RULE, &[b"a"]), permits).allowed);
    }
    let lines = r#"
        rategate_decisions_total{rule="open",outcome="uncounted"} 1
        rategate_decided_permits_total{rule="open",outcome="uncounted"} 7
        rategate_decided_permits_total{rule="per-address",outcome="refunded"} 3
        "#;
    check(&bench, lines);
    check(&bench, lines);
}

/// Permits that were used are those granted, less those refunded, and those charged. A rule shows
/// what is held, and how wrong estimates were, whatever way a reservation ends.
#[test]
fn reservations_are_counted_and_so_are_their_permits() {
    let bench = Bench::new(rules());
    let target = of(RULE, &[b"a"]);
    let cancel = |number| now(bench.engine.cancel(UniqueId([number; 16]), &[target])).unwrap();
    for (number, permits) in [(0, 4), (1, 5), (2, 6), (3, 1), (4, 2)] {
        assert!(reserve(&bench, number, target, permits).answer.allowed);
    }
    assert!(!reserve(&bench, 9, target, 1_000_000).answer.allowed);
    check(&bench, r#"rategate_held_permits{rule="per-address"} 18"#);
    assert!(reserve(&bench, 0, target, 4).is_repeated);
    commit(&bench, 0, target, 1);
    commit(&bench, 0, target, 1);
    commit(&bench, 1, target, 15);
    cancel(2);
    cancel(9);
    check(&bench, r#"rategate_held_permits{rule="per-address"} 3"#);
    bench.clock.advance(DEFAULT_TTL);
    // One is committed before its end is noticed, the other after that.
    commit(&bench, 3, target, 2);
    check(&bench, r#"rategate_held_permits{rule="per-address"} 2"#);
    bench.engine.tick(0);
    commit(&bench, 4, target, None);
    // What is late has expired before, whether that was noticed by a tick or by the commit. It is
    // charged, and what came back at its end did so unseen. Errors are of 3, 10, 1 and 0 permits;
    // a cancellation says nothing about its estimate.
    check(
        &bench,
        r#"
        rategate_held_permits{rule="per-address"} 0
        rategate_reservations_total{rule="per-address",outcome="held"} 5
        rategate_reservations_total{rule="per-address",outcome="denied"} 1
        rategate_reservations_total{rule="per-address",outcome="committed"} 2
        rategate_reservations_total{rule="per-address",outcome="cancelled"} 1
        rategate_reservations_total{rule="per-address",outcome="late"} 2
        rategate_reservations_total{rule="per-address",outcome="expired"} 2
        rategate_reservations_total{outcome="repeated"} 2
        rategate_reservations_total{outcome="unknown"} 1
        rategate_reservations_total{outcome="unavailable"} 0
        rategate_unknown_ids_total 1
        rategate_reservations{state="open"} 0
        rategate_reservations{state="ended"} 5
        rategate_estimate_error_permits_bucket{rule="per-address",le="0"} 1
        rategate_estimate_error_permits_bucket{rule="per-address",le="1"} 2
        rategate_estimate_error_permits_bucket{rule="per-address",le="10"} 4
        rategate_estimate_error_permits_bucket{rule="per-address",le="1e+06"} 4
        rategate_estimate_error_permits_bucket{rule="per-address",le="+Inf"} 4
        rategate_estimate_error_permits_sum{rule="per-address"} 14.0
        rategate_estimate_error_permits_count{rule="per-address"} 4
        rategate_decided_permits_total{rule="per-address",outcome="granted"} 18
        rategate_decided_permits_total{rule="per-address",outcome="refunded"} 9
        rategate_decided_permits_total{rule="per-address",outcome="charged"} 14
        "#,
    );
    // Other rules have had none.
    let of_rules =
        scrape(&bench).into_keys().filter(|series| series.contains("_error_permits_sum"));
    assert_eq!(of_rules.count(), 1);
}

/// A bound on debts lets go of charges and of commits, which is counted.
#[test]
fn what_is_forgiven_is_counted() {
    let second = Duration::from_secs(1);
    let rule = Rule {
        debt: Debt::CARRIED.at_most(second),
        ..rule(RULE, &["k"], bucket(10, 20), 10, Unit::Second)
    };
    let bench = Bench::new(one_rule(rule));
    let shows =
        |permits| check(&bench, &format!("rategate_forgiven_total{{rule=\"{RULE}\"}} {permits}"));
    let charged = decide(&bench, Verb::Charge, of(RULE, &[b"a"]), 1_000_000);
    let Verdict::Charged(booked) = charged.results[0].verdict else { panic!("{charged:?}") };
    assert!(booked < 1_000_000);
    shows(1_000_000 - booked);
    assert!(reserve(&bench, 1, of(RULE, &[b"b"]), 1).answer.allowed);
    let settled = commit(&bench, 1, of(RULE, &[b"b"]), 1_000_001);
    let Verdict::Committed(Settled::Owed { forgiven, .. }) = settled.answer.results[0].verdict
    else {
        panic!("{settled:?}")
    };
    assert!(forgiven > 0);
    shows(1_000_000 - booked + forgiven);
}

/// Permits have 64 bits, and wrap: an increase stays what it is, however large the sum.
#[test]
fn permits_wrap_and_their_increase_is_exact() {
    let bench = Bench::new(rules());
    let mut sum = 0_u64;
    for permits in [1_000, u64::MAX, 21, u64::MAX - 65_535, 100_000] {
        assert!(!bench.take(RULE, &["a"], permits));
        sum = sum.wrapping_add(permits);
        check(
            &bench,
            &format!("rategate_decided_permits_total{{rule=\"{RULE}\",outcome=\"denied\"}} {sum}"),
        );
    }
    bench.second();
    assert!(!bench.take(RULE, &["a"], u64::MAX));
    bench.second();
    let rule = &bench.json("/v1/rules")["rules"][0];
    assert_eq!(
        (&rule["second"]["denied_permits"], &rule["minute"]["denied"]),
        (&u64::MAX.into(), &6.into())
    );
}
