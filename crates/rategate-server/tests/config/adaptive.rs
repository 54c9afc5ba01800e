//! The key `adaptive`: limits of permits in flight that follow measurements.

use rategate::adaptive::{Adaptation, Bounds, Method};
use rategate::{AdaptiveConcurrency, Concurrency};
use rategate_server::config::{explain, load_text, to_toml};
use rategate_server::engine::Compiled;
use rategate_server::rule::{Limit, Rule, RuleSet};

fn load(keys: &str) -> Result<Vec<Rule>, String> {
    let text = format!("[[rule]]\nname = \"a\"\n{keys}\n");
    let loaded = load_text("a.toml", &text).map_err(|error| error.report().clone())?;
    Ok(loaded.rules.rules.clone())
}

fn limit(limit: &str, adaptive: &str) -> Limit {
    let keys = format!("algorithm = \"concurrency\"\nlimit = {limit}\nadaptive = {adaptive}");
    load(&keys).unwrap_or_else(|report| panic!("{report}"))[0].limit
}

fn of(floor: u32, first: u32, ceiling: u32, method: Method) -> Limit {
    let adaptation = Adaptation::new(Bounds::new(floor, first, ceiling)).with_method(method);
    Limit::Policy(AdaptiveConcurrency::following(adaptation).into())
}

#[test]
fn the_defaults_are_those_of_the_library() {
    assert_eq!(limit("200", "{}"), of(1, 20, 200, Method::Knee));
    assert_eq!(limit("10", "{}"), of(1, 10, 10, Method::Knee), "the ceiling");
    assert_eq!(limit("200", "{ floor = 50 }"), of(50, 50, 200, Method::Knee), "the floor");
    assert_eq!(limit("200", "{ floor = 5, first = 30 }"), of(5, 30, 200, Method::Knee));
    for (name, method) in [("knee", Method::Knee), ("aimd", Method::Aimd)] {
        let adaptive = format!("{{ method = \"{name}\" }}");
        assert_eq!(limit("200", &adaptive), of(1, 20, 200, method));
    }
    let fixed = load("algorithm = \"concurrency\"\nlimit = 200").unwrap();
    assert_eq!(fixed[0].limit, Limit::Policy(Concurrency::new(200).into()), "fixed without it");
}

#[test]
fn nonsense_is_refused_with_its_key() {
    let concurrency = "algorithm = \"concurrency\"\nlimit = 200\n";
    for (keys, at, problem) in [
        ("adaptive = { floor = 0 }", "5:22", "the floor is 0; it must be from 1 to the limit, 200"),
        ("adaptive = { floor = 201 }", "5:22", "the floor is 201; it must be from 1 to the limit"),
        ("adaptive = { floor = -1 }", "5:22", "floor"),
        (
            "adaptive = { floor = 5, first = 4 }",
            "5:33",
            "it must be from the floor, 5, to the limit",
        ),
        ("adaptive = { first = 201 }", "5:22", "the limit at first is 201; it must be from"),
        ("adaptive = { first = 2.5 }", "5:22", "first"),
        ("adaptive = { method = \"bbr\" }", "5:23", "method"),
        ("adaptive = { ceiling = 5 }", "5:", "ceiling"),
        ("adaptive = true", "5:12", "adaptive"),
        (
            "adaptive = {}\ntiers = [{ name = \"b\", values = [\"x\"], limit = 5 }]",
            "5:12",
            "no tiers",
        ),
        (
            "adaptive = {}\nstore = \"exact\"\n[store]\nurl = \"redis://127.0.0.1\"",
            "5:12",
            "of one process",
        ),
    ] {
        let report = load(&format!("{concurrency}{keys}")).unwrap_err();
        assert!(
            report.contains(problem) && report.contains(&format!("a.toml:{at}")),
            "{keys}: {report}"
        );
    }
    let other = load("limit = \"5/s\"\nadaptive = { floor = 1 }").unwrap_err();
    assert!(other.contains("write algorithm = \"concurrency\""), "{other}");
    let several = "adaptive = {}\nlimits = [{ name = \"x\", limit = \"5/s\" }]";
    let several = load(several).unwrap_err();
    assert!(several.contains("write a rule of its own"), "{several}");
    for limit in ["\"unlimited\"", "\"never\"", "\"exempt\""] {
        let keys = format!("algorithm = \"concurrency\"\nlimit = {limit}\nadaptive = {{}}");
        let report = load(&keys).unwrap_err();
        assert!(report.contains("write a number of permits"), "{limit}: {report}");
    }
    let large = load("algorithm = \"concurrency\"\nlimit = 4294967296\nadaptive = {}").unwrap_err();
    assert!(large.contains("from 1 to 4294967295, and this is 4294967296"), "{large}");
}

#[test]
fn it_is_written_and_explained() {
    let adaptive = "{ floor = 5, first = 30, method = \"aimd\" }";
    let keys = format!(
        "match = [\"user\"]\nalgorithm = \"concurrency\"\nlimit = 200\nadaptive = {adaptive}"
    );
    let rules = load(&keys).unwrap();
    let text = to_toml(&RuleSet { rules: rules.clone(), hash: "".into() }).unwrap();
    assert!(text.contains(&format!("adaptive = {adaptive}")), "{text}");
    let again = load_text("b.toml", &text).unwrap().rules.rules.clone();
    assert_eq!(again[0].limit, rules[0].limit);
    let compiled = Compiled::new(RuleSet { rules, hash: "".into() }).unwrap();
    let text = explain(&compiled, "default", &[("user", "u")]).to_string();
    assert!(text.contains("from 5 to 200 at a time, 30 at first (adaptive: aimd)"), "{text}");
    assert!(text.contains("held:      for"), "{text}");
}
