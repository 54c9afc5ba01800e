//! The keys that bound reservations: `ttl`, `max_ttl` and `max_held`.

use std::time::Duration;

use rategate_server::config::{explain, load_text, to_toml};
use rategate_server::engine::Compiled;
use rategate_server::rule::{HoldBounds, Rule, RuleSet};

fn rules(name: &str, text: &str) -> Vec<Rule> {
    let loaded = load_text(name, text).unwrap_or_else(|error| panic!("{}", error.report()));
    loaded.rules.rules.clone()
}

fn bounds(keys: &str) -> HoldBounds {
    let text = format!("[[rule]]\nname = \"a\"\nlimit = \"100/min\"\n{keys}");
    rules("a.toml", &text)[0].hold_bounds
}

fn of(ttl_ms: u64, max_ttl_ms: u64, max_held: Option<u16>) -> HoldBounds {
    let [ttl, max_ttl] = [ttl_ms, max_ttl_ms].map(Duration::from_millis);
    HoldBounds { ttl, max_ttl, max_held }
}

#[test]
fn the_defaults_are_a_minute_and_ten_minutes_of_the_whole_limit() {
    assert_eq!(bounds(""), of(60_000, 600_000, None));
    assert_eq!(bounds("ttl = \"30s\""), of(30_000, 600_000, None));
    assert_eq!(bounds("max_ttl = \"24h\""), of(60_000, 86_400_000, None));
    assert_eq!(bounds("max_ttl = \"1500ms\""), of(1_500, 1_500, None), "a shorter maximum");
    assert_eq!(bounds("ttl = \"1h\"\nmax_ttl = \"1h\""), of(3_600_000, 3_600_000, None));
    assert_eq!(bounds("max_held = \"50%\""), of(60_000, 600_000, Some(5_000)));
    assert_eq!(bounds("max_held = \"0.01%\""), of(60_000, 600_000, Some(1)));
}

#[test]
fn nonsense_is_refused_with_its_key() {
    for (keys, key, problem) in [
        ("ttl = \"0s\"", "ttl", "a duration of no time"),
        ("ttl = \"-1s\"", "ttl", "not a duration"),
        ("ttl = \"NaN\"", "ttl", "not a duration"),
        ("ttl = 30", "ttl", "a duration"),
        ("ttl = \"0s\"", "ttl", "write a longer one, as in \"10s\""),
        ("ttl = \"11min\"", "ttl", "it is longer than `max_ttl`, which is 600s unless"),
        ("ttl = \"25h\"", "ttl", "a reservation lasts at most 24h"),
        ("ttl = \"2s\"\nmax_ttl = \"1s\"", "ttl", "it is longer than `max_ttl`, which is 1s"),
        ("max_ttl = \"0ms\"", "max_ttl", "a duration of no time"),
        ("max_ttl = \"24h1ns\"", "max_ttl", "24h"),
        ("max_ttl = \"86401s\"", "max_ttl", "a reservation lasts at most 24h"),
        ("max_held = \"0%\"", "max_held", "it is from \"0.01%\" to \"100%\""),
        ("max_held = \"101%\"", "max_held", "it is from \"0.01%\" to \"100%\""),
        ("max_held = \"-1%\"", "max_held", "it is from \"0.01%\" to \"100%\""),
        ("max_held = \"NaN%\"", "max_held", "it is from \"0.01%\" to \"100%\""),
        ("max_held = \"half\"", "max_held", "\"half\" is no share of the limit: it is from"),
        ("max_held = 50", "max_held", "a share of the limit"),
        ("most_held = \"5%\"", "most_held", "max_held"),
    ] {
        let text = format!("[[rule]]\nname = \"a\"\nlimit = \"100/min\"\n{keys}\n");
        let report = load_text("a.toml", &text).unwrap_err().report().clone();
        assert!(report.contains(problem) && report.contains(key), "{keys}: {report}");
    }
    for key in ["ttl = \"1s\"", "max_ttl = \"1s\"", "max_held = \"1%\""] {
        let text =
            format!("[[rule]]\nname = \"a\"\nlimit = 3\nalgorithm = \"concurrency\"\n{key}\n");
        let loaded = load_text("a.toml", &text).unwrap();
        let bounds = loaded.rules.set().rules[0].hold_bounds;
        assert_ne!(bounds, HoldBounds::DEFAULT, "{key}");
    }
    let text = "[[rule]]\nname = \"a\"\nlimit = 3\nttl = \"26h\"\nmax_ttl = \"25h\"\n";
    let report = load_text("a.toml", text).unwrap_err().report().clone();
    assert!(!report.contains("90000s"), "{report}");
}

#[test]
fn limits_and_tiers_take_those_of_their_rule() {
    let text = r#"
        [[rule]]
        name = "tokens"
        match = ["user"]
        ttl = "5s"
        max_ttl = "10s"
        max_held = "50%"
        [[rule.limits]]
        name = "rpm"
        limit = "60/min"
        [[rule.limits]]
        name = "tpm"
        limit = "1000/min"
        ttl = "7s"
        max_held = "25%"
        [[rule]]
        name = "calls"
        match = ["plan"]
        limit = "10/min"
        max_ttl = "1h"
        [[rule.tiers]]
        name = "gold"
        values = ["gold"]
        limit = "100/min"
    "#;
    let all = rules("a.toml", text);
    let of_rule = |name: &str| all.iter().find(|rule| &*rule.name == name).unwrap().hold_bounds;
    assert_eq!(of_rule("tokens/rpm"), of(5_000, 10_000, Some(5_000)));
    assert_eq!(of_rule("tokens/tpm"), of(7_000, 10_000, Some(2_500)));
    assert_eq!(of_rule("calls/gold"), of(60_000, 3_600_000, None));
    let set = RuleSet { rules: all.clone(), hash: "".into() };
    let again = rules("b.toml", &to_toml(&set).unwrap());
    let bounds = |rules: &[Rule]| -> Vec<_> {
        rules.iter().map(|rule| (rule.name.clone(), rule.hold_bounds)).collect()
    };
    assert_eq!(bounds(&again), bounds(&all));
    let text = explain(&Compiled::new(set).unwrap(), "default", &[("user", "u")]).to_string();
    assert!(text.contains("reserves:  for 5s unless a call states a time, 10s at most, of 50% of"));
    let text = explain(
        &Compiled::new(RuleSet { rules: all, hash: "".into() }).unwrap(),
        "default",
        &[("plan", "gold")],
    );
    let line = "reserves:  for 60s unless a call states a time, 3600s at most\n";
    assert!(text.to_string().contains(line), "{text}");
}

#[test]
fn limits_in_envoys_format_have_them_too() {
    let text = "domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n      unit: hour\n      \
                requests_per_unit: 100\n      ttl: 5s\n      max_ttl: 20s\n      max_held: 50%\n";
    let all = rules("a.yaml", text);
    assert_eq!(all[0].hold_bounds, of(5_000, 20_000, Some(5_000)));
    let unlimited = "domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n      \
                     unlimited: true\n      max_held: 50%\n";
    let report = load_text("a.yaml", unlimited).unwrap_err().report().clone();
    assert!(report.contains("max_held on an unlimited descriptor"), "{report}");
}
