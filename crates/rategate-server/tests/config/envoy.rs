//! Envoy's format: the rules that files load to, and the ways in which files can be wrong.

use std::sync::Arc;
use std::time::Duration;

use rategate::policy::Anchor;
use rategate::{FixedWindow, Gcra, Rate, SlidingLog};
use rategate_server::config::{ConfigError, Loaded, load, load_text};
use rategate_server::rule::{
    CountedWindow, CounterLocation, Enforcement, Entry, Limit, OnUnavailable, Rule, Unit, Value,
};

/// The sample of the contract.
const SAMPLE: &str = r"domain: edge
descriptors:
  - key: remote_address          # no value: every value has its own counter
    rate_limit: { unit: second, requests_per_unit: 10 }
  - key: remote_address
    value: 50.0.0.5              # exact beats wildcard beats key-only
    rate_limit: { unit: second, requests_per_unit: 0 }
  - key: plan
    value: free
    descriptors:                 # nested: a descriptor of two entries, in order; depth must match
      - key: user
        rate_limit: { name: free_user, unit: day, requests_per_unit: 1000 }
        shadow_mode: true
  - key: path
    value: /api/*/action         # each * matches zero or more characters
    share_threshold: true        # all matches share one counter
    rate_limit: { unit: minute, requests_per_unit: 20, replaces: [ { name: free_user } ] }
  - key: internal
    rate_limit: { unlimited: true }
";

fn load_ok(text: &str) -> Loaded {
    load_text("edge.yaml", text).unwrap_or_else(|error| panic!("{}", error.report()))
}

fn invalid(text: &str) -> ConfigError {
    load_text("edge.yaml", text).map(|_| panic!("accepted: {text}")).unwrap_err()
}

fn window(permits: u32, seconds: u64) -> Limit {
    Limit::Counted(CountedWindow::new(permits, seconds * 1_000_000_000).unwrap())
}

fn names(rules: &[Rule]) -> Vec<&str> {
    rules.iter().map(|rule| &*rule.name).collect()
}

fn entry(key: &str, value: Value) -> Entry {
    Entry { key: key.into(), value }
}

/// Loads a file of one descriptor whose limit has this text.
fn limit(text: &str) -> Rule {
    let file = format!("domain: d\ndescriptors: [{{ key: k, rate_limit: {{ {text} }} }}]\n");
    load_ok(&file).rules.rules[0].clone()
}

#[test]
fn the_sample_of_the_contract() {
    let loaded = load_ok(SAMPLE);
    let rules = &loaded.rules.rules;
    let expected = [
        "edge.remote_address",
        "edge.remote_address=50.0.0.5",
        "edge.plan=free.user",
        "edge.path=/api/*/action",
        "edge.internal",
    ];
    assert_eq!(names(rules), expected);
    assert!(rules.iter().all(|rule| &*rule.domain == "edge"));
    assert_eq!(rules[0].limit, window(10, 1));
    assert_eq!(rules[0].entries, [entry("remote_address", Value::Any)]);
    assert_eq!(rules[1].limit, window(0, 1));
    assert_eq!((rules[1].display_limit.permits, rules[1].display_limit.unit), (0, Unit::Second));
    assert_eq!(rules[1].entries, [entry("remote_address", Value::Exact("50.0.0.5".into()))]);
    let nested = [entry("plan", Value::Exact("free".into())), entry("user", Value::Any)];
    assert_eq!(
        (rules[2].entries.as_slice(), rules[2].enforcement),
        (&nested[..], Enforcement::Shadow)
    );
    assert_eq!(rules[2].limit, window(1000, 86_400));
    let pattern = Value::Pattern { text: "/api/*/action".into(), shared: true };
    assert_eq!(rules[3].entries, [entry("path", pattern)]);
    assert_eq!(*rules[3].replaces, [Arc::from("edge.plan=free.user")]);
    assert_eq!(&*rules[2].envoy_name, "free_user");
    assert_eq!(rules[4].limit, Limit::Unlimited);
    assert_eq!(rules[0].origin.to_string(), "edge.yaml:3:5");
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}

#[test]
fn all_units_and_their_multiples() {
    let units = [
        ("second", 1),
        ("minute", 60),
        ("hour", 3600),
        ("day", 86_400),
        ("week", 604_800),
        ("month", 30 * 86_400),
        ("year", 365 * 86_400),
        ("MINUTE", 60),
        ("Hour", 3600),
    ];
    for (unit, seconds) in units {
        assert_eq!(limit(&format!("unit: {unit}, requests_per_unit: 5")).limit, window(5, seconds));
    }
    let rule = limit("unit: minute, unit_multiplier: 15, requests_per_unit: 5");
    assert_eq!((rule.limit, rule.display_limit.multiplier), (window(5, 900), 15));
}

#[test]
fn a_rule_may_choose_its_algorithm() {
    let rate = Rate::per_minute(20);
    let bucket = |burst| Limit::Policy(Gcra::new(rate, burst).unwrap().into());
    let with = |text: &str| limit(&format!("unit: minute, requests_per_unit: 20, {text}")).limit;
    assert_eq!(with("algorithm: gcra"), bucket(20));
    assert_eq!(with("algorithm: gcra, burst: 3"), bucket(3));
    let log = SlidingLog::new(20, Duration::from_secs(60));
    assert_eq!(with("algorithm: sliding-log"), Limit::Policy(log.into()));
    assert_eq!(with("algorithm: counted-window"), window(20, 60));
    let fixed = FixedWindow::new(20, Duration::from_secs(60), Anchor::Epoch);
    assert_eq!(with("algorithm: fixed-window"), Limit::Policy(fixed.into()));
}

#[test]
fn a_rule_may_choose_where_its_counters_are() {
    let folder = tempfile::tempdir().unwrap();
    let store = "[store]\nurl = \"redis://127.0.0.1:1\"\n";
    std::fs::write(folder.path().join("settings.toml"), store).unwrap();
    let parsed_as = |algorithm: &str, more: &str| {
        let text = format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: day, requests_per_unit: 5, \
             algorithm: {algorithm}{more}}}}}]\n"
        );
        std::fs::write(folder.path().join("d.yaml"), text).unwrap();
        let loaded = load(folder.path()).map_err(|error| error.to_string())?;
        let rule = &loaded.rules.rules[0];
        Ok::<_, String>((rule.location, rule.on_unavailable))
    };
    let parsed = |more: &str| parsed_as("fixed-window", more);
    let leased = |lease_ns| CounterLocation::StoreLeased { lease_ns };
    let cases = [
        ("", CounterLocation::Here, OnUnavailable::Local),
        (", store: here", CounterLocation::Here, OnUnavailable::Local),
        (", store: exact", CounterLocation::StoreExact, OnUnavailable::Local),
        (", store: exact, on_unavailable: deny", CounterLocation::StoreExact, OnUnavailable::Deny),
        (", store: leased", leased(100_000_000), OnUnavailable::Local),
        (
            ", store: leased, lease: 2s, on_unavailable: admit",
            leased(2_000_000_000),
            OnUnavailable::Admit,
        ),
        (", store: leased, on_unavailable: local", leased(100_000_000), OnUnavailable::Local),
    ];
    for (more, location, on_unavailable) in cases {
        assert_eq!(parsed(more), Ok((location, on_unavailable)), "{more}");
    }
    let invalid = [
        (", store: redis", "rate_limit.store: unknown store \"redis\""),
        (", store: 5", "rate_limit.store: unknown store \"5\""),
        (", store: exact, lease: 1s", "rate_limit.lease: a lease belongs to store: leased"),
        (", lease: 1s", "rate_limit.lease: a lease belongs to store: leased"),
        (", store: leased, lease: soon", "rate_limit.lease: "),
        (", on_unavailable: deny", "rate_limit.on_unavailable: it is about counters in a store"),
        (
            ", store: exact, on_unavailable: perhaps",
            "rate_limit.on_unavailable: unknown on_unavailable",
        ),
    ];
    for (more, fragment) in invalid {
        let reported = parsed(more).unwrap_err();
        assert!(reported.contains(fragment), "{more}: {reported}");
    }
    // A window that counts every hit is counted by the store alone.
    for (more, on_unavailable) in [
        (", on_unavailable: deny", OnUnavailable::Deny),
        (", on_unavailable: admit", OnUnavailable::Admit),
    ] {
        let more = format!(", store: exact{more}");
        assert_eq!(
            parsed_as("counted-window", &more),
            Ok((CounterLocation::StoreExact, on_unavailable))
        );
    }
    let invalid = [
        (", store: exact", "cannot be enforced by one server alone; write on_unavailable: deny"),
        (", store: exact, on_unavailable: local", "cannot be enforced by one server alone"),
        (", store: leased, on_unavailable: deny", "cannot be leased"),
    ];
    for (more, fragment) in invalid {
        let reported = parsed_as("counted-window", more).unwrap_err();
        assert!(
            reported.contains(fragment) && reported.contains("or algorithm: fixed-window"),
            "{reported}"
        );
    }
    // Without a store the file is refused.
    std::fs::remove_file(folder.path().join("settings.toml")).unwrap();
    let reported = parsed(", store: exact").unwrap_err();
    assert!(reported.contains("counters in the store, and there is none"), "{reported}");
    assert_eq!(parsed(""), Ok((CounterLocation::Here, OnUnavailable::Local)));
}

#[test]
fn all_keys_of_a_descriptor() {
    let text = "domain: d\ndescriptors:\n- key: a\n  value: 404\n  quota_mode: true\n  \
                detailed_metric: true\n  rate_limit: {unit: day, requests_per_unit: 1}\n\
                - key: b\n  value: yes\n  value_to_metric: true\n  descriptors: []\n  \
                rate_limit: {unit: day, requests_per_unit: 1}\n\
                - {key: c, value: 1.50, rate_limit: {unit: day, requests_per_unit: 1}}\n\
                - {key: e, value: '', rate_limit: {unit: day, requests_per_unit: 1}}\n\
                - {key: f, value: , rate_limit: {unit: day, requests_per_unit: 1}}\n";
    let rules = load_ok(text).rules.rules.clone();
    let exact = |rule: &Rule| match &rule.entries[0].value {
        Value::Exact(value) => Some(value.to_string()),
        _ => None,
    };
    let values: Vec<_> = rules.iter().map(exact).collect();
    assert_eq!(values, [Some("404".into()), Some("yes".into()), Some("1.50".into()), None, None]);
    assert!(
        rules[0].quota && rules[0].detailed_metric && rules[1].detailed_metric && !rules[1].quota
    );
}

#[test]
fn anchors_and_merges_are_read() {
    let text = "domain: d\ndescriptors:\n- key: a\n  \
                rate_limit: &limit {unit: day, requests_per_unit: 7}\n- key: b\n  \
                rate_limit: *limit\n- key: c\n  rate_limit: {<<: *limit, requests_per_unit: 9}\n";
    let limits: Vec<_> = load_ok(text).rules.rules.iter().map(|rule| rule.limit).collect();
    assert_eq!(limits, [window(7, 86_400), window(7, 86_400), window(9, 86_400)]);
}

#[test]
fn what_looks_wrong_is_warned_of() {
    let warnings = |text: &str| {
        let warnings = load_ok(&format!("domain: d\ndescriptors: [{text}]")).warnings;
        warnings.iter().map(|problem| problem.message().to_owned()).collect::<Vec<_>>().join("; ")
    };
    assert!(warnings("{key: a, value: b}").contains("passes"));
    assert!(warnings("{key: a, rate_limit: {unit: day}}").contains("over the limit"));
    assert!(
        warnings("{key: a, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}")
            .contains("share")
    );
    assert!(
        warnings("{key: a, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: x}]}}")
            .contains("\"x\"")
    );
}

/// Each file has one problem: a part of its message, the line and the column.
#[test]
fn a_wrong_file_is_refused_whole_with_the_place_and_the_path() {
    let cases = [
        ("descriptors: []\n", "empty domain", 1, 1),
        ("domain: ''\n", "empty domain", 1, 1),
        ("domain:\n", "empty domain", 1, 1),
        ("domain: {a: b}\n", "domain: wrong type", 1, 9),
        ("domain: d\nextra: 1\n", "unknown key \"extra\"", 2, 1),
        ("domain: d\ndescriptors: 5\n", "descriptors: wrong type", 2, 14),
        ("domain: d\ndescriptors:\n- 5\n", "descriptors[0]: wrong type", 3, 3),
        ("domain: d\ndescriptors:\n- value: x\n", "descriptors[0]: empty key", 3, 3),
        ("domain: d\ndescriptors:\n- key: ''\n", "descriptors[0]: empty key", 3, 3),
        ("domain: d\ndescriptors:\n- key: [a]\n", "descriptors[0].key: wrong type", 3, 8),
        (
            "domain: d\ndescriptors:\n- key: a\n- key: a\n",
            "descriptors[1]: duplicate composite key \"d.a\"",
            4,
            3,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  value: b\n- key: a\n  value: b\n  \
             descriptors: [{key: c}]\n",
            "descriptors[1]: duplicate composite key \"d.a=b\"",
            5,
            3,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  descriptors:\n  - key: b\n  - key: b\n",
            "descriptors[0].descriptors[1]: duplicate composite key \"d.a.b\"",
            6,
            5,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  ratelimit: {}\n",
            "descriptors[0]: unknown key \"ratelimit\"",
            4,
            3,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  shadow_mode: 1\n",
            "descriptors[0].shadow_mode: wrong type",
            4,
            16,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit: 5\n",
            "descriptors[0].rate_limit: wrong type",
            4,
            15,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    unit: fortnight\n    \
             requests_per_unit: 1\n",
            "descriptors[0].rate_limit.unit: unknown unit \"fortnight\"",
            5,
            11,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    requests_per_unit: 1\n",
            "descriptors[0].rate_limit: no unit",
            5,
            5,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    unit: day\n    \
             requests_per_unit: many\n",
            "descriptors[0].rate_limit.requests_per_unit: wrong type",
            6,
            24,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    unit: day\n    \
             requests_per_unit: -1\n",
            "wrong type: \"-1\"",
            6,
            24,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    unit: day\n    \
             requests_per_unit: 4294967296\n",
            "wrong type",
            6,
            24,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    unit: day\n    \
             requests_per_unit: 1\n    per: x\n",
            "descriptors[0].rate_limit: unknown key \"per\"",
            7,
            5,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    unit: day\n    \
             unit_multiplier: 0\n",
            "descriptors[0].rate_limit.unit_multiplier",
            6,
            22,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    unit: day\n    \
             unlimited: true\n",
            "descriptors[0].rate_limit.unit: a unit on an unlimited descriptor",
            5,
            11,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    unlimited: maybe\n",
            "descriptors[0].rate_limit.unlimited: wrong type",
            5,
            16,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  \
             rate_limit: {name: x, unit: day, requests_per_unit: 1, replaces: [{name: x}]}\n",
            "descriptors[0].rate_limit.replaces[0].name: \"x\" is this limit; it cannot replace",
            4,
            76,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  \
             rate_limit: {unit: day, requests_per_unit: 1, replaces: [{}]}\n",
            "descriptors[0].rate_limit.replaces[0]: empty name",
            4,
            60,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  \
             rate_limit: {unit: day, requests_per_unit: 1, replaces: [x]}\n",
            "descriptors[0].rate_limit.replaces[0]: wrong type",
            4,
            60,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  \
             rate_limit: {unit: day, requests_per_unit: 1, algorithm: leaky}\n",
            "unknown algorithm \"leaky\"",
            4,
            60,
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  \
             rate_limit: {unit: day, requests_per_unit: 1, burst: 5}\n",
            "descriptors[0].rate_limit.burst: a burst belongs",
            4,
            56,
        ),
        ("domain: d\ndomain: e\n", "", 2, 1),
        ("- a\n", "a list of limits is Limitador's format", 1, 1),
        ("7\n", "wrong type: \"7\", not a mapping", 1, 1),
        ("domain: [\n", "unclosed bracket", 1, 9),
    ];
    let name = "x".repeat(4097);
    let long = format!(
        "domain: d\ndescriptors:\n- key: a\n  \
         rate_limit: {{unit: day, requests_per_unit: 1, name: {name}}}\n"
    );
    let long = [(&*long, "descriptors[0].rate_limit.name: a name longer", 4, 55)];
    let mut other = String::new();
    for (text, fragment, line, column) in cases.into_iter().chain(long) {
        let error = invalid(text);
        let problem = &error.problems()[0];
        let location = (problem.line(), problem.column());
        if !problem.message().contains(fragment)
            || location != (Some(line), Some(column))
            || problem.message().contains(" line ")
        {
            other +=
                &format!("{text}{fragment:?} at {line}:{column}, and it is\n{}\n", error.report());
        }
    }
    assert!(other.is_empty(), "{other}");
}

#[test]
fn a_domain_is_in_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("a.yaml", SAMPLE);
    write(
        "b.yml",
        "domain: other\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]",
    );
    write("c.toml", "[[rule]]\nname = \"free_user\"\nlimit = \"1/s\"");
    write("notes.txt", "not ours");
    write(".d.yaml", "not ours");
    let loaded = load(folder.path()).unwrap();
    let names = names(&loaded.rules.rules);
    assert_eq!(
        (names.len(), names[2], names[5], names[6]),
        (7, "edge.plan=free.user", "other.a", "free_user")
    );
    write("z.yaml", "domain: edge");
    let error = load(folder.path()).unwrap_err();
    assert_eq!(error.problems().len(), 1);
    assert!(
        error.to_string().contains("duplicate domain \"edge\"")
            && error.to_string().contains("z.yaml:1:9"),
        "{error}"
    );
}

#[test]
fn the_two_formats_do_not_stand_in_each_others_way() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.yaml"), SAMPLE).unwrap();
    let native = "[[rule]]\nname = \"n\"\ndomain = \"edge\"\nmatch = [\"remote_address\"]\n\
                  limit = \"1/s\"\n";
    std::fs::write(folder.path().join("b.toml"), native).unwrap();
    let rules = load(folder.path()).unwrap().rules.rules.clone();
    let both = [entry("remote_address", Value::Any)];
    let names = rules.iter().filter(|rule| *rule.entries == both).map(|rule| &*rule.name);
    assert_eq!(names.collect::<Vec<_>>(), ["edge.remote_address", "n"], "both apply");
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = "domain: d\ndescriptors:\n- value: x\n- key: a\n  rate_limit: {unit: eon}\n\
                - key: b\n  shadow_mode: 3\n  other: 1\n";
    let error = invalid(text);
    let lines: Vec<_> = error.problems().iter().map(|problem| problem.line().unwrap()).collect();
    assert_eq!(lines, [3, 5, 7, 8]);
}

#[test]
fn bombs_are_refused() {
    let deep = format!("domain: {}", "[".repeat(100_000));
    invalid(&deep);
    let nested = format!("domain: d\ndescriptors: {}", "[{key: a, descriptors: ".repeat(500));
    invalid(&nested);
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let last = format!("*a{}", n - 1);
        laughs += &format!("a{n}: &a{n} [{}]\n", [last.as_str(); 10].join(", "));
    }
    invalid(&laughs);
}

/// Keys that an unlimited descriptor cannot use: our own are errors, those that Envoy's service
/// accepts are warnings.
#[test]
fn what_is_unlimited_has_no_numbers() {
    let file = |text: &str| {
        format!(
            "domain: d\ndescriptors: [{{ key: k, rate_limit: {{ unlimited: true, {text} }} }}]\n"
        )
    };
    for text in ["algorithm: nonsense", "algorithm: gcra", "burst: 5"] {
        let error = invalid(&file(text)).to_string();
        assert!(error.contains("on an unlimited descriptor"), "{error}");
    }
    for text in ["requests_per_unit: 5", "unit_multiplier: 2"] {
        let loaded = load_ok(&file(text));
        let [warning] = &loaded.warnings[..] else { panic!("{:?}", loaded.warnings) };
        assert!(warning.to_string().contains("on an unlimited descriptor"), "{warning}");
    }
}

/// The problems of a `rate_limit`, with suggestions.
#[test]
fn all_faults_of_a_limit_are_reported_at_once() {
    let text = "domain: d\ndescriptors:\n- key: a\n  rate_limits: {}\n  rate_limit:\n    \
                unit: minutes\n    requestsperunit: 5\n    algorithm: fixed_window\n    \
                unit_multiplier: 0\n    store: leasd\n";
    let error = invalid(text);
    let reported: Vec<_> = error
        .problems()
        .iter()
        .map(|it| (it.line().unwrap(), it.help_text().unwrap_or_default()))
        .collect();
    let meant = [
        (4, "did you mean rate_limit?"),
        (6, "did you mean minute?"),
        (7, "did you mean requests_per_unit?"),
        (8, "did you mean fixed-window?"),
        (9, ""),
        (10, "did you mean leased?"),
    ];
    assert_eq!(reported.len(), meant.len(), "{error}");
    for ((line, help), (expected, meant)) in reported.iter().zip(meant) {
        assert!(*line == expected && help.starts_with(meant), "{line}: {help}");
    }
}

/// A file of Limitador's has no domain of its own and no descriptors, so its users are told what
/// to write.
#[test]
fn a_list_of_limits_is_refused_with_what_to_write() {
    let list = "- namespace: shop\n  max_value: 10\n  seconds: 60\n";
    let error = invalid(list);
    assert_eq!(error.problems().len(), 1);
    let text = error.report();
    assert!(text.contains("a list of limits is Limitador's format"), "{text}");
    assert!(text.contains("write a [[rule]] in TOML for each"), "{text}");
}
