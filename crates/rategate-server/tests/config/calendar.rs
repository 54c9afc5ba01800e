//! Limits of a calendar, in both formats.

use rategate::AnyPolicy;
use rategate_server::config::{explain, load_text, to_toml};
use rategate_server::rule::{CounterLocation, Limit, Rule};

const NEW_YORK: &str = r#"{ permits = 2_000_000, per = "month", zone = "America/New_York", anchor = "2026-01-31T00:00", every = 1 }"#;

fn native(limit: &str, more: &str) -> String {
    format!("[[rule]]\nname = \"tokens\"\nalgorithm = \"calendar\"\nlimit = {limit}\n{more}")
}

fn rule(name: &str, text: &str) -> Rule {
    let loaded = load_text(name, text).unwrap_or_else(|error| panic!("{}", error.report()));
    loaded.rules.rules[0].clone()
}

fn problems(name: &str, text: &str) -> String {
    load_text(name, text).map(|_| panic!("accepted: {text}")).unwrap_err().report()
}

fn calendar(rule: &Rule) -> (&str, u64) {
    match &rule.limit {
        Limit::Policy(AnyPolicy::Calendar(calendar)) => (calendar.text(), calendar.permits()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rule_has_a_calendar() {
    let first = rule("rules.toml", &native(NEW_YORK, ""));
    let text = "month in America/New_York from 2026-01-31T00:00:00 every 1";
    assert_eq!(calendar(&first), (text, 2_000_000));
    assert_eq!(first.display_limit.to_string(), "2000000 per month");
    let again = rule("rules.toml", &native(NEW_YORK, ""));
    assert_eq!(first.limit, again.limit, "a reload changes nothing");

    let short = rule("rules.toml", &native(r#"{ permits = 5, per = "quarter" }"#, ""));
    assert_eq!(calendar(&short), ("quarter in UTC from 1970-01-01T00:00:00 every 1", 5));
    assert_eq!(short.display_limit.to_string(), "5 per 3 months");
    for (limit, text) in [(NEW_YORK, text), (r#"{ permits = 5, per = "week", every = 2 }"#, "")] {
        let before = load_text("rules.toml", &native(limit, "")).unwrap();
        let toml = to_toml(&before.rules).unwrap();
        let after = rule("again.toml", &toml);
        let before = &before.rules.rules[0];
        assert_eq!((before.limit, before.display_limit), (after.limit, after.display_limit));
        assert!(calendar(&after).0.starts_with(text), "{toml}");
    }
}

#[test]
fn a_store_keeps_a_calendar() {
    for (store, location) in [
        ("exact", CounterLocation::StoreExact),
        ("leased", CounterLocation::StoreLeased { lease_ns: 100_000_000 }),
    ] {
        let keys = format!("store = \"{store}\"\n[store]\nurl = \"redis://127.0.0.1\"\n");
        assert_eq!(rule("rules.toml", &native(NEW_YORK, &keys)).location, location);
    }
}

#[test]
fn envoys_format_has_a_calendar() {
    let yaml = |limit: &str| {
        format!("domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{ {limit} }}\n")
    };
    let read = |limit: &str| rule("rules.yaml", &yaml(limit));
    let month = read(
        "unit: month, requests_per_unit: 9, calendar: { zone: Asia/Kolkata, anchor: '2026-01-31' }",
    );
    assert_eq!(calendar(&month), ("month in Asia/Kolkata from 2026-01-31T00:00:00 every 1", 9));
    let many = read("unit: week, unit_multiplier: 2, requests_per_unit: 9, calendar: {}");
    assert_eq!(calendar(&many), ("week in UTC from 1970-01-05T00:00:00 every 2", 9));
    assert_eq!(many.display_limit.to_string(), "9 per 2 weeks");
    let none = read("unit: month, requests_per_unit: 0, calendar: { zone: Asia/Kolkata }");
    assert_eq!(none.limit, Limit::Nothing);
    // Units without a calendar are as they were: of one length, in UTC.
    let plain = read("unit: month, requests_per_unit: 9");
    assert!(matches!(plain.limit, Limit::Counted(_)), "{plain:?}");

    for (limit, expected) in [
        (
            "unit: hour, requests_per_unit: 9, calendar: {}",
            "descriptors[0].rate_limit.calendar: \"hour\" is no unit",
        ),
        (
            "unit: day, requests_per_unit: 9, algorithm: gcra, calendar: {}",
            "rate_limit.algorithm: a calendar decides by the algorithm calendar",
        ),
        ("unit: day, requests_per_unit: 9, algorithm: calendar", "a calendar has a limit like"),
        ("unit: day, requests_per_unit: 9, calendar: { zone: Mars }", "no time zone \"Mars\""),
        ("unit: day, requests_per_unit: 9, calendar: { zone: Europe/Zurch }", "Europe/Zurich"),
        ("unit: day, requests_per_unit: 9, calendar: { every: 2 }", "every"),
        ("unlimited: true, calendar: {}", "calendar on an unlimited descriptor"),
    ] {
        let problems = problems("rules.yaml", &yaml(limit));
        assert!(problems.contains(expected), "{limit}: {problems}");
    }
}

#[test]
fn a_wrong_calendar_is_explained() {
    for (limit, expected) in [
        (r#"{ permits = 5, per = "month", zone = "Europe/Rom" }"#, "no time zone \"Europe/Rom\""),
        (r#"{ permits = 5, per = "month", zone = "Europe/Rom" }"#, "did you mean \"Europe/Rome\"?"),
        (r#"{ permits = 5, per = "month", zone = "Mittelerde" }"#, "write a name like"),
        (r#"{ permits = 5, per = "fortnight" }"#, "write day, week, month, quarter or year"),
        (r#"{ permits = 5, per = "day", anchor = "31 Jan" }"#, "write \"2026-01-31T00:00\""),
        (r#"{ permits = 5, per = "day", every = 0 }"#, "a window of 0 units"),
        (r#"{ permits = 5, per = "day", unit = "day" }"#, "`unit` or `per`, not both"),
        (r#"{ permits = 5, per = "day", multiplier = 2 }"#, "a calendar has `every`"),
        (r#"{ permits = 5, unit = "day", zone = "UTC" }"#, "write `per`, not `unit`"),
        ("{ permits = 5 }", "the key `unit` is missing"),
        ("\"5/d\"", "a calendar has a limit like { permits = 1000, per = \"month\""),
    ] {
        let problems = problems("rules.toml", &native(limit, ""));
        assert!(problems.contains(expected), "{limit}: {problems}");
        assert!(problems.contains("rules.toml:4:9"), "{limit}: {problems}");
    }
    let without = native(NEW_YORK, "").replace("algorithm = \"calendar\"\n", "");
    assert!(problems("r.toml", &without).contains("for algorithm = \"calendar\""));
    let lease = "store = \"exact\"\nlease = \"1s\"\n[store]\nurl = \"redis://127.0.0.1\"\n";
    let leased = problems("rules.toml", &native(NEW_YORK, lease));
    assert!(leased.contains("a lease belongs to store = \"leased\""), "{leased}");
    let burst = problems("rules.toml", &native(NEW_YORK, "burst = 3"));
    assert!(burst.contains("a burst belongs to the algorithm \"gcra\""), "{burst}");
}

/// A day of 23 hours between two others: three windows in any day.
#[test]
fn an_explanation_shows_the_calendar_and_its_ceilings() {
    let says = |limit: &str| {
        let loaded = load_text("rules.toml", &native(limit, "match = [\"user\"]")).unwrap();
        explain(&loaded.rules, "default", &[("user", "ann")]).to_string()
    };
    let month = says(NEW_YORK);
    let limit = "limit:     2000000 per month (calendar: month in America/New_York from \
                 2026-01-31T00:00:00 every 1)\nat most:   4000000 in any second";
    assert!(month.contains(limit), "{month}");
    let day = says(r#"{ permits = 5, per = "day", zone = "Europe/Rome" }"#);
    assert!(day.contains("15 in any hour, 15 in any day"), "{day}");
}
