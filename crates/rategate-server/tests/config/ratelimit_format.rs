//! Files in all the forms that envoyproxy/ratelimit accepts, with every key of its format. What it
//! refuses does not load.

use rategate_server::config::{Loaded, load, load_text};
use rategate_server::rule::{Limit, Rule, Value};

fn taken(text: &str) -> Loaded {
    load_text("theirs.yaml", text).unwrap_or_else(|error| panic!("{}", error.report()))
}

/// Every key together with every other, deep and flat, with arbitrary content in `metadata`.
const EVERY_KEY: &str = "
---
domain: shop
descriptors:
  - key: source
    value: front
    descriptors:
      - key: target
        rate_limit:
          unit: second
          requests_per_unit: 5
        metadata:
          name: cart
          owners: [a, b]
          contact: { team: { mail: x@y, on_call: true, level: 0.5 } }
      - key: target
        value: search
        rate_limit:
          replaces:
            - name: slow
            - name: of_nobody
          unit: minute
          requests_per_unit: 2
        shadow_mode: true
  - key: tenant
    detailed_metric: true
    value_to_metric: true
    rate_limit:
      name: slow
      unit: HOUR
      requests_per_unit: 70
  - key: tenant
    value: house
  - key: path
    value: files/*
    share_threshold: true
    value_to_metric: true
    descriptors:
      - key: file
        value: a*b*c
        share_threshold: false
        rate_limit:
          unit: week
          requests_per_unit: 120
  - key: service
    value: one
    quota_mode: true
    rate_limit:
      unit: month
      requests_per_unit: 1
    metadata:
  - key: open
    rate_limit:
      unlimited: true
";

#[test]
fn every_key_of_the_format_is_taken() {
    let loaded = taken(EVERY_KEY);
    let limits: Vec<&Limit> = loaded.rules.rules.iter().map(|rule| &rule.limit).collect();
    let is_counted = |limit: &&Limit| matches!(limit, Limit::Counted(_));
    assert_eq!((limits.len(), limits.iter().filter(|limit| is_counted(limit)).count()), (7, 5));
    assert_eq!((limits[3], limits[6]), (&Limit::Exempt, &Limit::Unlimited));
    let shared = |rule: &Rule| {
        rule.entries.iter().any(|entry| matches!(entry.value, Value::Pattern { shared: true, .. }))
    };
    assert!(shared(&loaded.rules.rules[4]) && loaded.rules.rules[5].quota);
    let metadata: Vec<bool> =
        loaded.rules.rules.iter().map(|rule| rule.metadata.is_some()).collect();
    assert_eq!(metadata, [true, false, false, false, false, false, false]);
}

/// A domain without descriptors, and metadata of another kind than messages have.
#[test]
fn the_edges_are_as_there() {
    assert!(taken("domain: d\ndescriptors:\n").rules.rules.is_empty());
    let invalid = |text: &str| load_text("theirs.yaml", text).map(|_| ()).unwrap_err().to_string();
    let reported = invalid("domain: d\ndescriptors: [{key: a, metadata: [1]}]");
    assert!(
        reported.contains("descriptors[0].metadata: wrong type: a list, not a mapping"),
        "{reported}"
    );
    let reported = invalid(
        "domain: d\ndescriptors: [{key: a*, rate_limit: {unit: day, requests_per_unit: 1}}]",
    );
    assert!(reported.contains("descriptors[0].key: a * in a key"), "{reported}");
}

/// Mistakes that the other service overlooks: it drops the key, takes the later one, reads eight,
/// ignores the unit, or loads the infinite number.
#[test]
fn a_mistake_that_is_overlooked_there_is_refused() {
    for (descriptor, why) in [
        ("key: a, unit: day", "descriptors[0]: unknown key \"unit\""),
        ("key: a, rate_limit: {unit: day, key: a}", "rate_limit: unknown key \"key\""),
        ("key: a, key: b", "duplicate mapping key"),
        ("key: a, rate_limit: {unit: day, requests_per_unit: 010}", "wrong type: \"010\""),
        ("key: a, rate_limit: {unit: days, unlimited: true}", "a unit on an unlimited"),
        ("key: a, metadata: {b: .inf}", "non-finite"),
    ] {
        let text = format!("domain: d\ndescriptors: [{{{descriptor}}}]");
        let reported = load_text("theirs.yaml", &text).map(|_| ()).unwrap_err().to_string();
        assert!(reported.contains(why), "{descriptor}: {reported}");
    }
}

/// Files of one domain are refused, and merged if that is enabled. A key of both is refused in
/// either case.
#[test]
fn domains_of_several_files_are_merged_where_configured() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let of = |key: &str| {
        format!(
            "domain: d\ndescriptors: [{{key: {key}, rate_limit: {{unit: day, \
             requests_per_unit: 1}}}}]"
        )
    };
    write("a.yaml", &of("a"));
    write("b.yaml", &of("b"));
    let reported = load(folder.path()).unwrap_err().report();
    assert!(
        reported.contains("duplicate domain") && reported.contains("merge_domains = true"),
        "{reported}"
    );
    write("settings.toml", "[grpc]\nmerge_domains = true\n");
    let rules = load(folder.path()).unwrap().rules.rules.clone();
    assert_eq!(rules.iter().map(|rule| &*rule.name).collect::<Vec<_>>(), ["d.a", "d.b"]);
    write("b.yaml", &of("a"));
    let reported = load(folder.path()).unwrap_err().to_string();
    assert!(reported.contains("duplicate composite key"), "{reported}");
}
