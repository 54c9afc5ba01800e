//! The answers as JSON, on a clock that the test sets.

use std::sync::Arc;

use rategate::ManualClock;
use rategate_server::engine::{
    DEFAULT_TTL, Decided, Engine, Item, Request, Target, UniqueId, Verb,
};
use rategate_server::net::Rights;
use rategate_server::observe::admin::Admin;
use rategate_server::observe::{MAX_RECORDS, Store, Taken, View};
use rategate_server::protocol::http::{Api, Caller};
use rategate_server::rule::{Rule, RuleSet, Unit};
use serde_json::{Value, json};

use crate::engine::common::now;
use crate::observe::common::{Bench, SECOND_NS, START_NS, bucket, rule, rules};

fn live<'a>(overview: &'a Value, name: &str) -> &'a Value {
    overview["rules"].as_array().unwrap().iter().find(|rule| rule["name"] == name).unwrap()
}

/// Each decided item counts in the second in which it came, with its requested and granted
/// permits.
#[test]
fn each_second_has_what_happened_in_it() {
    let bench = Bench::new(rules());
    for second in 0..5_u64 {
        for _ in 0..second * 10 {
            bench.take("per-address", &["a"], 1);
        }
        bench.take("per-address", &["b"], 3);
        bench.second();
    }
    let all = bench.json("/v1/rules?rule=per-address");
    let series = &all["detail"]["series"];
    assert_eq!(series["from_s"], START_NS / SECOND_NS);
    assert_eq!(series["requested_permits"], json!([3, 13, 23, 33, 43]));
    // The bucket of `a` holds twenty, and earns ten per second.
    assert_eq!(series["granted_permits"], json!([3, 13, 23, 13, 13]));
    assert_eq!(series["denied"], json!([0, 0, 0, 20, 30]));
    let newest = &live(&all, "per-address")["second"];
    assert_eq!((&newest["requested_permits"], &newest["denied"]), (&json!(43), &json!(30)));
    assert_eq!(live(&all, "per-address")["keys"], 2);
    assert_eq!(live(&all, "search")["sentence"], "No calls in the last minute.");
    assert_eq!(
        live(&all, "per-address")["sentence"],
        "52 % of 105 calls in the last minute allowed. One key, a, causes 100 % of denials."
    );
}

/// No way of reading changes a figure or a counter.
#[test]
fn reading_figures_changes_nothing() {
    let bench = Bench::new(rules());
    for _ in 0..21 {
        bench.take("per-address", &["a"], 1);
    }
    bench.second();
    let before = bench.json("/v1/rules?rule=per-address");
    for _ in 0..3 {
        let key = bench.json("/v1/keys/per-address/a");
        assert_eq!((&key["allowed"], &key["remaining_permits"]), (&json!(true), &json!(10)));
        let body = r#"{"domain":"edge","entries":[{"key":"remote_address","value":"a"}]}"#;
        assert_eq!(bench.call("POST", "/v1/explain", body).0, 200);
        bench.json("/v1/top?rule=per-address");
        bench.call("GET", "/metrics", "");
    }
    assert_eq!(bench.json("/v1/rules?rule=per-address"), before);
    bench.observe.tick(START_NS + SECOND_NS);
    assert_eq!(bench.json("/v1/rules?rule=per-address"), before, "twice in a second is once");
}

#[test]
fn explain_names_the_reason_and_the_wait() {
    let bench = Bench::new(rules());
    for _ in 0..100 {
        bench.take("free-plan", &["free", "ann/b%"], 1);
    }
    let key = bench.json("/v1/keys/free-plan/free/ann%2Fb%25");
    assert_eq!((&key["allowed"], &key["verdict"]), (&json!(false), &json!("denied")));
    assert_eq!(key["retry_after_ms"], 60_000);
    assert_eq!(key["sentence"], "Denied: 0 of 100 permits are left. One fits in 1 min 0 s.");
    let other = bench.json("/v1/keys/free-plan/free/ann");
    assert_eq!(other["sentence"], "Allowed: 100 of 100 permits are left, nothing is in use.");
    let one = bench.json("/v1/keys/search");
    assert_eq!((&one["allowed"], &one["limit_permits"]), (&json!(true), &json!(60)));
    assert_eq!(bench.json("/v1/keys/search/"), one);
    // A value may be empty where the rule has one.
    assert!(bench.take("per-address", &[""], 5));
    assert_eq!(bench.json("/v1/keys/per-address/")["remaining_permits"], 15);
    for (path, status) in [
        ("/v1/keys/free-plan/free", 400),
        ("/v1/keys/unknown/x", 404),
        ("/v1/keys/search/%zz", 400),
        ("/v1/keys/%ff/x", 400),
    ] {
        assert_eq!(bench.call("GET", path, "").0, status, "{path}");
    }
}

/// A debt is visible at its key, and a reservation in the service's figures.
#[test]
fn debts_and_reservations_are_visible() {
    let bench = Bench::new(rules());
    let target = Target::Rule { name: "per-address", values: &[b"a"] };
    let items = [Item::of(target, 25)];
    let charge = Request { verb: Verb::Charge, items: &items, counts_denied: false };
    assert!(matches!(bench.engine.decide(&charge), Decided::Now(Ok(_))));
    let key = bench.json("/v1/keys/per-address/a");
    assert_eq!((&key["allowed"], &key["debt_permits"]), (&json!(false), &json!(5)));
    assert_eq!(
        key["sentence"],
        "Denied: charges exceed the limit of 20 by 5 permits. One fits in 600 ms."
    );
    assert_eq!(bench.json("/v1/keys/per-address/b")["debt_permits"], 0);
    let held = [Item::of(Target::Rule { name: "per-address", values: &[b"b"] }, 7)];
    let id = UniqueId::random();
    now(bench.engine.reserve(id, DEFAULT_TTL, &held)).unwrap();
    let service = &bench.json("/v1/rules")["service"];
    assert_eq!(service["reservations"], json!({"open": 1, "known": 1}));
    now(bench.engine.cancel(id, &[held[0].target])).unwrap();
    let service = &bench.json("/v1/rules")["service"];
    assert_eq!(service["reservations"], json!({"open": 0, "known": 1}));
}

/// An engine that reveals its rules only by name.
#[derive(Debug)]
struct Named(Engine<ManualClock>);

impl View for Named {
    fn now_ns(&self) -> u64 {
        View::now_ns(&self.0)
    }

    fn rules(&self) -> Option<Arc<RuleSet>> {
        panic!("all rules were read")
    }

    fn rule(&self, name: &str) -> Option<Arc<Rule>> {
        View::rule(&self.0, name)
    }

    fn evaluate(&self, request: &Request<'_>) -> Decided {
        self.0.evaluate(request)
    }

    fn taken(&self, rule: &str) -> Option<Taken> {
        self.0.taken(rule)
    }
}

/// A hundred thousand rules do not make a look-up slower.
#[test]
fn a_look_up_does_not_go_through_all_rules() {
    let mut bench = Bench::new(rules());
    let admin = Admin::new(Arc::clone(&bench.observe), Arc::new(Named(bench.engine.clone())));
    bench.admin = Api::of(admin.routes());
    for path in ["search", "search/", "per-address/a", "free-plan/free/ann"] {
        assert_eq!(bench.json(&format!("/v1/keys/{path}"))["allowed"], true, "{path}");
    }
    for (path, status) in [("unknown/x", 404), ("unknown/", 404), ("per-address", 400)] {
        assert_eq!(bench.call("GET", &format!("/v1/keys/{path}"), "").0, status, "{path}");
    }
    let body = r#"{"domain":"edge","entries":[{"key":"remote_address","value":"a"}]}"#;
    let (status, body) = bench.call("POST", "/v1/explain", body);
    assert!(status == 200 && body.contains("per-address"), "{status} {body}");
}

#[test]
fn keys_that_stand_out_are_named_and_cannot_write_lines() {
    let bench = Bench::new(rules());
    let nasty = "x\n\u{202e}\"<script>";
    for _ in 0..50 {
        bench.take("per-address", &[nasty], 1);
    }
    for calm in 0..30 {
        bench.take("per-address", &[&format!("calm-{calm}")], 2);
    }
    bench.second();
    let top = bench.json("/v1/top?rule=per-address&most=5");
    assert_eq!(top["denied"]["keys"][0]["key"], "x%0A%E2%80%AE%22%3Cscript%3E");
    assert_eq!(
        (&top["denied"]["keys"][0]["at_least"], &top["denied"]["total"]),
        (&json!(30), &json!(30))
    );
    assert_eq!(top["used"]["keys"].as_array().unwrap().len(), 5);
    assert_eq!((&top["used"]["total"], &top["one_in"]), (&json!(80), &json!(1)));
    let detail = &bench.json("/v1/rules?rule=per-address")["detail"];
    assert_eq!(detail["denials"][0]["why"], "over-the-limit");
    assert_eq!(detail["denials"][0]["retry_after_ms"], 100);
    assert_eq!(detail["denials"].as_array().unwrap().len(), 1, "of those of one instant, one");
    assert_eq!(detail["waits"]["counts"][4], 30, "all wait for 100 ms");
    // A key that was heavy long ago is no longer ranked.
    for _ in 0..130 {
        bench.second();
    }
    assert_eq!(bench.json("/v1/top?rule=per-address")["denied"]["keys"], json!([]));
}

#[test]
fn shadow_denials_are_distinguished() {
    let bench = Bench::new(rules());
    for _ in 0..15 {
        assert!(bench.take("uploads", &["ann"], 40));
    }
    bench.second();
    let all = bench.json("/v1/rules?rule=uploads");
    let minute = &live(&all, "uploads")["minute"];
    assert_eq!(
        (&minute["passed"], &minute["shadow_denied"], &minute["denied"]),
        (&json!(10), &json!(5), &json!(0))
    );
    assert_eq!(
        live(&all, "uploads")["sentence"],
        "67 % of 15 calls in the last minute would have been allowed. One key, ann, \
         causes 100 % of denials."
    );
    assert_eq!(all["detail"]["denials"][0]["enforced"], false);
}

#[test]
fn a_descriptor_is_explained() {
    let bench = Bench::new(rules());
    let explain = |body: &str| bench.call("POST", "/v1/explain", body);
    let (status, body) = explain(
        r#"{"domain":"edge","entries":[{"key":"plan","value":"free"},{"key":"user","value":"ann"}]}"#,
    );
    let reported: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &reported["matched"], &reported["rule"]["name"]),
        (200, &json!(true), &json!("free-plan"))
    );
    assert_eq!(reported["rule"]["limit"], "100 per minute for each key");
    let (_, body) = explain(r#"{"domain":"edge","entries":[{"key":"plan","value":"free"}]}"#);
    let reported: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&reported["matched"], &reported["now"]["verdict"]),
        (&json!(false), &json!("unmatched"))
    );
    // A misspelt name is reported with a suggestion.
    for (domain, key, hint) in [
        ("egde", "user", json!("no rule is of the domain `egde`; did you mean `edge`?")),
        ("edge", "pln", json!("no rule of the domain has the key `pln`; did you mean `plan`?")),
        ("edge", "something-else", Value::Null),
    ] {
        let question = json!({"domain": domain, "entries": [{"key": key, "value": "1"}]});
        let reported: Value = serde_json::from_str(&explain(&question.to_string()).1).unwrap();
        assert_eq!(
            (&reported["matched"], &reported["hint"]),
            (&json!(false), &hint),
            "{domain} {key}"
        );
    }
    let list = r#"["edge",[]]"#;
    for body in ["", "{}", "[", r#"{"domain":"edge","entries":[],"more":1}"#, list] {
        let (status, problem) = explain(body);
        assert_eq!(status, 400, "{body}");
        let problem: Value = serde_json::from_str(&problem).unwrap();
        let detail = problem["detail"].as_str().unwrap();
        assert!(body != list || detail.contains("not a JSON object"), "{detail}");
    }
    assert_eq!(explain(&" ".repeat(70_000)).0, 413, "no longer than it may be");
}

#[test]
fn who_may_not_read_gets_the_page_alone() {
    let bench = Bench::new(rules());
    for path in [
        "/v1/rules",
        "/metrics",
        "/v1/top?rule=search",
        "/v1/config",
        "/v1/keys/search",
        "/v1/events",
    ] {
        assert_eq!(bench.call_as(Rights::NONE, "GET", path, "").0, 401, "{path}");
        assert_eq!(bench.call("DELETE", path, "").0, 405, "{path}");
    }
    let body = r#"{"rule":"search","limit":{"permits":1,"period_ms":1000}}"#;
    assert_eq!(bench.call_as(Rights::READ, "POST", "/v1/simulate", body).0, 401);
    assert_eq!(bench.call("GET", "/v1/simulate", "").0, 405);
    let page = if cfg!(feature = "dashboard") { 200 } else { 404 };
    assert_eq!(bench.call_as(Rights::NONE, "GET", "/", "").0, page);
    assert_eq!(bench.call("GET", "/v1/rules?rule=unknown", "").0, 404);
    assert_eq!(bench.call("GET", "/v1/top?rule=unknown", "").0, 404);
    assert_eq!(bench.call("GET", "/v1/top", "").0, 400);
    assert_eq!(bench.call("GET", "/elsewhere", "").0, 404);
}

#[test]
fn the_configuration_is_shown_with_its_digest_and_the_last_error() {
    let bench = Bench::new(rules());
    let config = bench.json("/v1/config");
    assert_eq!((&config["hash"], &config["failed"]), (&json!("3f1c9a52d7be40f8"), &json!(false)));
    assert_eq!(config["rules"][0]["written_at"], "limits.toml:3:1");
    assert_eq!(
        (&config["rules"][0]["burst"], &config["rules"][0]["period_ms"]),
        (&json!(20), &json!(1_000))
    );
    bench.observe.status().load_failed("limits.toml:7:3: unknown unit `sec`");
    bench.observe.status().store_is(Store::Unavailable);
    let service = bench.json("/v1/rules")["service"].clone();
    assert_eq!(
        (&service["config_failed"], &service["store"]),
        (&json!(true), &json!("unavailable"))
    );
    assert_eq!(service["config_error"], "limits.toml:7:3: unknown unit `sec`");
    bench.observe.status().certificates_failed("key.pem: no PEM");
    assert_eq!(bench.json("/v1/rules")["service"]["tls_error"], "key.pem: no PEM");
    bench.observe.status().certificates_loaded();
    assert_eq!(bench.json("/v1/rules")["service"]["tls_error"], Value::Null);
    bench.observe.status().loaded(7);
    assert_eq!(bench.json("/v1/config")["failed"], false);
    assert_eq!(bench.json("/v1/config")["error"], Value::Null);
}

/// Figures are carried over a reload by the rule's name; those of removed rules are dropped.
#[test]
fn figures_survive_a_reload_and_are_bounded() {
    let bench = Bench::new(rules());
    bench.take("per-address", &["a"], 1);
    bench.second();
    bench.engine.load(rules()).unwrap();
    bench.take("per-address", &["a"], 1);
    bench.second();
    let all = bench.json("/v1/rules?rule=per-address");
    assert_eq!(live(&all, "per-address")["minute"]["passed"], 2);

    let many = |names: std::ops::Range<usize>| RuleSet {
        rules: names
            .map(|at| rule(&format!("r{at}"), &[&format!("k{at}")], bucket(1, 1), 1, Unit::Second))
            .collect(),
        hash: "1".into(),
    };
    bench.engine.load(many(0..MAX_RECORDS + 40)).unwrap();
    bench.second();
    bench.take(&format!("r{}", MAX_RECORDS + 20), &["x"], 1);
    bench.take(&format!("r{}", MAX_RECORDS + 21), &["x"], 1);
    bench.second();
    let all = bench.json("/v1/rules");
    let shown = all["rules"].as_array().unwrap();
    assert!(shown.len() <= MAX_RECORDS + 2, "{}", shown.len());
    assert_eq!(live(&all, "*other")["minute"]["passed"], 2);
    assert!(shown.iter().all(|rule| rule["name"] != "per-address"), "it was removed");
    bench.engine.load(many(0..3)).unwrap();
    bench.second();
    assert_eq!(
        bench.json("/v1/rules")["rules"].as_array().unwrap().len(),
        4,
        "three, and those of calls"
    );
}

/// A configuration is validated for clients with the right, and nothing of it comes into force.
#[test]
fn a_configuration_is_validated() {
    let bench = Bench::new(rules());
    let path = "/v1/config/validate";
    let validated = |text: &str| {
        let (status, body) = bench.call("POST", path, text);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    let right = validated("[[rule]]\nname = \"a\"\nlimit = \"5/s\"\n");
    assert_eq!((&right["is_valid"], &right["rules"]), (&json!(true), &json!(1)));
    assert!(right["hash"].is_string());
    let invalid = validated("[[rule]]\nname = \"a\"\nlimit = \"5/fortnight\"\n");
    assert_eq!((&invalid["is_valid"], &invalid["hash"]), (&json!(false), &Value::Null));
    let problem = &invalid["problems"][0];
    assert_eq!((&problem["line"], &problem["column"]), (&json!(3), &json!(9)));
    let many = validated(&"[[rule]]\nname = \"\"\nlimit = \"5/s\"\n".repeat(80));
    assert_eq!(many["problems"].as_array().unwrap().len(), 50);
    assert!(many["untold"].as_u64().unwrap() >= 30);
    assert_eq!(bench.json("/v1/config")["rules"].as_array().unwrap().len(), 4, "as before");
    // No file of this machine is opened, whatever the text names: its contents could leak.
    let there = tempfile::NamedTempFile::new().unwrap();
    let token = |from: &str| validated(&format!("[server]\ntoken = {{ {from} }}\n"));
    let mut all = Vec::new();
    for path in [there.path().to_str().unwrap(), "/nowhere", "/dev/zero", "/"] {
        all.push(token(&format!("file = \"{path}\"")));
    }
    all.push(token("env = \"PATH\""));
    all.push(token("env = \"NO_SUCH_VARIABLE\""));
    assert!(all.iter().all(|one| one["is_valid"] == json!(true)), "{all:?}");
    // Bounds.
    assert_eq!(bench.call("POST", path, &"#".repeat((1 << 20) + 1)).0, 413);
    assert_eq!(bench.call("GET", path, "").0, 405);
    assert_eq!(bench.call_as(Rights::READ, "POST", path, "").0, 401);
}

/// Problems have the form of those of the API, and are not to be cached.
#[test]
fn problems_are_those_of_the_api() {
    use http_body_util::BodyExt as _;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bench = Bench::new(rules());
    for (method, path, rights, code, field) in [
        ("GET", "/v1/rules?rule=%22", Rights::ALL, "no_such_rule", ("cache-control", "no-store")),
        ("GET", "/v1/keys/none", Rights::ALL, "no_such_rule", ("cache-control", "no-store")),
        ("GET", "/v1/top?most=x", Rights::ALL, "invalid_request", ("cache-control", "no-store")),
        ("PUT", "/v1/explain", Rights::ALL, "other_method", ("allow", "POST")),
        ("GET", "/v1/rules", Rights::NONE, "token_needed", ("www-authenticate", "Bearer")),
        ("GET", "/v1/nothing", Rights::ALL, "no_such_path", ("content-length", "")),
    ] {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
        let response = runtime.block_on(bench.admin.call(request, &Caller::with(rights)));
        assert_eq!(response.headers()["content-type"], "application/problem+json", "{path}");
        let (name, value) = field;
        assert!(value.is_empty() || response.headers()[name] == value, "{path}: {response:?}");
        let body = runtime.block_on(response.into_body().collect()).unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["code"], code, "{path}: {body}");
    }
}
