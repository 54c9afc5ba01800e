//! Header fields and dynamic metadata of replies where the model of
//! [`oracle`](crate::rls::oracle) says nothing: limits of other algorithms, bytes that are no
//! text, and decisions that wait for a store.

use std::sync::Arc;

use rategate_server::config::load_text;
use rategate_server::engine::{Answer, Decided, ItemResult, Request, Verdict};
use rategate_server::protocol::rls::{Decide, Options, json};
use rategate_server::rule::{Enforcement, Metadata, MetadataValue, Rule};
use serde_json::{Value, json};

use crate::engine::common::SMALL;
use crate::rls::common::{engine, rule, runtime};
use crate::rls::told::Told;

fn all() -> Options {
    Options { headers: Some(Arc::default()), dynamic_metadata: true, ..Options::default() }
}

fn limit(key: &str, permits: u32, more: &str) -> String {
    format!("{{key: {key}, rate_limit: {{unit: hour, requests_per_unit: {permits}, {more}}}}}")
}

/// A limit in shadow that counts every hit is shown to clients, as in envoyproxy/ratelimit; any
/// other is not.
#[test]
fn clients_are_shown_a_limit_in_shadow_only_if_it_counts_every_hit() {
    const HARD: &str = "RateLimit-Limit=100 RateLimit-Remaining=99 RateLimit-Reset=2750";
    for (algorithm, counts) in [
        ("", true),
        ("algorithm: fixed-window", false),
        ("over: refuse", false),
        ("over: charge", true),
    ] {
        let shadow =
            limit("s", 1, algorithm).replace("rate_limit", "shadow_mode: true, rate_limit");
        let told = Told::with(&format!("{shadow}, {}", limit("h", 100, algorithm)), &all());
        let (both, alone) = if counts {
            (
                "h=x s=x => ok 99 0; fields RateLimit-Limit=1 RateLimit-Remaining=0 RateLimit-Reset=2750",
                "s=x => ok 0; fields RateLimit-Limit=1 RateLimit-Remaining=0 RateLimit-Reset=2750",
            )
        } else {
            ("h=x s=x => ok 99 0; fields HARD", "s=x => ok 0; fields")
        };
        let both: &'static str = both.replace("HARD", HARD).leak();
        told.play(both).play(alone);
    }
}

/// Under the global quota mode, limits that take all or nothing take in the calls that pass.
#[test]
fn the_quota_mode_holds_for_other_algorithms() {
    let (a, b) = (limit("a", 1, "over: refuse"), limit("b", 9, "over: refuse"));
    let descriptors = format!("{a}, {b}, {{key: u, rate_limit: {{unlimited: true}}}}");
    Told::with(&descriptors, &Options { quota: true, ..all() }).play(
        "
        a=x b=x => ok 0 8
        // One of two is over, and the other has taken.
        a=x b=x => ok !0 7
        a=x => over !0
        // What is unlimited is no quota, and what no rule matches is one that passes.
        a=x u=x => over !0 max
        a=x unheard=x => ok !0 -
        ",
    );
    // Without the mode, nothing is taken.
    Told::with(&descriptors, &all()).play("a=x b=x => ok 0 8\na=x b=x => over !0 8\nb=x:0 => ok 8");
}

/// Clients choose the bytes of entries. In metadata they are text: a reply that is invalid would
/// count as none, and Envoy lets the request pass then.
#[test]
fn bytes_that_are_no_text_are_replaced_in_metadata() {
    let (engine, _) = engine(vec![rule("few", &[("few", "")], 3)]);
    let question = b"{\"domain\":\"edge\",\"descriptors\":[{\"entries\":[{\"key\":\"few\",\"value\":\"\xff\xfe\"}]}]}";
    let answer = runtime().block_on(json(question, &engine, &all(), true));
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(body["dynamicMetadata"]["descriptors"][0]["entries"][0], "few=\u{fffd}\u{fffd}");
    assert_eq!(body["statuses"][0]["limitRemaining"], 2);
}

#[test]
fn the_metadata_of_a_rule_with_detailed_metrics_is_kept() {
    let more = "detailed_metric: true, value_to_metric: true, metadata: {k: v}, rate_limit";
    Told::with(&limit("a", 1, "").replace("rate_limit", more), &all()).play(
        "
        a=x => ok 0; metadata {\"k\":\"v\"}
        a=x => over !0; metadata
        ",
    );
}

/// One descriptor means all limits of a rule, and its status is that of the strictest.
#[test]
fn a_descriptor_has_the_status_of_the_strictest_of_several_limits() {
    let text = "[[rule]]\nname = \"calls\"\ndomain = \"edge\"\nmatch = [\"few\"]\n\
                algorithm = \"fixed-window\"\nlimits = [\
                { name = \"rpm\", limit = \"2/d\", counts = \"requests\" },\
                { name = \"tpm\", limit = \"100/d\" },\
                { name = \"soft\", limit = \"60/d\", enforce = \"soft\" }]";
    let rules = load_text("rules.toml", text).unwrap().rules.rules.clone();
    Told::of(&rules, SMALL, &Options::default()).play(
        "
        few=a *50 => ok 1; limits calls/rpm=2/day
        few=a *20 => ok 10; limits calls/soft=60/day
        few=a *1 => over !0; limits calls/rpm=2/day
        ",
    );
    let (engine, _) = engine(rules);
    let question = br#"{"domain":"edge","hitsAddend":70,
        "descriptors":[{"entries":[{"key":"few","value":"a"}]}]}"#;
    let answer = runtime().block_on(json(question, &engine, &all(), true));
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(body["dynamicMetadata"]["soft"], json!(["calls/soft"]));
}

/// A decision that arrives later, about an item of a rule with metadata.
struct Later(Verdict, Option<u64>);

impl Decide for Later {
    fn decide(&self, request: &Request<'_>) -> Decided {
        let metadata = Metadata([("team".into(), MetadataValue::text("t"))].into());
        let rule = Rule {
            metadata: Some(Arc::new(metadata)),
            enforcement: Enforcement::All,
            ..rule("far", &[("far", "")], 5)
        };
        let result = ItemResult {
            display_limit: Some(rule.display_limit),
            rule: Some(Arc::new(rule)),
            verdict: self.0,
            limit: 5,
            remaining: self.1,
            debt: 0,
            reset_after_ns: u64::MAX,
            store_ns: None,
            detail: None,
        };
        let results = request.items.iter().map(|_| result.clone()).collect();
        let answer = Answer { allowed: !self.0.is_over(), results };
        Decided::Later(Box::pin(async { Ok(answer) }))
    }
}

/// The reply states the request although the decision outlives it, and has the metadata of rules
/// that did not deny.
#[test]
fn a_decision_of_a_store_has_metadata_if_it_did_not_deny() {
    let text = br#"{"domain":"edge","descriptors":[{"entries":[{"key":"far","value":"x"}]}]}"#;
    let descriptors = json!([{"entries": ["far=x"]}]);
    let whole = json!({"domain": "edge", "descriptors": descriptors, "metadata": {"team": "t"}});
    let request = json!({"domain": "edge", "descriptors": descriptors});
    for (verdict, expected) in [
        (Verdict::Granted, &whole),
        (Verdict::Denied { retry_after_ns: None, enforced: false }, &whole),
        (Verdict::Unavailable { admitted: true, retry_after_ns: None }, &whole),
        (Verdict::Refunded(1), &whole),
        (Verdict::Denied { retry_after_ns: None, enforced: true }, &request),
        (Verdict::Unavailable { admitted: false, retry_after_ns: None }, &request),
        (Verdict::Replaced, &request),
        (Verdict::Unlimited, &request),
        (Verdict::Unmatched, &request),
    ] {
        let answer = runtime().block_on(json(text, &Later(verdict, None), &all(), true));
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(&body["dynamicMetadata"], expected, "{verdict:?}");
        let without =
            runtime().block_on(json(text, &Later(verdict, None), &Options::default(), true));
        assert!(!without.body.contains("Metadata"), "off by default");
    }
}

/// Envoy would report 584 years to clients, and that nothing is left.
#[test]
fn unknown_values_are_left_out() {
    let text = br#"{"domain":"edge","descriptors":[{"entries":[{"key":"far","value":"x"}]}]}"#;
    let options = Options { headers: Some(Arc::default()), ..Options::default() };
    let body_of = |fixed: Later| runtime().block_on(json(text, &fixed, &options, true)).body;
    let never = body_of(Later(Verdict::Granted, Some(4)));
    assert!(never.contains(r#""limitRemaining":4"#) && !never.contains("Reset"), "{never}");
    for (admitted, code) in [(true, "OK"), (false, "OVER_LIMIT")] {
        let unavailable = Verdict::Unavailable { admitted, retry_after_ns: None };
        let expected = format!(r#"{{"overallCode":"{code}","statuses":[{{"code":"{code}"}}]}}"#);
        assert_eq!(body_of(Later(unavailable, None)), expected);
    }
}
