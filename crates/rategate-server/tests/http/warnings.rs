//! Soft limits, and warnings at shares of a limit.

use std::time::Duration;

use fastrand::Rng;
use rategate_server::config::load_text;
use serde_json::{Value as Json, json};

use crate::http::common::{Service, with_rules};

fn service(rules: &str) -> Service {
    let rules = load_text("rules.toml", rules).unwrap_or_else(|error| panic!("{}", error.report()));
    with_rules(rules.rules.set().as_ref().clone())
}

fn item(service: &Service, body: &Json) -> Json {
    service.check(&body.to_string())["items"][0].clone()
}

#[test]
fn a_soft_limit_lets_pass_and_says_so() {
    let service = service(
        r#"
        [[rule]]
        name = "soft"
        match = ["user"]
        limit = "10/min"
        algorithm = "fixed-window"
        enforce = "soft"

        [[rule]]
        name = "charged"
        match = ["user"]
        limit = "10/min"
        algorithm = "fixed-window"
        enforce = "soft"
        over = "charge"

        [[rule]]
        name = "both"
        match = ["user"]
        algorithm = "fixed-window"
        limits = [
            { name = "soft", limit = "5/min", enforce = "soft" },
            { name = "hard", limit = "8/min" },
        ]
        "#,
    );
    let take = |rule: &str, permits: u64| {
        let body = json!({ "rule": rule, "key": "k", "permits": permits });
        let answer = service.check(&body.to_string());
        (answer["allowed"].as_bool().unwrap(), answer["items"][0].clone())
    };
    let (allowed, first) = take("soft", 8);
    assert_eq!((allowed, &first["verdict"]), (true, &json!("granted")));
    let (allowed, over) = take("soft", 3);
    assert_eq!((allowed, &over["verdict"], &over["shadow"]), (true, &json!("soft"), &json!(false)));
    assert_eq!((&over["allowed"], &over["remaining"]), (&json!(true), &json!(2)), "not counted");
    assert_eq!(over["retry_after_ms"], 60_000);
    take("charged", 8);
    let (allowed, over) = take("charged", 3);
    assert_eq!((allowed, &over["verdict"], &over["debt"]), (true, &json!("soft"), &json!(1)));
    take("both", 5);
    let (allowed, over) = take("both", 3);
    assert_eq!(
        (allowed, &over["verdict"], &over["dimension"]),
        (true, &json!("soft"), &json!("soft"))
    );
    let (allowed, denied) = take("both", 1);
    assert_eq!((allowed, &denied["dimension"]), (false, &json!("hard")), "the hard one denies");
}

const WARNS: &str = r#"
[[rule]]
name = "w"
match = ["user"]
limit = "1000/d"
algorithm = "fixed-window"
warn = ["50%", "80%", "95.55%", "100%"]

[[rule]]
name = "several"
match = ["user"]
algorithm = "fixed-window"
limits = [
    { name = "a", limit = "10/d", warn = ["50%"], counts = "requests" },
    { name = "b", limit = "100/d", warn = ["90%"] },
]
"#;

#[test]
fn each_share_warns_once_on_the_way_up() {
    let service = service(WARNS);
    let ask = |verb: &str, permits: u64| {
        let body = json!({ "verb": verb, "rule": "w", "key": "k", "permits": permits });
        item(&service, &body)["warning"].clone()
    };
    assert_eq!(ask("take", 499), Json::Null);
    assert_eq!(ask("peek", 1), Json::Null, "a look warns of nothing");
    assert_eq!(ask("take", 1), "50%");
    assert_eq!(ask("take", 1), Json::Null);
    // The highest of two.
    assert_eq!(ask("take", 455), "95.55%");
    assert_eq!(ask("refund", 200), Json::Null);
    assert_eq!(ask("take", 100), "80%", "what came back makes it warn anew");
    assert_eq!(ask("charge", 500), "100%");
    assert_eq!(ask("charge", 500), Json::Null);
    assert_eq!(ask("take", 1), Json::Null, "a denial counts nothing");
    service.clock.advance(Duration::from_secs(86_400));
    assert_eq!(ask("take", 500), "50%", "in the next window");
}

#[test]
fn limits_of_one_rule_warn_each_by_itself() {
    let service = service(WARNS);
    let warnings = |item: &Json| {
        let limits = item["limits"].as_array().unwrap();
        limits.iter().map(|limit| limit["warning"].clone()).collect::<Vec<_>>()
    };
    let take = |permits: u64| {
        warnings(&item(&service, &json!({ "rule": "several", "key": "k", "permits": permits })))
    };
    for permits in [60, 10, 10, 5] {
        assert_eq!(take(permits), [Json::Null, Json::Null], "{permits}");
    }
    assert_eq!(take(5), [json!("50%"), json!("90%")]);
    // A reservation warns, and a commit that falls below makes it warn anew.
    let reserve = json!({ "verb": "reserve", "rule": "several", "key": "r", "permits": 95, "id": "00000000000000000000000000000001" });
    assert_eq!(warnings(&item(&service, &reserve)), [Json::Null, json!("90%")]);
    assert_eq!(warnings(&item(&service, &reserve)), [Json::Null, Json::Null], "repeated");
    let commit = |used: u64| {
        let id = "00000000000000000000000000000001";
        json!({ "verb": "commit", "rule": "several", "key": "r", "permits": used, "id": id })
    };
    assert_eq!(warnings(&item(&service, &commit(20))), [Json::Null, Json::Null]);
    let reserve = json!({ "verb": "reserve", "rule": "several", "key": "r", "permits": 10, "id": "00000000000000000000000000000002" });
    assert_eq!(warnings(&item(&service, &reserve)), [Json::Null, Json::Null]);
    let mut commit = commit(75);
    commit["id"] = json!("00000000000000000000000000000002");
    assert_eq!(
        warnings(&item(&service, &commit)),
        [Json::Null, json!("90%")],
        "more than was held"
    );
}

/// Random takes, charges and refunds of one key: the shares that are reached are those between
/// what a plain sum says was used before and after.
#[test]
fn random_traces_warn_as_a_plain_sum_does() {
    let shares = [("50%", 500_u64), ("80%", 800), ("95.55%", 956), ("100%", 1_000)];
    for seed in 0..8 {
        let (service, mut rng, mut used) = (service(WARNS), Rng::with_seed(seed), 0_u64);
        for step in 0..150 {
            let permits = rng.u64(1..400);
            let verb = ["take", "take", "charge", "refund"][rng.usize(0..4)];
            let body = json!({ "verb": verb, "rule": "w", "key": "k", "permits": permits });
            let found = item(&service, &body)["warning"].clone();
            let after = match verb {
                "take" if used + permits > 1_000 => used,
                "refund" => used.saturating_sub(permits),
                _ => used + permits,
            };
            let reached =
                shares.iter().rfind(|(_, share)| used < *share && *share <= after).map(|it| it.0);
            assert_eq!(
                found.as_str(),
                reached,
                "seed {seed} step {step}: {verb} {permits} of {used}"
            );
            used = after;
        }
    }
}
