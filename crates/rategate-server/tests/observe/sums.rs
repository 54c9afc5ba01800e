//! Sums of permits at `/metrics`, of amounts as large as a caller can send.

use rategate_server::engine::{Cost, DEFAULT_TTL, Item, Target, UniqueId};
use rategate_server::rule::{RuleSet, Unit};

use crate::engine::common::now;
use crate::observe::common::{Bench, bucket, rule, rules};

/// Returns the digits of a series' value.
fn shown(bench: &Bench, series: &str) -> String {
    let (status, text) = bench.call("GET", "/metrics", "");
    assert_eq!(status, 200);
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {series}")).to_owned()
}

/// A counter that goes back is a reset to Prometheus, and what came before is counted again.
#[test]
fn permits_are_counted_beyond_64_bits() {
    let bench = Bench::new(rules());
    let denied = "rategate_decided_permits_total{rule=\"per-address\",outcome=\"denied\"}";
    let mut sum = 0_u128;
    for permits in [1_000, u64::MAX, 21, u64::MAX, u64::MAX - 65_535, 100_000] {
        assert!(!bench.take("per-address", &["a"], permits));
        sum += u128::from(permits);
        assert_eq!(shown(&bench, denied), sum.to_string(), "after {permits}");
    }
    let calls = "rategate_decisions_total{rule=\"per-address\",outcome=\"denied\"}";
    assert_eq!(shown(&bench, calls), "6");
    // The figures of a second have 64 bits, and stop there.
    bench.second();
    let minute = &bench.json("/v1/rules")["rules"][0]["minute"];
    assert_eq!((&minute["denied_permits"], &minute["denied"]), (&u64::MAX.into(), &6.into()));
}

#[test]
fn errors_of_estimates_are_summed_up_beyond_64_bits() {
    let rule = rule("tokens", &["k"], bucket(u64::MAX, u64::MAX), u64::MAX, Unit::Second);
    let bench = Bench::new(RuleSet { rules: vec![rule], hash: "1".into() });
    let values: [&[u8]; 1] = [b"a"];
    let target = Target::Rule { name: "tokens", values: &values };
    for number in 0..2 {
        let id = UniqueId([number; 16]);
        let held = now(bench.engine.reserve(id, DEFAULT_TTL, &[Item::of(target, 10)])).unwrap();
        assert!(held.answer.allowed);
        let used = Cost { target, permits: Some(u64::MAX), usage: None };
        now(bench.engine.commit(id, &[used])).unwrap();
        bench.second();
    }
    let errors = "rategate_estimate_error_permits_sum{rule=\"tokens\"}";
    assert_eq!(shown(&bench, errors), (2 * u128::from(u64::MAX - 10)).to_string());
}
