//! Shares of one limit, over each protocol of a real server.

use serde_json::{Value as Json, json};

use crate::serve::clients::{Resp, Service, envoy};

const RULES: &str = r#"
[[rule]]
name = "calls"
algorithm = "concurrency"
limit = 10
lease = "10min"
match = [{ key = "priority", shares = { crawler = "60%", batch = "30%" } }]
"#;

fn check(service: &Service, body: &str) -> Json {
    let (status, text) = service.http().post("/v1/check", body);
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn each_protocol_starts_calls_within_their_shares() {
    let service = Service::of(RULES);
    // By Envoy's protocol three of batch fit into ten.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let batch = runtime.block_on(envoy(service.at("grpc"), "priority", "batch", 5));
    assert_eq!(batch, 3);
    // By RESP three more of crawler do.
    let mut resp = service.resp();
    let mut lease = |priority| resp.ask(&["RATEGATE.LEASE", "TAKE", "*", "calls", "1", priority]);
    let crawlers: Vec<_> = (0..4).map(|_| lease("crawler")).collect();
    let allowed = crawlers.iter().map(|reply| Resp::field(reply, "allowed"));
    assert_eq!(allowed.collect::<Vec<_>>(), ["1", "1", "1", "0"]);
    let denied = ["verdict", "limit", "remaining"].map(|name| Resp::field(&crawlers[3], name));
    assert_eq!(denied, ["denied", "6", "0"]);
    let explained = resp.ask(&["RATEGATE.EXPLAIN", "calls"]).join(" ");
    assert!(explained.contains("priority=batch:30%|crawler:60%|*:100%"), "{explained}");
    // By HTTP the rest is for all others: named, by a descriptor, and without a priority.
    let others = [
        r#"{"verb":"lease","rule":"calls","key":{"priority":"high"}}"#,
        r#"{"verb":"lease","rule":"calls","key":{}}"#,
        r#"{"verb":"lease","rule":"calls","key":["high"]}"#,
        r#"{"verb":"lease","rule":"calls"}"#,
    ];
    let taken: Vec<Json> = others.iter().map(|body| check(&service, body)).collect();
    assert!(taken.iter().all(|taken| taken["allowed"] == true), "{taken:?}");
    let item = &taken[3]["items"][0];
    assert_eq!(
        (&item["limit"], &item["remaining"], &item["share"]),
        (&json!(10), &json!(0), &json!("100%"))
    );
    let entries = |of: &str| {
        let item = format!(r#"{{"domain":"default","descriptor":{{"priority":"{of}"}}}}"#);
        check(&service, &format!(r#"{{"verb":"peek","items":[{item}]}}"#))
    };
    assert_eq!(entries("high")["allowed"], false, "ten are in flight");
    let name = taken[3]["lease"]["name"].as_str().unwrap();
    let release = format!(r#"{{"verb":"release","rule":"calls","lease":"{name}"}}"#);
    assert_eq!(check(&service, &release)["items"][0]["refunded"], 1);
    assert_eq!(entries("high")["allowed"], true);
    let crawler = &entries("crawler")["items"][0];
    assert_eq!(
        (&crawler["verdict"], &crawler["limit"], &crawler["share"]),
        (&json!("denied"), &json!(6), &json!("60%"))
    );
    // What was shed is counted by its share.
    let metric = |share| {
        let labels = format!("{{rule=\"calls\",share=\"{share}\",outcome=\"denied\"}}");
        service.metric(&format!("rategate_share_denied_total{labels}"))
    };
    assert_eq!([metric("30%"), metric("60%")], [Some("2".into()), Some("1".into())]);
}
