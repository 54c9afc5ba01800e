//! Header fields and dynamic metadata of replies where the model of
//! [`oracle`](crate::rls::oracle) says nothing: limits of other algorithms, bytes that are no
//! text, and decisions that wait for a store.

use std::sync::Arc;

use rategate_server::config::load_text;
use rategate_server::engine::{Answer, Decided, Engine, ItemResult, Request, Verdict};
use rategate_server::protocol::rls::{Decide, Options, json};
use rategate_server::rule::{Enforcement, Metadata, MetadataValue, Rule};
use serde_json::{Value, json};

use crate::engine::common::SMALL;
use crate::rls::common::{Clock, engine, rule, runtime};
use crate::rls::counting::engine_of;
use crate::rls::oracle::{Call, ModelDescriptor};
use crate::rls::wires::{self, Wire};

fn call(keys: &[&'static str]) -> Call {
    let requested =
        keys.iter().map(|key| ModelDescriptor { entries: vec![(key, "x")], own: None, hits: None });
    Call { domain: "d", requested: requested.collect(), hits: 0 }
}

fn all() -> Options {
    Options { headers: Some(Arc::default()), dynamic_metadata: true, ..Options::default() }
}

/// Returns both wires of one engine.
fn both(engine: &Engine<Clock>, options: &Options) -> [Wire; 2] {
    let runtime = Arc::new(runtime());
    [wires::grpc, wires::json]
        .map(|wire| wire(Arc::clone(&runtime), engine.clone(), options.clone()))
}

/// A limit in shadow that counts every hit is shown to clients, as in envoyproxy/ratelimit; any
/// other is not.
#[test]
fn clients_are_shown_a_limit_in_shadow_only_if_it_counts_every_hit() {
    for (algorithm, shown) in [
        ("", "1"),
        ("algorithm: fixed-window", "100"),
        ("over: refuse", "100"),
        ("over: charge", "1"),
    ] {
        let text = format!(
            "domain: d\ndescriptors: [{{key: s, shadow_mode: true, rate_limit: {{unit: hour, \
             requests_per_unit: 1, {algorithm}}}}}, {{key: h, rate_limit: {{unit: hour, \
             requests_per_unit: 100, {algorithm}}}}}]"
        );
        let (engine, _) = engine_of(&text, SMALL);
        for wire in both(&engine, &all()) {
            let reply = wire(&call(&["h", "s"]));
            assert!(!reply.is_over);
            assert_eq!(reply.headers[0].1, shown, "{algorithm}: {reply:?}");
        }
        let [wire, _] = both(&engine, &all());
        let alone = wire(&call(&["s"])).headers.len();
        assert_eq!(alone, if shown == "1" { 3 } else { 0 }, "{algorithm}");
    }
}

/// Under the global quota mode, limits that take all or nothing take in the calls that pass.
#[test]
fn the_quota_mode_holds_for_other_algorithms() {
    let limit = |key: &str, keys: &str| {
        format!(
            "{{key: {key}, rate_limit: {{unit: hour, requests_per_unit: {keys}, over: refuse}}}}"
        )
    };
    let text = format!(
        "domain: d\ndescriptors: [{}, {}, {{key: u, rate_limit: {{unlimited: true}}}}]",
        limit("a", "1"),
        limit("b", "9")
    );
    let (engine, _) = engine_of(&text, SMALL);
    let options = Options { quota: true, ..all() };
    let [wire, _] = both(&engine, &options);
    let is_over = |keys: &[&'static str]| wire(&call(keys)).is_over;
    let left = |key| wire(&Call { hits: 0, ..peek(key) }).statuses[0].remaining;
    assert!(!is_over(&["a", "b"]));
    assert!(!is_over(&["a", "b"]), "one of two is over");
    assert_eq!((left("a"), left("b")), (0, 7), "and the other has taken");
    assert!(is_over(&["a"]) && is_over(&["a", "u"]), "what is unlimited is no quota");
    assert!(!is_over(&["a", "unheard"]), "what no rule matches is one that passes");
    let [wire, _] = both(&engine, &all());
    assert!(wire(&call(&["a", "b"])).is_over, "without the mode");
    assert_eq!(left("b"), 7, "and nothing is taken");
}

fn peek(key: &'static str) -> Call {
    let requested = ModelDescriptor { entries: vec![(key, "x")], own: None, hits: Some(0) };
    Call { requested: vec![requested], ..call(&[]) }
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
    let text = "domain: d\ndescriptors: [{key: a, detailed_metric: true, value_to_metric: true, \
                metadata: {k: v}, rate_limit: {unit: hour, requests_per_unit: 1}}]";
    let (engine, _) = engine_of(text, SMALL);
    let [wire, _] = both(&engine, &all());
    let metadata = || wire(&call(&["a"])).metadata.unwrap().get("metadata").cloned();
    assert_eq!(metadata(), Some(json!({"k": "v"})));
    assert_eq!(metadata(), None, "it is over");
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
    let (engine, _) = engine(rules);
    let ask = |hits: u32| {
        let entry = r#"{"entries":[{"key":"few","value":"a"}]}"#;
        let question =
            format!(r#"{{"domain":"edge","hitsAddend":{hits},"descriptors":[{entry}]}}"#);
        let answer = runtime().block_on(json(question.as_bytes(), &engine, &all(), true));
        serde_json::from_str::<Value>(&answer.body).unwrap()
    };
    let shown = |reply: &Value| {
        let status = &reply["statuses"][0];
        let left = status["limitRemaining"].as_u64().unwrap_or(0);
        (status["code"].clone(), status["currentLimit"]["name"].clone(), left)
    };
    let first = ask(50);
    assert_eq!(shown(&first), (json!("OK"), json!("calls/rpm"), 1));
    let soft = ask(20);
    assert_eq!(shown(&soft), (json!("OK"), json!("calls/soft"), 10));
    assert_eq!(soft["dynamicMetadata"]["soft"], json!(["calls/soft"]));
    let denied = ask(1);
    assert_eq!(denied["overallCode"], "OVER_LIMIT");
    assert_eq!(shown(&denied), (json!("OVER_LIMIT"), json!("calls/rpm"), 0));
}

/// A request that is not read cannot be stated.
#[test]
fn a_request_that_is_too_long_is_denied_without_metadata() {
    let (engine, _) = engine(vec![rule("few", &[("few", "")], 3)]);
    let text = format!(r#"{{"domain":"edge","descriptors":[{}]}}"#, vec!["{}"; 65].join(","));
    let answer = runtime().block_on(json(text.as_bytes(), &engine, &all(), true));
    assert_eq!(answer.body, r#"{"overallCode":"OVER_LIMIT","statuses":[]}"#);
}

/// A decision that arrives later, about an item of a rule with metadata.
struct Later(Verdict);

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
            remaining: None,
            debt: 0,
            reset_after_ns: 0,
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
        let answer = runtime().block_on(json(text, &Later(verdict), &all(), true));
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(&body["dynamicMetadata"], expected, "{verdict:?}");
        let without = runtime().block_on(json(text, &Later(verdict), &Options::default(), true));
        assert!(!without.body.contains("Metadata"), "off by default");
    }
}
