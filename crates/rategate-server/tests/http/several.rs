//! Items under several limits, and what was used in place of permits.

use std::time::Duration;

use rategate_server::config::load_text;
use serde_json::{Value as Json, json};

use crate::http::common::{Service, with_rules};

const RULES: &str = r#"
[[rule]]
name = "calls"
domain = "llm"
match = ["user"]
algorithm = "fixed-window"
weights = { input = 1, cached = "0.1", cache_write = "1.25", output = 6 }
prices.small.input = "0.25/1M"
prices.small.output = "2/1M"
prices."*".input = "3/1M"
limits = [
    { name = "rpm", limit = "5/min", counts = "requests" },
    { name = "tpm", limit = "1000/min" },
    { name = "usd", limit = "5000/d", counts = "money" },
]

[[rule]]
name = "plain"
match = ["user"]
limit = "10/min"

[[rule]]
name = "weighted"
match = ["user"]
limit = "1000/min"
algorithm = "fixed-window"
weights = { a = "0.5", b = 2 }
"#;

fn service() -> Service {
    let rules = load_text("rules.toml", RULES).unwrap_or_else(|error| panic!("{}", error.report()));
    with_rules(rules.rules.set().as_ref().clone())
}

fn post(service: &Service, body: &Json) -> Json {
    let answer = service.post("/v1/check", &body.to_string());
    assert_eq!(answer.status, 200, "{body}: {answer:?}");
    answer.json()
}

/// Returns a member of each limit of the only item.
fn limits(answer: &Json, member: &str) -> Vec<Json> {
    let limits = answer["items"][0]["limits"].as_array().unwrap();
    limits.iter().map(|limit| limit[member].clone()).collect()
}

#[test]
fn a_usage_counts_in_each_limit_what_that_counts() {
    let service = service();
    let usage = json!({ "input": 100, "output": 50 });
    let body = json!({ "rule": "calls", "key": "k", "usage": usage, "model": "small" });
    let taken = post(&service, &body);
    assert_eq!(limits(&taken, "dimension"), ["rpm", "tpm", "usd"]);
    // 100 + 6 * 50 tokens, and 25 + 100 millionths of money.
    assert_eq!(limits(&taken, "cost"), [Json::Null, json!(400), json!(125)]);
    assert_eq!(limits(&taken, "remaining"), [4, 600, 4_875]);
    assert_eq!(taken["items"][0]["rule"], "calls/rpm", "the one with the least left");
    // A descriptor is the same.
    let body = json!({
        "domain": "llm", "descriptor": { "user": "k" }, "usage": usage, "model": "small",
    });
    assert_eq!(limits(&post(&service, &body), "remaining"), [3, 200, 4_750]);
    let denied = post(&service, &body);
    assert_eq!(
        (&denied["allowed"], &denied["items"][0]["dimension"]),
        (&json!(false), &json!("tpm"))
    );
    assert_eq!(denied["items"][0]["cost"], 400);
    assert_eq!(limits(&denied, "remaining"), [3, 200, 4_750], "nothing is taken");
    // Another model has the prices of all others, in which output has none.
    let body = json!({ "rule": "calls", "key": "k", "usage": { "input": 10 }, "model": "large" });
    assert_eq!(limits(&post(&service, &body), "cost"), [Json::Null, json!(10), json!(30)]);
    // A look at no usage counts nothing, and permits of one limit count as they are.
    let peek = json!({ "verb": "peek", "rule": "calls", "key": "k", "permits": 0 });
    assert_eq!(limits(&post(&service, &peek), "remaining"), [2, 190, 4_720]);
    let refund = json!({ "verb": "refund", "rule": "calls/usd", "key": "k", "permits": 280 });
    assert_eq!(post(&service, &refund)["items"][0]["remaining"], 5_000);
}

#[test]
fn a_single_limit_says_what_its_usage_cost() {
    let service = service();
    let ask = |verb: &str, usage: Json| {
        let body = json!({ "verb": verb, "rule": "weighted", "key": "k", "usage": usage });
        let item = post(&service, &body)["items"][0].clone();
        (item["cost"].as_u64().unwrap(), item["remaining"].as_u64().unwrap())
    };
    assert_eq!(ask("take", json!({ "a": 1, "b": 1 })), (3, 997), "2.5 rounded up");
    assert_eq!(ask("charge", json!({ "a": 3 })), (2, 995));
    assert_eq!(ask("refund", json!({ "a": 3 })), (2, 997));
    assert_eq!(ask("peek", json!({ "b": 500 })), (1_000, 997));
    assert_eq!(ask("take", json!({ "a": 0 })), (0, 997));
    let permits = post(&service, &json!({ "rule": "weighted", "key": "k", "permits": 7 }));
    assert_eq!(permits["items"][0]["remaining"], 990);
    assert!(
        permits["items"][0].get("cost").is_none() && permits["items"][0].get("limits").is_none()
    );
}

const ID: &str = "7d5c0f4b2a9e4c1f8b6d3e5a7c9f1b20";

#[test]
fn a_reservation_is_settled_by_what_was_used() {
    let service = service();
    let of = |verb: &str, more: Json| {
        let mut body = json!({ "verb": verb, "id": ID, "rule": "calls", "key": "k" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let estimate =
        json!({ "usage": { "input": 100, "output": 100 }, "model": "small", "ttl": "30s" });
    let held = post(&service, &of("reserve", estimate.clone()));
    assert_eq!(limits(&held, "remaining"), [4, 300, 4_775]);
    let again = post(&service, &of("reserve", estimate.clone()));
    assert_eq!(
        (&again["repeated"], limits(&again, "remaining")),
        (&json!(true), limits(&held, "remaining"))
    );
    // Another usage is another reservation.
    let mut other = estimate.clone();
    other["usage"]["output"] = json!(99);
    let conflict = service.post("/v1/check", &of("reserve", other).to_string());
    assert_eq!(conflict.problem().1, "other_items");
    // What has no cost settles nothing.
    let wrong = of("commit", json!({ "usage": { "input": 1, "typo": 1 }, "model": "small" }));
    assert_eq!(service.post("/v1/check", &wrong.to_string()).problem().1, "invalid_usage");
    let permits = of("commit", json!({ "permits": 1 }));
    assert_eq!(service.post("/v1/check", &permits.to_string()).problem().1, "invalid_usage");
    let used = json!({ "usage": { "input": 100, "output": 20 }, "model": "small" });
    let committed = post(&service, &of("commit", used));
    assert_eq!(limits(&committed, "verdict"), ["committed"; 3]);
    assert_eq!(limits(&committed, "refunded"), [Json::Null, json!(480), json!(160)]);
    assert_eq!(limits(&committed, "remaining"), [4, 780, 4_935]);
    // Without a usage, as much as was held.
    let id = json!({ "id": "00000000000000000000000000000001" });
    let merged = |more: &Json| {
        let mut more = more.clone();
        more.as_object_mut().unwrap().extend(id.as_object().unwrap().clone());
        more
    };
    post(&service, &of("reserve", merged(&json!({ "usage": { "input": 80 }, "model": "small" }))));
    let even = post(&service, &of("commit", merged(&json!({}))));
    assert_eq!(limits(&even, "remaining"), [3, 700, 4_915]);
    // A late one charges what was held, each limit its own.
    let id = json!({ "id": "00000000000000000000000000000002" });
    let late = json!({ "usage": { "output": 10 }, "model": "small", "ttl": "5s", "id": id["id"] });
    assert_eq!(limits(&post(&service, &of("reserve", late)), "remaining"), [2, 640, 4_895]);
    service.clock.advance(Duration::from_secs(6));
    let late = post(&service, &of("commit", id));
    assert_eq!(limits(&late, "verdict"), ["late"; 3]);
    assert_eq!(limits(&late, "charged"), [1, 60, 20]);
    assert_eq!(limits(&late, "remaining"), [2, 640, 4_895]);
}

/// The numbers of an item are of the limit that it names, and each limit has its own.
#[test]
fn what_a_usage_holds_and_costs_is_said_of_each_limit() {
    let service = service();
    let of = |verb: &str, more: Json| {
        let mut body = json!({ "verb": verb, "id": ID, "rule": "calls", "key": "k" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let usage = |input: u64| json!({ "usage": { "input": input }, "model": "small" });
    for repeated in [false, true] {
        let held = post(&service, &of("reserve", usage(800)));
        assert_eq!(held["repeated"], repeated);
        assert_eq!(limits(&held, "held"), [1, 800, 200]);
        assert_eq!(limits(&held, "cost"), [Json::Null, json!(800), json!(200)]);
        let item = &held["items"][0];
        assert_eq!((&item["dimension"], &item["remaining"]), (&json!("rpm"), &json!(4)));
        assert_eq!(item["held"], Json::Null, "of three units there is no sum");
    }
    for repeated in [false, true] {
        let committed = post(&service, &of("commit", usage(600)));
        assert_eq!(committed["repeated"], repeated);
        assert_eq!(limits(&committed, "cost"), [Json::Null, json!(600), json!(150)]);
        assert_eq!(limits(&committed, "refunded"), [Json::Null, json!(200), json!(50)]);
    }
    // Nothing is counted of an unknown id, and its usage is judged as that of a known one.
    let other = json!({ "id": "00000000000000000000000000000009" });
    let unknown = |more: Json| {
        let mut body = of("commit", more);
        body["id"] = other["id"].clone();
        body
    };
    let answer = post(&service, &unknown(usage(5)));
    assert_eq!(limits(&answer, "verdict"), ["unknown"; 3]);
    assert_eq!(limits(&answer, "cost"), [Json::Null, Json::Null, Json::Null]);
    for wrong in [
        json!({ "usage": { "input": 1, "typo": 1 }, "model": "small" }),
        json!({ "usage": { "input": 1 } }),
        json!({ "permits": 1 }),
    ] {
        let problem = service.post("/v1/check", &unknown(wrong.clone()).to_string());
        assert_eq!(problem.problem().1, "invalid_usage", "{wrong}");
    }
    let empty = service.post("/v1/check", &of("commit", json!({ "usage": {} })).to_string());
    assert_eq!(empty.json()["errors"][0]["pointer"], "/usage");
    // A rule that does not exist is that, whether the id is known or not.
    for id in [&json!(ID), &other["id"]] {
        let body = json!({ "verb": "commit", "id": id, "rule": "cals", "key": "k" });
        assert_eq!(service.post("/v1/check", &body.to_string()).problem().1, "no_such_rule");
    }
}

/// A charge and a commit say it where the state of their limit counts less than was used.
#[test]
fn what_a_state_cannot_count_is_said() {
    let service = service();
    let most = u64::MAX;
    for (sent, saturated) in [(most - 5_000, true), (1, true), (0, false)] {
        let body = json!({ "verb": "charge", "rule": "weighted", "key": "k", "permits": sent });
        let item = &post(&service, &body)["items"][0];
        let expected = if saturated { json!(true) } else { Json::Null };
        assert_eq!(item["saturated"], expected, "{sent}: {item}");
    }
    let once =
        json!({ "verb": "charge", "once": ID, "rule": "plain", "key": "k", "permits": most });
    for _ in 0..2 {
        assert_eq!(post(&service, &once)["items"][0]["saturated"], true);
    }
    let of = |verb: &str, key: &str, permits: u64| {
        let body = json!({
            "verb": verb, "id": "00000000000000000000000000000006", "rule": "weighted", "key": key,
            "permits": permits,
        });
        post(&service, &body)
    };
    of("reserve", "c", 5);
    for _ in 0..2 {
        let item = &of("commit", "c", most)["items"][0];
        assert_eq!((&item["verdict"], &item["saturated"]), (&json!("committed"), &json!(true)));
    }
    // Late, too.
    let late = |verb: &str, permits: u64| {
        let body = json!({
            "verb": verb, "id": "00000000000000000000000000000007", "rule": "weighted", "key": "l",
            "permits": permits,
        });
        post(&service, &body)
    };
    late("reserve", 5);
    service.clock.advance(Duration::from_secs(61));
    // The same again says the same, whatever it says was used.
    for used in [most, 1, most - 1] {
        let item = &late("commit", used)["items"][0];
        assert_eq!(
            (&item["verdict"], &item["saturated"]),
            (&json!("late"), &json!(true)),
            "{used}"
        );
    }
    let fits = |permits: u64| {
        let mut body = json!({ "verb": "reserve", "id": "00000000000000000000000000000008", "rule": "weighted", "key": "f" });
        body["permits"] = permits.into();
        body
    };
    post(&service, &fits(5));
    service.clock.advance(Duration::from_secs(61));
    for used in [6, most] {
        let mut body = fits(used);
        body["verb"] = "commit".into();
        let item = &post(&service, &body)["items"][0];
        assert_eq!((&item["verdict"], &item["saturated"]), (&json!("late"), &Json::Null), "{used}");
    }
    let less = json!({ "verb": "charge", "rule": "plain", "key": "less", "permits": 1_000 });
    assert_eq!(post(&service, &less)["items"][0]["saturated"], Json::Null);
}

#[test]
fn a_charge_is_made_once_with_its_usage() {
    let service = service();
    let body = |input: u64| {
        json!({
            "verb": "charge", "once": ID, "rule": "calls", "key": "k",
            "usage": { "input": input }, "model": "small",
        })
    };
    for repeated in [false, true] {
        let charged = post(&service, &body(1_200));
        assert_eq!(charged["repeated"], repeated);
        assert_eq!(limits(&charged, "charged"), [1, 1_200, 300]);
        assert_eq!(limits(&charged, "debt"), [Json::Null, json!(200), Json::Null]);
    }
    let other = service.post("/v1/check", &body(1_201).to_string());
    assert_eq!(other.problem().1, "other_items");
}

#[test]
fn faults_of_a_usage_say_where_and_what() {
    let service = service();
    let fault = |body: Json| {
        let answer = service.post("/v1/check", &body.to_string());
        let problem = answer.json();
        assert_eq!(answer.status, 400, "{problem}");
        (problem["code"].as_str().unwrap().to_owned(), problem.to_string())
    };
    let of = |more: Json| {
        let mut body = json!({ "rule": "calls", "key": "k" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (body, code, text) in [
        (of(json!({ "usage": { "inptu": 1 }, "model": "small" })), "invalid_usage", "inptu"),
        (of(json!({ "usage": { "input": 1 } })), "invalid_usage", "send the `model`"),
        (of(json!({ "permits": 3 })), "invalid_usage", "counts money"),
        (
            of(json!({ "usage": { "output": 1 }, "model": "huge" })),
            "invalid_usage",
            "no weight for",
        ),
        (
            of(json!({ "usage": { "output": u64::MAX }, "model": "small" })),
            "invalid_usage",
            "18446744073709551615",
        ),
        (of(json!({ "usage": { "input": 1 }, "permits": 1 })), "invalid_request", "not both"),
        (of(json!({ "model": "small" })), "invalid_request", "belongs to a `usage`"),
        (of(json!({ "usage": { "input": -1 } })), "invalid_request", "expected a whole number"),
        (of(json!({ "usage": [1] })), "invalid_request", "input"),
        (of(json!({ "usage": {}, "verb": "reset" })), "invalid_request", "only for"),
        (json!({ "limit": "1/s", "key": "k", "usage": {} }), "invalid_request", "weights"),
        (
            json!({ "rule": "plain", "key": "k", "usage": { "a": 1 } }),
            "invalid_usage",
            "no weights",
        ),
        (
            json!({ "items": [{ "rule": "plain", "key": "k" }, { "rule": "weighted", "key": "k", "usage": { "c": 1 } }] }),
            "invalid_usage",
            "/items/1/usage",
        ),
    ] {
        let (found, problem) = fault(body.clone());
        assert!(found == code && problem.contains(text), "{body}: {problem}");
    }
    // Nothing was counted.
    let peek = json!({ "verb": "peek", "rule": "calls", "key": "k", "permits": 0 });
    assert_eq!(limits(&post(&service, &peek), "remaining"), [5, 1_000, 5_000]);
    let plain = post(&service, &json!({ "verb": "peek", "rule": "plain", "key": "k" }));
    assert_eq!(plain["items"][0]["remaining"], 10);
    // A descriptor that no rule matches passes, with a usage too.
    let none = json!({ "domain": "llm", "descriptor": { "x": "k" }, "usage": { "y": 1 } });
    assert_eq!(post(&service, &none)["items"][0]["verdict"], "unmatched");
}

#[test]
fn the_header_fields_show_the_strictest_limit() {
    let rules = "[[rule]]\nname = \"calls\"\nmatch = [\"user\"]\nalgorithm = \"fixed-window\"\n\
                 weights = { input = 1 }\nlimits = [\n{ name = \"rpm\", limit = \"9/min\", \
                 counts = \"requests\" },\n{ name = \"tpm\", limit = \"1000/min\" }]\n";
    let loaded =
        load_text("rules.toml", rules).unwrap_or_else(|error| panic!("{}", error.report()));
    let service = with_rules(loaded.rules.set().as_ref().clone());
    let body = r#"{"rule":"calls","key":"ann","permits":300}"#;
    let answer = service.call("POST", "/v1/check", &[("prefer", "status=429")], body);
    assert!(answer.field("ratelimit").starts_with("\"calls/rpm\";r=8"), "{answer:?}");
}
